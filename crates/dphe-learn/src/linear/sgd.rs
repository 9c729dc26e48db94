//! Stochastic gradient descent, for one class against the rest or for all classes together.

use std::num::NonZeroUsize;

use super::compatible;
use super::panel::{Trained, Trainer, train_together};
use super::{Loss, Penalty, Problem, Schedule};
use crate::threads::parallel_map;
use crate::{Dataset, Error, Real, Seed, Weights};

/// The parameters of [`Sgd`]. [`SgdParams::check`] turns them into a learner.
///
/// | field | default | purpose |
/// | --- | --- | --- |
/// | `loss` | hinge | the loss function |
/// | `penalty` | L2, 0.001 | the penalty on weights |
/// | `schedule` | - | the step sizes |
/// | `epochs` | 5 | passes over the samples |
/// | `intercept` | true | whether intercepts are trained |
/// | `threads` | 1 | the number of threads, which does not affect results |
#[derive(Clone, Debug, PartialEq)]
pub struct SgdParams {
    /// The loss function.
    pub loss: Loss,
    /// The penalty on weights.
    pub penalty: Penalty,
    /// The step size schedule.
    pub schedule: Schedule,
    /// The number of passes over the samples.
    pub epochs: usize,
    /// Whether intercepts are trained. Otherwise they keep their initial values.
    pub intercept: bool,
    /// The number of threads. Results do not depend on it.
    pub threads: NonZeroUsize,
}

impl SgdParams {
    /// Returns the defaults: hinge loss, L2 of strength 0.001, five epochs, one thread.
    pub fn new(schedule: Schedule) -> Self {
        Self {
            loss: Loss::Hinge,
            penalty: Penalty::DEFAULT,
            schedule,
            epochs: 5,
            intercept: true,
            threads: NonZeroUsize::MIN,
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// If the number of epochs is zero, or a step size is not positive.
    pub fn check(self) -> Result<Sgd, Error> {
        if self.epochs == 0 {
            return Err(Error::Parameter { name: "epochs", value: 0.0, remedy: "use at least 1" });
        }
        self.schedule.check(self.penalty)?;
        Ok(Sgd(self))
    }
}

/// A learner with checked parameters.
///
/// Sixteen consecutive classes (eight in double precision) see the samples in the same order, so that one pass over
/// the weights serves them all. [`Sgd::fit_like_sklearn`] gives every class its own order.
///
/// L1 is the cumulative penalty of Tsuruoka, Tsujii and Ananiadou (ACL 2009). In each step, a weight pays the rest of
/// all penalties so far, but never crosses zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Sgd(SgdParams);

impl Sgd {
    /// Returns the parameters.
    pub fn params(&self) -> &SgdParams {
        &self.0
    }

    /// Trains from zero.
    ///
    /// # Errors
    /// See [`fit_from`](Self::fit_from).
    pub fn fit<T: Real>(&self, data: &Dataset<T>, seed: &Seed) -> Result<Weights, Error> {
        let start = Weights::zeros(data.features().width(), data.labels().class_count())?;
        self.fit_from(&start, data, seed)
    }

    /// Trains from `start` with a fresh schedule, in the precision of the features.
    ///
    /// # Errors
    /// If the shapes differ, the loss is multinomial and the labels are attributes, or the weights diverge.
    pub fn fit_from<T: Real>(
        &self,
        start: &Weights,
        data: &Dataset<T>,
        seed: &Seed,
    ) -> Result<Weights, Error> {
        self.solve(start, &Problem::new(data), seed)
    }

    /// Trains in double precision with one order of samples per class, as scikit-learn's `SGDClassifier` does with
    /// these seeds (see [`sklearn_class_seeds`](super::sklearn_class_seeds)). This is slower and meant for
    /// comparisons.
    ///
    /// # Errors
    /// In the cases of [`fit_from`](Self::fit_from), if the number of seeds and classes differs, or if the loss is
    /// multinomial.
    pub fn fit_like_sklearn<T: Real>(
        &self,
        start: &Weights,
        data: &Dataset<T>,
        class_seeds: &[u32],
    ) -> Result<Weights, Error> {
        compatible::fit(&self.0, start, data, class_seeds)
    }

    pub(crate) fn solve<T: Real>(
        &self,
        start: &Weights,
        problem: &Problem<'_, T>,
        seed: &Seed,
    ) -> Result<Weights, Error> {
        problem.check(start)?;
        if self.0.loss == Loss::Multinomial {
            problem.labels.as_classes("the multinomial loss")?;
        }
        let samples = problem.features.len();
        let parts = if self.0.loss == Loss::Multinomial {
            self.train_together(start, problem, &orders(samples, self.0.epochs, seed))?
        } else {
            let results = parallel_map(self.0.threads, panels::<T>(start.classes()), |_, (first, width)| {
                // With large steps the last few samples dominate. Different orders per panel keep an unlucky order
                // from affecting all classes.
                let orders = orders(samples, self.0.epochs, &seed.derive("panel", first as u64));
                match width {
                    16 => {
                        Trainer::<T, 16>::new(&self.0, start, problem, first).train(start, problem, &orders)
                    }
                    8 => Trainer::<T, 8>::new(&self.0, start, problem, first).train(start, problem, &orders),
                    _ => Trainer::<T, 4>::new(&self.0, start, problem, first).train(start, problem, &orders),
                }
            });
            results.into_iter().collect::<Result<Vec<_>, _>>()?
        };
        let classes = start.classes();
        let (mut flat, mut intercepts) = (start.flat().to_vec(), start.intercepts().to_vec());
        for part in parts {
            part.write(&mut flat, classes);
            intercepts[part.first..][..part.intercepts.len()].copy_from_slice(&part.intercepts);
        }
        Weights::new(start.features(), flat, intercepts)
    }

    fn train_together<T: Real>(
        &self,
        start: &Weights,
        problem: &Problem<'_, T>,
        orders: &[Vec<u32>],
    ) -> Result<Vec<Trained>, Error> {
        let trainers = (0..start.classes())
            .step_by(16)
            .map(|first| Trainer::<T, 16>::new(&self.0, start, problem, first))
            .collect();
        train_together(trainers, start, problem, orders)
    }
}

/// Returns the first class and the width of every panel. Sixteen `f32` or eight `f64` fill the registers. The last
/// panel is narrower if that suffices.
fn panels<T>(classes: usize) -> Vec<(usize, usize)> {
    let widest = 64 / size_of::<T>();
    (0..classes)
        .step_by(widest)
        .map(|first| match classes - first {
            1..=4 => (first, 4),
            5..=8 => (first, 8),
            _ => (first, widest),
        })
        .collect()
}

/// Returns the order of the samples in every epoch. Each epoch shuffles the order of the previous one.
fn orders(samples: usize, epochs: usize, seed: &Seed) -> Vec<Vec<u32>> {
    let mut stream = seed.derive("order", 0).stream();
    let mut order: Vec<u32> = (0..samples as u32).collect();
    (0..epochs)
        .map(|_| {
            stream.shuffle(&mut order);
            order.clone()
        })
        .collect()
}
