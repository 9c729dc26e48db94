//! The inner loops of SGD: a panel of consecutive classes, trained sample by sample.
//!
//! A panel holds the weights of `L` classes with one row of `L` per feature, so that vector instructions process the
//! classes in parallel and no sum runs across lanes. One pass over the rows applies the step of the previous sample
//! *and* scores the current sample, so the rows are loaded once per sample.

#![allow(clippy::needless_range_loop, reason = "indexed loops over fixed widths become vector instructions")]

mod debt;
mod passes;

use debt::Debt;
use passes::{Terms, moving_pass, resting_pass, resting_sparse_pass, soft, sparse_pass};
use pulp::{Arch, NullaryFnOnce};

use super::loss::softmax;
use super::schedule::Steps;
use super::{Loss, Problem, SgdParams};
use crate::{Error, Real, Weights};

/// The common factor below which it is multiplied into the rows.
const SMALLEST_SCALE: f64 = 1e-9;

/// The training state of `L` classes.
pub(super) struct Trainer<T, const L: usize> {
    first: usize,
    count: usize,
    loss: Loss,
    steps: Steps,
    l1: f64,
    l2: f64,
    learn_intercepts: bool,
    /// With L2 only, the weights divided by `scale`. With L1, the weights before any L1 payment, see [`Debt`].
    rows: Vec<[T; L]>,
    /// The values that L1 pulls to. Empty means zero.
    anchors: Vec<[T; L]>,
    intercepts: [T; L],
    /// The common factor of all rows. L2 shrinks this factor instead of the rows.
    scale: f64,
    debt: Debt,
    time: f64,
    /// A class whose score was not finite, so that its slope is undefined.
    lost: Option<usize>,
    pending: Pending<T, L>,
}

/// A step that has been computed but not yet applied to the rows.
#[derive(Clone, Copy)]
struct Pending<T, const L: usize> {
    sample: usize,
    /// The factor of the sample's features, per class.
    factors: [T; L],
    /// Whether any factor is not zero.
    moves: bool,
}

impl<T: Real, const L: usize> Pending<T, L> {
    const NONE: Self = Self { sample: 0, factors: [T::ZERO; L], moves: false };
}

impl<T: Real, const L: usize> Trainer<T, L> {
    /// Creates the state of the classes from `first` on, with the weights of `start`.
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
            debt: Debt::NONE,
            time: 1.0,
            lost: None,
            pending: Pending::NONE,
        }
    }

    /// Runs all epochs.
    pub(super) fn train(
        mut self,
        start: &Weights,
        problem: &Problem<'_, T>,
        orders: &[Vec<u32>],
    ) -> Result<Trained, Error> {
        for (epoch, order) in orders.iter().enumerate() {
            Arch::new().dispatch(Epoch { trainer: &mut self, problem, order });
            self.check(epoch + 1)?;
        }
        Ok(self.finish(start))
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
                if !scores[l].is_finite() {
                    self.lost = Some(l);
                }
            }
            self.step(sample, &slopes);
        }
        self.settle(problem);
    }

    /// Applies the pending step and returns the scores of a sample.
    #[inline(always)]
    fn score(&mut self, problem: &Problem<'_, T>, sample: usize) -> [T; L] {
        let pending = self.pending;
        let (before, x) = (problem.features.row(pending.sample), problem.features.row(sample));
        let (sums, scale) = if self.l1 > 0.0 {
            if pending.moves || self.debt.is_long() || !self.anchors.is_empty() {
                let (decay, due, due_now) = self.debt.settle();
                let terms = Terms { factors: pending.factors, decay, due, due_now };
                let sums = match self.anchors.is_empty() {
                    true => sparse_pass::<T, L, false>(&mut self.rows, &[], &terms, before, x),
                    false => sparse_pass::<T, L, true>(&mut self.rows, &self.anchors, &terms, before, x),
                };
                (sums, T::ONE)
            } else {
                let Debt { due, keep, owed } = self.debt;
                (resting_sparse_pass(&self.rows, x, T::from_f64(due + owed / keep)), T::from_f64(keep))
            }
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

    /// Computes the step for these slopes.
    #[inline(always)]
    fn step(&mut self, sample: usize, slopes: &[T; L]) {
        let size = self.steps.size(self.time);
        self.time += 1.0;
        let keep = (1.0 - size * self.l2).max(0.0);
        let mut pending = Pending { sample, ..Pending::NONE };
        let mut factor = -size;
        if self.l1 > 0.0 {
            self.debt.grow(keep, self.l1 * size);
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

    /// Applies the pending step.
    #[inline(always)]
    fn settle(&mut self, problem: &Problem<'_, T>) {
        // scoring any sample applies it
        self.pending.moves = true;
        self.score(problem, self.pending.sample);
    }

    /// Checks that the weights and all scores of this epoch are finite.
    fn check(&self, epoch: usize) -> Result<(), Error> {
        let bad = |lanes: &[T; L]| (0..self.count).find(|&l| !lanes[l].is_finite());
        match self.lost.or_else(|| self.rows.iter().chain([&self.intercepts]).find_map(bad)) {
            None => Ok(()),
            Some(lane) => Err(Error::Diverged {
                epoch,
                class: self.first + lane,
                remedy: "standardise the features, use the stable schedule, or raise the strength",
            }),
        }
    }

    /// Returns the weights. Weights that training did not change equal their start exactly.
    fn finish(&self, start: &Weights) -> Trained {
        let classes = start.classes();
        let due = T::from_f64(self.debt.due);
        let keep_digits =
            |value: f64, start: f64| if value == T::from_f64(start).to_f64() { start } else { value };
        let mut flat = Vec::with_capacity(self.rows.len() * self.count);
        for (j, row) in self.rows.iter().enumerate() {
            for l in 0..self.count {
                let value = if self.l1 > 0.0 {
                    let anchor = self.anchors.get(j).map_or(T::ZERO, |anchors| anchors[l]);
                    (anchor + soft(row[l], due)).to_f64()
                } else {
                    row[l].to_f64() * self.scale
                };
                flat.push(keep_digits(value, start.flat()[j * classes + self.first + l]));
            }
        }
        let intercepts = (0..self.count)
            .map(|l| keep_digits(self.intercepts[l].to_f64(), start.intercepts()[self.first + l]))
            .collect();
        Trained { first: self.first, flat, intercepts }
    }
}

/// The trained weights of a panel.
pub(super) struct Trained {
    pub(super) first: usize,
    flat: Vec<f64>,
    pub(super) intercepts: Vec<f64>,
}

impl Trained {
    /// Copies the classes into the feature-major weights of all classes.
    pub(super) fn write(&self, flat: &mut [f64], classes: usize) {
        let count = self.intercepts.len();
        for (row, own) in flat.chunks_exact_mut(classes).zip(self.flat.chunks_exact(count)) {
            row[self.first..][..count].copy_from_slice(own);
        }
    }
}

/// One epoch of one panel. It is a type because a closure is not always compiled for the caller's instruction set.
struct Epoch<'a, T, const L: usize> {
    trainer: &'a mut Trainer<T, L>,
    problem: &'a Problem<'a, T>,
    order: &'a [u32],
}

impl<T: Real, const L: usize> NullaryFnOnce for Epoch<'_, T, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.trainer.epoch(self.problem, self.order);
    }
}

/// Trains panels together for the multinomial loss, whose slopes depend on the scores of all classes.
pub(super) fn train_together<T: Real, const L: usize>(
    mut trainers: Vec<Trainer<T, L>>,
    start: &Weights,
    problem: &Problem<'_, T>,
    orders: &[Vec<u32>],
) -> Result<Vec<Trained>, Error> {
    for (epoch, order) in orders.iter().enumerate() {
        Arch::new().dispatch(JointEpoch { trainers: &mut trainers, problem, order });
        for trainer in &trainers {
            trainer.check(epoch + 1)?;
        }
    }
    Ok(trainers.iter().map(|trainer| trainer.finish(start)).collect())
}

/// One epoch of all panels in lockstep.
struct JointEpoch<'a, T, const L: usize> {
    trainers: &'a mut [Trainer<T, L>],
    problem: &'a Problem<'a, T>,
    order: &'a [u32],
}

impl<T: Real, const L: usize> NullaryFnOnce for JointEpoch<'_, T, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { trainers, problem, order } = self;
        let mut chances = vec![0.0; problem.labels.class_count()];
        for &sample in order {
            let sample = sample as usize;
            for trainer in &mut *trainers {
                let scores = trainer.score(problem, sample);
                for l in 0..trainer.count {
                    chances[trainer.first + l] = scores[l].to_f64();
                    if !scores[l].is_finite() {
                        trainer.lost = Some(l);
                    }
                }
            }
            softmax(&mut chances);
            for trainer in &mut *trainers {
                let mut slopes = [T::ZERO; L];
                for l in 0..trainer.count {
                    let class = trainer.first + l;
                    let there = f64::from(u8::from(problem.labels.is_positive(sample, class)));
                    slopes[l] = T::from_f64(chances[class] - there);
                }
                trainer.step(sample, &slopes);
            }
        }
        for trainer in trainers {
            trainer.settle(problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::compatible::Class;
    use crate::linear::{Penalty, Schedule, Stable};
    use crate::{Dataset, Features, Labels, Seed};
    use std::num::NonZeroUsize;

    fn data(samples: usize, width: usize, classes: usize) -> Dataset<f64> {
        let mut stream = Seed::new(11).stream();
        let values = (0..samples * width).map(|_| 4.0 * (stream.unit() - 0.5)).collect();
        let labels = (0..samples).map(|_| stream.below(classes) as u32).collect();
        Dataset::new(Features::new(width, values).unwrap(), Labels::classes(classes, labels).unwrap())
            .unwrap()
    }

    /// Compares the panel with the literal rules, class by class, on the same order of samples.
    #[test]
    fn panels_equal_the_class_by_class_rules() {
        let data = data(60, 21, 5);
        let problem = Problem::new(&data);
        let mut stream = Seed::new(3).stream();
        let flat = (0..21 * 5).map(|_| stream.unit() - 0.5).collect();
        let start = Weights::new(21, flat, vec![0.1; 5]).unwrap();
        let orders: Vec<Vec<u32>> = vec![(0..60).collect(), (0..60).rev().collect()];
        let stable = Schedule::Stable(Stable::for_features(data.features()));
        for loss in [Loss::Hinge, Loss::SquaredHinge, Loss::Logistic] {
            for (ratio, tolerance) in [(0.0, 1e-12), (1.0, 1e-12), (0.5, 1e-4)] {
                for schedule in [Schedule::Optimal, stable] {
                    if loss == Loss::SquaredHinge && schedule == Schedule::Optimal {
                        // steps this large amplify rounding a million times
                        continue;
                    }
                    let params = SgdParams {
                        loss,
                        penalty: Penalty::elastic_net(0.02, ratio).unwrap(),
                        schedule,
                        epochs: 2,
                        intercept: true,
                        threads: NonZeroUsize::MIN,
                    };
                    let trainer = Trainer::<f64, 8>::new(&params, &start, &problem, 0);
                    let trained = trainer.train(&start, &problem, &orders).unwrap();
                    let (found, intercepts) = (&trained.flat, &trained.intercepts);
                    for class in 0..5 {
                        let mut literal = Class::new(&params, start.class(class).collect(), 0.1);
                        for &sample in orders.iter().flatten() {
                            let target =
                                if data.labels().is_positive(sample as usize, class) { 1.0 } else { -1.0 };
                            literal.step(&params, data.features().row(sample as usize), target);
                        }
                        let (w, b) = literal.finish();
                        for (j, w) in w.iter().enumerate() {
                            let found = found[j * 5 + class];
                            let what = format!("{loss:?} {ratio} {schedule:?} class {class} feature {j}");
                            assert!((w - found).abs() <= tolerance * w.abs().max(1.0), "{what}: {w} {found}");
                            assert_eq!(*w == 0.0, found == 0.0, "{what}");
                        }
                        assert!((b - intercepts[class]).abs() < tolerance.max(1e-11) * b.abs().max(1.0));
                    }
                }
            }
        }
    }
}
