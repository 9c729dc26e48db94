//! The attack on the user-shared permutation, kept or drawn anew, as `dphe` derives it.

use dphe::{Profile, Round, TaskConfig, TaskId, hazmat};
use dphe_learn::Seed;

use super::notes::{MOST_ROUNDS, Notes};
use super::random::Subsets;
use crate::{Error, Measurement};

/// What is attacked.
pub(super) struct Target {
    pub(super) dimension: usize,
    pub(super) users: usize,
    /// The share of indices that each user has, independent of the others'.
    pub(super) density: f64,
    /// `Paper` keeps the permutation, `Sparse` draws one a round.
    pub(super) profile: Profile,
    pub(super) rounds: usize,
}

/// The shares of the permutation whose rounds are noted, as in the tables: in per cent.
pub(super) const LEVELS: [usize; 4] = [50, 90, 99, 100];

impl Target {
    /// Rounds of independent supports, the attack after each.
    ///
    /// Which positions are sent and which sums are not zero needs no key, so nothing is encrypted here; the tests of
    /// `dphe` run the same attack on real transcripts.
    pub(super) fn attack(&self, seed: &Seed) -> Result<Measurement, Error> {
        let mut subsets = Subsets::new(self.dimension, &seed.derive("attack", 0));
        let size = (self.density * self.dimension as f64).round() as usize;
        let dimension = u32::try_from(self.dimension).unwrap_or(u32::MAX);
        let mut config = TaskConfig::new(self.profile, 1, dimension, self.users.max(3) as u32);
        // a key of this length is never made
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
            // who knows this round's bits and guesses among the positions with the same one is right this often
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
