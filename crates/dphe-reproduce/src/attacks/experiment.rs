//! The experiment: what falls, how fast, and what holds.

mod findings;

use dphe::Profile;
use dphe_federate::Stopwatch;
use dphe_learn::{Dataset, Seed};

use super::learned::{Sent, learned};
use super::notes::MOST_ROUNDS;
use super::oracle;
use super::permutation::Target;
use super::singles::independent;
use crate::{Error, Experiment, Findings, Measured, Measurement, Run};

/// Shares of indices that each user has.
const DENSITIES: [(f64, &str); 2] = [(0.10, ".10"), (0.05, ".05")];
/// The paper's size: 2,048 features of 101 classes.
const DIMENSION: usize = 2_048 * 101;
const QUICK_DIMENSION: usize = 20_000;
const USERS: usize = 5;
/// Rounds in which permutations are drawn anew: more than a kept one lasts.
const FRESH_ROUNDS: usize = 45;

/// Attacks on permutations, sums and the key generator.
#[derive(Clone, Debug)]
pub struct Attacks {
    seeds: u64,
    quick: bool,
    data: Option<(String, Dataset)>,
}

/// The parts of the experiment.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// A permutation that is kept, or not, and the density of supports.
    Permutation(Profile, f64),
    /// Independent supports of this density.
    Independent(f64),
    Learned(Sent),
    Oracle,
}

impl Attacks {
    /// Attacks at the paper's size, with this many repetitions.
    pub fn new(seeds: u64) -> Self {
        Self { seeds, quick: false, data: None }
    }

    /// Supports that are learnt from these data, too.
    #[must_use]
    pub fn with_data(self, name: &str, data: Dataset) -> Self {
        Self { data: Some((name.to_owned(), data)), ..self }
    }

    /// A tenth of the size.
    #[must_use]
    pub fn quick(self) -> Self {
        Self { quick: true, ..self }
    }

    fn dimension(&self) -> usize {
        if self.quick { QUICK_DIMENSION } else { DIMENSION }
    }

    fn learning_rounds(&self) -> usize {
        if self.quick { 4 } else { 10 }
    }

    /// All parts with their names, in the order of the findings.
    fn parts(&self) -> Vec<(Part, String)> {
        let mut parts = Vec::new();
        for (profile, name) in [(Profile::Paper, "kept"), (Profile::Sparse, "fresh")] {
            parts.extend(
                DENSITIES
                    .map(|(density, text)| (Part::Permutation(profile, density), format!("{name}/{text}"))),
            );
        }
        parts.extend(
            DENSITIES
                .map(|(density, text)| (Part::Independent(density), format!("singles/independent/{text}"))),
        );
        if let Some((name, _)) = &self.data {
            parts.extend(
                Sent::ALL.map(|sent| (Part::Learned(sent), format!("singles/{name}/{}", sent.name()))),
            );
        }
        parts.push((Part::Oracle, "oracle".to_owned()));
        parts
    }
}

impl Experiment for Attacks {
    fn name(&self) -> &'static str {
        "attacks"
    }

    fn settings(&self) -> Vec<(String, String)> {
        let data =
            self.data.as_ref().map_or("none".to_owned(), |(name, data)| format!("{name}, {}", data.len()));
        [
            ("indices", self.dimension().to_string()),
            ("users", USERS.to_string()),
            ("data to learn supports from", data),
            ("rounds of learning", self.learning_rounds().to_string()),
            ("repetitions", self.seeds.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    fn runs(&self) -> Vec<Run> {
        let parts = self.parts();
        let of = |seed| parts.iter().map(move |(_, what)| Run { what: what.clone(), seed });
        (0..self.seeds).flat_map(of).collect()
    }

    fn weight(&self, run: &Run) -> f64 {
        if run.what.starts_with("kept") || run.what.starts_with("fresh") { 10.0 } else { 1.0 }
    }

    fn measure(&self, run: &Run, stopwatch: &mut Stopwatch) -> Result<Measurement, Error> {
        let unknown = || Error::UnknownRun(run.what.clone());
        let part = self.parts().into_iter().find(|(_, what)| *what == run.what).ok_or_else(unknown)?.0;
        let seed = Seed::new(run.seed).derive(&run.what, 0);
        match part {
            Part::Permutation(profile, density) => {
                let rounds = if profile == Profile::Paper { MOST_ROUNDS } else { FRESH_ROUNDS };
                let dimension = self.dimension();
                Target { dimension, users: USERS, density, profile, rounds }.attack(&seed)
            }
            Part::Independent(density) => Ok(independent(QUICK_DIMENSION, density, 4, &seed)),
            Part::Learned(sent) => {
                let (_, data) = self.data.as_ref().ok_or_else(unknown)?;
                learned(data, sent, self.learning_rounds(), &seed, stopwatch)
            }
            Part::Oracle => oracle::ask(&seed),
        }
    }

    fn findings(&self, measured: &Measured) -> Findings {
        findings::of(self, measured)
    }
}
