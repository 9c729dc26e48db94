//! Verifies the stored messages of rounds: the signatures, the sets of participants, that each message refers to the
//! one before, and that each model follows from the model before it and the opened sum.

use std::collections::BTreeMap;

use dphe::party::EndedRound;
use dphe::party::log::Log;
use dphe::wire::{
    Close, Ending, Freeze, FreezeAck, Kind, Message, Outcome, ParticipantTree, Publish, Rosters, RoundResult,
    RoundTicket, Signed,
};
use dphe::{Digest, PartyId, Receipts, Roster, Round};
use dphe_paillier::EncryptionKey;
use serde::{Serialize, Serializer};

use crate::learning::ModelMaker;

/// The result of checking one round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedRound {
    /// The number of the round.
    pub round: u64,
    /// How the round ended, if it did.
    #[serde(serialize_with = "ending_name")]
    pub ending: Option<Ending>,
    /// The number of participants.
    pub users: usize,
    /// What is wrong. Empty if everything is valid.
    pub findings: Vec<String>,
}

impl CheckedRound {
    /// Returns the name of the ending, or `open` if the round has not ended.
    pub fn ending_name(&self) -> &'static str {
        self.ending.map_or("open", Ending::as_str)
    }
}

fn ending_name<S: Serializer>(ending: &Option<Ending>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(ending.map_or("open", Ending::as_str))
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
    Ok(CheckedLog { records: point.seq, head: crate::hex::encode(point.head.as_bytes()), torn })
}

/// What is needed to compute the models of a task again.
pub struct Replay<'a> {
    /// The model that the first round starts from.
    pub model: Vec<u8>,
    /// The encryption key, which sums are read with.
    pub key: EncryptionKey,
    /// Computes models from sums.
    pub maker: &'a mut dyn ModelMaker,
}

/// Computes the models of all published rounds again from stored messages. Nothing is verified.
///
/// # Errors
/// If a stored message or sum cannot be read.
pub fn replay_models(
    rosters: impl Into<Rosters>,
    messages: &[(Round, u8, Vec<u8>)],
    replay: Replay<'_>,
) -> Result<Vec<Vec<u8>>, dphe::Error> {
    let Replay { mut model, key, maker } = replay;
    let rosters = rosters.into();
    let mut rounds: BTreeMap<Round, BTreeMap<u8, &[u8]>> = BTreeMap::new();
    for (round, kind, bytes) in messages {
        rounds.entry(*round).or_default().insert(*kind, bytes);
    }
    let mut models = Vec::new();
    for (&round, messages) in &rounds {
        let roster = rosters.at(round);
        let Some(ended) = ended_round(roster, messages)? else { continue };
        let Some(sum) = ended.sum_unchecked(roster, &key)? else { continue };
        model = maker.next_model(&sum, &model).unwrap_or(model);
        models.push(model.clone());
    }
    Ok(models)
}

/// Puts a round that has ended together from its stored messages.
fn ended_round(roster: &Roster, messages: &BTreeMap<u8, &[u8]>) -> Result<Option<EndedRound>, dphe::Error> {
    let bytes = |kind: Kind| messages.get(&kind.number()).copied();
    let Some((ticket, close)) = bytes(Kind::RoundTicket).zip(bytes(Kind::Close)) else { return Ok(None) };
    let published = bytes(Kind::Freeze).zip(bytes(Kind::Publish));
    EndedRound::from_messages(roster, ticket, close, published).map(Some)
}

/// Verifies the messages of rounds that an aggregator has stored. With `replay`, the messages must begin with round 1,
/// and every model is computed again.
pub fn check_rounds(
    rosters: impl Into<Rosters>,
    messages: &[(Round, u8, Vec<u8>)],
    mut replay: Option<Replay<'_>>,
) -> Vec<CheckedRound> {
    let mut rounds: BTreeMap<Round, BTreeMap<u8, &[u8]>> = BTreeMap::new();
    for (round, kind, bytes) in messages {
        rounds.entry(*round).or_default().insert(*kind, bytes);
    }
    let rosters = rosters.into();
    let mut model = replay.as_ref().map(|replay| Digest::of_model(&replay.model));
    let mut records = None;
    let mut checked: Vec<CheckedRound> = Vec::new();
    let last = rounds.keys().next_back().copied();
    for (round, messages) in &rounds {
        let is_last = Some(*round) == last;
        let mut check =
            Check { roster: rosters.at(*round), round: *round, is_last, messages, findings: Vec::new() };
        let ending = check.run(&mut model, &mut records, replay.as_mut());
        let expected = match checked.last() {
            Some(last) => last.round + 1,
            None if replay.is_some() => 1,
            None => round.get(),
        };
        if expected != round.get() {
            check.findings.push("the round before it is missing".into());
        }
        let (ending, users) = ending;
        checked.push(CheckedRound { round: round.get(), ending, users, findings: check.findings });
    }
    checked
}

struct Check<'a> {
    roster: &'a Roster,
    round: Round,
    /// The last stored round may be published and not closed yet.
    is_last: bool,
    messages: &'a BTreeMap<u8, &'a [u8]>,
    findings: Vec<String>,
}

impl Check<'_> {
    fn read<M: Message>(&mut self) -> Option<Signed<M>> {
        let bytes = self.messages.get(&M::KIND.number())?;
        match Signed::<M>::decode(bytes, self.roster) {
            Ok(message) if message.round() == self.round => Some(message),
            Ok(_) => {
                self.findings.push(format!("the {} belongs to another round", M::KIND));
                None
            }
            Err(error) => {
                self.findings.push(format!("the {}: {error}", M::KIND));
                None
            }
        }
    }

    fn require(&mut self, holds: bool, finding: &str) {
        if !holds {
            self.findings.push(finding.to_owned());
        }
    }

    /// Computes the model of the round again from the published sum.
    fn recompute(&mut self, ended: &EndedRound, published: Digest, replay: &mut Replay<'_>) {
        let sum = match ended.sum_unchecked(self.roster, &replay.key) {
            Ok(Some(sum)) => sum,
            Ok(None) => return,
            Err(error) => return self.findings.push(format!("the published sum cannot be read: {error}")),
        };
        // an aggregator that cannot compute a model publishes the one before
        if let Ok(model) = replay.maker.next_model(&sum, &replay.model) {
            replay.model = model;
        }
        self.require(
            Digest::of_model(&replay.model) == published,
            "the published model does not follow from the sum",
        );
    }

    /// Returns how the round ended and the number of participants. `model` and `records` carry the published model
    /// and the length of the key generator's log from round to round, and `replay` carries the model itself.
    fn run(
        &mut self,
        model: &mut Option<Digest>,
        records: &mut Option<u64>,
        replay: Option<&mut Replay<'_>>,
    ) -> (Option<Ending>, usize) {
        let roster = self.roster;
        let ticket = self.read::<RoundTicket>();
        let freeze = self.read::<Freeze>();
        let ack = self.read::<FreezeAck>();
        let result = self.read::<RoundResult>();
        let publish = self.read::<Publish>();
        let close = self.read::<Close>();
        if let Some(ticket) = &ticket {
            let message = ticket.message();
            self.require(message.policy == roster.task().policy_hash(), "the ticket names another policy");
            self.require(message.roster == roster.hash(), "the ticket names another roster");
            self.require(
                model.is_none_or(|model| model == message.model),
                "the round does not start from the last published model",
            );
            *model = Some(message.model);
            let seq = message.log.seq;
            self.require(
                records.is_none_or(|last| seq > last),
                "the key generator's log is shorter than before",
            );
            *records = Some(seq);
        }
        if let (Some(ticket), Some(freeze)) = (&ticket, &freeze) {
            self.require(freeze.message().ticket == ticket.hash(), "the freeze refers to another ticket");
        }
        if let (Some(freeze), Some(ack)) = (&freeze, &ack) {
            self.require(ack.message().freeze == freeze.hash(), "the acknowledgement is for another freeze");
        }
        if let (Some(freeze), Some(result)) = (&freeze, &result) {
            let same = result.message().users as usize == freeze.message().users.len();
            self.require(same, "the sum and the freeze have different numbers of participants");
        }
        let ending = close.as_ref().map(|close| close.message().ending);
        // the aggregator signs the close message itself, so a publish message alone counts too
        if ending == Some(Ending::Published) || publish.is_some() {
            self.require(publish.is_some(), "the round was published, but the publish message is missing");
            // report what cannot be checked because it is missing
            for (kept, finding) in [
                (
                    close.is_some() || self.is_last,
                    "the round was published, but the close message is missing",
                ),
                (
                    ending.is_none_or(|ending| ending == Ending::Published),
                    "the round was published, but the close message says that it was not",
                ),
                (ticket.is_some(), "the round was published, but the ticket is missing"),
                (freeze.is_some(), "the round was published, but the freeze is missing"),
                (
                    ack.is_some(),
                    "the round was published, but the key generator's acknowledgement of the freeze is missing",
                ),
                (result.is_some(), "the round was published, but the key generator's result is missing"),
            ] {
                self.require(kept, finding);
            }
        }
        let Some(publish) = publish else { return (ending, 0) };
        let message = publish.message();
        let users = freeze.as_ref().map_or(0, |freeze| freeze.message().users.len());
        match message.check_result(roster, self.round) {
            Err(_) => {
                self.require(false, "the published result is not signed by the key generator");
            }
            Ok(signed) => {
                let signed = signed.message();
                if let Some(freeze) = &freeze {
                    let root = ParticipantTree::new(&freeze.message().users).root();
                    self.require(
                        signed.users_root == root,
                        "the frozen participants are not those of the result",
                    );
                }
                let hash = Digest::of_sum_bytes(publish.body());
                self.require(hash == message.sum_hash, "the stored sum is not the published one");
                self.require(
                    roster.task().receipts() == Receipts::Masked || signed.payload_hash == hash,
                    "the published sum is not the one that the key generator signed",
                );
            }
        }
        if let Some(result) = &result {
            self.require(
                Digest::of_sum_bytes(result.body()) == result.message().payload_hash,
                "the stored sum is not the one that the key generator signed",
            );
            self.require(
                message.result.hash() == result.hash(),
                "the published result is not the one received",
            );
            self.require(
                result.message().outcome == Outcome::Released,
                "the round was published without a sum",
            );
        }
        if let Some(freeze) = &freeze {
            let users = &freeze.message().users;
            let ascending = users.is_sorted_by(|a, b| a.user < b.user);
            let known = users.iter().all(|one| roster.contains(one.user));
            self.require(ascending && known, "the participants contain a duplicate or an unknown user");
            self.require(users.len() >= roster.floor(), "there are fewer participants than the floor");
            if let Some(ticket) = &ticket {
                let signed = users.iter().all(|one| one.verify(roster, self.round, ticket.hash()).is_ok());
                self.require(signed, "a participant did not sign an upload for this round");
            }
        }
        let ended = ended_round(roster, self.messages).ok().flatten();
        if let (Some(replay), Some(ended)) = (replay, &ended) {
            self.recompute(ended, message.model, replay);
        }
        if let Some(close) = &close {
            self.require(
                close.message().publish == publish.hash(),
                "the close message refers to another publish message",
            );
        }
        *model = Some(message.model);
        (ending, users)
    }
}
