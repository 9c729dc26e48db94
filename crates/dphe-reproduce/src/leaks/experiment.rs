//! The experiment that computes every leak on every private sample, and tries the same with sealed steps.

mod findings;

use dphe_federate::Stopwatch;
use dphe_learn::{Dataset, Seed};

use super::measure;
use super::victim::Victim;
use crate::experiment::fingerprint;
use crate::{Error, Experiment, Findings, Measured, Measurement, RunId};

/// The leaks by name, with their titles in tables.
const LEAKS: [(&str, &str); 8] = [
    ("hinge", "hinge, one step"),
    ("logistic-1", "logistic, one step, model of 1 epoch"),
    ("logistic-5", "logistic, one step, model of 5 epochs"),
    ("logistic-25", "logistic, one step, model of 25 epochs"),
    ("intercept", "either, one step with an intercept"),
    ("elastic-net", "hinge, one step with L1"),
    ("average", "gradient descent"),
    ("sealed", "the same step, sealed"),
];

/// An experiment about the leaks that the paper's supplement derives.
#[derive(Clone, Debug)]
pub struct Leaks {
    name: String,
    data: Dataset,
    seeds: u64,
    quick: bool,
    /// The width of an image and the value of a white pixel, if features are pixels.
    pixels: Option<(usize, f64)>,
}

impl Leaks {
    /// Makes the experiment on these data with this many splits.
    pub fn new(name: &str, data: Dataset, seeds: u64) -> Self {
        Self { name: name.to_owned(), data, seeds, quick: false, pixels: None }
    }

    /// Shows samples as images. Features must be pixels in row-major order, from 0 (black) to `white`.
    #[must_use]
    pub fn with_pictures(self, width: usize, white: f64) -> Self {
        Self { pixels: (width > 0 && white > 0.0).then_some((width, white)), ..self }
    }

    /// Uses fewer samples.
    #[must_use]
    pub fn quick(self) -> Self {
        Self { quick: true, ..self }
    }

    /// The number of private samples in a run.
    fn samples(&self) -> usize {
        if self.quick { 200 } else { 2_000 }
    }

    /// The number of sealed samples, and of users whose averages leak.
    fn few(&self) -> usize {
        if self.quick { 10 } else { 40 }
    }

    fn run_name(&self, leak: &str) -> String {
        format!("{}/{leak}", self.name)
    }
}

impl Experiment for Leaks {
    fn name(&self) -> &'static str {
        "leaks"
    }

    fn settings(&self) -> Vec<(String, String)> {
        [
            ("data", format!("{}, {}", self.name, fingerprint(&self.data))),
            ("private samples", self.samples().to_string()),
            ("sealed samples, and users with averages", self.few().to_string()),
            ("splits", self.seeds.to_string()),
            ("pictures", self.pixels.is_some().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    fn runs(&self) -> Vec<RunId> {
        let of = |seed| LEAKS.map(|(leak, _)| RunId { what: self.run_name(leak), seed });
        (0..self.seeds).flat_map(of).collect()
    }

    fn weight(&self, run: &RunId) -> f64 {
        if run.what.ends_with("/elastic-net") || run.what.ends_with("/average") { 3.0 } else { 1.0 }
    }

    fn measure(&self, run: &RunId, _stopwatch: &mut Stopwatch) -> Result<Measurement, Error> {
        let unknown = || Error::UnknownRun(run.what.clone());
        let leak = LEAKS.iter().map(|(leak, _)| *leak).find(|leak| run.what == self.run_name(leak));
        let leak = leak.ok_or_else(unknown)?;
        let seed = Seed::new(run.seed);
        // each split attacks another class
        let class = run.seed as usize % self.data.labels().class_count();
        let victim = Victim::new(&self.data, class, self.samples(), seed)?;
        let mut measurement = match leak {
            "hinge" => measure::of_hinge(&victim)?,
            "intercept" => measure::of_intercept(&victim)?,
            "elastic-net" => measure::of_elastic_net(&victim)?,
            "average" => measure::of_average(&victim, self.few())?,
            "sealed" => measure::of_sealed(&victim, self.few(), &seed)?,
            logistic => {
                let epochs = logistic.strip_prefix("logistic-").and_then(|epochs| epochs.parse().ok());
                measure::of_logistic(&victim, epochs.ok_or_else(unknown)?)?
            }
        };
        // images of one split are enough
        if self.pixels.is_none() || run.seed > 0 {
            measurement.retain(|name, _| !name.starts_with("picture"));
        }
        Ok(measurement)
    }

    fn findings(&self, measured: &Measured) -> Findings {
        findings::of(self, measured)
    }
}
