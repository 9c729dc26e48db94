//! `dphe bench learn`: times one fit on one thread, and prints numbers that scikit-learn can reproduce.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dphe_features::ReadOptions;
use dphe_learn::dataset::split_per_class;
use dphe_learn::linear::{Loss, Penalty, Schedule, SgdParams, Stable, objective};
use dphe_learn::metrics::mean_per_class_accuracy;
use dphe_learn::{Dataset, Seed, Standardizer};
use serde::Serialize;

use crate::args::TableFormat;
use crate::cli::CliError;
use crate::samples::Samples;
use crate::timing::processor_time;

/// The number of training samples per class, and the most test samples per class.
const PER_CLASS: (usize, usize) = (30, 50);

/// Time the learner on one thread, to compare with scikit-learn
#[derive(Args, Debug)]
pub(crate) struct Learn {
    /// A feature file, or a directory with features.npy, labels.npy and classes.json
    #[arg(long, value_name = "FILE")]
    features: PathBuf,
    /// The penalty
    #[arg(long, value_enum, default_value_t = PenaltyName::L2)]
    penalty: PenaltyName,
    /// The strength of the penalty
    #[arg(long, default_value_t = 1e-3)]
    strength: f64,
    /// The L1 ratio of an elastic net
    #[arg(long, default_value_t = 0.5)]
    l1_ratio: f64,
    /// The number of passes over the samples
    #[arg(long, default_value_t = 10)]
    epochs: usize,
    /// The step size schedule: scikit-learn's, or the one for rounds
    #[arg(long, value_enum, default_value_t = ScheduleName::Optimal)]
    schedule: ScheduleName,
    /// The random seed of the split and of the sample order
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The output format
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    format: TableFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PenaltyName {
    #[value(name = "elasticnet")]
    ElasticNet,
    L2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScheduleName {
    Optimal,
    Stable,
}

#[derive(Serialize)]
struct Report {
    samples: usize,
    features: usize,
    classes: usize,
    epochs: usize,
    /// Processor time of the fit, on one thread.
    fit_s: f64,
    /// The mean hinge loss and the penalty, summed over classes.
    objective: f64,
    /// The mean accuracy over classes on held-out samples, from 0 to 1.
    accuracy: f64,
    /// The fraction of weights that are zero.
    sparsity: f64,
}

impl Learn {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let samples = Samples::read(&self.features, &ReadOptions::default())?;
        let seed = Seed::new(self.seed);
        let split = split_per_class(samples.data.labels(), PER_CLASS.0, PER_CLASS.1, &seed)?;
        let standardizer = Standardizer::fit(&samples.data.features().select(&split.train)?);
        let pick = |part: &[usize]| -> Result<Dataset, CliError> {
            Ok(samples.data.select(part)?.standardized(&standardizer)?)
        };
        let (train, test) = (pick(&split.train)?, pick(&split.test)?);

        let penalty = match self.penalty {
            PenaltyName::ElasticNet => Penalty::elastic_net(self.strength, self.l1_ratio)?,
            PenaltyName::L2 => Penalty::l2(self.strength)?,
        };
        let schedule = match self.schedule {
            ScheduleName::Optimal => Schedule::Optimal,
            ScheduleName::Stable => Schedule::Stable(Stable::for_features(train.features())),
        };
        let sgd = SgdParams { penalty, epochs: self.epochs, ..SgdParams::new(schedule) }.check()?;
        let start = processor_time();
        let weights = sgd.fit(&train, &seed)?;
        let fit = processor_time().saturating_sub(start);

        let scores = weights.scores(test.features(), NonZeroUsize::MIN)?;
        let report = Report {
            samples: train.len(),
            features: train.features().width(),
            classes: samples.classes.len(),
            epochs: self.epochs,
            fit_s: fit.as_secs_f64(),
            objective: objective(Loss::Hinge, penalty, &weights, &train, NonZeroUsize::MIN)?,
            accuracy: mean_per_class_accuracy(test.labels().as_classes("accuracy")?, &scores.best())?,
            sparsity: weights.sparsity(),
        };
        report.print(self.format)
    }
}

impl Report {
    fn print(&self, format: TableFormat) -> Result<(), CliError> {
        if format == TableFormat::Json {
            println!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        println!(
            "{} samples, {} features, {} classes, {} epochs, one thread\n",
            self.samples, self.features, self.classes, self.epochs
        );
        println!("fit              {:.3} s of processor time", self.fit_s);
        println!("objective        {:.5}", self.objective);
        println!("accuracy         {:.2} %", 100.0 * self.accuracy);
        println!("zeros            {:.1} %", 100.0 * self.sparsity);
        Ok(())
    }
}
