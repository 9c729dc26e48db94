//! Tests whether times depend on secrets. Two classes of input, fixed and random, are measured in random
//! order, and Welch's t is printed. This is the method of Reparaz, Balasch and Verbauwhede, "Dude, is my code
//! constant time?".
//!
//! A shared machine produces outliers, so the slowest samples are cropped, and the median of three
//! measurements counts. A deliberately leaky function shows that the test notices a leak.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Instant;

use dphe_paillier::{Ciphertext, DecryptionKey, NoiseMode, Plaintext, Threads, hazmat};
use rand_core::{CryptoRng, Infallible, Rng, SeedableRng, TryCryptoRng, TryRng};

/// Above this value of |t|, times differ. The usual threshold on a quiet machine is 4.5.
const THRESHOLD: f64 = 10.0;
const SAMPLES: usize = 3000;
/// Runs before the first sample.
const WARM_UP: usize = 200;

/// Measures `work(class)` in random order and returns |t|.
fn t_statistic(mut work: impl FnMut(bool) -> Box<dyn FnOnce()>) -> f64 {
    let mut rng = chacha20::ChaCha20Rng::seed_from_u64(7);
    // The first runs fill caches and branch predictors.
    let mut samples: Vec<(bool, f64)> = (0..WARM_UP + SAMPLES)
        .map(|_| {
            let class = rng.next_u32().is_multiple_of(2);
            // Prepared before the clock starts, with the same work for both classes.
            let run = work(class);
            let start = Instant::now();
            run();
            (class, start.elapsed().as_secs_f64())
        })
        .skip(WARM_UP)
        .collect();
    samples.sort_by(|a, b| a.1.total_cmp(&b.1));
    samples.truncate(SAMPLES * 8 / 10);
    let moments = |class: bool| {
        let times: Vec<f64> = samples.iter().filter(|s| s.0 == class).map(|s| s.1).collect();
        let count = times.len() as f64;
        let mean = times.iter().sum::<f64>() / count;
        let variance = times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    };
    let ((m0, v0), (m1, v1)) = (moments(false), moments(true));
    ((m0 - m1) / (v0 + v1).sqrt()).abs()
}

/// Returns the median of three measurements, and prints all of them.
fn median_of_three(name: &str, mut measure: impl FnMut() -> f64) -> f64 {
    let mut all = [measure(), measure(), measure()];
    println!("{name}: |t| = {:.2}, {:.2}, {:.2} over {SAMPLES} samples each", all[0], all[1], all[2]);
    all.sort_by(f64::total_cmp);
    all[1]
}

/// A generator that returns the given words, so that both classes draw in the same way.
struct Replay(std::vec::IntoIter<u64>);

impl TryRng for Replay {
    type Error = Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.next_u64() as u32)
    }
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.next().unwrap_or(0))
    }
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        bytes.fill(0);
        Ok(())
    }
}

impl TryCryptoRng for Replay {}

fn key() -> &'static DecryptionKey {
    static KEY: std::sync::LazyLock<DecryptionKey> = std::sync::LazyLock::new(|| {
        let bits = hazmat::insecure_key_bits(512).unwrap();
        let mut rng = chacha20::ChaCha20Rng::seed_from_u64(1);
        DecryptionKey::generate(bits, NoiseMode::Secure, &mut rng, Threads::new(2)).unwrap()
    });
    &KEY
}

fn encryptions(values: &[i128], rng: &mut impl CryptoRng) -> Vec<Ciphertext> {
    let key = key().encryption_key();
    let ms: Vec<_> = values.iter().map(|&m| Plaintext::new(key, m).unwrap()).collect();
    key.encrypt_all(&ms, rng, Threads::ONE).unwrap()
}

/// One test for all measurements, so that they do not disturb each other.
#[test]
fn times_do_not_depend_on_secrets() {
    let mut rng = chacha20::ChaCha20Rng::seed_from_u64(3);
    let secret = key();
    let public = secret.encryption_key();
    public.prepare();

    // decryption: always the same ciphertext of zero, or fresh ciphertexts of random numbers
    let fixed = encryptions(&[0], &mut rng);
    let random: Vec<i128> = (0..WARM_UP + SAMPLES).map(|_| i128::from(rng.next_u64())).collect();
    let random = encryptions(&random, &mut rng);
    let decryption = median_of_three("decryption", || {
        let mut next = random.iter();
        t_statistic(|class| {
            // Both are drawn and copied in either class.
            let (fixed, random) = (fixed[0].clone(), next.next().unwrap().clone());
            let (chosen, other) = if class { (fixed, random) } else { (random, fixed) };
            Box::new(move || {
                drop(std::hint::black_box(
                    secret.decrypt_unblinded(std::slice::from_ref(&chosen), Threads::ONE),
                ));
                std::mem::forget(other);
            })
        })
    });

    // blinding: always the exponent zero, or random exponents
    let blinding = median_of_three("blinding", || {
        t_statistic(|class| {
            let random: Vec<u64> = (0..64).map(|_| rng.next_u64()).collect();
            let fixed: Vec<u64> = random.iter().map(|word| word & std::hint::black_box(0)).collect();
            let (words, other) = if class { (fixed, random) } else { (random, fixed) };
            let mut replay = Replay(words.into_iter());
            Box::new(move || {
                drop(std::hint::black_box(public.blindings(1, &mut replay, Threads::ONE)));
                // Not freed, so that the allocator treats both classes alike.
                std::mem::forget(other);
            })
        })
    });

    // positive control: the time of a multiplication by a scalar depends on the scalar
    let x = encryptions(&[5], &mut rng);
    let control = t_statistic(|class| {
        let (x, scalar) = (x.clone(), if class { 1 } else { i64::MAX });
        Box::new(move || drop(std::hint::black_box(public.mul_small_vartime(&x, &[scalar], Threads::ONE))))
    });
    println!("control (a deliberate leak): |t| = {control:.2}");

    assert!(control > THRESHOLD, "the test notices a leak: {control}");
    assert!(decryption < THRESHOLD, "decryption: |t| = {decryption}");
    assert!(blinding < THRESHOLD, "blinding: |t| = {blinding}");
}
