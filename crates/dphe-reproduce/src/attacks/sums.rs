//! What an aggregator reads that submits another sum than that of the listed users, with and without masks.

use dphe::{Receipts, UserId};
use dphe_learn::Seed;
use dphe_paillier::Plaintext;

use super::lab::{ACCOMPLICE, Answer, Lab, Open, Sealed, Sent, VICTIM};
use crate::{Error, Measurement};

/// What the aggregator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// To read the victim's numbers.
    Read,
    /// To confirm a guess of some of the victim's numbers.
    Confirm,
    /// To make users accept a wrong sum.
    Mislead,
    /// Nothing. The change is harmless.
    Nothing,
}

/// An attack.
pub(super) struct SumAttack {
    /// The beginning of its measurements' names.
    pub(super) name: &'static str,
    /// What the aggregator does, in one plain sentence.
    pub(super) text: &'static str,
    /// Whether a user helps.
    pub(super) accomplice: bool,
    pub(super) goal: Goal,
    run: fn(&mut Lab) -> Result<Outcome, Error>,
}

/// What an attack achieved.
#[derive(Clone, Copy, Default)]
struct Outcome {
    /// The share of the victim's numbers that the aggregator read. For a guess, 1 if it was confirmed.
    read: f64,
    /// Whether an honest user accepted a sum that is not that of the listed users.
    misled: bool,
}

/// The thirteen attacks.
pub(super) const SUM_ATTACKS: [SumAttack; 13] = [
    SumAttack {
        name: "alone",
        text: "It submits the upload of one user in place of the sum.",
        accomplice: false,
        goal: Goal::Read,
        run: alone,
    },
    SumAttack {
        name: "drop",
        text: "It leaves a listed user out, and subtracts the result from an honest sum.",
        accomplice: false,
        goal: Goal::Read,
        run: drop_one,
    },
    SumAttack {
        name: "twice",
        text: "It adds one user's upload twice, and subtracts an honest sum from the result.",
        accomplice: false,
        goal: Goal::Read,
        run: twice,
    },
    SumAttack {
        name: "swap",
        text: "It replaces one user's upload by an earlier one of its accomplice.",
        accomplice: true,
        goal: Goal::Read,
        run: swap,
    },
    SumAttack {
        name: "inverse",
        text: "Its accomplice uploads the inverse of the other users' ciphertexts, so that they cancel.",
        accomplice: true,
        goal: Goal::Read,
        run: inverse,
    },
    SumAttack {
        name: "phantom",
        text: "It lists users who sent nothing, beside the only one who did.",
        accomplice: false,
        goal: Goal::Read,
        run: phantom,
    },
    SumAttack {
        name: "multiples",
        text: "It submits three times one user's upload in one round and twice in the next, and subtracts.",
        accomplice: false,
        goal: Goal::Read,
        run: multiples,
    },
    SumAttack {
        name: "replay",
        text: "It submits an upload of an earlier round.",
        accomplice: false,
        goal: Goal::Read,
        run: replay,
    },
    SumAttack {
        name: "other_ticket",
        text: "It submits an upload that a user sealed for another ticket of the same round.",
        accomplice: false,
        goal: Goal::Read,
        run: other_ticket,
    },
    SumAttack {
        name: "guess",
        text: "It replaces a ciphertext by one of a guess, and watches whether the sum is still right.",
        accomplice: false,
        goal: Goal::Confirm,
        run: guess,
    },
    SumAttack {
        name: "shift",
        text: "It adds numbers of its own to the sum.",
        accomplice: false,
        goal: Goal::Mislead,
        run: shift,
    },
    SumAttack {
        name: "scaled",
        text: "It publishes a multiple of the sum.",
        accomplice: false,
        goal: Goal::Mislead,
        run: scaled,
    },
    SumAttack {
        name: "minus_one",
        text: "It multiplies a ciphertext of the sum by -1, which is only other noise.",
        accomplice: false,
        goal: Goal::Nothing,
        run: minus_one,
    },
];

/// Runs all attacks on one task. The key has this many bits.
pub(super) fn measure(
    receipts: Receipts,
    bits: u32,
    weights: usize,
    seed: &Seed,
) -> Result<Measurement, Error> {
    let mut lab = Lab::new(receipts, bits, weights, seed)?;
    let mut measurement = Measurement::new();
    for attack in &SUM_ATTACKS {
        let Outcome { read, misled } = (attack.run)(&mut lab)?;
        measurement.insert(format!("{}_read", attack.name), read);
        measurement.insert(format!("{}_misled", attack.name), f64::from(u8::from(misled)));
    }
    measurement.insert("three_sets_read".to_owned(), three_sets(&mut lab)?);
    Ok(measurement)
}

fn refs(sent: &[Sent]) -> Vec<&Sent> {
    sent.iter().collect()
}

fn minus(xs: &[i64], ys: &[i64]) -> Vec<i64> {
    xs.iter().zip(ys).map(|(x, y)| x.wrapping_sub(*y)).collect()
}

fn plus(xs: &[i64], ys: &[i64]) -> Vec<i64> {
    xs.iter().zip(ys).map(|(x, y)| x.wrapping_add(*y)).collect()
}

/// The largest share of the victim's numbers that one of the guesses has.
fn share(lab: &Lab, guesses: impl IntoIterator<Item = Vec<i64>>) -> f64 {
    let victim = &lab.numbers[VICTIM];
    let right = |guess: Vec<i64>| guess.iter().zip(victim).filter(|(x, y)| x == y).count();
    guesses.into_iter().map(right).max().unwrap_or(0) as f64 / victim.len() as f64
}

/// The outcome of an attack that reads: what follows from each reading, and whether users accept anything but the
/// honest sum.
fn reading(lab: &Lab, answer: &Answer, follows: impl Fn(&[i64]) -> Vec<i64>) -> Outcome {
    let read = share(lab, answer.readings.iter().map(|sum| follows(sum)));
    Outcome { read, misled: is_misled(lab, answer) }
}

fn is_misled(lab: &Lab, answer: &Answer) -> bool {
    answer.accepted.as_ref().is_some_and(|sum| *sum != lab.honest)
}

fn alone(lab: &mut Lab) -> Result<Outcome, Error> {
    let round = lab.open_round()?;
    let victim = &round.sent[VICTIM];
    let answer = lab.submit(&round, &victim.sealed, &refs(&round.sent), &[victim])?;
    Ok(reading(lab, &answer, <[i64]>::to_vec))
}

fn drop_one(lab: &mut Lab) -> Result<Outcome, Error> {
    let round = lab.open_round()?;
    let sum = lab.without_victim(&round.sent)?;
    let answer = lab.submit(&round, &sum, &refs(&round.sent), &refs(&round.sent[VICTIM + 1..]))?;
    Ok(reading(lab, &answer, |sum| minus(&lab.honest, sum)))
}

fn twice(lab: &mut Lab) -> Result<Outcome, Error> {
    let round = lab.open_round()?;
    let victim = &round.sent[VICTIM];
    let all = lab.sum_of(&round.sent)?;
    let sum = lab.sum([(&all, 1), (&victim.sealed, 1)])?;
    let included = [&refs(&round.sent)[..], &[victim]].concat();
    let answer = lab.submit(&round, &sum, &refs(&round.sent), &included)?;
    Ok(reading(lab, &answer, |sum| minus(sum, &lab.honest)))
}

/// The accomplice's numbers are known, so what its old upload replaces can be computed.
fn swap(lab: &mut Lab) -> Result<Outcome, Error> {
    let round = lab.open_round()?;
    let (others, old) = (lab.without_victim(&round.sent)?, lab.old[ACCOMPLICE].clone());
    let sum = lab.sum([(&others, 1), (&old.sealed, 1)])?;
    let included = [&refs(&round.sent[VICTIM + 1..])[..], &[&old]].concat();
    let answer = lab.submit(&round, &sum, &refs(&round.sent), &included)?;
    Ok(reading(lab, &answer, |sum| plus(&minus(&lab.honest, sum), &lab.numbers[ACCOMPLICE])))
}

/// What the aggregator submits is the sum of all uploads, of which the accomplice's is made from those of others.
fn inverse(lab: &mut Lab) -> Result<Outcome, Error> {
    let mut round = lab.open_round()?;
    let others = round.sent[VICTIM + 1..ACCOMPLICE].iter().map(|sent| (&sent.sealed, -1));
    let mut inverse = lab.sum(others)?;
    lab.rerandomize(&mut inverse)?;
    round.sent[ACCOMPLICE].sealed = inverse;
    let sum = lab.sum_of(&round.sent)?;
    let answer = lab.submit(&round, &sum, &refs(&round.sent), &[&round.sent[VICTIM]])?;
    Ok(reading(lab, &answer, <[i64]>::to_vec))
}

fn phantom(lab: &mut Lab) -> Result<Outcome, Error> {
    let round = lab.open_round()?;
    let victim = &round.sent[VICTIM];
    let absent = [2, 3].into_iter().filter_map(UserId::new);
    let absent: Vec<Sent> = absent.map(|user| Sent { user, salt: [9; 16], ..victim.clone() }).collect();
    let listed = [&[victim][..], &refs(&absent)].concat();
    let answer = lab.submit(&round, &victim.sealed, &listed, &[victim])?;
    Ok(reading(lab, &answer, <[i64]>::to_vec))
}

fn multiples(lab: &mut Lab) -> Result<Outcome, Error> {
    let mut answers = Vec::new();
    for times in [3, 2] {
        let round = lab.open_round()?;
        let victim = &round.sent[VICTIM];
        let sum = lab.sum([(&victim.sealed, times)])?;
        let included = vec![victim; usize::try_from(times).unwrap_or(0)];
        answers.push(lab.submit(&round, &sum, &refs(&round.sent), &included)?);
    }
    let pairs = answers[0].readings.iter().zip(&answers[1].readings);
    let read = share(lab, pairs.map(|(three, two)| minus(three, two)));
    Ok(Outcome { read, misled: answers.iter().any(|answer| is_misled(lab, answer)) })
}

/// With the salt that the victim has in this round, and with the old one.
fn replay(lab: &mut Lab) -> Result<Outcome, Error> {
    let mut all = Outcome::default();
    for old_salt in [false, true] {
        let mut round = lab.open_round()?;
        let old = lab.old[VICTIM].clone();
        if old_salt {
            round.sent[VICTIM].salt = old.salt;
        }
        let answer = lab.submit(&round, &old.sealed, &refs(&round.sent), &[&old])?;
        let Outcome { read, misled } = reading(lab, &answer, <[i64]>::to_vec);
        all = Outcome { read: all.read.max(read), misled: all.misled || misled };
    }
    Ok(all)
}

fn other_ticket(lab: &mut Lab) -> Result<Outcome, Error> {
    let (this, other) = (lab.ticket(), lab.ticket());
    let round = lab.open_with_tickets(|user| if user == VICTIM { other } else { this })?;
    let victim = &round.sent[VICTIM];
    let answer = lab.submit(&round, &victim.sealed, &refs(&round.sent), &[victim])?;
    Ok(reading(lab, &answer, <[i64]>::to_vec))
}

/// The aggregator learns something if a right guess looks different from a wrong one.
fn guess(lab: &mut Lab) -> Result<Outcome, Error> {
    let mut seen = Vec::new();
    for right in [true, false] {
        let round = lab.open_round()?;
        let mut sum = lab.sum_of(&round.sent)?;
        let slots = lab.layout.slots().min(lab.numbers[VICTIM].len());
        let mut numbers = lab.numbers[VICTIM][..slots].to_vec();
        numbers[0] += i64::from(!right);
        let plaintext = lab.layout.pack(&lab.key, &numbers)?.swap_remove(0);
        let first = |sealed: &Sealed| vec![sealed[0].clone()];
        let guess = vec![lab.encrypt(&plaintext)?];
        let terms = [(&first(&sum), 1), (&first(&round.sent[VICTIM].sealed), -1), (&guess, 1)];
        sum[0] = lab.sum(terms)?.swap_remove(0);
        let answer = lab.submit(&round, &sum, &refs(&round.sent), &refs(&round.sent))?;
        let is_right = |sum: &Vec<i64>| *sum == lab.honest;
        seen.push((answer.readings.iter().any(is_right), answer.accepted.is_some()));
    }
    Ok(Outcome { read: f64::from(u8::from(seen[0] != seen[1])), misled: false })
}

fn shift(lab: &mut Lab) -> Result<Outcome, Error> {
    let round = lab.open_round()?;
    let mut sum = lab.sum_of(&round.sent)?;
    let shift = vec![lab.encrypt(&lab.small(1)?)?];
    sum[0] = lab.sum([(&vec![sum[0].clone()], 1), (&shift, 1)])?.swap_remove(0);
    let answer = lab.submit(&round, &sum, &refs(&round.sent), &refs(&round.sent))?;
    Ok(Outcome { read: 0.0, misled: is_misled(lab, &answer) })
}

/// Without masks, the key generator signs the sum itself, so users refuse any other: nothing can be published here.
fn scaled(lab: &mut Lab) -> Result<Outcome, Error> {
    let (round, residues) = honest(lab)?;
    let mut misled = false;
    for factor in [-1, 0, 2] {
        let scaled = lab.scale(&residues, factor)?;
        misled |= !residues.is_empty() && lab.accepted(&round, &scaled, round.sent.len()).is_some();
    }
    Ok(Outcome { read: 0.0, misled })
}

/// Opens an honest sum, and returns what the aggregator can publish.
fn honest(lab: &mut Lab) -> Result<(Open, Vec<Plaintext>), Error> {
    let round = lab.open_round()?;
    let sum = lab.sum_of(&round.sent)?;
    let answer = lab.submit(&round, &sum, &refs(&round.sent), &refs(&round.sent))?;
    Ok((round, answer.residues))
}

/// -1 is an n-th power modulo `n²`, so it is noise. The sum must remain the honest one.
fn minus_one(lab: &mut Lab) -> Result<Outcome, Error> {
    let round = lab.open_round()?;
    let mut sum = lab.sum_of(&round.sent)?;
    sum[0] = lab.negated(&sum[0])?;
    let answer = lab.submit(&round, &sum, &refs(&round.sent), &refs(&round.sent))?;
    Ok(Outcome { read: 0.0, misled: answer.accepted.as_ref() != Some(&lab.honest) })
}

/// Reads a user from three honest sums on one model, which masks cannot prevent: every sum is of its set. Returns the
/// share of the third user's numbers that is read. The rule of the key generator's party is measured elsewhere.
fn three_sets(lab: &mut Lab) -> Result<f64, Error> {
    let mut sums = Vec::new();
    for set in [&[0, 1, 2][..], &[2, 3, 4], &[0, 1, 3, 4]] {
        let round = lab.open_round()?;
        let sent: Vec<Sent> = set.iter().map(|&user| round.sent[user].clone()).collect();
        let sum = lab.sum_of(&sent)?;
        let answer = lab.submit(&round, &sum, &refs(&sent), &refs(&sent))?;
        sums.push(answer.readings.into_iter().next().unwrap_or_default());
    }
    let double = minus(&plus(&sums[0], &sums[1]), &sums[2]);
    let right = double.iter().zip(&lab.numbers[2]).filter(|(x, y)| **x == 2 * **y).count();
    Ok(right as f64 / lab.numbers[2].len() as f64)
}
