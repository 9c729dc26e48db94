//! The real protocol, all three roles in one process.

use dphe::{Aggregator, KeyGenerator, Round, TaskParams, Threads, User, UserId};
use dphe_learn::Weights;
use rand_core::CryptoRng;

use super::{Average, Averaged, Contribution, Form, Weighting, check_round, check_weighting, codec};
use crate::{Cost, Error, Seconds, Stopwatch};

/// Users, an aggregator and a key generator. Nothing passes between them but what would pass in earnest.
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
    /// Makes a key and enrols this many users.
    ///
    /// # Errors
    /// If the task cannot hold the counts of the weighting, or there are fewer users than it demands.
    pub fn new(
        task: TaskParams,
        weighting: Weighting,
        users: usize,
        mut rng: R,
        threads: Threads,
    ) -> Result<Self, Error> {
        // before the key, which takes long
        check_weighting(&task, weighting)?;
        check_enrolled(&task, users)?;
        let key_generator = KeyGenerator::new(task, &mut rng, threads)?;
        Self::with_key_generator(key_generator, weighting, users, rng, threads)
    }

    /// Enrols this many users with a key generator that has its key already.
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
        check_weighting(key_generator.task(), weighting)?;
        check_enrolled(key_generator.task(), users)?;
        let users = (1..=users)
            .filter_map(|number| u32::try_from(number).ok().and_then(UserId::new))
            .map(|id| User::new(key_generator.enroll(id, &mut rng)))
            .collect::<Result<Vec<_>, _>>()?;
        let aggregator = Aggregator::new(key_generator.aggregator_keys())?;
        Ok(Self { weighting, key_generator, aggregator, users, rng, threads })
    }

    /// The key generator, whose key may serve another task.
    pub fn into_key_generator(self) -> KeyGenerator {
        self.key_generator
    }

    fn seal(
        &mut self,
        round: Round,
        form: &Form,
        contribution: &Contribution,
    ) -> Result<dphe::SealedUpdate, Error> {
        let update = codec::encode(self.key_generator.task(), form, contribution)?;
        let user = &self.users[contribution.user];
        Ok(user.seal(round, &update, &mut self.rng, self.threads)?)
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
        global: &Weights,
        contributions: &[Contribution],
        stopwatch: &mut Stopwatch,
        seconds: &mut Seconds,
    ) -> Result<Averaged, Error> {
        let (weighting, enrolled, threads) = (self.weighting, self.users.len(), self.threads);
        let kind = check_round(self.task(), weighting, enrolled, global, contributions)?;
        let form = Form::of(self.task(), weighting, global);
        let (mut cost, mut clipped) = (Cost::default(), 0);
        let mut collecting = self.aggregator.begin(round);
        for contribution in contributions {
            let sealed = stopwatch.time(&mut seconds.seal, || self.seal(round, &form, contribution))?;
            clipped += sealed.clipped();
            cost.ciphertexts = cost.ciphertexts.max(sealed.ciphertexts(self.task()));
            cost.bytes = cost.bytes.max(sealed.to_body().len());
            stopwatch.time(&mut seconds.aggregate, || collecting.accept(sealed, threads))?;
        }
        let task = self.task();
        cost.shards = 1;
        if task.has_private_support() {
            let indexed = cost.ciphertexts - task.dense().div_ceil(task.slots());
            cost.shards = indexed / task.capacity();
            cost.singles = Some(collecting.overlap().share_of_singles());
        }
        let sealed = stopwatch
            .time(&mut seconds.aggregate, || collecting.close(threads))
            .map_err(|still| Error::Protocol(still.into()))?;
        let sum =
            stopwatch.time(&mut seconds.open, || self.key_generator.open(sealed, &mut self.rng, threads))?;
        // nobody can seal or reorder for this round again, absent users neither
        let next = round.next();
        self.users.iter_mut().for_each(|user| user.advance(next));
        self.aggregator.advance(next);
        let averaged = codec::decode(self.task(), &form, kind, &sum)?;
        Ok(Averaged { clipped: Some(clipped), cost, ..averaged })
    }
}

fn check_enrolled(task: &TaskParams, users: usize) -> Result<(), Error> {
    let needed = task.floor(users);
    if users < needed { Err(Error::TooFewUsers { users, needed }) } else { Ok(()) }
}
