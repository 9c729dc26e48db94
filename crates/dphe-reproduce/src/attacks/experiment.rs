//! The experiment that runs all attacks.

mod findings;

use dphe::{Profile, Receipts};
use dphe_federate::{PayloadName, Stopwatch};
use dphe_learn::{Dataset, Seed};

use super::learned::{PAYLOADS, learned};
use super::notes::MOST_ROUNDS;
use super::permutation::PermutationAttack;
use super::singles::independent;
use super::{oracle, parties, sums};
use crate::{Error, Experiment, Findings, Measured, Measurement, RunId};

/// The fractions of indices that each user sends, with their names in runs.
const DENSITIES: [(f64, &str); 2] = [(0.10, ".10"), (0.05, ".05")];
/// The paper's number of weights: 2,048 features times 101 classes.
const DIMENSION: usize = 2_048 * 101;
const QUICK_DIMENSION: usize = 20_000;
const USERS: usize = 5;
/// The number of weights of a sum that a dishonest aggregator submits, and the bits of its key. Users send a tenth of
/// the paper's weights. The key is too short to be secure, which no attack uses.
const SUM: (usize, u32) = (DIMENSION / 10, 1024);
const QUICK_SUM: (usize, u32) = (118, 256);
/// Without masks, and with them.
const RECEIPTS: [(Receipts, &str); 2] = [(Receipts::None, "without masks"), (Receipts::Masked, "with masks")];
/// The number of rounds with fresh permutations. A kept permutation is recovered in fewer.
const FRESH_ROUNDS: usize = 45;

/// An experiment that attacks sums, permutations and the key generator.
#[derive(Clone, Debug)]
pub struct Attacks {
    seeds: u64,
    quick: bool,
    data: Option<(String, Dataset)>,
}

/// One of the attacks.
#[derive(Clone, Copy, PartialEq)]
enum Attack {
    /// Submits other sums than those of the listed users.
    Sums(Receipts),
    /// Tries what the rules of the parties forbid.
    Rules(Receipts),
    /// Recovers a permutation from supports of this density. The profile decides whether the permutation is kept.
    Permutation(Profile, f64),
    /// Counts singles in sums of independent supports of this density.
    Independent(f64),
    /// Counts singles in sums of trained updates.
    Learned(PayloadName, Profile),
    /// Sends requests to the key generator that it must refuse.
    Oracle,
}

impl Attacks {
    /// Makes the experiment at the paper's size with this many repetitions.
    pub fn new(seeds: u64) -> Self {
        Self { seeds, quick: false, data: None }
    }

    /// Adds sums of updates that are trained on these data.
    #[must_use]
    pub fn with_data(self, name: &str, data: Dataset) -> Self {
        Self { data: Some((name.to_owned(), data)), ..self }
    }

    /// Uses a tenth of the size.
    #[must_use]
    pub fn quick(self) -> Self {
        Self { quick: true, ..self }
    }

    fn dimension(&self) -> usize {
        if self.quick { QUICK_DIMENSION } else { DIMENSION }
    }

    /// The number of weights and the bits of the key of the sums that are attacked.
    fn sum(&self) -> (usize, u32) {
        if self.quick { QUICK_SUM } else { SUM }
    }

    fn learning_rounds(&self) -> usize {
        if self.quick { 4 } else { 10 }
    }

    /// Returns all attacks with their names, in the order of the findings.
    fn attacks(&self) -> Vec<(Attack, String)> {
        let mut attacks = Vec::new();
        attacks.extend(RECEIPTS.map(|(receipts, name)| (Attack::Sums(receipts), format!("sums/{name}"))));
        attacks.extend(RECEIPTS.map(|(receipts, name)| (Attack::Rules(receipts), format!("rules/{name}"))));
        for (profile, name) in [(Profile::Paper, "kept"), (Profile::Sparse, "fresh")] {
            let attack = |density| Attack::Permutation(profile, density);
            attacks.extend(DENSITIES.map(|(density, text)| (attack(density), format!("{name}/{text}"))));
        }
        let name = |text: &str| format!("singles/independent/{text}");
        attacks.extend(DENSITIES.map(|(density, text)| (Attack::Independent(density), name(text))));
        if let Some((data, _)) = &self.data {
            let name = |payload: PayloadName| format!("singles/{data}/{payload}");
            let learned = |(payload, profile)| (Attack::Learned(payload, profile), name(payload));
            attacks.extend(PAYLOADS.map(learned));
        }
        attacks.push((Attack::Oracle, "oracle".to_owned()));
        attacks
    }

    fn attack_of(&self, run: &RunId) -> Option<Attack> {
        self.attacks().into_iter().find(|(_, what)| *what == run.what).map(|(attack, _)| attack)
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
            ("weights of a forged sum", self.sum().0.to_string()),
            ("key bits of a forged sum", self.sum().1.to_string()),
            ("users", USERS.to_string()),
            ("data to learn supports from", data),
            ("rounds of learning", self.learning_rounds().to_string()),
            ("repetitions", self.seeds.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    fn runs(&self) -> Vec<RunId> {
        let attacks = self.attacks();
        let of = |seed| attacks.iter().map(move |(_, what)| RunId { what: what.clone(), seed });
        (0..self.seeds).flat_map(of).collect()
    }

    fn weight(&self, run: &RunId) -> f64 {
        match self.attack_of(run) {
            Some(Attack::Permutation(..) | Attack::Sums(_)) => 10.0,
            Some(Attack::Independent(_) | Attack::Learned(..) | Attack::Oracle | Attack::Rules(_)) | None => {
                1.0
            }
        }
    }

    fn measure(&self, run: &RunId, stopwatch: &mut Stopwatch) -> Result<Measurement, Error> {
        let unknown = || Error::UnknownRun(run.what.clone());
        let attack = self.attack_of(run).ok_or_else(unknown)?;
        let seed = Seed::new(run.seed).derive(&run.what, 0);
        match attack {
            Attack::Sums(receipts) => {
                let (weights, bits) = self.sum();
                sums::measure(receipts, bits, weights, &seed)
            }
            Attack::Rules(receipts) => parties::measure(receipts, &seed),
            Attack::Permutation(profile, density) => {
                let rounds = if profile == Profile::Paper { MOST_ROUNDS } else { FRESH_ROUNDS };
                let dimension = self.dimension();
                PermutationAttack { dimension, users: USERS, density, profile, rounds }.attack(&seed)
            }
            Attack::Independent(density) => Ok(independent(QUICK_DIMENSION, density, 4, &seed)),
            Attack::Learned(payload, profile) => {
                let (_, data) = self.data.as_ref().ok_or_else(unknown)?;
                learned(data, (payload, profile), self.learning_rounds(), &seed, stopwatch)
            }
            Attack::Oracle => oracle::ask(&seed),
        }
    }

    fn findings(&self, measured: &Measured) -> Findings {
        findings::of(self, measured)
    }
}
