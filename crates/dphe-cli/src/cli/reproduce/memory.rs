//! Stored measurements of earlier runs, one JSON line per run.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use dphe_reproduce::{Experiment, Measured, Measurement, RunId};
use serde::{Deserialize, Serialize};

use crate::cli::CliError;
use crate::files;

/// The size limit for a file of measurements.
const MAX_BYTES: u64 = 256 << 20;

pub(super) struct MeasurementStore {
    directory: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct StoredRun {
    settings: Vec<(String, String)>,
    run: RunId,
    /// The numbers as text, so that they are read back exactly and may be infinite.
    measurement: BTreeMap<String, String>,
}

impl StoredRun {
    fn numbers(&self) -> Option<Measurement> {
        let numbers = self.measurement.iter().map(|(name, text)| Some((name.clone(), text.parse().ok()?)));
        numbers.collect()
    }
}

impl MeasurementStore {
    /// Opens the store in the output directory. Without one, nothing is stored.
    pub(super) fn open(out: Option<&Path>) -> Result<Self, CliError> {
        let directory = out.map(|out| out.join("measured"));
        if let Some(directory) = &directory {
            let error = |source| CliError::Output { path: directory.clone(), source };
            std::fs::create_dir_all(directory).map_err(error)?;
        }
        Ok(Self { directory })
    }

    fn path(&self, experiment: &dyn Experiment) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{}.jsonl", experiment.name())))
    }

    /// Returns the measurements with the same settings. Incomplete lines of interrupted runs are ignored.
    pub(super) fn recall(&self, experiment: &dyn Experiment) -> Result<Measured, CliError> {
        let mut measured = Measured::new();
        let Some(path) = self.path(experiment).filter(|path| path.exists()) else { return Ok(measured) };
        let bytes = files::read_at_most(&path, MAX_BYTES).map_err(|source| CliError::Data {
            what: format!("{} cannot be read: {source}", path.display()),
            hint: "Delete the file, or choose another directory with `--output`.".into(),
        })?;
        let settings = experiment.settings();
        for line in bytes.split(|&byte| byte == b'\n') {
            if let Ok(line) = serde_json::from_slice::<StoredRun>(line)
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
        run: &RunId,
        measurement: &Measurement,
    ) -> Result<(), CliError> {
        let Some(path) = self.path(experiment) else { return Ok(()) };
        let texts = measurement.iter().map(|(name, number)| (name.clone(), format!("{number:?}")));
        let (settings, measurement) = (experiment.settings(), texts.collect());
        let line = StoredRun { settings, run: run.clone(), measurement };
        // start with a line break, in case the last line is incomplete
        let text = format!("\n{}\n", serde_json::to_string(&line)?);
        let write = || -> std::io::Result<()> {
            let mut file: File = OpenOptions::new().create(true).append(true).open(&path)?;
            file.write_all(text.as_bytes())?;
            file.sync_data()
        };
        write().map_err(|source| CliError::Output { path: path.clone(), source })
    }
}
