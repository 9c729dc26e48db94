//! What it costs to bind a sum to its participants: masks and check, measured side by side with a task without them,
//! and, as a control, without encryption.

use std::time::Duration;

use dphe::scheme::{RoundParams, UncheckedSum};
use dphe::wire::Encode as _;
use dphe::{
    Aggregator, IdentityKey, KeyGenerator, OpenedSum, Receipts, Round, SealedSum, TaskConfig, TaskId,
    TaskParams, Threads, User, UserId, hazmat,
};
use dphe_paillier::DecryptionKey;
use rand_core::CryptoRng;
use serde::Serialize;

use crate::cli::{CliError, os_rng};
use crate::round_cost::random_update;
use crate::timing::processor_time;

/// The number of rounds, of which the shortest times count.
const ROUNDS: u64 = 3;
/// For how many users the key generator adds up masks, and how many numbers each mask has.
const MANY_USERS: u32 = 10_000;
const MANY_NUMBERS: usize = 207;
/// How many signatures of uploads the key generator verifies when a round is frozen.
const SIGNATURES: u32 = 5_000;

/// Processor seconds on one thread, and bytes per message, of a task with a public support.
#[derive(Serialize)]
pub(crate) struct BindingCost {
    pub(super) without_s: Party,
    pub(super) with_s: Party,
    pub(super) without_bytes: usize,
    pub(super) with_bytes: usize,
    /// A user checks and unpacks a sum.
    pub(super) check_s: f64,
    /// The key generator adds up the masks of this many users.
    pub(super) many_users: u32,
    pub(super) many_numbers: usize,
    pub(super) many_masks_s: f64,
    /// The key generator verifies the signatures of this many uploads.
    pub(super) signatures: u32,
    pub(super) signatures_s: f64,
    /// The control: masks and check without encryption. Not the product.
    pub(super) control_s: Party,
    pub(super) control_bytes: usize,
}

/// The times of a user who seals and of the key generator that opens.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Party {
    pub(super) seal: f64,
    pub(super) open: f64,
}

/// One of the two tasks.
struct Side {
    task: TaskParams,
    users: Vec<User>,
    aggregator: Aggregator,
    sums: Vec<SealedSum>,
    seal: Duration,
    bytes: usize,
}

impl BindingCost {
    /// Measures a task. Its receipts do not matter. Returns the key for reuse.
    pub(super) fn measure(
        config: &TaskConfig,
        user_count: u32,
        key: DecryptionKey,
    ) -> Result<(Self, DecryptionKey), CliError> {
        let mut rng = os_rng()?;
        let task = |receipts| {
            TaskParams::new(TaskId::from_bytes([1; 16]), TaskConfig { receipts, ..config.clone() })
        };
        let mut generator = KeyGenerator::with_key(task(Receipts::None)?, key, &mut rng)?;
        let mut without = Side::new(&mut generator, user_count, &mut rng)?;
        let mut generator = KeyGenerator::with_key(task(Receipts::Masked)?, generator.into_key(), &mut rng)?;
        let mut with = Side::new(&mut generator, user_count, &mut rng)?;
        let mut control = Party { seal: f64::INFINITY, open: f64::INFINITY };
        let mut control_bytes = 0;
        for round in (1..=ROUNDS).filter_map(Round::new) {
            // alternately, so that both have the same conditions
            without.collect(round, &mut rng)?;
            with.collect(round, &mut rng)?;
            let (seal, bytes) = with.mask_only(round, &mut rng)?;
            control.seal = control.seal.min(seal.as_secs_f64());
            control_bytes = bytes;
        }

        let (mut open, mut check) = (Duration::MAX, Duration::MAX);
        for mut sum in core::mem::take(&mut with.sums) {
            let blinds = sum.take_blinds();
            let (opened, time) = opened(&mut generator, sum, &mut rng)?;
            open = open.min(time);
            let OpenedSum::Masked(masked) = opened else { continue };
            let published = masked.unmask(&with.aggregator, &blinds)?;
            check = check.min(check_time(&published, &with.users)?);
        }
        let with_open = open;
        let time = |generator: &KeyGenerator, users: u32, count| -> Result<f64, CliError> {
            let params = RoundParams::new(&with.task, Round::new(ROUNDS + 1).unwrap_or(Round::FIRST));
            let users: Vec<_> = (1..=users).filter_map(UserId::new).map(|user| (user, [7; 16])).collect();
            let start = processor_time();
            hazmat::key_generator_masks(generator, &params, &users, count)?;
            Ok(processor_time().saturating_sub(start).as_secs_f64())
        };
        let count = (with.bytes - 32) / encryption_bytes(config);
        for _ in 0..ROUNDS {
            control.open = control.open.min(time(&generator, user_count, count)?);
        }
        for user in (1..=MANY_USERS).filter_map(UserId::new) {
            generator.enroll(user, &mut rng);
        }
        let many_masks_s = time(&generator, MANY_USERS, MANY_NUMBERS)?;

        // opening without masks needs no seeds, so users of the same numbers are enough
        let mut generator = KeyGenerator::with_key(without.task.clone(), generator.into_key(), &mut rng)?;
        for user in (1..=user_count).filter_map(UserId::new) {
            generator.enroll(user, &mut rng);
        }
        let mut open = Duration::MAX;
        for sum in core::mem::take(&mut without.sums) {
            open = open.min(opened(&mut generator, sum, &mut rng)?.1);
        }
        let party =
            |side: &Side, open: Duration| Party { seal: side.seal.as_secs_f64(), open: open.as_secs_f64() };
        let cost = Self {
            without_s: party(&without, open),
            with_s: party(&with, with_open),
            without_bytes: without.bytes,
            with_bytes: with.bytes,
            check_s: check.as_secs_f64(),
            many_users: MANY_USERS,
            many_numbers: MANY_NUMBERS,
            many_masks_s,
            signatures: SIGNATURES,
            signatures_s: verification_time(&mut rng)?.as_secs_f64(),
            control_s: control,
            control_bytes,
        };
        Ok((cost, generator.into_key()))
    }
}

/// The length of a ciphertext.
fn encryption_bytes(config: &TaskConfig) -> usize {
    2 * config.key_bits as usize / 8
}

fn opened(
    generator: &mut KeyGenerator,
    sum: SealedSum,
    rng: &mut impl CryptoRng,
) -> Result<(OpenedSum, Duration), CliError> {
    let start = processor_time();
    let opened = generator.open(sum, rng, Threads::ONE)?;
    Ok((opened, processor_time().saturating_sub(start)))
}

/// A signature of a request is verified like that of an upload: strictly, over a hash.
fn verification_time(rng: &mut impl CryptoRng) -> Result<Duration, CliError> {
    let key = IdentityKey::generate(rng);
    let (identity, task) = (key.identity(), TaskId::from_bytes([1; 16]));
    let signed: Vec<_> = (0..SIGNATURES)
        .map(|user| {
            // as long as the header of an upload
            let header = [&user.to_be_bytes()[..], &[7; 147]].concat();
            let signature = key.sign_request(task, &header);
            (header, signature)
        })
        .collect();
    let start = processor_time();
    for (header, signature) in &signed {
        identity.verify_request(task, header, signature)?;
    }
    Ok(processor_time().saturating_sub(start))
}

fn check_time(published: &UncheckedSum, users: &[User]) -> Result<Duration, CliError> {
    let mut best = Duration::MAX;
    for user in users {
        let start = processor_time();
        published.check(user)?;
        best = best.min(processor_time().saturating_sub(start));
    }
    Ok(best)
}

impl Side {
    fn new(
        generator: &mut KeyGenerator,
        user_count: u32,
        rng: &mut impl CryptoRng,
    ) -> Result<Self, CliError> {
        generator.encryption_key().prepare();
        let users = (1..=user_count)
            .filter_map(UserId::new)
            .map(|id| User::new(generator.enroll(id, rng)))
            .collect::<Result<Vec<_>, _>>()?;
        let aggregator = Aggregator::new(generator.aggregator_keys())?;
        let task = generator.task().clone();
        Ok(Self { task, users, aggregator, sums: Vec::new(), seal: Duration::MAX, bytes: 0 })
    }

    /// Runs a round up to the sealed sum. Measures each user who seals.
    fn collect(&mut self, round: Round, rng: &mut impl CryptoRng) -> Result<(), CliError> {
        let params = RoundParams::new(&self.task, round);
        let mut collecting = self.aggregator.begin(round);
        for user in &self.users {
            let update = random_update(&self.task, round, rng)?;
            let start = processor_time();
            let sealed = user.seal_in(&params, &update, rng, Threads::ONE)?;
            let bytes = sealed.to_bytes().len();
            self.seal = self.seal.min(processor_time().saturating_sub(start));
            self.bytes = bytes;
            collecting.accept(sealed, Threads::all())?;
        }
        self.sums.push(collecting.finish(Threads::all()).map_err(dphe::Error::from)?);
        Ok(())
    }

    /// Does everything that a user does to seal but encrypt. Returns the time, and the bytes of such an upload.
    fn mask_only(&self, round: Round, rng: &mut impl CryptoRng) -> Result<(Duration, usize), CliError> {
        let params = RoundParams::new(&self.task, round);
        let (mut best, mut bytes) = (Duration::MAX, 0);
        for user in &self.users {
            let update = random_update(&self.task, round, rng)?;
            let start = processor_time();
            let masked = hazmat::masked_plaintexts(user, &params, &update, rng)?;
            let residues = masked.iter().map(|residue| residue.to_residue_bytes().len());
            bytes = 32 + residues.sum::<usize>();
            best = best.min(processor_time().saturating_sub(start));
        }
        Ok((best, bytes))
    }
}
