//! Records a run and checks the invariants of crash.rs.

use std::collections::{BTreeMap, BTreeSet};

use dphe::scheme::RoundParams;
use dphe::wire::{
    Close, DecodeWith as _, Decrypt, Ending, Freeze, Header, Kind, Outcome, Participant, Publish,
    ResultParams, RoundResult, Signed, Upload, UploadAck,
};
use dphe::{Digest, Error, PartyId, Roster, Round, UserId, WeightSum};

use crate::world::{Input, World};

#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) violations: Vec<String>,
    /// Every message that was sent, by sender, kind, round, and receiver of an acknowledgement.
    sent: BTreeMap<(PartyId, Kind, u64, Option<PartyId>), Vec<u8>>,
    /// The content of an upload, by the hash of its body.
    inputs: BTreeMap<Digest, Input>,
    freezes: BTreeMap<Digest, Freeze>,
    requests: BTreeMap<Digest, Digest>,
    decrypted: BTreeMap<u64, BTreeSet<Digest>>,
    acknowledged: BTreeMap<(UserId, u64), Digest>,
    published: BTreeMap<u64, Vec<Participant>>,
    models: BTreeMap<u64, Vec<u8>>,
    endings: BTreeMap<u64, Ending>,
}

/// The codes that refuse a message which is merely late, early or known.
const HARMLESS: [&str; 4] = ["stale", "future", "order", "late"];

impl Ledger {
    pub(crate) fn violation(&mut self, text: String) {
        self.violations.push(text);
    }

    /// A party refused an event.
    pub(crate) fn refused(&mut self, party: PartyId, event: &str, error: &Error) {
        let known = match error.code().as_str() {
            // training was requested twice, or an answer arrived twice
            "conflict" => event == "update",
            "set_difference" => true,
            code => HARMLESS.contains(&code),
        };
        if !known {
            self.violation(format!("{party:?} refuses {event}: {} ({error})", error.code().as_str()));
        }
    }

    /// A user sealed an update.
    pub(crate) fn sealed(&mut self, upload: &[u8], input: Input, roster: &Roster) {
        let upload: Signed<Upload> = Signed::decode(upload, roster).unwrap();
        self.inputs.insert(upload.message().body_hash, input);
    }

    /// The key generator has decrypted a sum. The result may never be stored or sent.
    pub(crate) fn opened(&mut self, result: &[u8], world: &World) {
        let result: Signed<RoundResult> = Signed::decode(result, &world.roster).unwrap();
        let request = result.message().request;
        let requests = self.decrypted.entry(result.round().get()).or_default();
        requests.insert(request);
        if requests.len() > 1 {
            self.violation(format!("I1: round {} has two decrypted requests", result.round()));
        }
        let Some(freeze) = self.requests.get(&request).and_then(|freeze| self.freezes.get(freeze)).cloned()
        else {
            return self.violation("I2: a request was decrypted that A never sent".into());
        };
        self.check_set(&freeze.users, &world.roster);
        if result.message().outcome == Outcome::Released {
            self.check_sum(&result, &freeze.users, world);
        }
    }

    fn check_set(&mut self, users: &[Participant], roster: &Roster) {
        let ascending = users.is_sorted_by(|a, b| a.user < b.user);
        if users.len() < roster.floor() || !ascending || users.iter().any(|p| !roster.contains(p.user)) {
            self.violation(format!("I3: the set {users:?}"));
        }
    }

    fn check_sum(&mut self, result: &Signed<RoundResult>, users: &[Participant], world: &World) {
        let (task, round) = (world.roster.task(), result.round());
        let sum = WeightSum::from_bytes(
            result.body(),
            &ResultParams { params: &RoundParams::new(task, round), users: users.len() },
        )
        .unwrap();
        let mut expected = Input::zero(task.dimension());
        for Participant { user, body_hash } in users {
            match self.inputs.get(body_hash) {
                Some(input) => expected.add(input),
                None => self.violations.push(format!("I2: user {user} never sealed what is in the sum")),
            }
        }
        let mut weights = expected.weights;
        if let Some(support) = sum.support() {
            weights = support.indices().map(|index| weights[index]).collect();
        }
        if sum.weights() != weights || sum.dense() != [expected.dense] {
            self.violation(format!("I2: the sum of round {round} is not that of its set"));
        }
        // and once more without relying on the records
        for user in world.roster.users() {
            let digit = (sum.dense()[0] >> (2 * user.get())) & 3;
            if digit != i64::from(users.iter().any(|participant| participant.user == user)) {
                self.violation(format!("I2: user {user} is {digit} times in the sum of round {round}"));
            }
        }
    }

    /// A party sends a message.
    pub(crate) fn send(&mut self, from: PartyId, to: PartyId, bytes: &[u8], roster: &Roster) {
        let kind = Header::peek(bytes).unwrap().kind;
        let round = u64::from_be_bytes(bytes[22..30].try_into().unwrap());
        let receiver = (kind == Kind::UploadAck).then_some(to);
        match self.sent.get(&(from, kind, round, receiver)) {
            Some(known) if known == bytes => return,
            Some(_) => {
                self.violation(format!("I4: {from:?} sends two messages of kind {kind} in round {round}"))
            }
            None => {}
        }
        self.sent.insert((from, kind, round, receiver), bytes.to_vec());
        match kind {
            Kind::Freeze => {
                let freeze: Signed<Freeze> = Signed::decode(bytes, roster).unwrap();
                self.freezes.insert(freeze.hash(), freeze.message().clone());
            }
            Kind::Decrypt => {
                let request: Signed<Decrypt> = Signed::decode(bytes, roster).unwrap();
                self.requests.insert(request.hash(), request.message().freeze);
            }
            Kind::UploadAck => {
                let ack: Signed<UploadAck> = Signed::decode(bytes, roster).unwrap();
                let PartyId::User(user) = to else { return };
                self.acknowledged.insert((user, round), ack.message().body_hash);
            }
            Kind::Publish => {
                let publish: Signed<Publish> = Signed::decode(bytes, roster).unwrap();
                self.check_set(&publish.message().users, roster);
                self.published.insert(round, publish.message().users.clone());
                self.models.insert(round, publish.body().to_vec());
            }
            Kind::Close => {
                let close: Signed<Close> = Signed::decode(bytes, roster).unwrap();
                self.endings.insert(round, close.message().ending);
            }
            _ => {}
        }
    }

    /// A user was told how a round ended.
    pub(crate) fn finished(
        &mut self,
        user: UserId,
        round: Round,
        ending: Ending,
        included: bool,
        model: Option<&[u8]>,
    ) {
        let round = round.get();
        let is_in = self.published.get(&round).is_some_and(|set| set.iter().any(|p| p.user == user));
        let same_model = self.models.get(&round).map(Vec::as_slice) == model;
        if self.endings.get(&round).is_some_and(|&known| known != ending) || included != is_in || !same_model
        {
            self.violation(format!(
                "I6: user {user} is told {ending:?}, included {included}, of round {round}"
            ));
        }
    }

    pub(crate) fn ending(&self, round: Round) -> Option<Ending> {
        self.endings.get(&round.get()).copied()
    }

    /// Returns whether a round was published with all users in it.
    pub(crate) fn is_full(&self, round: Round, roster: &Roster) -> bool {
        self.published.get(&round.get()).is_some_and(|set| set.len() == roster.users().len())
    }

    pub(crate) fn endings(&self) -> impl Iterator<Item = Ending> + '_ {
        self.endings.values().copied()
    }

    /// Checks what can be checked only at the end.
    pub(crate) fn close(&mut self) {
        for (&(user, round), hash) in &self.acknowledged {
            let Some(set) = self.published.get(&round) else { continue };
            if !set.iter().any(|p| p.user == user && p.body_hash == *hash) {
                self.violations
                    .push(format!("I6: the acknowledged upload of user {user} is not in round {round}"));
            }
        }
    }
}
