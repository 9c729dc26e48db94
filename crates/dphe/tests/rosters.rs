//! Rosters that replace others within a task: members leave or get a new identity between rounds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;

use chacha20::ChaCha20Rng;
use dphe::hazmat::short_keys;
use dphe::party::{
    Action, AggregatorEvent, AggregatorParty, ChangedRoster, IdentityKeys, Intake, KeyGeneratorEvent,
    KeyGeneratorParty, Notice, Party, PartyContext, UserEvent, UserParty,
};
use dphe::wire::{RosterChange, RosterEdits, Rosters};
use dphe::{
    Digest, Error, Identity, IdentityKey, PartyId, Profile, PublicSupport, Roster, Round, Update, UserKeys,
    WeightSum,
};
use support::world::sent;
use support::{MODEL, NOW, ONE, Parties, config, identity, identity_seed, rng, round, update, user_id};

const A: PartyId = PartyId::Aggregator;
const G: PartyId = PartyId::KeyGenerator;

fn user(n: u32) -> PartyId {
    PartyId::User(user_id(n))
}

/// A party with the log that it has stored.
struct Node<P> {
    party: P,
    log: Vec<u8>,
}

fn store(log: &mut Vec<u8>, actions: &[Action]) {
    for action in actions {
        match action {
            Action::Append(bytes) => log.extend(bytes),
            Action::Replace(bytes) => *log = bytes.to_vec(),
            _ => {}
        }
    }
}

impl<P: Party> Node<P> {
    fn start(
        keys: P::Keys,
        identity: IdentityKeys,
        rosters: &Rosters,
        mut log: Vec<u8>,
    ) -> Result<Self, Error> {
        let before = log.clone();
        let context = PartyContext { identity, rosters: rosters.clone(), log: &before, threads: ONE };
        let (party, actions) = P::start(keys, context, NOW)?;
        store(&mut log, &actions);
        Ok(Self { party, log })
    }

    fn step(&mut self, event: P::Event, rng: &mut ChaCha20Rng) -> Result<Vec<Action>, Error> {
        let actions = self.party.step(event, NOW, rng)?;
        store(&mut self.log, &actions);
        Ok(actions)
    }
}

/// All parties of a task, which restart from their logs when the roster changes.
struct Task {
    parties: Parties,
    /// What every party has been given.
    rosters: Rosters,
    /// The identity seeds of parties, the present one last.
    seeds: BTreeMap<PartyId, Vec<[u8; 32]>>,
    generator: Node<KeyGeneratorParty>,
    aggregator: Node<AggregatorParty>,
    users: BTreeMap<u32, Node<UserParty>>,
    /// The keys and the first roster of each user.
    keys: BTreeMap<u32, (UserKeys, Rosters)>,
    model: Vec<u8>,
    /// The sum that was opened last.
    opened: Option<WeightSum>,
    rng: ChaCha20Rng,
}

impl Task {
    fn new(profile: Profile, users: u32) -> Self {
        let parties = Parties::new(config(profile), users);
        let rosters = Rosters::from(parties.roster.clone());
        let parts = || (&rosters, Vec::new());
        let generator = Node::start(parties.key_generator(), identity(G).into(), parts().0, parts().1);
        let keys = parties.roles.key_generator.aggregator_keys();
        let aggregator = Node::start(keys, identity(A).into(), parts().0, parts().1);
        let keys: BTreeMap<u32, _> =
            (1..=users).map(|n| (n, (parties.user_keys[&user_id(n)].clone(), rosters.clone()))).collect();
        let start = |(&n, (keys, _)): (&u32, &(UserKeys, _))| {
            (n, Node::start(keys.clone(), identity(user(n)).into(), &rosters, Vec::new()).unwrap())
        };
        let users = keys.iter().map(start).collect();
        let seeds = [A, G].into_iter().chain(keys.keys().map(|&n| user(n)));
        Self {
            seeds: seeds.map(|party| (party, vec![identity_seed(party)])).collect(),
            generator: generator.unwrap(),
            aggregator: aggregator.unwrap(),
            users,
            keys,
            parties,
            rosters,
            model: MODEL.to_vec(),
            opened: None,
            rng: rng(17),
        }
    }

    fn identities(&self, party: PartyId) -> IdentityKeys {
        let mut keys: Vec<IdentityKey> = self.seeds[&party].iter().map(IdentityKey::from_seed).collect();
        IdentityKeys::new(keys.pop().unwrap(), keys)
    }

    fn ask_generator(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, Error> {
        let mut actions = self.generator.step(KeyGeneratorEvent::Message(message), &mut self.rng)?;
        if actions.iter().any(|action| matches!(action, Action::Wake(_))) {
            actions.extend(self.generator.step(KeyGeneratorEvent::Tick, &mut self.rng)?);
        }
        Ok(sent(actions))
    }

    /// Lets the aggregator take a step, and the key generator answer all that it sends. Returns the other actions.
    fn aggregator(&mut self, event: AggregatorEvent) -> Result<Vec<Action>, Error> {
        let (mut others, mut events) = (Vec::new(), vec![event]);
        while let Some(event) = events.pop() {
            for action in self.aggregator.step(event, &mut self.rng)? {
                match action {
                    Action::Send { to: G, message } => {
                        events.extend(self.ask_generator(message)?.into_iter().map(AggregatorEvent::Message));
                    }
                    Action::Notify(Notice::Opened { sum, .. }) => self.opened = Some(sum),
                    other => others.push(other),
                }
            }
        }
        Ok(others)
    }

    /// Announces a round, and returns its ticket.
    fn ticket(&mut self) -> Result<Vec<u8>, Error> {
        let start = AggregatorEvent::Start { model: Digest::of_model(&self.model), deadline: 1000 };
        let actions = self.aggregator(start)?;
        let ticket = actions.into_iter().find_map(|action| match action {
            Action::Announce(ticket) => Some(ticket),
            _ => None,
        });
        Ok(ticket.unwrap())
    }

    /// Gives every user another weight. In `full`, its place follows the public support.
    fn update(&self, n: u32) -> Update {
        let (task, round) = (self.rosters.first().task(), self.aggregator.party.round());
        let at = match task.has_private_support() {
            true => n,
            false => PublicSupport::of(task, round).indices().nth(n as usize).unwrap() as u32,
        };
        update(24, &[(at, f64::from(n) / 16.0)], &[0.5, f64::from(n) / 8.0])
    }

    fn upload(&mut self, n: u32, ticket: &[u8]) -> Result<(), Error> {
        let (update, model) = (self.update(n), self.model.clone());
        let node = self.users.get_mut(&n).unwrap();
        node.step(UserEvent::Begin { ticket: ticket.to_vec(), model }, &mut self.rng)?;
        let round = node.party.round();
        let upload = sent(node.step(UserEvent::Update { round, update }, &mut self.rng)?).remove(0);
        let ack = sent(self.aggregator(AggregatorEvent::Message(upload))?).remove(0);
        self.users.get_mut(&n).unwrap().step(UserEvent::Message(ack), &mut self.rng).map(drop)
    }

    /// Ends the round of a ticket with these uploads, and publishes a model. All other users follow.
    fn finish(&mut self, ticket: &[u8], uploads: &[u32]) -> Result<WeightSum, Error> {
        for &n in uploads {
            self.upload(n, ticket)?;
        }
        // the last upload of all users freezes the round
        if self.opened.is_none() {
            self.aggregator(AggregatorEvent::Freeze)?;
        }
        let sum = self.opened.take().unwrap();
        let round = sum.round();
        self.model = format!("the model after round {round}").into_bytes();
        self.aggregator(AggregatorEvent::NewModel { round, model: self.model.clone() })?;
        for n in self.users.keys().copied().collect::<Vec<_>>() {
            self.follow(n)?;
        }
        Ok(sum)
    }

    /// A user takes what the aggregator has for it.
    fn follow(&mut self, n: u32) -> Result<(), Error> {
        let poll = AggregatorEvent::Poll { user: user_id(n), round: self.users[&n].party.round() };
        for message in sent(self.aggregator(poll)?) {
            let node = self.users.get_mut(&n).unwrap();
            for action in node.step(UserEvent::Message(message), &mut self.rng)? {
                if let Action::Notify(Notice::Apply { sum }) = action {
                    let event = UserEvent::Applied { round: sum.round(), model: self.model.clone() };
                    // the close message that follows is not needed any more
                    return node.step(event, &mut self.rng).map(drop);
                }
            }
        }
        Ok(())
    }

    /// Runs a round in which all users but `absent` upload, and compares the sum with the plain one.
    fn round(&mut self, absent: &[u32]) {
        let ticket = self.ticket().unwrap();
        self.check_sum(&ticket, absent);
    }

    fn check_sum(&mut self, ticket: &[u8], absent: &[u32]) {
        let taking: Vec<u32> = self.users.keys().copied().filter(|n| !absent.contains(n)).collect();
        let updates: Vec<Update> = taking.iter().map(|&n| self.update(n)).collect();
        let sum = self.finish(ticket, &taking).unwrap();
        assert_eq!(sum.users(), taking.len());
        let total: f64 = updates.iter().map(|update| update.weights().values().iter().sum::<f64>()).sum();
        assert_eq!(sum.decode_weights().iter().sum::<f64>(), total);
        assert_eq!(sum.decode_dense()[0], 0.5 * taking.len() as f64);
    }

    /// The key generator signs a new roster and remembers it. Nobody else has it yet.
    fn sign(&mut self, edits: &RosterEdits) -> Result<ChangedRoster, Error> {
        let changed = self.generator.party.change_roster(edits, &mut self.rng)?;
        store(&mut self.generator.log, &changed.actions);
        for keys in &changed.user_keys {
            let n = keys.user().get();
            self.keys.insert(n, (keys.clone(), changed.change.roster().clone().into()));
        }
        self.rosters.add(changed.change.as_bytes(), short_keys())?;
        Ok(changed)
    }

    fn restart_generator(&mut self) -> Result<(), Error> {
        let log = self.generator.log.clone();
        self.generator = Node::start(self.parties.key_generator(), identity(G).into(), &self.rosters, log)?;
        Ok(())
    }

    fn restart_aggregator(&mut self) -> Result<(), Error> {
        let (keys, log) = (self.parties.roles.key_generator.aggregator_keys(), self.aggregator.log.clone());
        self.aggregator = Node::start(keys, self.identities(A), &self.rosters, log)?;
        Ok(())
    }

    /// A user restarts with all rosters that it may know.
    fn restart_user(&mut self, n: u32) -> Result<(), Error> {
        let (keys, first) = self.keys[&n].clone();
        let mut rosters = first;
        for change in self.rosters.changes().to_vec() {
            if change.roster().epoch() > rosters.latest().epoch() {
                rosters.add(change.as_bytes(), short_keys())?;
            }
        }
        let log = self.users.get(&n).map(|node| node.log.clone()).unwrap_or_default();
        self.users.insert(n, Node::start(keys, self.identities(user(n)), &rosters, log)?);
        Ok(())
    }

    /// Everybody restarts with the new roster. Users with a new identity start with an empty log.
    fn apply(&mut self, changed: &ChangedRoster) {
        self.restart_generator().unwrap();
        self.restart_aggregator().unwrap();
        self.users.retain(|&n, _| changed.change.roster().contains(user_id(n)));
        for n in self.users.keys().copied().collect::<Vec<_>>() {
            if changed.change.replaced().contains(&user_id(n)) {
                self.users.remove(&n);
            }
            self.restart_user(n).unwrap();
        }
    }

    fn replace(&mut self, party: PartyId, seed: u8) -> Identity {
        self.seeds.get_mut(&party).unwrap().push([seed; 32]);
        IdentityKey::from_seed(&[seed; 32]).identity()
    }
}

fn without(users: &[u32]) -> RosterEdits {
    RosterEdits { removed: users.iter().map(|&n| user_id(n)).collect(), ..RosterEdits::default() }
}

/// In both profiles with receipts, a task goes on to exact sums after a user has left and another one has a new
/// identity.
#[test]
fn task_continues_with_exact_sums_after_removal_and_replacement() {
    for profile in [Profile::Sparse, Profile::Full] {
        let mut task = Task::new(profile, 5);
        task.round(&[]);
        let changed = task.sign(&without(&[3])).unwrap();
        assert_eq!(changed.change.roster().first_round(), round(2));
        task.apply(&changed);
        task.round(&[]);
        let identity = task.replace(user(5), 77);
        let users = [(user_id(5), identity)].into();
        let changed = task.sign(&RosterEdits { users, ..RosterEdits::default() }).unwrap();
        task.apply(&changed);
        assert_eq!(task.users[&5].party.round(), round(3));
        task.round(&[]);
        // everybody restarts without losing anything
        task.apply_again();
        task.round(&[2]);
        assert_eq!(task.users[&2].party.model(), task.users[&5].party.model());
        assert_eq!(task.users[&5].party.round(), round(5));
    }
}

impl Task {
    fn apply_again(&mut self) {
        self.restart_generator().unwrap();
        self.restart_aggregator().unwrap();
        for n in self.users.keys().copied().collect::<Vec<_>>() {
            self.restart_user(n).unwrap();
        }
    }
}

#[test]
fn aggregator_with_a_new_identity_ends_the_running_round_under_the_old_one() {
    let mut task = Task::new(Profile::Full, 4);
    task.round(&[]);
    let ticket = task.ticket().unwrap();
    let identity = task.replace(A, 88);
    let agreement = IdentityKey::from_seed(&[88; 32]).agreement_key().public();
    let aggregator = Some((identity, agreement));
    let changed = task.sign(&RosterEdits { aggregator, ..RosterEdits::default() }).unwrap();
    assert_eq!(changed.change.roster().first_round(), round(3));
    task.apply(&changed);
    task.check_sum(&ticket, &[2]);
    // a user who was not there follows the old round with messages of the old identity
    assert_eq!(task.users[&2].party.round(), round(3));
    task.round(&[]);
    task.round(&[1]);
}

#[test]
fn user_who_is_behind_follows_old_rounds_before_it_changes_the_roster() {
    let mut task = Task::new(Profile::Sparse, 5);
    let behind = task.users.remove(&4).unwrap();
    task.round(&[]);
    let changed = task.sign(&without(&[1])).unwrap();
    task.apply(&changed);
    task.users.insert(4, behind);
    task.restart_user(4).unwrap();
    assert_eq!(task.users[&4].party.roster().epoch(), 1);
    task.follow(4).unwrap();
    assert_eq!(task.users[&4].party.roster().epoch(), 2);
    task.round(&[]);
}

#[test]
fn parties_with_different_rosters_refuse_each_other_until_all_have_changed() {
    let mut task = Task::new(Profile::Full, 5);
    task.round(&[]);
    task.sign(&without(&[5])).unwrap();
    // the aggregator still has the old roster, and announces a round under it
    assert_eq!(task.ticket().unwrap_err(), Error::Roster);
    task.restart_aggregator().unwrap();
    assert!(task.aggregator.party.is_idle(), "the announcement under the old roster is dropped");
    let ticket = task.ticket().unwrap();
    // users still have the old one, and refuse the ticket
    assert_eq!(task.upload(1, &ticket).unwrap_err(), Error::Roster);
    for n in 1..=4 {
        task.restart_user(n).unwrap();
    }
    // the user who left does not know the new secrets, even if it had the roster
    assert_eq!(task.restart_user(5).unwrap_err(), Error::UnknownUser(user_id(5)));
    task.users.remove(&5);
    task.check_sum(&ticket, &[]);
}

#[test]
fn history_tells_a_roster_that_only_the_user_lacks() {
    // the key generator changes the roster to remove nobody that this user sees: its history differs all the same
    let mut task = Task::new(Profile::Full, 5);
    task.round(&[]);
    let changed = task.sign(&without(&[2])).unwrap();
    let forked = {
        // another change of the same roster, by the same key generator at an earlier point
        let mut other = Task::new(Profile::Full, 5);
        other.round(&[]);
        other.sign(&without(&[3])).unwrap()
    };
    task.apply(&changed);
    let mut rosters = Rosters::from(task.parties.roster.clone());
    rosters.add(forked.change.as_bytes(), short_keys()).unwrap();
    // a user who follows the other change has another history and another roster
    let keys = task.parties.user_keys[&user_id(1)].clone();
    let log = Vec::new();
    let node: Node<UserParty> = Node::start(keys, identity(user(1)).into(), &rosters, log).unwrap();
    task.users.insert(1, node);
    let ticket = task.ticket().unwrap();
    // the user is behind and asks for round 1 first
    task.follow(1).unwrap_err();
    assert!(task.upload(1, &ticket).is_err());
}

#[test]
fn pending_change_survives_restarts_of_the_key_generator() {
    let mut task = Task::new(Profile::Sparse, 5);
    let ticket = task.ticket().unwrap();
    let identity = task.replace(user(1), 99);
    let users = [(user_id(1), identity)].into();
    let changed = task.sign(&RosterEdits { users, ..without(&[2]) }).unwrap();
    // a kit without the change, or a log without its seeds, is refused
    let all = std::mem::replace(&mut task.rosters, task.parties.roster.clone().into());
    assert!(matches!(task.restart_generator(), Err(Error::Storage { .. })));
    task.rosters = all;
    let before = task.generator.log.clone();
    task.generator.log.clear();
    assert!(matches!(task.restart_generator(), Err(Error::Storage { .. })));
    task.generator.log = before;
    task.restart_generator().unwrap();
    task.restart_generator().unwrap();
    task.restart_aggregator().unwrap();
    task.users.retain(|&n, _| n > 2);
    task.check_sum(&ticket, &[]);
    task.apply(&changed);
    task.restart_user(1).unwrap();
    task.round(&[]);
}

#[test]
fn roster_can_change_before_the_first_round() {
    let mut task = Task::new(Profile::Sparse, 5);
    let identity = task.replace(user(2), 33);
    let users = [(user_id(2), identity)].into();
    let changed = task.sign(&RosterEdits { users, ..without(&[1]) }).unwrap();
    assert_eq!(changed.change.roster().first_round(), Round::FIRST);
    task.apply(&changed);
    task.round(&[]);
    task.apply_again();
    task.round(&[]);
}

#[test]
fn several_changes_before_one_round_come_into_force_together() {
    let mut task = Task::new(Profile::Full, 6);
    task.round(&[]);
    let ticket = task.ticket().unwrap();
    task.sign(&without(&[1])).unwrap();
    let identity = task.replace(user(2), 66);
    let users = [(user_id(2), identity)].into();
    task.sign(&RosterEdits { users, ..RosterEdits::default() }).unwrap();
    let third = task.sign(&without(&[3])).unwrap();
    assert_eq!((third.change.roster().epoch(), third.change.roster().first_round()), (4, round(3)));
    // users 1 and 2 cannot connect any more
    task.check_sum(&ticket, &[1, 2]);
    task.users.remove(&2);
    task.apply(&third);
    task.restart_user(2).unwrap();
    task.round(&[]);
    task.round(&[2]);
}

#[test]
fn replicas_check_uploads_under_the_roster_of_the_round() {
    let mut task = Task::new(Profile::Sparse, 4);
    task.round(&[]);
    let identity = task.replace(user(2), 55);
    let users = [(user_id(2), identity)].into();
    let changed = task.sign(&RosterEdits { users, ..RosterEdits::default() }).unwrap();
    task.apply(&changed);
    let keys = task.parties.roles.key_generator.aggregator_keys();
    let intake = Intake::new(keys, task.identities(A), task.rosters.clone(), ONE).unwrap();
    let ticket = task.ticket().unwrap();
    let here = intake.begin(&ticket).unwrap();
    for n in 1..=4 {
        let (update, model) = (task.update(n), task.model.clone());
        let node = task.users.get_mut(&n).unwrap();
        node.step(UserEvent::Begin { ticket: ticket.clone(), model }, &mut task.rng).unwrap();
        let round = node.party.round();
        let upload = sent(node.step(UserEvent::Update { round, update }, &mut task.rng).unwrap()).remove(0);
        here.check(&upload).unwrap();
    }
}

#[test]
fn changed_roster_differs_only_in_removed_and_replaced_members() {
    let task = Task::new(Profile::Sparse, 5);
    let (first, key) = (&task.parties.roster, identity(G));
    let change = |edits: &RosterEdits| first.changed(edits, round(2), &key);
    let second = change(&without(&[1])).unwrap();
    second.follows(first).unwrap();
    assert_eq!((second.epoch(), second.floor()), (2, 3));
    // the floor needs three users
    assert_eq!(change(&without(&[1, 2, 3])).unwrap_err(), Error::SetSmall { users: 2, floor: 3 });
    assert_eq!(change(&without(&[6])).unwrap_err(), Error::UnknownUser(user_id(6)));
    let added = RosterEdits { users: [(user_id(6), identity(user(6)).identity())].into(), ..without(&[]) };
    assert_eq!(change(&added).unwrap_err(), Error::UnknownUser(user_id(6)));
    let shared = RosterEdits { users: [(user_id(1), identity(user(2)).identity())].into(), ..without(&[]) };
    assert_eq!(change(&shared).unwrap_err(), Error::Roster);
    assert_eq!(first.changed(&without(&[1]), round(2), &identity(A)).unwrap_err(), Error::Signature);
    // a roster follows the one before it only, and in its order
    let third = second.changed(&without(&[2]), round(2), &key).unwrap();
    let earlier = change(&without(&[2])).unwrap();
    for (roster, previous) in
        [(&third, first), (first, &second), (&second, &second), (&third, &earlier), (&second, &third)]
    {
        assert_eq!(
            roster.follows(previous),
            Err(Error::Roster),
            "{} after {}",
            roster.epoch(),
            previous.epoch()
        );
    }
    let late = first.changed(&without(&[1]), round(5), &key).unwrap();
    assert_eq!(late.changed(&without(&[2]), round(4), &key).unwrap_err(), Error::Roster);
    let other = Task::new(Profile::Full, 5);
    assert_eq!(second.follows(&other.parties.roster), Err(Error::Policy));
    let paper = Task::new(Profile::Paper, 5).parties.roster.changed(&without(&[1]), round(2), &key);
    assert!(matches!(paper.unwrap_err(), Error::Profile { .. }));
}

#[test]
fn damaged_roster_change_is_refused() {
    let mut task = Task::new(Profile::Sparse, 5);
    let identity = task.replace(user(2), 44);
    let users = [(user_id(2), identity)].into();
    let changed = task.sign(&RosterEdits { users, ..without(&[1]) }).unwrap();
    let (first, good) = (&task.parties.roster, changed.change.as_bytes());
    let read = |bytes: &[u8]| RosterChange::decode_with(bytes, first, short_keys());
    assert_eq!(read(good).unwrap().as_bytes(), good);
    for at in 0..good.len() {
        let mut bytes = good.to_vec();
        bytes[at] ^= 1;
        assert!(read(&bytes).is_err(), "byte {at}");
        assert!(read(&good[..at]).is_err(), "the first {at} bytes");
    }
    assert!(read(&[good, &[0]].concat()).is_err());
    // applied twice, or to another roster
    let roster = changed.change.roster();
    assert_eq!(RosterChange::decode_with(good, roster, short_keys()).unwrap_err(), Error::Roster);
}

/// A party that has gone on under the old roster when it should have changed does not start.
#[test]
fn log_that_has_passed_the_first_round_of_a_roster_is_refused() {
    let mut task = Task::new(Profile::Full, 5);
    let generator = task.generator.log.clone();
    task.round(&[]);
    // the key generator goes back to an old log, and signs a roster for round 1
    task.generator.log = generator;
    task.restart_generator().unwrap();
    task.sign(&without(&[4])).unwrap();
    let too_late = Error::Storage { reason: "the log has passed the first round of a later roster" };
    assert_eq!(task.restart_aggregator().unwrap_err(), too_late);
    assert_eq!(task.restart_user(1).unwrap_err(), too_late);
}

#[test]
fn roster_in_force_is_that_of_the_round() {
    let mut task = Task::new(Profile::Full, 5);
    task.round(&[]);
    task.round(&[]);
    task.sign(&without(&[1])).unwrap();
    let epoch = |number: u64| task.rosters.at(round(number)).epoch();
    assert_eq!([1, 2, 3, 4].map(epoch), [1, 1, 2, 2]);
    let roster: &Roster = task.rosters.latest();
    assert_eq!((roster.first_round(), Round::FIRST < roster.first_round()), (round(3), true));
}
