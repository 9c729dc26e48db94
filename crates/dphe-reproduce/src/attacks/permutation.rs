//! The attack on the user-shared permutation that `dphe` derives. The permutation stays the same over all rounds, or is
//! fresh in each round.

use dphe::{Profile, Round, TaskConfig, TaskId, hazmat};
use dphe_learn::Seed;

use super::notes::{MOST_ROUNDS, Notes};
use super::random::Subsets;
use crate::{Error, Measurement};

/// The task that is attacked.
pub(super) struct PermutationAttack {
    pub(super) dimension: usize,
    pub(super) users: usize,
    /// The fraction of indices that each user sends, independently of the others.
    pub(super) density: f64,
    /// `Paper` keeps one permutation, `Sparse` derives one per round.
    pub(super) profile: Profile,
    pub(super) rounds: usize,
}

/// The recovered fractions, in per cent, for which tables give the number of rounds.
pub(super) const LEVELS: [usize; 4] = [50, 90, 99, 100];

impl PermutationAttack {
    /// Runs rounds with independent supports and attacks after each round.
    ///
    /// The attack only uses which positions are sent and which sums are not zero. That does not depend on encryption,
    /// so nothing is encrypted here. The tests of `dphe` run the same attack on real transcripts.
    pub(super) fn attack(&self, seed: &Seed) -> Result<Measurement, Error> {
        let mut subsets = Subsets::new(self.dimension, &seed.derive("attack", 0));
        let size = (self.density * self.dimension as f64).round() as usize;
        let dimension = u32::try_from(self.dimension).unwrap_or(u32::MAX);
        let mut config = TaskConfig::new(self.profile, 1, dimension, self.users.max(3) as u32);
        // the smallest length, because no key is generated
        config.key_bits = 256;
        config.block = 1;
        config.capacity = size as u32;
        let task = hazmat::task_params(TaskId::from_bytes(subsets.bytes()), config)?;
        let shared = subsets.bytes();

        let mut notes = Notes::new(self.dimension);
        let mut measurement = Measurement::new();
        let (mut claimed, mut right, mut by_chance) = (0, 0, 0.0);
        for (t, round) in (1..=self.rounds.min(MOST_ROUNDS))
            .zip(core::iter::successors(Some(Round::FIRST), |round: &Round| Some(round.next())))
        {
            let phi = hazmat::user_shared_table(&task, shared, round)?;
            let mut union = vec![false; self.dimension];
            for _ in 0..self.users {
                subsets.draw(size).iter().for_each(|&index| union[index as usize] = true);
            }
            let indices = || (0..dimension).filter(|&index| union[index as usize]);
            notes.add(indices().map(|index| phi[index as usize]), indices());

            let pairs = notes.pairs();
            let hits = pairs.iter().filter(|&&(index, position)| phi[index as usize] == position).count();
            // the success probability of guessing among the positions with the same bit in this round
            let (sent, all) = (notes.count_last(), self.dimension);
            let same = |position: u32| if notes.sent_last(position) { sent } else { all - sent };
            by_chance += pairs.iter().map(|&(_, position)| 1.0 / same(position) as f64).sum::<f64>();
            claimed += pairs.len();
            right += hits;
            let share = hits as f64 / self.dimension as f64;
            measurement.insert(format!("share_{t:02}"), share);
            for level in LEVELS {
                if share >= level as f64 / 100.0 {
                    measurement.entry(format!("rounds_{level}")).or_insert(t as f64);
                }
            }
            if hits == self.dimension {
                break;
            }
        }
        measurement.insert("claimed".to_owned(), claimed as f64);
        measurement.insert("right".to_owned(), right as f64);
        measurement.insert("by_chance".to_owned(), by_chance);
        Ok(measurement)
    }
}
