//! How long encryption takes: one number a ciphertext, or as many as fit.

use chacha20::ChaCha20Rng;
use dphe_federate::Stopwatch;
use dphe_learn::Seed;
use dphe_paillier::{DecryptionKey, EncryptionKey, NoiseMode, Plaintext, SlotLayout, Threads, hazmat};
use rand_core::SeedableRng;

use super::super::shared::Repeated;
use crate::{Cell, Claim, Column, Error, Measured, Measurement, Table, Unit};

/// The paper's key, and those that are used today.
pub(super) const BITS: [u32; 3] = [1024, 2048, 3072];
/// Ciphertexts that are really made, and how often: the shortest time counts, for others may use the machine.
pub(super) const SAMPLE: usize = 4096;
pub(super) const TIMES: usize = 3;
/// Numbers of 15 bits, summed over up to 8 users: what tasks for five users take.
const VALUE_BITS: u32 = 15;
const TERMS: u64 = 8;
/// What the paper printed for a classifier of 2,048 features and 101 classes, in seconds.
const PRINTED: [f64; 3] = [620.0, 186.0, 62.0];
pub(super) const PRINTED_FOR: usize = 2048 * 101;

pub(super) fn name(bits: u32) -> String {
    // how it was measured: other times are other measurements
    format!("time/{bits}/{SAMPLE}x{TIMES}")
}

/// Makes a key and measures encryption in both modes of noise.
pub(super) fn measure(
    bits: u32,
    threads: dphe_learn::Threads,
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

/// Ways to send a classifier, and how many ciphertexts each takes.
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

pub(super) fn table(measured: &Measured, dimension: usize, phe: Option<f64>) -> Table {
    let columns = [
        ("key_bits", "key, bits", Unit::Count),
        ("message", "message", Unit::Text),
        ("ciphertexts", "ciphertexts", Unit::Count),
        ("seconds", "long noise, s", Unit::Seconds),
        ("fast", "short noise, s", Unit::Seconds),
        ("phe", "python-paillier, s", Unit::Seconds),
        ("paper", "paper, s", Unit::Seconds),
    ];
    let mut rows = Vec::new();
    for bits in BITS {
        let of = |key: &str| Repeated::of(measured, &name(bits), key).mean();
        let Some(slots) = of("slots") else { continue };
        for (index, (way, count)) in ways(dimension, slots).into_iter().enumerate() {
            let printed = PRINTED.get(index).filter(|_| bits == 1024 && dimension == PRINTED_FOR).copied();
            // it was measured for this length, and packs nothing
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
    let columns = columns.map(|(key, title, unit)| Column::new(key, title, unit)).to_vec();
    Table { title: "Encryption of one classifier".to_owned(), columns, rows }
}

pub(super) fn claims(measured: &Measured, dimension: usize) -> Vec<Claim> {
    let of = |bits, key: &str| Repeated::of(measured, &name(bits), key).mean();
    let (Some(small), Some(large), Some(slots)) =
        (of(1024, "secure_s"), of(2048, "secure_s"), of(2048, "slots"))
    else {
        return Vec::new();
    };
    let ways = ways(dimension, slots);
    let (packed, single) = (ways[3].1 * large, ways[2].1 * small);
    let mut claims = vec![Claim {
        text: "Packed whole at 2048 bits, a classifier takes less time than its sparsest form at 1024, one by one"
            .to_owned(),
        holds: packed < single,
        seen: format!("{packed:.2} s against {single:.2} s"),
    }];
    if dimension == PRINTED_FOR
        && let Some(short) = of(1024, "fast_s")
    {
        let times = |each: f64| PRINTED[0] / (ways[0].1 * each);
        claims.push(Claim {
            text: "One by one, short noise: encrypted 200 times faster than printed".to_owned(),
            holds: times(short) >= 200.0,
            seen: format!("{:.0} times; with long noise {:.0} times", times(short), times(small)),
        });
    }
    claims
}
