//! The time of encryption, with one number per ciphertext and packed.

use std::num::NonZeroUsize;

use chacha20::ChaCha20Rng;
use dphe_federate::Stopwatch;
use dphe_learn::Seed;
use dphe_paillier::{DecryptionKey, EncryptionKey, NoiseMode, Plaintext, SlotLayout, Threads, hazmat};
use rand_core::SeedableRng;

use super::super::results::Results;
use crate::{Cell, Claim, Error, Measurement, Table, ValueUnit};

/// The paper's key length, and the lengths in use today.
pub(super) const BITS: [u32; 3] = [1024, 2048, 3072];
/// The number of ciphertexts per measurement, and the number of measurements. The shortest time counts, because other
/// programs may use the machine.
pub(super) const SAMPLE: usize = 4096;
pub(super) const TIMES: usize = 3;
/// The slots of a task for five users: numbers of 15 bits, summed over up to 8 users.
const VALUE_BITS: u32 = 15;
const TERMS: u64 = 8;
/// The paper's times in seconds, for a classifier of 2,048 features and 101 classes.
const PRINTED: [f64; 3] = [620.0, 186.0, 62.0];
pub(super) const PRINTED_FOR: usize = 2048 * 101;

pub(in super::super) fn name(bits: u32) -> String {
    // the name says how the time is measured, so that stored times of another kind are not reused
    format!("time/{bits}/{SAMPLE}x{TIMES}")
}

/// Generates a key and measures encryption in both modes of noise.
pub(in super::super) fn measure(
    bits: u32,
    threads: NonZeroUsize,
    stopwatch: &mut Stopwatch,
) -> Result<Measurement, Error> {
    let threads = Threads::new(threads.get());
    let seed = Seed::new(0).derive("key of an experiment", bits.into());
    let mut rng = ChaCha20Rng::from_seed(seed.to_bytes());
    let key_bits = hazmat::insecure_key_bits(bits)?;
    let secret = DecryptionKey::generate(key_bits, NoiseMode::Secure, &mut rng, threads)?;
    let modulus = secret.encryption_key().modulus_be_bytes();
    let mut measurement = Measurement::new();
    for mode in [NoiseMode::Secure, NoiseMode::Fast] {
        let key: EncryptionKey = hazmat::encryption_key(&modulus, mode)?;
        key.prepare();
        let numbers = (0..SAMPLE as i128).map(|i| Plaintext::new(&key, 31 * i - 30_000));
        let numbers = numbers.collect::<Result<Vec<_>, _>>()?;
        if stopwatch.runs() {
            let mut shortest = f64::INFINITY;
            for _ in 0..TIMES {
                let mut seconds = 0.0;
                stopwatch.time(&mut seconds, || key.encrypt_all(&numbers, &mut rng, threads))?;
                shortest = shortest.min(seconds);
            }
            measurement.insert(format!("{}_s", mode.name()), shortest / SAMPLE as f64);
        }
        let slots = SlotLayout::new(&key, VALUE_BITS, TERMS)?.slots();
        measurement.insert("slots".to_owned(), slots as f64);
    }
    Ok(measurement)
}

/// Returns the ways to send a classifier, with their numbers of ciphertexts.
fn ways(dimension: usize, slots: f64) -> Vec<(&'static str, f64)> {
    let weights = dimension as f64;
    let shard = (0.1 * weights).ceil();
    vec![
        ("one by one, dense: ten shards", 10.0 * shard),
        ("one by one, 79.1 % zeros: three shards", 3.0 * shard),
        ("one by one, 95.6 % zeros: one shard", shard),
        ("packed, all", (weights / slots).ceil()),
        ("packed blocks, a tenth", (0.1 * weights / slots).ceil()),
    ]
}

pub(super) fn table(results: &Results<'_>, dimension: usize, phe: Option<f64>) -> Table {
    let columns = [
        ("key_bits", "key, bits", ValueUnit::Count),
        ("message", "message", ValueUnit::Text),
        ("ciphertexts", "ciphertexts", ValueUnit::Count),
        ("seconds", "long noise, s", ValueUnit::Seconds),
        ("fast", "short noise, s", ValueUnit::Seconds),
        ("phe", "python-paillier, s", ValueUnit::Seconds),
        ("paper", "paper, s", ValueUnit::Seconds),
    ];
    let mut rows = Vec::new();
    for bits in BITS {
        let of = |key: &str| results.mean(&name(bits), key);
        let Some(slots) = of("slots") else { continue };
        for (index, (way, count)) in ways(dimension, slots).into_iter().enumerate() {
            let printed = PRINTED.get(index).filter(|_| bits == 1024 && dimension == PRINTED_FOR).copied();
            // python-paillier was measured with 1024 bits and does not pack
            let other = phe.filter(|_| bits == 1024 && index < PRINTED.len());
            let seconds = |each: Option<f64>| each.map(|each| each * count);
            rows.push(vec![
                Cell::from(f64::from(bits)),
                way.into(),
                count.into(),
                seconds(of("secure_s")).into(),
                seconds(of("fast_s")).into(),
                seconds(other).into(),
                printed.into(),
            ]);
        }
    }
    Table::new("Encryption of one classifier", &columns, rows)
}

pub(super) fn claims(results: &Results<'_>, dimension: usize) -> Vec<Claim> {
    let of = |bits, key: &str| results.mean(&name(bits), key);
    let (Some(small), Some(large), Some(slots)) =
        (of(1024, "secure_s"), of(2048, "secure_s"), of(2048, "slots"))
    else {
        return Vec::new();
    };
    let ways = ways(dimension, slots);
    let (packed, single) = (ways[3].1 * large, ways[2].1 * small);
    let text =
        "Packed whole at 2048 bits, a classifier takes less time than its sparsest form at 1024, one by one";
    let mut claims = vec![Claim::new(text, packed < single, format!("{packed:.2} s against {single:.2} s"))];
    if dimension == PRINTED_FOR
        && let Some(short) = of(1024, "fast_s")
    {
        let times = |each: f64| PRINTED[0] / (ways[0].1 * each);
        let text = "One by one, short noise: encrypted 200 times faster than printed";
        let seen = format!("{:.0} times; with long noise {:.0} times", times(short), times(small));
        claims.push(Claim::new(text, times(short) >= 200.0, seen));
    }
    claims
}
