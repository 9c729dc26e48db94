//! Verifies the messages of rounds: the signatures, the sets of participants, that each message refers to the one
//! before, the history of the task, and that each model follows from the model before it and the published sum.
//!
//! | module | content |
//! | --- | --- |
//! | `round` | the checks of one round |
//! | [`export`] | what two members compare |
//! | [`fetch`] | the messages of earlier rounds, from the aggregator |

pub mod export;
pub mod fetch;
mod round;

use std::collections::{BTreeMap, BTreeSet};

use dphe::party::log::Log;
use dphe::party::{EndedRound, Party as _, UserParty, history};
use dphe::wire::{Ending, Kind, LastOutcome, Rosters};
use dphe::{Digest, PartyId, Roster, Round, User, UserId};
use dphe_paillier::EncryptionKey;
use export::RoundHead;
use round::RoundCheck;
use serde::Serialize;

use crate::hex;
use crate::learning::ModelMaker;

/// The result of checking one round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedRound {
    /// The number of the round.
    pub round: u64,
    /// How the round ended, if it did.
    #[serde(serialize_with = "ending_or_open::serialize")]
    pub ending: Option<Ending>,
    /// The number of participants.
    pub users: usize,
    /// What was done with the published sum.
    pub sum: SumCheck,
    /// What members compare, unless the ticket is missing.
    pub head: Option<RoundHead>,
    /// What is wrong. Empty if everything is valid.
    pub findings: Vec<String>,
}

impl CheckedRound {
    /// Returns the name of the ending, or `open` if the round has not ended.
    pub fn ending_name(&self) -> &'static str {
        self.ending.map_or(ending_or_open::OPEN, Ending::as_str)
    }
}

/// The ending of a round as text in JSON, or [`OPEN`](ending_or_open::OPEN) if the round has not ended.
mod ending_or_open {
    use dphe::wire::Ending;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) const OPEN: &str = "open";

    pub(super) fn serialize<S: Serializer>(
        ending: &Option<Ending>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(ending.map_or(OPEN, Ending::as_str))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Ending>, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            OPEN => Ok(None),
            name => name.parse().map(Some).map_err(de::Error::custom),
        }
    }
}

/// What was done with the published sum of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SumCheck {
    /// There is none, or no model was computed from it.
    None,
    /// The model was computed from it. An aggregator does not have the seeds to check it.
    Read,
    /// It was checked again, with the seeds of the round or by the key generator's signature, and the model was
    /// computed from it.
    Checked,
    /// The model was computed from it. The seeds of the round are forgotten, so only the history in later tickets
    /// confirms it.
    Chained,
}

/// The result of checking a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedLog {
    /// The number of records since the start of the task.
    pub records: u64,
    /// The last hash of the chain.
    pub head: String,
    /// The number of bytes of an incomplete last record, which the party truncates when it starts.
    pub torn: usize,
}

/// Verifies the hash chain of a log.
///
/// # Errors
/// Returns the error of [`Log::recover`].
pub fn check_log(party: PartyId, rosters: impl Into<Rosters>, log: &[u8]) -> Result<CheckedLog, dphe::Error> {
    let rosters = rosters.into();
    let recovered = Log::recover(party, Log::roster_of(party, &rosters, log), log)?;
    let point = recovered.log.point();
    let torn = log.len() - recovered.valid;
    Ok(CheckedLog { records: point.seq, head: hex::encode(point.head.as_bytes()), torn })
}

/// What is needed to compute the models of a task again.
pub struct Replay<'a> {
    /// The model that the first round starts from.
    pub model: Vec<u8>,
    /// The encryption key, which sums are read with.
    pub key: EncryptionKey,
    /// Computes models from sums.
    pub maker: &'a mut dyn ModelMaker,
    /// The user whose seeds sums are checked with, once or twice: with the seeds of its kit and of its log.
    pub users: Vec<&'a User>,
}

/// Where the messages come from, which says what must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageSource {
    /// The aggregator's archive, which has every message.
    Archive,
    /// What an aggregator sends to members: everything but the masked sums of published rounds.
    Aggregator,
    /// What a user keeps: the messages that it was told, which do not name the participants.
    User,
}

/// The messages of one round, by the number of their kind.
pub type RoundMessages = BTreeMap<u8, Vec<u8>>;

/// Groups messages by their round.
pub fn by_round(messages: Vec<(Round, u8, Vec<u8>)>) -> BTreeMap<Round, RoundMessages> {
    let mut rounds: BTreeMap<Round, RoundMessages> = BTreeMap::new();
    for (round, kind, bytes) in messages {
        rounds.entry(round).or_default().insert(kind, bytes);
    }
    rounds
}

/// Computes the models of all published rounds again from stored messages. Nothing is verified.
///
/// # Errors
/// If a stored message or sum cannot be read.
pub fn replay_models(
    rosters: impl Into<Rosters>,
    messages: Vec<(Round, u8, Vec<u8>)>,
    replay: Replay<'_>,
) -> Result<Vec<Vec<u8>>, dphe::Error> {
    let Replay { mut model, key, maker, .. } = replay;
    let rosters = rosters.into();
    let mut models = Vec::new();
    for (&round, messages) in &by_round(messages) {
        let roster = rosters.at(round);
        let Some(ended) = ended_round(roster, messages)? else { continue };
        let Some(sum) = ended.sum_unchecked(roster, &key)? else { continue };
        model = maker.next_model(&sum, &model).unwrap_or(model);
        models.push(model.clone());
    }
    Ok(models)
}

/// Puts a round that has ended together from its stored messages.
fn ended_round(roster: &Roster, messages: &RoundMessages) -> Result<Option<EndedRound>, dphe::Error> {
    let bytes = |kind: Kind| messages.get(&kind.number()).map(|bytes| &bytes[..]);
    let Some((ticket, close)) = bytes(Kind::RoundTicket).zip(bytes(Kind::Close)) else { return Ok(None) };
    let published = bytes(Kind::Freeze).zip(bytes(Kind::Publish));
    EndedRound::from_messages(roster, ticket, close, published).map(Some)
}

/// Verifies the stored messages of rounds. With `replay`, the messages must begin with round 1, and every model is
/// computed again.
pub fn check_rounds(
    rosters: impl Into<Rosters>,
    source: MessageSource,
    messages: Vec<(Round, u8, Vec<u8>)>,
    replay: Option<Replay<'_>>,
) -> Vec<CheckedRound> {
    let rounds = by_round(messages);
    let last = rounds.keys().next_back().copied();
    let mut verifier = Verifier::new(rosters, source, replay);
    rounds.iter().map(|(round, messages)| verifier.check(*round, messages, Some(*round) == last)).collect()
}

/// Verifies one round after the other.
pub struct Verifier<'a> {
    rosters: Rosters,
    source: MessageSource,
    replay: Option<Replay<'a>>,
    chain: Chain,
}

/// What one round hands on to the next.
#[derive(Debug, Default)]
struct Chain {
    /// The last round that was checked.
    last: Option<Round>,
    /// The digest of the latest published model.
    model: Option<Digest>,
    /// The length of the key generator's log in the last ticket.
    records: Option<u64>,
    /// The history of the task after the last round, and the key generator's outcome of that round.
    history: Option<Digest>,
    outcome: Option<LastOutcome>,
    /// The sets of users whose sums were released on one model, and that model.
    released: (Option<Digest>, Vec<BTreeSet<UserId>>),
    /// How many sums were opened or failed.
    opened: u32,
}

impl<'a> Verifier<'a> {
    /// Creates a verifier. With `replay`, it expects the rounds from the first one on.
    pub fn new(rosters: impl Into<Rosters>, source: MessageSource, replay: Option<Replay<'a>>) -> Self {
        let model = replay.as_ref().map(|replay| Digest::of_model(&replay.model));
        Self { rosters: rosters.into(), source, replay, chain: Chain { model, ..Chain::default() } }
    }

    /// Verifies the messages of the next round. The last stored round may not have ended yet.
    pub fn check(&mut self, round: Round, messages: &RoundMessages, is_last: bool) -> CheckedRound {
        let expected = match self.chain.last {
            Some(last) => last.next(),
            None if self.replay.is_some() => Round::FIRST,
            None => round,
        };
        let mut findings = Vec::new();
        if expected != round {
            findings.push("the round before it is missing".into());
            (self.chain.history, self.chain.outcome) = (None, None);
        }
        let (roster, source) = (self.rosters.at(round), self.source);
        let first = self.rosters.first();
        if round == Round::FIRST && first.epoch() == 1 {
            self.chain.history = Some(history::first(first));
            self.chain.outcome = Some(LastOutcome::None);
        }
        self.chain.history = self.chain.history.map(|last| with_rosters(last, &self.rosters, round));
        self.chain.last = Some(round);
        let check = RoundCheck { roster, source, round, is_last, messages, findings };
        check.run(&mut self.chain, self.replay.as_mut())
    }
}

/// Adds the rosters that came into force with a round to the history before it.
fn with_rosters(last: Digest, rosters: &Rosters, round: Round) -> Digest {
    let changes = rosters.changes().iter().map(|change| change.roster());
    let new = changes.filter(|roster| roster.first_round() == round);
    new.fold(last, |last, roster| history::with_roster(last, roster.hash()))
}

/// Compares rounds that were verified with what a user knows from its own log. Returns what is wrong.
pub fn check_against_user(party: &UserParty, rosters: &Rosters, rounds: &[CheckedRound]) -> Vec<String> {
    // the user's current round has not ended for it
    let known = party.round().get() - 1;
    let Some(last) = rounds.iter().find(|checked| checked.round == known) else {
        return match known {
            0 => Vec::new(),
            _ => {
                vec![format!("this user has followed the task to the end of round {known}, which is missing")]
            }
        };
    };
    let Some(head) = &last.head else { return Vec::new() };
    let mut findings = Vec::new();
    let Some((history, model)) = party.history().zip(party.model()) else { return Vec::new() };
    // the user's history has the new roster already, if one is in force from its current round on
    let after = head.history.as_deref().and_then(hex::decode).map(Digest::from_bytes);
    let changed = after.map(|after| with_rosters(after, rosters, party.round()));
    if ![after, changed].contains(&Some(history)) {
        findings.push(format!("this user has another history after round {known}"));
    }
    if head.model != hex::encode(model.as_bytes()) {
        findings.push(format!("this user has another model after round {known}"));
    }
    findings
}
