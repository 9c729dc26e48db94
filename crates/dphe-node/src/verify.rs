//! Checks again what the aggregator kept of rounds: signatures, sets, and that each step follows from the one before.

use std::collections::BTreeMap;

use dphe::log::Log;
use dphe::message::{
    Close, Ending, Freeze, FreezeAck, Message, Outcome, Publish, RoundResult, RoundTicket, Signed,
};
use dphe::{Digest, Party, Roster, Round};
use serde::Serialize;

/// A round that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedRound {
    /// The round.
    pub round: u64,
    /// `published`, `failed`, `aborted`, or `open`.
    pub ending: &'static str,
    /// Users of the published set.
    pub users: usize,
    /// What does not hold; nothing, if all is well.
    pub findings: Vec<String>,
}

/// A log that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedLog {
    /// Records since the beginning of the task.
    pub records: u64,
    /// The head of the chain of hashes.
    pub head: String,
    /// Bytes of a tail that was cut short; the party cuts it off when it starts.
    pub torn: usize,
}

/// Follows the chain of hashes of a log.
///
/// # Errors
/// As [`Log::recover`].
pub fn check_log(party: Party, roster: &Roster, log: &[u8]) -> Result<CheckedLog, dphe::Error> {
    let recovered = Log::recover(party, roster, log)?;
    let point = recovered.log.point();
    let torn = log.len() - recovered.valid;
    Ok(CheckedLog { records: point.seq, head: crate::kit::hex(point.head.as_bytes()), torn })
}

/// Checks the messages of rounds, as the aggregator kept them.
pub fn check_rounds(roster: &Roster, messages: &[(Round, u8, Vec<u8>)]) -> Vec<CheckedRound> {
    let mut rounds: BTreeMap<Round, BTreeMap<u8, &[u8]>> = BTreeMap::new();
    for (round, kind, bytes) in messages {
        rounds.entry(*round).or_default().insert(*kind, bytes);
    }
    let mut model = None;
    let mut records = None;
    let mut checked: Vec<CheckedRound> = Vec::new();
    for (round, messages) in &rounds {
        let mut check = Check { roster, round: *round, messages, findings: Vec::new() };
        let ending = check.run(&mut model, &mut records);
        if checked.last().is_some_and(|last| last.round + 1 != round.get()) {
            check.findings.push("a round before it is missing".into());
        }
        let (ending, users) = ending;
        checked.push(CheckedRound { round: round.get(), ending, users, findings: check.findings });
    }
    checked
}

struct Check<'a> {
    roster: &'a Roster,
    round: Round,
    messages: &'a BTreeMap<u8, &'a [u8]>,
    findings: Vec<String>,
}

impl Check<'_> {
    fn read<M: Message>(&mut self) -> Option<Signed<M>> {
        let bytes = self.messages.get(&M::KIND)?;
        match Signed::<M>::decode(bytes, self.roster) {
            Ok(message) if message.round() == self.round => Some(message),
            Ok(_) => {
                self.findings.push(format!("the {} is of another round", M::NAME));
                None
            }
            Err(error) => {
                self.findings.push(format!("the {}: {error}", M::NAME));
                None
            }
        }
    }

    fn require(&mut self, holds: bool, finding: &str) {
        if !holds {
            self.findings.push(finding.to_owned());
        }
    }

    /// How the round ended, and how many users are in its set. Carries the model and the place in the key generator's
    /// log from round to round.
    fn run(&mut self, model: &mut Option<Digest>, records: &mut Option<u64>) -> (&'static str, usize) {
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
                "the round does not start from the model that was published last",
            );
            *model = Some(message.model);
            let seq = message.log.seq;
            self.require(records.is_none_or(|last| seq > last), "the key generator's log went back");
            *records = Some(seq);
        }
        if let (Some(ticket), Some(freeze)) = (&ticket, &freeze) {
            self.require(freeze.message().ticket == ticket.hash(), "the freeze is of another ticket");
        }
        if let (Some(freeze), Some(ack)) = (&freeze, &ack) {
            self.require(ack.message().freeze == freeze.hash(), "the freeze was not the one acknowledged");
        }
        if let (Some(freeze), Some(result)) = (&freeze, &result) {
            let same = result.message().users as usize == freeze.message().users.len();
            self.require(same, "the sum is of another number of users than the freeze");
        }
        let ending = match close.as_ref().map(|close| close.message().ending) {
            None => "open",
            Some(Ending::Published) => "published",
            Some(Ending::Failed) => "failed",
            Some(Ending::Aborted) => "aborted",
        };
        if ending == "published" {
            self.require(publish.is_some(), "it was published, and the publish message is missing");
            // what is not there cannot be checked, and that is said
            for (kept, finding) in [
                (ticket.is_some(), "it was published, and the ticket was not kept"),
                (freeze.is_some(), "it was published, and the freeze was not kept"),
                (ack.is_some(), "it was published, and the key generator's word on the freeze was not kept"),
                (result.is_some(), "it was published, and the key generator's result was not kept"),
            ] {
                self.require(kept, finding);
            }
        }
        let Some(publish) = publish else { return (ending, 0) };
        let message = publish.message();
        self.require(
            message.check_result(roster, self.round).is_ok(),
            "the result is not the key generator's",
        );
        if let Some(result) = &result {
            self.require(message.result.hash() == result.hash(), "another result than the one received");
            self.require(result.message().outcome == Outcome::Released, "published without a sum");
        }
        if let Some(freeze) = &freeze {
            self.require(freeze.message().users == message.users, "the published set is not the frozen one");
        }
        let ascending = message.users.is_sorted_by(|a, b| a.user < b.user);
        let known = message.users.iter().all(|one| roster.contains(one.user));
        self.require(ascending && known, "the set names somebody twice, or somebody unknown");
        self.require(message.users.len() >= roster.floor(), "the set is smaller than the task allows");
        let found = Digest::of_model(publish.body());
        self.require(found == message.model, "the model is not the one that was published");
        if let Some(close) = &close {
            self.require(close.message().publish == publish.hash(), "the close names another publication");
        }
        *model = Some(message.model);
        (ending, message.users.len())
    }
}
