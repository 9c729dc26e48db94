//! Times fast-paillier's public operations and prints one JSON object.
//!
//! Usage: `peer-fast-paillier BITS BUDGET_MS`, where BITS is the size of the modulus
//! (2048 or 3072) and BUDGET_MS the time to spend on each operation.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use fast_paillier::backend::Integer;
use fast_paillier::{Ciphertext, DecryptionKey};
use rand_core::{OsRng, RngCore};

/// Shared with the other peers. See the remark in the file.
const TEST_PRIMES: &str = include_str!("../../test-primes.txt");

/// The least number of samples, even if the budget is spent.
const MIN_SAMPLES: u32 = 3;

/// Additions per sample. A single one is too short for the clock.
const ADDITIONS: u32 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let (bits, budget) = arguments()?;
    let key = key_from_test_primes(bits)?;
    let public = key.encryption_key();

    let values = [random_value(), random_value()];
    let encrypt = |value: &Integer| -> Result<Ciphertext, fast_paillier::Error> {
        // With the public key only, because users do not know the primes.
        Ok(public.encrypt_with_random(&mut OsRng, value)?.0)
    };
    let left = encrypt(&values[0])?;
    let right = encrypt(&values[1])?;
    if key.decrypt(&public.oadd(&left, &right)?)? != &values[0] + &values[1] {
        return Err("the decrypted sum is wrong".into());
    }

    let encrypt_us = best_us(budget, 1, || encrypt(&values[0]).map(discard))?;
    let add_us = best_us(budget, ADDITIONS, || {
        (0..ADDITIONS).try_for_each(|_| public.oadd(&left, &right).map(discard))
    })?;
    let decrypt_us = best_us(budget, 1, || key.decrypt(&left).map(discard))?;

    println!(
        "{{\"bits\":{bits},\"encrypt_us\":{encrypt_us:.3},\"add_us\":{add_us:.3},\
         \"decrypt_us\":{decrypt_us:.3},\"ciphertext_bytes\":{}}}",
        public.nn().to_bytes_msf().len()
    );
    Ok(())
}

fn arguments() -> Result<(u32, Duration), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bits, budget_ms] = arguments.as_slice() else {
        return Err("usage: peer-fast-paillier BITS BUDGET_MS".into());
    };
    Ok((bits.parse()?, Duration::from_millis(budget_ms.parse()?)))
}

/// Uses fixed primes, because the search for safe primes takes minutes in num-bigint.
fn key_from_test_primes(bits: u32) -> Result<DecryptionKey, Box<dyn Error>> {
    let wanted = bits.to_string();
    let primes: Vec<Integer> = TEST_PRIMES
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .filter(|(size, _)| *size == wanted)
        .filter_map(|(_, hex)| Integer::from_str_radix(hex, 16))
        .collect();
    match <[Integer; 2]>::try_from(primes) {
        Ok([p, q]) => Ok(DecryptionKey::from_primes(p, q)?),
        Err(_) => Err(format!("no test primes for {bits} bits").into()),
    }
}

/// Returns a 32-bit value, as every peer encrypts.
fn random_value() -> Integer {
    Integer::from_bytes_msf(&OsRng.next_u32().to_be_bytes())
}

/// Drops a result without letting the compiler remove the work.
fn discard(result: Integer) {
    drop(black_box(result));
}

/// Returns the shortest sample within the budget, because interruptions only lengthen a sample.
fn best_us<E>(
    budget: Duration,
    operations: u32,
    mut sample: impl FnMut() -> Result<(), E>,
) -> Result<f64, E> {
    let start = Instant::now();
    let mut best = Duration::MAX;
    let mut samples = 0;
    while samples < MIN_SAMPLES || start.elapsed() < budget {
        let before = Instant::now();
        sample()?;
        best = best.min(before.elapsed());
        samples += 1;
    }
    Ok(best.as_secs_f64() * 1e6 / f64::from(operations))
}
