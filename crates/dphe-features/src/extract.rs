//! Extracts features from photos on all cores. A cache makes interrupted runs resumable.

mod corpus;
mod journal;
mod video;

pub use corpus::Corpus;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use sha2::{Digest, Sha256};

use crate::file::{NpzParts, write_npz_rows};
use crate::{Error, FeatureModel, FeatureSource, Preprocessing, picture};
use journal::{Journal, PhotoDigest};

/// The largest photo file that is read.
const MOST_BYTES: u64 = 1 << 28;

/// The settings of an extraction: network, preprocessing, cache and threads.
pub struct Extraction<'a> {
    /// The network that computes the features.
    pub model: &'a FeatureModel,
    /// The preprocessing of photos for this network.
    pub preprocessing: &'a Preprocessing,
    /// The directory that keeps features, so that no photo is extracted twice.
    pub cache: PathBuf,
    /// The number of photos that are processed in parallel.
    pub threads: NonZeroUsize,
    /// Whether an unreadable photo is an error. Otherwise it is left out.
    pub strict: bool,
}

/// The progress of a running extraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtractionProgress {
    /// The number of photos processed so far, including unreadable ones.
    pub done: usize,
    /// The number of photos in total.
    pub total: usize,
}

/// The result of an extraction.
#[derive(Debug)]
pub struct Extracted {
    /// The number of photos in the output.
    pub samples: usize,
    /// The number of photos that the network processed in this run.
    pub computed: usize,
    /// The number of photos whose features came from the cache.
    pub reused: usize,
    /// The unreadable photos with the reason, in the order of the corpus.
    pub broken: Vec<(String, String)>,
}

impl Extraction<'_> {
    /// Extracts all photos and writes the output as `.npz`. After an interruption, the next run continues from the
    /// cache and writes the same output.
    ///
    /// # Errors
    /// If the cache or the output cannot be written, no photo is readable, or, if `strict`, any photo is unreadable.
    pub fn run(
        &self,
        corpus: &Corpus,
        output: &Path,
        progress: impl Fn(ExtractionProgress) + Sync,
    ) -> Result<Extracted, Error> {
        self.preprocessing.check()?;
        let source =
            FeatureSource { model_digest: self.model.digest().into(), preprocessing: self.description()? };
        let key = format!("1\n{}\n{}", source.model_digest, source.preprocessing);
        let journal = Journal::open(&self.cache, &key, self.model.width())?;
        let work = Work::new(self, corpus, journal);
        thread::scope(|scope| {
            for _ in 0..self.threads.get() {
                scope.spawn(|| work.run(&progress));
            }
        });
        work.finish(output, source)
    }

    /// Describes everything but the network's file that determines a feature.
    fn description(&self) -> Result<String, Error> {
        // parse the text again, because converting f32 to JSON values directly would add digits
        let mut description: serde_json::Value = serde_json::from_str(&self.preprocessing.json()?)
            .map_err(|error| Error::table(error.to_string(), "Use finite numbers."))?;
        description["output"] = self.model.output().into();
        Ok(description.to_string())
    }
}

/// The state that the worker threads share.
struct Work<'a> {
    extraction: &'a Extraction<'a>,
    corpus: &'a Corpus,
    next: AtomicUsize,
    done: AtomicUsize,
    stop: AtomicBool,
    shared: Mutex<Shared>,
}

struct Shared {
    journal: Journal,
    /// The photos that a thread has started. Identical files are processed once.
    taken: HashSet<PhotoDigest>,
    /// The reasons why photos are unreadable.
    wrong: HashMap<PhotoDigest, String>,
    outcomes: Vec<Option<Result<PhotoDigest, String>>>,
    computed: usize,
    failure: Option<Error>,
}

impl<'a> Work<'a> {
    fn new(extraction: &'a Extraction<'a>, corpus: &'a Corpus, journal: Journal) -> Self {
        let shared = Shared {
            journal,
            taken: HashSet::new(),
            wrong: HashMap::new(),
            outcomes: vec![None; corpus.len()],
            computed: 0,
            failure: None,
        };
        Self {
            extraction,
            corpus,
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            shared: Mutex::new(shared),
        }
    }

    fn run(&self, progress: &(impl Fn(ExtractionProgress) + Sync)) {
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = self.corpus.files.get(number) else { return };
            let outcome = self.photo(&self.corpus.root.join(file));
            match outcome {
                Ok(outcome) => self.locked(|shared| shared.outcomes[number] = Some(outcome)),
                Err(failure) => {
                    self.stop.store(true, Ordering::Relaxed);
                    self.locked(|shared| {
                        shared.failure.get_or_insert(failure);
                    });
                }
            }
            let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
            progress(ExtractionProgress { done, total: self.corpus.len() });
        }
    }

    fn locked<T>(&self, change: impl FnOnce(&mut Shared) -> T) -> T {
        change(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Processes one photo. The inner error means that the photo is unreadable, the outer one that the extraction
    /// fails.
    fn photo(&self, path: &Path) -> Result<Result<PhotoDigest, String>, Error> {
        let (digest, bytes) = match read(path) {
            Ok(read) => read,
            Err(wrong) => return Ok(Err(wrong)),
        };
        let known = self.locked(|shared| shared.journal.contains(&digest) || !shared.taken.insert(digest));
        if known {
            return Ok(Ok(digest));
        }
        let features = match bytes {
            Some(bytes) => self.picture(&bytes)?,
            None => self.video(path)?,
        };
        let features = match features {
            Ok(features) => features,
            Err(wrong) => {
                self.locked(|shared| shared.wrong.insert(digest, wrong));
                return Ok(Ok(digest));
            }
        };
        self.locked(|shared| {
            shared.computed += 1;
            shared.journal.append(digest, &features)
        })?;
        Ok(Ok(digest))
    }

    fn picture(&self, bytes: &[u8]) -> Result<Result<Vec<f32>, String>, Error> {
        match picture::decode(bytes) {
            Ok(picture) => self.extraction.model.run(&self.extraction.preprocessing.apply(&picture)).map(Ok),
            Err(wrong) => Ok(Err(wrong)),
        }
    }

    /// Returns the mean features of sampled frames.
    fn video(&self, path: &Path) -> Result<Result<Vec<f32>, String>, Error> {
        let mut sums = vec![0.0f64; self.extraction.model.width()];
        let mut failure = None;
        let count = video::frames(path, |frame| {
            let picture = picture::decode(frame)?;
            let features = self.extraction.model.run(&self.extraction.preprocessing.apply(&picture));
            let features = features.map_err(|error| {
                let text = error.to_string();
                failure = Some(error);
                text
            })?;
            sums.iter_mut().zip(features).for_each(|(sum, value)| *sum += f64::from(value));
            Ok(())
        });
        match failure {
            Some(failure) => Err(failure),
            None => Ok(count.map(|count| sums.iter().map(|sum| (sum / count as f64) as f32).collect())),
        }
    }

    fn finish(self, output: &Path, source: FeatureSource) -> Result<Extracted, Error> {
        let shared = self.shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = shared.failure {
            return Err(failure);
        }
        let (mut kept, mut digests, mut broken) = (Vec::new(), Vec::new(), Vec::new());
        let mut journal = shared.journal;
        for (number, outcome) in shared.outcomes.into_iter().enumerate() {
            let file = &self.corpus.files[number];
            match outcome {
                Some(Ok(digest)) if !journal.contains(&digest) => {
                    let wrong = shared.wrong.get(&digest).cloned();
                    broken.push((file.clone(), wrong.unwrap_or_else(|| "it was not processed".into())));
                }
                Some(Ok(digest)) => {
                    kept.push(number);
                    digests.push(digest);
                }
                Some(Err(wrong)) => broken.push((file.clone(), wrong)),
                None => broken.push((file.clone(), "it was not read".into())),
            }
        }
        if let Some((file, wrong)) = broken.first()
            && (self.extraction.strict || kept.is_empty())
        {
            return Err(Error::File {
                path: self.corpus.root.join(file),
                what: format!("{wrong} ({} of {} photos cannot be read)", broken.len(), self.corpus.len()),
                hint: "Repair or remove these photos, or run without --strict to leave them out.".into(),
            });
        }

        let labels = self.corpus.labels.as_ref();
        let labels = labels.map(|(labels, classes)| (labels.select(&kept, classes.len()), &classes[..]));
        let files: Vec<String> = kept.iter().map(|&number| self.corpus.files[number].clone()).collect();
        let parts = NpzParts {
            samples: kept.len(),
            width: self.extraction.model.width(),
            labels: labels.as_ref().map(|(labels, classes)| (labels, *classes)),
            files: &files,
            source: Some(&source),
        };
        // rows are copied from the cache one by one, so memory does not grow with the number of photos
        write_npz_rows(output, &parts, digests.iter().map(|digest| journal.features(digest)))?;
        Ok(Extracted {
            samples: kept.len(),
            computed: shared.computed,
            reused: kept.len().saturating_sub(shared.computed),
            broken,
        })
    }
}

/// Returns the digest of a file, and its bytes unless it is a video.
fn read(path: &Path) -> Result<(PhotoDigest, Option<Vec<u8>>), String> {
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    if corpus::is_video(path) {
        let mut hasher = Sha256::new();
        io::copy(&mut file, &mut HashWriter(&mut hasher)).map_err(|error| error.to_string())?;
        return Ok((hasher.finalize().into(), None));
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("the file is larger than {} MiB", MOST_BYTES >> 20));
    }
    Ok((Sha256::digest(&bytes).into(), Some(bytes)))
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
