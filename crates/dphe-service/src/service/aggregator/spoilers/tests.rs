use super::*;

/// A task without I/O: it checks what the key generator would check, and decides how rounds end.
struct World {
    spoilers: Spoilers,
    rules: SearchRules,
    round: u64,
    /// Users who spoil every round they take part in.
    bad: Users,
    /// Users who never come.
    away: Users,
    spoiled_ending: Ending,
    /// What the key generator has opened on the current model.
    opened: Vec<Users>,
    failures: u32,
    endings: Vec<Ending>,
    verdicts: Vec<Verdict>,
}

fn users(numbers: impl IntoIterator<Item = u32>) -> Users {
    numbers.into_iter().collect()
}

impl World {
    fn new(count: u32, floor: usize, bad: &[u32], spoiled_ending: Ending) -> Self {
        Self {
            spoilers: Spoilers::default(),
            rules: SearchRules { users: users(1..=count), floor, max_failures: 8, outsize: 10 },
            round: 1,
            bad: users(bad.iter().copied()),
            away: Users::new(),
            spoiled_ending,
            opened: Vec::new(),
            failures: 0,
            endings: Vec::new(),
            verdicts: Vec::new(),
        }
    }

    /// Runs a round, and restarts the aggregator after it.
    fn round(&mut self) -> Ending {
        let asked = self.spoilers.asked(self.round, &self.rules);
        let mut came = asked.clone().unwrap_or_else(|| self.rules.users.clone());
        assert!(came.is_subset(&self.rules.users) && came.len() >= self.rules.floor, "{asked:?}");
        assert_ne!(asked, Some(self.rules.users.clone()), "all are asked by naming nobody");
        came.retain(|user| !self.away.contains(user));
        let ending = if came.len() < self.rules.floor { Ending::Aborted } else { self.open(&came) };
        self.verdicts.extend(self.spoilers.ended(self.round, ending, &came, Some(1.0), &self.rules));
        let stored = serde_json::to_string(&self.spoilers).unwrap();
        self.spoilers = serde_json::from_str(&stored).unwrap();
        self.round += 1;
        self.endings.push(ending);
        ending
    }

    fn open(&mut self, came: &Users) -> Ending {
        assert!(self.failures < self.rules.max_failures, "the task is over");
        let differences: Vec<usize> = self.opened.iter().map(|set| difference(set, came)).collect();
        let accepted = differences.contains(&0)
            || differences.is_empty()
            || (differences.len() == 1 && differences[0] >= self.rules.floor);
        assert!(accepted, "the key generator refuses {came:?} after {:?}", self.opened);
        let ending = if self.bad.is_disjoint(came) { Ending::Published } else { self.spoiled_ending };
        match ending {
            Ending::Published => self.opened.clear(),
            Ending::Failed => self.failures += 1,
            Ending::Rejected if !self.opened.contains(came) => self.opened.push(came.clone()),
            Ending::Rejected | Ending::Aborted => {}
        }
        ending
    }

    fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.round();
        }
    }

    fn found(&self) -> Vec<&Users> {
        fn found(verdict: &Verdict) -> Option<&Users> {
            if let Verdict::Found(users) = verdict { Some(users) } else { None }
        }
        self.verdicts.iter().filter_map(found).collect()
    }

    /// Runs until a user is found. Returns the number of rounds and of spoiled ones.
    fn search(&mut self) -> (usize, usize) {
        while self.found().is_empty() {
            assert!(self.endings.len() < 200, "{:?}", self.verdicts);
            self.round();
        }
        let spoiled = self.endings.iter().filter(|ending| **ending != Ending::Published).count();
        (self.endings.len(), spoiled)
    }
}

#[test]
fn one_spoiler_is_found_with_sums_that_fail_and_only_that_user_is_blamed() {
    for (count, floor) in [(5, 3), (6, 3), (7, 3), (10, 3), (16, 8), (20, 3), (33, 10), (100, 3), (100, 50)] {
        for bad in 1..=count {
            let mut world = World::new(count, floor, &[bad], Ending::Failed);
            let (rounds, failures) = world.search();
            assert_eq!(world.found(), [&users([bad])], "{count} users, floor {floor}");
            // one of the eight failures that the key generator allows is left
            assert!(failures <= 7, "{count} users, floor {floor}: {failures} failures in {rounds} rounds");
        }
    }
}

#[test]
fn a_failure_that_uses_up_the_last_but_one_ends_the_search() {
    let mut world = World::new(100, 3, &[77], Ending::Failed);
    world.rules.max_failures = 3;
    // one failure to begin with and one to spend: every user is tested alone
    world.run(300);
    assert_eq!(world.found(), [&users([77])]);
    assert_eq!(world.failures, 2, "{:?}", world.verdicts);
    let mut world = World::new(10, 3, &[9], Ending::Failed);
    world.rules.max_failures = 2;
    world.run(1);
    assert_eq!(world.verdicts, [Verdict::OutOfFailures(users(1..=10))]);
}

/// Rejected sums are opened, so at most two sets per model can be asked. The first choice must not be a spoiled one.
#[test]
fn one_spoiler_is_found_with_sums_that_are_rejected_unless_the_first_test_meets_it() {
    for (count, floor) in [(6, 3), (7, 3), (8, 3), (9, 3), (10, 3), (15, 5), (20, 5), (30, 10), (100, 3)] {
        for bad in 1..=count {
            let mut world = World::new(count, floor, &[bad], Ending::Rejected);
            while !matches!(
                world.verdicts.last(),
                Some(Verdict::Found(_) | Verdict::Indistinguishable(_) | Verdict::Inconclusive)
            ) {
                assert!(world.endings.len() < 30, "{:?}", world.verdicts);
                world.round();
            }
            let (verdict, three_times) = (world.verdicts.last().unwrap(), count as usize >= 3 * floor);
            match verdict {
                Verdict::Found(found) => assert_eq!(*found, users([bad]), "{count} users, floor {floor}"),
                // the first test met the user
                Verdict::Indistinguishable(few) if world.endings.len() == 2 => {
                    assert_eq!(*few, users(1..=u32::try_from(floor).unwrap()));
                }
                Verdict::Indistinguishable(few) if !three_times => {
                    assert!(few.contains(&bad) && few.len() < floor, "{count} users, floor {floor}: {few:?}");
                }
                other => panic!("{count} users, floor {floor}, user {bad}: {other:?}"),
            }
        }
    }
}

#[test]
fn fewer_users_than_twice_the_floor_cannot_be_told_apart_by_rejected_sums() {
    let mut world = World::new(5, 3, &[2], Ending::Rejected);
    world.run(10);
    assert!(world.verdicts.iter().all(|verdict| *verdict == Verdict::Indistinguishable(users(1..=5))));
    assert_eq!(world.spoilers.suspects(world.round), users(1..=5));
    assert!(world.found().is_empty());
    // with three users, not even failed sums help
    let mut world = World::new(3, 3, &[2], Ending::Failed);
    world.run(5);
    assert!(world.found().is_empty() && world.spoilers.asked(world.round, &world.rules).is_none());
}

#[test]
fn rounds_go_on_without_a_found_user_who_is_asked_again_later() {
    let mut world = World::new(12, 3, &[5], Ending::Failed);
    world.search();
    let failures = world.failures;
    assert_eq!(world.spoilers.suspects(world.round), users([5]));
    assert_eq!(world.round(), Ending::Published);
    assert!(!world.spoilers.asked(world.round - 1, &world.rules).unwrap().contains(&5));
    // the user is asked again, spoils the round again, and is set aside for longer, without another search
    while world.failures == failures {
        world.round();
    }
    assert_eq!(world.verdicts.last(), Some(&Verdict::Again(users([5]))));
    assert!((1..3).all(|_| world.round() == Ending::Published), "set aside for two rounds");
    // nobody is asked any more whose failure could end the task
    world.run(2_000);
    assert!(world.failures < world.rules.max_failures, "{}", world.failures);
    let published = world.endings.iter().filter(|ending| **ending == Ending::Published).count();
    assert!(published > 1_990, "{published}");
}

#[test]
fn a_user_who_stops_to_spoil_takes_part_again() {
    let mut world = World::new(12, 3, &[5], Ending::Failed);
    world.search();
    world.bad.clear();
    world.run(4);
    assert_eq!(world.spoilers.asked(world.round, &world.rules), None);
    assert_eq!(world.spoilers.suspects(world.round), Users::new());
}

/// A disk error or a cosmic ray: everybody is honest, and one round is spoiled.
#[test]
fn nobody_is_blamed_for_a_failure_that_does_not_repeat() {
    for ending in [Ending::Failed, Ending::Rejected] {
        let mut world = World::new(20, 3, &[7], ending);
        world.round();
        world.bad.clear();
        world.run(40);
        assert_eq!(world.found(), Vec::<&Users>::new());
        assert_eq!(world.verdicts.last(), Some(&Verdict::Inconclusive));
        assert_eq!(world.spoilers.asked(world.round, &world.rules), None);
    }
}

#[test]
fn two_spoilers_are_found_one_after_the_other() {
    let mut world = World::new(24, 3, &[3, 20], Ending::Failed);
    world.rules.max_failures = 30;
    world.run(60);
    let found: Users = world.found().into_iter().flatten().copied().collect();
    assert_eq!(found, users([3, 20]));
}

#[test]
fn a_suspect_who_does_not_come_does_not_stop_the_task() {
    let mut world = World::new(12, 3, &[5], Ending::Failed);
    world.round();
    world.away = users([5]);
    world.run(30);
    assert!(world.endings[1..].iter().all(|ending| *ending == Ending::Published), "{:?}", world.endings);
    assert!(world.found().is_empty());
    assert_eq!(world.spoilers.asked(world.round, &world.rules), None);
}

#[test]
fn users_who_agree_on_noise_are_set_aside() {
    let mut world = World::new(6, 3, &[], Ending::Failed);
    world.spoilers.repeated_noise(&users([1, 4]), 1);
    let came = users(1..=6);
    assert_eq!(world.spoilers.ended(1, Ending::Aborted, &came, None, &world.rules), None);
    assert_eq!(world.spoilers.asked(2, &world.rules), Some(users([2, 3, 5, 6])));
    assert_eq!(world.spoilers.suspects(2), users([1, 4]));
}

#[test]
fn sum_is_outsized_compared_with_published_ones_only() {
    let mut world = World::new(6, 3, &[], Ending::Failed);
    let (mut spoilers, rules) = (std::mem::take(&mut world.spoilers), &world.rules);
    assert!(!spoilers.is_outsized(1e9, rules), "there is nothing to compare the first sum with");
    spoilers.ended(1, Ending::Published, &users(1..=6), Some(2.0), rules);
    assert!(!spoilers.is_outsized(20.0, rules) && spoilers.is_outsized(20.1, rules));
    spoilers.ended(2, Ending::Rejected, &users(1..=6), Some(1e9), rules);
    assert!(spoilers.is_outsized(20.1, rules), "a rejected sum changes nothing");
    let never = SearchRules { outsize: 0, ..rules.clone() };
    assert!(!spoilers.is_outsized(1e9, &never));
}
