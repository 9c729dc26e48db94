//! The experiment that computes every leak on every private sample, and tries the same with sealed steps.

mod findings;

use dphe_federate::Stopwatch;
use dphe_learn::{Dataset, Seed};

use super::measure;
use super::victim::Victim;
use crate::experiment::fingerprint;
use crate::{Error, Experiment, Findings, Measured, Measurement, RunId};

/// One of the leaks.
#[derive(Clone, Copy)]
enum Leak {
    Hinge,
    /// Logistic loss, after this many epochs.
    Logistic(usize),
    Intercept,
    ElasticNet,
    Average,
    Sealed,
}

impl Leak {
    fn name(self) -> String {
        match self {
            Self::Hinge => "hinge".to_owned(),
            Self::Logistic(epochs) => format!("logistic-{epochs}"),
            Self::Intercept => "intercept".to_owned(),
            Self::ElasticNet => "elastic-net".to_owned(),
            Self::Average => "average".to_owned(),
            Self::Sealed => "sealed".to_owned(),
        }
    }
}

/// The leaks with their titles in tables.
const LEAKS: [(Leak, &str); 8] = [
    (Leak::Hinge, "hinge, one step"),
    (Leak::Logistic(1), "logistic, one step, model of 1 epoch"),
    (Leak::Logistic(5), "logistic, one step, model of 5 epochs"),
    (Leak::Logistic(25), "logistic, one step, model of 25 epochs"),
    (Leak::Intercept, "either, one step with an intercept"),
    (Leak::ElasticNet, "hinge, one step with L1"),
    (Leak::Average, "gradient descent"),
    (Leak::Sealed, "the same step, sealed"),
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

    fn run_name(&self, leak: Leak) -> String {
        format!("{}/{}", self.name, leak.name())
    }

    fn leak_of(&self, run: &RunId) -> Option<Leak> {
        LEAKS.iter().map(|(leak, _)| *leak).find(|&leak| run.what == self.run_name(leak))
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
        if matches!(self.leak_of(run), Some(Leak::ElasticNet | Leak::Average)) { 3.0 } else { 1.0 }
    }

    fn measure(&self, run: &RunId, _stopwatch: &mut Stopwatch) -> Result<Measurement, Error> {
        let leak = self.leak_of(run).ok_or_else(|| Error::UnknownRun(run.what.clone()))?;
        let seed = Seed::new(run.seed);
        // each split attacks another class
        let class = run.seed as usize % self.data.labels().class_count();
        let victim = Victim::new(&self.data, class, self.samples(), seed)?;
        let mut measurement = match leak {
            Leak::Hinge => measure::of_hinge(&victim)?,
            Leak::Logistic(epochs) => measure::of_logistic(&victim, epochs)?,
            Leak::Intercept => measure::of_intercept(&victim)?,
            Leak::ElasticNet => measure::of_elastic_net(&victim)?,
            Leak::Average => measure::of_average(&victim, self.few())?,
            Leak::Sealed => measure::of_sealed(&victim, self.few(), &seed)?,
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
