//! Checks the methods against their definitions on digits.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/digits.rs"]
mod digits;

use std::num::NonZeroUsize;

use chacha20::ChaCha20Rng;
use dphe_federate::Stopwatch;
use dphe_learn::{Dataset, Seed, Weights, all_cores};
use dphe_paillier::{DecryptionKey, NoiseMode, hazmat};
use dphe_reproduce::methods::baseline::{self, PooledSteps};
use dphe_reproduce::methods::dphe::{Dphe, DpheVariant, Keys, Recipe};
use dphe_reproduce::methods::logistic::Logistic;
use dphe_reproduce::methods::noise::Noise;
use dphe_reproduce::methods::noisy::{NoisyScenario, Norm, Privacy, STRENGTHS, best};
use dphe_reproduce::methods::prr10::protocol::{FewestSamples, Prr10FixedPoint, Prr10User, aggregate, open};
use dphe_reproduce::methods::prr10::{self, Prr10};
use dphe_reproduce::methods::ra12::Ra12;
use dphe_reproduce::methods::{accuracy, clusters};
use rand_core::SeedableRng;

const THREADS: NonZeroUsize = NonZeroUsize::MIN;

/// Computes the gradient of the logistic objective for one class directly.
fn slope(weights: &Weights, data: &Dataset, class: usize, strength: f64) -> f64 {
    let w: Vec<f64> = weights.class(class).collect();
    let mut slope: Vec<f64> = w.iter().map(|w| strength * w).chain([0.0]).collect();
    let intercept = weights.intercepts()[class];
    for (sample, row) in data.features().rows().enumerate() {
        let y = if data.labels().is_positive(sample, class) { 1.0 } else { -1.0 };
        let score = intercept + row.iter().zip(&w).map(|(&x, w)| f64::from(x) * w).sum::<f64>();
        let factor = -y / (1.0 + (y * score).exp()) / data.len() as f64;
        slope.iter_mut().zip(row.iter().chain(&[1.0])).for_each(|(s, &x)| *s += factor * f64::from(x));
    }
    slope.iter().map(|s| s * s).sum::<f64>().sqrt() / w.iter().map(|w| w * w).sum::<f64>().sqrt().max(1.0)
}

#[test]
fn logistic_minimisers_have_zero_gradient_with_few_and_many_samples() {
    let few = digits::scenario(12, 0);
    let many = digits::scenario(100, 0);
    for (scenario, fewer_samples) in [(&few, true), (&many, false)] {
        let data = scenario.users.first().unwrap();
        assert_eq!(data.len() < data.features().width(), fewer_samples);
        let ready = Logistic::new(data, THREADS).unwrap();
        for strength in STRENGTHS {
            let solved = ready.solve(strength).unwrap();
            assert!(
                solved.slope <= 1e-6 && solved.iterations < 250,
                "{} {}",
                solved.slope,
                solved.iterations
            );
            for class in 0..10 {
                let slope = slope(&solved.weights, data, class, strength);
                assert!(slope < 2e-6, "strength {strength}, class {class}: {slope}");
            }
        }
    }
}

#[test]
fn prr10_without_noise_is_the_mean_of_the_minimisers() {
    let scenario = NoisyScenario::new(&digits::scenario(30, 1), Norm::None).unwrap();
    // every user also has the public samples
    assert!(scenario.users.iter().all(|user| user.len() > scenario.initial.len()));
    let mean = Prr10::new(&scenario, THREADS).unwrap().mean(0.1).unwrap();
    let each: Vec<Weights> = scenario
        .users
        .iter()
        .map(|user| Logistic::new(user, THREADS).unwrap().solve(0.1).unwrap().weights)
        .collect();
    for (i, w) in mean.flat().iter().enumerate() {
        let expected = each.iter().map(|weights| weights.flat()[i]).sum::<f64>() / 5.0;
        assert!((w - expected).abs() < 1e-12);
    }
}

#[test]
fn prr10_noise_has_the_scale_of_the_smallest_user() {
    let scenario = NoisyScenario::new(&digits::scenario(30, 1), Norm::Unit).unwrap();
    assert_eq!(scenario.fewest(), 60 + 48);
    let length = scenario.users[0].features().rows().map(|row| row.iter().map(|v| v * v).sum::<f32>());
    assert!(length.into_iter().all(|square| (square - 1.0).abs() < 1e-5));
    let method = Prr10::new(&scenario, THREADS).unwrap();
    let mean = method.mean(1.0).unwrap();
    let scale = prr10::noise_scale(scenario.fewest(), 0.2, 1.0);
    assert!((scale - 2.0 / (108.0 * 0.2)).abs() < 1e-15);
    let mut magnitudes = Vec::new();
    for seed in 0..20 {
        let released = method.release(&mean, 1.0, Privacy::PAPER, &Seed::new(seed)).unwrap();
        magnitudes.extend(released.flat().iter().zip(mean.flat()).map(|(a, b)| (a - b).abs()));
    }
    let count = magnitudes.len() as f64;
    let found = magnitudes.iter().sum::<f64>() / count;
    assert!((found - scale).abs() < 3.0 * scale / count.sqrt(), "{found} {scale}");
    assert!((prr10::budget(Privacy::PAPER, 101).total_epsilon() - 20.2).abs() < 1e-9);
}

#[test]
fn prr10_protocol_releases_the_mean_with_the_smallest_users_noise() {
    let bits = hazmat::insecure_key_bits(512).unwrap();
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    let threads = dphe_paillier::Threads::ONE;
    let secret = DecryptionKey::generate(bits, NoiseMode::Fast, &mut rng, threads).unwrap();
    let key = secret.encryption_key();
    let samples = [120, 80, 95, 80, 200];
    let point = Prr10FixedPoint { bits: 24 };
    let mut owners = std::collections::BTreeSet::new();
    for round in 0..8 {
        let seed = Seed::new(round);
        let users: Vec<Prr10User> = samples
            .iter()
            .enumerate()
            .map(|(user, &samples)| {
                let mut noise = Noise::new(&seed.derive("user", user as u64));
                let weights: Vec<f64> = (0..9).map(|_| noise.laplace(0.3)).collect();
                let scale = prr10::noise_scale(samples, 0.2, 0.1);
                let noise: Vec<f64> = (0..9).map(|_| noise.laplace(scale)).collect();
                Prr10User { weights: point.encode(&weights), noise: point.encode(&noise) }
            })
            .collect();
        let smallest = FewestSamples::find(&samples, &seed).unwrap();
        assert_eq!(samples[smallest.owner()], 80);
        owners.insert(smallest.owner());
        let indicators = smallest.indicators(key, &mut rng, threads).unwrap();
        let contributions: Vec<_> = users
            .iter()
            .zip(&indicators)
            .map(|(user, indicator)| user.contribute(indicator, 5, key, &mut rng, threads).unwrap())
            .collect();
        assert!(contributions.iter().flatten().all(|c| !c.is_trivial()));
        let opened = open(&aggregate(&contributions, key, threads).unwrap(), &secret, threads).unwrap();
        let expected: Vec<i64> = (0..9)
            .map(|i| users.iter().map(|u| u.weights[i]).sum::<i64>() + 5 * users[smallest.owner()].noise[i])
            .collect();
        assert_eq!(opened, expected);
        let mean = point.decode(&opened, 5);
        assert_eq!(mean[0], expected[0] as f64 / f64::from(1 << 24) / 5.0);
    }
    // two users have the fewest samples, and a secret order decides between them
    assert_eq!(owners.into_iter().collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn ra12_without_noise_converges_to_the_optimum() {
    let scenario = NoisyScenario::new(&digits::scenario(30, 2), Norm::None).unwrap();
    let method = Ra12::new(&scenario, THREADS).unwrap();
    let norm = |iterations: usize| {
        let weights = method.run(0.5, iterations, None, &Seed::new(0)).unwrap();
        let slope = method.slope(&weights, 0.5).unwrap();
        slope.iter().map(|s| s * s).sum::<f64>().sqrt()
    };
    let (start, end) = (norm(1), norm(400));
    assert!(end < 1e-5 && start > 0.05, "{start} {end}");
    let quiet = method.run(0.5, 20, None, &Seed::new(0)).unwrap();
    let noisy = method.run(0.5, 20, Some(Privacy::PAPER), &Seed::new(0)).unwrap();
    let held_out = |weights: &Weights| accuracy(weights, &scenario.held_out, THREADS).unwrap();
    assert!(held_out(&quiet) > 85.0 && held_out(&noisy) < held_out(&quiet));
}

#[test]
fn best_takes_the_weakest_of_equal_strengths() {
    assert_eq!(best(&[50.0, 70.0, 70.0]), Some(1));
    assert!(best(&[]).is_none());
}

#[test]
fn encrypted_averages_equal_plain_ones_and_come_close_to_pooled_training() {
    let scenario = digits::scenario(60, 3);
    let seed = Seed::new(3);
    let pooled = baseline::pooled(&scenario, PooledSteps::Stable, &seed, THREADS).unwrap();
    let pooled = accuracy(&pooled, &scenario.held_out, THREADS).unwrap();
    let alone = baseline::alone(&scenario, &seed, THREADS).unwrap();
    assert_eq!(alone.len(), scenario.users.len());
    for weights in alone {
        let alone = accuracy(&weights, &scenario.held_out, THREADS).unwrap();
        assert!(pooled > 90.0 && pooled > alone, "{pooled} {alone}");
    }
    let keys = Keys::default();
    for variant in DpheVariant::ALL {
        let mut recipe = Recipe { rounds: 3, share: 0.4, sparsity: 0.6, ..Recipe::new(variant) };
        if variant.profile() == dphe::Profile::Paper {
            recipe.key_bits = 1024;
        }
        let method = Dphe::new(&scenario, recipe, &seed, all_cores()).unwrap();
        let run = method.encrypted(&keys, &mut Stopwatch::none()).unwrap();
        assert_eq!(run.equal, Some(true), "{variant:?}");
        if variant.profile() != dphe::Profile::Paper {
            let counted = run.reports[0].cost.ciphertexts as f64;
            assert_eq!(method.ciphertexts(&run).unwrap(), counted, "{variant:?}");
        }
        let found = accuracy(&run.weights, &scenario.held_out, THREADS).unwrap();
        assert!(found > pooled - 12.0, "{variant:?}: {found} against {pooled}");
        let sparsity = run.mean(|report| report.update_sparsity);
        assert!((0.5..0.8).contains(&sparsity), "{variant:?}: {sparsity}");
    }
}

#[test]
fn clustering_improves_on_its_start() {
    let scenario = digits::scenario(60, 4);
    let (features, truth) = clusters::private(&scenario).unwrap();
    let ami = |method| {
        let found = clusters::find(&scenario, method, 6, 0.4, &Seed::new(4), THREADS).unwrap();
        clusters::agreement(&found.centroids, &features, &truth, THREADS).unwrap().arithmetic
    };
    let start = ami(clusters::ClusterMethod::Initial);
    for method in [clusters::ClusterMethod::S10, clusters::ClusterMethod::Counted] {
        let found = ami(method);
        assert!(found > start && found > 0.5, "{method:?}: {found}, start {start}");
    }
}
