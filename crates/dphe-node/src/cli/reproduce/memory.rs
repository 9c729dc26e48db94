//! What was measured already, by experiment and settings: a line a run, written when it is over.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use dphe_reproduce::{Experiment, Measured, Measurement, Run};
use serde::{Deserialize, Serialize};

use crate::cli::CliError;
use crate::files;

/// No file of measurements is longer.
const MAX_BYTES: u64 = 256 << 20;

pub(super) struct Memory {
    folder: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    settings: Vec<(String, String)>,
    run: Run,
    /// As text: read back they are the same numbers to the last digit, and may be infinite.
    measurement: BTreeMap<String, String>,
}

impl Line {
    fn numbers(&self) -> Option<Measurement> {
        let numbers = self.measurement.iter().map(|(name, text)| Some((name.clone(), text.parse().ok()?)));
        numbers.collect()
    }
}

impl Memory {
    /// In this folder, or nowhere.
    pub(super) fn open(out: Option<&Path>) -> Result<Self, CliError> {
        let folder = out.map(|out| out.join("measured"));
        if let Some(folder) = &folder {
            let error = |source| CliError::Output { path: folder.clone(), source };
            std::fs::create_dir_all(folder).map_err(error)?;
        }
        Ok(Self { folder })
    }

    fn path(&self, experiment: &dyn Experiment) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{}.jsonl", experiment.name())))
    }

    /// What was measured with the same settings. A line that was cut by an interrupt is no measurement.
    pub(super) fn recall(&self, experiment: &dyn Experiment) -> Result<Measured, CliError> {
        let mut measured = Measured::new();
        let Some(path) = self.path(experiment).filter(|path| path.exists()) else { return Ok(measured) };
        let bytes = files::read_at_most(&path, MAX_BYTES).map_err(|source| CliError::Data {
            what: format!("{} cannot be read: {source}", path.display()),
            hint: "delete it, or another folder with --out".into(),
        })?;
        let settings = experiment.settings();
        for line in bytes.split(|&byte| byte == b'\n') {
            if let Ok(line) = serde_json::from_slice::<Line>(line)
                && line.settings == settings
                && let Some(numbers) = line.numbers()
            {
                measured.insert(line.run, numbers);
            }
        }
        Ok(measured)
    }

    pub(super) fn keep(
        &mut self,
        experiment: &dyn Experiment,
        run: &Run,
        measurement: &Measurement,
    ) -> Result<(), CliError> {
        let Some(path) = self.path(experiment) else { return Ok(()) };
        let texts = measurement.iter().map(|(name, number)| (name.clone(), format!("{number:?}")));
        let (settings, measurement) = (experiment.settings(), texts.collect());
        let line = Line { settings, run: run.clone(), measurement };
        // a new line before it: what was cut there stays alone
        let text = format!("\n{}\n", serde_json::to_string(&line)?);
        let write = || -> std::io::Result<()> {
            let mut file: File = OpenOptions::new().create(true).append(true).open(&path)?;
            file.write_all(text.as_bytes())?;
            file.sync_data()
        };
        write().map_err(|source| CliError::Output { path: path.clone(), source })
    }
}
