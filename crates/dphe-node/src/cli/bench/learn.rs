//! `dphe bench learn`: one fit on one thread, with the numbers that scikit-learn can be asked for too.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dphe_features::ReadOptions;
use dphe_learn::dataset::split_per_class;
use dphe_learn::linear::{Loss, Penalty, Schedule, SgdParams, Stable, objective};
use dphe_learn::metrics::mean_per_class_accuracy;
use dphe_learn::{Dataset, Features, Seed, Standardizer, Threads};
use serde::Serialize;

use super::Format;
use crate::cli::CliError;
use crate::cli::measure::processor_time;
use crate::samples::Samples;

/// Samples of a class to learn from, and at most to test on.
const PER_CLASS: (usize, usize) = (30, 50);

/// One fit of a linear classifier on one thread
#[derive(Args, Debug)]
pub(crate) struct Learn {
    /// A folder with features.npy, labels.npy and classes.json, or a file of features
    #[arg(long, value_name = "FOLDER")]
    data: PathBuf,
    /// What keeps weights small or few
    #[arg(long, value_enum, default_value_t = PenaltyName::L2)]
    penalty: PenaltyName,
    /// Its strength
    #[arg(long, default_value_t = 1e-3)]
    alpha: f64,
    /// The part of L1 in an elastic net
    #[arg(long, default_value_t = 0.5)]
    l1_ratio: f64,
    /// Passes over the samples
    #[arg(long, default_value_t = 10)]
    epochs: usize,
    /// The size of steps: scikit-learn's rule, or the one of rounds
    #[arg(long, value_enum, default_value_t = ScheduleName::Optimal)]
    schedule: ScheduleName,
    /// Fixes which samples are learnt from, and their order
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A table to read, or JSON
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
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
    /// Processor time of the fit, one thread.
    fit_s: f64,
    /// Summed over classes: mean hinge loss and penalty.
    objective: f64,
    /// On held-out samples, the mean over classes, from 0 to 1.
    accuracy: f64,
    /// The fraction of weights that are zero.
    sparsity: f64,
}

impl Learn {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let samples = Samples::read(&self.data, &ReadOptions::default())?;
        let seed = Seed::new(self.seed);
        let split = split_per_class(samples.data.labels(), PER_CLASS.0, PER_CLASS.1, &seed)?;
        let standardizer = Standardizer::fit(&samples.data.features().select(&split.train)?);
        let pick = |part: &[usize]| -> Result<Dataset, CliError> {
            let part = samples.data.select(part)?;
            let features: Features<f32> = standardizer.apply(part.features())?;
            Ok(part.with_features(features)?)
        };
        let (train, test) = (pick(&split.train)?, pick(&split.test)?);

        let penalty = match self.penalty {
            PenaltyName::ElasticNet => Penalty::elastic_net(self.alpha, self.l1_ratio)?,
            PenaltyName::L2 => Penalty::l2(self.alpha)?,
        };
        let schedule = match self.schedule {
            ScheduleName::Optimal => Schedule::Optimal,
            ScheduleName::Stable => Schedule::Stable(Stable::for_features(train.features())),
        };
        let sgd = SgdParams { penalty, epochs: self.epochs, ..SgdParams::new(schedule) }.check()?;
        let start = processor_time();
        let weights = sgd.fit(&train, &seed)?;
        let fit = processor_time().saturating_sub(start);

        let scores = weights.scores(test.features(), Threads::ONE)?;
        let report = Report {
            samples: train.len(),
            features: train.features().width(),
            classes: samples.classes.len(),
            epochs: self.epochs,
            fit_s: fit.as_secs_f64(),
            objective: objective(Loss::Hinge, penalty, &weights, &train, Threads::ONE)?,
            accuracy: mean_per_class_accuracy(test.labels().as_classes("accuracy")?, &scores.best())?,
            sparsity: weights.sparsity(),
        };
        report.print(self.format)
    }
}

impl Report {
    fn print(&self, format: Format) -> Result<(), CliError> {
        if format == Format::Json {
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
