//! What leaks, measured on real transcripts: attacks that must succeed where docs/leakage.md says that they do, and must be
//! no better than guessing where it says that they are not. Generators have fixed seeds, so every run gives the same figures;
//! `cargo test --test leaks -- --nocapture` prints them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "leaks/attack.rs"]
mod attack;
#[path = "leaks/statistics.rs"]
mod statistics;
#[path = "leaks/transcript.rs"]
mod transcript;

use std::collections::BTreeMap;

use attack::{Notes, expected_share, hits};
use dphe::party::{
    Action, AggregatorEvent, AggregatorParty, KeyGeneratorEvent, KeyGeneratorParty, Time, UserEvent,
    UserParty,
};
use dphe::{
    Aggregator, Digest, IdentityKey, KeyGenerator, LocalUpdate, NoiseMode, Party, Profile, Roster, Round,
    SealedUpdate, SparseVector, TaskConfig, TaskId, User, UserId, hazmat,
};
use dphe_paillier::Plaintext;
use rand_core::SeedableRng as _;
use statistics::{homogeneity, p_value, uniformity};
use transcript::{Session, THREADS, config, inverse, rounds, subset};

/// Beyond this many standard deviations, to either side, lies one honest run in 16,000.
const MOST_DEVIATION: f64 = 4.0;

fn assert_unremarkable(what: &str, z: f64) {
    println!("{what}: {z:+.2} standard deviations, p = {:.3}", p_value(z));
    assert!(z.abs() < MOST_DEVIATION, "{what}: {z}");
}

/// Runs rounds with fresh random supports and writes down what the aggregator sees.
fn observe(session: &mut Session, nonzeros: usize, count: usize) -> Notes {
    let mut notes = Notes::new(session.users.len(), session.task.dimension());
    for (t, round) in rounds(count).enumerate() {
        let supports = session.supports(nonzeros);
        notes.add(t, &session.round(round, &supports));
    }
    notes
}

/// More hits than this, over all rounds, would be more than chance. Nothing but the bits of a round itself can tell
/// about its permutation: somebody who knew them, and guessed among the positions with the same bit, would be right once
/// in as many tries as there are such positions.
fn most_by_chance(tries: f64, same_bit: f64) -> f64 {
    let expected = tries / same_bit;
    1.0 + expected + 5.0 * expected.sqrt()
}

fn hits_of_all_rounds(session: &Session, guesses: &[Option<u32>], count: usize) -> usize {
    rounds(count).map(|round| hits(guesses, &session.phi(round))).sum()
}

/// The attack on a permutation that is kept, at the size given: the rounds it took to single out half of it, 90 % and 99 %.
fn recover_a_kept_permutation(dimension: usize, count: usize) -> [usize; 3] {
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
        // equal and unique signatures are proof: there are no wrong guesses
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
fn a_permutation_that_is_kept_is_recovered_within_tens_of_rounds() {
    let [half, most, nearly_all] = recover_a_kept_permutation(20_000, 26);
    assert!((14..=17).contains(&half));
    assert!((17..=20).contains(&most));
    assert!((20..=24).contains(&nearly_all));
}

/// The same at the paper's size. It takes minutes.
#[test]
#[ignore = "takes minutes: cargo test --test leaks -- --ignored"]
fn a_permutation_that_is_kept_is_recovered_at_full_size() {
    let reached = recover_a_kept_permutation(2_048 * 101, 30);
    assert_eq!(reached, [19, 22, 26]);
}

#[test]
fn a_fresh_permutation_is_not_recovered() {
    let (users, dimension, count) = (5, 20_000, 26);
    let mut session = Session::new(config(Profile::Sparse, users, dimension, dimension / 10), users, 2);
    let notes = observe(&mut session, dimension / 10, count);
    let mut tried = 0;
    for t in [1, 5, 10, 15, 20, count] {
        let guesses = notes.by_signature(t);
        let claimed = guesses.iter().flatten().count();
        tried += claimed;
        let right = hits_of_all_rounds(&session, &guesses, count);
        // the smaller of the two kinds: sums that are not zero
        let bound = most_by_chance((claimed * count) as f64, 0.4 * dimension as f64);
        println!(
            "sparse, D = {dimension}, {t} rounds: {claimed} positions claimed, {right} right in any of {count} rounds, bound {bound:.1}"
        );
        assert!(right as f64 <= bound, "{right}");
    }
    // the attack did try
    assert!(tried > 0);
}

#[test]
fn pads_delay_the_attack_on_a_kept_permutation_and_fresh_ones_stop_it() {
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
        // indices of each kind together are right once
        let bound = most_by_chance(2.0 * count as f64, 1.0);
        println!(
            "sparse, half pads, D = {dimension}, {t} rounds: {dimension} positions claimed, {right} right in {count} rounds together, bound {bound:.0}"
        );
        assert!(right as f64 <= bound, "{right}");
    }
}

/// Whoever has a user's help has phi, fresh or not: then every support is plain. A documented leak.
#[test]
fn with_one_users_help_the_aggregator_reads_every_support() {
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

/// Overlaps survive any permutation that all users share. A documented leak.
#[test]
fn the_aggregator_sees_how_much_users_overlap() {
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

/// Singles, certain zeros, and what a user finds after taking its own part away.
#[test]
fn the_sum_itself_gives_single_users_away() {
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
            // without pads the gauge is exact
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

/// With pads the gauge counts what the aggregator can see, which is not what the sum gives away.
#[test]
fn with_pads_the_gauge_is_an_estimate() {
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

/// The pads of many uploads with the same non-zeros, in the original frame.
fn pad_counts(support: &[u32], runs: usize, seed: u64) -> (Vec<u32>, usize) {
    let (positions, capacity) = (200, 40);
    let mut session = Session::new(config(Profile::Sparse, 3, positions, capacity), 3, seed);
    let back = inverse(&session.phi(Round::FIRST));
    let back_of = inverse(&session.phi_of(0, Round::FIRST));
    let mut counts = vec![0; positions];
    for _ in 0..runs {
        let vector = session.vector(support);
        let (_, body) = session.seal(0, Round::FIRST, vector);
        let mut sent: Vec<u32> =
            session.slots(&body).iter().map(|&slot| back[back_of[slot as usize] as usize]).collect();
        sent.sort_unstable();
        sent.dedup();
        assert_eq!(sent.len(), capacity);
        // every non-zero is sent, and no pad lies on one
        assert!(support.iter().all(|index| sent.binary_search(index).is_ok()));
        sent.iter().for_each(|&position| counts[position as usize] += 1);
    }
    let free: Vec<u32> =
        (0..).zip(counts).filter(|(p, _)| support.binary_search(p).is_err()).map(|(_, c)| c).collect();
    (free, capacity - support.len())
}

#[test]
fn pads_are_uniform_wherever_the_nonzeros_are() {
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
fn slots_are_uniform_and_say_nothing_about_the_support() {
    let (positions, capacity, runs) = (200, 20, 1_000);
    let supports: [Vec<u32>; 2] = [(0..20).collect(), (0..200).step_by(10).collect()];
    let mut seen = Vec::new();
    for (i, support) in supports.iter().enumerate() {
        let mut session = Session::new(config(Profile::Sparse, 3, positions, capacity), 3, 11 + i as u64);
        let (mut on_the_wire, mut at_the_aggregator) = (vec![0; positions], vec![0; positions]);
        for round in rounds(runs) {
            session.users[0].advance(round);
            let vector = session.vector(support);
            let (_, body) = session.seal(0, round, vector);
            let slots = session.slots(&body);
            // in order of their slots: the order of the columns says nothing
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

/// The same test must notice when a permutation is kept.
#[test]
fn slots_of_a_kept_permutation_show() {
    let (positions, capacity, runs) = (200, 20, 200);
    let support: Vec<u32> = (0..20).collect();
    let mut session = Session::new(config(Profile::Paper, 3, positions, capacity), 3, 13);
    let mut counts = vec![0; positions];
    for round in rounds(runs) {
        let vector = session.vector(&support);
        let (_, body) = session.seal(0, round, vector);
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
fn bodies_have_one_size_whatever_is_in_them() {
    for (profile, shards) in [(Profile::Sparse, 1), (Profile::Sparse, 3), (Profile::Full, 1)] {
        let mut session = Session::new(sized(profile, shards), 3, 14);
        let most = session.task.capacity() * shards as usize;
        let mut shapes = Vec::new();
        for nonzeros in 0..=most {
            let support = subset(&mut session.rng, 120, nonzeros);
            let update = LocalUpdate::new(session.vector(&support)).with_dense(vec![0.5, 0.0, -0.25]);
            let sealed = session.users[0].seal(Round::FIRST, &update, &mut session.rng, THREADS).unwrap();
            let body = sealed.to_body();
            let slots = if profile == Profile::Full { 0 } else { session.slots(&body).len() };
            shapes.push((body.len(), sealed.ciphertexts(&session.task), slots));
        }
        println!(
            "{profile}, {shards} shards: every body of 0 to {most} non-zeros is {:?} bytes, ciphertexts, slots",
            shapes[0]
        );
        shapes.dedup();
        assert_eq!(shapes.len(), 1);
    }
}

fn sent_to(actions: &[Action], party: Party) -> Vec<Vec<u8>> {
    let to = |action: &Action| match action {
        Action::Send { to, message } if *to == party => Some(message.clone()),
        _ => None,
    };
    actions.iter().filter_map(to).collect()
}

/// The same for whole messages, signed and framed: eight users with 0 to 20 non-zeros answer one ticket.
#[test]
fn upload_messages_have_one_size_and_number() {
    for (profile, shards) in [(Profile::Sparse, 1), (Profile::Sparse, 3), (Profile::Full, 1)] {
        let mut session = Session::new(sized(profile, shards), 8, 15);
        let identity = |of: u8| IdentityKey::from_seed(&[of; 32]);
        let ids: Vec<UserId> = session.users.iter().map(User::id).collect();
        let roster = Roster::new(
            session.task.clone(),
            0,
            session.key_generator.encryption_key(),
            identity(100).identity(),
            &identity(101),
            ids.iter().map(|&id| (id, identity(id.get() as u8).identity())).collect::<BTreeMap<_, _>>(),
        )
        .unwrap();
        let now = Time(0);
        let keys: Vec<_> = ids.iter().map(|&id| session.key_generator.enroll(id, &mut session.rng)).collect();
        let aggregator_keys = session.key_generator.aggregator_keys();
        let (mut aggregator, _) =
            AggregatorParty::start(aggregator_keys, identity(100), roster.clone(), &[], THREADS, now)
                .unwrap();
        let (mut key_generator, _) =
            KeyGeneratorParty::start(session.key_generator, identity(101), roster.clone(), &[], THREADS, now)
                .unwrap();
        let model = b"a model".to_vec();
        let start =
            AggregatorEvent::Start { model: Digest::of_model(&model), deadline: 1_000, nonce: [0; 16] };
        let open = sent_to(&aggregator.step(start, now).unwrap(), Party::KeyGenerator).remove(0);
        let answer = key_generator.step(KeyGeneratorEvent::Message(open), now, &mut session.rng).unwrap();
        let ticket = sent_to(&answer, Party::Aggregator).remove(0);
        let mut sizes = Vec::new();
        for (i, (keys, &id)) in keys.into_iter().zip(&ids).enumerate() {
            let support = subset(&mut session.rng, 120, [0, 1, 2, 5, 10, 15, 19, 20][i]);
            let values = support.iter().map(|_| 0.5).collect();
            let update =
                LocalUpdate::new(SparseVector::new(120, support, values).unwrap()).with_dense(vec![0.0; 3]);
            let (mut user, _) =
                UserParty::start(keys, identity(id.get() as u8), roster.clone(), &[], THREADS, now).unwrap();
            let begin = UserEvent::Begin { ticket: ticket.clone(), model: model.clone() };
            let mut actions = user.step(begin, now, &mut session.rng).unwrap();
            actions.extend(
                user.step(UserEvent::Update { round: Round::FIRST, update }, now, &mut session.rng).unwrap(),
            );
            sizes.push(sent_to(&actions, Party::Aggregator).iter().map(Vec::len).collect::<Vec<_>>());
        }
        println!("{profile}, {shards} shards: every user sends messages of {:?} bytes", sizes[0]);
        assert_eq!(sizes[0].len(), 1);
        sizes.dedup();
        assert_eq!(sizes.len(), 1);
    }
}

/// In `paper` the number of shards follows the number of non-zeros. A documented leak.
#[test]
fn shards_of_the_paper_show_the_number_of_nonzeros() {
    let mut session = Session::new(sized(Profile::Paper, 3), 3, 16);
    let mut sizes = Vec::new();
    for nonzeros in [0, 20, 21, 40, 41, 60] {
        let support = subset(&mut session.rng, 120, nonzeros);
        let update = LocalUpdate::new(session.vector(&support)).with_dense(vec![0.0; 3]);
        let sealed = session.users[0].seal(Round::FIRST, &update, &mut session.rng, THREADS).unwrap();
        sizes.push(sealed.to_body().len());
    }
    println!("paper, capacity 20: bodies of 0, 20, 21, 40, 41, 60 non-zeros have {sizes:?} bytes");
    assert!(sizes[0] == sizes[1] && sizes[1] < sizes[2]);
    assert!(sizes[2] == sizes[3] && sizes[3] < sizes[4] && sizes[4] == sizes[5]);
}

/// An aggregator that deviates. The key generator sees a sum and a list of names, never an upload: nothing binds the one to
/// the other yet. When that changes, this test must fail.
#[test]
fn a_deviating_aggregator_still_reads_one_user_a_round() {
    let (positions, capacity, round) = (100, 10, Round::FIRST);
    let mut session = Session::new(config(Profile::Sparse, 5, positions, capacity), 5, 17);
    let mut secret = vec![0.0; positions];
    for (index, weight) in [(3, 0.5), (14, -0.25), (15, 0.125), (92, -0.75)] {
        secret[index] = weight;
    }
    let (count, body) = session.seal(0, round, SparseVector::from_dense(&secret).unwrap());
    let upload =
        |task: &_, user, count, body: &[u8]| SealedUpdate::from_body(task, round, user, count, body).unwrap();
    let mut collecting = session.aggregator.begin(round);
    collecting.accept(upload(&session.task, session.users[0].id(), count, &body), THREADS).unwrap();
    // the other four names, with zeros of the aggregator's own making
    let key = session.key_generator.encryption_key().clone();
    for user in &session.users[1..] {
        let zeros = vec![Plaintext::new(&key, 0).unwrap(); capacity];
        let zeros = key.encrypt_all(&zeros, &mut session.rng, THREADS).unwrap();
        let mut body: Vec<u8> = (0..capacity as u32).flat_map(u32::to_be_bytes).collect();
        body.extend(key.encode(&zeros, THREADS).unwrap());
        collecting.accept(upload(&session.task, user.id(), capacity as u32, &body), THREADS).unwrap();
    }
    let sum = collecting.close(THREADS).unwrap();
    let sum = session.key_generator.open(sum, &mut session.rng, THREADS).unwrap();
    assert_eq!(sum.users(), 5);
    let read: Vec<f64> = sum.weights().iter().map(|&sum| sum as f64 / 65_536.0).collect();
    assert_eq!(read, secret);

    // once a round: another sum, an honest one even, is refused
    let mut collecting = session.aggregator.begin(round);
    for (user, support) in session.supports(capacity).iter().enumerate() {
        let vector = session.vector(support);
        let (count, body) = session.seal(user, round, vector);
        collecting.accept(upload(&session.task, session.users[user].id(), count, &body), THREADS).unwrap();
    }
    let second = session.key_generator.open(collecting.close(THREADS).unwrap(), &mut session.rng, THREADS);
    assert_eq!(second.unwrap_err().code(), "committed");
}

/// Ways in which four bytes in a row, or a whole word, could be printed.
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
fn nothing_secret_is_printed() {
    let secret =
        |first: u8| -> [u8; 32] { core::array::from_fn(|i| first.wrapping_add((37 * i) as u8) | 0x81) };
    let hex = |text: &str| -> Vec<u8> {
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    };
    // factors of a toy key
    let (p, q) = (hex("f5bc8fbbbde5c0994164d8399f769f3b"), hex("c5852996a801372bc679cca3f871ecd3"));
    let (us, ua, signing) = (secret(1), secret(2), secret(3));
    let user = UserId::new(1).unwrap();

    let mut rng = chacha20::ChaCha20Rng::seed_from_u64(18);
    let mut config = config(Profile::Sparse, 3, 40_000, 7);
    config.dense = 1;
    let task = hazmat::task_params(TaskId::from_bytes([0; 16]), config).unwrap();
    let key = dphe_paillier::hazmat::decryption_key(&p, &q, NoiseMode::Secure).unwrap();
    let mut key_generator = KeyGenerator::with_key(task.clone(), key, &mut rng).unwrap();
    hazmat::set_seeds(&mut key_generator, us, [(user, ua)]);
    let user_keys = key_generator.enroll(user, &mut rng);
    let aggregator_keys = key_generator.aggregator_keys();
    let identity = IdentityKey::from_seed(&signing);
    let vector = SparseVector::new(40_000, vec![31_337], vec![0.734_375]).unwrap();
    let update = LocalUpdate::new(vector.clone()).with_dense(vec![0.617_187_5]);
    let person = User::new(user_keys.clone()).unwrap();
    let sealed = person.seal(Round::FIRST, &update, &mut rng, THREADS).unwrap();
    let slots: Vec<String> = sealed.to_body()[..28]
        .chunks(4)
        .map(|b| u32::from_be_bytes(b.try_into().unwrap()).to_string())
        .collect();
    let aggregator = Aggregator::new(aggregator_keys.clone()).unwrap();
    let mut collecting = aggregator.begin(Round::FIRST);
    // seeds print as parts of the keys, index matrices as parts of an update; permutations never leave the crate
    let mut printed = vec![
        ("SparseVector", format!("{vector:?} {vector:#?}")),
        ("LocalUpdate", format!("{update:?} {update:#?}")),
        ("UserKeys", format!("{user_keys:?} {user_keys:#?}")),
        ("AggregatorKeys", format!("{aggregator_keys:?} {aggregator_keys:#?}")),
        ("KeyGenerator", format!("{key_generator:?} {key_generator:#?}")),
        ("User", format!("{person:?} {person:#?}")),
        ("Aggregator", format!("{aggregator:?} {aggregator:#?}")),
        ("IdentityKey", format!("{identity:?} {identity:#?}")),
        ("SealedUpdate", format!("{sealed:?} {sealed:#?}")),
        ("UserEvent", format!("{:?}", UserEvent::Update { round: Round::FIRST, update: update.clone() })),
    ];
    collecting.accept(sealed, THREADS).unwrap();
    printed.push(("Collecting", format!("{collecting:?}")));
    for (what, text) in [(0, "UserSharedSeed"), (1, "UserAggregatorSeed"), (2, "IndexMatrix")] {
        let holder = [2, 2, 8][what];
        assert!(printed[holder].1.contains(text), "{text} is not in {}", printed[holder].1);
    }

    let secrets = [&us[..], &ua, &signing, &p, &q];
    let forms: Vec<String> = secrets.into_iter().flat_map(printed_forms).collect();
    for (name, text) in &printed {
        for form in &forms {
            assert!(!text.contains(form.as_str()), "{name} prints {form}");
        }
    }
    // weights as floats or in fixed point, and where they are
    for (name, text) in &printed[..2] {
        for form in ["734375", "617187", "48128", "40448", "31337", "31_337"] {
            assert!(!text.contains(form), "{name} prints {form}");
        }
    }
    for slot in &slots {
        assert!(!printed[8].1.contains(&format!(" {slot}")), "an update prints its slots");
    }
    // nor how many there are
    let other = SparseVector::from_dense(&vec![0.5; 40_000]).unwrap();
    assert_eq!(format!("{other:?}"), format!("{vector:?}"));
    // the test can find what it looks for
    assert!(forms.iter().any(|form| format!("{us:?}").contains(form.as_str())));
}
