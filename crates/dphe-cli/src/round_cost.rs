//! Measures what a round costs each party, by running one on a single thread.

use std::time::Duration;

use dphe::scheme::RoundParams;
use dphe::wire::{DecodeWith as _, Encode as _, UploadParams};
use dphe::{
    Aggregator, KeyGenerator, PublicSupport, Round, SealedUpdate, SparseVector, TaskConfig, TaskId,
    TaskParams, Threads, Update, User, UserId,
};
use dphe_paillier::DecryptionKey;
use rand_core::CryptoRng;
use serde::Serialize;

use crate::cli::{CliError, os_rng};
use crate::timing::processor_time;

/// The number of measurements of a short operation, of which the best one counts.
const SAMPLES: usize = 5;

/// Processor seconds on one thread, and bytes per message.
#[derive(Serialize)]
pub(crate) struct RoundCost {
    pub(crate) profile: &'static str,
    pub(crate) block: u32,
    pub(crate) bits: u32,
    pub(crate) mode: &'static str,
    pub(crate) backend: &'static str,
    pub(crate) users: u32,
    pub(crate) dimension: u32,
    /// Positions per upload.
    pub(crate) capacity: u32,
    /// Ciphertexts per upload.
    pub(crate) ciphertexts: usize,
    pub(crate) seal_s: f64,
    pub(crate) seal_bytes: usize,
    pub(crate) accept_s: f64,
    pub(crate) close_s: f64,
    pub(crate) open_s: f64,
    pub(crate) sum_bytes: usize,
    pub(crate) result_bytes: usize,
}

impl RoundCost {
    /// Runs a round with this many users. Returns the key for reuse.
    pub(crate) fn measure(
        config: TaskConfig,
        user_count: u32,
        key: DecryptionKey,
    ) -> Result<(Self, DecryptionKey), CliError> {
        let mut rng = os_rng()?;
        let task = TaskParams::new(TaskId::from_bytes(random(&mut rng)), config)?;
        let encryption = key.encryption_key().clone();
        encryption.prepare();
        let mut keys = KeyGenerator::with_key(task.clone(), key, &mut rng)?;
        let users = (1..=user_count)
            .filter_map(UserId::new)
            .map(|id| User::new(keys.enroll(id, &mut rng)))
            .collect::<Result<Vec<_>, _>>()?;
        let aggregator = Aggregator::new(keys.aggregator_keys())?;
        let round = Round::FIRST;

        let (mut seal, mut accept) = (Duration::MAX, Duration::ZERO);
        let (mut ciphertexts, mut seal_bytes) = (0, 0);
        let mut collecting = aggregator.begin(round);
        for (i, user) in users.iter().enumerate() {
            let update = random_update(&task, round, &mut rng)?;
            let mut sealed = user.seal(round, &update, &mut rng, Threads::all())?;
            let mut body = sealed.to_bytes();
            // measure the first user only, and a long operation only once
            for sample in 0..if i == 0 { SAMPLES } else { 0 } {
                if sample > 0 && seal > Duration::from_secs(1) {
                    break;
                }
                let start = processor_time();
                sealed = user.seal(round, &update, &mut rng, Threads::ONE)?;
                body = sealed.to_bytes();
                seal = seal.min(processor_time().saturating_sub(start));
            }
            (ciphertexts, seal_bytes) = (sealed.ciphertexts(), body.len());
            let count = u32::try_from(ciphertexts).unwrap_or(u32::MAX);
            let start = processor_time();
            let received = SealedUpdate::from_bytes(
                &body,
                &UploadParams {
                    params: &RoundParams::new(&task, round),
                    user: user.id(),
                    count,
                    salt: sealed.salt(),
                },
            )?;
            collecting.accept(received, Threads::ONE)?;
            accept += processor_time().saturating_sub(start);
        }
        let start = processor_time();
        let sum = collecting.finish(Threads::ONE).map_err(dphe::Error::from)?;
        let close = processor_time().saturating_sub(start);
        let sum_bytes = sum.to_bytes().len();
        let start = processor_time();
        let opened = keys.open(sum, &mut rng, Threads::ONE)?;
        let open = processor_time().saturating_sub(start);
        let config = task.config();
        let cost = Self {
            profile: config.profile.as_str(),
            block: config.block,
            bits: config.key_bits,
            mode: config.noise.name(),
            backend: encryption.backend().name(),
            users: user_count,
            dimension: config.dimension,
            capacity: config.capacity,
            ciphertexts,
            seal_s: seal.as_secs_f64(),
            seal_bytes,
            accept_s: accept.as_secs_f64() / f64::from(user_count),
            close_s: close.as_secs_f64(),
            open_s: open.as_secs_f64(),
            sum_bytes,
            result_bytes: opened.to_bytes().len(),
        };
        Ok((cost, keys.into_key()))
    }
}

/// Returns an update with random weights in as many positions as an upload can carry.
pub(crate) fn random_update(
    task: &TaskParams,
    round: Round,
    rng: &mut impl CryptoRng,
) -> Result<Update, CliError> {
    let mut weights = vec![0.0; task.dimension()];
    if task.has_private_support() {
        let (mut left, mut wanted) = (task.positions(), task.capacity() as u32);
        for block in weights.chunks_mut(task.block()) {
            // taking a position with probability wanted / left makes all subsets equally likely
            if u64::from(rng.next_u32()) * u64::from(left) < u64::from(wanted) << 32 {
                block.iter_mut().for_each(|w| *w = random_weight(rng));
                wanted -= 1;
            }
            left -= 1;
        }
    } else {
        PublicSupport::of(task, round).indices().for_each(|index| weights[index] = random_weight(rng));
    }
    Ok(Update::new(SparseVector::from_dense(&weights)?))
}

/// Returns a weight between 0.1 and 0.6, which never rounds to zero.
fn random_weight(rng: &mut impl CryptoRng) -> f64 {
    0.1 + f64::from(rng.next_u32()) / f64::from(u32::MAX) / 2.0
}

fn random(rng: &mut impl CryptoRng) -> [u8; 16] {
    let mut bytes = [0; 16];
    rng.fill_bytes(&mut bytes);
    bytes
}
