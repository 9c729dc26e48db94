//! The simulation: parties, disks, a network and a clock in one thread, driven by one seed.

use std::collections::BTreeMap;

use dphe::party::log::Log;
use dphe::party::{
    Action, AggregatorEvent, AggregatorParty, KeyGeneratorEvent, KeyGeneratorParty, Notice, Party as _, Time,
    UserEvent, UserParty,
};
use dphe::wire::{Ending, Header, Kind, RoundTicket, Signed};
use dphe::{Digest, Error, PartyId, Round, UserId};
use rand_core::Rng as _;

use crate::ledger::Ledger;
use crate::world::{Input, World, rng};

pub(crate) type Rng = chacha20::ChaCha8Rng;

pub(crate) enum Machine {
    Aggregator(Box<AggregatorParty>),
    KeyGenerator(Box<KeyGeneratorParty>),
    User(Box<UserParty>),
}

/// A point at which a party writes: the tag of the record, or 0 for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) party: PartyId,
    pub(crate) tag: u8,
}

/// The prefix of a log.
pub(crate) const PREFIX: u8 = 255;
/// The tags of records that sabotage removes.
const A_UPLOAD: u8 = 3;
const G_FREEZE: u8 = 2;
const G_COMMIT: u8 = 3;
const G_RESULT: u8 = 4;

/// How far a party gets with a write, and with the messages after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    BeforeWrite,
    /// Written but not synced, and lost.
    Lost,
    /// This many parts in 1024 of an append reached the disk, and the rest is missing. A replacement is complete.
    Torn(u32),
    /// The same, but the file has its full length, and the rest is zeros.
    Blank(u32),
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
    /// A user disappears for long after a step.
    pub(crate) vanish: u64,
    /// The program aborts a round.
    pub(crate) abort: u64,
    /// A user's program does not hand in an update.
    pub(crate) idle: u64,
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
    /// The aggregator cannot reach users, who only get answers to their own requests.
    pub(crate) pull: bool,
    /// Whether the latest wake-up counts, instead of the earliest.
    pub(crate) latest_alarm: bool,
    /// The model never changes, so that the differencing rule applies.
    pub(crate) same_model: bool,
    pub(crate) sabotage: Sabotage,
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
    pub(crate) aborted: u64,
    pub(crate) crashes: u64,
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
}

enum Packet {
    Message(Vec<u8>),
    Poll(UserId, Round),
}

/// What the program that runs a party does later.
enum Job {
    Start,
    /// The operator ends the round.
    Abort,
    /// The program aborts the round, because the key generator refuses the set.
    GiveUp,
    NewModel(Vec<u8>),
    Update(Round, Input),
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
}

#[derive(Default)]
struct Node {
    machine: Option<Machine>,
    disk: Vec<u8>,
    life: u64,
    alarm: Option<u64>,
    trained: Option<(u64, Round)>,
}

pub(crate) struct Sim<'w> {
    world: &'w World,
    plan: Plan,
    rng: Rng,
    now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    nodes: BTreeMap<PartyId, Node>,
    ledger: Ledger,
    outcome: Outcome,
    /// Whether faults still happen.
    rough: bool,
    /// All models by digest, in the store of the program.
    models: BTreeMap<Digest, Vec<u8>>,
    /// The model computed from the sum of a round.
    made: BTreeMap<u64, Digest>,
    /// The user whose request is being answered.
    asking: Option<UserId>,
}

/// How long the aggregator collects, in milliseconds.
const DEADLINE: u64 = 7_000;
/// The largest number of events from the end of the faults to the end of the run.
const PATIENCE: u64 = 3_000;
const FIRST_MODEL: &[u8] = b"model 0";

impl<'w> Sim<'w> {
    /// Runs a plan to its end.
    pub(crate) fn run(world: &'w World, plan: Plan) -> Outcome {
        let mut sim = Self {
            world,
            rng: rng(plan.seed),
            now: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            nodes: world.parties().into_iter().map(|party| (party, Node::default())).collect(),
            ledger: Ledger::default(),
            outcome: Outcome::default(),
            rough: true,
            models: BTreeMap::from([(Digest::of_model(FIRST_MODEL), FIRST_MODEL.to_vec())]),
            made: BTreeMap::new(),
            asking: None,
            plan,
        };
        for party in world.parties() {
            sim.boot(party);
        }
        sim.kills();
        sim.rough_part();
        sim.calm_part();
        sim.ledger.close();
        for ending in sim.ledger.endings() {
            match ending {
                Ending::Published => sim.outcome.published += 1,
                Ending::Failed => sim.outcome.failed += 1,
                Ending::Aborted => sim.outcome.aborted += 1,
            }
        }
        sim.outcome.unhappened = sim.plan.crashes.len();
        sim.outcome.violations = sim.ledger.violations;
        sim.outcome
    }

    /// Runs until every planned fault has happened.
    fn rough_part(&mut self) {
        let (rounds, steps) = (self.plan.rounds.max(1), 20_000);
        for _ in 0..steps {
            let over = self.ended() >= rounds && (self.plan.crashes.is_empty() || self.ended() >= rounds + 3);
            if over || self.is_broken() || !self.next() {
                break;
            }
        }
        if self.ended() < rounds && self.ledger.violations.is_empty() {
            self.ledger.violation(format!("I7: stuck in round {} while faults go on", self.ended() + 1));
        }
    }

    /// Runs without faults until the current round ends and one of the next two has all users in it.
    fn calm_part(&mut self) {
        self.rough = false;
        let from = self.ended() + 1 + u64::from(!self.is_idle());
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
                return;
            }
            if !self.next() {
                break;
            }
        }
        let states: Vec<String> =
            self.nodes.iter().map(|(party, node)| format!("{party:?}: {}", node.describe())).collect();
        let text = format!("I7: no full round since round {from}; {}", states.join("; "));
        self.ledger.violation(text);
    }

    /// Returns whether the run can stop. Sabotage is given time to take effect.
    fn is_broken(&self) -> bool {
        self.plan.sabotage == Sabotage::Nothing && !self.ledger.violations.is_empty()
    }

    fn is_well(&self, from: u64) -> bool {
        let roster = &self.world.roster;
        let last = (from..from + 2).filter_map(Round::new).rev().find(|&round| {
            // if the model does not change, a full set may differ by one user from an opened one
            if self.plan.same_model || self.world.loud {
                self.ledger.ending(round).is_some()
            } else {
                self.ledger.is_full(round, roster)
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
        }
        true
    }

    fn node(&mut self, party: PartyId) -> &mut Node {
        self.nodes.get_mut(&party).unwrap()
    }

    // --- the program around a party ---

    /// Starts a party from its disk.
    fn boot(&mut self, party: PartyId) {
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
        self.carry_out(party, actions);
        if party == PartyId::Aggregator && self.is_idle() {
            self.later(party, 50, Job::Start);
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

    fn crash(&mut self, party: PartyId, away: u64) {
        self.outcome.crashes += 1;
        let node = self.node(party);
        node.machine = None;
        node.alarm = None;
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
        };
        self.answer(party, "tick", result);
    }

    fn receive(&mut self, party: PartyId, packet: Packet) {
        let (now, rng, models, world) = (Time(self.now), &mut self.rng, &self.models, self.world);
        let mut asking = None;
        let mut name = "message";
        let result = match (self.nodes.get_mut(&party).and_then(|node| node.machine.as_mut()), packet) {
            (Some(Machine::Aggregator(party)), Packet::Poll(user, round)) => {
                asking = Some(user);
                name = "poll";
                party.step(AggregatorEvent::Poll { user, round }, now, rng)
            }
            (Some(Machine::Aggregator(party)), Packet::Message(bytes)) => {
                if Header::peek(&bytes).is_ok_and(|header| header.kind == Kind::Upload) {
                    asking = UserId::new(u32::from_be_bytes(bytes[31..35].try_into().unwrap()));
                }
                party.step(AggregatorEvent::Message(bytes), now, rng)
            }
            (Some(Machine::KeyGenerator(party)), Packet::Message(bytes)) => {
                party.step(KeyGeneratorEvent::Message(bytes), now, rng)
            }
            (Some(Machine::User(party)), Packet::Message(bytes)) => {
                if Header::peek(&bytes).is_ok_and(|header| header.kind == Kind::RoundTicket) {
                    // the program fetches the model of the ticket
                    let ticket: Signed<RoundTicket> = Signed::decode(&bytes, &world.roster).unwrap();
                    let model = models[&ticket.message().model].clone();
                    party.step(UserEvent::Begin { ticket: bytes, model }, now, rng)
                } else {
                    party.step(UserEvent::Message(bytes), now, rng)
                }
            }
            _ => return,
        };
        self.asking = asking;
        if party == PartyId::KeyGenerator
            && result.as_ref().is_err_and(|error| error.code().as_str() == "set_difference")
        {
            // the aggregator's program sees the refusal and aborts the round
            self.later(PartyId::Aggregator, 5, Job::GiveUp);
        }
        self.answer(party, name, result);
        self.asking = None;
    }

    fn work(&mut self, party: PartyId, job: Job) {
        let (now, rng) = (Time(self.now), &mut self.rng);
        let machine = self.nodes.get_mut(&party).and_then(|node| node.machine.as_mut());
        match (machine, job) {
            (Some(Machine::Aggregator(machine)), Job::Start) => {
                if !machine.is_idle() {
                    return;
                }
                let round = machine.round().get();
                // the model of the latest published round
                let model = self.made.range(..round).next_back().map(|(_, &model)| model);
                let model = model.unwrap_or_else(|| Digest::of_model(FIRST_MODEL));
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
            (Some(Machine::Aggregator(machine)), Job::NewModel(model)) => {
                let round = machine.round().get();
                self.models.insert(Digest::of_model(&model), model.clone());
                self.made.insert(round, Digest::of_model(&model));
                let event = AggregatorEvent::NewModel { round: machine.round(), model };
                let result = machine.step(event, now, rng);
                self.answer(party, "new model", result);
            }
            (Some(Machine::User(machine)), Job::Update(round, input)) => {
                if machine.round() != round {
                    return;
                }
                let result = machine.step(UserEvent::Update { round, update: input.to_update() }, now, rng);
                for action in result.iter().flatten() {
                    if let Action::Send { message, .. } = action {
                        self.ledger.sealed(message, input.clone(), &self.world.roster);
                    }
                }
                self.answer(party, "update", result);
            }
            _ => {}
        }
    }

    fn answer(&mut self, party: PartyId, event: &str, result: Result<Vec<Action>, Error>) {
        match result {
            Ok(actions) => self.carry_out(party, actions),
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
            match (&action, pending) {
                (Action::Append(_) | Action::Replace(_), Some((_, away))) => return self.crash(party, away),
                (Action::Append(bytes), None) => {
                    let tag = if bytes.starts_with(b"DPHELOG1") { PREFIX } else { bytes[8] };
                    if party == PartyId::KeyGenerator && tag == G_RESULT {
                        self.ledger.opened(&bytes[8 + 1 + 8..bytes.len() - 32], self.world);
                    }
                    match self.write(
                        Point { party, tag },
                        |disk, cut| disk.extend_from_slice(&bytes[..cut]),
                        bytes.len(),
                    ) {
                        Ok(then) => pending = then,
                        Err(away) => return self.crash(party, away),
                    }
                }
                (Action::Replace(bytes), None) => {
                    let replace = |disk: &mut Vec<u8>, cut| {
                        if cut > 0 {
                            *disk = bytes.to_vec();
                        }
                    };
                    match self.write(Point { party, tag: 0 }, replace, bytes.len()) {
                        Ok(then) => pending = then,
                        Err(away) => return self.crash(party, away),
                    }
                }
                (Action::Send { to, message }, _) => {
                    self.send(party, *to, message);
                    if let Some((Mode::SentOne, away)) = pending {
                        return self.crash(party, away);
                    }
                }
                (Action::Announce(message), _) => {
                    for user in self.world.roster.users() {
                        self.send(party, PartyId::User(user), message);
                        if let Some((Mode::SentOne, away)) = pending {
                            return self.crash(party, away);
                        }
                    }
                }
                (Action::Poll(round), _) => {
                    let PartyId::User(user) = party else { continue };
                    self.transmit(party, PartyId::Aggregator, Packet::Poll(user, *round));
                }
                (Action::Wake(Time(at)), _) => self.wake(party, *at),
                (Action::Notify(_), _) => {
                    let Action::Notify(notice) = action else { continue };
                    self.notice(party, notice);
                }
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

    fn send(&mut self, from: PartyId, to: PartyId, message: &[u8]) {
        self.ledger.send(from, to, message, &self.world.roster);
        self.transmit(from, to, Packet::Message(message.to_vec()));
    }

    /// Writes as far as the mode allows, and returns a crash that happens later, if any.
    fn write(
        &mut self,
        point: Point,
        put: impl Fn(&mut Vec<u8>, usize),
        length: usize,
    ) -> Result<Option<(Mode, u64)>, u64> {
        self.outcome.writes.push(point);
        let crash = self.planned(point).or_else(|| self.random_crash());
        let disk = &mut self.node(point.party).disk;
        let cut = |parts: u32| (length * parts as usize / 1024).clamp(1, length - 1);
        match crash {
            None => {
                put(disk, length);
                Ok(None)
            }
            Some((Mode::BeforeWrite | Mode::Lost, away)) => Err(away),
            Some((Mode::Torn(parts), away)) => {
                put(disk, cut(parts));
                Err(away)
            }
            Some((Mode::Blank(parts), away)) => {
                let (before, tag) = (disk.len(), point.tag);
                // file systems tear writes between sectors; a cut within the hash is treated as one before it
                let cut = cut(parts).min(length - 32).max(8);
                put(disk, if tag == PREFIX { 1 } else { cut });
                if tag == PREFIX {
                    disk.clear();
                }
                if tag != 0 {
                    disk.resize(before + length, 0);
                }
                Err(away)
            }
            Some((Mode::Synced, away)) => {
                put(disk, length);
                Err(away)
            }
            Some((mode @ (Mode::SentOne | Mode::Sent), away)) => {
                put(disk, length);
                Ok(Some((mode, away)))
            }
        }
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
        if !self.happens(self.plan.chaos.crash) {
            return None;
        }
        let parts = self.below(1024) as u32;
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
        let again = match &packet {
            Packet::Message(bytes) => Packet::Message(bytes.clone()),
            Packet::Poll(user, round) => Packet::Poll(*user, *round),
        };
        let mut after = 1 + self.below(30);
        if self.happens(self.plan.chaos.slow) {
            self.outcome.slow += 1;
            after += self.below(12_000);
        }
        self.at(after, Event::Packet { to, packet });
        // messages are duplicated even without other faults
        if self.plan.duplicate > 0 && self.below(1_000) < self.plan.duplicate {
            self.outcome.duplicated += 1;
            let after = after + self.below(3_000);
            self.at(after, Event::Packet { to, packet: again });
        }
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
                let input = self.world.input(who, round, life, &support);
                let slow = self.rough && self.plan.rounds > 1;
                let after = 100 + self.below(if slow { 3_000 } else { 300 });
                if !self.happens(self.plan.chaos.idle) {
                    self.later(party, after, Job::Update(round, input));
                }
            }
            (Notice::Opened { sum, .. }, PartyId::Aggregator) => {
                let model = if self.plan.same_model {
                    FIRST_MODEL.to_vec()
                } else {
                    let sums = sum.weights().iter().chain(sum.dense());
                    [sum.round().get()]
                        .into_iter()
                        .map(|round| round as i64)
                        .chain(sums.copied())
                        .flat_map(i64::to_be_bytes)
                        .collect()
                };
                self.later(party, 20, Job::NewModel(model));
            }
            (Notice::Finished { .. }, PartyId::Aggregator) => self.later(party, 50, Job::Start),
            // the user heard of a later round first
            (Notice::Finished { ending: None, .. }, PartyId::User(_)) => {}
            (Notice::Finished { round, ending: Some(ending), included, model }, PartyId::User(user)) => {
                self.ledger.finished(user, round, ending, included, model.as_deref());
            }
            (notice, party) => self.ledger.violation(format!("{party:?} is told {notice:?}")),
        }
    }
}

impl Node {
    fn describe(&self) -> String {
        let (round, what) = match &self.machine {
            None => return "down".into(),
            Some(Machine::Aggregator(party)) => {
                (party.round(), if party.is_idle() { "idle" } else { "busy" })
            }
            Some(Machine::KeyGenerator(party)) => (party.round(), ""),
            Some(Machine::User(party)) => (party.round(), ""),
        };
        format!("round {round} {what} alarm {:?}", self.alarm)
    }
}
