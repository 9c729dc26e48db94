//! `dphe bench paillier`: times each operation.

use std::time::{Duration, Instant};

use clap::Args;
use dphe_paillier::{
    BlindingPool, Ciphertext, DecryptionKey, EncryptionKey, KeyBits, NoiseMode, Plaintext, SlotLayout,
    Threads,
};
use rand_core::Rng;
use serde::Serialize;

use super::{Common, SLOT_BITS, readable};
use crate::args::TableFormat;
use crate::cli::key::generate;
use crate::cli::{CliError, os_rng};
use crate::timing::best;

/// Values per batch: complete groups for every back end, and enough to share the noise table.
const BATCH: usize = 256;
/// Decryptions per batch, fewer because each takes longer.
const DECRYPT_BATCH: usize = 64;
/// The time budget of one measurement.
const BUDGET: Duration = Duration::from_millis(400);
/// The length of scalars that ciphertexts are multiplied by, such as sample counts.
const SCALAR_BITS: u32 = 16;
#[derive(Args)]
pub(crate) struct Paillier {
    #[command(flatten)]
    common: Common,
    /// The number of threads [default: one and all cores in a table, one in JSON]
    #[arg(long)]
    threads: Option<usize>,
}

/// Microseconds per operation, amortised over a batch.
#[derive(Serialize)]
struct PaillierReport {
    backend: &'static str,
    bits: u32,
    mode: &'static str,
    threads: usize,
    keygen_s: f64,
    prepare_s: f64,
    encrypt_us: f64,
    encrypt_pooled_us: f64,
    add_us: f64,
    mul_us: f64,
    pack_us: f64,
    decrypt_us: f64,
    ciphertext_bytes: usize,
}

impl Paillier {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let (bits, mode) = (self.common.bits()?, self.common.noise);
        if self.common.format == TableFormat::Json {
            let report = PaillierReport::measure(bits, mode, Threads::new(self.threads.unwrap_or(1)))?;
            println!("{}", serde_json::to_string_pretty(&report)?);
            return Ok(());
        }
        let counts = match self.threads {
            Some(count) => vec![Threads::new(count)],
            None if Threads::all() == Threads::ONE => vec![Threads::ONE],
            None => vec![Threads::ONE, Threads::all()],
        };
        let reports = counts
            .into_iter()
            .map(|t| PaillierReport::measure(bits, mode, t))
            .collect::<Result<Vec<_>, _>>()?;
        print_table(&reports);
        Ok(())
    }
}

impl PaillierReport {
    fn measure(bits: KeyBits, mode: NoiseMode, threads: Threads) -> Result<Self, CliError> {
        let start = Instant::now();
        let secret = generate(bits, mode, threads)?;
        let keygen = start.elapsed();
        let key = secret.encryption_key();
        let start = Instant::now();
        key.prepare();
        let prepare = start.elapsed();

        let mut rng = os_rng()?;
        let small = |rng: &mut chacha20::ChaCha20Rng| i128::from(rng.next_u32() & 0xff_ffff) - 0x80_0000;
        let plaintexts =
            (0..BATCH).map(|_| Plaintext::new(key, small(&mut rng))).collect::<Result<Vec<_>, _>>()?;
        let per_value = |time: Duration, count: usize| time.as_secs_f64() * 1e6 / count as f64;
        let encrypt = best(BUDGET, || key.encrypt_all(&plaintexts, &mut rng, threads).map(drop))?;
        let ciphertexts = key.encrypt_all(&plaintexts, &mut rng, threads)?;
        Ok(Self {
            backend: key.backend().name(),
            bits: bits.get(),
            mode: mode.name(),
            threads: threads.get(),
            keygen_s: keygen.as_secs_f64(),
            prepare_s: prepare.as_secs_f64(),
            encrypt_us: per_value(encrypt, BATCH),
            encrypt_pooled_us: per_value(pooled(key, &plaintexts, threads)?, BATCH),
            add_us: per_value(add(key, &ciphertexts, threads)?, BATCH),
            mul_us: per_value(multiply(key, &ciphertexts, threads)?, BATCH),
            pack_us: per_value(horner(key, &ciphertexts, threads)?, BATCH),
            decrypt_us: per_value(decrypt(&secret, &ciphertexts, threads)?, DECRYPT_BATCH),
            ciphertext_bytes: key.ciphertext_bytes(),
        })
    }
}

/// Times encryption with precomputed noise. Computing the noise is not included.
fn pooled(key: &EncryptionKey, plaintexts: &[Plaintext], threads: Threads) -> Result<Duration, CliError> {
    let mut rng = os_rng()?;
    let mut shortest = Duration::MAX;
    for _ in 0..4 {
        let mut pool = BlindingPool::new(key);
        pool.refill(plaintexts.len(), &mut rng, threads);
        let start = Instant::now();
        key.encrypt_from_pool(plaintexts, &mut pool, threads)?;
        shortest = shortest.min(start.elapsed());
    }
    Ok(shortest)
}

/// Times adding to running sums, as an aggregator does.
fn add(key: &EncryptionKey, ciphertexts: &[Ciphertext], threads: Threads) -> Result<Duration, CliError> {
    let mut sums = ciphertexts.to_vec();
    Ok(best(BUDGET, || key.add_assign(&mut sums, ciphertexts, threads))?)
}

fn multiply(key: &EncryptionKey, ciphertexts: &[Ciphertext], threads: Threads) -> Result<Duration, CliError> {
    let mut rng = os_rng()?;
    let scalars: Vec<i64> =
        ciphertexts.iter().map(|_| i64::from(rng.next_u32() >> (32 - SCALAR_BITS))).collect();
    Ok(best(BUDGET, || key.mul_small_vartime(ciphertexts, &scalars, threads).map(drop))?)
}

/// Times Horner packing, with enough columns to fill the lanes of every thread.
fn horner(key: &EncryptionKey, ciphertexts: &[Ciphertext], threads: Threads) -> Result<Duration, CliError> {
    // 256 values of 24 bits can be summed
    let layout = SlotLayout::new(key, SLOT_BITS - 8, 256)?;
    let height = (ciphertexts.len() / (8 * threads.get())).clamp(1, layout.slots());
    let columns: Vec<&[Ciphertext]> = ciphertexts.chunks(height).collect();
    Ok(best(BUDGET, || key.pack(&columns, &layout, threads).map(drop))?)
}

fn decrypt(
    secret: &DecryptionKey,
    ciphertexts: &[Ciphertext],
    threads: Threads,
) -> Result<Duration, CliError> {
    Ok(best(BUDGET, || secret.decrypt_unblinded(&ciphertexts[..DECRYPT_BATCH], threads).map(drop))?)
}

fn print_table(reports: &[PaillierReport]) {
    let Some(first) = reports.first() else { return };
    println!("Paillier, {} bits, noise {}, back end {}", first.bits, first.mode, first.backend);
    println!("time per value in a batch, best of many samples\n");
    print!("{:<34}", "");
    for report in reports {
        let threads = format!("{} thread{}", report.threads, if report.threads == 1 { "" } else { "s" });
        print!("{threads:>14}");
    }
    println!();
    type Row = (&'static str, fn(&PaillierReport) -> f64);
    let rows: [Row; 8] = [
        ("key generation, once", |r| r.keygen_s * 1e6),
        ("noise table, once", |r| r.prepare_s * 1e6),
        ("encrypt", |r| r.encrypt_us),
        ("encrypt, noise from a pool", |r| r.encrypt_pooled_us),
        ("add", |r| r.add_us),
        ("multiply by a 16-bit scalar", |r| r.mul_us),
        ("pack into 32-bit slots (Horner)", |r| r.pack_us),
        ("decrypt", |r| r.decrypt_us),
    ];
    for (name, value) in rows {
        print!("{name:<34}");
        for report in reports {
            print!("{:>14}", readable(value(report)));
        }
        println!();
    }
    println!("\none ciphertext is {} bytes", first.ciphertext_bytes);
}
