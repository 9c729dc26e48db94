//! Sharp edges, behind the feature `hazmat`: tasks with keys below 2048 bits in any profile, for tests. Nothing here is
//! for data that matters.

use dphe_paillier::hazmat::insecure_key_bits;

use crate::message::{RoundTicket, Signed, Upload, upload_hash};
use crate::party::{Action, Time, UserParty};
use crate::permutation::{UserAggregatorSeed, UserSharedSeed};
use crate::{
    Error, IdentityKey, KeyGenerator, Party, Roster, Round, TaskConfig, TaskId, TaskParams, Threads, UserId,
    UserKeys,
};

/// As [`TaskParams::new`], with any key length that [`insecure_key_bits`] allows.
///
/// # Errors
/// As there.
pub fn task_params(id: TaskId, config: TaskConfig) -> Result<TaskParams, Error> {
    let key_bits = insecure_key_bits(config.key_bits).map_err(Error::Key)?;
    TaskParams::checked(id, config, key_bits)
}

/// As [`Roster::decode`], with any key length that [`insecure_key_bits`] allows.
///
/// # Errors
/// As there.
pub fn decode_roster(bytes: &[u8]) -> Result<Roster, Error> {
    Roster::decode_of(bytes, |config| insecure_key_bits(config.key_bits))
}

/// Gives a key generator chosen seeds, those of round 1, for test vectors.
pub fn set_seeds(keys: &mut KeyGenerator, us: [u8; 32], ua: impl IntoIterator<Item = (UserId, [u8; 32])>) {
    let ua = ua.into_iter().map(|(user, key)| (user, UserAggregatorSeed::from_parts(Round::FIRST, key)));
    keys.set_seeds(UserSharedSeed::from_parts(Round::FIRST, us), ua.collect());
}

/// As [`UserParty::start`], with keys that may be of another task: a user that goes beyond the clip, say.
///
/// # Errors
/// As there.
pub fn start_user(
    keys: UserKeys,
    identity: IdentityKey,
    roster: Roster,
    log: &[u8],
    threads: Threads,
    now: Time,
) -> Result<(UserParty, Vec<Action>), Error> {
    UserParty::start_unchecked(keys, identity, roster, log, threads, now)
}

/// The upload of a body with this many ciphertexts that was sealed before there was a ticket, for load generators.
/// Nothing keeps the caller from signing two of a round, as [`UserParty`] does.
pub fn sign_upload(
    identity: &IdentityKey,
    roster: &Roster,
    user: UserId,
    ticket: &Signed<RoundTicket>,
    count: u32,
    body: Vec<u8>,
) -> Signed<Upload> {
    let upload =
        Upload { ticket: ticket.hash(), key_id: *roster.key_id(), count, body_hash: upload_hash(&body) };
    Signed::sign(identity, roster.task().id(), Party::User(user), ticket.round(), upload, body)
}

/// The table of `phi` of a round, for test vectors.
///
/// # Errors
/// As sealing in that round.
pub fn user_shared_table(task: &TaskParams, seed: [u8; 32], round: Round) -> Result<Vec<u32>, Error> {
    Ok(UserSharedSeed::from_parts(Round::FIRST, seed).permutation(task, round)?.table().to_vec())
}

/// The table of `phi(n)` of a round, for test vectors.
///
/// # Errors
/// As sealing in that round.
pub fn user_aggregator_table(
    task: &TaskParams,
    seed: [u8; 32],
    round: Round,
    user: UserId,
) -> Result<Vec<u32>, Error> {
    Ok(UserAggregatorSeed::from_parts(Round::FIRST, seed).permutation(task, round, user)?.table().to_vec())
}
