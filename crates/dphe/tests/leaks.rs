//! Measures leaks on real transcripts. Attacks must succeed where docs/leakage.md says that they do, and must be no
//! better than guessing elsewhere. Random generators have fixed seeds, so every run gives the same numbers. To print
//! them, run `cargo test --test leaks -- --nocapture`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "leaks/attack.rs"]
mod attack;
#[path = "leaks/statistics.rs"]
mod statistics;
mod support;
#[path = "leaks/transcript.rs"]
mod transcript;

use attack::{Notes, expected_share, hits};
use dphe::party::{
    Action, AggregatorEvent, AggregatorParty, KeyGeneratorEvent, KeyGeneratorParty, Party as _, PartyContext,
    Time, UserEvent, UserParty,
};
use dphe::wire::{Encode as _, RosterPlan};
use dphe::{
    Aggregator, Digest, Error, IdentityKey, KeyGenerator, NoiseMode, OpenedSum, PartyId, Profile, Receipts,
    Roster, Round, SparseVector, TaskConfig, TaskId, Update, User, UserId, hazmat,
};
use dphe_paillier::Plaintext;
use rand_core::SeedableRng as _;
use statistics::{homogeneity, p_value, uniformity};
use transcript::{Session, THREADS, config, inverse, rounds, subset};

/// One honest run in 16,000 deviates by more than this many standard deviations.
const MOST_DEVIATION: f64 = 4.0;

fn assert_unremarkable(what: &str, z: f64) {
    println!("{what}: {z:+.2} standard deviations, p = {:.3}", p_value(z));
    assert!(z.abs() < MOST_DEVIATION, "{what}: {z}");
}

/// Runs rounds with new random supports, and records what the aggregator sees.
fn observe(session: &mut Session, nonzeros: usize, count: usize) -> Notes {
    let mut notes = Notes::new(session.users.len(), session.task.dimension());
    for (t, round) in rounds(count).enumerate() {
        let supports = session.supports(nonzeros);
        notes.add(t, &session.round(round, &supports));
    }
    notes
}

/// Returns the largest number of hits over all rounds that chance explains. Only the bits of a round reveal something
/// about its permutation. An attacker who knew them, and guessed among the positions with the same bit, would be right
/// once in as many tries as there are such positions.
fn most_by_chance(tries: f64, same_bit: f64) -> f64 {
    let expected = tries / same_bit;
    1.0 + expected + 5.0 * expected.sqrt()
}

fn hits_of_all_rounds(session: &Session, guesses: &[Option<u32>], count: usize) -> usize {
    rounds(count).map(|round| hits(guesses, &session.phi(round))).sum()
}

/// Attacks a fixed permutation. Returns the rounds needed to identify half of it, 90 % and 99 %.
fn recover_a_fixed_permutation(dimension: usize, count: usize) -> [usize; 3] {
    let (users, density) = (5, 0.1);
    let nonzeros = dimension / 10;
    let mut session = Session::new(config(Profile::Paper, users, dimension, nonzeros), users, 1);
    let notes = observe(&mut session, nonzeros, count);
    let phi = session.phi(Round::FIRST);
    let union = 1.0 - (1.0f64 - density).powi(users as i32);
    let mut reached = [0; 3];
    for t in 1..=count {
        let guesses = notes.by_signature(t);
        let right = hits(&guesses, &phi);
        // equal and unique traces are proof, so no guess is wrong
        assert_eq!(right, guesses.iter().flatten().count());
        let (share, expected) = (right as f64 / dimension as f64, expected_share(dimension, union, t));
        println!(
            "paper, D = {dimension}, {t} rounds: {:.1} % of phi ({:.1} % expected)",
            share * 100.0,
            expected * 100.0
        );
        assert!((share - expected).abs() < 0.02, "{share} {expected}");
        for (reached, level) in reached.iter_mut().zip([0.5, 0.9, 0.99]) {
            if *reached == 0 && share >= level {
                *reached = t;
            }
        }
    }
    println!("paper, D = {dimension}: 50 %, 90 %, 99 % of phi after {reached:?} rounds");
    reached
}

#[test]
fn fixed_permutation_is_recovered_within_tens_of_rounds() {
    let [half, most, nearly_all] = recover_a_fixed_permutation(20_000, 26);
    assert!((14..=17).contains(&half));
    assert!((17..=20).contains(&most));
    assert!((20..=24).contains(&nearly_all));
}

/// The same at the size of the paper, which takes minutes.
#[test]
#[ignore = "takes minutes: cargo test --test leaks -- --ignored"]
fn fixed_permutation_is_recovered_at_full_size() {
    let reached = recover_a_fixed_permutation(2_048 * 101, 30);
    assert_eq!(reached, [19, 22, 26]);
}

#[test]
fn fresh_permutation_is_not_recovered() {
    let (users, dimension, count) = (5, 20_000, 26);
    let mut session = Session::new(config(Profile::Sparse, users, dimension, dimension / 10), users, 2);
    let notes = observe(&mut session, dimension / 10, count);
    let mut tried = 0;
    for t in [1, 5, 10, 15, 20, count] {
        let guesses = notes.by_signature(t);
        let claimed = guesses.iter().flatten().count();
        tried += claimed;
        let right = hits_of_all_rounds(&session, &guesses, count);
        // the smaller of the two groups: sums that are not zero
        let bound = most_by_chance((claimed * count) as f64, 0.4 * dimension as f64);
        println!(
            "sparse, D = {dimension}, {t} rounds: {claimed} positions claimed, {right} right in any of {count} rounds, bound {bound:.1}"
        );
        assert!(right as f64 <= bound, "{right}");
    }
    // the attack made guesses
    assert!(tried > 0);
}

#[test]
fn pads_delay_and_fresh_permutations_stop_the_attack() {
    let (users, dimension, count) = (5, 2_000, 60);
    let (density, sent) = (0.05, 0.1);
    let (nonzeros, capacity) = (100, 200);
    let mut session = Session::new(config(Profile::Paper, users, dimension, capacity), users, 3);
    let notes = observe(&mut session, nonzeros, count);
    let phi = session.phi(Round::FIRST);
    let mut last = 0.0;
    for t in [1, 10, 20, 30, 40, 50, 60] {
        last = hits(&notes.by_likelihood(t, density, sent), &phi) as f64 / dimension as f64;
        println!("paper, half pads, D = {dimension}, {t} rounds: {:.1} % of phi ranked first", last * 100.0);
    }
    assert!(last > 0.9, "{last}");

    let mut session = Session::new(config(Profile::Sparse, users, dimension, capacity), users, 4);
    let notes = observe(&mut session, nonzeros, count);
    for t in [1, 10, 30, 60] {
        let right = hits_of_all_rounds(&session, &notes.by_likelihood(t, density, sent), count);
        // in each group of indices, one guess is right on average
        let bound = most_by_chance(2.0 * count as f64, 1.0);
        println!(
            "sparse, half pads, D = {dimension}, {t} rounds: {dimension} positions claimed, {right} right in {count} rounds together, bound {bound:.0}"
        );
        assert!(right as f64 <= bound, "{right}");
    }
}

/// An aggregator that colludes with a user knows the user-shared permutation, and with it every support. A documented
/// leak.
#[test]
fn aggregator_colluding_with_a_user_learns_every_support() {
    let mut session = Session::new(config(Profile::Sparse, 5, 1_000, 100), 5, 5);
    for round in rounds(2) {
        let supports = session.supports(100);
        let seen = session.round(round, &supports);
        let back = inverse(&session.phi(round));
        for (sent, support) in seen.sent.iter().zip(&supports) {
            let mut read: Vec<u32> = sent.iter().map(|&position| back[position as usize]).collect();
            read.sort_unstable();
            assert_eq!(&read, support);
        }
    }
}

/// A permutation that all users share does not hide overlaps. A documented leak.
#[test]
fn aggregator_learns_how_much_users_overlap() {
    let common = |a: &[u32], b: &[u32]| a.iter().filter(|&x| b.binary_search(x).is_ok()).count();
    let mut session = Session::new(config(Profile::Sparse, 4, 1_000, 100), 4, 6);
    let mut supports = session.supports(100);
    // users 1 and 2 have similar data
    supports[1] = supports[0].clone();
    supports[1].retain(|x| x % 3 != 0);
    for x in 0..1_000 {
        if supports[1].len() < 100 && supports[1].binary_search(&x).is_err() {
            let at = supports[1].partition_point(|&y| y < x);
            supports[1].insert(at, x);
        }
    }
    let seen = session.round(Round::FIRST, &supports);
    for i in 0..4 {
        for j in 0..i {
            let (real, visible) = (common(&supports[i], &supports[j]), common(&seen.sent[i], &seen.sent[j]));
            println!(
                "users {} and {} share {real} of 100 positions, the aggregator counts {visible}",
                j + 1,
                i + 1
            );
            assert_eq!(real, visible);
        }
    }
}

/// Singles, certain zeros, and what a user learns by subtracting its own update.
#[test]
fn sum_reveals_values_of_single_users() {
    let density = 0.1f64;
    let at_least_one = |users: i32| 1.0 - (1.0 - density).powi(users);
    let alone =
        |users: i32| f64::from(users) * density * (1.0 - density).powi(users - 1) / at_least_one(users);
    for (users, count) in [(3, 4), (5, 4), (10, 4), (50, 2)] {
        let dimension = 2_000;
        let mut session =
            Session::new(config(Profile::Sparse, users, dimension, dimension / 10), users, 7 + users as u64);
        let (mut union, mut singles, mut rest, mut rest_singles) = (0, 0, 0, 0);
        for round in rounds(count) {
            let supports = session.supports(dimension / 10);
            let seen = session.round(round, &supports);
            let mut holders = vec![0; dimension];
            supports.iter().flatten().for_each(|&index| holders[index as usize] += 1);
            let mut others = holders.clone();
            supports[0].iter().for_each(|&index| others[index as usize] -= 1);
            let number =
                |holders: &[usize], wanted: fn(usize) -> bool| holders.iter().filter(|&&n| wanted(n)).count();
            let nonzero = seen.sum.iter().filter(|&&sum| sum != 0).count();
            assert_eq!(nonzero, number(&holders, |n| n > 0));
            // without pads, the share of singles is exact
            assert_eq!(seen.overlap.occupied, nonzero);
            assert_eq!(seen.overlap.singles, number(&holders, |n| n == 1));
            union += nonzero;
            singles += seen.overlap.singles;
            rest += number(&others, |n| n > 0);
            rest_singles += number(&others, |n| n == 1);
        }
        let share = |part: usize, all: usize| part as f64 / all as f64;
        let measured =
            [share(singles, union), share(rest_singles, rest), 1.0 - share(union, dimension * count)];
        let expected = [alone(users as i32), alone(users as i32 - 1), 1.0 - at_least_one(users as i32)];
        println!(
            "N = {users}, density .10: singles {:.3} ({:.3} by formula), of the rest without oneself {:.3} ({:.3}), certain zeros {:.3} ({:.3})",
            measured[0], expected[0], measured[1], expected[1], measured[2], expected[2]
        );
        for (measured, expected) in measured.iter().zip(expected) {
            assert!((measured - expected).abs() < 0.03, "{measured} {expected}");
        }
    }
}

/// With pads, the share of singles describes what the aggregator sees, not what the sum reveals.
#[test]
fn share_of_singles_counts_pads() {
    let (users, dimension) = (5, 2_000);
    let mut session = Session::new(config(Profile::Sparse, users, dimension, 200), users, 8);
    let supports = session.supports(100);
    let seen = session.round(Round::FIRST, &supports);
    let mut holders = vec![0; dimension];
    supports.iter().flatten().for_each(|&index| holders[index as usize] += 1);
    let union = holders.iter().filter(|&&n| n > 0).count();
    let singles = holders.iter().filter(|&&n| n == 1).count();
    println!(
        "N = {users}, density .05 padded to .10: singles of the sum {:.3}, gauge {:.3}",
        singles as f64 / union as f64,
        seen.overlap.share_of_singles()
    );
    assert!(seen.overlap.occupied > union);
    assert!((seen.overlap.share_of_singles() - 0.80).abs() < 0.03);
}

/// Returns the pads of many uploads with the same non-zeros, as positions of the task.
fn pad_counts(support: &[u32], runs: usize, seed: u64) -> (Vec<u32>, usize) {
    let (positions, capacity) = (200, 40);
    let mut session = Session::new(config(Profile::Sparse, 3, positions, capacity), 3, seed);
    let back = inverse(&session.phi(Round::FIRST));
    let back_of = inverse(&session.phi_of(0, Round::FIRST));
    let mut counts = vec![0; positions];
    for _ in 0..runs {
        let vector = session.vector(support);
        let body = session.seal(0, Round::FIRST, vector).to_bytes();
        let mut sent: Vec<u32> =
            session.slots(&body).iter().map(|&slot| back[back_of[slot as usize] as usize]).collect();
        sent.sort_unstable();
        sent.dedup();
        assert_eq!(sent.len(), capacity);
        // every non-zero is sent, and pads are other positions
        assert!(support.iter().all(|index| sent.binary_search(index).is_ok()));
        sent.iter().for_each(|&position| counts[position as usize] += 1);
    }
    let free: Vec<u32> =
        (0..).zip(counts).filter(|(p, _)| support.binary_search(p).is_err()).map(|(_, c)| c).collect();
    (free, capacity - support.len())
}

#[test]
fn pads_are_uniform_for_any_support() {
    let runs = 2_000;
    let mut rng = chacha20::ChaCha20Rng::seed_from_u64(10);
    let scattered = subset(&mut rng, 200, 20);
    let supports: [(&str, Vec<u32>); 5] = [
        ("none", vec![]),
        ("one", vec![117]),
        ("a run at the beginning", (0..20).collect()),
        ("every seventh", (0..200).step_by(7).collect()),
        ("scattered", scattered),
    ];
    for (seed, (name, support)) in (20..).zip(supports) {
        let (counts, pads) = pad_counts(&support, runs, seed);
        assert_unremarkable(&format!("pads, non-zeros: {name}"), uniformity(&counts, runs, pads));
    }
}

#[test]
fn permuted_indices_are_uniform_for_any_support() {
    let (positions, capacity, runs) = (200, 20, 1_000);
    let supports: [Vec<u32>; 2] = [(0..20).collect(), (0..200).step_by(10).collect()];
    let mut seen = Vec::new();
    for (i, support) in supports.iter().enumerate() {
        let mut session = Session::new(config(Profile::Sparse, 3, positions, capacity), 3, 11 + i as u64);
        let (mut on_the_wire, mut at_the_aggregator) = (vec![0; positions], vec![0; positions]);
        for round in rounds(runs) {
            session.users[0].advance(round);
            let vector = session.vector(support);
            let body = session.seal(0, round, vector).to_bytes();
            let slots = session.slots(&body);
            // columns are ordered by permuted index, so their order reveals nothing
            assert!(slots.is_sorted_by(|a, b| a < b));
            slots.iter().for_each(|&slot| on_the_wire[slot as usize] += 1);
            let permuted = session.undo(0, round, &slots);
            permuted.iter().for_each(|&position| at_the_aggregator[position as usize] += 1);
        }
        assert_unremarkable("slots on the wire", uniformity(&on_the_wire, runs, capacity));
        assert_unremarkable("positions at the aggregator", uniformity(&at_the_aggregator, runs, capacity));
        seen.push(at_the_aggregator);
    }
    let z = homogeneity(&seen[0], &seen[1], runs, capacity);
    assert_unremarkable("positions of one support against another", z);
}

/// The same test must detect a fixed permutation.
#[test]
fn uniformity_test_detects_a_fixed_permutation() {
    let (positions, capacity, runs) = (200, 20, 200);
    let support: Vec<u32> = (0..20).collect();
    let mut session = Session::new(config(Profile::Paper, 3, positions, capacity), 3, 13);
    let mut counts = vec![0; positions];
    for round in rounds(runs) {
        let vector = session.vector(&support);
        let body = session.seal(0, round, vector).to_bytes();
        session.slots(&body).iter().for_each(|&slot| counts[slot as usize] += 1);
    }
    assert!(uniformity(&counts, runs, capacity) > 100.0);
}

fn sized(profile: Profile, shards: u32) -> TaskConfig {
    let mut config = config(profile, 8, 120, 20);
    config.shards = shards;
    config.dense = 3;
    if profile == Profile::Full {
        config.capacity = 120;
    }
    config
}

#[test]
fn body_size_does_not_depend_on_its_content() {
    for (profile, shards) in [(Profile::Sparse, 1), (Profile::Sparse, 3), (Profile::Full, 1)] {
        let mut session = Session::new(sized(profile, shards), 3, 14);
        let most = session.task.capacity() * shards as usize;
        let mut shapes = Vec::new();
        for nonzeros in 0..=most {
            let support = subset(&mut session.rng, 120, nonzeros);
            let update = Update::new(session.vector(&support)).with_dense(vec![0.5, 0.0, -0.25]);
            let sealed = session.users[0].seal(Round::FIRST, &update, &mut session.rng, THREADS).unwrap();
            let body = sealed.to_bytes();
            let slots = if profile == Profile::Full { 0 } else { session.slots(&body).len() };
            shapes.push((body.len(), sealed.ciphertexts(), slots));
        }
        println!(
            "{profile}, {shards} shards: every body of 0 to {most} non-zeros is {:?} bytes, ciphertexts, slots",
            shapes[0]
        );
        shapes.dedup();
        assert_eq!(shapes.len(), 1);
    }
}

fn sent_to(actions: &[Action], party: PartyId) -> Vec<Vec<u8>> {
    let to = |action: &Action| match action {
        Action::Send { to, message } if *to == party => Some(message.clone()),
        _ => None,
    };
    actions.iter().filter_map(to).collect()
}

/// The same for whole signed messages: eight users with 0 to 20 non-zeros answer one ticket.
#[test]
fn upload_messages_have_one_size_and_number() {
    for (profile, shards) in [(Profile::Sparse, 1), (Profile::Sparse, 3), (Profile::Full, 1)] {
        let mut session = Session::new(sized(profile, shards), 8, 15);
        let identity = |of: u8| IdentityKey::from_seed(&[of; 32]);
        let ids: Vec<UserId> = session.users.iter().map(User::id).collect();
        let model = b"a model".to_vec();
        let plan = RosterPlan {
            task: session.task.clone(),
            key: session.key_generator.encryption_key(),
            initial_model: Digest::of_model(&model),
            task_file: Digest::ZERO,
            aggregator: identity(100).identity(),
            agreement: identity(100).agreement_key().public(),
            users: ids.iter().map(|&id| (id, identity(id.get() as u8).identity())).collect(),
        };
        let roster = Roster::new(plan, &identity(101)).unwrap();
        let now = Time(0);
        let context = |identity: IdentityKey| PartyContext {
            identity: identity.into(),
            rosters: roster.clone().into(),
            log: &[],
            threads: THREADS,
        };
        let keys: Vec<_> = ids.iter().map(|&id| session.key_generator.enroll(id, &mut session.rng)).collect();
        let aggregator_keys = session.key_generator.aggregator_keys();
        let (mut aggregator, _) =
            AggregatorParty::start(aggregator_keys, context(identity(100)), now).unwrap();
        let (mut key_generator, _) =
            KeyGeneratorParty::start(session.key_generator, context(identity(101)), now).unwrap();
        let start = AggregatorEvent::Start { model: Digest::of_model(&model), deadline: 1_000 };
        let open =
            sent_to(&aggregator.step(start, now, &mut session.rng).unwrap(), PartyId::KeyGenerator).remove(0);
        let answer = key_generator.step(KeyGeneratorEvent::Message(open), now, &mut session.rng).unwrap();
        let ticket = sent_to(&answer, PartyId::Aggregator).remove(0);
        let mut sizes = Vec::new();
        for (i, (keys, &id)) in keys.into_iter().zip(&ids).enumerate() {
            let support = subset(&mut session.rng, 120, [0, 1, 2, 5, 10, 15, 19, 20][i]);
            let values = support.iter().map(|_| 0.5).collect();
            let update =
                Update::new(SparseVector::new(120, support, values).unwrap()).with_dense(vec![0.0; 3]);
            let (mut user, _) = UserParty::start(keys, context(identity(id.get() as u8)), now).unwrap();
            let begin = UserEvent::Begin { ticket: ticket.clone(), model: model.clone() };
            let mut actions = user.step(begin, now, &mut session.rng).unwrap();
            actions.extend(
                user.step(UserEvent::Update { round: Round::FIRST, update }, now, &mut session.rng).unwrap(),
            );
            sizes.push(sent_to(&actions, PartyId::Aggregator).iter().map(Vec::len).collect::<Vec<_>>());
        }
        println!("{profile}, {shards} shards: every user sends messages of {:?} bytes", sizes[0]);
        assert_eq!(sizes[0].len(), 1);
        sizes.dedup();
        assert_eq!(sizes.len(), 1);
    }
}

/// In `paper`, the number of shards depends on the number of non-zeros. A documented leak.
#[test]
fn paper_shards_reveal_the_number_of_nonzeros() {
    let mut session = Session::new(sized(Profile::Paper, 3), 3, 16);
    let mut sizes = Vec::new();
    for nonzeros in [0, 20, 21, 40, 41, 60] {
        let support = subset(&mut session.rng, 120, nonzeros);
        let update = Update::new(session.vector(&support)).with_dense(vec![0.0; 3]);
        let sealed = session.users[0].seal(Round::FIRST, &update, &mut session.rng, THREADS).unwrap();
        sizes.push(sealed.to_bytes().len());
    }
    println!("paper, capacity 20: bodies of 0, 20, 21, 40, 41, 60 non-zeros have {sizes:?} bytes");
    assert!(sizes[0] == sizes[1] && sizes[1] < sizes[2]);
    assert!(sizes[2] == sizes[3] && sizes[3] < sizes[4] && sizes[4] == sizes[5]);
}

/// The key generator sees a sum and a list of participants, but no uploads. Without receipts, nothing binds one to the
/// other, and an aggregator that lies about them reads a user per round. The check makes the same sum fail.
/// `tests/deviation.rs` has more attacks.
#[test]
fn deviating_aggregator_learns_one_user_per_round_only_without_receipts() {
    let (positions, capacity, round) = (100, 10, Round::FIRST);
    for receipts in [Receipts::None, Receipts::Checked] {
        let config = TaskConfig { receipts, ..config(Profile::Sparse, 5, positions, capacity) };
        let mut session = Session::new(config, 5, 17);
        let mut secret = vec![0.0; positions];
        for (index, weight) in [(3, 0.5), (14, -0.25), (15, 0.125), (92, -0.75)] {
            secret[index] = weight;
        }
        let victim = session.seal(0, round, SparseVector::from_dense(&secret).unwrap());
        let mut collecting = session.aggregator.begin(round);
        let honest: Vec<_> = (1..5)
            .map(|user| session.seal(user, round, SparseVector::from_dense(&vec![0.0; positions]).unwrap()))
            .collect();
        collecting.accept(victim, THREADS).unwrap();
        // the other four participants, with zeros that the aggregator encrypted
        let key = session.key_generator.encryption_key().clone();
        for sealed in &honest {
            let zeros = vec![Plaintext::new(&key, 0).unwrap(); sealed.ciphertexts()];
            let zeros = key.encrypt_all(&zeros, &mut session.rng, THREADS).unwrap();
            let mut body: Vec<u8> = (0..capacity as u32).flat_map(u32::to_be_bytes).collect();
            body.extend(key.encode(&zeros, THREADS).unwrap());
            collecting.accept(session.read(sealed, &body), THREADS).unwrap();
        }
        let sum = collecting.finish(THREADS).unwrap();
        match session.key_generator.open(sum, &mut session.rng, THREADS) {
            Ok(OpenedSum::Clear(sum)) => {
                assert_eq!((receipts, sum.users()), (Receipts::None, 5));
                let read: Vec<f64> = sum.weights().iter().map(|&sum| sum as f64 / 65_536.0).collect();
                assert_eq!(read, secret);
            }
            Ok(OpenedSum::Masked(_)) => panic!("sums of private supports are not masked"),
            Err(error) => assert_eq!((receipts, error), (Receipts::Checked, Error::RoundFailed)),
        }

        // once per round: any other sum is refused, even an honest one
        let mut collecting = session.aggregator.begin(round);
        for (user, support) in session.supports(capacity).iter().enumerate() {
            let vector = session.vector(support);
            collecting.accept(session.seal(user, round, vector), THREADS).unwrap();
        }
        let sum = collecting.finish(THREADS).unwrap();
        let second = session.key_generator.open(sum, &mut session.rng, THREADS);
        assert_eq!(second.unwrap_err().code().as_str(), "committed");
    }
}

/// The ways in which four consecutive bytes, or a whole word, could be printed.
fn printed_forms(secret: &[u8]) -> Vec<String> {
    let mut forms = Vec::new();
    for bytes in secret.windows(4) {
        forms.push(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        forms.push(bytes.iter().map(|byte| format!("{byte:02X}")).collect());
        forms.push(bytes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
        forms.push(bytes.iter().map(|byte| format!("{byte:#04x}")).collect::<Vec<_>>().join(", "));
    }
    for bytes in secret.windows(8) {
        let word: [u8; 8] = bytes.try_into().unwrap();
        forms.extend([u64::from_be_bytes(word), u64::from_le_bytes(word)].map(|word| word.to_string()));
    }
    for bytes in secret.windows(4) {
        let word: [u8; 4] = bytes.try_into().unwrap();
        forms.extend([u32::from_be_bytes(word), u32::from_le_bytes(word)].map(|word| word.to_string()));
    }
    forms
}

#[test]
fn debug_output_contains_no_secrets() {
    let secret =
        |first: u8| -> [u8; 32] { core::array::from_fn(|i| first.wrapping_add((37 * i) as u8) | 0x81) };
    let hex = |text: &str| -> Vec<u8> {
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    };
    // the factors of a toy key
    let (p, q) = (hex("f5bc8fbbbde5c0994164d8399f769f3b"), hex("c5852996a801372bc679cca3f871ecd3"));
    let (us, ua, signing, mask) = (secret(1), secret(2), secret(3), secret(4));
    let user = UserId::new(1).unwrap();

    let mut rng = chacha20::ChaCha20Rng::seed_from_u64(18);
    let mut config = config(Profile::Sparse, 3, 40_000, 7);
    config.dense = 1;
    let task = hazmat::task_params(TaskId::from_bytes([0; 16]), config).unwrap();
    let key = dphe_paillier::hazmat::decryption_key(&p, &q, NoiseMode::Secure).unwrap();
    let mut key_generator = KeyGenerator::with_key(task.clone(), key, &mut rng).unwrap();
    hazmat::set_seeds(&mut key_generator, us, [(user, ua, mask)]);
    let user_keys = key_generator.enroll(user, &mut rng);
    let aggregator_keys = key_generator.aggregator_keys();
    let identity = IdentityKey::from_seed(&signing);
    let vector = SparseVector::new(40_000, vec![31_337], vec![0.734_375]).unwrap();
    let update = Update::new(vector.clone()).with_dense(vec![0.617_187_5]);
    let person = User::new(user_keys.clone()).unwrap();
    let sealed = person.seal(Round::FIRST, &update, &mut rng, THREADS).unwrap();
    let slots: Vec<String> = sealed.to_bytes()[..28]
        .chunks(4)
        .map(|b| u32::from_be_bytes(b.try_into().unwrap()).to_string())
        .collect();
    let aggregator = Aggregator::new(aggregator_keys.clone()).unwrap();
    let mut collecting = aggregator.begin(Round::FIRST);
    // seeds are printed as parts of keys, and index matrices as parts of updates; permutations never leave the crate
    let mut printed = vec![
        ("SparseVector", format!("{vector:?} {vector:#?}")),
        ("Update", format!("{update:?} {update:#?}")),
        ("UserKeys", format!("{user_keys:?} {user_keys:#?}")),
        ("AggregatorKeys", format!("{aggregator_keys:?} {aggregator_keys:#?}")),
        ("KeyGenerator", format!("{key_generator:?} {key_generator:#?}")),
        ("User", format!("{person:?} {person:#?}")),
        ("Aggregator", format!("{aggregator:?} {aggregator:#?}")),
        ("IdentityKey", format!("{identity:?} {identity:#?}")),
        ("SealedUpdate", format!("{sealed:?} {sealed:#?}")),
        ("UserEvent", format!("{:?}", UserEvent::Update { round: Round::FIRST, update: update.clone() })),
        ("AgreementKey", format!("{:?} {:#?}", identity.agreement_key(), identity.agreement_key())),
    ];
    collecting.accept(sealed, THREADS).unwrap();
    printed.push(("Collecting", format!("{collecting:?}")));
    for (holder, text) in [
        (2, "UserSharedSeed"),
        (2, "UserAggregatorSeed"),
        (2, "MaskSeed"),
        (4, "MaskSeed"),
        (8, "IndexMatrix"),
    ] {
        assert!(printed[holder].1.contains(text), "{text} is not in {}", printed[holder].1);
    }

    // the key material of the agreement key, by docs/protocol.md, section 6
    let agreement = support::forge::hash("dphe/v2/agreement", &[&signing]);
    let secrets = [&us[..], &ua, &signing, &mask, &agreement, &p, &q];
    let forms: Vec<String> = secrets.into_iter().flat_map(printed_forms).collect();
    for (name, text) in &printed {
        for form in &forms {
            assert!(!text.contains(form.as_str()), "{name} prints {form}");
        }
    }
    // weights as floats and in fixed point, and their indices
    for (name, text) in &printed[..2] {
        for form in ["734375", "617187", "48128", "40448", "31337", "31_337"] {
            assert!(!text.contains(form), "{name} prints {form}");
        }
    }
    for slot in &slots {
        assert!(!printed[8].1.contains(&format!(" {slot}")), "an update prints its slots");
    }
    // the number of non-zeros is not printed either
    let other = SparseVector::from_dense(&vec![0.5; 40_000]).unwrap();
    assert_eq!(format!("{other:?}"), format!("{vector:?}"));
    // the test finds what it looks for
    assert!(forms.iter().any(|form| format!("{us:?}").contains(form.as_str())));
}

/// A masked update holds the aggregator's part of the masks, and sums hold numbers.
#[test]
fn debug_output_of_masked_updates_and_sums_contains_no_secrets() {
    let mut session = Session::new(sized(Profile::Full, 1), 3, 19);
    let mut collecting = session.aggregator.begin(Round::FIRST);
    let mut printed = Vec::new();
    let mut secrets: Vec<Vec<u8>> = Vec::new();
    let values = vec![0.734_375; 120];
    for user in 0..3 {
        let update =
            Update::new(SparseVector::from_dense(&values).unwrap()).with_dense(vec![0.617_187_5, 0.0, 0.0]);
        let sealed = session.users[user].seal(Round::FIRST, &update, &mut session.rng, THREADS).unwrap();
        printed.push(format!("{sealed:?} {sealed:#?}"));
        // the aggregator's part of the masks comes first
        secrets.push(sealed.to_bytes()[..32].to_vec());
        collecting.accept(sealed, THREADS).unwrap();
    }
    printed.push(format!("{collecting:?} {collecting:#?}"));
    let mut sum = collecting.finish(THREADS).unwrap();
    printed.push(format!("{sum:?} {sum:#?}"));
    let blinds = sum.take_blinds();
    printed.push(format!("{blinds:?} {blinds:#?}"));
    let opened = session.key_generator.open(sum, &mut session.rng, THREADS).unwrap();
    printed.push(format!("{opened:?} {opened:#?}"));
    secrets.push(opened.to_bytes());
    let OpenedSum::Masked(masked) = opened else { panic!("sums of public supports are masked") };
    let unchecked = masked.unmask(&session.aggregator, &blinds).unwrap();
    printed.push(format!("{masked:?} {masked:#?} {unchecked:?} {unchecked:#?}"));
    let sum = unchecked.check(&session.users[0]).unwrap();
    printed.push(format!("{sum:?} {sum:#?}"));
    assert_eq!(sum.weights(), [3 * 48_128; 120]);
    let forms: Vec<String> = secrets.iter().flat_map(|secret| printed_forms(secret)).collect();
    for text in &printed {
        for form in forms.iter().map(String::as_str).chain(["144384", "144_384", "48128", "734375"]) {
            assert!(!text.contains(form), "{text} contains {form}");
        }
    }
    assert!(forms.iter().any(|form| format!("{:?}", secrets[0]).contains(form.as_str())));
}
