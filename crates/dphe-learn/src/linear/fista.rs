//! Deterministic proximal gradient descent on all samples, which reaches true L1 optima.

use std::num::NonZeroUsize;

use pulp::{Arch, NullaryFnOnce};

use super::{Loss, Penalty, Problem, objective};
use crate::threads::parallel_map;
use crate::weights::{LANES, Panel, accumulate, multiply, panels};
use crate::{Dataset, Error, Features, Real, Weights};

/// The parameters of [`Fista`]. [`FistaParams::check`] turns them into a solver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FistaParams {
    /// The penalty on weights.
    pub penalty: Penalty,
    /// The number of steps. It affects the result: more steps from the same start give sparser weights.
    pub iterations: usize,
    /// Whether the weights of a feature form a group that becomes zero as a whole.
    pub grouped: bool,
    /// The number of threads. Results do not depend on it.
    pub threads: NonZeroUsize,
}

impl FistaParams {
    /// Checks the parameters.
    ///
    /// # Errors
    /// If the number of iterations is zero.
    pub fn check(self) -> Result<Fista, Error> {
        if self.iterations == 0 {
            return Err(Error::Parameter {
                name: "iterations",
                value: 0.0,
                remedy: "use at least 1, normally 60",
            });
        }
        Ok(Fista(self))
    }
}

/// A solver that minimises, over all classes together,
///
/// ```text
/// mean_i sum_c max(0, 1 - y_ic f_ic)^2 + strength (l1_ratio |W|_1 + (1 - l1_ratio)/2 |W|_2^2)
/// ```
///
/// with accelerated proximal gradient steps (Beck and Teboulle, SIAM J. Imaging Sciences 2009). Users hold few
/// samples, so full gradients are affordable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fista(FistaParams);

/// The distance of weights from an optimum, relative to the L1 strength, or absolute if that is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KktResidual {
    /// The largest `|slope + strength sign(w)|` over non-zero weights.
    pub support: f64,
    /// The largest excess of `|slope|` over the strength, over weights that are zero.
    pub zeros: f64,
}

impl Fista {
    /// Returns the parameters.
    pub fn params(&self) -> &FistaParams {
        &self.0
    }

    /// Trains from `start`.
    ///
    /// # Errors
    /// If the shapes differ or the weights diverge.
    pub fn fit_from<T: Real>(&self, start: &Weights, data: &Dataset<T>) -> Result<Weights, Error> {
        let problem = Problem::new(data);
        problem.check(start)?;
        let steepness =
            2.0 * (1.02 * largest_eigenvalue(data.features()) + 1.0) + self.0.penalty.l2_strength();
        let parts: Vec<Panel<T>> = panels(start.flat(), start.intercepts());
        // groups span all panels, so the panels must step together
        let solved = if self.0.grouped {
            let mut solvers: Vec<_> = parts.into_iter().map(|p| Solver::new(p, steepness)).collect();
            for _ in 0..self.0.iterations {
                solvers.iter_mut().for_each(|s| s.descend(&problem, self.0.penalty));
                shrink_groups(&mut solvers, self.0.penalty, start.classes());
                solvers.iter_mut().for_each(Solver::extrapolate);
            }
            solvers
        } else {
            parallel_map(self.0.threads, parts, |_, panel| {
                let mut solver = Solver::new(panel, steepness);
                for _ in 0..self.0.iterations {
                    solver.descend(&problem, self.0.penalty);
                    solver.shrink(self.0.penalty);
                    solver.extrapolate();
                }
                solver
            })
        };
        let classes = start.classes();
        let (mut flat, mut intercepts) = (start.flat().to_vec(), start.intercepts().to_vec());
        for Solver { panel, .. } in &solved {
            for (row, lanes) in flat
                .chunks_exact_mut(classes)
                .chain([&mut intercepts[..]])
                .zip(panel.rows.iter().chain([&panel.intercepts]))
            {
                for (l, out) in row[panel.first..][..panel.count].iter_mut().enumerate() {
                    *out = lanes[l].to_f64();
                }
            }
        }
        if flat.iter().chain(&intercepts).any(|w| !w.is_finite()) {
            let remedy = "standardise the features";
            return Err(Error::Diverged { epoch: self.0.iterations, class: 0, remedy });
        }
        Weights::new(start.features(), flat, intercepts)
    }

    /// Returns the objective, summed over the classes.
    ///
    /// # Errors
    /// If the shapes differ.
    pub fn objective<T: Real>(&self, weights: &Weights, data: &Dataset<T>) -> Result<f64, Error> {
        let mean = objective(Loss::SquaredHinge, self.0.penalty, weights, data, self.0.threads)?;
        Ok(mean * weights.classes() as f64)
    }

    /// Returns the distance of weights from an optimum. Groups are not supported.
    ///
    /// # Errors
    /// If the shapes differ.
    pub fn kkt_residual<T: Real>(&self, weights: &Weights, data: &Dataset<T>) -> Result<KktResidual, Error> {
        let problem = Problem::new(data);
        problem.check(weights)?;
        let (lambda, mu) = (self.0.penalty.l1_strength(), self.0.penalty.l2_strength());
        let mut residual = KktResidual { support: 0.0, zeros: 0.0 };
        for panel in panels::<T>(weights.flat(), weights.intercepts()) {
            let mut solver = Solver::new(panel, 1.0);
            let slopes = solver.slopes(&problem);
            for (row, slopes) in solver.panel.rows.iter().zip(slopes) {
                for l in 0..solver.panel.count {
                    let (w, slope) = (row[l].to_f64(), slopes[l].to_f64() + mu * row[l].to_f64());
                    if w == 0.0 {
                        residual.zeros = residual.zeros.max(slope.abs() - lambda);
                    } else {
                        residual.support = residual.support.max((slope + lambda * w.signum()).abs());
                    }
                }
            }
        }
        if lambda > 0.0 {
            residual.support /= lambda;
            residual.zeros /= lambda;
        }
        Ok(residual)
    }
}

/// The state of a panel of classes: the iterate, the extrapolated point where gradients are taken, and buffers.
struct Solver<T> {
    panel: Panel<T>,
    before: Vec<[T; LANES]>,
    before_intercepts: [T; LANES],
    ahead: Vec<[T; LANES]>,
    ahead_intercepts: [T; LANES],
    residuals: Vec<[T; LANES]>,
    steepness: f64,
    momentum: f64,
}

impl<T: Real> Solver<T> {
    fn new(panel: Panel<T>, steepness: f64) -> Self {
        Self {
            before: panel.rows.clone(),
            before_intercepts: panel.intercepts,
            ahead: panel.rows.clone(),
            ahead_intercepts: panel.intercepts,
            residuals: Vec::new(),
            panel,
            steepness,
            momentum: 1.0,
        }
    }

    /// Computes the gradient at the extrapolated point, and leaves the slopes of the scores in `residuals`.
    fn slopes(&mut self, problem: &Problem<'_, T>) -> Vec<[T; LANES]> {
        self.residuals.resize(problem.features.len(), [T::ZERO; LANES]);
        let mut slopes = vec![[T::ZERO; LANES]; self.ahead.len()];
        Arch::new().dispatch(Slopes { solver: self, problem, slopes: &mut slopes });
        slopes
    }

    /// Takes the gradient step, before shrinking.
    fn descend(&mut self, problem: &Problem<'_, T>, penalty: Penalty) {
        let slopes = self.slopes(problem);
        let step = T::from_f64(1.0 / self.steepness);
        let mu = T::from_f64(penalty.l2_strength());
        core::mem::swap(&mut self.before, &mut self.panel.rows);
        self.before_intercepts = self.panel.intercepts;
        for ((w, ahead), slope) in self.panel.rows.iter_mut().zip(&self.ahead).zip(&slopes) {
            for l in 0..LANES {
                w[l] = ahead[l] - step * (slope[l] + mu * ahead[l]);
            }
        }
        self.panel.intercepts = self.ahead_intercepts;
        for residual in &self.residuals {
            accumulate(&mut self.panel.intercepts, -step, residual);
        }
    }

    /// Soft-thresholds every weight.
    fn shrink(&mut self, penalty: Penalty) {
        let threshold = T::from_f64(penalty.l1_strength() / self.steepness);
        for w in self.panel.rows.iter_mut().flatten() {
            *w -= w.smaller(threshold).larger(-threshold);
        }
    }

    /// Computes Nesterov's extrapolated point.
    fn extrapolate(&mut self) {
        let next = (1.0 + (1.0 + 4.0 * self.momentum * self.momentum).sqrt()) / 2.0;
        let factor = T::from_f64((self.momentum - 1.0) / next);
        self.momentum = next;
        for ((ahead, w), before) in self.ahead.iter_mut().zip(&self.panel.rows).zip(&self.before) {
            for l in 0..LANES {
                ahead[l] = w[l] + factor * (w[l] - before[l]);
            }
        }
        for l in 0..LANES {
            let (b, before) = (self.panel.intercepts[l], self.before_intercepts[l]);
            self.ahead_intercepts[l] = b + factor * (b - before);
        }
    }
}

/// The two matrix products of a step, compiled for each instruction set.
struct Slopes<'a, T> {
    solver: &'a mut Solver<T>,
    problem: &'a Problem<'a, T>,
    slopes: &'a mut [[T; LANES]],
}

impl<T: Real> NullaryFnOnce for Slopes<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { solver, problem, slopes } = self;
        let scale = T::from_f64(2.0 / problem.features.len() as f64);
        let (first, count) = (solver.panel.first, solver.panel.count);
        multiply(problem.features, &solver.ahead, &solver.ahead_intercepts, &mut solver.residuals);
        for (sample, scores) in solver.residuals.iter_mut().enumerate() {
            let mut targets = [T::ZERO; LANES];
            problem.labels.write_targets(sample, first, &mut targets);
            for l in 0..LANES {
                let short = (T::ONE - targets[l] * scores[l]).larger(T::ZERO);
                scores[l] = if l < count { -scale * targets[l] * short } else { T::ZERO };
            }
        }
        multiply_transposed(problem.features, &solver.residuals, slopes);
    }
}

/// Shrinks the weights of each feature as a group, in proportion to the root of its size.
fn shrink_groups<T: Real>(solvers: &mut [Solver<T>], penalty: Penalty, classes: usize) {
    let Some(Solver { steepness, panel, .. }) = solvers.first() else { return };
    let threshold = penalty.l1_strength() / steepness * (classes as f64).sqrt();
    for j in 0..panel.rows.len() {
        let squares = solvers.iter().flat_map(|s| s.panel.rows[j]).map(|w| w.to_f64() * w.to_f64());
        let length = squares.sum::<f64>().sqrt();
        let keep = if length > threshold { 1.0 - threshold / length } else { 0.0 };
        let keep = T::from_f64(keep);
        solvers.iter_mut().for_each(|s| s.panel.rows[j].iter_mut().for_each(|w| *w *= keep));
    }
}

/// Computes `out += features^T * rows`, four samples at a time.
#[inline(always)]
fn multiply_transposed<T: Real>(features: &Features<T>, rows: &[[T; LANES]], out: &mut [[T; LANES]]) {
    let width = out.len();
    let mut first = 0;
    for tile in rows.chunks(4) {
        // most samples are beyond the margin for most classes
        if tile.iter().flatten().all(|&r| r == T::ZERO) {
            first += tile.len();
            continue;
        }
        if let [a, b, c, d] = tile {
            let x = [0, 1, 2, 3].map(|i| &features.row(first + i)[..width]);
            for (j, out) in out.iter_mut().enumerate() {
                for l in 0..LANES {
                    out[l] += (x[0][j] * a[l] + x[1][j] * b[l]) + (x[2][j] * c[l] + x[3][j] * d[l]);
                }
            }
        } else {
            for (i, row) in tile.iter().enumerate() {
                for (out, &x) in out.iter_mut().zip(features.row(first + i)) {
                    accumulate(out, x, row);
                }
            }
        }
        first += tile.len();
    }
}

/// Returns the largest eigenvalue of `X^T X / n`, by twenty steps of power iteration.
fn largest_eigenvalue<T: Real>(features: &Features<T>) -> f64 {
    let mut vector = vec![1.0; features.width()];
    let mut value = 0.0;
    for _ in 0..20 {
        let length = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
        if length == 0.0 {
            return 0.0;
        }
        vector.iter_mut().for_each(|v| *v /= length);
        let mut next = vec![0.0; features.width()];
        for row in features.rows() {
            let dot: f64 = row.iter().zip(&vector).map(|(x, v)| x.to_f64() * v).sum();
            next.iter_mut().zip(row).for_each(|(n, x)| *n += dot * x.to_f64());
        }
        next.iter_mut().for_each(|n| *n /= features.len() as f64);
        value = next.iter().zip(&vector).map(|(n, v)| n * v).sum::<f64>();
        vector = next;
    }
    value
}
