//! Verifies the stored messages of rounds: the signatures, the sets of participants, that each message refers to the
//! one before, and that each model follows from the model before it and the opened sum.

use std::collections::BTreeMap;

use dphe::party::log::Log;
use dphe::wire::{
    Close, Ending, Freeze, FreezeAck, Message, Outcome, Publish, RoundResult, RoundTicket, Signed,
};
use dphe::{Digest, PartyId, Roster, Round, WeightSum};
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
pub fn check_log(party: PartyId, roster: &Roster, log: &[u8]) -> Result<CheckedLog, dphe::Error> {
    let recovered = Log::recover(party, roster, log)?;
    let point = recovered.log.point();
    let torn = log.len() - recovered.valid;
    Ok(CheckedLog { records: point.seq, head: crate::hex::encode(point.head.as_bytes()), torn })
}

/// What is needed to compute the models of a task again.
pub struct Replay<'a> {
    /// The model that the first round starts from.
    pub model: Vec<u8>,
    /// Computes models from sums.
    pub maker: &'a mut dyn ModelMaker,
}

/// Verifies the messages of rounds that an aggregator has stored. With `replay`, the messages must begin with round 1,
/// and every model is computed again.
pub fn check_rounds(
    roster: &Roster,
    messages: &[(Round, u8, Vec<u8>)],
    mut replay: Option<Replay<'_>>,
) -> Vec<CheckedRound> {
    let mut rounds: BTreeMap<Round, BTreeMap<u8, &[u8]>> = BTreeMap::new();
    for (round, kind, bytes) in messages {
        rounds.entry(*round).or_default().insert(*kind, bytes);
    }
    let mut model = replay.as_ref().map(|replay| Digest::of_model(&replay.model));
    let mut records = None;
    let mut checked: Vec<CheckedRound> = Vec::new();
    let last = rounds.keys().next_back().copied();
    for (round, messages) in &rounds {
        let is_last = Some(*round) == last;
        let mut check = Check { roster, round: *round, is_last, messages, findings: Vec::new() };
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

    /// Computes the model of the round again.
    fn recompute(&mut self, sum: &WeightSum, published: &[u8], replay: &mut Replay<'_>) {
        match replay.maker.next_model(sum, &replay.model) {
            Ok(model) => {
                self.require(model == published, "the published model does not follow from the sum");
            }
            // an aggregator that cannot compute a model publishes the one before
            Err(_) => self.require(
                replay.model == published,
                "no model follows from the sum, and the published one is not the one before",
            ),
        }
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
        self.require(
            message.check_result(roster, self.round).is_ok(),
            "the published result is not signed by the key generator",
        );
        if let Some(result) = &result {
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
            self.require(
                freeze.message().users == message.users,
                "the published participants are not the frozen ones",
            );
        }
        let ascending = message.users.is_sorted_by(|a, b| a.user < b.user);
        let known = message.users.iter().all(|one| roster.contains(one.user));
        self.require(ascending && known, "the participants contain a duplicate or an unknown user");
        self.require(message.users.len() >= roster.floor(), "there are fewer participants than the floor");
        let found = Digest::of_model(publish.body());
        self.require(found == message.model, "the stored model is not the published one");
        let sum = result.and_then(|result| result.sum(roster).transpose());
        if let Some(Err(_)) = &sum {
            self.findings.push("the stored sum is not the one that the key generator signed".into());
        }
        if let Some(replay) = replay {
            if let Some(Ok(sum)) = sum {
                self.recompute(&sum, publish.body(), replay);
            }
            // later rounds are checked against what was published
            replay.model = publish.body().to_vec();
        }
        if let Some(close) = &close {
            self.require(
                close.message().publish == publish.hash(),
                "the close message refers to another publish message",
            );
        }
        *model = Some(message.model);
        (ending, message.users.len())
    }
}
