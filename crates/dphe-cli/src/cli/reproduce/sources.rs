//! The data sets of experiments: real ones if available, and substitutes otherwise.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::digits;
use dphe_learn::Seed;
use dphe_reproduce::data::{self, Presplit, YouTube8m};
use dphe_reproduce::experiments::{AttributeSource, AttributeSplit, AttributeTask, Source};

use crate::cli::CliError;

/// The number of public samples to take from sets that have none, as in the paper.
const LIFELOG_INITIAL: usize = 132;
const YOUTUBE8M_INITIAL: usize = 50_000;
/// The number of public medical images.
const MEDICAL_INITIAL: usize = 100;

pub(super) struct Sources {
    directory: Option<PathBuf>,
    objects: Option<Vec<Source>>,
}

impl Sources {
    pub(super) fn new(directory: Option<PathBuf>) -> Result<Self, CliError> {
        if let Some(directory) = &directory
            && !directory.is_dir()
        {
            return Err(CliError::Data {
                what: format!("{} is not a directory", directory.display()),
                hint: "See docs/reproduction.md#data-sets for the contents of `--data-sets`.".into(),
            });
        }
        Ok(Self { directory, objects: None })
    }

    fn part(&self, name: &str) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.join(name)).filter(|directory| directory.is_dir())
    }

    /// Returns the object recognition data sets: Caltech, a directory of features, or the digits.
    pub(super) fn objects(&mut self) -> Result<Vec<Source>, CliError> {
        if let Some(objects) = &self.objects {
            return Ok(objects.clone());
        }
        let mut objects = Vec::new();
        if let Some(directory) = self.part("caltech101") {
            let found = data::caltech(&directory)?;
            objects.push(Source::caltech101(Arc::new(found.data), found.names));
        }
        if let Some(directory) = self.part("caltech256") {
            let found = data::caltech(&directory)?;
            objects.push(Source::caltech256(Arc::new(found.data), found.names));
        }
        if let Some(directory) = self.directory.as_deref().filter(|directory| holds_features(directory)) {
            let found = data::caltech(directory)?;
            let name =
                directory.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
            let source = Source::caltech101(Arc::new(found.data), found.names);
            objects.push(Source { name: name.unwrap_or_else(|| "features".into()), ..source });
        }
        if objects.is_empty() {
            let others = ["celeba", "lifelog", "youtube8m", "medical", "chest-xray"];
            if let Some(directory) = &self.directory
                && !others.iter().any(|name| self.part(name).is_some())
            {
                return Err(CliError::Data {
                    what: format!("{} contains no known data set", directory.display()),
                    hint: "See docs/reproduction.md#data-sets for the contents of `--data-sets`.".into(),
                });
            }
            objects.push(Source::digits(Arc::new(digits::digits()?)));
        }
        self.objects = Some(objects.clone());
        Ok(objects)
    }

    /// Returns the first object recognition data set.
    pub(super) fn main(&mut self) -> Result<Source, CliError> {
        let first = self.objects()?.into_iter().next();
        Ok(first.unwrap_or(Source::digits(Arc::new(digits::digits()?))))
    }

    fn stand_in(&mut self, task: AttributeTask) -> Result<AttributeSource, CliError> {
        Ok(AttributeSource::stand_in(self.main()?, task))
    }

    pub(super) fn faces(&mut self) -> Result<AttributeSource, CliError> {
        match self.part("celeba") {
            Some(directory) => given("celeba", data::celeba(&directory)?, 0),
            None => self.stand_in(AttributeTask::Faces),
        }
    }

    pub(super) fn places(&mut self) -> Result<AttributeSource, CliError> {
        match self.part("lifelog") {
            Some(directory) => given("lifelog", data::lifelog(&directory)?, LIFELOG_INITIAL),
            None => self.stand_in(AttributeTask::Places),
        }
    }

    pub(super) fn videos(&mut self) -> Result<AttributeSource, CliError> {
        match self.part("youtube8m") {
            Some(directory) => {
                given("youtube8m", data::youtube8m(&directory, &YouTube8m::default())?, YOUTUBE8M_INITIAL)
            }
            None => self.stand_in(AttributeTask::Videos),
        }
    }

    pub(super) fn medical(&mut self) -> Result<AttributeSource, CliError> {
        for name in ["medical", "chest-xray"] {
            if let Some(directory) = self.part(name) {
                return given(name, data::medical(&directory)?, MEDICAL_INITIAL);
            }
        }
        self.stand_in(AttributeTask::Medical)
    }
}

fn holds_features(directory: &Path) -> bool {
    ["features.npz", "features.npy"].iter().any(|name| directory.join(name).is_file())
}

fn given(name: &str, found: Presplit, initial: usize) -> Result<AttributeSource, CliError> {
    let found = found.with_initial(initial, &Seed::new(0))?;
    let Some(initial) = found.initial else {
        return Err(CliError::Data {
            what: format!("{name} has no public samples"),
            hint: "See docs/reproduction.md#data-sets.".into(),
        });
    };
    let split = AttributeSplit {
        initial: Arc::new(initial),
        private: Arc::new(found.train),
        held_out: Arc::new(found.held_out),
    };
    Ok(AttributeSource::given(name, split))
}

/// Returns the seconds per encryption of python-paillier with the paper's 1024 bits, if it is installed.
pub(super) fn phe_seconds() -> Option<f64> {
    const SCRIPT: &str = "import time, phe; k = phe.generate_paillier_keypair(n_length=1024)[0]; \
                          t = time.process_time(); [k.encrypt(i / 7) for i in range(40)]; \
                          print((time.process_time() - t) / 40)";
    let pythons = [std::env::var_os("DPHE_TEST_PYTHON"), Some("python3".into())];
    pythons.into_iter().flatten().find_map(|python| {
        let run =
            Command::new(python).args(["-c", SCRIPT]).stdin(Stdio::null()).stderr(Stdio::null()).output();
        String::from_utf8(run.ok()?.stdout).ok()?.trim().parse().ok()
    })
}
