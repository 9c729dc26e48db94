//! The simulation: parties, disks, a network and a clock in one thread, driven by one seed.

use std::collections::BTreeMap;

use dphe::hazmat::{self, sign_upload};
use dphe::party::log::Log;
use dphe::party::{
    Action, AggregatorEvent, AggregatorParty, EndedRound, KeyGeneratorEvent, KeyGeneratorParty, Notice,
    Party as _, Time, UserEvent, UserParty, UserPhase,
};
use dphe::wire::{Ending, Header, Kind, Signed, Upload};
use dphe::{Digest, Error, PartyId, Receipts, Round, UserId};
use rand_core::Rng as _;

use crate::ledger::{Answer, Ledger, Trust};
use crate::rogue::{Attack, Rogue};
use crate::world::{Input, World, identity, next_model, rng};

pub(crate) type Rng = chacha20::ChaCha8Rng;

pub(crate) enum Machine {
    Aggregator(Box<AggregatorParty>),
    KeyGenerator(Box<KeyGeneratorParty>),
    User(Box<UserParty>),
    /// An aggregator that does what it likes. It never crashes.
    Rogue(Box<Rogue>),
}

/// A point at which a party writes: the tag of the record, or 0 for a replacement of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) party: PartyId,
    pub(crate) tag: u8,
}

/// The tags of records that the simulation looks into, or that sabotage removes.
const A_UPLOAD: u8 = 3;
const G_TICKET: u8 = 1;
const G_FREEZE: u8 = 2;
const G_COMMIT: u8 = 3;
const G_RESULT: u8 = 4;
const U_TICKET: u8 = 1;

/// How far a party gets with a write, and with the messages after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Written but not synced, and lost.
    Lost,
    /// This many parts in 1024 of an append reached the disk, and the rest is missing. A replacement is complete.
    Torn(u32),
    /// The same, but the file has its full length, and the rest is zeros.
    Blank(u32),
    /// The disk is full and stays so for a while. This many parts in 1024 of an append are written. Nothing is
    /// replaced.
    Full(u32),
    Synced,
    SentOne,
    Sent,
}

/// A planned crash: when the point is passed for the `skip`-th time after the previous crash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    pub(crate) point: Point,
    pub(crate) mode: Mode,
    pub(crate) skip: u32,
    /// How long the party stays down, in milliseconds.
    pub(crate) away: u64,
}

/// Random faults, each in parts per thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chaos {
    pub(crate) loss: u64,
    /// A message takes seconds.
    pub(crate) slow: u64,
    /// A party crashes at a write.
    pub(crate) crash: u64,
    /// The disk of a party is full for seconds.
    pub(crate) full: u64,
    /// A user disappears for long after a step.
    pub(crate) vanish: u64,
    /// The program aborts a round.
    pub(crate) abort: u64,
    /// A user's program does not hand in an update.
    pub(crate) idle: u64,
}

/// Parties are restored from older copies of their logs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restore {
    pub(crate) at: u64,
    /// The age of the copies, in milliseconds.
    pub(crate) age: u64,
    pub(crate) who: Restored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Restored {
    KeyGenerator,
    Aggregator,
    Both,
    User(UserId),
}

/// What the program around the parties does wrong on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sabotage {
    #[default]
    Nothing,
    /// Everything is sent before anything is stored.
    SendBeforeSync,
    /// The aggregator loses the last upload when it restarts.
    ForgetUpload,
    /// The key generator loses its commitment when it restarts.
    ForgetCommit,
    /// The key generator loses the freeze, and the aggregator the last upload.
    ForgetBoth,
    /// A torn tail is not cut off.
    KeepTail,
    /// Parties are not woken after a restart.
    Sleep,
    /// A user hands in the update of another user.
    WrongUpdate,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// How often messages arrive twice, in parts per thousand.
    pub(crate) duplicate: u64,
    pub(crate) crashes: Vec<Crash>,
    pub(crate) chaos: Chaos,
    /// The number of rounds before faults stop. With planned crashes only, they stop after the last one.
    pub(crate) rounds: u64,
    /// The aggregator cannot reach users, who only get answers to their own requests. An answer arrives as a whole.
    pub(crate) pull: bool,
    /// Whether the latest wake-up counts, instead of the earliest.
    pub(crate) latest_alarm: bool,
    /// The model never changes, so that the differencing rule applies.
    pub(crate) same_model: bool,
    pub(crate) sabotage: Sabotage,
    pub(crate) restore: Option<Restore>,
    /// The aggregator does what it likes.
    pub(crate) rogue: bool,
    /// How many users give a rogue aggregator their identity keys.
    pub(crate) accomplices: u32,
    /// What the first user's dense value is larger by, and the second user's smaller.
    pub(crate) shift: i64,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            duplicate: 0,
            crashes: Vec::new(),
            chaos: Chaos::default(),
            rounds: 0,
            pull: false,
            latest_alarm: true,
            same_model: false,
            sabotage: Sabotage::Nothing,
            restore: None,
            rogue: false,
            accomplices: 0,
            shift: 0,
        }
    }
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) violations: Vec<String>,
    /// Every write, in order.
    pub(crate) writes: Vec<Point>,
    pub(crate) published: u64,
    pub(crate) failed: u64,
    pub(crate) rejected: u64,
    pub(crate) aborted: u64,
    pub(crate) crashes: u64,
    /// How often a full disk refused a write.
    pub(crate) full: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) slow: u64,
    pub(crate) vanished: u64,
    pub(crate) unhappened: usize,
    pub(crate) steps: u64,
    /// The largest number of events until the end after faults had stopped.
    pub(crate) steps_to_end: u64,
    /// How often training was requested more than once between two restarts of a user.
    pub(crate) trained_twice: u64,
    /// Whether a party was restored from a copy that differs from its log.
    pub(crate) restored: bool,
    /// Whether the task came to an end of the run with all users in a round.
    pub(crate) well: bool,
    /// How many sums were opened, and how many of these openings failed.
    pub(crate) openings: (u64, u64),
    /// How often a user accepted the sum of a round.
    pub(crate) accepted: u64,
    /// The number of rounds in which users accepted distinct sums.
    pub(crate) forked: usize,
    pub(crate) refusals: BTreeMap<(&'static str, &'static str), u64>,
    pub(crate) attacks: BTreeMap<Attack, u64>,
    /// What the key generator answered.
    pub(crate) answers: Vec<Answer>,
}

/// A message, and whether it is about a round that has ended.
#[derive(Clone)]
struct Letter {
    ended: bool,
    /// A message that its sender must not send. It may be refused.
    forged: bool,
    bytes: Vec<u8>,
}

#[derive(Clone)]
enum Packet {
    Letters(Vec<Letter>),
    Poll(UserId, Round),
}

/// What the program that runs a party does later.
enum Job {
    Start,
    /// The operator ends the round.
    Abort,
    /// The program aborts the round, because the key generator refuses the set.
    GiveUp,
    NewModel(Round, Vec<u8>),
    Applied(Round, Vec<u8>),
    Update(Round, Input),
    /// A user asks what it could not ask before.
    Poll,
}

enum Event {
    Packet {
        to: PartyId,
        packet: Packet,
    },
    Alarm {
        party: PartyId,
        life: u64,
        at: u64,
    },
    Job {
        party: PartyId,
        life: u64,
        job: Job,
    },
    Restart {
        party: PartyId,
        life: u64,
    },
    /// A party crashes at a time when it does nothing.
    Kill {
        party: PartyId,
        away: u64,
    },
    Restore(Restore),
}

#[derive(Default)]
struct Node {
    machine: Option<Machine>,
    disk: Vec<u8>,
    /// Earlier contents of the disk, each with the time from which on it was there.
    copies: Vec<(u64, Vec<u8>)>,
    /// The disk is full until then.
    full: u64,
    life: u64,
    alarm: Option<u64>,
    trained: Option<(u64, Round)>,
    /// To a user: the round in which A acknowledged its upload.
    acknowledged: Option<Round>,
    /// To a user: the models that its program has stored.
    models: BTreeMap<Digest, Vec<u8>>,
    /// To a user: the round whose model it has accepted, until that is on its disk.
    accepting: Option<Round>,
    /// To a user: when it may poll again, and what for if it waits for that.
    next_poll: u64,
    waiting_poll: Option<Round>,
}

pub(crate) struct Sim<'w> {
    world: &'w World,
    plan: Plan,
    rng: Rng,
    now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    nodes: BTreeMap<PartyId, Node>,
    ledger: Ledger<'w>,
    outcome: Outcome,
    /// Whether faults still happen.
    rough: bool,
    /// The models that the aggregator's program has stored, by the round from whose sum each was computed.
    made: BTreeMap<u64, Vec<u8>>,
    /// The rounds that the aggregator's program has stored for users who are behind.
    archive: BTreeMap<Round, EndedRound>,
    /// The user whose request is being answered.
    asking: Option<UserId>,
}

/// How long the aggregator collects, in milliseconds.
const DEADLINE: u64 = 7_000;
/// The largest number of events from the end of the faults to the end of the run.
const PATIENCE: u64 = 3_000;
/// How soon a party is started again that stopped because its disk is full.
const FULL_AWAY: u64 = 400;
/// The least time between two requests of a user, in milliseconds.
const POLL_INTERVAL: u64 = 50;

impl<'w> Sim<'w> {
    /// Runs a plan to its end.
    pub(crate) fn run(world: &'w World, plan: Plan) -> Outcome {
        hazmat::remember_signatures();
        let trust = if plan.rogue { Trust::UsersAndGenerator } else { Trust::All };
        let mut sim = Self {
            world,
            rng: rng(plan.seed),
            now: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            nodes: world.parties().into_iter().map(|party| (party, Node::new(world))).collect(),
            ledger: Ledger::new(world, trust, !plan.pull),
            outcome: Outcome::default(),
            rough: true,
            made: BTreeMap::from([(0, world.first_model())]),
            archive: BTreeMap::new(),
            asking: None,
            plan,
        };
        for party in world.parties() {
            sim.boot(party);
        }
        sim.kills();
        if let Some(restore) = sim.plan.restore {
            sim.at(restore.at, Event::Restore(restore));
        }
        if sim.plan.rogue {
            sim.rogue_part();
        } else {
            sim.rough_part();
            sim.calm_part();
        }
        sim.finish()
    }

    fn finish(mut self) -> Outcome {
        self.ledger.close();
        for ending in self.ledger.endings() {
            match ending {
                Ending::Published => self.outcome.published += 1,
                Ending::Failed => self.outcome.failed += 1,
                Ending::Rejected => self.outcome.rejected += 1,
                Ending::Aborted => self.outcome.aborted += 1,
            }
        }
        self.outcome.unhappened = self.plan.crashes.len();
        self.outcome.openings = self.ledger.openings();
        self.outcome.accepted = self.ledger.acceptances();
        self.outcome.forked = self.ledger.forked();
        self.outcome.answers = self.ledger.answers();
        if let Some(Machine::Rogue(rogue)) = &self.nodes[&PartyId::Aggregator].machine {
            self.outcome.attacks = rogue.attacks.clone();
        }
        self.outcome.refusals = self.ledger.refusals;
        self.outcome.violations = self.ledger.violations;
        self.outcome
    }

    /// Runs until every planned fault has happened.
    fn rough_part(&mut self) {
        let (rounds, steps) = (self.plan.rounds.max(1), 20_000);
        // a task whose key generator was restored may not go on
        let latest = self.plan.restore.map_or(u64::MAX, |restore| restore.at + 20_000);
        for _ in 0..steps {
            let pending =
                !self.plan.crashes.is_empty() || self.plan.restore.is_some_and(|r| r.at >= self.now);
            let over = self.ended() >= rounds && (!pending || self.ended() >= rounds + 3);
            if over || self.now > latest || self.is_broken() || !self.next() {
                break;
            }
        }
        let stuck = self.ended() < rounds && self.plan.restore.is_none();
        if stuck && self.ledger.violations.is_empty() {
            self.ledger.violation(format!("I7: stuck in round {} while faults go on", self.ended() + 1));
        }
    }

    /// Runs without faults until the current round ends and one of the next two has all users in it.
    fn calm_part(&mut self) {
        self.rough = false;
        let from = self.ended() + 1 + u64::from(!self.is_idle());
        self.nodes.values_mut().for_each(|node| node.full = 0);
        let down: Vec<(PartyId, u64)> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.machine.is_none())
            .map(|(&p, node)| (p, node.life))
            .collect();
        for (party, life) in down {
            self.at(100, Event::Restart { party, life });
        }
        for step in 0..PATIENCE {
            if self.is_broken() {
                return;
            }
            if self.is_well(from) {
                self.outcome.steps_to_end = step;
                self.outcome.well = true;
                return;
            }
            if !self.next() {
                break;
            }
        }
        if self.outcome.restored && self.ledger.noticed() {
            return;
        }
        // users who found a published sum to be wrong do not go on
        if self.world.spec.has_rogue_user() && self.ledger.is_spoiled() {
            return;
        }
        let states: Vec<String> =
            self.nodes.iter().map(|(party, node)| format!("{party:?}: {}", node.describe())).collect();
        let text = format!("I7: no full round since round {from}; {}", states.join("; "));
        self.ledger.violation(text);
    }

    /// Runs until the aggregator, which does what it likes, has nothing more to do.
    fn rogue_part(&mut self) {
        for _ in 0..30_000 {
            let done = matches!(&self.nodes[&PartyId::Aggregator].machine, Some(Machine::Rogue(rogue)) if rogue.is_done());
            if done || self.is_broken() || !self.next() {
                return;
            }
        }
    }

    /// Returns whether the run can stop. Sabotage is given time to take effect.
    fn is_broken(&self) -> bool {
        self.plan.sabotage == Sabotage::Nothing && !self.ledger.violations.is_empty()
    }

    fn is_well(&self, from: u64) -> bool {
        let last = (from..from + 2).filter_map(Round::new).rev().find(|&round| {
            // if the model does not change, a full set may differ by one user from an opened one
            if self.plan.same_model || self.world.spec.has_rogue_user() {
                self.ledger.ending(round).is_some()
            } else {
                self.ledger.is_full(round)
            }
        });
        // users know that the round is over, too
        let user_is_on = |node: &Node, round: Round| match &node.machine {
            Some(Machine::User(user)) => user.round() > round,
            Some(_) => true,
            None => false,
        };
        last.is_some_and(|round| self.is_idle() && self.nodes.values().all(|node| user_is_on(node, round)))
    }

    /// The number of rounds that the aggregator has closed.
    fn ended(&self) -> u64 {
        (1..)
            .find(|&round| Round::new(round).and_then(|round| self.ledger.ending(round)).is_none())
            .unwrap_or(1)
            - 1
    }

    fn is_idle(&self) -> bool {
        matches!(&self.nodes[&PartyId::Aggregator].machine, Some(Machine::Aggregator(party)) if party.is_idle())
    }

    /// Lets some parties crash at random times.
    fn kills(&mut self) {
        if self.plan.chaos.crash == 0 {
            return;
        }
        for party in self.world.parties() {
            for _ in 0..self.below(3) {
                let (after, away) = (self.below(40_000), self.below(4_000));
                self.at(after, Event::Kill { party, away });
            }
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    /// Draws an event of this probability in parts per thousand.
    fn happens(&mut self, often: u64) -> bool {
        self.rough && often > 0 && self.below(1_000) < often
    }

    fn at(&mut self, after: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now + after, self.sequence), event);
    }

    fn later(&mut self, party: PartyId, after: u64, job: Job) {
        let life = self.nodes[&party].life;
        self.at(after, Event::Job { party, life, job });
    }

    /// Returns the next event, if there is one.
    fn next(&mut self) -> bool {
        let Some(((time, _), event)) = self.queue.pop_first() else { return false };
        debug_assert!(time >= self.now);
        self.now = time;
        self.outcome.steps += 1;
        match event {
            Event::Packet { to, packet } => self.receive(to, packet),
            Event::Alarm { party, life, at } => {
                let node = self.node(party);
                if node.life == life && node.alarm == Some(at) {
                    node.alarm = None;
                    self.tick(party);
                }
            }
            Event::Job { party, life, job } => {
                if self.node(party).life == life {
                    self.work(party, job);
                }
            }
            Event::Restart { party, life } => {
                let node = self.node(party);
                if node.machine.is_none() && node.life == life {
                    self.boot(party);
                }
            }
            Event::Kill { party, away } => {
                if self.rough && self.node(party).machine.is_some() {
                    self.crash(party, away);
                }
            }
            Event::Restore(restore) => self.restore(restore),
        }
        true
    }

    fn node(&mut self, party: PartyId) -> &mut Node {
        self.nodes.get_mut(&party).unwrap()
    }

    // --- the program around a party ---

    /// Starts a party from its disk.
    fn boot(&mut self, party: PartyId) {
        if party == PartyId::Aggregator && self.plan.rogue {
            let rogue = Rogue::new(self.world, self.plan.seed, self.plan.accomplices);
            self.node(party).machine = Some(Machine::Rogue(Box::new(rogue)));
            return self.wake(party, 0);
        }
        self.spoil(party);
        let disk = &self.nodes[&party].disk;
        let valid = match Log::recover(party, &self.world.roster, disk) {
            Ok(recovered) => recovered.valid,
            Err(error) => return self.ledger.violation(format!("{party:?} cannot read its log: {error}")),
        };
        let (machine, actions) = match self.world.start(party, disk, Time(self.now)) {
            Ok(started) => started,
            Err(error) => return self.ledger.violation(format!("{party:?} cannot start: {error}")),
        };
        let sabotage = self.plan.sabotage;
        let node = self.node(party);
        let torn = valid > 0 && valid < node.disk.len();
        let first = node.life == 0;
        node.life += 1;
        node.machine = Some(machine);
        let asleep = sabotage == Sabotage::Sleep && !first;
        let keep = torn && sabotage == Sabotage::KeepTail;
        let actions = actions
            .into_iter()
            .filter(|action| !(asleep && matches!(action, Action::Wake(_))))
            // a party first cuts off a torn tail
            .skip(usize::from(keep))
            .collect();
        let life = self.node(party).life;
        if let (PartyId::User(user), Some(Machine::User(machine))) = (party, &self.nodes[&party].machine) {
            self.ledger.rolled_back(user, machine.round());
        }
        self.note(party);
        self.carry_out(party, actions);
        if party == PartyId::Aggregator && self.is_idle() && self.nodes[&party].life == life {
            self.later(party, 50, Job::Start);
        }
    }

    /// Keeps up what a program knows about its party.
    fn note(&mut self, party: PartyId) {
        let Some(node) = self.nodes.get_mut(&party) else { return };
        match &node.machine {
            Some(Machine::Aggregator(machine)) => {
                // what was stored about rounds that a restored aggregator does not know is gone, too
                let round = machine.round();
                self.archive.retain(|&ended, _| ended < round);
                self.made.retain(|&made, _| made <= round.get());
                if let Some(ended) = machine.ended() {
                    self.archive.entry(ended.round()).or_insert_with(|| ended.clone());
                }
            }
            Some(Machine::User(machine)) if machine.phase() == UserPhase::Uploaded => {
                node.acknowledged = Some(machine.round());
            }
            _ => {}
        }
    }

    fn spoil(&mut self, party: PartyId) {
        let forget = match (self.plan.sabotage, party) {
            (Sabotage::ForgetUpload | Sabotage::ForgetBoth, PartyId::Aggregator) => A_UPLOAD,
            (Sabotage::ForgetCommit, PartyId::KeyGenerator) => G_COMMIT,
            (Sabotage::ForgetBoth, PartyId::KeyGenerator) => G_FREEZE,
            _ => return,
        };
        let prefix = Log::new(party, &self.world.roster).prefix().len();
        let disk = &mut self.node(party).disk;
        let mut at = prefix;
        let mut last = None;
        while let Some(length) = disk.get(at..at + 4) {
            let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
            if disk.get(at + 8) == Some(&forget) {
                last = Some(at);
            }
            at += 8 + length + 32;
        }
        if let Some(last) = last {
            disk.truncate(last);
        }
    }

    /// Restores parties from older copies of their logs.
    fn restore(&mut self, Restore { age, who, .. }: Restore) {
        let time = self.now.saturating_sub(age);
        let (parties, trust) = match who {
            Restored::KeyGenerator => (vec![PartyId::KeyGenerator], Trust::RestoredGenerator),
            Restored::Aggregator => (vec![PartyId::Aggregator], Trust::RestoredAggregator),
            Restored::Both => (vec![PartyId::KeyGenerator, PartyId::Aggregator], Trust::RestoredBoth),
            Restored::User(user) => (vec![PartyId::User(user)], self.ledger.trust),
        };
        for party in parties {
            let node = self.node(party);
            let copy =
                node.copies.iter().rev().find(|(since, _)| *since <= time).map(|(_, copy)| copy.clone());
            let copy = copy.unwrap_or_default();
            if copy == node.disk {
                continue;
            }
            node.disk = copy;
            self.outcome.restored = true;
            self.ledger.trust = trust;
            if let PartyId::User(user) = party {
                self.ledger.restored.insert(user);
            }
            self.crash(party, 300);
        }
    }

    fn crash(&mut self, party: PartyId, away: u64) {
        self.outcome.crashes += 1;
        let node = self.node(party);
        if let Some(Machine::Rogue(_)) = node.machine {
            return;
        }
        node.machine = None;
        node.alarm = None;
        node.acknowledged = None;
        node.accepting = None;
        node.waiting_poll = None;
        node.life += 1;
        let life = node.life;
        self.at(away, Event::Restart { party, life });
    }

    fn tick(&mut self, party: PartyId) {
        let (now, rng) = (Time(self.now), &mut self.rng);
        let result = match self.nodes.get_mut(&party).and_then(|node| node.machine.as_mut()) {
            None => return,
            Some(Machine::Aggregator(party)) => party.step(AggregatorEvent::Tick, now, rng),
            Some(Machine::KeyGenerator(party)) => party.step(KeyGeneratorEvent::Tick, now, rng),
            Some(Machine::User(party)) => party.step(UserEvent::Tick, now, rng),
            Some(Machine::Rogue(rogue)) => Ok(rogue.tick(now)),
        };
        self.note_forgeries();
        self.answer(party, "tick", result);
    }

    fn receive(&mut self, party: PartyId, packet: Packet) {
        let life = self.nodes[&party].life;
        match packet {
            Packet::Poll(user, round) => self.poll(user, round),
            Packet::Letters(letters) => {
                for letter in letters {
                    if self.nodes[&party].life == life {
                        self.deliver(party, letter);
                    }
                }
            }
        }
    }

    /// Records what accomplices signed.
    fn note_forgeries(&mut self) {
        if let Some(Machine::Rogue(rogue)) = &mut self.node(PartyId::Aggregator).machine {
            let forged = std::mem::take(&mut rogue.forged);
            forged.into_iter().for_each(|(user, round, upload)| self.ledger.forged(user, round, upload));
        }
    }

    fn deliver(&mut self, party: PartyId, Letter { ended, forged, bytes }: Letter) {
        let (now, rng) = (Time(self.now), &mut self.rng);
        let Some(node) = self.nodes.get_mut(&party) else { return };
        let kind = Header::peek(&bytes).map(|header| header.kind);
        let is_ticket = kind == Ok(Kind::RoundTicket);
        let mut asking = None;
        let result = match &mut node.machine {
            Some(Machine::Aggregator(machine)) => {
                if kind == Ok(Kind::Upload) {
                    asking = UserId::new(u32::from_be_bytes(bytes[31..35].try_into().unwrap()));
                }
                machine.step(AggregatorEvent::Message(bytes), now, rng)
            }
            Some(Machine::Rogue(rogue)) => Ok(rogue.message(&bytes, now)),
            Some(Machine::KeyGenerator(machine)) => machine.step(KeyGeneratorEvent::Message(bytes), now, rng),
            Some(Machine::User(machine)) if is_ticket && !ended => {
                // the program hands in the model that it has computed
                let model = node.models[&machine.model().unwrap()].clone();
                machine.step(UserEvent::Begin { ticket: bytes, model }, now, rng)
            }
            Some(Machine::User(machine)) => machine.step(UserEvent::Message(bytes), now, rng),
            None => return,
        };
        self.asking = asking;
        if party == PartyId::KeyGenerator
            && let (Err(error), Ok(kind)) = (&result, kind)
        {
            self.refuse_aggregator(kind, error);
        }
        self.note_forgeries();
        if !(forged && result.is_err()) {
            self.answer(party, "message", result);
        }
        self.asking = None;
    }

    /// The aggregator's program sees that the key generator refuses a message.
    fn refuse_aggregator(&mut self, kind: Kind, error: &Error) {
        match self.node(PartyId::Aggregator).machine.as_mut() {
            Some(Machine::Rogue(rogue)) => rogue.refused(kind, error.code().as_str()),
            _ if error.code().as_str() == "set_difference" => {
                self.later(PartyId::Aggregator, 5, Job::GiveUp);
            }
            _ => {}
        }
    }

    /// The aggregator's program answers a user, from its archive if the user is more than one round behind.
    fn poll(&mut self, user: UserId, round: Round) {
        let (now, rng, world) = (Time(self.now), &mut self.rng, self.world);
        let party = PartyId::Aggregator;
        let (mut letters, actions) = match self.nodes.get_mut(&party).and_then(|node| node.machine.as_mut()) {
            Some(Machine::Aggregator(machine)) => {
                let event = AggregatorEvent::Poll { user, round };
                let actions = match machine.step(event, now, rng) {
                    Ok(actions) => actions,
                    Err(error) => return self.ledger.refused(party, "poll", &error),
                };
                let last = machine.ended().map(EndedRound::round);
                let mut letters = Vec::new();
                if let Some(old) = self.archive.get(&round).filter(|_| last != Some(round)) {
                    letters.extend(old.inclusion(user, &identity(party), &world.roster));
                    letters.extend(old.messages());
                }
                (letters, actions)
            }
            Some(Machine::Rogue(rogue)) => (rogue.poll(user, round), Vec::new()),
            _ => return,
        };
        letters.extend(actions.into_iter().filter_map(|action| match action {
            Action::Send { message, .. } => Some(message),
            _ => None,
        }));
        let to = PartyId::User(user);
        self.asking = Some(user);
        let mut all = Vec::new();
        for bytes in letters {
            self.ledger.send(party, to, &bytes);
            all.push(self.letter(bytes));
        }
        if self.plan.pull {
            self.transmit(party, to, Packet::Letters(all));
        } else {
            all.into_iter().for_each(|letter| self.transmit(party, to, Packet::Letters(vec![letter])));
        }
        self.asking = None;
    }

    /// Marks a message of a round that has ended.
    fn letter(&mut self, bytes: Vec<u8>) -> Letter {
        let round = Header::peek(&bytes).ok().and_then(|header| header.round);
        // an aggregator that does what it likes may lie about it
        let lies = self.plan.rogue && self.below(20) == 0;
        let current = match &self.nodes[&PartyId::Aggregator].machine {
            Some(Machine::Aggregator(machine)) => machine.round(),
            Some(Machine::Rogue(rogue)) if !lies => rogue.round(),
            _ => Round::FIRST,
        };
        Letter { ended: round.is_some_and(|round| round < current), forged: false, bytes }
    }

    fn work(&mut self, party: PartyId, job: Job) {
        let (now, rng) = (Time(self.now), &mut self.rng);
        let node = self.nodes.get_mut(&party).unwrap();
        match (node.machine.as_mut(), job) {
            (_, Job::Poll) => {
                if let Some(round) = node.waiting_poll.take() {
                    self.ask(party, round);
                }
            }
            (Some(Machine::Aggregator(machine)), Job::Start) => {
                if !machine.is_idle() {
                    return;
                }
                let model = Digest::of_model(base(&self.made, machine.round()));
                let result = machine.step(AggregatorEvent::Start { model, deadline: DEADLINE }, now, rng);
                self.answer(party, "start", result);
                if self.happens(self.plan.chaos.abort) {
                    let longest = if self.below(2) == 0 { 100 } else { 9_000 };
                    let after = self.below(longest);
                    self.later(party, after, Job::Abort);
                }
            }
            // an abort that was planned during faults is dropped after them
            (Some(Machine::Aggregator(_)), Job::Abort) if !self.rough => {}
            (Some(Machine::Aggregator(machine)), Job::Abort | Job::GiveUp) => {
                let result = machine.step(AggregatorEvent::Abort, now, rng);
                self.answer(party, "abort", result);
            }
            (Some(Machine::Aggregator(machine)), Job::NewModel(round, model)) => {
                self.made.insert(round.get(), model.clone());
                let result = machine.step(AggregatorEvent::NewModel { round, model }, now, rng);
                self.answer(party, "new model", result);
            }
            (Some(Machine::User(machine)), Job::Applied(round, model)) => {
                // the program stores the model before it hands it in
                node.models.insert(Digest::of_model(&model), model.clone());
                let result = machine.step(UserEvent::Applied { round, model }, now, rng);
                node.accepting = result.is_ok().then_some(round);
                let lied_to = result.as_ref().is_err_and(|error| error.code().as_str() == "model");
                self.answer(party, "applied", result);
                if lied_to {
                    // only a restart makes it ask for the sum again
                    self.crash(party, 500);
                }
            }
            (Some(Machine::User(machine)), Job::Update(round, input)) => {
                if machine.round() != round {
                    return;
                }
                let result = machine.step(UserEvent::Update { round, update: input.to_update() }, now, rng);
                for action in result.iter().flatten() {
                    if let Action::Send { message, .. } = action {
                        self.ledger.sealed(message, input.clone());
                    }
                }
                self.answer(party, "update", result);
            }
            _ => {}
        }
    }

    fn answer(&mut self, party: PartyId, event: &str, result: Result<Vec<Action>, Error>) {
        match result {
            Ok(actions) => {
                self.note(party);
                self.carry_out(party, actions);
            }
            Err(error) => self.ledger.refused(party, event, &error),
        }
    }

    // --- the actions of a party ---

    fn carry_out(&mut self, party: PartyId, mut actions: Vec<Action>) {
        if self.plan.sabotage == Sabotage::SendBeforeSync {
            actions.sort_by_key(|action| !matches!(action, Action::Send { .. } | Action::Announce(_)));
        }
        // a crash that happens after the messages that follow a write
        let mut pending: Option<(Mode, u64)> = None;
        for action in actions {
            match (action, pending) {
                (Action::Append(_) | Action::Replace(_), Some((_, away))) => return self.crash(party, away),
                (Action::Append(bytes), None) => {
                    let tag = bytes[8];
                    self.observe(party, tag, &bytes);
                    match self.write(Point { party, tag }, &bytes) {
                        Ok(then) => pending = then,
                        Err(away) => return self.crash(party, away),
                    }
                }
                (Action::Replace(bytes), None) => {
                    let written = self.write(Point { party, tag: 0 }, &bytes);
                    let node = self.node(party);
                    if let (PartyId::User(user), true) = (party, node.disk == *bytes)
                        && let Some(round) = node.accepting.take()
                    {
                        self.ledger.accepted(user, round);
                    }
                    match written {
                        Ok(then) => pending = then,
                        Err(away) => return self.crash(party, away),
                    }
                }
                (Action::Send { to, message }, _) => {
                    self.send(party, to, message);
                    if let Some((Mode::SentOne, away)) = pending {
                        return self.crash(party, away);
                    }
                }
                (Action::Announce(message), _) => {
                    for user in self.world.roster.users() {
                        self.send(party, PartyId::User(user), message.clone());
                        if let Some((Mode::SentOne, away)) = pending {
                            return self.crash(party, away);
                        }
                    }
                }
                (Action::Poll(round), _) => self.ask(party, round),
                (Action::Wake(Time(at)), _) => self.wake(party, at),
                (Action::Notify(notice), _) => self.notice(party, notice),
            }
        }
        if let Some((_, away)) = pending {
            return self.crash(party, away);
        }
        if matches!(party, PartyId::User(_)) && self.happens(self.plan.chaos.vanish) {
            self.outcome.vanished += 1;
            let away = 5_000 + self.below(40_000);
            self.crash(party, away);
        }
    }

    /// Polls the aggregator for a user, whose program waits for an answer before it asks again.
    fn ask(&mut self, party: PartyId, round: Round) {
        let PartyId::User(user) = party else { return };
        let now = self.now;
        let node = self.node(party);
        if node.next_poll > now {
            let (waits, after) = (node.waiting_poll.is_some(), node.next_poll - now);
            node.waiting_poll = Some(round);
            if !waits {
                self.later(party, after, Job::Poll);
            }
            return;
        }
        node.next_poll = now + POLL_INTERVAL;
        self.transmit(party, PartyId::Aggregator, Packet::Poll(user, round));
    }

    /// Tells the ledger of records that show what a party does, even if they never reach the disk.
    fn observe(&mut self, party: PartyId, tag: u8, record: &[u8]) {
        // length, complement and tag, then messages each with its length, then the head
        let message = |at: usize| {
            let mut rest = &record[9..record.len() - 32];
            for _ in 0..at {
                let length = u64::from_be_bytes(rest[..8].try_into().unwrap()) as usize;
                rest = &rest[8 + length..];
            }
            let length = u64::from_be_bytes(rest[..8].try_into().unwrap()) as usize;
            &rest[8..8 + length]
        };
        match (party, tag) {
            (PartyId::KeyGenerator, G_TICKET) => self.ledger.ticketed(message(1), self.now),
            (PartyId::KeyGenerator, G_FREEZE) => self.ledger.froze(message(0), self.now),
            (PartyId::KeyGenerator, G_RESULT) => self.ledger.opened(message(0)),
            (PartyId::User(user), U_TICKET) => {
                if let Some(Machine::User(machine)) = &self.nodes[&party].machine {
                    let ticket = machine.ticket().unwrap();
                    self.ledger.began(user, ticket);
                }
            }
            _ => {}
        }
    }

    fn send(&mut self, from: PartyId, to: PartyId, message: Vec<u8>) {
        self.ledger.send(from, to, &message);
        let is_upload = message[5] == Kind::Upload.number();
        if self.world.spec.garbage && is_upload && from == PartyId::User(self.world.last_user()) {
            self.send_garbage(from, to, &message);
        }
        let packet = Packet::Letters(vec![Letter { ended: false, forged: false, bytes: message }]);
        self.transmit(from, to, packet);
    }

    /// Sends the aggregator what a user must not send, besides its upload.
    fn send_garbage(&mut self, from: PartyId, to: PartyId, upload: &[u8]) {
        for _ in 0..=self.below(3) {
            let bytes = self.garbage(upload);
            let packet = Packet::Letters(vec![Letter { ended: false, forged: true, bytes }]);
            self.transmit(from, to, packet);
        }
    }

    /// Makes a wrong message from an upload.
    fn garbage(&mut self, upload: &[u8]) -> Vec<u8> {
        let at = self.below(upload.len() as u64) as usize;
        let mut bytes = upload.to_vec();
        match self.below(8) {
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes.truncate(at),
            2 => bytes.extend((0..=at).map(|i| i as u8)),
            3 => bytes = (0..at).map(|_| self.below(256) as u8).collect(),
            // said to be from another user, or of another kind
            4 => bytes[34] ^= 1 + self.below(7) as u8,
            5 => bytes[5] = self.below(17) as u8,
            _ => return self.forged_upload(upload).unwrap_or(bytes),
        }
        bytes
    }

    /// Signs an upload with random ciphertexts. Often something else is wrong with it, too.
    fn forged_upload(&mut self, upload: &[u8]) -> Option<Vec<u8>> {
        let (world, user) = (self.world, self.world.last_user());
        let task = world.roster.task();
        let signed: Signed<Upload> = Signed::decode(upload, &world.roster).ok()?;
        let ticket = self.ledger.ticket(signed.message().ticket)?;
        let (count, capacity) = (signed.message().count, task.capacity());
        // the body is the content, a key and a tag
        let mut content = vec![0; signed.body().len() - 48];
        self.rng.fill_bytes(&mut content);
        let masks = if task.receipts() == Receipts::Masked { 32 } else { 0 };
        let shards = if task.has_private_support() { count as usize / capacity } else { 0 };
        let (half, kind) = (world.key.modulus_bytes(), self.below(8));
        let mut rest = &mut content[masks..];
        for _ in 0..shards {
            let (indices, after) = rest.split_at_mut(4 * capacity);
            for (i, index) in indices.chunks_exact_mut(4).enumerate() {
                let index_of = if kind == 1 { capacity - i } else { i };
                index.copy_from_slice(&(index_of as u32).to_be_bytes());
            }
            let (ciphertexts, after) = after.split_at_mut(2 * half * capacity);
            ciphertexts.chunks_exact_mut(half).for_each(|digit| digit[0] &= 0x7f);
            rest = after;
        }
        rest.chunks_exact_mut(half).for_each(|digit| digit[0] &= 0x7f);
        let last = rest.len() - 2 * half;
        match kind {
            // out of range, without noise, and no unit
            2 => rest[last..].fill(0xff),
            3 => {
                rest[last + half..].fill(0);
                rest[last + 2 * half - 1] = 1;
            }
            4 => rest[last..].fill(0),
            5 => content.push(0),
            _ => {}
        }
        let count = if kind == 6 { count + 1 } else { count };
        let (identity, salt) = (identity(PartyId::User(user)), [7; 16]);
        let rng = &mut self.rng;
        let forged =
            sign_upload(&identity, &world.roster, user, &ticket, (count, salt), &content, rng).ok()?;
        self.ledger.forged(user, forged.round(), forged.message().clone());
        Some(forged.to_bytes())
    }

    /// Writes as far as the mode allows, and returns a crash that happens later, if any.
    fn write(&mut self, point: Point, bytes: &[u8]) -> Result<Option<(Mode, u64)>, u64> {
        self.outcome.writes.push(point);
        let (now, length, appends) = (self.now, bytes.len(), point.tag != 0);
        if self.nodes[&point.party].full > now {
            self.outcome.full += 1;
            return Err(FULL_AWAY);
        }
        let crash = self.planned(point).or_else(|| self.random_crash());
        let full_for = 500 + if self.rough { self.below(4_000) } else { 0 };
        let keep_copies = self.plan.restore.is_some();
        let node = self.node(point.party);
        let put = |disk: &mut Vec<u8>, cut: usize| {
            if appends {
                disk.extend_from_slice(&bytes[..cut]);
            } else {
                *disk = bytes.to_vec();
            }
        };
        let cut = |parts: u32| (length * parts as usize / 1024).clamp(1, length - 1);
        let written = match crash {
            None => {
                put(&mut node.disk, length);
                Ok(None)
            }
            Some((Mode::Lost, away)) => Err(away),
            Some((Mode::Torn(parts), away)) => {
                put(&mut node.disk, cut(parts));
                Err(away)
            }
            Some((Mode::Full(parts), _)) => {
                if appends && parts > 0 {
                    put(&mut node.disk, cut(parts));
                }
                node.full = now + full_for;
                self.outcome.full += 1;
                Err(FULL_AWAY)
            }
            Some((Mode::Blank(parts), away)) => {
                let before = node.disk.len();
                // file systems tear writes between sectors; a cut within the hash is treated as one before it
                put(&mut node.disk, cut(parts).min(length - 32).max(8));
                if appends {
                    node.disk.resize(before + length, 0);
                }
                Err(away)
            }
            Some((Mode::Synced, away)) => {
                put(&mut node.disk, length);
                Err(away)
            }
            Some((mode @ (Mode::SentOne | Mode::Sent), away)) => {
                put(&mut node.disk, length);
                Ok(Some((mode, away)))
            }
        };
        if keep_copies {
            let node = self.node(point.party);
            node.copies.push((now, node.disk.clone()));
        }
        written
    }

    fn planned(&mut self, point: Point) -> Option<(Mode, u64)> {
        let next = self.plan.crashes.first_mut().filter(|crash| crash.point == point)?;
        if next.skip > 0 {
            next.skip -= 1;
            return None;
        }
        let crash = self.plan.crashes.remove(0);
        Some((crash.mode, crash.away))
    }

    fn random_crash(&mut self) -> Option<(Mode, u64)> {
        let parts = self.below(1024) as u32;
        if self.happens(self.plan.chaos.full) {
            return Some((Mode::Full(parts.saturating_sub(300)), 0));
        }
        if !self.happens(self.plan.chaos.crash) {
            return None;
        }
        let modes =
            [Mode::Lost, Mode::Torn(parts), Mode::Blank(parts), Mode::Synced, Mode::SentOne, Mode::Sent];
        let mode = modes[self.below(modes.len() as u64) as usize];
        Some((mode, self.below(3_000)))
    }

    fn transmit(&mut self, from: PartyId, to: PartyId, packet: Packet) {
        if self.plan.pull
            && from == PartyId::Aggregator
            && matches!(to, PartyId::User(user) if self.asking != Some(user))
        {
            return;
        }
        if self.happens(self.plan.chaos.loss) {
            self.outcome.lost += 1;
            return;
        }
        let mut after = 1 + self.below(30);
        if self.happens(self.plan.chaos.slow) {
            self.outcome.slow += 1;
            after += self.below(12_000);
        }
        // messages are duplicated even without other faults
        if self.plan.duplicate > 0 && self.below(1_000) < self.plan.duplicate {
            self.outcome.duplicated += 1;
            let after = after + self.below(3_000);
            self.at(after, Event::Packet { to, packet: packet.clone() });
        }
        self.at(after, Event::Packet { to, packet });
    }

    fn wake(&mut self, party: PartyId, at: u64) {
        let (latest, now) = (self.plan.latest_alarm, self.now);
        let node = self.node(party);
        let at = at.max(now);
        let at = node.alarm.filter(|&earlier| !latest && earlier < at).unwrap_or(at);
        if node.alarm != Some(at) {
            node.alarm = Some(at);
            let life = node.life;
            self.at(at - now, Event::Alarm { party, life, at });
        }
    }

    fn notice(&mut self, party: PartyId, notice: Notice) {
        match (notice, party) {
            (Notice::Train { round, support }, PartyId::User(user)) => {
                let node = self.node(party);
                let life = node.life;
                if node.trained == Some((life, round)) {
                    self.outcome.trained_twice += 1;
                }
                self.node(party).trained = Some((life, round));
                let who = match (self.plan.sabotage, user.get()) {
                    (Sabotage::WrongUpdate, 2) => UserId::new(1).unwrap(),
                    _ => user,
                };
                let mut input = self.world.input(who, round, life, &support);
                input.dense += match user.get() {
                    1 => self.plan.shift,
                    2 => -self.plan.shift,
                    _ => 0,
                };
                let slow = self.rough && self.plan.rounds > 1;
                let after = 100 + self.below(if slow { 3_000 } else { 300 });
                if !self.happens(self.plan.chaos.idle) {
                    self.later(party, after, Job::Update(round, input));
                }
            }
            (Notice::Opened { sum, .. }, PartyId::Aggregator) => {
                self.ledger.received(&sum);
                let model = base(&self.made, sum.round());
                let model = if self.plan.same_model { model.to_vec() } else { next_model(model, &sum) };
                self.later(party, 20, Job::NewModel(sum.round(), model));
            }
            (Notice::Apply { sum }, PartyId::User(user)) => {
                let round = sum.round();
                let same_model = self.plan.same_model;
                let node = self.node(party);
                let Some(Machine::User(machine)) = &node.machine else { return };
                let model = &node.models[&machine.model().unwrap()];
                let model = if same_model { model.clone() } else { next_model(model, &sum) };
                self.ledger.applied(user, sum);
                self.later(party, 20, Job::Applied(round, model));
            }
            (Notice::Finished { .. }, PartyId::Aggregator) => self.later(party, 50, Job::Start),
            (Notice::Finished { round, ending: Some(ending), included, model }, PartyId::User(user)) => {
                let acknowledged = self.node(party).acknowledged == Some(round);
                self.ledger.finished(user, round, ending, (included, acknowledged), model.as_deref());
            }
            (notice, party) => self.ledger.violation(format!("{party:?} is told {notice:?}")),
        }
    }
}

/// Returns the model that a round starts from: the one of the latest published round before it.
fn base(made: &BTreeMap<u64, Vec<u8>>, round: Round) -> &[u8] {
    made.range(..round.get()).next_back().map(|(_, model)| &model[..]).unwrap_or_default()
}

impl Node {
    fn new(world: &World) -> Self {
        let model = world.first_model();
        Self { models: BTreeMap::from([(Digest::of_model(&model), model)]), ..Self::default() }
    }

    fn describe(&self) -> String {
        let (round, what) = match &self.machine {
            None => return "down".into(),
            Some(Machine::Aggregator(party)) => (party.round(), party.phase().to_string()),
            Some(Machine::KeyGenerator(party)) => (party.round(), party.phase().to_string()),
            Some(Machine::User(party)) => (party.round(), party.phase().to_string()),
            Some(Machine::Rogue(rogue)) => (rogue.round(), "rogue".into()),
        };
        format!("round {round} {what} alarm {:?}", self.alarm)
    }
}
