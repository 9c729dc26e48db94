//! Logistic regression with L2 penalty, solved to optimality for all classes at once:
//!
//! ```text
//! J(w, b) = mean_i ln(1 + exp(-y_i (w.x_i + b))) + strength/2 |w|^2
//! ```
//!
//! This is the objective of scikit-learn's `LogisticRegression(C = 1 / (strength n))`.
//!
//! The proof of output perturbation holds for the exact minimiser only. L-BFGS (Liu and Nocedal 1989) runs for sixteen
//! classes in lockstep. The minimiser is a linear combination of the samples. If there are fewer samples than features,
//! the solver searches for the coefficients of that combination and needs only the Gram matrix of the samples.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use dphe_learn::{Dataset, Features, Weights};

use super::product::{gram, times, transposed};
use crate::Error;

/// The number of past steps that L-BFGS keeps.
const MEMORY: usize = 8;
/// A class has converged if its gradient is shorter than this, relative to its weights if these are longer than 1.
const TOLERANCE: f64 = 1e-6;
/// A bound on the iterations. Convergence takes far fewer.
const MOST_ITERATIONS: usize = 300;
/// The size above which matrices are multiplied in single precision.
const MOST_DOUBLES: usize = 1 << 22;

/// The number of classes in lockstep. The matrix product processes this many at once.
const LOCKSTEP: usize = 16;

/// The samples of one user, prepared for any strength.
#[derive(Debug)]
pub struct Logistic {
    space: Space,
    /// The label, 1 or -1, at `sample * classes + class`.
    targets: Vec<f64>,
    classes: usize,
    threads: NonZeroUsize,
    /// The unit of intercepts. It makes them about as well conditioned as weights.
    unit: f64,
}

/// A minimiser.
#[derive(Clone, Debug)]
pub struct Solution {
    /// The classifier.
    pub weights: Weights,
    /// The number of iterations.
    pub iterations: usize,
    /// The length of the longest gradient of a class, relative to its weights if these are longer than 1.
    pub slope: f64,
}

/// The space in which the solver searches.
#[derive(Debug)]
enum Space {
    /// Linear combinations of samples.
    Samples { gram: Features<f64>, columns: Features },
    /// All weights.
    Weights { rows: Matrix, columns: Matrix },
}

#[derive(Debug)]
enum Matrix {
    Single(Features<f32>),
    Double(Features<f64>),
}

impl Matrix {
    fn of(features: Features) -> Self {
        if features.len() * features.width() > MOST_DOUBLES {
            Self::Single(features)
        } else {
            Self::Double(features.convert())
        }
    }

    fn times(&self, classes: usize, numbers: Vec<f64>) -> Result<Vec<f64>, Error> {
        match self {
            Self::Single(rows) => times(rows, classes, numbers, NonZeroUsize::MIN),
            Self::Double(rows) => times(rows, classes, numbers, NonZeroUsize::MIN),
        }
    }
}

/// One vector per class: its coordinates, and their image under the metric of the space. For linear combinations of
/// samples the metric is the Gram matrix, otherwise the identity.
#[derive(Clone)]
struct Vector {
    at: Vec<f64>,
    image: Option<Vec<f64>>,
    /// The intercepts, in their unit.
    offset: Vec<f64>,
}

impl Vector {
    fn image(&self) -> &[f64] {
        self.image.as_ref().unwrap_or(&self.at)
    }

    /// Adds another vector, multiplied by one factor per class.
    fn add(&mut self, factors: &[f64], other: &Self) {
        add(&mut self.at, factors, &other.at);
        if let (Some(image), Some(other)) = (&mut self.image, &other.image) {
            add(image, factors, other);
        }
        add(&mut self.offset, factors, &other.offset);
    }

    fn scale(&mut self, factors: &[f64]) {
        for numbers in [&mut self.at, &mut self.offset].into_iter().chain(&mut self.image) {
            for row in numbers.chunks_exact_mut(factors.len()) {
                row.iter_mut().zip(factors).for_each(|(v, f)| *v *= f);
            }
        }
    }

    /// Returns one inner product per class.
    fn dot(&self, other: &Self, classes: usize) -> Vec<f64> {
        let mut sums = self.dot_weights(other, classes);
        sums.iter_mut().zip(&self.offset).zip(&other.offset).for_each(|((sum, a), b)| *sum += a * b);
        sums
    }

    /// Returns the inner products without the intercepts, which are not penalised.
    fn dot_weights(&self, other: &Self, classes: usize) -> Vec<f64> {
        let mut sums = vec![0.0; classes];
        for (a, b) in self.at.chunks_exact(classes).zip(other.image().chunks_exact(classes)) {
            sums.iter_mut().zip(a).zip(b).for_each(|((sum, a), b)| *sum += a * b);
        }
        sums
    }
}

fn add(to: &mut [f64], factors: &[f64], what: &[f64]) {
    let classes = factors.len();
    for (to, what) in to.chunks_exact_mut(classes).zip(what.chunks_exact(classes)) {
        to.iter_mut().zip(factors).zip(what).for_each(|((to, f), v)| *to += f * v);
    }
}

/// A step and the change of the gradient that it caused.
struct PastStep {
    step: Vector,
    change: Vector,
    /// The inverse of their inner product, or zero for classes that did not move.
    inverse: Vec<f64>,
}

impl Logistic {
    /// Prepares a user's samples.
    ///
    /// # Errors
    /// Returns no error for a valid data set.
    pub fn new(data: &Dataset, threads: NonZeroUsize) -> Result<Self, Error> {
        let (rows, classes) = (data.features(), data.labels().class_count());
        let columns = transposed(rows)?;
        let space = if rows.len() < rows.width() {
            Space::Samples { gram: gram(rows, threads)?, columns }
        } else {
            Space::Weights { rows: Matrix::of(rows.clone()), columns: Matrix::of(columns) }
        };
        let sign = |i: usize| if data.labels().is_positive(i / classes, i % classes) { 1.0 } else { -1.0 };
        let targets = (0..rows.len() * classes).map(sign).collect();
        let unit = (1.0 + rows.squared_radius() / 64.0).sqrt();
        Ok(Self { space, targets, classes, threads, unit })
    }

    /// Computes the minimiser for this strength.
    ///
    /// # Errors
    /// Returns an error if a number overflows.
    pub fn solve(&self, strength: f64) -> Result<Solution, Error> {
        let parts: Vec<ClassGroup<'_>> = (0..self.classes)
            .step_by(LOCKSTEP)
            .map(|first| {
                let end = self.classes.min(first + LOCKSTEP);
                let rows = self.targets.chunks_exact(self.classes);
                let targets = rows.flat_map(|row| &row[first..end]).copied().collect();
                ClassGroup { space: &self.space, targets, classes: end - first, unit: self.unit }
            })
            .collect();
        let solved = on_threads(&parts, self.threads, |part| part.solve(strength))?;
        let features = solved.first().map_or(0, |(weights, ..)| weights.features());
        let mut flat = vec![0.0; features * self.classes];
        let (mut intercepts, mut iterations, mut slope) = (Vec::new(), 0, 0.0f64);
        for (weights, steps, worst) in &solved {
            let first = intercepts.len();
            for (row, block) in
                flat.chunks_exact_mut(self.classes).zip(weights.flat().chunks(weights.classes()))
            {
                row[first..first + block.len()].copy_from_slice(block);
            }
            intercepts.extend_from_slice(weights.intercepts());
            (iterations, slope) = (iterations.max(*steps), slope.max(*worst));
        }
        Ok(Solution { weights: Weights::new(features, flat, intercepts)?, iterations, slope })
    }
}

/// Runs `work` for every item on several threads and returns the results in order.
fn on_threads<T: Sync, R: Send>(
    items: &[T],
    threads: NonZeroUsize,
    work: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let help = || {
        while let Some((index, item)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, item))
        } {
            let result = work(item);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.get().min(items.len()) {
            scope.spawn(help);
        }
        help();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A group of classes that are solved in lockstep.
struct ClassGroup<'a> {
    space: &'a Space,
    targets: Vec<f64>,
    classes: usize,
    unit: f64,
}

impl ClassGroup<'_> {
    fn samples(&self) -> usize {
        self.targets.len() / self.classes
    }

    /// Returns the minimiser, the number of iterations, and the length of the longest gradient.
    fn solve(&self, strength: f64) -> Result<(Weights, usize, f64), Error> {
        let classes = self.classes;
        let zeros = vec![0.0; self.coordinates() * classes];
        let by_samples = matches!(self.space, Space::Samples { .. });
        let image = by_samples.then(|| zeros.clone());
        let mut at = Vector { image, at: zeros, offset: self.log_odds() };
        let mut scores = self.scores(&at)?;
        let mut slope = self.slope(&scores, &at, strength)?;
        let mut memory: VecDeque<PastStep> = VecDeque::new();
        let mut iterations = 0;
        loop {
            let root = |squares: Vec<f64>| squares.into_iter().map(|v| v.max(0.0).sqrt());
            let lengths = root(at.dot_weights(&at, classes)).map(|length| length.max(1.0));
            let relative: Vec<f64> =
                root(slope.dot(&slope, classes)).zip(lengths).map(|(s, l)| s / l).collect();
            let worst = relative.iter().fold(0.0, |worst: f64, &s| worst.max(s));
            if worst <= TOLERANCE || iterations == MOST_ITERATIONS {
                return Ok((self.weights(&at)?, iterations, worst));
            }
            iterations += 1;
            let mut direction = direction(&slope, &memory, classes);
            // classes that have converged do not move
            let moves: Vec<f64> = relative.iter().map(|&s| if s > TOLERANCE { -1.0 } else { 0.0 }).collect();
            direction.scale(&moves);
            let ahead = self.scores(&direction)?;
            let steps = self.steps(&scores, &ahead, &at, &direction, &slope, strength);
            direction.scale(&steps);
            at.add(&vec![1.0; classes], &direction);
            add(&mut scores, &steps, &ahead);
            let next = self.slope(&scores, &at, strength)?;
            let mut change = next.clone();
            change.add(&vec![-1.0; classes], &slope);
            slope = next;
            let products = direction.dot(&change, classes);
            let inverse = products.iter().map(|&p| if p > 0.0 { 1.0 / p } else { 0.0 }).collect();
            if memory.len() == MEMORY {
                memory.pop_front();
            }
            memory.push_back(PastStep { step: direction, change, inverse });
        }
    }

    /// Returns the starting intercepts, which are nearly optimal for zero weights.
    fn log_odds(&self) -> Vec<f64> {
        let mut positive = vec![0.5; self.classes];
        for row in self.targets.chunks_exact(self.classes) {
            positive.iter_mut().zip(row).for_each(|(count, y)| *count += f64::from(u8::from(*y > 0.0)));
        }
        let all = self.samples() as f64 + 1.0;
        positive.into_iter().map(|count| (count / (all - count)).ln() / self.unit).collect()
    }

    fn coordinates(&self) -> usize {
        match self.space {
            Space::Samples { .. } => self.samples(),
            Space::Weights { columns, .. } => match columns {
                Matrix::Single(columns) => columns.len(),
                Matrix::Double(columns) => columns.len(),
            },
        }
    }

    /// Returns the scores of the samples under a vector.
    fn scores(&self, vector: &Vector) -> Result<Vec<f64>, Error> {
        let mut scores = match self.space {
            Space::Samples { .. } => vector.image().to_vec(),
            Space::Weights { rows, .. } => rows.times(self.classes, vector.at.clone())?,
        };
        for row in scores.chunks_exact_mut(self.classes) {
            row.iter_mut().zip(&vector.offset).for_each(|(score, offset)| *score += self.unit * offset);
        }
        Ok(scores)
    }

    /// Returns the gradient of the objective at a vector with these scores.
    fn slope(&self, scores: &[f64], at: &Vector, strength: f64) -> Result<Vector, Error> {
        let samples = self.samples() as f64;
        let residual = |(score, y): (&f64, &f64)| -y / (1.0 + (y * score).exp()) / samples;
        let residuals: Vec<f64> = scores.iter().zip(&self.targets).map(residual).collect();
        let mut offset = vec![0.0; self.classes];
        for row in residuals.chunks_exact(self.classes) {
            offset.iter_mut().zip(row).for_each(|(sum, r)| *sum += self.unit * r);
        }
        let strengths = vec![strength; self.classes];
        match self.space {
            Space::Samples { gram, .. } => {
                let mut slope = residuals;
                add(&mut slope, &strengths, &at.at);
                let image = Some(times(gram, self.classes, slope.clone(), NonZeroUsize::MIN)?);
                Ok(Vector { at: slope, image, offset })
            }
            Space::Weights { columns, .. } => {
                let mut slope = columns.times(self.classes, residuals)?;
                add(&mut slope, &strengths, &at.at);
                Ok(Vector { at: slope, image: None, offset })
            }
        }
    }

    /// Returns the step length of each class, at which the derivative along its direction is a small fraction of the
    /// initial one. Along a line the objective is convex and cheap to evaluate, because scores are linear.
    fn steps(
        &self,
        scores: &[f64],
        ahead: &[f64],
        at: &Vector,
        direction: &Vector,
        slope: &Vector,
        strength: f64,
    ) -> Vec<f64> {
        const ENOUGH: f64 = 0.2;
        let classes = self.classes;
        let start = slope.dot(direction, classes);
        let linear = at.dot_weights(direction, classes);
        let square = direction.dot_weights(direction, classes);
        let mut steps: Vec<f64> = start.iter().map(|&s| if s < 0.0 { 1.0 } else { 0.0 }).collect();
        let mut brackets = vec![(0.0, f64::INFINITY); classes];
        for _ in 0..12 {
            let (first, second) = self.along(scores, ahead, &steps);
            let mut done = true;
            for class in 0..classes {
                let step = steps[class];
                let first = first[class] + strength * (linear[class] + step * square[class]);
                let second = second[class] + strength * square[class];
                if start[class] >= 0.0 || first.abs() <= ENOUGH * -start[class] {
                    continue;
                }
                done = false;
                let (low, high) = brackets[class];
                let (low, high) = if first < 0.0 { (step, high) } else { (low, step) };
                brackets[class] = (low, high);
                let newton = step - first / second;
                steps[class] = match (newton > low && newton < high, high.is_finite()) {
                    (true, _) => newton,
                    (false, true) => (low + high) / 2.0,
                    (false, false) => 2.0 * step,
                };
            }
            if done {
                break;
            }
        }
        steps
    }

    /// Returns the first and second derivative of the mean loss along a line for each class.
    fn along(&self, scores: &[f64], ahead: &[f64], steps: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (mut first, mut second) = (vec![0.0; self.classes], vec![0.0; self.classes]);
        let samples = self.samples() as f64;
        let rows = scores.chunks_exact(self.classes).zip(ahead.chunks_exact(self.classes));
        for ((scores, ahead), targets) in rows.zip(self.targets.chunks_exact(self.classes)) {
            for class in 0..self.classes {
                let (y, speed) = (targets[class], ahead[class]);
                let wrong = 1.0 / (1.0 + (y * (scores[class] + steps[class] * speed)).exp());
                first[class] -= y * speed * wrong / samples;
                second[class] += speed * speed * wrong * (1.0 - wrong) / samples;
            }
        }
        (first, second)
    }

    fn weights(&self, at: &Vector) -> Result<Weights, Error> {
        let flat = match self.space {
            Space::Samples { columns, .. } => {
                times(&columns.convert::<f64>(), self.classes, at.at.clone(), NonZeroUsize::MIN)?
            }
            Space::Weights { .. } => at.at.clone(),
        };
        let intercepts = at.offset.iter().map(|offset| offset * self.unit).collect();
        Ok(Weights::new(flat.len() / self.classes, flat, intercepts)?)
    }
}

/// Returns the gradient multiplied by the L-BFGS approximation of the inverse Hessian.
fn direction(slope: &Vector, memory: &VecDeque<PastStep>, classes: usize) -> Vector {
    let mut vector = slope.clone();
    let mut products = Vec::new();
    for PastStep { step, change, inverse } in memory.iter().rev() {
        let product: Vec<f64> = step.dot(&vector, classes).iter().zip(inverse).map(|(d, i)| d * i).collect();
        let negative: Vec<f64> = product.iter().map(|p| -p).collect();
        vector.add(&negative, change);
        products.push(product);
    }
    if let Some(PastStep { change, inverse, .. }) = memory.back() {
        let scale = |(square, inverse): (f64, &f64)| {
            if *inverse > 0.0 && square > 0.0 { 1.0 / (inverse * square) } else { 1.0 }
        };
        let scales: Vec<f64> = change.dot(change, classes).into_iter().zip(inverse).map(scale).collect();
        vector.scale(&scales);
    }
    for (PastStep { step, change, inverse }, product) in memory.iter().zip(products.iter().rev()) {
        let back = change.dot(&vector, classes);
        let factors: Vec<f64> = back
            .iter()
            .zip(inverse)
            .zip(product)
            .map(|((back, inverse), product)| product - back * inverse)
            .collect();
        vector.add(&factors, step);
    }
    vector
}
