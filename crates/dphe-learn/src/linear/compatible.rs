//! A reimplementation of scikit-learn's `SGDClassifier` for dense data, operation by operation.
//!
//! It was written from the published description, not from the source, and `tests/sklearn_interop.rs` compares the
//! two. Every class has its own order of samples, sums run from the first feature to the last, and L1 tracks the
//! penalty that each weight received. The results agree to the last digits.

use super::schedule::Steps;
use super::{Loss, SgdParams};
use crate::threads::parallel_map;
use crate::{Dataset, Error, Real, Weights};

/// Returns the seeds with which `SGDClassifier(random_state=number)` shuffles for each of several classes. NumPy's
/// Mersenne Twister draws one number per class. That number seeds another twister, whose second draw is the seed.
pub fn sklearn_class_seeds(random_state: u32, classes: usize) -> Vec<u32> {
    let mut twister = Twister::new(random_state);
    (0..classes).map(|_| sklearn_binary_seed(twister.below_mask(0x7fff_ffff))).collect()
}

/// Returns the seed with which `SGDClassifier(random_state=number)` shuffles for a binary problem.
pub fn sklearn_binary_seed(random_state: u32) -> u32 {
    let mut twister = Twister::new(random_state);
    // scikit-learn uses the first draw for a data set that it does not shuffle
    twister.below_mask(0x7fff_fffe);
    twister.below_mask(0x7fff_ffff)
}

pub(super) fn fit<T: Real>(
    params: &SgdParams,
    start: &Weights,
    data: &Dataset<T>,
    class_seeds: &[u32],
) -> Result<Weights, Error> {
    let classes = data.labels().class_count();
    start.check_shape(data.features().width(), classes)?;
    if class_seeds.len() != classes {
        return Err(Error::Shape { what: "seeds", expected: classes, found: class_seeds.len() });
    }
    if params.loss == Loss::Multinomial {
        return Err(Error::Unsuited {
            what: "training class by class",
            needed: "a separate loss per class",
            found: "the multinomial loss",
        });
    }
    let trained = parallel_map(params.threads, class_seeds.to_vec(), |class, seed| {
        let w = start.class(class).collect();
        Class::new(params, w, start.intercepts()[class]).train(params, data, class, seed)
    });
    let (mut flat, mut intercepts) = (vec![0.0; start.dimension()], Vec::with_capacity(classes));
    for (class, result) in trained.into_iter().enumerate() {
        let (w, b) = result?;
        flat.iter_mut().skip(class).step_by(classes).zip(w).for_each(|(out, w)| *out = w);
        intercepts.push(b);
    }
    Weights::new(start.features(), flat, intercepts)
}

/// The training state of one class, with `w = scale * v`.
pub(super) struct Class {
    v: Vec<f64>,
    scale: f64,
    b: f64,
    /// The L1 penalty that every weight should have received so far, and the penalty that each did receive.
    u: f64,
    q: Vec<f64>,
    steps: Steps,
    t: f64,
    /// Whether a score was not finite, so that its slope is undefined.
    lost: bool,
}

impl Class {
    pub(super) fn new(params: &SgdParams, w: Vec<f64>, b: f64) -> Self {
        let steps = params.schedule.steps(params.loss, params.penalty);
        Self { q: vec![0.0; w.len()], v: w, scale: 1.0, b, u: 0.0, steps, t: 1.0, lost: false }
    }

    fn train<T: Real>(
        mut self,
        params: &SgdParams,
        data: &Dataset<T>,
        class: usize,
        seed: u32,
    ) -> Result<(Vec<f64>, f64), Error> {
        let mut order: Vec<usize> = (0..data.len()).collect();
        for epoch in 1..=params.epochs {
            shuffle(&mut order, seed);
            for &sample in &order {
                let target = if data.labels().is_positive(sample, class) { 1.0 } else { -1.0 };
                self.step(params, data.features().row(sample), target);
            }
            if self.lost || !(self.b.is_finite() && self.v.iter().all(|v| v.is_finite())) {
                let remedy = "standardise the features, use the stable schedule, or raise the strength";
                return Err(Error::Diverged { epoch, class, remedy });
            }
        }
        Ok(self.finish())
    }

    /// Returns the weights and the intercept.
    pub(super) fn finish(self) -> (Vec<f64>, f64) {
        let scale = self.scale;
        (self.v.into_iter().map(|v| scale * v).collect(), self.b)
    }

    pub(super) fn step<T: Real>(&mut self, params: &SgdParams, x: &[T], target: f64) {
        let mut dot = 0.0;
        for (v, x) in self.v.iter().zip(x) {
            dot += v * x.to_f64();
        }
        let score = self.scale * dot + self.b;
        self.lost |= !score.is_finite();
        let size = self.steps.size(self.t);
        let update = -size * params.loss.slope(target, score);
        let ratio = params.penalty.l1_ratio();
        if ratio < 1.0 {
            self.scale *= (1.0 - (1.0 - ratio) * size * params.penalty.strength()).max(0.0);
            if self.scale < 1e-9 {
                self.v.iter_mut().for_each(|v| *v *= self.scale);
                self.scale = 1.0;
            }
        }
        if update != 0.0 {
            let factor = update / self.scale;
            for (v, x) in self.v.iter_mut().zip(x) {
                *v += factor * x.to_f64();
            }
            if params.intercept {
                self.b += update * self.steps.intercept;
            }
        }
        if ratio > 0.0 {
            self.u += ratio * size * params.penalty.strength();
            for (v, q) in self.v.iter_mut().zip(&mut self.q) {
                let before = *v;
                if before > 0.0 {
                    *v = (before - (self.u + *q) / self.scale).max(0.0);
                } else if before < 0.0 {
                    *v = (before + (self.u - *q) / self.scale).min(0.0);
                }
                *q += self.scale * (*v - before);
            }
        }
        self.t += 1.0;
    }
}

/// Shuffles the order of the previous epoch, with the *same* random numbers in every epoch.
fn shuffle(order: &mut [usize], seed: u32) {
    let mut state = if seed == 0 { 1 } else { seed };
    let count = order.len();
    for i in 0..count.saturating_sub(1) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        order.swap(i, i + (state & 0x7fff_ffff) as usize % (count - i));
    }
}

/// The random generator MT19937 (Matsumoto and Nishimura 1998), seeded with one number.
struct Twister {
    state: [u32; 624],
    at: usize,
}

impl Twister {
    fn new(seed: u32) -> Self {
        let mut state = [seed; 624];
        for i in 1..624 {
            let before: u32 = state[i - 1];
            state[i] = (before ^ (before >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        Self { state, at: 624 }
    }

    /// Returns a 31-bit number below `bound`, by rejection.
    fn below_mask(&mut self, bound: u32) -> u32 {
        loop {
            let number = self.next() & 0x7fff_ffff;
            if number < bound {
                return number;
            }
        }
    }

    fn next(&mut self) -> u32 {
        if self.at == 624 {
            for i in 0..624 {
                let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % 624] & 0x7fff_ffff);
                let twist = if y & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + 397) % 624] ^ (y >> 1) ^ twist;
            }
            self.at = 0;
        }
        let mut y = self.state[self.at];
        self.at += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::{Penalty, Schedule};
    use crate::{Features, Labels};
    use std::num::NonZeroUsize;

    #[test]
    fn seeds_and_sample_orders_equal_sklearn() {
        assert_eq!(
            sklearn_class_seeds(7, 10),
            [
                1423224553, 1713526587, 1352668529, 786267145, 1603674233, 514800592, 225322976, 359474904,
                1509078959, 213068688
            ]
        );
        let mut order: Vec<usize> = (0..8).collect();
        shuffle(&mut order, 303761048);
        assert_eq!(order, [4, 3, 1, 5, 2, 6, 7, 0]);
        shuffle(&mut order, 303761048);
        assert_eq!(order, [2, 5, 3, 6, 1, 7, 0, 4]);
    }

    /// A problem small enough to follow by hand, with the result of `SGDClassifier`.
    #[test]
    fn tiny_problem_equals_sklearn() {
        #[rustfmt::skip]
        let x = vec![
            1., 0., 2., -1., 0., 1., -1., 1., 2., 1., 0., 0., -1., 1., 1., 2.,
            0., -2., 1., 1., 1., 1., 1., 1., -2., 0., 1., 0., 1., -1., 0., 2.,
        ];
        let y = [1, -1, 1, -1, 1, 1, -1, -1].map(|y| y > 0).to_vec();
        let data = Dataset::new(Features::new(4, x).unwrap(), Labels::attributes(1, y).unwrap()).unwrap();
        let cases: [(f64, usize, [f64; 4], f64); 5] = [
            (
                0.5,
                1,
                [1.3968366391351412, -1.8227135223925306, 1.2017643553253126, -2.26204577530312],
                0.5138162525653958,
            ),
            (
                0.5,
                2,
                [2.85018506876485, -1.1409314327870064, 1.6762263168041864, -1.6294368768003835],
                0.5469244367144072,
            ),
            (
                0.5,
                5,
                [2.5648832581305725, -1.4047332654814606, 1.8743216656798247, -1.9263696723624286],
                -0.06091215934263844,
            ),
            (
                0.0,
                5,
                [1.6509340871862324, -0.8254670435931166, 1.2382005653896742, -1.6509340871862328],
                0.6439800293552866,
            ),
            (
                1.0,
                5,
                [2.609828830226612, -0.660424014244702, 1.8607796436844786, -2.2711791397018604],
                0.09106511288723473,
            ),
        ];
        let start = Weights::zeros(4, 1).unwrap();
        for (ratio, epochs, w, b) in cases {
            let params = SgdParams {
                loss: Loss::Hinge,
                penalty: Penalty::elastic_net(0.05, ratio).unwrap(),
                schedule: Schedule::Optimal,
                epochs,
                intercept: true,
                threads: NonZeroUsize::MIN,
            };
            let found = params.check().unwrap().fit_like_sklearn(&start, &data, &[303761048]).unwrap();
            for (found, expected) in found.flat().iter().zip(w) {
                assert!((found - expected).abs() < 1e-12, "{ratio} {epochs}: {found} {expected}");
            }
            assert!((found.intercepts()[0] - b).abs() < 1e-12);
        }
    }
}
