//! Tests whether times depend on secrets. Two classes of input, fixed and random, are measured in random
//! order, and Welch's t is printed. This is the method of Reparaz, Balasch and Verbauwhede, "Dude, is my code
//! constant time?".
//!
//! A shared machine delays most samples, so only the fastest three tenths of each class are compared, and the median
//! of three measurements counts. Two controls show what the test notices: a function whose time depends on its input
//! by design, and decryptions that are delayed by a known fraction in one class. The smallest delay that is noticed
//! is printed; smaller leaks would not be seen.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use dphe_paillier::{
    Ciphertext, DecryptionKey, NoiseMode, Plaintext, SlotLayout, Threads, WireCiphertexts, hazmat,
};
use rand_core::{CryptoRng, Infallible, Rng, SeedableRng, TryCryptoRng, TryRng};

/// Above this value of |t|, times differ. The usual threshold on a quiet machine is 4.5.
const THRESHOLD: f64 = 10.0;
const SAMPLES: usize = 2000;
/// Delays of one class, as fractions of the time of a decryption. The largest one must be noticed.
const LEAKS: [f64; 6] = [0.5, 0.2, 0.1, 0.05, 0.02, 0.01];
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
    let moments = |class: bool| {
        let mut times: Vec<f64> = samples.iter().filter(|s| s.0 == class).map(|s| s.1).collect();
        times.truncate(times.len() * 3 / 10);
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

/// Reads ciphertexts as the key generator does.
fn wire(ciphertexts: &[Ciphertext]) -> WireCiphertexts {
    let key = key().encryption_key();
    key.read_wire(&key.encode(ciphertexts, Threads::ONE).unwrap(), Threads::ONE).unwrap()
}

/// A generator for the fresh noise of one decryption. Both classes draw as much.
fn noise(rng: &mut impl CryptoRng) -> chacha20::ChaCha20Rng {
    chacha20::ChaCha20Rng::seed_from_u64(rng.next_u64())
}

/// Measures a decryption of batches: always the same one of zeros, or one of fresh encryptions of random numbers of
/// this many bits.
fn decryption(
    name: &str,
    count: usize,
    bits: u32,
    decrypt: impl Fn(&WireCiphertexts, &mut chacha20::ChaCha20Rng) + Copy + 'static,
) -> f64 {
    let mut rng = chacha20::ChaCha20Rng::seed_from_u64(3);
    let fixed = wire(&encryptions(&vec![0; count], &mut rng));
    let random: Vec<WireCiphertexts> = (0..64)
        .map(|_| {
            let values: Vec<i128> =
                (0..count).map(|_| i128::from(rng.next_u64() as i64 >> (64 - bits))).collect();
            wire(&encryptions(&values, &mut rng))
        })
        .collect();
    median_of_three(name, || {
        t_statistic(|class| {
            // Both are copied in either class.
            let (fixed, random) = (fixed.clone(), random[rng.next_u32() as usize % random.len()].clone());
            let (chosen, other) = if class { (fixed, random) } else { (random, fixed) };
            let mut noise = noise(&mut rng);
            Box::new(move || {
                decrypt(&chosen, &mut noise);
                std::mem::forget(other);
            })
        })
    })
}

/// Returns the smallest fraction of a decryption by which one class can be delayed so that the test notices it.
fn smallest_leak() -> Option<f64> {
    let mut rng = chacha20::ChaCha20Rng::seed_from_u64(4);
    let batch = wire(&encryptions(&[0], &mut rng));
    let decrypt = |rng: &mut chacha20::ChaCha20Rng| {
        drop(black_box(key().decrypt_wire(&batch, rng, Threads::ONE)));
    };
    let mut times: Vec<Duration> = (0..WARM_UP)
        .map(|_| {
            let mut noise = noise(&mut rng);
            let start = Instant::now();
            decrypt(&mut noise);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let typical = times[times.len() / 2];
    let mut smallest = None;
    for leak in LEAKS {
        let name = format!("control (a delay of {} % in one class)", leak * 100.0);
        let t = median_of_three(&name, || {
            t_statistic(|class| {
                let (mut noise, batch) = (noise(&mut rng), batch.clone());
                let delay = typical.mul_f64(if class { leak } else { 0.0 });
                Box::new(move || {
                    drop(black_box(key().decrypt_wire(&batch, &mut noise, Threads::ONE)));
                    let start = Instant::now();
                    while start.elapsed() < delay {
                        std::hint::spin_loop();
                    }
                })
            })
        });
        if t < THRESHOLD {
            break;
        }
        smallest = Some(leak);
    }
    smallest
}

/// One test for all measurements, so that they do not disturb each other.
#[test]
fn times_do_not_depend_on_secrets() {
    let mut rng = chacha20::ChaCha20Rng::seed_from_u64(3);
    let (secret, public) = (key(), key().encryption_key());
    public.prepare();

    // what the key generator runs: blocks and packed numbers, and single small numbers
    let packed = |batch: &WireCiphertexts, rng: &mut chacha20::ChaCha20Rng| {
        drop(black_box(key().decrypt_wire(batch, rng, Threads::ONE)));
    };
    // one more than the lanes of any back end, so that the last group is not full
    let one = decryption("decrypt_wire, one ciphertext", 1, 64, packed);
    let many = decryption("decrypt_wire, nine ciphertexts", 9, 64, packed);
    let small = |batch: &WireCiphertexts, rng: &mut chacha20::ChaCha20Rng| {
        static LAYOUT: std::sync::LazyLock<SlotLayout> =
            std::sync::LazyLock::new(|| SlotLayout::new(key().encryption_key(), 17, 8).unwrap());
        drop(black_box(key().decrypt_small(batch, &LAYOUT, rng, Threads::ONE)));
    };
    let small_one = decryption("decrypt_small, one number", 1, 16, small);
    // more than one pack
    let small_many = decryption("decrypt_small, 40 numbers", 40, 16, small);

    // without fresh noise, the secret exponents are applied to the same number again and again
    let fixed = encryptions(&[0], &mut rng);
    let random: Vec<i128> = (0..WARM_UP + SAMPLES).map(|_| i128::from(rng.next_u64())).collect();
    let random = encryptions(&random, &mut rng);
    let unblinded = median_of_three("decrypt_unblinded", || {
        let mut next = random.iter();
        t_statistic(|class| {
            // Both are drawn and copied in either class.
            let (fixed, random) = (fixed[0].clone(), next.next().unwrap().clone());
            let (chosen, other) = if class { (fixed, random) } else { (random, fixed) };
            Box::new(move || {
                drop(black_box(secret.decrypt_unblinded(std::slice::from_ref(&chosen), Threads::ONE)));
                std::mem::forget(other);
            })
        })
    });

    // blinding: always the exponent zero, or random exponents
    let blinding = median_of_three("blinding", || {
        t_statistic(|class| {
            let random: Vec<u64> = (0..64).map(|_| rng.next_u64()).collect();
            let fixed: Vec<u64> = random.iter().map(|word| word & black_box(0)).collect();
            let (words, other) = if class { (fixed, random) } else { (random, fixed) };
            let mut replay = Replay(words.into_iter());
            Box::new(move || {
                drop(black_box(public.blindings(1, &mut replay, Threads::ONE)));
                // Not freed, so that the allocator treats both classes alike.
                std::mem::forget(other);
            })
        })
    });

    // positive control: the time of a multiplication by a scalar depends on the scalar
    let x = encryptions(&[5], &mut rng);
    let control = t_statistic(|class| {
        let (x, scalar) = (x.clone(), if class { 1 } else { i64::MAX });
        Box::new(move || drop(black_box(public.mul_small_vartime(&x, &[scalar], Threads::ONE))))
    });
    println!("control (a deliberate leak): |t| = {control:.2}");
    let leak = smallest_leak();
    let percent =
        leak.map_or_else(|| "no leak".into(), |leak| format!("leaks of {} % and more", leak * 100.0));
    println!("the test notices {percent}");

    assert!(control > THRESHOLD, "the test notices a leak: {control}");
    assert!(leak.is_some(), "the test does not notice a delay of {} %", LEAKS[0] * 100.0);
    for (name, t) in [
        ("decrypt_wire, one", one),
        ("decrypt_wire, many", many),
        ("decrypt_small, one", small_one),
        ("decrypt_small, many", small_many),
        ("decrypt_unblinded", unblinded),
        ("blinding", blinding),
    ] {
        assert!(t < THRESHOLD, "{name}: |t| = {t}");
    }
}
