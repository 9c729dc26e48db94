//! What the roles refuse: each bad input gives its error and its culprit, and does not affect the round.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use dphe::party::Party as _;
use dphe::scheme::RoundParams;
use dphe::wire::{DecodeWith as _, Encode as _, RosterPlan, UploadParams};
use dphe::{
    Aggregator, ClipRule, Collecting, Error, KeyGenerator, NoiseMode, PartyId, Profile, PublicSupport,
    Receipts, Roster, Round, SealedUpdate, SparseVector, TaskConfig, TaskId, TaskParams, User, WeightSum,
};
use support::{
    ONE, Roles, config, config_without_receipts, identity, key, rng, roles, roles_of, roster_plan, round,
    task, update, upload_params, user_id,
};

/// The length of a ciphertext under the 256-bit key, and of its two halves.
const WIDTH: usize = 64;
const HALF: usize = 32;

/// The update of user `n` in these tests: one weight that only this user sends, and one that all users send.
fn seal(user: &User, round: Round, rng: &mut chacha20::ChaCha20Rng) -> SealedUpdate {
    let n = user.id().get();
    user.seal(round, &update(24, &[(n, 0.25), (20, 0.5)], &[1.0, -0.5]), rng, ONE).unwrap()
}

/// The sum of the first three users' updates.
fn expect_sum(sum: &WeightSum) {
    let mut expected = [0; 24];
    expected[1..=3].fill(1 << 14);
    expected[20] = 3 << 15;
    assert_eq!(sum.weights(), expected);
    assert_eq!(sum.dense(), [3 * ((1 << 16) - 1), -3 << 15]);
    assert_eq!(sum.users(), 3);
}

/// Accepts the updates of the first three users and opens the sum.
fn finish(roles: &mut Roles, mut collecting: Collecting) {
    for user in &roles.users[..3] {
        collecting.accept(seal(user, collecting.round(), &mut roles.rng), ONE).unwrap();
    }
    let sum = roles.open(collecting.finish(ONE).unwrap()).unwrap();
    expect_sum(&sum);
}

#[test]
fn sealing_refuses_weights_that_cannot_be_encoded() {
    let mut roles = roles(config(Profile::Sparse), 3, 1);
    let outside = "outside the task's range; clip it, or raise the clip exponent of the task";
    let not_finite = "not a finite number";
    let above = 1.0f64.next_up();
    for (w, reason) in [
        (f64::NAN, not_finite),
        (-f64::NAN, not_finite),
        (f64::INFINITY, not_finite),
        (f64::NEG_INFINITY, not_finite),
        (above, outside),
        (-above, outside),
        (f64::MAX, outside),
    ] {
        let (user, rng) = (&roles.users[0], &mut roles.rng);
        // the error names the weight, not its place among the non-zeros
        let error =
            user.seal(Round::FIRST, &update(24, &[(2, 0.5), (17, w)], &[0.0; 2]), rng, ONE).unwrap_err();
        assert_eq!(error, Error::Value { index: 17, reason });
        assert_eq!((error.code().as_str(), error.culprit()), ("value", None));
        let error = user.seal(Round::FIRST, &update(24, &[], &[0.0, w]), rng, ONE).unwrap_err();
        assert_eq!(error, Error::Value { index: 1, reason });
        // such values are kept when a sparse vector is made from a dense one
        let mut dense = [0.0; 24];
        dense[9] = w;
        let update = dphe::Update::new(SparseVector::from_dense(&dense).unwrap()).with_dense(vec![0.0; 2]);
        assert_eq!(
            user.seal(Round::FIRST, &update, rng, ONE).unwrap_err(),
            Error::Value { index: 9, reason }
        );
    }
    let collecting = roles.aggregator.begin(Round::FIRST);
    finish(&mut roles, collecting);
}

#[test]
fn zeros_do_not_occupy_positions() {
    let config = TaskConfig { capacity: 1, shards: 1, ..config(Profile::Sparse) };
    let mut roles = roles(config, 3, 2);
    let step = 2f64.powi(-16);
    let zeros = [0.0, -0.0, f64::MIN_POSITIVE, -f64::from_bits(1), step / 2.0, -step / 2.0];
    let weights: Vec<(u32, f64)> = (0..).step_by(2).zip(zeros).collect();
    let mut collecting = roles.aggregator.begin(Round::FIRST);
    for user in &roles.users {
        // the capacity is one position, which a weight occupies
        let with_weight = [&weights[..], &[(23, -1.0)]].concat();
        let update = update(24, &with_weight, &[-0.0, f64::MIN_POSITIVE / 2.0]);
        collecting.accept(user.seal(Round::FIRST, &update, &mut roles.rng, ONE).unwrap(), ONE).unwrap();
    }
    let sum = roles.open(collecting.finish(ONE).unwrap()).unwrap();
    let mut expected = [0; 24];
    expected[23] = -3 * ((1 << 16) - 1);
    assert_eq!(sum.weights(), expected);
    assert_eq!(sum.dense(), [0, 0]);
}

#[test]
fn clipping_counts_clipped_weights() {
    let config = TaskConfig { clip_rule: ClipRule::Clip, clip_exponent: -1, ..config(Profile::Sparse) };
    let mut roles = roles(config, 3, 3);
    let mut collecting = roles.aggregator.begin(Round::FIRST);
    for user in &roles.users {
        // the ends of the range are inside
        let weights = [(0, 0.5), (1, -0.5), (2, 0.5f64.next_up()), (3, -1e300), (4, 0.1)];
        let sealed =
            user.seal(Round::FIRST, &update(24, &weights, &[7.0, 0.0]), &mut roles.rng, ONE).unwrap();
        assert_eq!(sealed.clipped(), 3);
        let nan = update(24, &[(0, f64::NAN)], &[0.0; 2]);
        assert_eq!(user.seal(Round::FIRST, &nan, &mut roles.rng, ONE).unwrap_err().code().as_str(), "value");
        collecting.accept(sealed, ONE).unwrap();
    }
    let sum = roles.open(collecting.finish(ONE).unwrap()).unwrap();
    let most = 3 * ((1 << 15) - 1);
    assert_eq!(sum.weights()[..4], [most, -most, most, -most]);
    assert_eq!(sum.dense(), [most, 0]);
}

#[test]
fn sealing_refuses_more_positions_than_the_capacity() {
    for (profile, capacity, shards) in
        [(Profile::Sparse, 3, 2), (Profile::Paper, 2, 3), (Profile::Sparse, 6, 1)]
    {
        let config = TaskConfig { capacity, shards, ..config(profile) };
        let block = config.block;
        let mut roles = roles(config, 3, 4);
        let full: Vec<(u32, f64)> = (0..6).map(|p| (p * block, 0.5)).collect();
        let over: Vec<(u32, f64)> = (0..7).map(|p| (p * block, 0.5)).collect();
        let (user, rng) = (&roles.users[0], &mut roles.rng);
        let error = user.seal(Round::FIRST, &update(24, &over, &[0.0; 2]), rng, ONE).unwrap_err();
        assert_eq!(error, Error::Capacity { occupied: 7, capacity: 6 });
        assert_eq!(error.code().as_str(), "capacity");
        // as many positions as the capacity are accepted
        user.seal(Round::FIRST, &update(24, &full, &[0.0; 2]), rng, ONE).unwrap();
        let collecting = roles.aggregator.begin(Round::FIRST);
        finish(&mut roles, collecting);
    }
}

#[test]
fn sealing_refuses_wrong_lengths() {
    let mut roles = roles(config(Profile::Sparse), 3, 5);
    for (dimension, dense) in [(23, 2), (25, 2), (0, 2), (24, 1), (24, 3), (24, 0)] {
        let error = roles.users[0]
            .seal(Round::FIRST, &update(dimension, &[], &vec![0.0; dense]), &mut roles.rng, ONE)
            .unwrap_err();
        let expected = if dimension == 24 {
            Error::Dimension { what: "dense values", expected: 2, found: dense }
        } else {
            Error::Dimension { what: "weights", expected: 24, found: dimension }
        };
        assert_eq!(error, expected);
        assert_eq!(error.code().as_str(), "dimension");
    }
    // invalid sparse vectors
    assert_eq!(SparseVector::new(5, vec![1, 2], vec![0.5]).unwrap_err().code().as_str(), "dimension");
    assert_eq!(SparseVector::new(5, vec![1, 5], vec![0.5; 2]).unwrap_err().code().as_str(), "dimension");
    for indices in [vec![1, 1], vec![2, 1]] {
        assert_eq!(SparseVector::new(5, indices, vec![0.5; 2]).unwrap_err().code().as_str(), "value");
    }
    let collecting = roles.aggregator.begin(Round::FIRST);
    finish(&mut roles, collecting);
}

#[test]
fn sealing_refuses_weights_outside_the_public_support() {
    let mut roles = roles(config(Profile::Full), 3, 6);
    for number in 1..=6 {
        let round = round(number);
        let support = PublicSupport::of(roles.key_generator.task(), round);
        let inside: Vec<usize> = support.indices().collect();
        let mut collecting = roles.aggregator.begin(round);
        for user in &roles.users {
            for index in (0..24).filter(|index| !inside.contains(index)) {
                // with weights before and after it
                let mut weights: Vec<(u32, f64)> = inside.iter().map(|&i| (i as u32, 0.5)).collect();
                weights.push((index as u32, 0.5));
                weights.sort_unstable_by_key(|&(i, _)| i);
                let error =
                    user.seal(round, &update(24, &weights, &[0.0; 2]), &mut roles.rng, ONE).unwrap_err();
                assert_eq!(error, Error::Support { index, round });
                assert_eq!(error.code().as_str(), "support");
                // a zero is accepted there
                user.seal(round, &update(24, &[(index as u32, -0.0)], &[0.0; 2]), &mut roles.rng, ONE)
                    .unwrap();
            }
            let weights: Vec<(u32, f64)> = inside.iter().map(|&i| (i as u32, 0.5)).collect();
            let sealed = user.seal(round, &update(24, &weights, &[0.0; 2]), &mut roles.rng, ONE).unwrap();
            collecting.accept(sealed, ONE).unwrap();
        }
        let sum = roles.open(collecting.finish(ONE).unwrap()).unwrap();
        assert_eq!(sum.weights(), vec![3 << 15; inside.len()]);
    }
}

#[test]
fn unknown_users_and_second_updates_are_refused() {
    let mut roles = roles(TaskConfig { max_users: 3, ..config(Profile::Sparse) }, 3, 7);
    // this user is enrolled after the aggregator got its keys
    let late = User::new(roles.key_generator.enroll(user_id(4), &mut roles.rng)).unwrap();
    let mut collecting = roles.aggregator.begin(Round::FIRST);
    let error = collecting.accept(seal(&late, Round::FIRST, &mut roles.rng), ONE).unwrap_err();
    assert_eq!(error, Error::UnknownUser(user_id(4)));
    assert_eq!((error.code().as_str(), error.culprit()), ("unknown_user", Some(user_id(4))));

    for user in &roles.users {
        let first = seal(user, Round::FIRST, &mut roles.rng);
        let params = RoundParams::new(user.task(), Round::FIRST);
        let same = SealedUpdate::from_bytes(&first.to_bytes(), &upload_params(&params, &first)).unwrap();
        collecting.accept(first, ONE).unwrap();
        // another update, and the same one again
        let other = seal(user, Round::FIRST, &mut roles.rng);
        for again in [other, same] {
            let error = collecting.accept(again, ONE).unwrap_err();
            assert_eq!(error, Error::Conflict { what: "update of this user" });
        }
    }
    assert_eq!(collecting.users().collect::<Vec<_>>(), [1, 2, 3].map(user_id));
    let sum = roles.open(collecting.finish(ONE).unwrap()).unwrap();
    expect_sum(&sum);
}

#[test]
fn more_users_than_max_users_are_refused() {
    let mut roles = roles(TaskConfig { max_users: 3, ..config(Profile::Sparse) }, 4, 8);
    let mut collecting = roles.aggregator.begin(Round::FIRST);
    let mut other = roles.aggregator.begin(Round::FIRST);
    for user in &roles.users[..3] {
        collecting.accept(seal(user, Round::FIRST, &mut roles.rng), ONE).unwrap();
    }
    let fourth = seal(&roles.users[3], Round::FIRST, &mut roles.rng);
    let full = Error::Size { what: "the number of users" };
    assert_eq!(collecting.accept(fourth, ONE).unwrap_err(), full);
    other.accept(seal(&roles.users[3], Round::FIRST, &mut roles.rng), ONE).unwrap();
    assert_eq!(collecting.merge(other, ONE).unwrap_err(), full);
    let sum = roles.open(collecting.finish(ONE).unwrap()).unwrap();
    expect_sum(&sum);
}

#[test]
fn updates_and_replicas_of_another_round_are_refused() {
    let mut roles = roles(config(Profile::Sparse), 3, 9);
    let current = round(2);
    let mut collecting = roles.aggregator.begin(current);
    for number in [1, 3, 1 << 20] {
        let user = &roles.users[0];
        let error = collecting.accept(seal(user, round(number), &mut roles.rng), ONE).unwrap_err();
        let other = collecting.merge(roles.aggregator.begin(round(number)), ONE).unwrap_err();
        let round = round(number);
        let expected =
            if number == 1 { Error::Stale { round, current } } else { Error::Future { round, current } };
        assert_eq!((&error, &other), (&expected, &expected));
    }
    // no honest round is that far ahead
    for number in [(1 << 20) + 2, u64::MAX] {
        let error =
            roles.users[0].seal(round(number), &update(24, &[], &[0.0; 2]), &mut roles.rng, ONE).unwrap_err();
        assert_eq!(error, Error::Future { round: round(number), current: Round::FIRST });
    }
    finish(&mut roles, collecting);
}

#[test]
fn forgotten_permutations_are_refused() {
    for profile in [Profile::Sparse, Profile::Paper] {
        let mut roles = roles(config(profile), 3, 10);
        roles.users.iter_mut().for_each(|user| user.advance(round(5)));
        let stale = Error::Stale { round: round(4), current: round(5) };
        let sealed = roles.users[0].seal(round(4), &update(24, &[], &[0.0; 2]), &mut roles.rng, ONE);
        if profile == Profile::Paper {
            // in `paper`, permutations are never forgotten
            sealed.unwrap();
        } else {
            assert_eq!(sealed.unwrap_err(), stale);
        }
        // the aggregator forgets them too
        let mut fresh = support::roles(config(profile), 3, 10);
        let early = seal(&fresh.users[0], round(4), &mut fresh.rng);
        roles.aggregator.advance(round(5));
        let accepted = roles.aggregator.begin(round(4)).accept(early, ONE);
        if profile == Profile::Sparse {
            assert_eq!(accepted.unwrap_err(), stale);
        }
        // advancing to an earlier round changes nothing, and later rounds still work
        roles.users.iter_mut().for_each(|user| user.advance(round(2)));
        let collecting = roles.aggregator.begin(round(7));
        finish(&mut roles, collecting);
    }
}

#[test]
fn sum_below_the_floor_is_refused() {
    for (min_users, min_percent, floor) in [(3, 0, 3), (4, 0, 4), (3, 100, 5), (3, 61, 4)] {
        let mut roles = roles(TaskConfig { min_users, min_percent, ..config(Profile::Sparse) }, 5, 11);
        let mut collecting = roles.aggregator.begin(Round::FIRST);
        for n in 0..floor {
            let still = collecting.finish(ONE).unwrap_err();
            assert_eq!(still.error, Error::SetSmall { users: n, floor });
            assert_eq!(Error::from(still).code().as_str(), "set_small");
            // again with as many users, and with the round given back
            collecting = roles.aggregator.begin(Round::FIRST);
            for user in &roles.users[..=n] {
                collecting = match collecting.finish(ONE) {
                    Err(still) => *still.collecting,
                    Ok(_) => panic!("closed with too few"),
                };
                collecting.accept(seal(user, Round::FIRST, &mut roles.rng), ONE).unwrap();
            }
        }
        let sum = roles.open(collecting.finish(ONE).unwrap()).unwrap();
        assert_eq!(sum.users(), floor);
        assert_eq!(sum.weights()[20], (floor as i64) << 15);
    }
}

#[test]
fn round_is_opened_once() {
    let all = [Profile::Sparse, Profile::Full, Profile::Paper];
    for config in all.map(config).into_iter().chain(all.map(config_without_receipts)) {
        let capacity = if config.profile == Profile::Full { 12 } else { 4 };
        let mut roles = roles(TaskConfig { capacity, ..config }, 3, 12);
        let sealed: Vec<_> = roles.users.iter().map(|user| seal(user, round(2), &mut roles.rng)).collect();
        let replay = |aggregator: &Aggregator| {
            let mut collecting = aggregator.begin(round(2));
            for update in &sealed {
                let params = RoundParams::new(aggregator.task(), round(2));
                let again =
                    SealedUpdate::from_bytes(&update.to_bytes(), &upload_params(&params, update)).unwrap();
                collecting.accept(again, ONE).unwrap();
            }
            collecting.finish(ONE).unwrap()
        };
        let (first, second) = (replay(&roles.aggregator), replay(&roles.aggregator));
        assert_eq!(first.to_bytes(), second.to_bytes());
        expect_sum(&roles.open(first).unwrap());
        let error = roles.open(second).unwrap_err();
        assert_eq!(error, Error::Committed);
        // a sum of an earlier round is refused too
        let mut collecting = roles.aggregator.begin(Round::FIRST);
        for user in &roles.users {
            collecting.accept(seal(user, Round::FIRST, &mut roles.rng), ONE).unwrap();
        }
        let error = roles.open(collecting.finish(ONE).unwrap()).unwrap_err();
        assert_eq!(error, Error::Committed);
        let collecting = roles.aggregator.begin(round(3));
        finish(&mut roles, collecting);
    }
}

/// A failed opening counts. With a second try on other ciphertexts, the key generator would be an oracle.
#[test]
fn failed_round_is_not_opened_again() {
    // of a sum that is checked, both the dense values and the check; of one that is not, the dense values
    for (config, from_the_end) in [
        (config(Profile::Sparse), 1),
        (config(Profile::Sparse), 2),
        (config_without_receipts(Profile::Sparse), 1),
    ] {
        let mut roles = roles(config, 3, 13);
        let mut collecting = roles.aggregator.begin(Round::FIRST);
        let mut next = roles.aggregator.begin(Round::FIRST);
        for user in &roles.users {
            let sealed = seal(user, Round::FIRST, &mut roles.rng);
            let mut body = sealed.to_bytes();
            // another first half: the same noise, with a plaintext that fills the whole range
            let at = body.len() - from_the_end * WIDTH;
            body[at..at + HALF].fill(0x35);
            let params = RoundParams::new(user.task(), Round::FIRST);
            let bad = SealedUpdate::from_bytes(&body, &upload_params(&params, &sealed)).unwrap();
            collecting.accept(bad, ONE).unwrap();
            next.accept(sealed, ONE).unwrap();
        }
        let (bad, good) = (collecting.finish(ONE).unwrap(), next.finish(ONE).unwrap());
        assert_eq!(roles.open(bad).unwrap_err(), Error::RoundFailed);
        assert_eq!(roles.open(good).unwrap_err(), Error::Committed);
        let collecting = roles.aggregator.begin(round(2));
        finish(&mut roles, collecting);
    }
}

/// The key generator does not know whether a masked sum is valid. A user does, and the round is opened once as well.
#[test]
fn masked_sum_of_an_invalid_upload_fails_the_check() {
    let config = TaskConfig { capacity: 12, ..config(Profile::Full) };
    // three packed plaintexts, and the check
    for from_the_end in 1..=4 {
        let mut roles = roles(config.clone(), 3, 13);
        let mut collecting = roles.aggregator.begin(Round::FIRST);
        let mut next = roles.aggregator.begin(Round::FIRST);
        for user in &roles.users {
            let sealed = seal(user, Round::FIRST, &mut roles.rng);
            assert_eq!(sealed.ciphertexts(), 4);
            let mut body = sealed.to_bytes();
            if user.id().get() == 2 {
                let at = body.len() - from_the_end * WIDTH;
                body[at..at + HALF].fill(0x35);
            }
            let params = RoundParams::new(user.task(), Round::FIRST);
            let bad = SealedUpdate::from_bytes(&body, &upload_params(&params, &sealed)).unwrap();
            collecting.accept(bad, ONE).unwrap();
            next.accept(sealed, ONE).unwrap();
        }
        let (bad, good) = (collecting.finish(ONE).unwrap(), next.finish(ONE).unwrap());
        assert_eq!(roles.open(bad).unwrap_err(), Error::Check);
        assert_eq!(roles.open(good).unwrap_err(), Error::Committed);
        let collecting = roles.aggregator.begin(round(2));
        finish(&mut roles, collecting);
    }
}

#[test]
fn sum_with_an_unknown_user_is_refused() {
    let mut roles = roles(config(Profile::Sparse), 3, 14);
    let mut more = support::roles(config(Profile::Sparse), 4, 14);
    let mut collecting = more.aggregator.begin(Round::FIRST);
    for user in &more.users[1..] {
        collecting.accept(seal(user, Round::FIRST, &mut more.rng), ONE).unwrap();
    }
    let error = roles.open(collecting.finish(ONE).unwrap()).unwrap_err();
    assert_eq!(error, Error::SetUnknown(user_id(4)));
    let collecting = roles.aggregator.begin(Round::FIRST);
    finish(&mut roles, collecting);
}

#[test]
fn round_too_far_ahead_is_refused() {
    for config in [config(Profile::Sparse), config(Profile::Full), config_without_receipts(Profile::Full)] {
        let with_seeds = config.receipts != Receipts::None;
        let mut roles = roles(TaskConfig { capacity: 12, shards: 1, ..config }, 3, 15);
        let far = round(u64::MAX);
        let mut collecting = roles.aggregator.begin(far);
        for user in &roles.users {
            match user.seal(far, &update(24, &[], &[0.0; 2]), &mut roles.rng, ONE) {
                Ok(sealed) => collecting.accept(sealed, ONE).unwrap(),
                Err(error) => assert_eq!(error, Error::Future { round: far, current: Round::FIRST }),
            }
        }
        // only updates without masks and permutations can be sealed for such a round
        assert_eq!(collecting.users().len(), if with_seeds { 0 } else { 3 });
        if let Ok(sum) = collecting.finish(ONE) {
            let error = roles.open(sum).unwrap_err();
            assert_eq!(error, Error::Future { round: far, current: Round::FIRST });
        }
        let collecting = roles.aggregator.begin(Round::FIRST);
        finish(&mut roles, collecting);
    }
}

#[test]
fn keys_updates_and_sums_of_another_task_are_refused() {
    let mut roles = roles(config(Profile::Sparse), 3, 16);
    // a key of another length, and a key of another mode
    let wrong = Error::Key(dphe_paillier::Error::KeyMismatch);
    for (bits, mode) in [(512, NoiseMode::Fast), (256, NoiseMode::Secure)] {
        let other = KeyGenerator::with_key(task(config(Profile::Sparse)), key(bits, mode), &mut rng(1));
        assert_eq!(other.unwrap_err(), wrong);
    }
    let same_shape = dphe::hazmat::task_params(TaskId::from_bytes([8; 16]), config(Profile::Sparse)).unwrap();
    let others = [
        same_shape,
        task(TaskConfig { dimension: 2400, ..config(Profile::Sparse) }),
        task(TaskConfig { dimension: 8, capacity: 2, ..config(Profile::Sparse) }),
        task(TaskConfig { dense: 30, ..config(Profile::Sparse) }),
        task(TaskConfig { shards: 1, ..config(Profile::Sparse) }),
        task(config(Profile::Full)),
        task(config(Profile::Paper)),
        task(config_without_receipts(Profile::Sparse)),
        task(TaskConfig { rounds: 999, ..config(Profile::Sparse) }),
        task(TaskConfig { key_bits: 512, ..config(Profile::Sparse) }),
    ];
    let mut collecting = roles.aggregator.begin(Round::FIRST);
    for other in others {
        let dense = vec![0.0; other.dense()];
        let dimension = other.dimension();
        let mut other = roles_of(other, 3, 16);
        let mut elsewhere = other.aggregator.begin(Round::FIRST);
        for user in &other.users {
            let update = update(dimension, &[], &dense);
            let sealed = user.seal(Round::FIRST, &update, &mut other.rng, ONE).unwrap();
            assert_eq!(collecting.accept(sealed, ONE).unwrap_err(), Error::OtherTask);
            let sealed = user.seal(Round::FIRST, &update, &mut other.rng, ONE).unwrap();
            elsewhere.accept(sealed, ONE).unwrap();
        }
        let sum = elsewhere.finish(ONE).unwrap();
        assert_eq!(roles.open(sum).unwrap_err(), Error::OtherTask);
        let empty = other.aggregator.begin(Round::FIRST);
        assert_eq!(collecting.merge(empty, ONE).unwrap_err(), Error::OtherTask);
    }
    finish(&mut roles, collecting);
}

/// An upload as an attacker sees it: two shards of four columns, and the packed ciphertexts, of which the last is the
/// check unless the task has none.
#[derive(Clone)]
struct Body {
    bytes: Vec<u8>,
    count: u32,
    salt: [u8; 16],
}

impl Body {
    fn of(sealed: &SealedUpdate) -> Self {
        let (bytes, count) = (sealed.to_bytes(), sealed.ciphertexts());
        assert_eq!(bytes.len(), 2 * 4 * (4 + WIDTH) + (count - 8) * WIDTH);
        Self { bytes, count: count as u32, salt: sealed.salt() }
    }

    fn slot(&mut self, i: usize) -> &mut [u8] {
        let at = (i / 4) * 4 * (4 + WIDTH) + (i % 4) * 4;
        &mut self.bytes[at..at + 4]
    }

    fn set_slot(&mut self, i: usize, slot: u32) {
        self.slot(i).copy_from_slice(&slot.to_be_bytes());
    }

    fn get_slot(&mut self, i: usize) -> u32 {
        u32::from_be_bytes(self.slot(i).try_into().unwrap())
    }

    fn ciphertext(&mut self, i: usize) -> &mut [u8] {
        let shards = 2 * 4 * (4 + WIDTH);
        let at = match i.checked_sub(8) {
            Some(packed) => shards + packed * WIDTH,
            None => (i / 4) * 4 * (4 + WIDTH) + 16 + (i % 4) * WIDTH,
        };
        &mut self.bytes[at..at + WIDTH]
    }
}

/// Reads a body and offers it to the aggregator.
fn offer(collecting: &mut Collecting, user: &User, body: &Body) -> Result<(), Error> {
    let &Body { ref bytes, count, salt } = body;
    let params = RoundParams::new(user.task(), collecting.round());
    let update =
        SealedUpdate::from_bytes(bytes, &UploadParams { params: &params, user: user.id(), count, salt })?;
    collecting.accept(update, ONE)
}

#[test]
fn upload_bodies_with_wrong_counts_or_indices_are_refused() {
    let mut roles = roles(config(Profile::Sparse), 3, 17);
    let (user, culprit) = (&roles.users[1], user_id(2));
    let sealed = seal(user, Round::FIRST, &mut roles.rng);
    let mut collecting = roles.aggregator.begin(Round::FIRST);
    let body = Body::of(&sealed);
    for count in [0, 1, 8, 9, 11, 10 << 8, u32::MAX] {
        let error = offer(&mut collecting, user, &Body { count, ..body.clone() }).unwrap_err();
        let found = count as usize;
        let expected = Error::Count { what: "ciphertexts", expected: 10, found, user: Some(culprit) };
        assert_eq!(error, expected);
        assert_eq!((error.code().as_str(), error.culprit()), ("count", Some(culprit)));
    }
    let size = Error::Size { what: "the body of an upload" };
    let longer = [&body.bytes[..], &[0]].concat();
    for bytes in (0..body.bytes.len()).map(|length| &body.bytes[..length]).chain([&longer[..]]) {
        let bytes = bytes.to_vec();
        assert_eq!(offer(&mut collecting, user, &Body { bytes, ..body }).unwrap_err(), size);
    }

    for (i, slot) in [(7, 12), (3, u32::MAX), (0, 1 << 31)] {
        let mut body = Body::of(&sealed);
        body.set_slot(i, slot);
        let error = offer(&mut collecting, user, &body).unwrap_err();
        assert_eq!(error, Error::IndexRange { index: slot, user: culprit });
        assert_eq!((error.code().as_str(), error.culprit()), ("index_range", Some(culprit)));
    }
    // twice in a shard, descending, and in two shards
    let mut twice = Body::of(&sealed);
    let slot = twice.get_slot(1);
    twice.set_slot(2, slot);
    let mut descending = Body::of(&sealed);
    let (a, b) = (descending.get_slot(4), descending.get_slot(5));
    descending.set_slot(4, b);
    descending.set_slot(5, a);
    let mut across = Body::of(&sealed);
    for i in 0..4 {
        let slot = across.get_slot(i);
        across.set_slot(4 + i, slot);
    }
    for body in [twice, descending, across] {
        let error = offer(&mut collecting, user, &body).unwrap_err();
        assert_eq!(error, Error::IndexOrder { user: culprit });
        assert_eq!((error.code().as_str(), error.culprit()), ("index_order", Some(culprit)));
    }
    finish(&mut roles, collecting);
}

#[test]
fn shards_share_positions_in_paper_only() {
    let mut roles = roles(config(Profile::Paper), 3, 18);
    let weights: Vec<(u32, f64)> = (0..8).map(|i| (i, 0.5)).collect();
    let mut collecting = roles.aggregator.begin(Round::FIRST);
    for user in &roles.users {
        let sealed = user.seal(Round::FIRST, &update(24, &weights, &[0.0; 2]), &mut roles.rng, ONE).unwrap();
        let mut body = Body::of(&sealed);
        for i in 0..4 {
            let slot = body.get_slot(i);
            body.set_slot(4 + i, slot);
        }
        offer(&mut collecting, user, &body).unwrap();
    }
    // four of the eight weights of each user are added to the other four
    let sum = roles.open(collecting.finish(ONE).unwrap());
    // twice what a user may send, which may or may not exceed the range of a sum
    if let Ok(sum) = sum {
        assert_eq!(sum.weights().iter().sum::<i64>(), 24 << 15);
    }
}

#[test]
fn invalid_ciphertexts_are_refused() {
    let mut roles = roles(config(Profile::Sparse), 3, 19);
    let n = roles.key_generator.encryption_key().modulus_be_bytes();
    let (p, _) = support::factors(256);
    let mut just_p = [0; HALF];
    just_p[HALF - p.len()..].copy_from_slice(&p);
    let mut one = [0; HALF];
    one[HALF - 1] = 1;
    let (user, culprit) = (&roles.users[2], user_id(3));
    let mut collecting = roles.aggregator.begin(Round::FIRST);
    let sealed = seal(user, Round::FIRST, &mut roles.rng);
    let pair = |c1: &[u8], c0: &[u8]| [c1, c0].concat();
    let range = |index| Error::CiphertextRange { index, user: Some(culprit) };
    let unit = |index| Error::CiphertextUnit { index, user: Some(culprit) };
    let trivial = |index| Error::CiphertextTrivial { index, user: culprit };
    // in both shards, the dense values and the check
    for index in [0, 3, 4, 7, 8, 9] {
        let cases: [(Vec<u8>, Error, &str); 10] = [
            (pair(&[0; HALF], &[0; HALF]), range(index), "ct_range"),
            (pair(&n, &[7; HALF]), range(index), "ct_range"),
            (pair(&[7; HALF], &n), range(index), "ct_range"),
            (pair(&[0xff; HALF], &[0xff; HALF]), range(index), "ct_range"),
            (pair(&one, &[0; HALF]), unit(index), "ct_unit"),
            (pair(&[7; HALF], &[0; HALF]), unit(index), "ct_unit"),
            (pair(&[7; HALF], &just_p), unit(index), "ct_unit"),
            (pair(&[0; HALF], &one), trivial(index), "ct_trivial"),
            (pair(&[9; HALF], &one), trivial(index), "ct_trivial"),
            (pair(&just_p, &one), trivial(index), "ct_trivial"),
        ];
        for (ciphertext, expected, code) in cases {
            let mut body = Body::of(&sealed);
            body.ciphertext(index).copy_from_slice(&ciphertext);
            let error = offer(&mut collecting, user, &body).unwrap_err();
            assert_eq!(error, expected);
            assert_eq!((error.code().as_str(), error.culprit()), (code, Some(culprit)));
            assert_eq!(collecting.users().len(), 0);
        }
    }
    finish(&mut roles, collecting);
}

#[test]
fn repeated_noise_is_refused() {
    let mut roles = roles(config(Profile::Sparse), 3, 20);
    let mut collecting = roles.aggregator.begin(Round::FIRST);
    let first = seal(&roles.users[0], Round::FIRST, &mut roles.rng);
    let mut first_body = Body::of(&first);
    let reuse = |n| Error::NonceReuse { user: user_id(n) };
    // within an upload: a copied ciphertext, and the same noise with another plaintext
    for (from, to) in [(0, 1), (1, 6), (5, 8), (8, 9)] {
        for other_value in [false, true] {
            let mut body = Body::of(&first);
            let mut copy = body.ciphertext(from).to_vec();
            if other_value {
                copy[..HALF].fill(5);
            }
            body.ciphertext(to).copy_from_slice(&copy);
            let error = offer(&mut collecting, &roles.users[0], &body).unwrap_err();
            assert_eq!(error, reuse(1));
            assert_eq!((error.code().as_str(), error.culprit()), ("nonce_reuse", Some(user_id(1))));
        }
    }
    collecting.accept(first, ONE).unwrap();
    // across uploads: one ciphertext, and a whole body sent by another user
    let second = seal(&roles.users[1], Round::FIRST, &mut roles.rng);
    for (from, to) in [(0, 0), (3, 5), (8, 8), (2, 8), (9, 9), (9, 0)] {
        let mut body = Body::of(&second);
        let mut copy = first_body.ciphertext(from).to_vec();
        copy[..HALF].fill(6);
        body.ciphertext(to).copy_from_slice(&copy);
        assert_eq!(offer(&mut collecting, &roles.users[1], &body).unwrap_err(), reuse(2));
    }
    assert_eq!(offer(&mut collecting, &roles.users[1], &first_body).unwrap_err(), reuse(2));
    // across replicas
    let mut replica = roles.aggregator.begin(Round::FIRST);
    offer(&mut replica, &roles.users[1], &first_body).unwrap();
    assert_eq!(collecting.merge(replica, ONE).unwrap_err(), reuse(2));
    let mut replica = roles.aggregator.begin(Round::FIRST);
    offer(&mut replica, &roles.users[0], &first_body).unwrap();
    assert_eq!(collecting.merge(replica, ONE).unwrap_err(), Error::Conflict { what: "update of a user" });

    collecting.accept(second, ONE).unwrap();
    collecting.accept(seal(&roles.users[2], Round::FIRST, &mut roles.rng), ONE).unwrap();
    expect_sum(&roles.open(collecting.finish(ONE).unwrap()).unwrap());
}

/// A random generator that repeats itself.
struct Stuck;

impl rand_core::TryRng for Stuck {
    type Error = core::convert::Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(0x0101_0101)
    }
    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(0x0101_0101_0101_0101)
    }
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        bytes.fill(1);
        Ok(())
    }
}

impl rand_core::TryCryptoRng for Stuck {}

#[test]
fn sealing_refuses_a_repeating_random_generator() {
    let roles = roles(config(Profile::Sparse), 1, 21);
    let error =
        roles.users[0].seal(Round::FIRST, &update(24, &[(1, 0.5)], &[0.0; 2]), &mut Stuck, ONE).unwrap_err();
    assert_eq!(error, Error::NonceReuse { user: user_id(1) });
}

/// Breaks each rule of [`TaskParams::new`].
#[test]
fn invalid_tasks_are_refused() {
    let good = |profile| TaskConfig { key_bits: 2048, ..config(profile) };
    let (sparse, full, paper) = (good(Profile::Sparse), good(Profile::Full), good(Profile::Paper));
    let id = TaskId::from_bytes([1; 16]);
    for config in [&sparse, &full, &paper] {
        TaskParams::new(id, config.clone()).unwrap();
    }
    let receipts = "sums are `checked` in `sparse` only and `masked` in `full` only";
    let rounds = "the number of rounds must be between 1 and 2^20";
    let cases: [(TaskConfig, &str); 39] = [
        (TaskConfig { dimension: 0, ..sparse.clone() }, "a task needs at least one weight"),
        (TaskConfig { dimension: (1 << 30) + 1, ..sparse.clone() }, "there are more than 2^30 weights"),
        (TaskConfig { dense: (1 << 24) + 1, ..sparse.clone() }, "there are more than 2^24 dense values"),
        (TaskConfig { block: 0, ..sparse.clone() }, "a block must hold between one and all weights"),
        (TaskConfig { block: 25, ..full.clone() }, "a block must hold between one and all weights"),
        (TaskConfig { block: 2, ..paper.clone() }, "in `paper`, a block must hold one weight"),
        (TaskConfig { capacity: 0, ..sparse.clone() }, "capacity and shards must be at least 1"),
        (TaskConfig { shards: 0, ..sparse.clone() }, "capacity and shards must be at least 1"),
        (
            TaskConfig { capacity: 7, ..sparse.clone() },
            "capacity times shards exceeds the number of positions",
        ),
        (TaskConfig { shards: 4, ..sparse.clone() }, "capacity times shards exceeds the number of positions"),
        (
            TaskConfig { capacity: u32::MAX, shards: u32::MAX, ..sparse.clone() },
            "capacity times shards exceeds the number of positions",
        ),
        (
            TaskConfig { capacity: 13, ..full.clone() },
            "capacity times shards exceeds the number of positions",
        ),
        (
            TaskConfig { capacity: 25, ..paper.clone() },
            "capacity times shards exceeds the number of positions",
        ),
        (TaskConfig { shards: 2, ..full.clone() }, "in `full`, shards must be 1"),
        (TaskConfig { scale_bits: 49, ..sparse.clone() }, "there are more than 48 fractional bits"),
        (TaskConfig { scale_bits: 255, ..sparse.clone() }, "there are more than 48 fractional bits"),
        (
            TaskConfig { clip_exponent: -16, ..sparse.clone() },
            "scale bits and clip exponent leave no bits for a value",
        ),
        (
            TaskConfig { clip_exponent: -128, ..sparse.clone() },
            "scale bits and clip exponent leave no bits for a value",
        ),
        (
            TaskConfig { clip_exponent: 45, ..sparse.clone() },
            "sums would need more than 64 bits; lower the scale bits, the clip exponent or the number of users",
        ),
        (
            TaskConfig { clip_exponent: 127, scale_bits: 0, ..sparse.clone() },
            "sums would need more than 64 bits; lower the scale bits, the clip exponent or the number of users",
        ),
        (
            TaskConfig { min_users: 2, ..sparse.clone() },
            "min users must be at least 3, because a sum of fewer users reveals too much",
        ),
        (TaskConfig { min_users: 9, ..sparse.clone() }, "max users is smaller than min users"),
        (TaskConfig { max_users: 0, ..sparse.clone() }, "max users is smaller than min users"),
        (TaskConfig { max_users: 65_537, ..sparse.clone() }, "there are more than 65,536 users"),
        (TaskConfig { min_percent: 101, ..sparse.clone() }, "min percent is above 100"),
        (TaskConfig { max_attempts: 0, ..sparse.clone() }, "max attempts must be between 1 and 16"),
        (TaskConfig { max_attempts: 17, ..sparse.clone() }, "max attempts must be between 1 and 16"),
        (TaskConfig { rounds: 0, ..sparse.clone() }, rounds),
        (TaskConfig { rounds: (1 << 20) + 1, ..sparse.clone() }, rounds),
        (TaskConfig { max_failures: 0, ..sparse.clone() }, "max failures must be at least 1"),
        (TaskConfig { receipts: Receipts::Masked, ..sparse.clone() }, receipts),
        (TaskConfig { receipts: Receipts::Checked, ..full.clone() }, receipts),
        (TaskConfig { receipts: Receipts::Checked, ..paper.clone() }, receipts),
        (TaskConfig { receipts: Receipts::Masked, ..paper.clone() }, receipts),
        // 2046 bits hold 102 slots of 20 bits
        (
            TaskConfig { dimension: 1000, block: 103, capacity: 1, shards: 1, ..sparse.clone() },
            "a block does not fit into one plaintext; choose a smaller block",
        ),
        (
            TaskConfig { dimension: 1000, block: 1000, capacity: 1, shards: 1, ..sparse.clone() },
            "a block does not fit into one plaintext; choose a smaller block",
        ),
        (TaskConfig { shards: 7, ..paper.clone() }, "there are more shards than all positions need"),
        (
            TaskConfig { dimension: 1 << 30, ..sparse.clone() },
            "a sum or a model would be longer than 2 GiB; choose larger blocks or a smaller model",
        ),
        (
            TaskConfig { max_model_bytes: (1 << 31) + 1, ..sparse.clone() },
            "a sum or a model would be longer than 2 GiB; choose larger blocks or a smaller model",
        ),
    ];
    let count = cases.len();
    for (config, reason) in cases {
        let error = TaskParams::new(id, config.clone()).unwrap_err();
        assert_eq!(error, Error::Task { reason }, "{config:?}");
        assert_eq!(error.code().as_str(), "policy");
    }
    // tasks that just satisfy the rules
    for config in [
        TaskConfig { dimension: 1 << 30, block: 1 << 20, capacity: 1, ..full.clone() },
        TaskConfig { dense: 1 << 24, ..sparse.clone() },
        TaskConfig { block: 24, capacity: 1, ..full.clone() },
        TaskConfig { capacity: 6, ..sparse.clone() },
        TaskConfig { shards: 6, ..paper.clone() },
        TaskConfig { max_model_bytes: 1 << 31, ..sparse.clone() },
        TaskConfig { scale_bits: 48, ..sparse.clone() },
        TaskConfig { clip_exponent: -15, ..sparse.clone() },
        TaskConfig { clip_exponent: 44, ..sparse.clone() },
        TaskConfig { max_users: 65_536, ..sparse.clone() },
        TaskConfig { min_users: 8, min_percent: 100, max_attempts: 16, ..sparse.clone() },
        TaskConfig { rounds: 1, max_failures: 1, collect_min: u32::MAX, outsize: 255, ..sparse.clone() },
        TaskConfig { rounds: 1 << 20, max_failures: 255, ..full.clone() },
        TaskConfig { receipts: Receipts::None, ..sparse.clone() },
        TaskConfig { receipts: Receipts::None, ..full.clone() },
        TaskConfig { dimension: 1000, block: 102, capacity: 1, shards: 1, ..sparse.clone() },
    ] {
        TaskParams::new(id, config).unwrap();
    }
    // even the shortest key holds one value of the widest slots, so the rule that one must fit cannot be broken
    let narrow = TaskConfig { key_bits: 128, scale_bits: 48, clip_exponent: 12, ..full.clone() };
    dphe::hazmat::task_params(id, narrow).unwrap();
    // key lengths
    for (config, key_bits, allowed) in [
        (&sparse, 3072, true),
        (&sparse, 4096, true),
        (&sparse, 1024, false),
        (&full, 1024, false),
        (&paper, 1024, false),
        (&sparse, 2047, false),
        (&sparse, 0, false),
        (&paper, 1000, false),
        (&paper, u32::MAX, false),
    ] {
        let made = TaskParams::new(id, TaskConfig { key_bits, ..config.clone() });
        if allowed {
            made.unwrap();
        } else {
            assert_eq!(made.unwrap_err(), Error::Key(dphe_paillier::Error::KeySize { bits: key_bits }));
        }
    }
    // the feature `hazmat` is enabled here, and short keys still need an explicit argument
    let short = |config: &TaskConfig, lengths| {
        TaskParams::new_with(id, TaskConfig { key_bits: 1024, ..config.clone() }, lengths).is_ok()
    };
    for (config, in_paper) in [(&sparse, false), (&full, false), (&paper, true)] {
        assert!(!short(config, dphe::KeyLengths::default()));
        assert_eq!(short(config, dphe::hazmat::paper_keys()), in_paper);
        assert!(short(config, dphe::hazmat::short_keys()));
    }
    println!("{count} tasks refused");
}

/// Tasks whose messages do not fit a log record are refused, and extreme numbers cause no arithmetic overflow.
#[test]
fn largest_task_fits_a_log_record() {
    let config = TaskConfig {
        dimension: 1 << 30,
        capacity: 1 << 30,
        shards: u32::MAX,
        dense: 1 << 24,
        key_bits: 2048,
        ..config(Profile::Paper)
    };
    let make = |config: &TaskConfig| TaskParams::new(TaskId::from_bytes([1; 16]), config.clone());
    assert_eq!(make(&config).unwrap_err().code().as_str(), "policy");
    assert_eq!(make(&TaskConfig { shards: 1, ..config.clone() }).unwrap_err().code().as_str(), "policy");
    let task = make(&TaskConfig { shards: 1, dimension: 1 << 21, capacity: 1 << 21, ..config }).unwrap();
    assert!(dphe::wire::max_upload_bytes(&task) < 1 << 32);
}

#[test]
fn proposed_tasks_are_valid() {
    for profile in [Profile::Sparse, Profile::Full, Profile::Paper] {
        for (classes, features, max_users) in [(1, 1, 3), (4, 10, 8), (101, 2048, 100), (1000, 500, 65_536)] {
            let config = TaskConfig::new(profile, classes, features, max_users);
            TaskParams::new(TaskId::from_bytes([1; 16]), config.clone()).unwrap();
            let receipts = match profile {
                Profile::Sparse => Receipts::Checked,
                Profile::Full => Receipts::Masked,
                Profile::Paper => Receipts::None,
            };
            assert_eq!(config.receipts, receipts);
            if profile != Profile::Paper {
                let half = config.block.div_ceil(2);
                TaskParams::new(TaskId::from_bytes([1; 16]), config.with_block(half)).unwrap();
            }
        }
    }
}

#[test]
fn roster_refuses_two_parties_with_one_identity_and_finds_parties_by_identity() {
    let roles = roles(config(Profile::Full), 3, 5);
    let users = [1, 2, 3].map(|n| PartyId::User(user_id(n)));
    let all = [PartyId::Aggregator, PartyId::KeyGenerator, users[0], users[1], users[2]];
    // each party with the identity of the party at this place
    let roster = |identity_of: [usize; 5]| {
        let identity_at = |place: usize| identity(all[identity_of[place]]);
        let ids = (1..=3).map(|n| (user_id(n), identity_at(n as usize + 1).identity())).collect();
        let plan = roster_plan(&roles.key_generator, ids);
        Roster::new(RosterPlan { aggregator: identity_at(0).identity(), ..plan }, &identity_at(1))
    };
    let good = roster([0, 1, 2, 3, 4]).unwrap();
    let again = Roster::decode_with(good.as_bytes(), dphe::hazmat::short_keys()).unwrap();
    for one in [&good, &again] {
        assert_eq!(one.initial_model(), dphe::Digest::of_model(support::MODEL));
        assert_eq!(*one.agreement(), identity(PartyId::Aggregator).agreement_key().public());
        assert_eq!((one.task_file(), one.hash()), (dphe::Digest::ZERO, good.hash()));
    }
    for party in all {
        assert_eq!(good.party(&identity(party).identity()), Some(party));
    }
    assert_eq!(good.party(&identity(PartyId::User(user_id(4))).identity()), None);
    for doubled in [[0, 1, 2, 2, 4], [0, 0, 2, 3, 4], [2, 1, 2, 3, 4], [0, 4, 2, 3, 4]] {
        assert!(matches!(roster(doubled), Err(Error::Roster)), "{doubled:?}");
    }
}

/// Two users with one identity would be one person, and count twice for the floor.
#[test]
fn roster_with_one_identity_twice_is_not_read() {
    let parties = support::Parties::new(config(Profile::Full), 3);
    let good = parties.roster.as_bytes();
    let users_at = good.len() - 64 - 3 * 68;
    let entry = |n: usize| users_at + 68 * (n - 1) + 4;
    let aggregator = identity(PartyId::Aggregator).identity().to_bytes();
    let generator = identity(PartyId::KeyGenerator).identity().to_bytes();
    let second: [u8; 32] = good[entry(2)..entry(2) + 32].try_into().unwrap();
    for (user, key) in [(1, second), (3, second), (1, aggregator), (2, generator)] {
        let mut bytes = good[..good.len() - 64].to_vec();
        bytes[entry(user)..entry(user) + 32].copy_from_slice(&key);
        bytes.extend(support::forge::signature(PartyId::KeyGenerator, "dphe/v2/roster", &bytes));
        let read = Roster::decode_with(&bytes, dphe::hazmat::short_keys());
        assert_eq!(read.unwrap_err(), Error::Roster);
    }
}

/// Opens the sum of three users after one number was added to one of its ciphertexts.
fn open_with_addition(config: &TaskConfig, at: usize, slot: u32) -> Result<WeightSum, Error> {
    let mut roles = roles(config.clone(), 3, 21);
    let mut collecting = roles.aggregator.begin(Round::FIRST);
    for user in &roles.users {
        let zero = update(config.dimension as usize, &[], &[0.0; 2]);
        collecting.accept(user.seal(Round::FIRST, &zero, &mut roles.rng, ONE).unwrap(), ONE).unwrap();
    }
    let sum = collecting.finish(ONE).unwrap();
    let (mut bytes, occupied) = (sum.to_bytes(), sum.occupied() as u32);
    let encryption = roles.key_generator.encryption_key().clone();
    let bitmap = bytes.len() % WIDTH;
    let place = bitmap + WIDTH * at;
    let ciphertext = encryption.decode(&bytes[place..place + WIDTH], ONE).unwrap();
    let slot_bits = roles.key_generator.task().slot_bits();
    let addition = dphe_paillier::Plaintext::new(&encryption, 1i128 << (slot * slot_bits)).unwrap();
    let changed = encryption.add_plain(&ciphertext, &[addition], ONE).unwrap();
    bytes[place..place + WIDTH].copy_from_slice(&encryption.encode(&changed, ONE).unwrap());
    let users = (1..=3).map(user_id).collect();
    let params = dphe::wire::SumParams {
        params: std::sync::Arc::new(RoundParams::new(roles.key_generator.task(), Round::FIRST)),
        users,
        salts: vec![[0; 16]; 3],
        occupied,
    };
    let sum = dphe::SealedSum::from_bytes(&bytes, &params)?;
    match roles.key_generator.open(sum, &mut roles.rng, ONE)? {
        dphe::OpenedSum::Clear(sum) => Ok(sum),
        dphe::OpenedSum::Masked(_) => panic!("the task has no masks"),
    }
}

/// An aggregator could mark ciphertexts there, and watch where the marks go.
#[test]
fn numbers_in_slots_that_no_user_fills_are_not_opened() {
    // eight positions of two weights each, all of them occupied; the last one has one weight only
    let sparse = TaskConfig { dimension: 15, ..config_without_receipts(Profile::Sparse) };
    let outcomes: Vec<_> = (0..8).map(|at| open_with_addition(&sparse, at, 1)).collect();
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Err(Error::RoundFailed))).count();
    assert_eq!(refused, 1, "the filler of the last position");
    let opened = outcomes.iter().flatten().map(|sum| sum.weights().iter().sum::<i64>());
    assert!(opened.eq([1; 7]), "the second weight of every other position");
    for (slot, at) in [(2, 0), (5, 7), (2, 8), (5, 8)] {
        // beyond the block of a position, and beyond the two dense values
        let outcome = open_with_addition(&sparse, at, slot);
        assert_eq!(outcome.unwrap_err(), Error::RoundFailed, "slot {slot} of ciphertext {at}");
    }
    // three weights and two dense values are in one ciphertext, which has room for more
    let full = TaskConfig { dimension: 3, block: 1, capacity: 3, ..config_without_receipts(Profile::Full) };
    assert_eq!(open_with_addition(&full, 0, 4).unwrap().dense(), [0, 1]);
    assert_eq!(open_with_addition(&full, 0, 5).unwrap_err(), Error::RoundFailed);
}

/// The seeds in key bytes: the user-shared seed, and those of the users.
fn seeds_at_end(bytes: &[u8], users: usize) -> Vec<[u8; 32]> {
    let end = bytes.len() - 32;
    (1..=users).map(|n| bytes[end - 44 * n + 12..][..32].try_into().unwrap()).collect()
}

/// An aborted round is closed, too.
#[test]
fn key_generator_forgets_the_seeds_of_an_aborted_round() {
    for profile in [Profile::Sparse, Profile::Full] {
        let mut world = support::world::World::new(config(profile), 3);
        let generator = world.parties.roles.key_generator.to_secret_bytes();
        let seeds = seeds_at_end(&generator, 3);
        world.start(support::MODEL).unwrap();
        world.abort();
        for seed in seeds {
            let holds = |seed: &[u8; 32]| world.log.windows(32).any(|bytes| bytes == seed);
            assert!(!holds(&seed) && holds(&support::forge::hash("dphe/v2/ratchet", &[&seed])));
        }
    }
}

/// A thief of the disk must not find, later, what was needed to read a closed round.
#[test]
fn checkpoints_do_not_contain_the_seeds_of_closed_rounds() {
    for profile in [Profile::Sparse, Profile::Full] {
        let parties = support::Parties::new(config(profile), 3);
        let generator = parties.roles.key_generator.to_secret_bytes();
        let masks = seeds_at_end(&generator, 3);
        let shared_at = generator.len() - 32 - 3 * 44 - 4 - 32;
        let shared: [u8; 32] = generator[shared_at..shared_at + 32].try_into().unwrap();
        let aggregators = seeds_at_end(&parties.roles.key_generator.aggregator_keys().to_secret_bytes(), 3);
        let support = PublicSupport::of(parties.roster.task(), Round::FIRST);
        let index = support.indices().next().unwrap_or(3) as u32;
        let transcript = support::transcript(&parties, |_| update(24, &[(index, 0.25)], &[0.5, -0.5]));
        let check = |party: PartyId, held: &[[u8; 32]], foreign: &[[u8; 32]]| {
            let log = transcript.logs[&party].last().unwrap();
            let holds = |seed: &[u8; 32]| log.windows(32).any(|bytes| bytes == seed);
            for seed in held {
                assert!(!holds(seed), "{party:?} keeps a seed of the first round");
                let next = support::forge::hash("dphe/v2/ratchet", &[seed]);
                assert!(holds(&next), "{party:?} lacks a seed of the second round");
            }
            for seed in foreign {
                let next = support::forge::hash("dphe/v2/ratchet", &[seed]);
                assert!(!holds(seed) && !holds(&next), "{party:?} has a seed of others");
            }
        };
        check(PartyId::KeyGenerator, &[&[shared], &masks[..]].concat(), &aggregators);
        check(PartyId::Aggregator, &aggregators, &[&[shared], &masks[..]].concat());
        for n in 1..=3 {
            // the lists go from the last user to the first
            let at = 3 - n as usize;
            let others = |seeds: &[[u8; 32]]| -> Vec<[u8; 32]> {
                seeds.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, &seed)| seed).collect()
            };
            let foreign = [others(&masks), others(&aggregators)].concat();
            check(PartyId::User(user_id(n)), &[shared, masks[at], aggregators[at]], &foreign);
        }
    }
}

/// More positions than the listed users can have sent would hide positions of the aggregator's own making.
#[test]
fn freeze_with_more_positions_than_users_can_send_is_refused() {
    let config = TaskConfig { dimension: 60, shards: 1, ..config(Profile::Sparse) };
    for (occupied, refused) in [(12, false), (13, true), (30, true)] {
        let mut world = support::world::World::new(config.clone(), 3);
        let ticket = world.start_forged(support::MODEL).unwrap();
        let uploads: Vec<Vec<u8>> = (1..=3)
            .map(|n| {
                let local = update(60, &[(n, 0.5)], &[0.0; 2]);
                world.upload(n, &ticket, support::MODEL, local).unwrap()
            })
            .collect();
        let users = uploads.iter().map(|upload| world.participant(upload)).collect();
        // thirty positions, of which the first ones are occupied, and three packed ciphertexts
        let mut sum: Vec<u8> = vec![0; 4];
        (0..occupied).for_each(|p| sum[p / 8] |= 0x80 >> (p % 8));
        sum.extend(vec![0x11; (occupied + 2) * WIDTH]);
        let outcome = world.open_forged(&ticket, users, occupied as u32, &sum);
        let code = outcome.as_ref().err().map(|error| error.code().as_str());
        assert_eq!(code == Some("count"), refused, "{occupied} positions: {code:?}");
        let phase = if refused { "ticketed" } else { "answered" };
        assert_eq!(world.generator.phase().as_str(), phase);
    }
}

#[test]
fn bitmap_with_bits_beyond_the_last_position_is_refused() {
    let mut roles = roles(config_without_receipts(Profile::Sparse), 3, 22);
    let mut collecting = roles.aggregator.begin(Round::FIRST);
    for user in &roles.users {
        collecting.accept(seal(user, Round::FIRST, &mut roles.rng), ONE).unwrap();
    }
    let sum = collecting.finish(ONE).unwrap();
    let params = dphe::wire::SumParams {
        params: std::sync::Arc::new(RoundParams::new(roles.key_generator.task(), Round::FIRST)),
        users: (1..=3).map(user_id).collect(),
        salts: vec![[0; 16]; 3],
        occupied: sum.occupied() as u32,
    };
    let bytes = sum.to_bytes();
    assert!(dphe::SealedSum::from_bytes(&bytes, &params).is_ok());
    // twelve positions, and four bits more
    for bit in 0..4 {
        let mut wrong = bytes.clone();
        wrong[1] |= 1 << bit;
        let error = dphe::SealedSum::from_bytes(&wrong, &params).unwrap_err();
        assert_eq!(error.code().as_str(), "encoding");
    }
}
