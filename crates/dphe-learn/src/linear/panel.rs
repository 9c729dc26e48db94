//! The inner loops: a panel of neighbouring classes, trained sample by sample.
//!
//! A panel holds the weights of `L` classes, one row of `L` a feature, so that vector instructions work on the
//! classes side by side and no sum runs across lanes. One pass over the rows applies the step of the sample before
//! *and* scores the sample at hand: the rows come from the cache once a sample. A class's numbers depend neither
//! on the width of the panel nor on the other classes in it.

use pulp::Arch;

use super::loss::softmax;
use super::schedule::Steps;
use super::{Loss, Problem, SgdParams};
use crate::weights::accumulate;
use crate::{Error, Real, Weights};

/// Rescaled rows are multiplied out when their common factor gets this small.
const SMALLEST_SCALE: f64 = 1e-9;

/// `L` classes in training.
pub(super) struct Trainer<T, const L: usize> {
    first: usize,
    count: usize,
    loss: Loss,
    steps: Steps,
    l1: f64,
    l2: f64,
    learn_intercepts: bool,
    /// L2 alone: weights divided by `scale`. With L1: weights without any L1 penalty, see [`sparse_pass`].
    rows: Vec<[T; L]>,
    /// Where L1 pulls to; empty for zero.
    anchors: Vec<[T; L]>,
    intercepts: [T; L],
    /// The common factor of all rows; L2 shrinks it instead of them.
    scale: f64,
    /// L1 penalty that a weight should have paid so far.
    debt: f64,
    time: f64,
    pending: Pending<T, L>,
}

/// A step that is decided and not yet applied to the rows.
#[derive(Clone, Copy)]
struct Pending<T, const L: usize> {
    sample: usize,
    /// What multiplies the sample's features, a class.
    factors: [T; L],
    /// Whether a factor is not zero.
    moves: bool,
    /// The share that L2 takes, where L1 keeps `scale` from doing it.
    decay: T,
    /// The debt before the step.
    debt: T,
}

impl<T: Real, const L: usize> Pending<T, L> {
    const NONE: Self = Self { sample: 0, factors: [T::ZERO; L], moves: false, decay: T::ZERO, debt: T::ZERO };
}

impl<T: Real, const L: usize> Trainer<T, L> {
    /// The classes from `first` on, starting from `start`.
    pub(super) fn new(params: &SgdParams, start: &Weights, problem: &Problem<'_, T>, first: usize) -> Self {
        let count = L.min(start.classes() - first);
        let lanes = |from: &[f64]| {
            let mut lanes = [T::ZERO; L];
            lanes.iter_mut().zip(&from[first..first + count]).for_each(|(lane, &w)| *lane = T::from_f64(w));
            lanes
        };
        let rows: Vec<[T; L]> = start.flat().chunks_exact(start.classes()).map(lanes).collect();
        let l1 = params.penalty.l1_strength();
        let (rows, anchors) = match problem.anchored && l1 > 0.0 {
            true => (vec![[T::ZERO; L]; rows.len()], rows),
            false => (rows, Vec::new()),
        };
        Self {
            first,
            count,
            loss: params.loss,
            steps: params.schedule.steps(params.loss, params.penalty),
            l1,
            l2: params.penalty.l2_strength(),
            learn_intercepts: params.intercept,
            rows,
            anchors,
            intercepts: lanes(start.intercepts()),
            scale: 1.0,
            debt: 0.0,
            time: 1.0,
            pending: Pending::NONE,
        }
    }

    /// All epochs.
    pub(super) fn train(mut self, problem: &Problem<'_, T>, orders: &[Vec<u32>]) -> Result<Self, Error> {
        for (epoch, order) in orders.iter().enumerate() {
            Arch::new().dispatch(|| self.epoch(problem, order));
            self.check(epoch + 1)?;
        }
        Ok(self)
    }

    #[inline(always)]
    fn epoch(&mut self, problem: &Problem<'_, T>, order: &[u32]) {
        let mut targets = [T::ZERO; L];
        for &sample in order {
            let sample = sample as usize;
            let scores = self.score(problem, sample);
            problem.labels.write_targets(sample, self.first, &mut targets);
            let mut slopes = [T::ZERO; L];
            for l in 0..self.count {
                slopes[l] = self.loss.slope(targets[l], scores[l]);
            }
            self.step(sample, &slopes);
        }
        self.settle(problem);
    }

    /// The scores of a sample, after the step that is pending.
    #[inline(always)]
    fn score(&mut self, problem: &Problem<'_, T>, sample: usize) -> [T; L] {
        let pending = self.pending;
        let (before, x) = (problem.features.row(pending.sample), problem.features.row(sample));
        let (sums, scale) = if self.l1 > 0.0 {
            let debt = T::from_f64(self.debt);
            let sums = match self.anchors.is_empty() {
                true => sparse_pass::<T, L, false>(&mut self.rows, &[], &pending, before, x, debt),
                false => sparse_pass::<T, L, true>(&mut self.rows, &self.anchors, &pending, before, x, debt),
            };
            (sums, T::ONE)
        } else {
            let sums = match pending.moves {
                true => moving_pass(&mut self.rows, &pending.factors, before, x),
                false => resting_pass(&self.rows, x),
            };
            (sums, T::from_f64(self.scale))
        };
        self.pending = Pending::NONE;
        let mut scores = [T::ZERO; L];
        for l in 0..L {
            scores[l] = scale * sums[l] + self.intercepts[l];
        }
        if let Some(offsets) = problem.offsets {
            let offsets = &offsets[sample * problem.labels.class_count() + self.first..][..self.count];
            scores.iter_mut().zip(offsets).for_each(|(score, &offset)| *score += offset);
        }
        scores
    }

    /// Decides the step that these slopes ask for.
    #[inline(always)]
    fn step(&mut self, sample: usize, slopes: &[T; L]) {
        let size = self.steps.size(self.time);
        self.time += 1.0;
        let keep = (1.0 - size * self.l2).max(0.0);
        let mut pending = Pending { sample, ..Pending::NONE };
        let mut factor = -size;
        if self.l1 > 0.0 {
            pending.decay = T::from_f64(1.0 - keep);
            pending.debt = T::from_f64(self.debt);
            self.debt += self.l1 * size;
        } else {
            self.scale *= keep;
            if self.scale < SMALLEST_SCALE {
                let scale = T::from_f64(self.scale);
                self.rows.iter_mut().flatten().for_each(|w| *w *= scale);
                self.scale = 1.0;
            }
            factor /= self.scale;
        }
        let (factor, intercept) = (T::from_f64(factor), T::from_f64(-size * self.steps.intercept));
        for l in 0..L {
            pending.factors[l] = factor * slopes[l];
            pending.moves |= slopes[l] != T::ZERO;
            if self.learn_intercepts {
                self.intercepts[l] += intercept * slopes[l];
            }
        }
        self.pending = pending;
    }

    /// Applies the step that is pending.
    #[inline(always)]
    fn settle(&mut self, problem: &Problem<'_, T>) {
        // scoring any sample does it
        let sample = self.pending.sample;
        self.score(problem, sample);
    }

    /// Fails if a number is not finite.
    fn check(&self, epoch: usize) -> Result<(), Error> {
        let bad = |lanes: &[T; L]| (0..self.count).find(|&l| !lanes[l].is_finite());
        match self.rows.iter().chain([&self.intercepts]).find_map(bad) {
            None => Ok(()),
            Some(lane) => Err(Error::Diverged {
                epoch,
                class: self.first + lane,
                remedy: "standardise the features, use the stable schedule, or raise the strength",
            }),
        }
    }

    /// Writes the classes into flat weights. What training did not touch keeps all its digits.
    pub(super) fn write(&self, start: &Weights, flat: &mut [f64], intercepts: &mut [f64]) {
        let classes = start.classes();
        let debt = T::from_f64(self.debt);
        let put = |out: &mut f64, value: f64, start: f64| {
            *out = if value == T::from_f64(start).to_f64() { start } else { value };
        };
        for (j, row) in self.rows.iter().enumerate() {
            for l in 0..self.count {
                let at = j * classes + self.first + l;
                let value = if self.l1 > 0.0 {
                    let anchor = self.anchors.get(j).map_or(T::ZERO, |anchors| anchors[l]);
                    (anchor + soft(row[l], debt)).to_f64()
                } else {
                    row[l].to_f64() * self.scale
                };
                put(&mut flat[at], value, start.flat()[at]);
            }
        }
        for l in 0..self.count {
            let at = self.first + l;
            put(&mut intercepts[at], self.intercepts[l].to_f64(), start.intercepts()[at]);
        }
    }
}

/// Trains panels whose slopes depend on each other: the probabilities of all classes.
pub(super) fn train_together<T: Real, const L: usize>(
    mut trainers: Vec<Trainer<T, L>>,
    problem: &Problem<'_, T>,
    orders: &[Vec<u32>],
) -> Result<Vec<Trainer<T, L>>, Error> {
    let mut chances = vec![0.0; problem.labels.class_count()];
    for (epoch, order) in orders.iter().enumerate() {
        Arch::new().dispatch(|| {
            for &sample in order {
                let sample = sample as usize;
                for trainer in &mut trainers {
                    let scores = trainer.score(problem, sample);
                    let own = &mut chances[trainer.first..][..trainer.count];
                    own.iter_mut().zip(scores).for_each(|(chance, score)| *chance = score.to_f64());
                }
                softmax(&mut chances);
                for trainer in &mut trainers {
                    let mut slopes = [T::ZERO; L];
                    for (l, chance) in chances[trainer.first..][..trainer.count].iter().enumerate() {
                        let there =
                            f64::from(u8::from(problem.labels.is_positive(sample, trainer.first + l)));
                        slopes[l] = T::from_f64(chance - there);
                    }
                    trainer.step(sample, &slopes);
                }
            }
            for trainer in &mut trainers {
                trainer.settle(problem);
            }
        });
        for trainer in &trainers {
            trainer.check(epoch + 1)?;
        }
    }
    Ok(trainers)
}

/// `rows . x`, in four sums so that additions need not wait for each other.
#[inline(always)]
fn resting_pass<T: Real, const L: usize>(rows: &[[T; L]], x: &[T]) -> [T; L] {
    let mut sums = [[T::ZERO; L]; 4];
    let mut quads = rows.chunks_exact(4);
    let mut x_quads = x.chunks_exact(4);
    for (rows, x) in (&mut quads).zip(&mut x_quads) {
        for i in 0..4 {
            accumulate(&mut sums[i], x[i], &rows[i]);
        }
    }
    for (row, &x) in quads.remainder().iter().zip(x_quads.remainder()) {
        accumulate(&mut sums[0], x, row);
    }
    fold(&sums)
}

/// `rows += before * factors`, then `rows . x`.
#[inline(always)]
fn moving_pass<T: Real, const L: usize>(
    rows: &mut [[T; L]],
    factors: &[T; L],
    before: &[T],
    x: &[T],
) -> [T; L] {
    let mut sums = [[T::ZERO; L]; 4];
    let mut quads = rows.chunks_exact_mut(4);
    let mut before_quads = before.chunks_exact(4);
    let mut x_quads = x.chunks_exact(4);
    for ((rows, before), x) in (&mut quads).zip(&mut before_quads).zip(&mut x_quads) {
        for i in 0..4 {
            accumulate(&mut rows[i], before[i], factors);
            accumulate(&mut sums[i], x[i], &rows[i]);
        }
    }
    let rest = before_quads.remainder().iter().zip(x_quads.remainder());
    for (row, (&before, &x)) in quads.into_remainder().iter_mut().zip(rest) {
        accumulate(row, before, factors);
        accumulate(&mut sums[0], x, row);
    }
    fold(&sums)
}

#[inline(always)]
fn fold<T: Real, const L: usize>(sums: &[[T; L]; 4]) -> [T; L] {
    let mut total = [T::ZERO; L];
    for l in 0..L {
        total[l] = (sums[0][l] + sums[1][l]) + (sums[2][l] + sums[3][l]);
    }
    total
}

/// The cumulative L1 penalty. Tsuruoka's rule keeps, for every weight `w`, the penalty `q` it really received; each
/// step pays the rest of the debt `u` as far as zero allows. Put `z = w - q`, the weight as if it had never paid:
/// then the rule says `w = soft(z, u)`, and a step changes `z` as it would change `w`. So `z` is all there is to
/// keep: half the memory, and no branches. (L2 shrinks `w`, so its share is taken from `soft(z, u)`.)
///
/// With anchors `a`, the penalty is on `w - a`: `w = a + soft(z, u)`.
#[inline(always)]
fn sparse_pass<T: Real, const L: usize, const ANCHORED: bool>(
    rows: &mut [[T; L]],
    anchors: &[[T; L]],
    pending: &Pending<T, L>,
    before: &[T],
    x: &[T],
    debt: T,
) -> [T; L] {
    let mut sums = [T::ZERO; L];
    let width = rows.len();
    let (before, x) = (&before[..width], &x[..width]);
    let anchor = |j: usize, l: usize| if ANCHORED { anchors[j][l] } else { T::ZERO };
    let Pending { factors, decay, debt: debt_before, .. } = *pending;
    for j in 0..width {
        let mut row = rows[j];
        for l in 0..L {
            let w = anchor(j, l) + soft(row[l], debt_before);
            row[l] = row[l] + (before[j] * factors[l] - decay * w);
        }
        rows[j] = row;
        for l in 0..L {
            sums[l] += x[j] * (anchor(j, l) + soft(row[l], debt));
        }
    }
    sums
}

/// `sign(value) max(|value| - threshold, 0)`
#[inline(always)]
fn soft<T: Real>(value: T, threshold: T) -> T {
    value - value.smaller(threshold).larger(-threshold)
}
