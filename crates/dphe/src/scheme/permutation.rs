//! Permutations, derived for each round from seeds that do not reveal earlier rounds (docs/protocol.md, sections 2 and
//! 5).

use core::fmt;

use rand_core::CryptoRng;
use sha2::{Digest as _, Sha256};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::hash::derive;
use crate::wire::domains;
use crate::{Error, Profile, Round, TaskParams, UserId};

/// `phi`, the user-shared permutation. Users and the key generator know it. The aggregator never does.
pub struct UserSharedPermutation(Permutation);

impl UserSharedPermutation {
    pub(crate) fn table(&self) -> &[u32] {
        &self.0.0
    }
}

/// `phi(n)`, a user-aggregator permutation. One user and the aggregator know it.
pub struct UserAggregatorPermutation(Permutation);

impl UserAggregatorPermutation {
    pub(crate) fn table(&self) -> &[u32] {
        &self.0.0
    }

    pub(crate) fn inverse(&self) -> Zeroizing<Vec<u32>> {
        let mut inverse = Zeroizing::new(vec![0; self.0.0.len()]);
        self.0.0.iter().enumerate().for_each(|(from, &to)| inverse[to as usize] = from as u32);
        inverse
    }
}

impl fmt::Debug for UserSharedPermutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserSharedPermutation(<redacted>)")
    }
}

impl fmt::Debug for UserAggregatorPermutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserAggregatorPermutation(<redacted>)")
    }
}

/// The seed of the user-shared permutations.
#[derive(Clone)]
pub struct UserSharedSeed(Seed);

impl UserSharedSeed {
    pub(crate) fn generate(rng: &mut impl CryptoRng) -> Self {
        Self(Seed::generate(rng))
    }

    /// Refuses a round that is too far ahead to advance to.
    pub(crate) fn check_ahead(&self, task: &TaskParams, round: Round) -> Result<(), Error> {
        if task.profile() == Profile::Paper { Ok(()) } else { self.0.check_ahead(round) }
    }

    /// Derives the permutation of a round.
    pub(crate) fn permutation(
        &self,
        task: &TaskParams,
        round: Round,
    ) -> Result<UserSharedPermutation, Error> {
        let (key, number) = self.key(task, round)?;
        let key = derive(domains::USER_SHARED, &[&*key, task.id().as_bytes(), &number.to_be_bytes()]);
        Ok(UserSharedPermutation(Permutation::shuffle(&key, task.positions())))
    }
}

/// The seed of one user's user-aggregator permutations.
#[derive(Clone)]
pub struct UserAggregatorSeed(Seed);

impl UserAggregatorSeed {
    pub(crate) fn generate(rng: &mut impl CryptoRng) -> Self {
        Self(Seed::generate(rng))
    }

    /// Derives the permutation of a round.
    pub(crate) fn permutation(
        &self,
        task: &TaskParams,
        round: Round,
        user: UserId,
    ) -> Result<UserAggregatorPermutation, Error> {
        let (key, number) = self.key(task, round)?;
        let (task_id, number, user) = (task.id(), number.to_be_bytes(), user.get().to_be_bytes());
        let key = derive(domains::USER_AGGREGATOR, &[&*key, task_id.as_bytes(), &number, &user]);
        Ok(UserAggregatorPermutation(Permutation::shuffle(&key, task.positions())))
    }
}

/// The seed of the masks that one user and the key generator share.
#[derive(Clone)]
pub struct MaskSeed(Seed);

impl MaskSeed {
    pub(crate) fn generate(rng: &mut impl CryptoRng) -> Self {
        Self(Seed::generate(rng))
    }
}

macro_rules! seeds {
    ($($name:ident),*) => {$(
        impl $name {
            /// Returns the key of a round, and the number that is hashed with it.
            pub(crate) fn key(
                &self,
                task: &TaskParams,
                round: Round,
            ) -> Result<(Zeroizing<[u8; 32]>, u64), Error> {
                self.0.at(task, round)
            }

            /// Refuses a round whose seeds are forgotten, or that is too far ahead to advance to.
            pub(crate) fn check_round(&self, task: &TaskParams, round: Round) -> Result<(), Error> {
                if task.profile() == Profile::Paper { Ok(()) } else { self.0.check_round(round) }
            }

            /// Advances to a later round and forgets the earlier ones. In `paper`, seeds never change.
            pub(crate) fn advance(&mut self, task: &TaskParams, round: Round) {
                if task.profile() != Profile::Paper {
                    self.0.advance(round);
                }
            }

            /// Returns the round of the seed and its bytes.
            pub(crate) fn to_parts(&self) -> (Round, &[u8; 32]) {
                (self.0.round, &self.0.key)
            }

            pub(crate) fn from_parts(round: Round, key: [u8; 32]) -> Self {
                Self(Seed { round, key })
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}(round {}, <redacted>)", stringify!($name), self.0.round)
            }
        }
    )*};
}

seeds!(UserSharedSeed, UserAggregatorSeed, MaskSeed);

/// The seed of a round. Seeds of earlier rounds cannot be derived from it.
#[derive(Clone)]
struct Seed {
    round: Round,
    key: [u8; 32],
}

impl Seed {
    /// The number of rounds that a seed may be ahead. Honest rounds are never farther, and deriving such a seed would
    /// take long.
    const MAX_AHEAD: u64 = 1 << 20;

    fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut key = [0; 32];
        rng.fill_bytes(&mut key);
        Self { round: Round::FIRST, key }
    }

    /// Returns the key and the number from which the permutation of a round is derived.
    fn at(&self, task: &TaskParams, round: Round) -> Result<(Zeroizing<[u8; 32]>, u64), Error> {
        if task.profile() == Profile::Paper {
            return Ok((Zeroizing::new(self.key), 0));
        }
        self.check_round(round)?;
        let mut ahead = self.clone();
        ahead.advance(round);
        Ok((Zeroizing::new(ahead.key), round.get()))
    }

    fn check_round(&self, round: Round) -> Result<(), Error> {
        if round < self.round {
            return Err(Error::Stale { round, current: self.round });
        }
        self.check_ahead(round)
    }

    fn check_ahead(&self, round: Round) -> Result<(), Error> {
        if round.get().saturating_sub(self.round.get()) > Self::MAX_AHEAD {
            return Err(Error::Future { round, current: self.round });
        }
        Ok(())
    }

    fn advance(&mut self, round: Round) {
        while self.round < round {
            self.key = *derive(domains::RATCHET, &[&self.key]);
            self.round = self.round.next();
        }
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

/// A permutation that maps `r` to `self.0[r]`.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct Permutation(Vec<u32>);

impl Permutation {
    /// Shuffles by Fisher and Yates, from the last position down.
    pub(crate) fn shuffle(key: &[u8; 32], positions: u32) -> Self {
        let mut stream = Stream::new(key);
        let mut table: Vec<u32> = (0..positions).collect();
        for i in (1..positions).rev() {
            table.swap(i as usize, stream.draw(i + 1) as usize);
        }
        Self(table)
    }

    pub(crate) fn table(&self) -> &[u32] {
        &self.0
    }
}

/// A stream of words derived from a key by SHA-256 in counter mode.
struct Stream {
    keyed: Sha256,
    counter: u64,
    block: [u8; 32],
    used: usize,
}

impl Stream {
    fn new(key: &[u8; 32]) -> Self {
        Self { keyed: Sha256::new_with_prefix(key), counter: 0, block: [0; 32], used: 32 }
    }

    fn word(&mut self) -> u32 {
        if self.used == self.block.len() {
            let mut sha = self.keyed.clone();
            sha.update(self.counter.to_be_bytes());
            self.block = sha.finalize().into();
            self.counter += 1;
            self.used = 0;
        }
        let mut word = [0; 4];
        word.copy_from_slice(&self.block[self.used..self.used + 4]);
        self.used += 4;
        u32::from_be_bytes(word)
    }

    fn draw(&mut self, bound: u32) -> u32 {
        below(bound, || self.word())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.block.zeroize();
    }
}

/// Draws a uniform number below `bound`. Words in the incomplete last multiple of `bound` are skipped.
pub(crate) fn below(bound: u32, mut word: impl FnMut() -> u32) -> u32 {
    let rest = ((1u64 << 32) % u64::from(bound)) as u32;
    loop {
        let x = word();
        if x <= u32::MAX - rest {
            return x % bound;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffle_is_a_permutation_that_depends_on_its_key() {
        for positions in [1, 2, 3, 100, 5000] {
            let table = Permutation::shuffle(&[7; 32], positions).0.clone();
            let mut sorted = table.clone();
            sorted.sort_unstable();
            assert!(sorted.iter().copied().eq(0..positions));
            if positions > 50 {
                assert_ne!(table, Permutation::shuffle(&[8; 32], positions).0);
            }
        }
    }

    #[test]
    fn draw_skips_the_incomplete_multiple() {
        // 2^32 = 1 mod 3: exactly the largest word is skipped
        let mut words = [u32::MAX, u32::MAX - 1].into_iter();
        assert_eq!(below(3, || words.next().unwrap()), (u32::MAX - 1) % 3);
        let mut words = [u32::MAX].into_iter();
        assert_eq!(below(2, || words.next().unwrap()), 1);
    }

    #[test]
    fn shuffle_is_uniform() {
        let mut counts = [[0u32; 5]; 5];
        let runs = 20_000u32;
        for run in 0..runs {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&run.to_be_bytes());
            let shuffled = Permutation::shuffle(&key, 5);
            shuffled.0.iter().enumerate().for_each(|(i, &x)| counts[i][x as usize] += 1);
        }
        let expected = f64::from(runs) / 5.0;
        let chi: f64 = counts.iter().flatten().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
        // with 16 degrees of freedom, one in 40,000 exceeds 50
        assert!(chi < 50.0, "{chi}");
    }
}
