//! L2-regularised logistic regression to optimality, all classes at once:
//!
//! ```text
//! J(w, b) = mean_i ln(1 + exp(-y_i (w.x_i + b))) + strength/2 |w|^2
//! ```
//!
//! as scikit-learn's `LogisticRegression(C = 1 / (strength n))` does.
//!
//! The analysis of output noise is about the minimiser itself, so nothing less will do. L-BFGS (Liu and Nocedal 1989)
//! runs for sixteen classes in lockstep. A minimiser is a combination of the samples; where these are fewer than the
//! features, its coefficients are sought, and all that is needed of the samples are their products with each other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use dphe_learn::{Dataset, Features, Threads, Weights};

use super::product::{gram, times, transposed};
use crate::Error;

/// Pairs of steps and changes of slope that are remembered.
const MEMORY: usize = 8;
/// A class is done when its slope is this short, relative to its weights if these are longer than 1.
const TOLERANCE: f64 = 1e-6;
/// Far more than it takes.
const MOST_ITERATIONS: usize = 300;
/// Larger matrices are multiplied in single precision.
const MOST_DOUBLES: usize = 1 << 22;

/// Classes that go in lockstep: as many as a product of matrices takes at once.
const LOCKSTEP: usize = 16;

/// One user's samples, ready to be fitted with any strength.
#[derive(Debug)]
pub struct Logistic {
    space: Space,
    /// `sample * classes + class`, 1 or -1.
    targets: Vec<f64>,
    classes: usize,
    threads: Threads,
    /// Intercepts are sought in this unit, so that they are about as easy to find as weights.
    unit: f64,
}

/// A minimiser.
#[derive(Clone, Debug)]
pub struct Solution {
    /// The classifier.
    pub weights: Weights,
    /// How many steps it took.
    pub iterations: usize,
    /// The length of the longest slope of a class, relative to its weights if these are longer than 1.
    pub slope: f64,
}

/// Where the minimiser is sought.
#[derive(Debug)]
enum Space {
    /// Among the combinations of samples.
    Samples { gram: Features<f64>, columns: Features },
    /// Among all weights.
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
            Self::Single(rows) => times(rows, classes, numbers, Threads::ONE),
            Self::Double(rows) => times(rows, classes, numbers, Threads::ONE),
        }
    }
}

/// A vector of every class: coordinates, and what they are multiplied with in an inner product. Among combinations of
/// samples that is the coordinates times the Gram matrix, otherwise the coordinates themselves.
#[derive(Clone)]
struct Vector {
    at: Vec<f64>,
    image: Option<Vec<f64>>,
    /// Of intercepts, in their unit.
    offset: Vec<f64>,
}

impl Vector {
    fn image(&self) -> &[f64] {
        self.image.as_ref().unwrap_or(&self.at)
    }

    /// Adds another, times a factor a class.
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

    /// Inner products, one a class.
    fn dot(&self, other: &Self, classes: usize) -> Vec<f64> {
        let mut sums = self.dot_weights(other, classes);
        sums.iter_mut().zip(&self.offset).zip(&other.offset).for_each(|((sum, a), b)| *sum += a * b);
        sums
    }

    /// The same without intercepts, which are not penalised.
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

/// A step, and how it changed the slope.
struct Pair {
    step: Vector,
    change: Vector,
    /// One over their product; zero for classes that did not move.
    inverse: Vec<f64>,
}

impl Logistic {
    /// Takes a user's samples.
    ///
    /// # Errors
    /// None for samples.
    pub fn new(data: &Dataset, threads: Threads) -> Result<Self, Error> {
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

    /// The minimiser for this strength.
    ///
    /// # Errors
    /// If the samples are so large that numbers overflow.
    pub fn solve(&self, strength: f64) -> Result<Solution, Error> {
        let parts: Vec<Part<'_>> = (0..self.classes)
            .step_by(LOCKSTEP)
            .map(|first| {
                let end = self.classes.min(first + LOCKSTEP);
                let rows = self.targets.chunks_exact(self.classes);
                let targets = rows.flat_map(|row| &row[first..end]).copied().collect();
                Part { space: &self.space, targets, classes: end - first, unit: self.unit }
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

/// Does the work for every item, the next by whichever thread is free. The results are in order.
fn on_threads<T: Sync, R: Send>(
    items: &[T],
    threads: Threads,
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

/// Some classes, solved together.
struct Part<'a> {
    space: &'a Space,
    targets: Vec<f64>,
    classes: usize,
    unit: f64,
}

impl Part<'_> {
    fn samples(&self) -> usize {
        self.targets.len() / self.classes
    }

    /// The minimiser, how many steps it took, and the longest slope.
    fn solve(&self, strength: f64) -> Result<(Weights, usize, f64), Error> {
        let classes = self.classes;
        let zeros = vec![0.0; self.coordinates() * classes];
        let by_samples = matches!(self.space, Space::Samples { .. });
        let image = by_samples.then(|| zeros.clone());
        let mut at = Vector { image, at: zeros, offset: self.log_odds() };
        let mut scores = self.scores(&at)?;
        let mut slope = self.slope(&scores, &at, strength)?;
        let mut memory: VecDeque<Pair> = VecDeque::new();
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
            // classes that are done stay where they are
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
            memory.push_back(Pair { step: direction, change, inverse });
        }
    }

    /// The best intercepts for weights of zero, nearly: where the search starts.
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

    /// What a vector adds to the scores of the samples.
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

    /// The slope of the objective, where these are the scores.
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
                let image = Some(times(gram, self.classes, slope.clone(), Threads::ONE)?);
                Ok(Vector { at: slope, image, offset })
            }
            Space::Weights { columns, .. } => {
                let mut slope = columns.times(self.classes, residuals)?;
                add(&mut slope, &strengths, &at.at);
                Ok(Vector { at: slope, image: None, offset })
            }
        }
    }

    /// How far each class goes: to where the slope along its direction is a small part of what it was. The objective
    /// is convex and cheap along a line, because scores are linear.
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

    /// First and second derivative of the mean loss along a line, one a class.
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
                times(&columns.convert::<f64>(), self.classes, at.at.clone(), Threads::ONE)?
            }
            Space::Weights { .. } => at.at.clone(),
        };
        let intercepts = at.offset.iter().map(|offset| offset * self.unit).collect();
        Ok(Weights::new(flat.len() / self.classes, flat, intercepts)?)
    }
}

/// The slope, turned by what is remembered of the curvature.
fn direction(slope: &Vector, memory: &VecDeque<Pair>, classes: usize) -> Vector {
    let mut vector = slope.clone();
    let mut products = Vec::new();
    for Pair { step, change, inverse } in memory.iter().rev() {
        let product: Vec<f64> = step.dot(&vector, classes).iter().zip(inverse).map(|(d, i)| d * i).collect();
        let negative: Vec<f64> = product.iter().map(|p| -p).collect();
        vector.add(&negative, change);
        products.push(product);
    }
    if let Some(Pair { change, inverse, .. }) = memory.back() {
        let scale = |(square, inverse): (f64, &f64)| {
            if *inverse > 0.0 && square > 0.0 { 1.0 / (inverse * square) } else { 1.0 }
        };
        let scales: Vec<f64> = change.dot(change, classes).into_iter().zip(inverse).map(scale).collect();
        vector.scale(&scales);
    }
    for (Pair { step, change, inverse }, product) in memory.iter().zip(products.iter().rev()) {
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
