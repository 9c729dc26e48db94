//! Measures each leak on every private sample.

use dphe_learn::linear::{Loss, Penalty};
use dphe_learn::{Seed, Sparsity, Weights, find_strength};

use super::average::{average, rank_by_cosine};
use super::elastic::{elastic_net, share_of_norm};
use super::logistic::{LogisticLeak, logistic, nearest_norm};
use super::picture::keep;
use super::sealed::Sealer;
use super::step::{dot, hinge, norm, relative_error, with_intercept};
use super::victim::{Victim, VictimModel};
use crate::{Error, Measurement};

/// A sample counts as recovered if its relative error is below this.
pub(super) const CLOSE: f64 = 1e-6;
/// The number of image pairs that are kept per leak.
pub(super) const PICTURES: usize = 2;
/// The numbers of samples of the users whose average leaks.
pub(super) const BATCHES: [usize; 5] = [1, 2, 5, 10, 50];

/// The default number of epochs of the public model.
const EPOCHS: usize = 5;

/// The number of samples that a leak exposes and recovers.
#[derive(Default)]
struct RecoveryCount {
    samples: usize,
    exposed: usize,
    recovered: usize,
    worst: f64,
}

impl RecoveryCount {
    /// Counts a sample of which the leak reveals something, with the relative error of its guess.
    fn expose(&mut self, error: f64) {
        self.exposed += 1;
        self.recovered += usize::from(error < CLOSE);
        self.worst = self.worst.max(error);
    }

    fn write(&self, measurement: &mut Measurement) {
        let mut put = |name: &str, value: f64| measurement.insert(name.to_owned(), value);
        put("samples", self.samples as f64);
        put("exposed", share(self.exposed, self.samples));
        put("recovered", share(self.recovered, self.exposed));
        put("worst_error", self.worst);
    }
}

/// Returns `part / all`, or 1 if `all` is 0.
fn share(part: usize, all: usize) -> f64 {
    if all == 0 { 1.0 } else { part as f64 / all as f64 }
}

fn strength(penalty: Penalty) -> f64 {
    penalty.strength() * (1.0 - penalty.l1_ratio())
}

/// Measures one step under hinge loss without an intercept.
pub(super) fn of_hinge(victim: &Victim) -> Result<Measurement, Error> {
    let learner = victim.learner(Loss::Hinge, Penalty::DEFAULT, false, EPOCHS)?;
    let model = victim.model(&learner)?;
    let one = victim.learner(Loss::Hinge, Penalty::DEFAULT, false, 1)?;
    let (mut measurement, mut count) = (Measurement::new(), RecoveryCount::default());
    let before = VictimModel::of(&model);
    for sample in 0..victim.samples.len() {
        count.samples += 1;
        let after = victim.step(&one, &model, sample)?;
        let Some(found) = hinge(&victim.seen(&before, &after, strength(Penalty::DEFAULT))) else { continue };
        count.expose(relative_error(&found, &victim.signed(sample)));
        keep_pair(&mut measurement, victim, count.exposed, sample, &found);
    }
    count.write(&mut measurement);
    Ok(measurement)
}

/// Keeps the images of the first pairs. `signed` is the recovered sample times its label.
fn keep_pair(measurement: &mut Measurement, victim: &Victim, number: usize, sample: usize, signed: &[f64]) {
    if number <= PICTURES {
        let label = victim.label(sample);
        let found: Vec<f64> = signed.iter().map(|x| label * x).collect();
        let left = victim.raw(victim.samples.features().row(sample));
        keep(measurement, number - 1, &left, &victim.raw(&found));
    }
}

/// Measures one step under logistic loss without an intercept, from a model of this many epochs.
pub(super) fn of_logistic(victim: &Victim, epochs: usize) -> Result<Measurement, Error> {
    let learner = victim.learner(Loss::Logistic, Penalty::DEFAULT, false, epochs)?;
    let model = victim.model(&learner)?;
    let one = victim.learner(Loss::Logistic, Penalty::DEFAULT, false, 1)?;
    let (mut measurement, mut count) = (Measurement::new(), RecoveryCount::default());
    let (mut two_roots, mut right, mut inconsistent) = (0, 0, 0);
    let before = VictimModel::of(&model);
    for sample in 0..victim.samples.len() {
        count.samples += 1;
        let after = victim.step(&one, &model, sample)?;
        let found = match logistic(&victim.seen(&before, &after, strength(Penalty::DEFAULT))) {
            LogisticLeak::Samples(found) => found,
            LogisticLeak::Nothing => continue,
            LogisticLeak::Inconsistent => {
                inconsistent += 1;
                continue;
            }
        };
        let truth = victim.signed(sample);
        let error = |signed: &[f64]| relative_error(signed, &truth);
        let best = found.iter().min_by(|a, b| error(&a.signed).total_cmp(&error(&b.signed)));
        let Some(best) = best else { continue };
        count.expose(error(&best.signed));
        if found.len() > 1 {
            two_roots += 1;
            let chosen = nearest_norm(&found, victim.expected_norm());
            right += usize::from(chosen == Some(best));
        }
        let chosen = nearest_norm(&found, victim.expected_norm()).unwrap_or(best);
        keep_pair(&mut measurement, victim, count.exposed, sample, &chosen.signed);
    }
    count.write(&mut measurement);
    measurement.insert("two_roots".to_owned(), share(two_roots, count.exposed));
    measurement.insert("right_of_two".to_owned(), share(right, two_roots));
    measurement.insert("inconsistent".to_owned(), inconsistent as f64);
    Ok(measurement)
}

/// Measures one step with an intercept, under each of the two losses.
pub(super) fn of_intercept(victim: &Victim) -> Result<Measurement, Error> {
    let (mut measurement, mut count) = (Measurement::new(), RecoveryCount::default());
    let mut labels = 0;
    for loss in [Loss::Hinge, Loss::Logistic] {
        let model = victim.model(&victim.learner(loss, Penalty::DEFAULT, true, EPOCHS)?)?;
        let one = victim.learner(loss, Penalty::DEFAULT, true, 1)?;
        let before = VictimModel::of(&model);
        for sample in 0..victim.samples.len() {
            count.samples += 1;
            let after = victim.step(&one, &model, sample)?;
            let step = victim.seen(&before, &after, strength(Penalty::DEFAULT));
            let Some(found) = with_intercept(&step, &victim.intercepts(&before, &after)) else { continue };
            count.expose(relative_error(&found.sample, victim.samples.features().row(sample)));
            labels += usize::from(found.label == victim.label(sample));
            let signed: Vec<f64> = found.sample.iter().map(|x| found.label * x).collect();
            keep_pair(&mut measurement, victim, count.exposed, sample, &signed);
        }
    }
    count.write(&mut measurement);
    measurement.insert("right_labels".to_owned(), share(labels, count.exposed));
    Ok(measurement)
}

/// Measures one step with L1 from a model that is 90 % sparse, as the paper's users take it.
pub(super) fn of_elastic_net(victim: &Victim) -> Result<Measurement, Error> {
    let penalty = |strength: f64| Penalty::elastic_net(strength, 0.5);
    let fit = |strength: f64| -> Result<Weights, dphe_learn::Error> {
        let learner = victim.learner(Loss::Hinge, penalty(strength)?, true, 20)?;
        learner.fit(&victim.initial, &Seed::new(0))
    };
    let found = find_strength(Sparsity::new(0.9)?, |strength| Ok(fit(strength)?.sparsity()))?;
    let (model, penalty) = (fit(found)?, penalty(found)?);
    let one = victim.learner(Loss::Hinge, penalty, true, 1)?;
    let threshold = victim.size() * penalty.strength() * penalty.l1_ratio();
    let (mut measurement, mut count) = (Measurement::new(), RecoveryCount::default());
    let (mut norms, mut features, mut first) = (0.0, 0, 0);
    let before = VictimModel::of(&model);
    for sample in 0..victim.samples.len() {
        count.samples += 1;
        let after = victim.step(&one, &model, sample)?;
        let pull = (after.intercept - before.intercept) / victim.rate();
        if pull == 0.0 {
            continue;
        }
        let found = elastic_net(&victim.seen(&before, &after, strength(penalty)), threshold, pull);
        let truth = victim.samples.features().row(sample);
        let known = found.iter().zip(truth).filter_map(|(found, &x)| found.map(|found| (found, x)));
        let (guess, true_part): (Vec<f64>, Vec<f64>) = known.unzip();
        count.expose(relative_error(&guess, &true_part));
        norms += share_of_norm(truth, &found);
        features += guess.len();
        let filled: Vec<f64> = found.iter().map(|x| x.unwrap_or(0.0)).collect();
        first += usize::from(
            rank_by_cosine(&filled, victim.samples.features(), &[sample]).is_some_and(|r| r == 1),
        );
        if count.exposed <= PICTURES {
            keep(&mut measurement, count.exposed - 1, &victim.raw(truth), &victim.raw(&filled));
        }
    }
    count.write(&mut measurement);
    let exposed = count.exposed.max(1);
    let mut put = |name: &str, value: f64| measurement.insert(name.to_owned(), value);
    put("sparsity", model.sparsity());
    put("share_of_norm", norms / exposed as f64);
    put("share_of_features", share(features, exposed * victim.samples.features().width()));
    put("first_by_cosine", share(first, count.exposed));
    Ok(measurement)
}

/// Measures one step of gradient descent over all samples of users who have no sample of the class.
pub(super) fn of_average(victim: &Victim, users: usize) -> Result<Measurement, Error> {
    let mut measurement = Measurement::new();
    let negatives: Vec<usize> = (0..victim.samples.len()).filter(|&i| victim.label(i) < 0.0).collect();
    for (name, loss) in [("hinge", Loss::Hinge), ("logistic", Loss::Logistic)] {
        let model = victim.model(&victim.learner(loss, Penalty::DEFAULT, true, EPOCHS)?)?;
        let zero = Weights::zeros(model.features(), 1)?;
        for batch in BATCHES {
            let (mut count, mut first, mut first_round) = (RecoveryCount::default(), 0, 0.0f64);
            for own in negatives.chunks_exact(batch).take(users) {
                count.samples += 1;
                let (leaked, truth, heavy) = descend(victim, loss, &VictimModel::of(&model), own);
                if let Some(leaked) = leaked {
                    count.expose(relative_error(&leaked, &truth));
                    let rank = rank_by_cosine(&leaked, victim.samples.features(), &heavy);
                    first += usize::from(rank == Some(1));
                    if batch == 5 && loss == Loss::Hinge && count.exposed == 1 {
                        keep(&mut measurement, 0, &victim.raw(&truth), &victim.raw(&leaked));
                    }
                }
                // at zero weights all samples weigh the same
                let (leaked, ..) = descend(victim, loss, &VictimModel::of(&zero), own);
                let error = leaked.map_or(1.0, |leaked| relative_error(&leaked, &mean(victim, own, |_| 1.0)));
                first_round = first_round.max(error);
            }
            let mut part = Measurement::new();
            count.write(&mut part);
            part.insert("first_by_cosine".to_owned(), share(first, count.exposed));
            part.insert("first_round_error".to_owned(), first_round);
            measurement.extend(part.into_iter().map(|(key, v)| (format!("{name}_{batch:02}_{key}"), v)));
        }
    }
    Ok(measurement)
}

/// Takes a step of gradient descent as a user with these samples of label -1. Returns the leaked mean, the true mean,
/// and the samples that weigh most in it.
fn descend(
    victim: &Victim,
    loss: Loss,
    before: &VictimModel,
    own: &[usize],
) -> (Option<Vec<f64>>, Vec<f64>, Vec<usize>) {
    let slope = |sample: usize| {
        let score = dot(&before.weights, victim.samples.features().row(sample)) + before.intercept;
        match loss {
            Loss::Hinge => f64::from(u8::from(-score < 1.0)),
            _ => 1.0 / (1.0 + (-score).exp()),
        }
    };
    let (size, rate, strength) = (victim.size(), victim.rate(), strength(Penalty::DEFAULT));
    let slopes: Vec<f64> = own.iter().map(|&sample| slope(sample)).collect();
    let total: f64 = slopes.iter().sum();
    let truth = mean(victim, own, slope);
    let step = total / own.len() as f64 * size;
    let after = VictimModel {
        weights: before
            .weights
            .iter()
            .zip(&truth)
            .map(|(w, x)| w * (1.0 - size * strength) - step * x)
            .collect(),
        intercept: before.intercept - step * rate,
    };
    let seen = victim.seen(before, &after, strength);
    let leaked = average(&seen, &victim.intercepts(before, &after)).map(|leaked| leaked.mean);
    let most = slopes.iter().copied().fold(0.0, f64::max);
    let heavy = own.iter().zip(&slopes).filter(|&(_, &s)| s > 0.0 && s >= most / 2.0);
    (leaked, truth, heavy.map(|(&sample, _)| sample).collect())
}

/// Returns the weighted mean of samples, or zeros if all weights are zero.
fn mean(victim: &Victim, own: &[usize], weight: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut sum = vec![0.0; victim.samples.features().width()];
    let mut total = 0.0;
    for &sample in own {
        let weight = weight(sample);
        total += weight;
        sum.iter_mut().zip(victim.samples.features().row(sample)).for_each(|(s, x)| *s += weight * x);
    }
    if total > 0.0 {
        sum.iter_mut().for_each(|s| *s /= total);
    }
    sum
}

/// Measures how well the bytes of a sealed step identify the sample.
pub(super) fn of_sealed(victim: &Victim, samples: usize, seed: &Seed) -> Result<Measurement, Error> {
    let learner = victim.learner(Loss::Hinge, Penalty::DEFAULT, true, EPOCHS)?;
    let model = victim.model(&learner)?;
    let one = victim.learner(Loss::Hinge, Penalty::DEFAULT, true, 1)?;
    let before = VictimModel::of(&model);
    let all = victim.samples.features();
    let mut sealer = Sealer::new(all.width(), seed)?;
    let (mut measurement, mut seen) = (Measurement::new(), 0);
    let (mut places, mut plain_first, mut cosines) = (0.0, 0, 0.0f64);
    let (mut common, mut ciphertexts, mut sizes) = (0, 0, Vec::new());
    for sample in 0..victim.samples.len() {
        let after = victim.step(&one, &model, sample)?;
        if after.intercept == before.intercept || seen == samples {
            continue;
        }
        seen += 1;
        let step = victim.seen(&before, &after, strength(Penalty::DEFAULT));
        let plain = with_intercept(&step, &victim.intercepts(&before, &after));
        plain_first += usize::from(plain.is_some_and(|found| {
            rank_by_cosine(&found.sample, all, &[sample]).is_some_and(|rank| rank == 1)
        }));
        let change: Vec<f64> = after.weights.iter().zip(&before.weights).map(|(a, b)| a - b).collect();
        let sealed = sealer.seal(&change, after.intercept - before.intercept)?;
        let again = sealer.seal(&change, after.intercept - before.intercept)?;
        let (equal, of) = sealed.common(&again);
        (common, ciphertexts) = (common + equal, ciphertexts + of);
        sizes.push(sealed.body.len());
        let truth = all.row(sample);
        cosines += dot(&sealed.numbers, truth) / (norm(&sealed.numbers) * norm(truth)).max(f64::MIN_POSITIVE);
        let rank = rank_by_cosine(&sealed.numbers, all, &[sample]).unwrap_or(all.len());
        places += (rank as f64 - 0.5) / all.len() as f64;
        if seen <= PICTURES {
            let noise: Vec<f64> = sealed.numbers.iter().map(|x| x * 2.0).collect();
            keep(&mut measurement, seen - 1, &victim.raw(truth), &victim.raw(&noise));
        }
    }
    sizes.dedup();
    let mut put = |name: &str, value: f64| measurement.insert(name.to_owned(), value);
    put("samples", seen as f64);
    put("plain_first", share(plain_first, seen));
    put("mean_place", places / seen.max(1) as f64);
    put("mean_cosine", cosines / seen.max(1) as f64);
    put("common_ciphertexts", common as f64);
    put("ciphertexts", ciphertexts as f64);
    put("sizes", sizes.len() as f64);
    Ok(measurement)
}
