//! What one update of the demo gives away: to an aggregator that receives it in the clear, and to one that receives it
//! sealed.

use dphe::{PublicSupport, Round, TaskParams};
use dphe_federate::{GlobalWeights, LocalRound, RoundResidual, RoundRules, UserUpdate, Weighting};
use dphe_learn::Seed;
use dphe_learn::update::LocalTrainer;
use serde::Serialize;

use super::SEED;
use super::parties::Uploads;
use super::users::Setting;
use crate::cli::CliError;
use crate::fashion::{self, CLASSES, PIXELS};

/// The share of the darkest and of the brightest pixels of a recovered picture that become black and white.
const CUT: f64 = 0.01;

/// A picture that an attack was after.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Similarity {
    /// The correlation of the picture recovered from the plain update with the true one.
    pub(super) plain: f64,
    /// The correlation of the picture drawn from the sealed update with the true one.
    pub(super) sealed: f64,
}

/// An attack on the picture that is a user's only one of its class.
#[derive(Clone)]
pub(super) struct Leak {
    pub(super) class: usize,
    pub(super) truth: Vec<u8>,
    pub(super) plain: Vec<u8>,
    pub(super) sealed: Vec<u8>,
    pub(super) similarity: Similarity,
}

/// Attacks the updates of a round that the users have sealed. `global` is what the round started from.
pub(super) fn leaks(
    setting: &Setting,
    task: &TaskParams,
    trainer: LocalTrainer,
    global: &GlobalWeights,
    uploads: &Uploads,
) -> Result<Vec<Leak>, CliError> {
    let round = uploads.round.unwrap_or(Round::FIRST);
    let rules = RoundRules::new(task.clone(), Weighting::Equal, trainer)?;
    let mut leaks = Vec::new();
    for (index, user) in setting.users.iter().enumerate() {
        let Some(sealed) = uploads.by_user.get(index) else { break };
        let seed = Seed::new(SEED).derive("user", index as u64);
        let (class, truth) = (fashion::class_of(user.lone), fashion::shown(user.lone));
        let support = PublicSupport::of(task, round);
        let local = LocalRound::new(&rules, round, &support, global)?;
        let trained = local.train(&user.data, &seed)?;
        let update = local.update(&trained, user.data.len(), &mut RoundResidual::default())?;
        let plain = from_plain(&UserUpdate { user: index, update }, class);
        let sealed = from_sealed(sealed, class);
        let similarity =
            Similarity { plain: correlation(&plain, &truth), sealed: correlation(&sealed, &truth) };
        leaks.push(Leak { class, truth, plain, sealed, similarity });
    }
    Ok(leaks)
}

/// Recovers the only picture of a class from a plain update.
///
/// The change of a class's weights is a sum of pictures: those of the class with positive factors, all others with
/// negative ones. Classes that the user has no picture of show the others alone, and can be told by having almost the
/// same change. The difference is the picture.
fn from_plain(update: &UserUpdate, class: usize) -> Vec<u8> {
    let mut rows = vec![vec![0.0; PIXELS]; CLASSES.len()];
    for (index, value) in update.entries() {
        if let Some(weight) =
            rows.get_mut(index % CLASSES.len()).and_then(|row| row.get_mut(index / CLASSES.len()))
        {
            *weight = value;
        }
    }
    let others = most_alike(&rows, class);
    let difference: Vec<f64> = (0..PIXELS)
        .map(|pixel| rows[class][pixel] - 0.5 * (rows[others.0][pixel] + rows[others.1][pixel]))
        .collect();
    stretched(&difference)
}

/// Returns the two rows besides `class` that differ least.
fn most_alike(rows: &[Vec<f64>], class: usize) -> (usize, usize) {
    let distance =
        |a: usize, b: usize| -> f64 { rows[a].iter().zip(&rows[b]).map(|(a, b)| (a - b).powi(2)).sum() };
    let others = || (0..rows.len()).filter(|&row| row != class);
    others()
        .flat_map(|a| others().filter(move |&b| b > a).map(move |b| (a, b)))
        .min_by(|&(a, b), &(c, d)| distance(a, b).total_cmp(&distance(c, d)))
        .unwrap_or((class, class))
}

/// Draws the bytes of the ciphertexts in which the weights of a class are.
fn from_sealed(content: &[u8], class: usize) -> Vec<u8> {
    let byte = |pixel: usize| (pixel * CLASSES.len() + class) * content.len() / (PIXELS * CLASSES.len());
    (0..PIXELS).map(|pixel| content.get(byte(pixel)).copied().unwrap_or(0)).collect()
}

/// Maps values to grey values.
fn stretched(values: &[f64]) -> Vec<u8> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[(share * (sorted.len() - 1) as f64).round() as usize];
    let (low, high) = (at(CUT), at(1.0 - CUT));
    let scale = f64::from(u8::MAX) / (high - low).max(f64::MIN_POSITIVE);
    // a conversion to u8 saturates
    values.iter().map(|value| ((value - low) * scale) as u8).collect()
}

/// Returns the correlation of two pictures: 1 if they are equal up to brightness and contrast, about 0 if they have
/// nothing in common.
fn correlation(a: &[u8], b: &[u8]) -> f64 {
    let mean = |v: &[u8]| v.iter().map(|&x| f64::from(x)).sum::<f64>() / v.len().max(1) as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut both, mut of_a, mut of_b) = (0.0, 0.0, 0.0);
    for (&x, &y) in a.iter().zip(b) {
        let (x, y) = (f64::from(x) - mean_a, f64::from(y) - mean_b);
        both += x * y;
        of_a += x * x;
        of_b += y * y;
    }
    both / (of_a * of_b).sqrt().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlation_ignores_brightness_and_contrast() {
        let picture = [0, 10, 200, 30];
        let brighter: Vec<u8> = picture.iter().map(|grey| grey / 2 + 50).collect();
        assert!((correlation(&picture, &brighter) - 1.0).abs() < 1e-3);
        let negative: Vec<u8> = picture.iter().map(|grey| 255 - grey).collect();
        assert!(correlation(&picture, &negative) < -0.999);
        assert_eq!(correlation(&picture, &[7; 4]), 0.0);
    }

    #[test]
    fn values_are_stretched_to_all_greys() {
        let grey = stretched(&(0..200).map(|i| f64::from(i) / 1e6).collect::<Vec<_>>());
        assert_eq!((grey[0], grey[199]), (0, 255));
        assert!(grey.windows(2).all(|pair| pair[0] <= pair[1]));
    }
}
