//! Times of calls on a batch, for comparisons with the Python package: microseconds of processor time per value.
//!
//!     batch BITS VALUES SECONDS
//!
//! Prints the time of an encryption and that of an addition.

use dphe_paillier::{DecryptionKey, KeyBits, NoiseMode, Plaintext, Threads, simple};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bits, values, seconds] = &arguments[..] else {
        return Err("usage: batch BITS VALUES SECONDS".into());
    };
    let (count, seconds): (i128, f64) = (values.parse()?, seconds.parse()?);
    let mut rng = simple::os_rng()?;
    let bits = KeyBits::new(bits.parse()?)?;
    let secret = DecryptionKey::generate(bits, NoiseMode::Secure, &mut rng, Threads::ONE)?;
    let key = secret.encryption_key();
    let plaintexts = || (0..count).map(|m| Plaintext::new(key, m)).collect::<Result<Vec<_>, _>>();
    let ciphertexts = key.encrypt_all(&plaintexts()?, &mut rng, Threads::ONE)?;
    // As in Python, a call begins with integers, and has a random generator of its own.
    let encrypt =
        time(seconds, || Ok(key.encrypt_all(&plaintexts()?, &mut simple::os_rng()?, Threads::ONE)?))?;
    let add = time(seconds, || Ok(key.add(&ciphertexts, &ciphertexts, Threads::ONE)?))?;
    println!("{:.4} {:.4}", encrypt / count as f64, add / count as f64);
    Ok(())
}

/// Returns the microseconds of a call, on average over that many seconds.
fn time<T>(
    seconds: f64,
    mut call: impl FnMut() -> Result<T, Box<dyn std::error::Error>>,
) -> Result<f64, Box<dyn std::error::Error>> {
    call()?;
    let (start, mut calls) = (processor_seconds()?, 0);
    loop {
        for _ in 0..4 {
            call()?;
        }
        calls += 4;
        let elapsed = processor_seconds()? - start;
        if elapsed >= seconds {
            return Ok(1e6 * elapsed / f64::from(calls));
        }
    }
}

/// Returns how long this thread has run, as Linux counts.
fn processor_seconds() -> Result<f64, Box<dyn std::error::Error>> {
    let counters = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: f64 = counters.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanoseconds / 1e9)
}
