//! Functions that are dangerous if used carelessly: short keys, chosen seeds, uploads without the checks of a party,
//! single masks, messages of a dishonest aggregator. They serve tests, load generators, demonstrations of attacks and
//! the reproduction of the paper. The feature `hazmat` only adds this module. It does not change what any other
//! function does. ([`remember_signatures`] saves time and changes no result.)

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use dphe_paillier::{EncryptionKey, Plaintext, Threads};
use rand_core::CryptoRng;

use crate::party::{Action, PartyContext, Time, UserParty};
use crate::scheme::RoundParams;
use crate::scheme::mask::{Blind, MaskSum};
use crate::scheme::permutation::{MaskSeed, UserAggregatorSeed, UserSharedSeed};
use crate::wire::{AgreementKey, Message, Publish, RoundTicket, Signed, Upload, UploadName};
use crate::{
    Digest, Error, Identity, IdentityKey, KeyGenerator, KeyLengths, PartyId, Roster, Round, TaskConfig,
    TaskId, TaskParams, Update, User, UserId, UserKeys,
};

/// Accepts keys below 2048 bits in tasks of the profile `paper`, whose keys have 1024.
pub fn paper_keys() -> KeyLengths {
    KeyLengths::SHORT_IN_PAPER
}

/// Accepts keys below 2048 bits in all tasks, for fast tests.
pub fn short_keys() -> KeyLengths {
    KeyLengths::SHORT
}

/// Checks a task whose key may be short.
///
/// # Errors
/// As [`TaskParams::new`].
pub fn task_params(id: TaskId, config: TaskConfig) -> Result<TaskParams, Error> {
    TaskParams::new_with(id, config, short_keys())
}

type Verified = HashMap<([u8; 32], Digest, [u8; 64]), bool>;

thread_local! {
    static VERIFIED: RefCell<Option<Verified>> = const { RefCell::new(None) };
}

/// Lets this thread verify every signature only once, however many parties get the message and however often. A
/// simulation of many rounds spends almost all of its time on signatures otherwise.
pub fn remember_signatures() {
    VERIFIED.with_borrow_mut(|verified| _ = verified.get_or_insert_default());
}

/// The number of signatures that are remembered.
const MOST_VERIFIED: usize = 10_000;

pub(crate) fn verify_once(
    identity: &Identity,
    digest: &Digest,
    signature: &[u8; 64],
    verify: impl FnOnce() -> bool,
) -> bool {
    VERIFIED.with_borrow_mut(|verified| {
        let Some(verified) = verified else { return verify() };
        if verified.len() > MOST_VERIFIED {
            verified.clear();
        }
        *verified.entry((identity.to_bytes(), *digest, *signature)).or_insert_with(verify)
    })
}

/// Replaces the seeds of a key generator, as of round 1, for test vectors: the user-shared seed, and of each user the
/// seed that it shares with the aggregator and its mask seed.
pub fn set_seeds(
    keys: &mut KeyGenerator,
    us: [u8; 32],
    users: impl IntoIterator<Item = (UserId, [u8; 32], [u8; 32])>,
) {
    let (mut ua, mut masks) = (BTreeMap::new(), BTreeMap::new());
    for (user, key, mask) in users {
        ua.insert(user, UserAggregatorSeed::from_parts(Round::FIRST, key));
        masks.insert(user, MaskSeed::from_parts(Round::FIRST, mask));
    }
    keys.set_seeds(UserSharedSeed::from_parts(Round::FIRST, us), ua, masks);
}

/// Starts a user whose keys may belong to another task, for example with a larger clip.
///
/// # Errors
/// As [`Party::start`](crate::party::Party::start).
pub fn start_user(
    keys: UserKeys,
    context: PartyContext<'_>,
    now: Time,
) -> Result<(UserParty, Vec<Action>), Error> {
    UserParty::start_unchecked(keys, context, now)
}

/// Moves the keys of a user to another task, for example one with a larger clip. See [`start_user`].
pub fn with_task(keys: UserKeys, task: TaskParams) -> UserKeys {
    UserKeys { task, ..keys }
}

/// Signs any message, for tests of parties that do not follow the protocol.
pub fn sign<M: Message>(
    identity: &IdentityKey,
    task: TaskId,
    sender: PartyId,
    round: Round,
    message: M,
    body: Vec<u8>,
) -> Vec<u8> {
    Signed::sign(identity, task, sender, round, message, body).to_bytes()
}

/// Decrypts the content of an upload with any agreement key.
///
/// # Errors
/// [`Error::Body`] if the content was not encrypted to this key.
pub fn open_upload(key: &AgreementKey, roster: &Roster, upload: &Signed<Upload>) -> Result<Vec<u8>, Error> {
    let PartyId::User(user) = upload.from() else { return Err(Error::Signature) };
    let name =
        UploadName { task: roster.task().id(), round: upload.round(), user, ticket: upload.message().ticket };
    key.open(name, upload.body())
}

/// Signs the upload of a content that was sealed before the ticket existed, for load generators. The masks of such a
/// content do not belong to the ticket. Unlike [`UserParty`], this does not prevent two uploads in one round.
///
/// # Errors
/// [`Error::Body`] if the content cannot be encrypted to the aggregator.
pub fn sign_upload(
    identity: &IdentityKey,
    roster: &Roster,
    user: UserId,
    ticket: &Signed<RoundTicket>,
    (count, salt): (u32, [u8; 16]),
    content: &[u8],
    rng: &mut impl CryptoRng,
) -> Result<Signed<Upload>, Error> {
    let (task, round) = (roster.task().id(), ticket.round());
    let name = UploadName { task, round, user, ticket: ticket.hash() };
    let body = roster.agreement().seal(name, content, rng)?;
    let upload = Upload {
        ticket: ticket.hash(),
        key_id: *roster.key_id(),
        count,
        salt,
        body_hash: Digest::of_upload(&body),
    };
    Ok(Signed::sign(identity, task, PartyId::User(user), round, upload, body))
}

/// Returns the masks that the aggregator removes from a sum for one upload, given the first bytes of its content.
///
/// # Errors
/// [`Error::Key`] if the masks cannot be added up.
pub fn aggregator_masks(
    key: &EncryptionKey,
    blind: [u8; 32],
    ticket: Digest,
    user: UserId,
    count: usize,
) -> Result<Vec<Plaintext>, Error> {
    let mut masks = MaskSum::new(key, count);
    masks.add(&Blind::from_bytes(blind).mask(ticket, user))?;
    Ok(masks.reduce())
}

/// Returns the sums of the masks that the key generator removes for these users, given the salts of their updates. With
/// the uploads, they are as good as the opened sum.
///
/// # Errors
/// [`Error::SetUnknown`] for a user who is not enrolled, [`Error::Stale`] for a round whose seeds are forgotten.
pub fn key_generator_masks(
    key_generator: &KeyGenerator,
    params: &RoundParams,
    users: &[(UserId, [u8; 16])],
    count: usize,
) -> Result<Vec<Plaintext>, Error> {
    let users = users.iter().map(|(user, salt)| (*user, salt));
    Ok(key_generator.sum_masks(params, users, count)?.reduce())
}

/// Returns what a user encrypts in a task with a public support: the packed numbers and the check, under masks.
///
/// # Errors
/// As [`User::seal`].
pub fn masked_plaintexts(
    user: &User,
    params: &RoundParams,
    update: &Update,
    rng: &mut impl CryptoRng,
) -> Result<Vec<Plaintext>, Error> {
    user.packed_plaintexts(params, update, rng, Threads::ONE)
}

/// Signs a publish message with another sum, as a dishonest aggregator does.
pub fn republish(
    aggregator: &IdentityKey,
    roster: &Roster,
    publish: &Signed<Publish>,
    sum: Vec<u8>,
) -> Signed<Publish> {
    let fields = Publish { sum_hash: Digest::of_payload(&sum), ..publish.message().clone() };
    Signed::sign(aggregator, roster.task().id(), PartyId::Aggregator, publish.round(), fields, sum)
}

/// Returns the table of the user-shared permutation of a round, for test vectors.
///
/// # Errors
/// [`Error::Future`] if the round is too far ahead.
pub fn user_shared_table(task: &TaskParams, seed: [u8; 32], round: Round) -> Result<Vec<u32>, Error> {
    Ok(UserSharedSeed::from_parts(Round::FIRST, seed).permutation(task, round)?.table().to_vec())
}

/// Returns the table of a user-aggregator permutation of a round, for test vectors.
///
/// # Errors
/// [`Error::Future`] if the round is too far ahead.
pub fn user_aggregator_table(
    task: &TaskParams,
    seed: [u8; 32],
    round: Round,
    user: UserId,
) -> Result<Vec<u32>, Error> {
    Ok(UserAggregatorSeed::from_parts(Round::FIRST, seed).permutation(task, round, user)?.table().to_vec())
}
