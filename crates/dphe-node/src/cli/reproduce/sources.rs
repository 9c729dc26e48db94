//! Where experiments get their data: the real sets that are there, and what takes their place where they are not.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use dphe_learn::Seed;
use dphe_node::digits;
use dphe_reproduce::data::{self, Presplit, YouTube8m};
use dphe_reproduce::experiments::{AttributeSource, AttributeSplit, Source, Task};

use crate::cli::CliError;

/// Public samples of the sets that have none set aside: as many as the paper's.
const LIFELOG_INITIAL: usize = 132;
const YOUTUBE8M_INITIAL: usize = 50_000;

pub(super) struct Sources {
    folder: Option<PathBuf>,
    objects: Option<Vec<Source>>,
}

impl Sources {
    pub(super) fn new(folder: Option<PathBuf>) -> Result<Self, CliError> {
        if let Some(folder) = &folder
            && !folder.is_dir()
        {
            return Err(CliError::Data {
                what: format!("{} is not a folder", folder.display()),
                hint: "docs/reproduction.md#data-sets says what --data looks for".into(),
            });
        }
        Ok(Self { folder, objects: None })
    }

    fn part(&self, name: &str) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(name)).filter(|folder| folder.is_dir())
    }

    /// Data sets of objects: Caltech's, or a folder of features, or digits.
    pub(super) fn objects(&mut self) -> Result<Vec<Source>, CliError> {
        if let Some(objects) = &self.objects {
            return Ok(objects.clone());
        }
        let mut objects = Vec::new();
        if let Some(folder) = self.part("caltech101") {
            let found = data::caltech(&folder)?;
            objects.push(Source::caltech101(Arc::new(found.data), found.names));
        }
        if let Some(folder) = self.part("caltech256") {
            let found = data::caltech(&folder)?;
            objects.push(Source::caltech256(Arc::new(found.data), found.names));
        }
        if let Some(folder) = self.folder.as_deref().filter(|folder| holds_features(folder)) {
            let found = data::caltech(folder)?;
            let name =
                folder.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
            let source = Source::caltech101(Arc::new(found.data), found.names);
            objects.push(Source { name: name.unwrap_or_else(|| "features".into()), ..source });
        }
        if objects.is_empty() {
            let others = ["celeba", "lifelog", "youtube8m"];
            if let Some(folder) = &self.folder
                && !others.iter().any(|name| self.part(name).is_some())
            {
                return Err(CliError::Data {
                    what: format!("{} holds no data set that is known", folder.display()),
                    hint: "docs/reproduction.md#data-sets says what --data looks for".into(),
                });
            }
            objects.push(Source::digits(Arc::new(digits::digits()?)));
        }
        self.objects = Some(objects.clone());
        Ok(objects)
    }

    /// The first of them.
    pub(super) fn main(&mut self) -> Result<Source, CliError> {
        let first = self.objects()?.into_iter().next();
        Ok(first.unwrap_or(Source::digits(Arc::new(digits::digits()?))))
    }

    fn stand_in(&mut self, task: Task) -> Result<AttributeSource, CliError> {
        Ok(AttributeSource::stand_in(self.main()?, task))
    }

    pub(super) fn faces(&mut self) -> Result<AttributeSource, CliError> {
        match self.part("celeba") {
            Some(folder) => given("celeba", data::celeba(&folder)?, 0),
            None => self.stand_in(Task::Faces),
        }
    }

    pub(super) fn places(&mut self) -> Result<AttributeSource, CliError> {
        match self.part("lifelog") {
            Some(folder) => given("lifelog", data::lifelog(&folder)?, LIFELOG_INITIAL),
            None => self.stand_in(Task::Places),
        }
    }

    pub(super) fn videos(&mut self) -> Result<AttributeSource, CliError> {
        match self.part("youtube8m") {
            Some(folder) => {
                given("youtube8m", data::youtube8m(&folder, &YouTube8m::default())?, YOUTUBE8M_INITIAL)
            }
            None => self.stand_in(Task::Videos),
        }
    }
}

fn holds_features(folder: &Path) -> bool {
    ["features.npz", "features.npy"].iter().any(|name| folder.join(name).is_file())
}

fn given(name: &str, found: Presplit, initial: usize) -> Result<AttributeSource, CliError> {
    let found = found.with_initial(initial, &Seed::new(0))?;
    let Some(initial) = found.initial else {
        return Err(CliError::Data {
            what: format!("{name} has no public samples"),
            hint: "docs/reproduction.md#data-sets".into(),
        });
    };
    let split = AttributeSplit {
        initial: Arc::new(initial),
        private: Arc::new(found.train),
        held_out: Arc::new(found.held_out),
    };
    Ok(AttributeSource::given(name, split))
}

/// Seconds that python-paillier takes for one encryption at the paper's 1024 bits, if a Python here has it.
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
