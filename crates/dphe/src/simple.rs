//! Secure sums of sparse vectors in a few lines: one task, three roles, one sum after another.
//!
//! The roles are those of [`crate::scheme`] in the profile [`Profile::Sparse`]: permutations that change in every
//! round, pads that hide how many numbers a user sends, and ciphertexts that only the key generator can decrypt. This
//! module chooses the parameters, takes randomness from the operating system, and counts the rounds. Callers who need
//! more (messages, crash recovery, other profiles, a floor above three users) use [`crate::scheme`] and
//! [`crate::party`].
//!
//! The sum of round `t` holds the vectors that users sealed as their vector `t`. A user who has nothing to add in a
//! round calls [`SumUser::skip`].

use dphe_paillier::Threads;
pub use dphe_paillier::simple::os_rng;
use rand_core::Rng as _;
use zeroize::Zeroizing;

use crate::{
    Aggregator, Error, KeyGenerator, OpenedSum, Profile, Round, SealedSum, SealedUpdate, SparseVector,
    TaskConfig, TaskId, TaskParams, Update, User, UserId,
};

/// What is summed: the public parameters of the sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SumOptions {
    /// The length of the vectors, zeros included.
    pub dimension: u32,
    /// The largest number of entries that a user sends. Every user sends as many, filled up with zeros.
    pub nonzeros: u32,
    /// The number of users, at least three.
    pub users: u32,
    /// The length of the key: 2048, 3072 (the default) or 4096 bits.
    pub key_bits: u32,
    /// The number of bits behind the binary point. Entries are rounded to them. The default is 16.
    pub fractional_bits: u8,
    /// The number of bits before the binary point. Entries whose magnitude is larger are refused. The default is 16.
    pub integer_bits: u8,
}

impl SumOptions {
    /// Creates the options for `users` vectors of length `dimension`, each with at most `nonzeros` entries.
    pub fn new(dimension: u32, nonzeros: u32, users: u32) -> Self {
        Self { dimension, nonzeros, users, key_bits: 3072, fractional_bits: 16, integer_bits: 16 }
    }

    /// Generates the keys and creates the parties. That takes seconds.
    ///
    /// # Errors
    /// [`Error::Task`] if an option is out of range, [`Error::Key`] for another key length or if the operating system
    /// provides no randomness.
    pub fn set_up(&self) -> Result<SumParties, Error> {
        if self.users < 3 {
            return Err(Error::Task { reason: "a secure sum needs at least three users" });
        }
        let mut rng = os_rng().map_err(Error::Key)?;
        let mut id = [0; 16];
        rng.fill_bytes(&mut id);
        let task = TaskParams::new(TaskId::from_bytes(id), self.config())?;
        let mut key_generator = KeyGenerator::new(task, &mut rng, Threads::all())?;
        let mut users = Vec::new();
        for number in 1..=self.users {
            let keys = key_generator.enroll(UserId::try_from(number)?, &mut rng);
            users.push(SumUser { user: User::new(keys)?, round: Round::FIRST });
        }
        let aggregator = Aggregator::new(key_generator.aggregator_keys())?;
        Ok(SumParties {
            users,
            aggregator: SumAggregator { aggregator, round: Round::FIRST },
            key_generator: SumKeyGenerator { key_generator },
        })
    }

    fn config(&self) -> TaskConfig {
        // one number per position, so that a support reveals nothing about neighbours
        let mut config = TaskConfig::new(Profile::Sparse, 1, self.dimension, self.users);
        config.block = 1;
        config.capacity = self.nonzeros;
        config.key_bits = self.key_bits;
        config.scale_bits = self.fractional_bits;
        config.clip_exponent = i8::try_from(self.integer_bits).unwrap_or(i8::MAX);
        config
    }
}

/// The parties of a sum. In practice, each belongs on a machine of its own.
#[derive(Debug)]
pub struct SumParties {
    /// The users, who seal vectors.
    pub users: Vec<SumUser>,
    /// The aggregator, who adds up what users sealed.
    pub aggregator: SumAggregator,
    /// The key generator, who opens sums.
    pub key_generator: SumKeyGenerator,
}

/// A user: a [`User`] that counts rounds.
#[derive(Debug)]
pub struct SumUser {
    user: User,
    round: Round,
}

impl SumUser {
    /// Returns the number of the user, from 1.
    pub fn id(&self) -> UserId {
        self.user.id()
    }

    /// Seals the user's vector of this round, given by its entries in any order. It cannot be sealed a second time: two
    /// sealed vectors of one round would reveal which positions are pads.
    ///
    /// # Errors
    /// [`Error::Dimension`] for an index beyond the length of the vectors, [`Error::Value`] for an index that appears
    /// twice or a number that is too large or not finite, [`Error::Capacity`] for too many entries, [`Error::Key`] if
    /// the operating system provides no randomness. After an error, the caller can seal the round again.
    pub fn seal(&mut self, entries: &[(u32, f64)]) -> Result<SealedUpdate, Error> {
        let mut entries = Zeroizing::new(entries.to_vec());
        entries.sort_unstable_by_key(|&(index, _)| index);
        let (indices, values) = entries.iter().copied().unzip();
        let vector = SparseVector::new(self.user.task().dimension(), indices, values)?;
        let mut rng = os_rng().map_err(Error::Key)?;
        let sealed = self.user.seal(self.round, &Update::new(vector), &mut rng, Threads::all())?;
        self.skip();
        Ok(sealed)
    }

    /// Ends the round for this user. Its permutation is forgotten.
    pub fn skip(&mut self) {
        self.round = self.round.next();
        self.user.advance(self.round);
    }
}

/// The aggregator: an [`Aggregator`] that counts rounds.
#[derive(Debug)]
pub struct SumAggregator {
    aggregator: Aggregator,
    round: Round,
}

impl SumAggregator {
    /// Adds up the sealed vectors of this round, which ends the round.
    ///
    /// # Errors
    /// [`Error::SetSmall`] for fewer than three users, [`Error::Stale`] or [`Error::Future`] for a vector of another
    /// round, [`Error::Conflict`] for a second vector of a user, and the errors of
    /// [`Collecting::accept`](crate::Collecting::accept) for invalid vectors. After an error, the round goes on.
    pub fn add(&mut self, sealed: impl IntoIterator<Item = SealedUpdate>) -> Result<SealedSum, Error> {
        let mut collecting = self.aggregator.begin(self.round);
        for update in sealed {
            collecting.accept(update, Threads::all())?;
        }
        let sum = collecting.finish(Threads::all()).map_err(Error::from)?;
        self.round = self.round.next();
        self.aggregator.advance(self.round);
        Ok(sum)
    }
}

/// The key generator: a [`KeyGenerator`] with the operating system's randomness.
#[derive(Debug)]
pub struct SumKeyGenerator {
    key_generator: KeyGenerator,
}

impl SumKeyGenerator {
    /// Opens the sum of a round and returns its entries that are not zero, by ascending index. A round is opened once.
    ///
    /// # Errors
    /// As [`KeyGenerator::open`], and [`Error::Key`] if the operating system provides no randomness.
    pub fn open(&mut self, sum: SealedSum) -> Result<Vec<(u32, f64)>, Error> {
        let mut rng = os_rng().map_err(Error::Key)?;
        let opened = self.key_generator.open(sum, &mut rng, Threads::all())?;
        // sums of this module are never masked
        let OpenedSum::Clear(sum) = opened else { return Err(Error::RoundFailed) };
        Ok((0..).zip(sum.decode_weights()).filter(|&(_, value)| value != 0.0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;

    /// Sets up four users with a key of 2048 bits, the shortest that this module offers.
    fn parties() -> SumParties {
        let mut options = SumOptions::new(50, 2, 4);
        options.key_bits = 2048;
        options.set_up().unwrap()
    }

    #[test]
    fn sums_are_exact_round_after_round_and_misuse_is_refused() {
        let mut parties = parties();
        let vectors = [vec![(7, 0.5), (49, 1.0)], vec![(49, -2.0), (7, 0.25)], vec![], vec![(0, -65535.5)]];
        let seal = |users: &mut [SumUser]| -> Vec<SealedUpdate> {
            users.iter_mut().zip(&vectors).map(|(user, vector)| user.seal(vector).unwrap()).collect()
        };
        for _ in 0..2 {
            let sealed = seal(&mut parties.users);
            let sum = parties.aggregator.add(sealed).unwrap();
            let opened = parties.key_generator.open(sum).unwrap();
            assert_eq!(opened, [(0, -65535.5), (7, 0.75), (49, -1.0)]);
        }
        let code = |error: Error| error.code();
        let user = &mut parties.users[0];
        assert_eq!(
            user.seal(&[(1, 1.0), (2, 1.0), (3, 1.0)]).map_err(code).unwrap_err(),
            ErrorCode::Capacity
        );
        assert_eq!(user.seal(&[(1, 1.0), (1, 1.0)]).map_err(code).unwrap_err(), ErrorCode::Value);
        assert_eq!(user.seal(&[(1, f64::NAN)]).map_err(code).unwrap_err(), ErrorCode::Value);
        assert_eq!(user.seal(&[(1, 65537.0)]).map_err(code).unwrap_err(), ErrorCode::Value);
        assert_eq!(user.seal(&[(50, 1.0)]).map_err(code).unwrap_err(), ErrorCode::Dimension);
        // nothing was sealed, so the user is still in step with the others
        let sealed = seal(&mut parties.users);
        assert_eq!(
            parties.aggregator.add(sealed.into_iter().take(2)).map_err(code).unwrap_err(),
            ErrorCode::SetSmall
        );
        // the third round was not added; three users go on, and one that skips is not needed
        for user in &mut parties.users {
            user.skip();
        }
        let ahead: Vec<_> =
            parties.users[1..].iter_mut().map(|user| user.seal(&[(3, 1.0)]).unwrap()).collect();
        assert_eq!(parties.aggregator.add(ahead).map_err(code).unwrap_err(), ErrorCode::Future);
    }

    #[test]
    fn options_out_of_range_are_refused_before_a_key_is_generated() {
        let refused = |change: fn(&mut SumOptions)| {
            let mut options = SumOptions::new(50, 2, 3);
            change(&mut options);
            options.set_up().unwrap_err().code()
        };
        assert_eq!(refused(|options| options.users = 2), ErrorCode::Policy);
        assert_eq!(refused(|options| options.nonzeros = 51), ErrorCode::Policy);
        assert_eq!(refused(|options| options.nonzeros = 0), ErrorCode::Policy);
        assert_eq!(refused(|options| options.dimension = 0), ErrorCode::Policy);
        assert_eq!(refused(|options| options.integer_bits = 48), ErrorCode::Policy);
        assert_eq!(refused(|options| options.integer_bits = u8::MAX), ErrorCode::Policy);
        assert_eq!(refused(|options| options.key_bits = 1024), ErrorCode::Key);
    }
}
