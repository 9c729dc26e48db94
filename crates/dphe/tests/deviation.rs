//! Attacks of a dishonest aggregator, some of them with an accomplice among the users. Each attack must succeed in a
//! task without receipts, so that it is known to be one, and must reveal nothing in a task whose sums are masked.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "deviation/lab.rs"]
mod lab;
#[path = "deviation/rules.rs"]
mod rules;
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use dphe::scheme::RoundParams;
use dphe::{Digest, Error, OpenedSum, Profile, Receipts, Round};
use dphe_paillier::{Ciphertext, Plaintext};
use lab::{ACCOMPLICE, Lab, Sealed, Sent, USERS, VICTIM};
use support::{below, round, user_id};

/// How often each attack is run, with other keys and numbers.
const RUNS: u64 = 3;

/// The second round of a task. In the first, the aggregator was honest. Users have the same data and start from the
/// same model, so they send the same numbers in both.
struct Case {
    lab: Lab,
    params: Arc<RoundParams>,
    /// What each user sends.
    numbers: Vec<Vec<i64>>,
    /// The uploads of the first round.
    old: Vec<Sent>,
    /// The uploads of this round.
    sent: Vec<Sent>,
    /// The sum of the first round.
    honest: Vec<i64>,
}

impl Case {
    fn new(profile: Profile, receipts: Receipts, seed: u64) -> Self {
        let mut lab = Lab::new(profile, receipts, seed);
        let numbers: Vec<Vec<i64>> = (0..USERS).map(|_| lab.numbers()).collect();
        let mut seal = |number| -> Vec<Sent> {
            numbers.iter().enumerate().map(|(user, numbers)| lab.seal(user, round(number), numbers)).collect()
        };
        let (old, sent) = (seal(1), seal(2));
        let all: Vec<&Sent> = old.iter().collect();
        let params = Arc::new(RoundParams::new(&lab.task, Round::FIRST));
        let sum = lab.sum(old.iter().map(|sent| (&sent.sealed, 1)));
        let opened = match lab.open(&params, &sum, &all).unwrap() {
            OpenedSum::Clear(sum) => sum,
            masked => {
                let residues = lab.unmask(&lab.residues(&masked), &all);
                lab.check(&params, &residues, USERS, VICTIM).unwrap()
            }
        };
        let honest: Vec<i64> =
            (0..lab.task.dimension()).map(|i| numbers.iter().map(|numbers| numbers[i]).sum()).collect();
        assert_eq!(opened.weights(), honest);
        let params = Arc::new(RoundParams::new(&lab.task, round(2)));
        Self { lab, params, numbers, old, sent, honest }
    }

    /// The aggregator submits a sum, lists these uploads, and removes its part of the masks of those that are in the
    /// sum, of those that are listed, or of none. Returns the numbers that it reads in each way. No honest user accepts
    /// one of the sums.
    fn submit(&mut self, sum: &Sealed, listed: &[&Sent], included: &[&Sent]) -> Vec<Vec<i64>> {
        let masked = match self.lab.open(&self.params, sum, listed).unwrap() {
            OpenedSum::Clear(sum) => return vec![sum.weights().to_vec()],
            masked => self.lab.residues(&masked),
        };
        let published = [self.lab.unmask(&masked, included), self.lab.unmask(&masked, listed), masked];
        for residues in &published {
            for user in 0..ACCOMPLICE {
                let accepted = self.lab.check(&self.params, residues, listed.len(), user);
                assert_eq!(accepted.unwrap_err(), Error::Check);
            }
        }
        published.iter().map(|residues| self.lab.slots(residues)).collect()
    }

    /// The sum of the uploads of this round except some.
    fn without(&mut self, users: &[usize]) -> Sealed {
        let sent = self.sent.clone();
        let kept = sent.iter().enumerate().filter(|(user, _)| !users.contains(user));
        self.lab.sum(kept.map(|(_, sent)| (&sent.sealed, 1)))
    }
}

fn refs(sent: &[Sent]) -> Vec<&Sent> {
    sent.iter().collect()
}

fn minus(xs: &[i64], ys: &[i64]) -> Vec<i64> {
    xs.iter().zip(ys).map(|(x, y)| x - y).collect()
}

fn plus(xs: &[i64], ys: &[i64]) -> Vec<i64> {
    xs.iter().zip(ys).map(|(x, y)| x + y).collect()
}

/// Runs an attack that guesses the numbers of the victim, one guess in each way of unmasking. Without receipts, it
/// reads at least 92 % of them. With masks, it reads none.
fn reads_only_without_masks(name: &str, attack: impl Fn(&mut Case) -> Vec<Vec<i64>>) {
    for receipts in [Receipts::None, Receipts::Masked] {
        for run in 0..RUNS {
            let mut case = Case::new(Profile::Full, receipts, 100 + run);
            let guesses = attack(&mut case);
            let victim = &case.numbers[VICTIM];
            let right = |guess: &Vec<i64>| guess.iter().zip(victim).filter(|(x, y)| x == y).count();
            let best = guesses.iter().map(right).max().unwrap();
            println!("{name}, {receipts:?}: {best} of {} numbers", victim.len());
            match receipts {
                Receipts::None => assert!(best * 100 >= 92 * victim.len(), "{name} reads {best}"),
                // by chance, one number in a million is right
                _ => assert_eq!(best, 0, "{name}"),
            }
        }
    }
}

#[test]
fn sum_of_the_victim_alone() {
    reads_only_without_masks("alone", |case| {
        let sent = case.sent.clone();
        case.submit(&sent[VICTIM].sealed, &refs(&sent), &[&sent[VICTIM]])
    });
}

/// The sum of the others, subtracted from the honest sum of the round before.
#[test]
fn sum_without_a_listed_user() {
    reads_only_without_masks("drop", |case| {
        let (sent, honest) = (case.sent.clone(), case.honest.clone());
        let sum = case.without(&[VICTIM]);
        let read = case.submit(&sum, &refs(&sent), &refs(&sent[1..]));
        read.iter().map(|sum| minus(&honest, sum)).collect()
    });
}

#[test]
fn sum_with_one_user_twice() {
    reads_only_without_masks("twice", |case| {
        let (sent, honest) = (case.sent.clone(), case.honest.clone());
        let sum = case.without(&[]);
        let sum = case.lab.sum([(&sum, 1), (&sent[VICTIM].sealed, 1)]);
        let included = [&refs(&sent)[..], &[&sent[VICTIM]]].concat();
        let read = case.submit(&sum, &refs(&sent), &included);
        read.iter().map(|sum| minus(sum, &honest)).collect()
    });
}

/// The accomplice's numbers are known, so what its old upload replaces can be computed.
#[test]
fn old_upload_of_another_user_in_place_of_the_victims() {
    reads_only_without_masks("swap", |case| {
        let (sent, honest) = (case.sent.clone(), case.honest.clone());
        let (old, known) = (case.old[ACCOMPLICE].clone(), case.numbers[ACCOMPLICE].clone());
        let sum = case.without(&[VICTIM]);
        let sum = case.lab.sum([(&sum, 1), (&old.sealed, 1)]);
        let included = [&refs(&sent[1..])[..], &[&old]].concat();
        let read = case.submit(&sum, &refs(&sent), &included);
        read.iter().map(|sum| plus(&minus(&honest, sum), &known)).collect()
    });
}

/// What the aggregator submits is the sum of all uploads. The accomplice made its own from the ciphertexts of others.
#[test]
fn accomplice_uploads_the_inverse_of_the_others() {
    reads_only_without_masks("inverse", |case| {
        let mut sent = case.sent.clone();
        let others: Vec<_> = sent[1..ACCOMPLICE].iter().map(|sent| (&sent.sealed, -1)).collect();
        let mut inverse = case.lab.sum(others);
        case.lab.key.rerandomize(&mut inverse.packed, &mut case.lab.rng, support::ONE).unwrap();
        sent[ACCOMPLICE].sealed = inverse;
        let sum = case.lab.sum(sent.iter().map(|sent| (&sent.sealed, 1)));
        case.submit(&sum, &refs(&sent), &[&sent[VICTIM]])
    });
}

/// The key generator's party refuses users without a signed upload. Even if it did not, their masks would remain.
#[test]
fn users_who_sent_nothing_are_listed() {
    reads_only_without_masks("phantom", |case| {
        let sent = case.sent.clone();
        let phantom = |user: u32| Sent { user: user_id(user), salt: [9; 16], ..sent[VICTIM].clone() };
        let (second, third) = (phantom(2), phantom(3));
        case.submit(&sent[VICTIM].sealed, &[&sent[VICTIM], &second, &third], &[&sent[VICTIM]])
    });
}

/// With the new salt of the victim, and with the old one.
#[test]
fn upload_of_an_earlier_round_is_replayed() {
    for old_salt in [false, true] {
        reads_only_without_masks("replay", |case| {
            let (mut sent, old) = (case.sent.clone(), case.old[VICTIM].clone());
            if old_salt {
                sent[VICTIM].salt = old.salt;
            }
            case.submit(&old.sealed, &refs(&sent), &[&old])
        });
    }
}

/// Two key generators with the same keys issued two tickets, and the victim has the other one.
#[test]
fn upload_sealed_for_another_ticket() {
    let ticket = |byte| Digest::from_bytes([byte; 32]);
    reads_only_without_masks("other ticket", |case| {
        let this = Arc::new(case.params.with_ticket(ticket(1)));
        let other = case.params.with_ticket(ticket(2));
        let numbers = case.numbers.clone();
        let seal = |(user, numbers): (usize, &Vec<i64>)| {
            let params = if user == VICTIM { &other } else { &this };
            case.lab.seal_by_hand(user, params, numbers)
        };
        let sent: Vec<Sent> = numbers.iter().enumerate().map(seal).collect();
        case.params = this;
        case.submit(&sent[VICTIM].sealed, &refs(&sent), &[&sent[VICTIM]])
    });
}

/// If all uploads are for one ticket, the round works. So the last attack fails because of the ticket alone.
#[test]
fn updates_sealed_by_hand_for_a_ticket_are_summed() {
    for receipts in [Receipts::None, Receipts::Masked] {
        let mut case = Case::new(Profile::Full, receipts, 7);
        let params = Arc::new(case.params.with_ticket(Digest::from_bytes([3; 32])));
        let numbers = case.numbers.clone();
        let seal = |(user, numbers): (usize, &Vec<i64>)| case.lab.seal_by_hand(user, &params, numbers);
        let sent: Vec<Sent> = numbers.iter().enumerate().map(seal).collect();
        let sum = case.lab.sum(sent.iter().map(|sent| (&sent.sealed, 1)));
        let sum = match case.lab.open(&params, &sum, &refs(&sent)).unwrap() {
            OpenedSum::Clear(sum) => sum,
            masked => {
                let residues = case.lab.unmask(&case.lab.residues(&masked), &refs(&sent));
                assert_eq!(case.lab.slots(&residues), case.honest);
                (0..USERS).for_each(|user| drop(case.lab.check(&params, &residues, USERS, user).unwrap()));
                case.lab.check(&params, &residues, USERS, VICTIM).unwrap()
            }
        };
        assert_eq!(sum.weights(), case.honest);
        assert_eq!(sum.dense(), [6 << 15, -6 << 14]);
    }
}

/// Changes a sum before it is opened. Returns what users accept, if they do.
fn accepted(
    receipts: Receipts,
    seed: u64,
    change: impl Fn(&mut Case, &mut Sealed),
) -> (Vec<i64>, Result<Vec<i64>, Error>) {
    let mut case = Case::new(Profile::Full, receipts, seed);
    let sent = case.sent.clone();
    let mut sum = case.without(&[]);
    change(&mut case, &mut sum);
    let opened = case.lab.open(&case.params, &sum, &refs(&sent));
    let found = match opened.unwrap() {
        OpenedSum::Clear(sum) => Ok(sum),
        masked => {
            let residues = case.lab.unmask(&case.lab.residues(&masked), &refs(&sent));
            let results: Vec<_> =
                (0..USERS).map(|user| case.lab.check(&case.params, &residues, USERS, user)).collect();
            assert!(results.iter().all(|result| *result == results[0]), "users disagree");
            results[0].clone()
        }
    };
    (case.honest, found.map(|sum| sum.weights().to_vec()))
}

#[test]
fn known_vector_added_to_the_sum_is_noticed() {
    let shifts: [fn(&mut Case, &mut Sealed); 4] = [
        // one step in one number
        |case, sum| case.lab.shift(&mut sum.packed[0], &case.lab.small(1)),
        // the last number but the dense values
        |case, sum| {
            let shift = case.lab.layout.pack(&case.lab.key, &[0, 0, 0, 0, 0, 0, 0, 0, 0, -1]).unwrap();
            case.lab.shift(&mut sum.packed[9], &shift[0]);
        },
        // every number
        |case, sum| {
            let shift = case.lab.layout.pack(&case.lab.key, &[7; 120]).unwrap();
            let all = &mut sum.packed;
            all.iter_mut().zip(&shift).for_each(|(c, shift)| case.lab.shift(c, shift));
        },
        // two numbers, so that their sum stays the same
        |case, sum| {
            case.lab.shift(&mut sum.packed[3], &case.lab.small(1));
            case.lab.shift(&mut sum.packed[4], &case.lab.small(-1));
        },
    ];
    for (seed, shift) in (200..).zip(shifts) {
        let (honest, found) = accepted(Receipts::None, seed, shift);
        assert_ne!(found.unwrap(), honest, "without receipts, nobody notices");
        assert_eq!(accepted(Receipts::Masked, seed, shift).1, Err(Error::Check));
    }
    // the check itself
    let of_check =
        |case: &mut Case, sum: &mut Sealed| case.lab.shift(&mut sum.packed[10], &case.lab.small(1));
    assert_eq!(accepted(Receipts::Masked, 210, of_check).1, Err(Error::Check));
}

#[test]
fn exchanged_ciphertexts_are_noticed() {
    let exchange = |_: &mut Case, sum: &mut Sealed| sum.packed.swap(1, 2);
    let (honest, found) = accepted(Receipts::None, 220, exchange);
    let found = found.unwrap();
    assert_eq!((&found[12..24], &found[24..36]), (&honest[24..36], &honest[12..24]));
    assert_eq!(accepted(Receipts::Masked, 220, exchange).1, Err(Error::Check));
}

/// -1 is an n-th power modulo n², so it is noise.
#[test]
fn factor_of_minus_one_changes_nothing() {
    let negate = |case: &mut Case, sum: &mut Sealed| {
        let negated = case.lab.negated(&sum.packed[1]);
        assert!(
            case.lab.key.encode(std::slice::from_ref(&negated), support::ONE)
                != encoded(case, &sum.packed[1])
        );
        sum.packed[1] = negated;
    };
    for receipts in [Receipts::None, Receipts::Masked] {
        let (honest, found) = accepted(receipts, 230, negate);
        assert_eq!(found, Ok(honest));
    }
}

fn encoded(case: &Case, ciphertext: &Ciphertext) -> Result<Vec<u8>, dphe_paillier::Error> {
    case.lab.key.encode(core::slice::from_ref(ciphertext), support::ONE)
}

/// The aggregator replaces a ciphertext of the victim by one of a guess, and watches whether the sum is still right.
#[test]
fn guess_of_one_ciphertext_is_not_confirmed() {
    let guess = |right: bool| {
        move |case: &mut Case, sum: &mut Sealed| {
            let victim = case.numbers[VICTIM].clone();
            let mut guess = case.lab.layout.pack(&case.lab.key, &victim[24..36]).unwrap().remove(0);
            if !right {
                guess = case.lab.add(&[guess], &[case.lab.small(1)]).remove(0);
            }
            let replaced = case.sent[VICTIM].sealed.packed[2].clone();
            let removed = case.lab.key.mul_small_vartime(&[replaced], &[-1], support::ONE).unwrap().remove(0);
            let terms = [sum.packed[2].clone(), removed, case.lab.encrypt(&guess)];
            sum.packed[2] = case.lab.key.sum(&terms, support::ONE).unwrap();
        }
    };
    let (honest, found) = accepted(Receipts::None, 240, guess(true));
    assert_eq!(found, Ok(honest));
    let (honest, found) = accepted(Receipts::None, 240, guess(false));
    assert_ne!(found, Ok(honest), "the aggregator sees that it is wrong");
    for right in [true, false] {
        assert_eq!(accepted(Receipts::Masked, 240, guess(right)).1, Err(Error::Check), "the same for both");
    }
}

/// A round whose sum was opened honestly: what the aggregator may publish, and how many users are listed.
fn opened(seed: u64) -> (Case, Vec<Plaintext>) {
    let mut case = Case::new(Profile::Full, Receipts::Masked, seed);
    let sent = case.sent.clone();
    let sum = case.without(&[]);
    let masked = case.lab.open(&case.params, &sum, &refs(&sent)).unwrap();
    let residues = case.lab.unmask(&case.lab.residues(&masked), &refs(&sent));
    let found = case.lab.check(&case.params, &residues, USERS, VICTIM).unwrap();
    assert_eq!(found.weights(), case.honest);
    (case, residues)
}

#[test]
fn published_sums_that_were_changed_fail_the_check() {
    let (case, residues) = opened(250);
    let lab = &case.lab;
    let refused = |what: &str, published: &[Plaintext]| {
        for user in 0..ACCOMPLICE {
            let result = lab.check(&case.params, published, USERS, user);
            assert_eq!(result.unwrap_err(), Error::Check, "{what}");
        }
    };
    for factor in [-1, 0, 2] {
        refused(&format!("times {factor}"), &lab.scale(&residues, factor));
    }
    for (i, j) in [(0, 1), (3, 9), (9, 10), (0, 10)] {
        let mut exchanged = residues.clone();
        exchanged.swap(i, j);
        refused(&format!("{i} and {j} exchanged"), &exchanged);
    }
    for i in 0..residues.len() {
        for shift in [1, -1, 1 << 20, 1 << 100] {
            let mut shifted = residues.clone();
            shifted[i] = lab.add(&[shifted[i].clone()], &[lab.small(shift)]).remove(0);
            refused(&format!("{i} shifted by {shift}"), &shifted);
        }
    }
    refused("all zeros", &vec![lab.small(0); residues.len()]);
    // residues of the round before are for other secrets
    let (first, sum) = (Arc::new(RoundParams::new(&lab.task, Round::FIRST)), &residues);
    assert_eq!(lab.check(&first, sum, USERS, VICTIM).unwrap_err(), Error::Check);
    let other = Arc::new(case.params.with_ticket(Digest::from_bytes([1; 32])));
    assert_eq!(lab.check(&other, sum, USERS, VICTIM).unwrap_err(), Error::Check);
}

#[test]
fn check_depends_on_the_number_of_listed_users() {
    let (case, residues) = opened(260);
    for users in (0..=USERS + 2).chain([1 << 16]) {
        let result = case.lab.check(&case.params, &residues, users, VICTIM);
        assert_eq!(result.is_ok(), users == USERS, "{users}");
    }
}

/// The equation of the check without `kappa` is linear, so a multiple of a sum satisfies it too.
#[test]
fn check_without_kappa_would_accept_a_multiple_of_the_sum() {
    let (case, residues) = opened(270);
    let lab = &case.lab;
    let (rho, kappa) = lab.check_key(&case.params);
    let holds = |users: u128, residues: &[Plaintext]| {
        let (found, packed) = residues.split_last().unwrap();
        lab.check_value(&rho, &kappa, users, packed) == *found
    };
    let users = USERS as u128;
    assert!(holds(users, &residues), "the equation of the protocol");
    // the same sum with a check without kappa
    let (found, packed) = residues.split_last().unwrap();
    let kappas = lab.scale(core::slice::from_ref(&kappa), USERS as i32).remove(0);
    let plain = [packed, &[found.minus(&kappas).unwrap()]].concat();
    for factor in [-1, 0, 2, 1000] {
        assert!(holds(0, &lab.scale(&plain, factor)), "without kappa, {factor} times the sum passes");
        assert!(
            !holds(users, &lab.scale(&residues, factor)),
            "with kappa, {factor} times the sum is noticed"
        );
    }
    // with kappa, a multiple passes for another number of users only
    assert!(holds(2 * users, &lab.scale(&residues, 2)));
}

/// What the key generator subtracts depends on all that names an upload. So the masks of no other upload can be reused.
#[test]
fn masks_depend_on_ticket_salt_user_and_round() {
    let ids = [user_id(1), user_id(2), user_id(3)];
    let answer = |number: u64, ticket: u8, salts: [u8; 3], users: [usize; 3]| -> Vec<Plaintext> {
        let mut case = Case::new(Profile::Full, Receipts::Masked, 280);
        let params = RoundParams::new(&case.lab.task, round(number));
        let params = Arc::new(params.with_ticket(Digest::from_bytes([ticket; 32])));
        let blank = case.sent[0].clone();
        let list = |(at, salt): (usize, u8)| Sent { user: ids[at], salt: [salt; 16], ..blank.clone() };
        let listed: Vec<Sent> = users.into_iter().zip(salts).map(list).collect();
        // always the same sum
        let masked = case.lab.open(&params, &blank.sealed, &refs(&listed)).unwrap();
        case.lab.residues(&masked)
    };
    let honest = answer(2, 1, [1, 2, 3], [0, 1, 2]);
    assert_eq!(honest, answer(2, 1, [1, 2, 3], [0, 1, 2]), "the answer is a function of its inputs");
    let others = [
        ("round", answer(3, 1, [1, 2, 3], [0, 1, 2])),
        ("ticket", answer(2, 2, [1, 2, 3], [0, 1, 2])),
        ("one salt", answer(2, 1, [1, 2, 4], [0, 1, 2])),
        ("exchanged salts", answer(2, 1, [2, 1, 3], [0, 1, 2])),
        ("one user", answer(2, 1, [1, 2, 3], [0, 1, 1])),
        ("equal salts", answer(2, 1, [1, 1, 1], [0, 1, 2])),
    ];
    let all: Vec<_> = [("honest", honest)].into_iter().chain(others).collect();
    for (i, (a, xs)) in all.iter().enumerate() {
        for (b, ys) in &all[i + 1..] {
            assert!(xs.iter().zip(ys).all(|(x, y)| x != y), "{a} and {b}");
        }
    }
}

/// The same with one thing changed at a time: all users have the same mask seed, and all salts may be the same.
#[test]
fn masks_differ_in_ticket_salt_user_and_round_alone() {
    let mut config = support::config(Profile::Full);
    config.capacity = 12;
    let mut roles = support::roles(config, 3, 5);
    let seeds = (1..=3).map(|n| (user_id(n), [2; 32], [3; 32]));
    dphe::hazmat::set_seeds(&mut roles.key_generator, [1; 32], seeds);
    let masks = |number: u64, ticket: u8, user: u32, salt: u8| -> Vec<Plaintext> {
        let params = RoundParams::new(roles.key_generator.task(), round(number));
        let params = params.with_ticket(Digest::from_bytes([ticket; 32]));
        let users = [(user_id(user), [salt; 16])];
        dphe::hazmat::key_generator_masks(&roles.key_generator, &params, &users, 4).unwrap()
    };
    let first = masks(1, 1, 1, 1);
    assert_eq!(first, masks(1, 1, 1, 1));
    for (what, other) in [
        ("round", masks(2, 1, 1, 1)),
        ("ticket", masks(1, 2, 1, 1)),
        ("user", masks(1, 1, 2, 1)),
        ("salt", masks(1, 1, 1, 2)),
    ] {
        assert!(first.iter().zip(&other).all(|(x, y)| x != y), "{what}");
    }
}

/// Users with the same mask seed have different masks, and so have two uploads of one user.
#[test]
fn no_two_uploads_have_the_same_masks() {
    let decryption = support::key(256, dphe::NoiseMode::Fast);
    let mut config = support::config(Profile::Full);
    config.capacity = 12;
    let mut roles = support::roles(config, 3, 5);
    let seeds = (1..=3).map(|n| (user_id(n), [2; 32], [3; 32]));
    dphe::hazmat::set_seeds(&mut roles.key_generator, [1; 32], seeds);
    let keys: Vec<_> = (1..=3).map(|n| roles.key_generator.enroll(user_id(n), &mut roles.rng)).collect();
    let zero = support::update(24, &[], &[0.0; 2]);
    let mut seen: BTreeMap<Vec<u8>, (u32, u64)> = BTreeMap::new();
    for user in keys.into_iter().map(|keys| dphe::User::new(keys).unwrap()) {
        for number in [1, 1, 2, 3] {
            let sealed = user.seal(round(number), &zero, &mut roles.rng, support::ONE).unwrap();
            let bytes = dphe::wire::Encode::to_bytes(&sealed);
            let key = roles.key_generator.encryption_key();
            let packed = key.decode(&bytes[32..], support::ONE).unwrap();
            // of zeros, all that is encrypted are the masks, except in the last one
            for plain in decryption.decrypt_all(&packed, &mut roles.rng, support::ONE).unwrap() {
                let again = seen.insert(plain.to_residue_bytes().to_vec(), (user.id().get(), number));
                assert_eq!(again, None);
            }
        }
    }
    assert_eq!(seen.len(), 3 * 4 * 4);
}

/// What the aggregator needs to remove its masks is encrypted to it. The key generator gets the salts, the sum and the
/// hashes of uploads, which contain no part of it.
#[test]
fn key_generator_gets_nothing_of_the_aggregators_part_of_the_masks() {
    let mut config = support::config(Profile::Full);
    config.capacity = 12;
    let mut roles = support::roles(config, 3, 6);
    let mut collecting = roles.aggregator.begin(Round::FIRST);
    let (mut blinds, mut seen) = (Vec::new(), Vec::new());
    for user in &roles.users {
        let update = support::update(24, &[(3, 0.5)], &[0.0; 2]);
        let sealed = user.seal(Round::FIRST, &update, &mut roles.rng, support::ONE).unwrap();
        blinds.push(dphe::wire::Encode::to_bytes(&sealed)[..32].to_vec());
        seen.push(sealed.salt().to_vec());
        collecting.accept(sealed, support::ONE).unwrap();
    }
    seen.push(dphe::wire::Encode::to_bytes(&collecting.finish(support::ONE).unwrap()));
    for blind in &blinds {
        assert!(blinds.iter().filter(|other| *other == blind).count() == 1, "each is drawn anew");
        // six equal bytes by chance: less than one in 10^9
        for part in blind.windows(6) {
            assert!(seen.iter().all(|bytes| bytes.windows(6).all(|known| known != part)));
        }
    }
}

/// The modulus of the exhaustive tests.
const N: u32 = 15;

/// How an aggregator makes a sum from two uploads.
type Strategy = (&'static str, fn(u32, u32) -> u32);

const STRATEGIES: [Strategy; 7] = [
    ("honest", |x, y| x + y),
    ("alone", |x, _| x),
    ("twice", |x, y| 2 * x + y),
    ("inverse", |x, y| x + y + (N - 1) * y),
    ("nothing", |_, _| 0),
    ("product", |x, y| x * y + 3),
    ("choice", |x, y| if x < y { x } else { y * y }),
];

/// How often each view of the aggregator occurs, over all masks of two honest users: their uploads without the
/// aggregator's part of the masks, and the key generator's answer. An accomplice is listed too, and knows its own
/// masks. `masked` says whether users mask at all, and `phantom` adds a listed user who sent nothing.
fn views(inputs: [u32; 2], strategy: Strategy, masked: bool, phantom: bool) -> BTreeMap<[u32; 3], u32> {
    let mut counts = BTreeMap::new();
    let accomplice = 11;
    let range = || if masked { 0..N } else { 0..1 };
    for p1 in range() {
        for p2 in range() {
            let (y1, y2) = ((inputs[0] + p1) % N, (inputs[1] + p2) % N);
            let sum = strategy.1(y1, y2) + accomplice;
            for p3 in if phantom { 0..N } else { 0..1 } {
                let masks = p1 + p2 + accomplice + p3;
                let answer = (sum + 4 * N - masks) % N;
                *counts.entry([y1, y2, answer]).or_default() += 1;
            }
        }
    }
    counts
}

/// Whatever is submitted, what the aggregator sees is distributed in the same way for all inputs with the same sum.
#[test]
fn masked_answer_depends_on_inputs_through_their_sum_only() {
    for strategy in STRATEGIES {
        let mut laws = Vec::new();
        for sum in 0..N {
            let law = views([0, sum], strategy, true, false);
            for first in 1..N {
                let other = views([first, (sum + N - first) % N], strategy, true, false);
                assert_eq!(law, other, "{} with sum {sum}", strategy.0);
            }
            laws.push(law);
        }
        // the answer is of use: it tells different sums apart
        assert!(laws.iter().enumerate().all(|(i, law)| !laws[..i].contains(law)), "{}", strategy.0);
        // with a listed user who sent nothing, it is not
        let alone = views([0, 0], strategy, true, true);
        for inputs in (0..N).flat_map(|x| (0..N).map(move |y| [x, y])) {
            assert_eq!(views(inputs, strategy, true, true), alone, "{} with a phantom", strategy.0);
        }
        // without masks, inputs with the same sum look different
        assert_ne!(views([1, 2], strategy, false, false), views([2, 1], strategy, false, false));
    }
}

/// The key generator sees the sum under the aggregator's part of the masks, whatever the inputs are.
#[test]
fn key_generator_sees_uniform_numbers() {
    for inputs in (0..N).flat_map(|x| (0..N).map(move |y| [x, y])) {
        let mut counts = [0; N as usize];
        for (a1, a2) in (0..N).flat_map(|x| (0..N).map(move |y| (x, y))) {
            counts[((inputs[0] + inputs[1] + a1 + a2) % N) as usize] += 1;
        }
        assert_eq!(counts, [N; N as usize]);
    }
    // the same at the size of the test key: no residue of an answer is ever close to the sum
    let mut case = Case::new(Profile::Full, Receipts::Masked, 290);
    let sent = case.sent.clone();
    let sum = case.without(&[]);
    let masked = case.lab.open(&case.params, &sum, &refs(&sent)).unwrap();
    let residues = case.lab.residues(&masked);
    let found = case.lab.slots(&residues);
    assert_eq!(found.iter().zip(&case.honest).filter(|(x, y)| x == y).count(), 0);
    let (outside, most) = (found.iter().filter(|x| x.unsigned_abs() > 6 << 16).count(), found.len());
    assert!(outside * 10 > most, "slots of random numbers are often out of range: {outside} of {most}");
}

/// Opens a changed sum of a task with private supports, and of the same task without receipts.
fn checked(
    seed: u64,
    receipts: Receipts,
    change: impl Fn(&mut Case) -> Sealed,
) -> (Case, Result<Vec<i64>, Error>) {
    let mut case = Case::new(Profile::Sparse, receipts, seed);
    let sent = case.sent.clone();
    let sum = change(&mut case);
    let opened = case.lab.open(&case.params, &sum, &refs(&sent)).map(|opened| match opened {
        OpenedSum::Clear(sum) => sum.weights().to_vec(),
        OpenedSum::Masked(_) => panic!("sums of private supports are not masked"),
    });
    (case, opened)
}

/// A sum and what it reveals about the victim, given also the honest sum.
type SparseAttack = (&'static str, fn(&mut Case) -> Sealed, fn(&Case, &[i64]) -> Vec<i64>);

#[test]
fn checked_sums_that_were_changed_are_not_opened() {
    let attacks: [SparseAttack; 3] = [
        ("alone", |case| case.sent[VICTIM].sealed.clone(), |_, sum| sum.to_vec()),
        ("drop", |case| case.without(&[VICTIM]), |case, sum| minus(&case.honest, sum)),
        (
            "twice",
            |case| {
                let (all, victim) = (case.without(&[]), case.sent[VICTIM].sealed.clone());
                case.lab.sum([(&all, 1), (&victim, 1)])
            },
            |case, sum| minus(sum, &case.honest),
        ),
    ];
    for (name, change, read) in attacks {
        for seed in 300..300 + RUNS {
            let (case, opened) = checked(seed, Receipts::None, change);
            assert_eq!(read(&case, &opened.unwrap()), case.numbers[VICTIM], "{name}");
            let (mut case, opened) = checked(seed, Receipts::Checked, change);
            assert_eq!(opened, Err(Error::RoundFailed), "{name}");
            // the round counts as opened
            let (sum, sent) = (case.without(&[]), case.sent.clone());
            let second = case.lab.open(&case.params, &sum, &refs(&sent));
            assert_eq!(second.unwrap_err(), Error::Committed);
        }
    }
}

#[test]
fn known_vector_added_to_a_checked_sum_is_noticed() {
    type Shift = fn(&mut Case, &mut Sealed);
    let shifts: [(&str, Shift); 5] = [
        ("one position", |case, sum| {
            let number = case.lab.small(1);
            case.lab.shift(sum.positions.values_mut().next().unwrap(), &number);
        }),
        ("two positions", |case, sum| {
            for (value, shift) in sum.positions.values_mut().zip([1, -1]) {
                case.lab.shift(value, &case.lab.small(shift));
            }
        }),
        ("a new position", |case, sum| {
            let free = (0..40).find(|p| !sum.positions.contains_key(p)).unwrap();
            let number = case.lab.small(3);
            sum.positions.insert(free, case.lab.encrypt(&number));
        }),
        ("a lost position", |_, sum| drop(sum.positions.pop_first())),
        ("exchanged positions", |_, sum| {
            let places: Vec<u32> = sum.positions.keys().copied().take(2).collect();
            let [a, b] = places[..] else { panic!("there are many") };
            let (x, y) = (sum.positions[&a].clone(), sum.positions[&b].clone());
            sum.positions.extend([(a, y), (b, x)]);
        }),
    ];
    for (name, shift) in shifts {
        let change = |case: &mut Case| {
            let mut sum = case.without(&[]);
            shift(case, &mut sum);
            sum
        };
        let (case, opened) = checked(320, Receipts::None, change);
        assert_ne!(opened.unwrap(), case.honest, "{name}: without receipts, nobody notices");
        assert_eq!(checked(320, Receipts::Checked, change).1, Err(Error::RoundFailed), "{name}");
    }
    // the dense values and the check
    for at in 0..2 {
        let change = |case: &mut Case| {
            let mut sum = case.without(&[]);
            case.lab.shift(&mut sum.packed[at], &case.lab.small(1));
            sum
        };
        assert_eq!(checked(321, Receipts::Checked, change).1, Err(Error::RoundFailed));
    }
    // what changes no number is harmless: noise, a factor of -1, and a position with a zero
    let harmless = |case: &mut Case| {
        let mut sum = case.without(&[]);
        let first = sum.positions.first_entry().unwrap().into_mut();
        *first = case.lab.negated(first);
        case.lab.key.rerandomize(&mut sum.packed, &mut case.lab.rng, support::ONE).unwrap();
        let free = (0..40).find(|p| !sum.positions.contains_key(p)).unwrap();
        let zero = case.lab.small(0);
        sum.positions.insert(free, case.lab.encrypt(&zero));
        sum
    };
    let (case, opened) = checked(322, Receipts::Checked, harmless);
    assert_eq!(opened, Ok(case.honest));
}

/// A documented limit of checked sums: a guess of one number is confirmed by a sum that opens, and costs a failed round
/// if it is wrong. The task allows few of those.
#[test]
fn wrong_guess_of_one_number_costs_a_failed_round_of_checked_sums() {
    let guess = |right: bool| {
        move |case: &mut Case| {
            let mut sum = case.without(&[]);
            let (&position, replaced) = case.sent[VICTIM].sealed.positions.first_key_value().unwrap();
            let replaced = replaced.clone();
            let plain =
                support::key(256, dphe::NoiseMode::Fast).decrypt(&replaced, &mut case.lab.rng).unwrap();
            let wrong = case.lab.add(std::slice::from_ref(&plain), &[case.lab.small(1)]).remove(0);
            let removed = case.lab.key.mul_small_vartime(&[replaced], &[-1], support::ONE).unwrap().remove(0);
            let guess = case.lab.encrypt(if right { &plain } else { &wrong });
            let terms = [sum.positions[&position].clone(), removed, guess];
            sum.positions.insert(position, case.lab.key.sum(&terms, support::ONE).unwrap());
            sum
        }
    };
    let (case, opened) = checked(330, Receipts::Checked, guess(true));
    assert_eq!(opened, Ok(case.honest));
    assert_eq!(checked(330, Receipts::Checked, guess(false)).1, Err(Error::RoundFailed));
}

/// Shifts that an aggregator draws at random pass the check of no user.
#[test]
fn random_lies_are_noticed() {
    let (mut case, residues) = opened(340);
    for _ in 0..200 {
        let mut published = residues.clone();
        for _ in 0..=below(&mut case.lab.rng, 4) {
            let at = below(&mut case.lab.rng, published.len());
            let shift = 1 + below(&mut case.lab.rng, 1 << 40) as i128;
            published[at] = case.lab.add(&[published[at].clone()], &[case.lab.small(shift)]).remove(0);
        }
        let result = case.lab.check(&case.params, &published, USERS, VICTIM);
        assert_eq!(result.unwrap_err(), Error::Check);
    }
}

/// Counts residues in sixteen intervals of equal length, and compares the counts with uniform ones.
fn chi_squared(residues: &[Plaintext], modulus: &[u8]) -> f64 {
    let leading = |bytes: &[u8]| f64::from(u32::from_be_bytes(*bytes.first_chunk().unwrap()));
    let mut counts = [0.0; 16];
    for residue in residues {
        let place = 16.0 * leading(&residue.to_residue_bytes()) / leading(modulus);
        counts[(place as usize).min(15)] += 1.0;
    }
    let expected = residues.len() as f64 / 16.0;
    counts.iter().map(|count| (count - expected) * (count - expected) / expected).sum()
}

/// What comes out if the sum is not that of the listed users says nothing, and not even to the key generator what the
/// honest sum is.
#[test]
fn masked_answers_are_uniform_at_256_bits() {
    for attack in ["honest", "alone", "phantom", "twice"] {
        let mut case = Case::new(Profile::Full, Receipts::Masked, 350);
        let sent = case.sent.clone();
        let mut sum = case.without(&[]);
        match attack {
            "honest" => {}
            "twice" => sum = case.lab.sum([(&sum, 1), (&sent[VICTIM].sealed, 1)]),
            _ => sum = sent[VICTIM].sealed.clone(),
        }
        let modulus = case.lab.key.modulus_be_bytes();
        let mut answers = Vec::new();
        for number in 2..152 {
            let params = Arc::new(RoundParams::new(&case.lab.task, round(number)));
            let salt = |sent: &Sent| Sent { salt: [number as u8; 16], ..sent.clone() };
            let listed: Vec<Sent> = match attack {
                "phantom" => (1..=3).map(|n| Sent { user: user_id(n), ..salt(&sent[VICTIM]) }).collect(),
                _ => sent.iter().map(salt).collect(),
            };
            let masked = case.lab.open(&params, &sum, &refs(&listed)).unwrap();
            answers.extend(case.lab.residues(&masked));
        }
        let chi = chi_squared(&answers, &modulus);
        println!("{attack}: {} answers, chi-squared {chi:.1} with 15 degrees of freedom", answers.len());
        // one in 50,000 exceeds 50
        assert!(chi < 50.0, "{attack}");
        // the numbers themselves are far from uniform
        let plain = case.lab.layout.pack(&case.lab.key, &case.numbers[VICTIM]).unwrap();
        assert!(chi_squared(&plain, &modulus) > 50.0);
    }
}
