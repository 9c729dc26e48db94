//! An aggregator that does what it likes. It has the keys of the aggregator, the identity keys of its accomplices among
//! the users, everything that it was sent, and messages of its own making. In each round it tries one attack, and then
//! ends the round as well as it can.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dphe::party::{Action, Intake, IntakeRound, Time};
use dphe::scheme::{RoundParams, UncheckedSum};
use dphe::wire::{
    Close, DecodeWith as _, Decrypt, Encode as _, Ending, Freeze, FreezeAck, Header, Inclusion, Kind,
    Outcome, Participant, ParticipantTree, Publish, RoundOpen, RoundResult, RoundTicket, Signed, SumContext,
    Upload,
};
use dphe::{
    Aggregator, Blinds, Digest, OpenedSum, PartyId, PublicSupport, Receipts, Roster, Round, Threads, UserId,
    WeightSum,
};
use dphe_paillier::{EncryptionKey, Plaintext};
use rand_core::Rng as _;

use crate::forge;
use crate::sim::Rng;
use crate::world::{World, identity, next_model, rng};

/// What the aggregator tries in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Attack {
    Nothing,
    // the frozen sum is one of other ciphertexts than those of the listed users
    VictimAlone,
    OneDropped,
    OneTwice,
    AllTwice,
    OneNotListed,
    OldCiphertexts,
    /// A known number is added to the sum.
    ShiftedSum,
    /// All ciphertexts are multiplied by a number.
    ScaledSum,
    /// A ciphertext is multiplied by -1 modulo n², which is noise. The sum is the same.
    MinusOne,
    // what an accomplice signed is not what is in the sum
    AccompliceInverse,
    AccompliceNothing,
    /// The accomplice signs what another user sent in an earlier round.
    AccompliceOld,
    /// The victim alone, listed with accomplices who sent nothing.
    VictimAndAccomplices,
    // the listed users are not those who uploaded
    Phantom,
    Unsigned,
    OtherSignature,
    OldUpload,
    TooFew,
    ListedTwice,
    /// Freezes before the least time has passed.
    EarlyFreeze,
    /// Freezes again with one user less, and asks for the sum of the first freeze.
    FirstOfTwoFreezes,
    /// Asks for another sum than the frozen one.
    OtherRequest,
    /// Freezes and asks again once it has the result.
    SecondRequest,
    /// Opens the round twice.
    SecondOpen,
    /// Opens the next round before it closes the round.
    OpenNext,
    /// Opens the round with another model. Users never go on.
    OtherModel,
    /// Calls a released round aborted, to the key generator.
    CallAborted,
    /// Calls a released round aborted, to one user. That user never goes on.
    TellAborted,
    /// Does not use a released sum, and opens the next one on the same model with one user less.
    Repeat,
    // the published sum, model or participants are not those of the result
    Shifted,
    Doubled,
    OldSum,
    OtherNewModel,
    OldResult,
    ForgedResult,
    NoInclusion,
    OtherInclusion,
    /// Sends one user another publish message, and never the right one. That user never goes on.
    OtherPublishToOne,
    /// Closes the round with the hash of another publish message. Users never go on.
    CloseOther,
}

/// The attacks after which users go on.
const MILD: [Attack; 35] = [
    Attack::Nothing,
    Attack::VictimAlone,
    Attack::OneDropped,
    Attack::OneTwice,
    Attack::AllTwice,
    Attack::OneNotListed,
    Attack::OldCiphertexts,
    Attack::ShiftedSum,
    Attack::ScaledSum,
    Attack::MinusOne,
    Attack::AccompliceInverse,
    Attack::AccompliceNothing,
    Attack::AccompliceOld,
    Attack::VictimAndAccomplices,
    Attack::Phantom,
    Attack::Unsigned,
    Attack::OtherSignature,
    Attack::OldUpload,
    Attack::TooFew,
    Attack::ListedTwice,
    Attack::EarlyFreeze,
    Attack::FirstOfTwoFreezes,
    Attack::OtherRequest,
    Attack::SecondRequest,
    Attack::SecondOpen,
    Attack::OpenNext,
    Attack::CallAborted,
    Attack::Repeat,
    Attack::Shifted,
    Attack::Doubled,
    Attack::OldSum,
    Attack::OtherNewModel,
    Attack::OldResult,
    Attack::ForgedResult,
    Attack::OtherInclusion,
];
/// The attacks that stop one user or all.
const FINAL: [Attack; 5] = [
    Attack::OtherModel,
    Attack::TellAborted,
    Attack::NoInclusion,
    Attack::OtherPublishToOne,
    Attack::CloseOther,
];

/// An upload that the aggregator has read.
#[derive(Clone)]
struct Kept {
    participant: Participant,
    /// The sum of this upload alone.
    partial: Vec<u8>,
    fingerprints: Vec<u8>,
    masks: Vec<u8>,
}

enum Stage {
    Opening,
    Collecting { until: u64 },
    Freezing,
    Requesting,
}

/// A freeze and the sum in it.
#[derive(Clone)]
struct Frozen {
    message: Vec<u8>,
    hash: Digest,
    users: Vec<Participant>,
    body: Vec<u8>,
    occupied: u32,
}

/// What the aggregator tells a user about a round: lists of messages, one per request. The last one is repeated.
type Answers = BTreeMap<UserId, (usize, Vec<Vec<Vec<u8>>>)>;

pub(crate) struct Rogue {
    pub(crate) attacks: BTreeMap<Attack, u64>,
    /// What accomplices signed besides their uploads, until the record of the run takes it.
    pub(crate) forged: Vec<(UserId, Round, Upload)>,
    accomplices: BTreeSet<UserId>,
    roster: Roster,
    key: EncryptionKey,
    aggregator: Aggregator,
    intake: Intake,
    rng: Rng,
    round: Round,
    stage: Stage,
    attack: Attack,
    open: Vec<u8>,
    collector: Option<IntakeRound>,
    uploads: BTreeMap<UserId, Kept>,
    /// The uploads of earlier rounds.
    old: Vec<Kept>,
    frozen: Option<Frozen>,
    request: Vec<u8>,
    /// Whether the attack on the freeze or the request is over, because it was refused.
    fell_back: bool,
    model: Vec<u8>,
    /// The close message of the last round, which is sent until the next round has a ticket.
    close: Vec<u8>,
    answers: BTreeMap<Round, Answers>,
    /// The result message and the published sum of the last round that had one.
    last: Option<(Vec<u8>, Vec<u8>)>,
    /// What was sent to the key generator and told to users.
    sent: Vec<Vec<u8>>,
    told: Vec<Vec<u8>>,
    /// How often the key generator refused a further round.
    budget_refusals: u32,
    /// The number of latest rounds with fewer uploads than the floor. Users who noticed an attack do not come back.
    deserted: u32,
    done: bool,
}

const TICK: u64 = 500;
/// How long it collects, in milliseconds.
const COLLECT: u64 = 2_600;
const LAST_ROUND: u64 = 16;
const LATEST: u64 = 200_000;

const G: PartyId = PartyId::KeyGenerator;

impl Rogue {
    pub(crate) fn new(world: &World, seed: u64, accomplices: u32) -> Self {
        let (roster, keys) = (world.roster.clone(), world.aggregator.clone());
        let intake =
            Intake::new(keys.clone(), identity(PartyId::Aggregator), roster.clone(), Threads::ONE).unwrap();
        let mut rogue = Self {
            attacks: BTreeMap::new(),
            forged: Vec::new(),
            accomplices: (1..=accomplices).filter_map(UserId::new).collect(),
            key: world.key.clone(),
            aggregator: Aggregator::new(keys).unwrap(),
            intake,
            rng: rng(seed ^ 0x5eed_0000),
            round: Round::FIRST,
            stage: Stage::Opening,
            attack: Attack::Nothing,
            open: Vec::new(),
            collector: None,
            uploads: BTreeMap::new(),
            old: Vec::new(),
            frozen: None,
            request: Vec::new(),
            fell_back: false,
            model: world.first_model(),
            close: Vec::new(),
            answers: BTreeMap::new(),
            last: None,
            sent: Vec::new(),
            told: Vec::new(),
            budget_refusals: 0,
            deserted: 0,
            done: false,
            roster,
        };
        rogue.begin();
        rogue
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    pub(crate) fn round(&self) -> Round {
        self.round
    }

    fn below(&mut self, n: usize) -> usize {
        (self.rng.next_u64() % n as u64) as usize
    }

    // --- the events ---

    pub(crate) fn tick(&mut self, now: Time) -> Vec<Action> {
        self.done |= self.budget_refusals >= 3
            || self.deserted >= 3
            || self.round.get() > LAST_ROUND
            || now.0 > LATEST;
        let mut actions = Vec::new();
        match self.stage {
            Stage::Opening => {
                if !self.close.is_empty() {
                    actions.push(self.ask_generator(self.close.clone()));
                }
                actions.push(self.ask_generator(self.open.clone()));
            }
            Stage::Collecting { until } => {
                let floor = self.roster.floor();
                let early = self.attack == Attack::EarlyFreeze && self.uploads.len() >= floor;
                if early || now.0 >= until {
                    actions.extend(self.freeze());
                }
            }
            Stage::Freezing => {
                actions.extend(self.frozen.iter().map(|frozen| send(G, frozen.message.clone())));
            }
            Stage::Requesting => actions.push(self.ask_generator(self.request.clone())),
        }
        if self.below(10) == 0 && !self.sent.is_empty() {
            let at = self.below(self.sent.len());
            actions.push(send(G, self.sent[at].clone()));
        }
        actions.push(Action::Wake(Time(now.0 + TICK)));
        actions
    }

    pub(crate) fn message(&mut self, bytes: &[u8], now: Time) -> Vec<Action> {
        match Header::peek(bytes).unwrap().kind {
            Kind::RoundTicket => self.ticket(bytes, now),
            Kind::Upload => self.upload(bytes),
            Kind::FreezeAck => self.freeze_ack(bytes),
            Kind::RoundResult => self.result(bytes),
            _ => Vec::new(),
        }
    }

    /// The key generator refused a message.
    pub(crate) fn refused(&mut self, kind: Kind, code: &'static str) {
        match (kind, &self.stage) {
            (Kind::RoundOpen, Stage::Opening) => {
                self.budget_refusals += u32::from(matches!(code, "rounds" | "failures"));
            }
            (Kind::Freeze, Stage::Freezing)
                if !matches!(code, "early" | "stale" | "committed" | "conflict") =>
            {
                // as it should have been, or not at all
                self.fell_back = true;
                if self.uploads.len() >= self.roster.floor() && code != "set_difference" {
                    let all = self.everyone();
                    self.frozen = Some(self.freeze_of(&all, &self.parts(&all), 1));
                } else {
                    self.end(Ending::Aborted, &[], None);
                }
            }
            (Kind::Decrypt, Stage::Requesting) if matches!(code, "equation" | "order" | "count" | "size") => {
                self.fell_back = true;
                self.request = self.request_of(self.frozen.clone());
            }
            _ => {}
        }
    }

    /// Answers a user.
    pub(crate) fn poll(&mut self, user: UserId, round: Round) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        if let Some((next, lists)) = self.answers.get_mut(&round).and_then(|all| all.get_mut(&user)) {
            messages.extend(lists[*next].iter().cloned());
            *next = (*next + 1).min(lists.len() - 1);
        }
        if let (Stage::Collecting { .. }, Some(collector)) = (&self.stage, &self.collector) {
            messages.push(collector.ticket().to_bytes());
        }
        if self.below(10) == 0 && !self.told.is_empty() {
            let at = self.below(self.told.len());
            messages.push(self.told[at].clone());
        }
        messages
    }

    // --- a round ---

    fn ask_generator(&mut self, message: Vec<u8>) -> Action {
        if !self.sent.contains(&message) {
            self.sent.push(message.clone());
        }
        send(G, message)
    }

    /// Chooses an attack and announces the round.
    fn begin(&mut self) {
        self.attack = match self.below(100) {
            0..25 => Attack::Nothing,
            25..95 => MILD[self.below(MILD.len())],
            _ => FINAL[self.below(FINAL.len())],
        };
        *self.attacks.entry(self.attack).or_default() += 1;
        self.old.extend(std::mem::take(&mut self.uploads).into_values());
        (self.collector, self.frozen, self.fell_back) = (None, None, false);
        self.stage = Stage::Opening;
        let model = match self.attack {
            Attack::OtherModel => Digest::of_model(b"another model"),
            _ => Digest::of_model(&self.model),
        };
        self.open = self.open_of(self.round, model);
    }

    fn open_of(&mut self, round: Round, model: Digest) -> Vec<u8> {
        let task = self.roster.task();
        let mut nonce = [0; 16];
        self.rng.fill_bytes(&mut nonce);
        let open = RoundOpen {
            model,
            policy: task.policy_hash(),
            roster: self.roster.hash(),
            support: PublicSupport::of(task, round).digest(),
            deadline: COLLECT,
            nonce,
        };
        forge::message(&self.roster, round, &open, &[])
    }

    fn ticket(&mut self, bytes: &[u8], now: Time) -> Vec<Action> {
        let ticket: Signed<RoundTicket> = Signed::decode(bytes, &self.roster).unwrap();
        if !matches!(self.stage, Stage::Opening) || ticket.round() != self.round {
            return Vec::new();
        }
        self.collector = Some(self.intake.begin(bytes).unwrap());
        self.stage = Stage::Collecting { until: now.0 + COLLECT };
        let mut actions = vec![Action::Announce(bytes.to_vec())];
        match self.attack {
            Attack::SecondOpen => {
                let model = if self.below(2) == 0 { self.model.clone() } else { b"another model".to_vec() };
                let open = self.open_of(self.round, Digest::of_model(&model));
                actions.push(send(G, open));
            }
            Attack::OpenNext => {
                let open = self.open_of(self.round.next(), Digest::of_model(&self.model));
                actions.push(send(G, open));
            }
            _ => {}
        }
        actions
    }

    fn upload(&mut self, bytes: &[u8]) -> Vec<Action> {
        let upload: Signed<Upload> = Signed::decode(bytes, &self.roster).unwrap();
        let (Some(collector), PartyId::User(user)) = (&self.collector, upload.from()) else {
            return Vec::new();
        };
        if upload.message().ticket != collector.ticket().hash() {
            return Vec::new();
        }
        if let (Stage::Collecting { .. }, false) = (&self.stage, self.uploads.contains_key(&user)) {
            let checked = collector.check(bytes).unwrap();
            let kept = Kept {
                participant: checked.participant,
                partial: checked.collecting.to_partial_sum(Threads::ONE),
                fingerprints: checked.collecting.fingerprints(),
                masks: checked.collecting.mask_parts(),
            };
            self.uploads.insert(user, kept);
        }
        let ack = collector.acknowledge(upload.message().body_hash);
        // it acknowledges most uploads, late ones too
        if self.below(8) == 0 { Vec::new() } else { vec![send(PartyId::User(user), ack)] }
    }

    fn everyone(&self) -> Vec<Kept> {
        self.uploads.values().cloned().collect()
    }

    fn parts(&self, kept: &[Kept]) -> Vec<Vec<u8>> {
        kept.iter().map(|kept| kept.partial.clone()).collect()
    }

    /// Ends the collection.
    fn freeze(&mut self) -> Vec<Action> {
        let (floor, all) = (self.roster.floor(), self.everyone());
        self.deserted = if all.len() < floor { self.deserted + 1 } else { 0 };
        if all.len() < floor {
            self.end(Ending::Aborted, &[], None);
            return Vec::new();
        }
        let (mut listed, mut parts) = (all.clone(), self.parts(&all));
        let one = self.below(all.len());
        let user = all[one].participant.user;
        let old = self.old.iter().rev().find(|kept| kept.participant.user == user).cloned();
        match (self.attack, old) {
            (Attack::VictimAlone, _) => parts = vec![parts.swap_remove(one)],
            (Attack::OneDropped, _) => drop(parts.remove(one)),
            (Attack::OneTwice, _) => parts.push(parts[one].clone()),
            (Attack::AllTwice, _) => parts.extend(parts.clone()),
            (Attack::OneNotListed, _) if all.len() > floor => drop(listed.remove(one)),
            (Attack::OldCiphertexts, Some(old)) => parts[one] = old.partial,
            (Attack::OldUpload, Some(old)) => {
                parts[one] = old.partial.clone();
                listed[one] = old;
            }
            (Attack::Phantom, _) => {
                let absent = self.roster.users().find(|user| !self.uploads.contains_key(user));
                let mut phantom = listed[one].clone();
                phantom.participant.user = absent.unwrap_or(user);
                phantom.participant.body_hash = Digest::of_model(b"nothing");
                match absent {
                    Some(_) => listed.push(phantom),
                    None => listed[one] = phantom,
                }
                listed.sort_by_key(|kept| kept.participant.user);
            }
            (Attack::Unsigned, _) => listed[one].participant.signature = [0; 64],
            (Attack::OtherSignature, _) => {
                let other = (one + 1) % all.len();
                listed[one].participant.signature = all[other].participant.signature;
            }
            (
                Attack::AccompliceInverse
                | Attack::AccompliceNothing
                | Attack::AccompliceOld
                | Attack::VictimAndAccomplices,
                _,
            ) => self.use_accomplices(&mut listed, &mut parts),
            (Attack::TooFew, _) => {
                listed.truncate(floor - 1);
                parts.truncate(floor - 1);
            }
            (Attack::ListedTwice, _) => listed[(one + 1) % all.len()] = all[one].clone(),
            (Attack::Repeat, _) if self.last_was_rejected() && all.len() > floor => {
                listed.remove(one);
                parts.remove(one);
            }
            _ => {}
        }
        let (mut body, occupied) = self.sum_of(&parts);
        self.tamper(&mut body);
        let frozen = self.frozen(&listed, body, occupied, 1);
        let message = frozen.message.clone();
        self.frozen = Some(frozen);
        self.stage = Stage::Freezing;
        vec![self.ask_generator(message)]
    }

    /// Returns whether the last round was opened on the model of this one.
    fn last_was_rejected(&self) -> bool {
        let close = Signed::<Close>::decode(&self.close, &self.roster);
        close.is_ok_and(|close| close.message().ending == Ending::Rejected)
    }

    /// Lists accomplices with uploads that they signed for this ticket, and puts something else into the sum.
    fn use_accomplices(&mut self, listed: &mut Vec<Kept>, parts: &mut Vec<Vec<u8>>) {
        let victims: Vec<usize> =
            (0..listed.len()).filter(|&i| !self.accomplices.contains(&listed[i].participant.user)).collect();
        let helpers: Vec<usize> = (0..listed.len()).filter(|i| !victims.contains(i)).collect();
        let (Some(&helper), false) = (helpers.first(), victims.is_empty()) else { return };
        let victim = victims[self.below(victims.len())];
        let own = listed[victim].participant.user;
        let old = self.old.iter().rev().find(|kept| kept.participant.user == own).cloned();
        match self.attack {
            Attack::AccompliceInverse => {
                let others: Vec<Vec<u8>> =
                    victims.iter().filter(|&&i| i != victim).map(|&i| parts[i].clone()).collect();
                self.forge(&mut listed[helper]);
                // the sum of all parts is then the victim's upload
                *parts = [&[parts[victim].clone()], &others[..], &self.inverses(&others)].concat();
            }
            Attack::AccompliceOld => {
                self.forge(&mut listed[helper]);
                let Some(old) = old else { return };
                parts[helper] = old.partial;
            }
            Attack::VictimAndAccomplices => {
                let chosen: BTreeSet<usize> = helpers.iter().copied().chain([victim]).collect();
                if chosen.len() >= self.roster.floor() {
                    *listed = chosen.iter().map(|&i| listed[i].clone()).collect();
                }
                *parts = vec![parts[victim].clone()];
                let accomplices = self.accomplices.clone();
                let helpers = listed.iter_mut().filter(|kept| accomplices.contains(&kept.participant.user));
                helpers.for_each(|kept| self.forge(kept));
            }
            _ => {
                self.forge(&mut listed[helper]);
                parts.remove(helper);
            }
        }
    }

    /// Replaces the upload of an accomplice by one that exists only as its signature.
    fn forge(&mut self, kept: &mut Kept) {
        let user = kept.participant.user;
        let (mut salt, mut body_hash) = ([0; 16], [0; 32]);
        self.rng.fill_bytes(&mut salt);
        self.rng.fill_bytes(&mut body_hash);
        let ticket = self.collector.as_ref().unwrap().ticket().hash();
        let (count, body_hash) = (kept.participant.count, Digest::from_bytes(body_hash));
        let key_id = *self.key.id().as_bytes();
        let upload = Upload { ticket, key_id, count, salt, body_hash };
        let from = PartyId::User(user);
        let message = forge::signed(&self.roster, from, Kind::Upload, self.round, &upload.to_bytes(), &[]);
        let signature = *message.last_chunk().unwrap();
        kept.participant = Participant { user, count, salt, body_hash, signature };
        self.forged.push((user, self.round, upload));
    }

    /// Returns partial sums with the inverses of all ciphertexts.
    fn inverses(&self, parts: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let width = 2 * self.key.modulus_bytes();
        let negated = |bytes: &[u8]| {
            let all = self.key.decode(bytes, Threads::ONE).unwrap();
            let all = self.key.mul_small_vartime(&all, &vec![-1; all.len()], Threads::ONE).unwrap();
            self.key.encode(&all, Threads::ONE).unwrap()
        };
        let number = |part: &[u8], at: usize| {
            let bytes = part[at..at + 4].try_into().unwrap();
            u32::from_be_bytes(bytes) as usize
        };
        let inverse = |part: &Vec<u8>| {
            let count = number(part, 8);
            let (values, packed) = (12 + 8 * count, 12 + (8 + width) * count);
            let ciphertexts = packed + 4 + 8 * number(part, packed);
            let (positions, rest) = (&part[values..packed], &part[ciphertexts..]);
            [&part[..values], &negated(positions), &part[packed..ciphertexts], &negated(rest)].concat()
        };
        parts.iter().map(inverse).collect()
    }

    /// Changes the ciphertexts of a sum.
    fn tamper(&mut self, body: &mut [u8]) {
        let half = self.key.modulus_bytes();
        let count = body.len() / (2 * half);
        let first = body.len() - 2 * half * count;
        let at = first + 2 * half * self.below(count);
        let read = |bytes: &[u8]| self.key.decode(bytes, Threads::ONE).unwrap();
        match self.attack {
            Attack::ShiftedSum => {
                let one = Plaintext::new(&self.key, 1).unwrap();
                let shifted = self.key.add_plain(&read(&body[at..at + 2 * half]), &[one], Threads::ONE);
                let bytes = self.key.encode(&shifted.unwrap(), Threads::ONE).unwrap();
                body[at..at + 2 * half].copy_from_slice(&bytes);
            }
            Attack::ScaledSum => {
                let factor = [-1, 2, 3][self.round.get() as usize % 3];
                let all = read(&body[first..]);
                let scaled = self.key.mul_small_vartime(&all, &vec![factor; all.len()], Threads::ONE);
                body[first..].copy_from_slice(&self.key.encode(&scaled.unwrap(), Threads::ONE).unwrap());
            }
            Attack::MinusOne => {
                // c = c1 n + c0, so -c = (n - 1 - c1) n + (n - c0) modulo n²
                let n = self.key.modulus_be_bytes();
                let mut below = n.clone();
                below[half - 1] -= 1;
                subtract_from(&below, &mut body[at..at + half]);
                subtract_from(&n, &mut body[at + half..at + 2 * half]);
            }
            _ => {}
        }
    }

    /// Freezes the sum of these uploads, as if it were that of the listed users.
    fn freeze_of(&self, listed: &[Kept], parts: &[Vec<u8>], attempt: u32) -> Frozen {
        let (body, occupied) = self.sum_of(parts);
        self.frozen(listed, body, occupied, attempt)
    }

    /// Adds up partial sums of any rounds.
    fn sum_of(&self, parts: &[Vec<u8>]) -> (Vec<u8>, u32) {
        let collector = self.collector.as_ref().unwrap();
        let mut sums = collector.empty();
        for part in parts {
            // a partial sum begins with its round
            let part = [&self.round.get().to_be_bytes(), &part[8..]].concat();
            sums.add_partial_sum(&part, Threads::ONE).unwrap();
        }
        self.sealed_sum(&sums.to_partial_sum(Threads::ONE))
    }

    fn frozen(&self, listed: &[Kept], body: Vec<u8>, occupied: u32, attempt: u32) -> Frozen {
        let collector = self.collector.as_ref().unwrap();
        let users: Vec<Participant> = listed.iter().map(|kept| kept.participant).collect();
        let freeze = Freeze {
            ticket: collector.ticket().hash(),
            attempt,
            sum_hash: forge::hash("dphe/v2/sum", &body),
            occupied,
            users: users.clone(),
        };
        let message = forge::message(&self.roster, self.round, &freeze, &[]);
        let hash = Signed::<Freeze>::decode(&message, &self.roster).unwrap().hash();
        Frozen { message, hash, users, body, occupied }
    }

    /// Turns a partial sum into the body of a request.
    fn sealed_sum(&self, partial: &[u8]) -> (Vec<u8>, u32) {
        let task = self.roster.task();
        let width = 2 * self.key.modulus_bytes();
        let number = |at: usize| u32::from_be_bytes(partial[at..at + 4].try_into().unwrap());
        let count = number(8) as usize;
        let (values, packed) = (12 + 8 * count, 12 + (8 + width) * count);
        let mut body = Vec::new();
        if task.has_private_support() {
            body.resize(task.positions().div_ceil(8) as usize, 0);
            for position in (0..count).map(|i| number(12 + 8 * i)) {
                body[position as usize / 8] |= 0x80 >> (position % 8);
            }
        }
        body.extend_from_slice(&partial[values..packed]);
        body.extend_from_slice(&partial[packed + 4 + 8 * number(packed) as usize..]);
        (body, count as u32)
    }

    fn freeze_ack(&mut self, bytes: &[u8]) -> Vec<Action> {
        let ack: Signed<FreezeAck> = Signed::decode(bytes, &self.roster).unwrap();
        let (Stage::Freezing, Some(frozen)) = (&self.stage, self.frozen.clone()) else { return Vec::new() };
        if ack.message().freeze != frozen.hash {
            return Vec::new();
        }
        self.stage = Stage::Requesting;
        let mut actions = Vec::new();
        let all = self.everyone();
        self.request = match self.attack {
            Attack::OtherRequest => {
                let other = self.freeze_of(&all, &self.parts(&all[1..]), 1);
                let hash = if self.below(2) == 0 { frozen.hash } else { other.hash };
                self.request_of(Some(Frozen { hash, ..other }))
            }
            Attack::FirstOfTwoFreezes if all.len() > self.roster.floor() => {
                let second = self.freeze_of(&all[1..], &self.parts(&all[1..]), 2);
                actions.push(send(G, second.message.clone()));
                self.frozen = Some(second);
                self.request_of(Some(frozen))
            }
            _ => self.request_of(Some(frozen)),
        };
        actions.push(self.ask_generator(self.request.clone()));
        actions
    }

    fn request_of(&self, frozen: Option<Frozen>) -> Vec<u8> {
        let Frozen { hash, body, occupied, .. } = frozen.unwrap();
        let request = Decrypt { freeze: hash, occupied, sum_hash: forge::hash("dphe/v2/sum", &body) };
        forge::message(&self.roster, self.round, &request, &body)
    }

    fn result(&mut self, bytes: &[u8]) -> Vec<Action> {
        let result: Signed<RoundResult> = Signed::decode(bytes, &self.roster).unwrap();
        let request: Signed<Decrypt> = match Signed::decode(&self.request, &self.roster) {
            Ok(request) if matches!(self.stage, Stage::Requesting) => request,
            _ => return Vec::new(),
        };
        if result.message().request != request.hash() {
            return Vec::new();
        }
        let mut actions = Vec::new();
        let all = self.everyone();
        if self.attack == Attack::SecondRequest {
            let second = self.freeze_of(&all, &self.parts(&all[1..]), 2);
            actions.push(send(G, second.message.clone()));
            actions.push(send(G, self.request_of(Some(second))));
        }
        if self.attack == Attack::CallAborted {
            actions.push(send(G, self.close_of(Ending::Aborted, Digest::ZERO)));
        }
        match result.message().outcome {
            Outcome::Released => self.publish(bytes, &result),
            Outcome::Failed => self.end(Ending::Failed, &[], None),
        }
        actions.push(Action::Announce(self.close.clone()));
        actions
    }

    // --- what users are told ---

    /// Reads an opened sum, without the aggregator's masks, as bytes and as numbers if they are in range.
    fn read(&self, result: &Signed<RoundResult>) -> (Vec<u8>, Option<WeightSum>) {
        let params = self.params();
        let users = result.message().users as usize;
        let context = SumContext { params: &params, users, key: &self.key };
        match OpenedSum::from_bytes(result.body(), &context).unwrap() {
            OpenedSum::Clear(sum) => (result.body().to_vec(), Some(sum)),
            OpenedSum::Masked(masked) => {
                let sum = masked.unmask(&self.aggregator, &self.blinds()).unwrap();
                (sum.to_bytes(), sum.decode_unchecked(&self.aggregator).ok())
            }
        }
    }

    fn params(&self) -> Arc<RoundParams> {
        let ticket = self.collector.as_ref().unwrap().ticket().hash();
        Arc::new(RoundParams::new(self.roster.task(), self.round).with_ticket(ticket))
    }

    /// Returns what removes the aggregator's masks from the sum of the listed users.
    fn blinds(&self) -> Blinds {
        let mut sums = self.collector.as_ref().unwrap().empty();
        for participant in &self.frozen.as_ref().unwrap().users {
            let Kept { partial, fingerprints, masks, .. } = &self.uploads[&participant.user];
            sums.add_partial_sum(partial, Threads::ONE).unwrap();
            sums.add_user(participant.user, fingerprints, masks).unwrap();
        }
        sums.finish(Threads::ONE).unwrap().take_blinds()
    }

    fn publish(&mut self, message: &[u8], result: &Signed<RoundResult>) {
        let users = self.frozen.as_ref().unwrap().users.clone();
        let head = message[..message.len() - result.body().len()].to_vec();
        let (body, sum) = self.read(result);
        let Some(sum) = sum else {
            // it is not the sum of the listed users, but users may believe it
            let wrong = self.publish_of(&head, &body, Digest::of_model(&self.model));
            return self.end(Ending::Rejected, &users, Some(wrong));
        };
        let model = next_model(&self.model, &sum);
        let right = self.publish_of(&head, &body, Digest::of_model(&model));
        let wrong_body = self.wrong_body(&body);
        let wrong_model = self.model_of(&wrong_body, users.len());
        let wrong = match (self.attack, &self.last) {
            (Attack::Shifted | Attack::Doubled | Attack::OldSum, _) => {
                Some(self.publish_of(&head, &wrong_body, wrong_model))
            }
            (Attack::OtherNewModel | Attack::OtherPublishToOne | Attack::CloseOther, _) => {
                Some(self.publish_of(&head, &body, Digest::of_model(b"another model")))
            }
            (Attack::OldResult, Some((old, body))) => Some(self.publish_of(old, body, wrong_model)),
            (Attack::ForgedResult, _) => {
                let forged = RoundResult {
                    payload_hash: forge::hash("dphe/v2/payload", &wrong_body),
                    ..result.message().clone()
                };
                let fields = forged.to_bytes();
                let forged = forge::signed(&self.roster, G, Kind::RoundResult, self.round, &fields, &[]);
                Some(self.publish_of(&forged, &wrong_body, wrong_model))
            }
            _ => None,
        };
        self.last = Some((head, body));
        if self.attack == Attack::Repeat && !self.last_was_rejected() {
            return self.end(Ending::Rejected, &users, None);
        }
        self.model = model;
        self.end_published(&users, right, wrong);
    }

    /// Returns another sum.
    fn wrong_body(&mut self, body: &[u8]) -> Vec<u8> {
        let task = self.roster.task();
        let masked = task.receipts() == Receipts::Masked;
        let width = if masked { self.key.modulus_bytes() } else { task.slot_bits().div_ceil(8) as usize };
        let mut wrong = body.to_vec();
        let at = self.below(body.len() / width);
        for (i, value) in wrong.chunks_exact_mut(width).enumerate() {
            let doubled = self.attack == Attack::Doubled;
            if !doubled && i != at {
                continue;
            }
            if masked {
                let number = |x| Plaintext::new(&self.key, x).unwrap();
                let residue = Plaintext::from_residue_bytes(&self.key, value).unwrap();
                let minus = if doubled { number(0).minus(&residue).unwrap() } else { number(-1) };
                value.copy_from_slice(&residue.minus(&minus).unwrap().to_residue_bytes());
            } else {
                let old = value.iter().fold(0u64, |x, &byte| x << 8 | u64::from(byte));
                let new = if doubled { 2 * old } else { old + 1 };
                value.copy_from_slice(&new.to_be_bytes()[8 - width..]);
            }
        }
        match (self.attack, &self.last) {
            (Attack::OldSum, Some((_, old))) => old.clone(),
            _ => wrong,
        }
    }

    /// Returns the digest of the model that follows from a sum, if it can be read.
    fn model_of(&self, body: &[u8], users: usize) -> Digest {
        let params = self.params();
        let context = SumContext { params: &params, users, key: &self.key };
        let sum = if self.roster.task().receipts() == Receipts::Masked {
            let sum = UncheckedSum::from_bytes(body, &context);
            sum.and_then(|sum| sum.decode_unchecked(&self.aggregator))
        } else {
            WeightSum::from_bytes(body, &context)
        };
        Digest::of_model(&sum.map_or_else(|_| Vec::new(), |sum| next_model(&self.model, &sum)))
    }

    fn publish_of(&self, head: &[u8], body: &[u8], model: Digest) -> Vec<u8> {
        let sum_hash = forge::hash("dphe/v2/payload", body);
        let fields = [head, model.as_bytes(), sum_hash.as_bytes()].concat();
        forge::signed(&self.roster, PartyId::Aggregator, Kind::Publish, self.round, &fields, body)
    }

    fn hash_of(&self, publish: &[u8]) -> Digest {
        Signed::<Publish>::decode(publish, &self.roster).unwrap().hash()
    }

    fn close_of(&self, ending: Ending, publish: Digest) -> Vec<u8> {
        forge::message(&self.roster, self.round, &Close { ending, publish }, &[])
    }

    fn inclusion_of(&self, users: &[Participant], user: UserId) -> Option<Vec<u8>> {
        let tree = ParticipantTree::new(users);
        let (index, path) = tree.path(user)?;
        let inclusion = Inclusion { users_root: tree.root(), index, path };
        Some(forge::message(&self.roster, self.round, &inclusion, &[]))
    }

    /// Ends a published round. Some users are told something wrong at first, or forever.
    fn end_published(&mut self, users: &[Participant], right: Vec<u8>, wrong: Option<Vec<u8>>) {
        let ticket = self.collector.as_ref().unwrap().ticket().to_bytes();
        let hash = self.hash_of(&right);
        let close = self.close_of(Ending::Published, hash);
        let aborted = self.close_of(Ending::Aborted, Digest::ZERO);
        let all: Vec<UserId> = self.roster.users().collect();
        let one = all[self.below(all.len())];
        let mut answers = Answers::new();
        for &user in &all {
            let other = users.iter().map(|participant| participant.user).find(|&other| other != user);
            let inclusion = self.inclusion_of(users, user);
            let with = |inclusion: Option<Vec<u8>>, publish: &[u8], close: &[u8]| -> Vec<Vec<u8>> {
                inclusion.into_iter().chain([ticket.clone(), publish.to_vec(), close.to_vec()]).collect()
            };
            let truth = with(inclusion.clone(), &right, &close);
            let lists = match (self.attack, &wrong) {
                (Attack::TellAborted, _) if user == one => vec![vec![ticket.clone(), aborted.clone()]],
                (Attack::NoInclusion, _) => vec![with(None, &right, &close)],
                (Attack::OtherInclusion, _) => {
                    let other = other.and_then(|other| self.inclusion_of(users, other));
                    vec![with(other, &right, &close), truth]
                }
                (Attack::OtherPublishToOne, Some(wrong)) if user == one => {
                    vec![with(inclusion, wrong, &close)]
                }
                (Attack::OtherPublishToOne, _) => vec![truth],
                (_, Some(wrong)) => vec![with(inclusion, wrong, &close), truth],
                _ => vec![truth],
            };
            answers.insert(user, (0, lists));
        }
        self.close = match (self.attack, &wrong) {
            (Attack::CloseOther, Some(wrong)) => self.close_of(Ending::Published, self.hash_of(wrong)),
            _ => close,
        };
        self.conclude(answers);
    }

    /// Ends a round without publication. Users may be told otherwise at first.
    fn end(&mut self, ending: Ending, users: &[Participant], wrong: Option<Vec<u8>>) {
        let Some(ticket) = self.collector.as_ref().map(|collector| collector.ticket().to_bytes()) else {
            return;
        };
        self.close = self.close_of(ending, Digest::ZERO);
        let mut answers = Answers::new();
        for user in self.roster.users() {
            let mut lists = Vec::new();
            if let Some(wrong) = &wrong {
                let inclusion = self.inclusion_of(users, user);
                lists.push(inclusion.into_iter().chain([ticket.clone(), wrong.clone()]).collect());
            }
            lists.push(vec![ticket.clone(), self.close.clone()]);
            answers.insert(user, (0, lists));
        }
        self.conclude(answers);
    }

    fn conclude(&mut self, answers: Answers) {
        let told = answers.values().flat_map(|(_, lists)| lists.iter().flatten().cloned());
        self.told.extend(told);
        self.told.sort();
        self.told.dedup();
        self.answers.insert(self.round, answers);
        self.round = self.round.next();
        self.begin();
    }
}

/// Replaces a big-endian number by its difference to one that is not smaller.
fn subtract_from(x: &[u8], y: &mut [u8]) {
    let mut borrow = 0;
    for (x, y) in x.iter().zip(y).rev() {
        let value = i16::from(*x) - i16::from(*y) - borrow;
        borrow = i16::from(value < 0);
        *y = value as u8;
    }
}

fn send(to: PartyId, message: Vec<u8>) -> Action {
    Action::Send { to, message }
}
