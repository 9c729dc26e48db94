//! The protocol, with all parties in one process.

use dphe::wire::Encode as _;
use dphe::{Aggregator, KeyGenerator, Receipts, Round, TaskParams, Threads, User, UserId};
use rand_core::CryptoRng;

use super::{Average, Averaged, UserUpdate, ValueSum, Weighting, check_floor, check_users};
use crate::{Cost, Error, Seconds, Stopwatch};

/// An encrypted sum: users, an aggregator and a key generator that exchange what they would exchange in a deployment.
#[derive(Debug)]
pub struct DpheAverage<R> {
    weighting: Weighting,
    key_generator: KeyGenerator,
    aggregator: Aggregator,
    users: Vec<User>,
    rng: R,
    threads: Threads,
}

impl<R: CryptoRng> DpheAverage<R> {
    /// Generates a key and enrols this many users.
    ///
    /// # Errors
    /// If the fixed point of the task cannot represent the counts of the weighting, or there are fewer users than the
    /// task demands.
    pub fn new(
        task: TaskParams,
        weighting: Weighting,
        users: usize,
        mut rng: R,
        threads: Threads,
    ) -> Result<Self, Error> {
        // Generating the key takes long, so check first.
        weighting.check_task(&task)?;
        check_floor(&task, users, users)?;
        let key_generator = KeyGenerator::new(task, &mut rng, threads)?;
        Self::with_key_generator(key_generator, weighting, users, rng, threads)
    }

    /// Enrols this many users with a key generator that already has its key.
    ///
    /// # Errors
    /// As [`DpheAverage::new`].
    pub fn with_key_generator(
        mut key_generator: KeyGenerator,
        weighting: Weighting,
        users: usize,
        mut rng: R,
        threads: Threads,
    ) -> Result<Self, Error> {
        weighting.check_task(key_generator.task())?;
        check_floor(key_generator.task(), users, users)?;
        let users = (1..=users)
            .filter_map(|number| u32::try_from(number).ok().and_then(UserId::new))
            .map(|id| User::new(key_generator.enroll(id, &mut rng)))
            .collect::<Result<Vec<_>, _>>()?;
        let aggregator = Aggregator::new(key_generator.aggregator_keys())?;
        Ok(Self { weighting, key_generator, aggregator, users, rng, threads })
    }

    /// Returns the key generator, whose key may be used for another task.
    pub fn into_key_generator(self) -> KeyGenerator {
        self.key_generator
    }
}

impl<R: CryptoRng> Average for DpheAverage<R> {
    fn task(&self) -> &TaskParams {
        self.key_generator.task()
    }

    fn weighting(&self) -> Weighting {
        self.weighting
    }

    fn average(
        &mut self,
        round: Round,
        updates: &[UserUpdate],
        stopwatch: &mut Stopwatch,
    ) -> Result<Averaged, Error> {
        let threads = self.threads;
        check_users(self.task(), self.users.len(), updates)?;
        let (mut cost, mut seconds, mut clipped) = (Cost::default(), Seconds::default(), 0);
        let mut collecting = self.aggregator.begin(round);
        for UserUpdate { user, update } in updates {
            let user = &self.users[*user];
            let seal = || user.seal(round, update, &mut self.rng, threads);
            let sealed = stopwatch.time(&mut seconds.seal, seal)?;
            clipped += sealed.clipped();
            cost.ciphertexts = cost.ciphertexts.max(sealed.ciphertexts());
            cost.bytes = cost.bytes.max(sealed.to_bytes().len());
            stopwatch.time(&mut seconds.aggregate, || collecting.accept(sealed, threads))?;
        }
        let task = self.task();
        cost.shards = 1;
        if task.has_private_support() {
            let packed = task.dense().div_ceil(task.slots()) + usize::from(task.receipts() != Receipts::None);
            let indexed = cost.ciphertexts - packed;
            cost.shards = indexed / task.capacity();
            cost.singles = Some(collecting.overlap().share_of_singles());
        }
        let mut sealed = stopwatch
            .time(&mut seconds.aggregate, || collecting.finish(threads))
            .map_err(|still| Error::Protocol(still.into()))?;
        let blinds = sealed.take_blinds();
        let opened =
            stopwatch.time(&mut seconds.open, || self.key_generator.open(sealed, &mut self.rng, threads))?;
        // every user would check the sum; here the first one does
        let user = self.users.first().ok_or(Error::TooFewUsers { users: 0, needed: 1 })?;
        let sum = opened.unmask_and_check(&self.aggregator, &blinds, user)?;
        // No user can seal and the aggregator cannot reorder for this round again.
        let next = round.next();
        self.users.iter_mut().for_each(|user| user.advance(next));
        self.aggregator.advance(next);
        let sum = ValueSum::of(self.task(), &sum);
        Ok(Averaged { sum, clipped: Some(clipped), cost, seconds })
    }
}
