//! The samples of a user and of the aggregator, as `dphe join` and `dphe serve` read them.

use std::path::Path;

use dphe_features::ReadOptions;
use dphe_learn::Dataset;
use dphe_service::kit::Kit;
use dphe_service::samples::Samples;

use super::CliError;

/// Reads samples with the classes and the standardisation of the task.
pub(super) fn task_samples(kit: &Kit, file: &Path) -> Result<Dataset, CliError> {
    let samples = Samples::read(file, &ReadOptions::default())?;
    let Some(start) = kit.start()? else {
        let classes = kit.task_file().linear().map_err(dphe_service::Error::from)?.model.classes;
        let numbers: Vec<String> = (0..classes).map(|class| class.to_string()).collect();
        return Ok(samples.in_classes(&numbers, file)?);
    };
    start.check_features(samples.data.features().width(), samples.source.as_ref(), file)?;
    Ok(samples.in_classes(&start.about.classes, file)?.standardized(&start.standardizer)?)
}
