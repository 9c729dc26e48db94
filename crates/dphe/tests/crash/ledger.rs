//! Records a run and checks the invariants of crash.rs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dphe::scheme::RoundParams;
use dphe::wire::{
    Close, DecodeWith as _, Decrypt, Encode as _, Ending, Freeze, FreezeAck, Header, Kind, Outcome,
    Participant, Publish, RoundResult, RoundTicket, Signed, SumContext, Upload, UploadAck,
};
use dphe::{Digest, Error, PartyId, Receipts, Round, UserId, WeightSum};

use crate::world::{Input, World};

/// Which parties do what they should, apart from crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    All,
    /// The key generator was restored from an older copy of its log.
    RestoredGenerator,
    /// The aggregator was restored from an older copy of its log.
    RestoredAggregator,
    /// Both were restored.
    RestoredBoth,
    /// The aggregator does what it likes.
    UsersAndGenerator,
}

pub(crate) struct Ledger<'w> {
    pub(crate) violations: Vec<String>,
    pub(crate) trust: Trust,
    /// The users that were restored from older copies of their logs.
    pub(crate) restored: BTreeSet<UserId>,
    world: &'w World,
    /// Whether the answers to a user may be reordered.
    reordered: bool,
    /// Every message that was sent, by sender, kind, round, and receiver if it is meant for one user.
    #[allow(clippy::type_complexity, reason = "the comment names the parts of the key")]
    sent: BTreeMap<(PartyId, Kind, u64, Option<PartyId>, u32), Vec<u8>>,
    /// Every upload, by the hash of its body.
    uploads: BTreeMap<Digest, Sealed>,
    freezes: BTreeMap<Digest, Freeze>,
    requests: BTreeMap<Digest, Digest>,
    /// The decrypted requests of each round, with the participants.
    opened: BTreeMap<u64, BTreeMap<Digest, Opening>>,
    /// When the key generator issued the ticket of a round.
    ticketed: BTreeMap<u64, u64>,
    tickets: BTreeMap<Digest, Signed<RoundTicket>>,
    acknowledged: BTreeMap<(UserId, u64), Digest>,
    published: BTreeMap<u64, Vec<Participant>>,
    models: BTreeMap<u64, Digest>,
    endings: BTreeMap<u64, Ending>,
    /// The sums that users found to be correct, and those whose models they accepted and stored.
    applied: BTreeMap<(UserId, u64), WeightSum>,
    accepted: BTreeMap<UserId, BTreeMap<u64, WeightSum>>,
    /// What the first user who began a ticket had accepted until then.
    begun: BTreeMap<Digest, BTreeMap<u64, WeightSum>>,
    /// How often users, the aggregator and the key generator refused something, by code.
    pub(crate) refusals: BTreeMap<(&'static str, &'static str), u64>,
}

struct Sealed {
    user: UserId,
    round: Round,
    upload: Upload,
    /// Absent if the upload is not an update that was sealed as it should be.
    input: Option<Input>,
}

struct Opening {
    users: Vec<Participant>,
    outcome: Outcome,
    payload: Vec<u8>,
}

/// What the key generator answered in a round: the listed users, the outcome and the payload.
pub(crate) type Answer = (u64, Vec<UserId>, Outcome, Vec<u8>);

/// The codes that refuse a message which is merely late, early or known.
const HARMLESS: [&str; 4] = ["stale", "future", "order", "late"];
/// The codes by which a party notices that another one was restored from an older copy of its log.
const NOTICES: [&str; 7] = ["rollback", "history", "ticket", "ending", "conflict", "lineage", "not_mine"];

impl<'w> Ledger<'w> {
    pub(crate) fn new(world: &'w World, trust: Trust, reordered: bool) -> Self {
        Self {
            violations: Vec::new(),
            trust,
            restored: BTreeSet::new(),
            world,
            reordered,
            sent: BTreeMap::new(),
            uploads: BTreeMap::new(),
            freezes: BTreeMap::new(),
            requests: BTreeMap::new(),
            opened: BTreeMap::new(),
            ticketed: BTreeMap::new(),
            tickets: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            published: BTreeMap::new(),
            models: BTreeMap::new(),
            endings: BTreeMap::new(),
            applied: BTreeMap::new(),
            accepted: BTreeMap::new(),
            begun: BTreeMap::new(),
            refusals: BTreeMap::new(),
        }
    }

    pub(crate) fn violation(&mut self, text: String) {
        self.violations.push(text);
    }

    /// Returns whether the aggregator follows the protocol and was not restored.
    fn aggregator_is_honest(&self) -> bool {
        matches!(self.trust, Trust::All | Trust::RestoredGenerator)
    }

    /// Returns whether a user does what it likes.
    fn is_rogue(&self, user: UserId) -> bool {
        self.world.spec.has_rogue_user() && user == self.world.last_user()
    }

    /// A party refused an event.
    pub(crate) fn refused(&mut self, party: PartyId, event: &str, error: &Error) {
        let who = match party {
            PartyId::Aggregator => "aggregator",
            PartyId::KeyGenerator => "key generator",
            PartyId::User(_) => "user",
        };
        let code = error.code().as_str();
        *self.refusals.entry((who, code)).or_default() += 1;
        let restored = !matches!(self.trust, Trust::All | Trust::UsersAndGenerator);
        let rogue = matches!(party, PartyId::User(user) if self.is_rogue(user));
        let known = match code {
            _ if self.trust == Trust::UsersAndGenerator => true,
            // training was requested twice, or an answer arrived twice
            "conflict" if event == "update" => true,
            "set_difference" => true,
            // the aggregator has an upload that the user sent before it was restored, or besides this one
            "conflict" if !self.restored.is_empty() || self.world.spec.garbage => true,
            _ if rogue => true,
            // the sum contains a useless upload
            "check" | "range" | "failures" if self.world.spec.has_rogue_user() => true,
            // the key generator forgot the user's ticket, and opened a sum for another one
            "check" | "model" if self.trust == Trust::RestoredBoth && who == "user" => true,
            // the aggregator has forgotten the sum that it requested before it was restored
            "committed" if restored && party == PartyId::KeyGenerator => true,
            "early" => self.world.spec.collect_min > 0,
            // the publish message overtook the inclusion
            "not_mine" if self.reordered => true,
            code if restored && NOTICES.contains(&code) => true,
            code => HARMLESS.contains(&code),
        };
        if !known {
            self.violation(format!("{party:?} refuses {event}: {code} ({error})"));
        }
    }

    /// Returns whether a party noticed that another one was restored, or the key generator refused the aggregator.
    pub(crate) fn noticed(&self) -> bool {
        self.refusals.keys().any(|(who, code)| NOTICES.contains(code) || *who == "key generator")
    }

    /// A user sealed an update.
    pub(crate) fn sealed(&mut self, upload: &[u8], input: Input) {
        let upload: Signed<Upload> = Signed::decode(upload, &self.world.roster).unwrap();
        let (PartyId::User(user), round) = (upload.from(), upload.round()) else { return };
        let upload = upload.message().clone();
        self.uploads.insert(upload.body_hash, Sealed { user, round, upload, input: Some(input) });
    }

    /// A user signed an upload that is not a sealed update.
    pub(crate) fn forged(&mut self, user: UserId, round: Round, upload: Upload) {
        self.uploads.insert(upload.body_hash, Sealed { user, round, upload, input: None });
    }

    /// A user was restored. What it stored since the copy never happened.
    pub(crate) fn rolled_back(&mut self, user: UserId, round: Round) {
        self.accepted.entry(user).or_default().retain(|&accepted, _| accepted < round.get());
    }

    /// The key generator has written the ticket of a round.
    pub(crate) fn ticketed(&mut self, ticket: &[u8], now: u64) {
        let ticket: Signed<RoundTicket> = Signed::decode(ticket, &self.world.roster).unwrap();
        let first = self.trust != Trust::RestoredBoth;
        self.tickets.insert(ticket.hash(), ticket.clone());
        let known = self.ticketed.entry(ticket.round().get()).or_insert(now);
        if !first {
            *known = now;
        }
    }

    /// Returns a ticket that the key generator issued.
    pub(crate) fn ticket(&self, hash: Digest) -> Option<Signed<RoundTicket>> {
        self.tickets.get(&hash).cloned()
    }

    /// Returns whether a user found a published sum to be wrong, or too many sums could not be opened.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.refusals.keys().any(|(_, code)| matches!(*code, "check" | "range" | "failures"))
    }

    /// The key generator accepts a freeze.
    pub(crate) fn froze(&mut self, freeze: &[u8], now: u64) {
        let freeze: Signed<Freeze> = Signed::decode(freeze, &self.world.roster).unwrap();
        let round = freeze.round().get();
        let since = self.ticketed.get(&round).copied().unwrap_or(now);
        if now < since + u64::from(self.world.spec.collect_min) {
            self.violation(format!("I3: round {round} was frozen {} ms after its ticket", now - since));
        }
        self.freezes.insert(freeze.hash(), freeze.message().clone());
    }

    /// The key generator has decrypted a sum. The result may never be stored or sent.
    pub(crate) fn opened(&mut self, result: &[u8]) {
        let result: Signed<RoundResult> = Signed::decode(result, &self.world.roster).unwrap();
        let (round, message) = (result.round(), result.message());
        let freeze = self.requests.get(&message.request).and_then(|freeze| self.freezes.get(freeze));
        let Some(freeze) = freeze.cloned() else {
            return self.violation("I2: a request was decrypted that A never sent".into());
        };
        self.check_set(&freeze.users);
        for participant in &freeze.users {
            let sealed = self.uploads.get(&participant.body_hash);
            let same = sealed.is_some_and(|Sealed { user, round: of, upload, .. }| {
                (*user, *of, upload.ticket) == (participant.user, round, freeze.ticket)
                    && (upload.count, upload.salt) == (participant.count, participant.salt)
            });
            if !same {
                self.violations
                    .push(format!("I2: user {} sent no such upload in round {round}", participant.user));
            }
        }
        let (users, payload) = (freeze.users, result.body().to_vec());
        let opening = Opening { users, outcome: message.outcome, payload };
        if message.outcome == Outcome::Released {
            self.check_payload(&result, &opening.users);
        } else if self.trust != Trust::UsersAndGenerator && !self.has_rogue(&opening.users) {
            self.violation(format!("I2: opening the sum of round {round} failed"));
        }
        let openings = self.opened.entry(round.get()).or_default();
        openings.insert(message.request, opening);
        // the same request was answered again, by a key generator that was restored
        if openings.len() > 1 && self.trust != Trust::RestoredBoth {
            self.violation(format!("I1: round {round} has two decrypted requests"));
        }
        if self.opened.len() > self.world.spec.rounds as usize {
            self.violation(format!("I1: {} sums were opened", self.opened.len()));
        }
    }

    /// Returns whether a user who does what it likes is among these.
    fn has_rogue(&self, users: &[Participant]) -> bool {
        users.iter().any(|participant| self.is_rogue(participant.user))
    }

    fn check_set(&mut self, users: &[Participant]) {
        let roster = &self.world.roster;
        let ascending = users.is_sorted_by(|a, b| a.user < b.user);
        if users.len() < roster.floor() || !ascending || users.iter().any(|p| !roster.contains(p.user)) {
            self.violation(format!("I3: the set {users:?}"));
        }
    }

    /// Checks a sum that the key generator can read.
    fn check_payload(&mut self, result: &Signed<RoundResult>, users: &[Participant]) {
        let task = self.world.roster.task();
        let none = task.receipts() == Receipts::None;
        // without receipts, the sum is what the aggregator says
        if task.receipts() == Receipts::Masked || (none && self.trust == Trust::UsersAndGenerator) {
            return;
        }
        let params = Arc::new(RoundParams::new(task, result.round()));
        let context = SumContext { params: &params, users: users.len(), key: &self.world.key };
        let sum = WeightSum::from_bytes(result.body(), &context).unwrap();
        self.check_sum(&sum, users);
    }

    /// Returns the sum of what these users sent, if all of them sealed an update.
    fn expected(&self, users: &[Participant]) -> Option<Input> {
        let mut expected = Input::zero(self.world.roster.task().dimension());
        for participant in users {
            expected.add(self.uploads.get(&participant.body_hash)?.input.as_ref()?);
        }
        Some(expected)
    }

    fn check_sum(&mut self, sum: &WeightSum, users: &[Participant]) {
        let round = sum.round();
        let Some(expected) = self.expected(users) else { return };
        // without the check of users, a useless upload may be a sum of other numbers
        if self.has_rogue(users) {
            return;
        }
        if !expected.is(sum) {
            self.violation(format!("I2: the sum of round {round} is not that of its set"));
        }
        // and once more without relying on the records
        for user in self.world.roster.users() {
            let digit = (sum.dense()[0] >> (2 * user.get())) & 3;
            if digit != i64::from(users.iter().any(|participant| participant.user == user)) {
                self.violation(format!("I2: user {user} is {digit} times in the sum of round {round}"));
            }
        }
    }

    /// The aggregator's program got the sum of a round.
    pub(crate) fn received(&mut self, sum: &WeightSum) {
        let openings = self.opened.get(&sum.round().get());
        let users: Vec<Vec<Participant>> =
            openings.into_iter().flat_map(BTreeMap::values).map(|opening| opening.users.clone()).collect();
        match &users[..] {
            [] => self.violation(format!("I2: A got a sum of round {} that G did not open", sum.round())),
            [users] => self.check_sum(sum, users),
            _ => {}
        }
    }

    /// A user found a sum to be correct.
    pub(crate) fn applied(&mut self, user: UserId, sum: WeightSum) {
        let round = sum.round().get();
        let openings = self.opened.get(&round).into_iter().flat_map(BTreeMap::values);
        let mut released = openings.filter(|opening| opening.outcome == Outcome::Released);
        let none = self.world.roster.task().receipts() == Receipts::None;
        let right = |opening: &Opening| match self.expected(&opening.users) {
            _ if none && self.trust == Trust::UsersAndGenerator => opening.payload == sum.to_bytes(),
            Some(expected) => opening.users.len() == sum.users() && expected.is(&sum),
            None => none && opening.payload == sum.to_bytes(),
        };
        if !released.any(right) {
            self.violations.push(format!("I8: user {user} accepts a wrong sum of round {round}"));
        }
        // if the key generator forgot a round, users who did not store what they accepted may be told another sum
        let known = match self.trust {
            Trust::RestoredBoth => self.accepted.get(&user).and_then(|rounds| rounds.get(&round)),
            _ => self.applied.get(&(user, round)),
        };
        if known.is_some_and(|known| *known != sum) {
            self.violation(format!("I8: user {user} accepts a second sum of round {round}"));
        }
        self.applied.insert((user, round), sum);
    }

    /// A user accepted the model of a round, and stored that it did.
    pub(crate) fn accepted(&mut self, user: UserId, round: Round) {
        match self.applied.get(&(user, round.get())).cloned() {
            Some(sum) => drop(self.accepted.entry(user).or_default().insert(round.get(), sum)),
            None => self.violation(format!("I8: user {user} ends round {round} without a sum")),
        }
    }

    /// A user begins a round. All users who begin with the same ticket have accepted the same sums.
    pub(crate) fn began(&mut self, user: UserId, ticket: Digest) {
        let accepted = self.accepted.get(&user).cloned().unwrap_or_default();
        if *self.begun.entry(ticket).or_insert_with(|| accepted.clone()) != accepted {
            self.violation(format!("I8: user {user} begins a round after other sums than another user"));
        }
    }

    /// A party sends a message.
    pub(crate) fn send(&mut self, from: PartyId, to: PartyId, bytes: &[u8]) {
        let roster = &self.world.roster;
        let kind = Header::peek(bytes).unwrap().kind;
        let round = u64::from_be_bytes(bytes[22..30].try_into().unwrap());
        let receiver = matches!(kind, Kind::UploadAck | Kind::Inclusion).then_some(to);
        let repeats = match (self.trust, from) {
            (_, PartyId::User(user)) => !self.restored.contains(&user),
            (Trust::All, _) => true,
            (Trust::RestoredGenerator, from) => from == PartyId::Aggregator,
            (Trust::UsersAndGenerator | Trust::RestoredAggregator, from) => from == PartyId::KeyGenerator,
            (Trust::RestoredBoth, _) => false,
        };
        // a byzantine aggregator may freeze several times, and each freeze has its acknowledgement
        let attempt = match kind {
            Kind::FreezeAck => Signed::<FreezeAck>::decode(bytes, roster).unwrap().message().attempt,
            _ => 0,
        };
        let place = (from, kind, round, receiver, attempt);
        match self.sent.get(&place) {
            Some(known) if known == bytes => return,
            Some(_) if repeats => {
                self.violation(format!("I4: {from:?} sends two messages of kind {kind} in round {round}"));
            }
            _ => {}
        }
        self.sent.insert(place, bytes.to_vec());
        match kind {
            Kind::Decrypt => {
                let request: Signed<Decrypt> = Signed::decode(bytes, roster).unwrap();
                self.requests.insert(request.hash(), request.message().freeze);
            }
            _ if self.trust == Trust::UsersAndGenerator => {}
            Kind::UploadAck => {
                let ack: Signed<UploadAck> = Signed::decode(bytes, roster).unwrap();
                let PartyId::User(user) = to else { return };
                self.acknowledged.insert((user, round), ack.message().body_hash);
            }
            Kind::Publish => {
                let publish: Signed<Publish> = Signed::decode(bytes, roster).unwrap();
                let result = publish.message().check_result(roster, publish.round()).unwrap();
                let opening = self.opened.get(&round).and_then(|all| all.get(&result.message().request));
                match opening.map(|opening| opening.users.clone()) {
                    Some(users) => drop(self.published.insert(round, users)),
                    None => self.violation(format!("I2: round {round} is published and was not opened")),
                }
                self.models.insert(round, publish.message().model);
            }
            Kind::Close => {
                let close: Signed<Close> = Signed::decode(bytes, roster).unwrap();
                let ending = close.message().ending;
                self.endings.insert(round, ending);
                let lost = matches!(ending, Ending::Failed | Ending::Rejected);
                if lost && self.aggregator_is_honest() && !self.world.spec.has_rogue_user() {
                    self.violation(format!("I2: round {round} is {ending}"));
                }
            }
            _ => {}
        }
    }

    /// A user was told how a round ended. `acknowledged` says whether A had acknowledged its upload.
    pub(crate) fn finished(
        &mut self,
        user: UserId,
        round: Round,
        ending: Ending,
        (included, acknowledged): (bool, bool),
        model: Option<&[u8]>,
    ) {
        let round = round.get();
        if !self.aggregator_is_honest() {
            return;
        }
        let is_in = self.published.get(&round).is_some_and(|set| set.iter().any(|p| p.user == user));
        // a user whose upload was not acknowledged may not learn that it is in the sum
        let told = included == is_in || (is_in && (!acknowledged || self.restored.contains(&user)));
        let same_model = self.models.get(&round).copied() == model.map(Digest::of_model);
        if self.endings.get(&round).is_some_and(|&known| known != ending) || !told || !same_model {
            self.violation(format!(
                "I6: user {user} is told {ending:?}, included {included}, of round {round}"
            ));
        }
    }

    /// Returns what the key generator answered.
    pub(crate) fn answers(&self) -> Vec<Answer> {
        let all = self.opened.iter().flat_map(|(round, openings)| openings.values().map(move |o| (round, o)));
        let users = |opening: &Opening| opening.users.iter().map(|participant| participant.user).collect();
        all.map(|(&round, o)| (round, users(o), o.outcome, o.payload.clone())).collect()
    }

    pub(crate) fn ending(&self, round: Round) -> Option<Ending> {
        self.endings.get(&round.get()).copied()
    }

    /// Returns whether a round was published with all users in it.
    pub(crate) fn is_full(&self, round: Round) -> bool {
        self.published.get(&round.get()).is_some_and(|set| set.len() == self.world.roster.users().len())
    }

    pub(crate) fn endings(&self) -> impl Iterator<Item = Ending> + '_ {
        self.endings.values().copied()
    }

    /// Returns how many sums were opened, and how many of these openings failed.
    pub(crate) fn openings(&self) -> (u64, u64) {
        let all = || self.opened.values().flat_map(BTreeMap::values);
        let failed = all().filter(|opening| opening.outcome == Outcome::Failed).count();
        (all().count() as u64, failed as u64)
    }

    /// Returns how often a user accepted the sum of a round.
    pub(crate) fn acceptances(&self) -> u64 {
        self.accepted.values().map(|rounds| rounds.len() as u64).sum()
    }

    /// Returns the rounds in which users accepted distinct sums.
    pub(crate) fn forked(&self) -> usize {
        let mut sums: BTreeMap<u64, BTreeSet<Vec<i64>>> = BTreeMap::new();
        for (&(_, round), sum) in &self.applied {
            sums.entry(round).or_default().insert([sum.weights(), sum.dense()].concat());
        }
        sums.values().filter(|sums| sums.len() > 1).count()
    }

    /// Checks what can be checked only at the end.
    pub(crate) fn close(&mut self) {
        if !self.aggregator_is_honest() {
            return;
        }
        for (&(user, round), hash) in &self.acknowledged {
            let Some(set) = self.published.get(&round) else { continue };
            if !set.iter().any(|p| p.user == user && p.body_hash == *hash) {
                self.violations
                    .push(format!("I6: the acknowledged upload of user {user} is not in round {round}"));
            }
        }
    }
}
