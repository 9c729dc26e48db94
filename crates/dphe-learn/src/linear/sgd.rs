//! Stochastic gradient descent, one class against the rest or all classes together.

use super::compatible;
use super::panel::{Trained, Trainer, train_together};
use super::{Loss, Penalty, Problem, Schedule};
use crate::{Dataset, Error, Real, Seed, Threads, Weights};

/// What to learn and how. [`SgdParams::check`] turns it into a learner.
///
/// | field | default | purpose |
/// | --- | --- | --- |
/// | `loss` | hinge | what is made small |
/// | `penalty` | L2, 0.001 | how weights are kept small or few |
/// | `schedule` | - | how large steps are |
/// | `epochs` | 5 | passes over the samples |
/// | `intercept` | true | whether intercepts are learnt |
/// | `threads` | 1 | classes are dealt to threads; results do not depend on it |
#[derive(Clone, Debug, PartialEq)]
pub struct SgdParams {
    /// What is made small.
    pub loss: Loss,
    /// How weights are kept small or few.
    pub penalty: Penalty,
    /// How large steps are.
    pub schedule: Schedule,
    /// Passes over the samples.
    pub epochs: usize,
    /// Whether intercepts are learnt; else they stay where they start.
    pub intercept: bool,
    /// Threads a call may use.
    pub threads: Threads,
}

impl SgdParams {
    /// Hinge loss, L2 of strength 0.001, five epochs, one thread.
    pub fn new(schedule: Schedule) -> Self {
        Self {
            loss: Loss::Hinge,
            penalty: Penalty::DEFAULT,
            schedule,
            epochs: 5,
            intercept: true,
            threads: Threads::ONE,
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// No epochs, or a schedule that makes no steps.
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
/// Sixteen neighbouring classes (eight in double precision) see the samples in the same order, so that a pass over
/// their weights serves them all; [`Sgd::fit_like_sklearn`] gives every class its own order.
///
/// L1 is the cumulative penalty of Tsuruoka, Tsujii and Ananiadou (ACL 2009): a weight pays at each step what it
/// still owes of all penalties so far, and stops at zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Sgd(SgdParams);

impl Sgd {
    /// The parameters.
    pub fn params(&self) -> &SgdParams {
        &self.0
    }

    /// Learns from zero.
    ///
    /// # Errors
    /// See [`fit_from`](Self::fit_from).
    pub fn fit<T: Real>(&self, data: &Dataset<T>, seed: &Seed) -> Result<Weights, Error> {
        let start = Weights::zeros(data.features().width(), data.labels().class_count())?;
        self.fit_from(&start, data, seed)
    }

    /// Learns on from `start`; the schedule begins anew. The precision is that of the features.
    ///
    /// # Errors
    /// If shapes differ, the loss is multinomial and the labels are attributes, or the weights diverge.
    pub fn fit_from<T: Real>(
        &self,
        start: &Weights,
        data: &Dataset<T>,
        seed: &Seed,
    ) -> Result<Weights, Error> {
        self.solve(start, &Problem::new(data), seed)
    }

    /// Learns in double precision with one order of samples a class, as scikit-learn's `SGDClassifier` does with
    /// these seeds (see [`sklearn_class_seeds`](super::sklearn_class_seeds)). Slower; to compare and to reproduce.
    ///
    /// # Errors
    /// As [`fit_from`](Self::fit_from), and if there are not as many seeds as classes or the loss is multinomial.
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
            let results = self.0.threads.map(panels::<T>(start.classes()), |_, (first, width)| {
                // Steps can be so large that the last few samples decide: one order for all classes would let
                // all have bad luck at once. A panel's order is its own.
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

/// The first class and the width of every panel. Sixteen `f32` or eight `f64` fill the registers; the last panel is
/// narrower if that is enough.
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

/// The order of the samples in every epoch: each shuffles the one before.
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
