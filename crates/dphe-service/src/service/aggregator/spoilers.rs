//! The search for users whose uploads spoil rounds (docs/decisions/039-search-for-spoilers.md).
//!
//! Nobody can see which upload made a sum useless, so the aggregator asks fewer users in later rounds, and concludes
//! from the endings who it can be. This module decides whom to ask, and draws the conclusions. It has no I/O and no
//! clock: the service stores its state with every record of a round, and tells it how rounds end.

use std::collections::{BTreeMap, BTreeSet};

use dphe::wire::Ending;
use dphe::{Roster, UserId};
use serde::{Deserialize, Serialize};

/// A set of user numbers.
pub(super) type Users = BTreeSet<u32>;

/// The limits of a search, which follow from the roster.
#[derive(Clone, Debug)]
pub(super) struct SearchRules {
    users: Users,
    floor: usize,
    /// The key generator opens nothing after this many failures.
    max_failures: u32,
    /// A sum is outsized above this many times the norm of earlier ones; 0 means never.
    outsize: u8,
}

/// What the rounds so far tell about users who spoil rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Spoilers {
    /// The number of openings that failed in this task. The key generator counts them too.
    failures: u32,
    /// The sets of users whose sums were opened on the current model. The key generator accepts at most two, and their
    /// difference must be empty or as large as the floor.
    opened: Vec<Users>,
    search: Option<Search>,
    set_aside: BTreeMap<u32, SetAside>,
    /// The users that the last search ended with, if it could not tell them apart or set them aside.
    unresolved: Users,
    /// The participants of the last published round.
    last_published: Users,
    /// The largest norm of the average of a published sum.
    largest_norm: f64,
}

/// A running search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Search {
    /// The participants of the round that started the search.
    all: Users,
    /// At least one of these users spoiled a round.
    suspects: Users,
    /// Users in a sum that was published since the search began.
    cleared: Users,
    /// Sets whose rounds were spoiled.
    spoiled: Vec<Users>,
    /// Users who were asked and did not come, when they were asked last.
    absent: Users,
    /// The number of rounds that told nothing, because users who were asked did not come.
    stalled: u32,
    /// Whether spoiled rounds use up the failures that the key generator allows. A rejected sum does not.
    counted: bool,
}

/// A user who is not asked for some rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SetAside {
    /// How often the user was set aside.
    times: u32,
    /// The first round for which the user is asked again.
    until: u64,
    /// Whether a sum with this user was published since then.
    reinstated: bool,
}

/// What the end of a round changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The search goes on among these users.
    Suspects(Users),
    /// A round of this user and cleared ones was spoiled, so this user is to blame.
    Found(Users),
    /// A user had been set aside and was asked again, and the round was spoiled again.
    Again(Users),
    /// At least one of these users spoils rounds. The floor, or the rule on sets of users, does not allow to find out
    /// which.
    Indistinguishable(Users),
    /// At least one of these users spoils rounds. A further failure would end the task.
    OutOfFailures(Users),
    /// The rounds were not spoiled again.
    Inconclusive,
}

/// The number of rounds without the suspects after which a search ends.
const MAX_STALLED: u32 = 4;
/// The power of two of the largest number of rounds for which a user is set aside.
const MAX_ROUNDS_ASIDE: u32 = 16;

impl SearchRules {
    pub(super) fn new(roster: &Roster) -> Self {
        let config = roster.task().config();
        Self {
            users: roster.users().map(UserId::get).collect(),
            floor: roster.floor(),
            max_failures: config.max_failures.into(),
            outsize: config.outsize,
        }
    }
}

impl Spoilers {
    /// Forgets users who have left the task.
    pub(super) fn keep_users(&mut self, rules: &SearchRules) {
        let users = &rules.users;
        if let Some(search) = &mut self.search {
            for set in [&mut search.all, &mut search.suspects, &mut search.cleared, &mut search.absent] {
                set.retain(|user| users.contains(user));
            }
        }
        self.search.take_if(|search| search.suspects.is_empty());
        self.set_aside.retain(|user, _| users.contains(user));
        self.unresolved.retain(|user| users.contains(user));
        self.last_published.retain(|user| users.contains(user));
    }

    /// Returns the users to ask for uploads in a round, or `None` for all.
    pub(super) fn asked(&self, round: u64, rules: &SearchRules) -> Option<Users> {
        if let Some(test) = self.search.as_ref().and_then(|search| self.test(search, rules)) {
            return Some(test).filter(|test| *test != rules.users);
        }
        let aside = self.aside(round, rules);
        let mut available: Users = rules.users.difference(&aside).copied().collect();
        if available.len() < rules.floor {
            available = rules.users.clone();
        }
        let accepted = match &self.opened[..] {
            [] => available,
            // without a new model, the key generator accepts no third set
            [.., last] if self.opened.len() > 1 => last.clone(),
            [.., last] => accepted_subset(&available, last, rules.floor).unwrap_or_else(|| last.clone()),
        };
        (accepted != rules.users).then_some(accepted)
    }

    /// Returns the users under suspicion: those that a search has narrowed down, and those that were set aside.
    pub(super) fn suspects(&self, round: u64) -> Users {
        let searched = self.search.iter().flat_map(|search| &search.suspects);
        let aside = self.set_aside.iter().filter(|(_, aside)| !aside.reinstated || aside.until > round);
        searched.chain(&self.unresolved).chain(aside.map(|(user, _)| user)).copied().collect()
    }

    /// Returns whether a search is running.
    pub(super) fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    /// Returns whether the norm of an average exceeds what the policy allows.
    pub(super) fn is_outsized(&self, norm: f64, rules: &SearchRules) -> bool {
        rules.outsize > 0 && self.largest_norm > 0.0 && norm > f64::from(rules.outsize) * self.largest_norm
    }

    /// Sets users aside who agreed on noise, which no honest user can do by accident.
    #[cfg_attr(
        not(feature = "postgres"),
        allow(dead_code, reason = "a single aggregator refuses repeated noise at once")
    )]
    pub(super) fn repeated_noise(&mut self, users: &Users, round: u64) {
        users.iter().for_each(|&user| self.put_aside(user, round));
    }

    /// Forgets what it knows of sets, because the key generator refused one of them.
    pub(super) fn set_refused(&mut self) {
        (self.search, self.opened) = (None, Vec::new());
    }

    /// Learns how a round ended. `participants` are the users of the frozen sum, or those who came if there is none;
    /// `norm` is that of the average.
    pub(super) fn ended(
        &mut self,
        round: u64,
        ending: Ending,
        participants: &Users,
        norm: Option<f64>,
        rules: &SearchRules,
    ) -> Option<Verdict> {
        let asked = self.asked(round, rules).unwrap_or_else(|| rules.users.clone());
        match ending {
            Ending::Published => {
                self.opened.clear();
                self.unresolved.clear();
                if !self.set_aside.is_empty() {
                    self.last_published.clone_from(participants);
                }
                self.largest_norm = norm.into_iter().fold(self.largest_norm, f64::max);
                for user in participants {
                    if let Some(aside) = self.set_aside.get_mut(user) {
                        aside.reinstated = true;
                    }
                }
                self.clear(&asked, participants)?;
            }
            Ending::Aborted => {
                let search = self.search.as_mut()?;
                search.came(&asked, participants);
                // the same users would be asked again, so a user who stays away must not delay the search forever
                search.stalled += 1;
            }
            Ending::Failed | Ending::Rejected => {
                if ending == Ending::Failed {
                    self.failures = self.failures.saturating_add(1);
                } else if !self.opened.contains(participants) {
                    self.opened.push(participants.clone());
                }
                if participants.is_empty() {
                    return None;
                }
                if let Some(verdict) = self.spoiled(round, participants, ending == Ending::Failed) {
                    if let Verdict::Found(users) | Verdict::Again(users) = &verdict {
                        users.iter().for_each(|&user| self.put_aside(user, round));
                    }
                    return Some(verdict);
                }
            }
        }
        self.conclude(round, rules)
    }

    /// Returns the users that are set aside in a round.
    fn aside(&self, round: u64, rules: &SearchRules) -> Users {
        // a user whose upload could end the task is not asked again
        let risky = self.failures + 2 > rules.max_failures && self.failures > 0;
        let aside = self.set_aside.iter();
        aside
            .filter(|(_, aside)| aside.until > round || (risky && !aside.reinstated))
            .map(|(user, _)| *user)
            .collect()
    }

    fn put_aside(&mut self, user: u32, round: u64) {
        let aside = self.set_aside.entry(user).or_default();
        let rounds = 1 << aside.times.min(MAX_ROUNDS_ASIDE);
        *aside = SetAside {
            times: aside.times.saturating_add(1),
            until: round.saturating_add(1).saturating_add(rounds),
            reinstated: false,
        };
    }

    /// The participants of a published round did not spoil it. Returns `None` if there is no search.
    fn clear(&mut self, asked: &Users, participants: &Users) -> Option<()> {
        let search = self.search.as_mut()?;
        if !participants.iter().any(|user| search.suspects.contains(user)) {
            search.stalled += u32::from(asked.iter().any(|user| search.suspects.contains(user)));
        }
        search.came(asked, participants);
        search.suspects.retain(|user| !participants.contains(user));
        search.cleared.extend(participants);
        Some(())
    }

    /// A round of these users was spoiled. Returns who is to blame, if that is known at once.
    fn spoiled(&mut self, round: u64, participants: &Users, counted: bool) -> Option<Verdict> {
        let Some(search) = &mut self.search else {
            let back: Users = self
                .set_aside
                .iter()
                .filter(|(user, aside)| {
                    participants.contains(user) && aside.until <= round && !aside.reinstated
                })
                .map(|(user, _)| *user)
                .collect();
            if back.len() > 1 {
                // rounds without these users were published, so the search goes on among them
                let cleared = participants.intersection(&self.last_published);
                let cleared = cleared.filter(|user| !back.contains(user)).copied().collect();
                self.search = Some(Search { suspects: back, cleared, ..Search::of(participants, counted) });
                return None;
            }
            if !back.is_empty() {
                // if the next round is spoiled without them, a search begins
                return Some(Verdict::Again(back));
            }
            self.search = Some(Search::of(participants, counted));
            return None;
        };
        let blamed: Users = participants.difference(&search.cleared).copied().collect();
        if blamed.is_empty() {
            // a user who did not spoil an earlier round spoiled this one
            *search = Search::of(participants, counted);
            return None;
        }
        search.counted |= counted;
        search.spoiled.push(participants.clone());
        if blamed.is_subset(&search.suspects) {
            search.suspects = blamed.clone();
            search.stalled = 0;
        }
        if blamed.len() == 1 {
            self.search = None;
            return Some(Verdict::Found(blamed));
        }
        None
    }

    /// Ends the search if it cannot go on.
    fn conclude(&mut self, round: u64, rules: &SearchRules) -> Option<Verdict> {
        let search = self.search.as_ref()?;
        let suspects = search.suspects.clone();
        if suspects.is_empty() || search.stalled >= MAX_STALLED {
            self.search = None;
            return Some(Verdict::Inconclusive);
        }
        if self.test(search, rules).is_some() {
            return Some(Verdict::Suspects(suspects));
        }
        let out_of_failures = search.counted && self.failures_left(rules) == 0;
        self.search = None;
        if rules.users.difference(&suspects).count() >= rules.floor {
            suspects.iter().for_each(|&user| self.put_aside(user, round));
        } else {
            self.unresolved = suspects.clone();
        }
        Some(match out_of_failures {
            true => Verdict::OutOfFailures(suspects),
            false => Verdict::Indistinguishable(suspects),
        })
    }

    /// Returns how many failures a search may cause. One is left for the task.
    fn failures_left(&self, rules: &SearchRules) -> u32 {
        rules.max_failures.saturating_sub(self.failures).saturating_sub(1)
    }

    /// Returns the users of the next round of a search, or `None` if no round would tell more.
    fn test(&self, search: &Search, rules: &SearchRules) -> Option<Users> {
        if search.counted && self.failures_left(rules) == 0 {
            return None;
        }
        match &self.opened[..] {
            [] if search.cleared.is_empty() => self.first_test(search, rules),
            [] => self.test_beside_cleared(search, rules),
            // the model has to change before another test; cleared users can change it
            [opened] if search.cleared.len() >= rules.floor => {
                accepted_subset(&search.cleared, opened, rules.floor)
            }
            // nobody is cleared yet; if these few users spoil the round too, no other set is accepted on this model
            [opened] if search.cleared.is_empty() => {
                let few: Users = search.in_order().into_iter().take(rules.floor).collect();
                let accepted = few.len() == rules.floor && difference(&few, opened) >= rules.floor;
                accepted.then_some(few)
            }
            _ => None,
        }
    }

    /// Returns a test while nobody is cleared: a part of the suspects, or the others.
    fn first_test(&self, search: &Search, rules: &SearchRules) -> Option<Users> {
        let suspects = search.in_order();
        let part = self.part(search, rules).max(rules.floor);
        if part < suspects.len() {
            return Some(suspects.into_iter().take(part).collect());
        }
        // the others are fewer than the floor, so some of the suspects are asked too: each of them in turn
        let others: Users = search.all.difference(&search.suspects).copied().collect();
        let missing = rules.floor.saturating_sub(others.len());
        let starts = if missing == 0 { 1 } else { suspects.len() };
        let tests = (0..starts).map(|start| {
            let some = suspects.iter().cycle().skip(start).take(missing);
            others.iter().chain(some).copied().collect()
        });
        tests.filter(|_| missing < suspects.len()).find(|test| !search.spoiled.contains(test))
    }

    /// Returns a test of a part of the suspects, filled up with cleared users.
    fn test_beside_cleared(&self, search: &Search, rules: &SearchRules) -> Option<Users> {
        let (suspects, cleared, floor) = (search.in_order(), &search.cleared, rules.floor);
        let part = self.part(search, rules).max(floor.saturating_sub(cleared.len()));
        if part > suspects.len() || (part == suspects.len() && part > 1) {
            return None;
        }
        let part: Users = suspects.into_iter().take(part).collect();
        let with = |cleared: &mut dyn Iterator<Item = u32>| -> Users {
            part.iter().copied().chain(cleared).collect()
        };
        let all = with(&mut cleared.iter().copied());
        let few = with(&mut cleared.iter().copied().take(floor.saturating_sub(part.len())));
        // if the sum is rejected, cleared users must be able to change the model
        let can_go_on = |test: &Users| search.counted || accepted_subset(cleared, test, floor).is_some();
        // more cleared users are needed; those who are not suspects any more are probably honest
        let mut others: Users = search.all.difference(&search.suspects).copied().collect();
        others.extend(cleared);
        let others = Some(others).filter(|test| test.len() > cleared.len() && !search.spoiled.contains(test));
        [Some(all), Some(few), others].into_iter().flatten().find(can_go_on)
    }

    /// Returns how many suspects to test at once: half of them, or fewer if few failures are left. With one failure
    /// left, every suspect is tested alone; with k, groups of n^((k-1)/k) out of n suffice.
    fn part(&self, search: &Search, rules: &SearchRules) -> usize {
        let count = search.suspects.len();
        let half = count.div_ceil(2);
        if !search.counted {
            return half.max(1);
        }
        let left = f64::from(self.failures_left(rules).max(1));
        let part = (count as f64).powf((left - 1.0) / left).floor() as usize;
        part.clamp(1, half.max(1))
    }
}

impl Search {
    fn of(participants: &Users, counted: bool) -> Self {
        Self {
            all: participants.clone(),
            suspects: participants.clone(),
            spoiled: vec![participants.clone()],
            counted,
            ..Self::default()
        }
    }

    /// Returns the suspects, and those who did not come when they were asked at the end.
    fn in_order(&self) -> Vec<u32> {
        let (late, early): (Vec<u32>, Vec<u32>) =
            self.suspects.iter().partition(|user| self.absent.contains(user));
        [early, late].concat()
    }

    /// Notes who came and who did not.
    fn came(&mut self, asked: &Users, participants: &Users) {
        self.absent.retain(|user| !participants.contains(user));
        self.absent.extend(asked.difference(participants));
    }
}

fn difference(a: &Users, b: &Users) -> usize {
    a.symmetric_difference(b).count()
}

/// Returns the largest part of `users` that the key generator accepts after it has opened the sum of `opened` on the
/// same model.
fn accepted_subset(users: &Users, opened: &Users, floor: usize) -> Option<Users> {
    let mut part = users.clone();
    let missing = match difference(&part, opened) {
        0 => 0,
        different => floor.saturating_sub(different),
    };
    let common: Vec<u32> = part.intersection(opened).copied().collect();
    for user in common.iter().rev().take(missing) {
        part.remove(user);
    }
    (common.len() >= missing && part.len() >= floor).then_some(part)
}

#[cfg(test)]
mod tests;
