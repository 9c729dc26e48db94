//! `dphe bench`: what this machine can do.

mod learn;
mod protocol;

use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use dphe_paillier::{
    BlindingPool, Ciphertext, DecryptionKey, EncryptionKey, KeyBits, NoiseMode, Plaintext, SlotLayout,
    Threads, kernel_rate,
};
use rand_core::Rng;
use serde::Serialize;

use super::key::{Mode, generate};
use super::measure::{best, processor_time};
use super::{CliError, key_bits, os_rng};

/// Values in a batch: whole groups for any back end, long enough to share the noise table.
const BATCH: usize = 256;
/// Decryptions in a batch: fewer, because each takes longer.
const DECRYPT_BATCH: usize = 64;
/// What one measurement may take.
const BUDGET: Duration = Duration::from_millis(400);
/// Bits of the scalars that ciphertexts are multiplied with: a sample count, say.
const SCALAR_BITS: u32 = 16;
/// Bits of a slot when ciphertexts are packed.
const SLOT_BITS: u32 = 32;

#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    /// Time of each Paillier operation
    Paillier(Paillier),
    /// Time to make a key pair: the search is random, so many runs
    Keygen(Keygen),
    /// Processor time and bytes of a dense vector, packed and encrypted
    Packing(Packing),
    /// The multiplication kernel against the multiplier's peak rate
    Kernel(Kernel),
    /// A round of the protocol: seal, accept, open, and the bytes that travel
    Protocol(protocol::Protocol),
    /// A fit of the learner, to be set beside scikit-learn's
    Learn(learn::Learn),
}

#[derive(Args)]
pub(crate) struct Common {
    /// Bits of the modulus: 2048, 3072 or 4096
    #[arg(long, default_value_t = 3072)]
    bits: u32,
    /// Allow short keys, as in the paper; not for data that matters
    #[arg(long)]
    paper: bool,
    /// How noise is drawn
    #[arg(long, value_enum, default_value_t = Mode::Secure)]
    mode: Mode,
    /// A table to read, or JSON
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

impl Common {
    fn bits(&self) -> Result<KeyBits, CliError> {
        key_bits(self.bits, self.paper)
    }
}

#[derive(Args)]
pub(crate) struct Paillier {
    #[command(flatten)]
    common: Common,
    /// Threads; without it the table shows one and all, JSON one
    #[arg(long)]
    threads: Option<usize>,
}

#[derive(Args)]
pub(crate) struct Keygen {
    #[command(flatten)]
    common: Common,
    /// How many keys are made
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Threads: all, if not given
    #[arg(long)]
    threads: Option<usize>,
}

#[derive(Args)]
pub(crate) struct Packing {
    #[command(flatten)]
    common: Common,
    /// How many values: the default is the paper's 101 classes of 2048 features
    #[arg(long, default_value_t = 206_848)]
    values: usize,
    /// Bits of a slot
    #[arg(long, default_value_t = SLOT_BITS)]
    slot_bits: u32,
    /// Vectors that can be added up before a slot overflows
    #[arg(long, default_value_t = 512)]
    terms: u64,
    /// Threads
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

#[derive(Args)]
pub(crate) struct Kernel {
    #[command(flatten)]
    common: Common,
}

impl BenchCommand {
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self {
            Self::Paillier(paillier) => paillier.run(),
            Self::Keygen(keygen) => keygen.run(),
            Self::Packing(packing) => packing.run(),
            Self::Kernel(kernel) => kernel.run(),
            Self::Protocol(protocol) => protocol.run(),
            Self::Learn(learn) => learn.run(),
        }
    }
}

/// Microseconds an operation, amortised over a batch.
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
    fn run(self) -> Result<(), CliError> {
        let (bits, mode) = (self.common.bits()?, self.common.mode.into());
        if self.common.format == Format::Json {
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

/// Encryption with noise made beforehand; only the taking and the encrypting is timed.
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

/// Adding to running sums, as an aggregator does.
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

/// Horner packing, at least as many columns as fill the lanes of every thread.
fn horner(key: &EncryptionKey, ciphertexts: &[Ciphertext], threads: Threads) -> Result<Duration, CliError> {
    // values of 24 bits, of which 256 can be added up
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
    Ok(best(BUDGET, || secret.decrypt_all(&ciphertexts[..DECRYPT_BATCH], threads).map(drop))?)
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

/// Microseconds with a unit that suits people.
pub(crate) fn readable(us: f64) -> String {
    if us >= 1e6 {
        format!("{:.2} s", us / 1e6)
    } else if us >= 1e3 {
        format!("{:.2} ms", us / 1e3)
    } else {
        format!("{us:.2} us")
    }
}

#[derive(Serialize)]
struct KeygenReport {
    backend: &'static str,
    bits: u32,
    threads: usize,
    runs: u32,
    median_s: f64,
    shortest_s: f64,
    longest_s: f64,
}

impl Keygen {
    fn run(self) -> Result<(), CliError> {
        let (bits, mode) = (self.common.bits()?, self.common.mode.into());
        let threads = self.threads.map_or_else(Threads::all, Threads::new);
        let mut backend = "";
        let mut times = Vec::new();
        for _ in 0..self.runs {
            let start = Instant::now();
            let secret = generate(bits, mode, threads)?;
            times.push(start.elapsed().as_secs_f64());
            backend = secret.encryption_key().backend().name();
        }
        times.sort_by(f64::total_cmp);
        let report = KeygenReport {
            backend,
            bits: bits.get(),
            threads: threads.get(),
            runs: self.runs,
            median_s: (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0,
            shortest_s: times[0],
            longest_s: times[times.len() - 1],
        };
        if self.common.format == Format::Json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            println!(
                "a key pair of {} bits, {} threads, back end {backend}, {} runs",
                report.bits, report.threads, report.runs
            );
            println!(
                "median {:.2} s, shortest {:.2} s, longest {:.2} s",
                report.median_s, report.shortest_s, report.longest_s
            );
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct PackingReport {
    backend: &'static str,
    bits: u32,
    mode: &'static str,
    threads: usize,
    values: usize,
    slot_bits: u32,
    slots: usize,
    ciphertexts: usize,
    bytes: usize,
    /// Packing and encrypting, processor time of all threads.
    cpu_s: f64,
    /// Writing the ciphertexts down, the same.
    encode_cpu_s: f64,
}

impl Packing {
    fn run(self) -> Result<(), CliError> {
        let threads = Threads::new(self.threads);
        let secret = generate(self.common.bits()?, self.common.mode.into(), threads)?;
        let key = secret.encryption_key();
        let headroom = 64 - self.terms.saturating_sub(1).leading_zeros();
        let value_bits = self
            .slot_bits
            .checked_sub(headroom)
            .filter(|&bits| bits >= 2)
            .ok_or(CliError::Slots { slot_bits: self.slot_bits, terms: self.terms })?;
        let layout = SlotLayout::new(key, value_bits, self.terms)?;
        let mut rng = os_rng()?;
        // random bits, sign-extended; the lowest value of all has no slot
        let spare = 64 - value_bits;
        let values: Vec<i64> = (0..self.values)
            .map(|_| ((rng.next_u64() << spare).cast_signed() >> spare).max(1 - layout.bound()))
            .collect();
        key.prepare();

        let (mut cpu, mut encode_cpu) = (Duration::MAX, Duration::MAX);
        let (mut count, mut bytes) = (0, 0);
        for _ in 0..3 {
            let start = processor_time();
            let ciphertexts = key.encrypt_all(&layout.pack(key, &values)?, &mut rng, threads)?;
            let encrypted = processor_time();
            let wire = key.encode(&ciphertexts, threads)?;
            cpu = cpu.min(encrypted.saturating_sub(start));
            encode_cpu = encode_cpu.min(processor_time().saturating_sub(encrypted));
            (count, bytes) = (ciphertexts.len(), wire.len());
        }
        let report = PackingReport {
            backend: key.backend().name(),
            bits: key.bits().get(),
            mode: key.mode().name(),
            threads: threads.get(),
            values: self.values,
            slot_bits: layout.slot_bits(),
            slots: layout.slots(),
            ciphertexts: count,
            bytes,
            cpu_s: cpu.as_secs_f64(),
            encode_cpu_s: encode_cpu.as_secs_f64(),
        };
        report.print(self.common.format)
    }
}

impl PackingReport {
    fn print(&self, format: Format) -> Result<(), CliError> {
        if format == Format::Json {
            println!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        let per_value = |x: f64| x / self.values.max(1) as f64;
        println!("{} values in {}-bit slots, {} a ciphertext", self.values, self.slot_bits, self.slots);
        println!("Paillier, {} bits, noise {}, back end {}\n", self.bits, self.mode, self.backend);
        println!("ciphertexts      {}", self.ciphertexts);
        println!("bytes            {} ({:.2} a value)", self.bytes, per_value(self.bytes as f64));
        println!("processor time   {:.3} s ({:.3} us a value)", self.cpu_s, per_value(self.cpu_s * 1e6));
        println!("writing down     {:.3} s", self.encode_cpu_s);
        Ok(())
    }
}

#[derive(Serialize)]
struct KernelReport {
    backend: &'static str,
    bits: u32,
    /// Numbers that one call multiplies.
    lanes: usize,
    multiply_ns: f64,
    square_ns: f64,
    /// Vector multiply instructions of one multiplication of all lanes.
    instructions: f64,
    /// What the CPU needs for that many, doing nothing else: the bound.
    bound_ns: f64,
    ratio: f64,
}

impl Kernel {
    fn run(self) -> Result<(), CliError> {
        let bits = self.common.bits()?;
        let rate = kernel_rate(bits);
        let lanes = rate.lanes as f64;
        let report = KernelReport {
            backend: rate.backend.name(),
            bits: bits.get(),
            lanes: rate.lanes,
            multiply_ns: rate.multiply_ns / lanes,
            square_ns: rate.square_ns / lanes,
            instructions: rate.instructions,
            bound_ns: rate.bound_ns / lanes,
            ratio: rate.multiply_ns / rate.bound_ns,
        };
        if self.common.format == Format::Json {
            println!("{}", serde_json::to_string_pretty(&report)?);
            return Ok(());
        }
        println!(
            "multiplication modulo n^2, {} bits, back end {}, {} lanes\n",
            report.bits, report.backend, report.lanes
        );
        println!("multiply         {:.0} ns a value", report.multiply_ns);
        println!("square           {:.0} ns a value", report.square_ns);
        println!(
            "multiplier bound {:.0} ns ({:.0} instructions for all lanes)",
            report.bound_ns, report.instructions
        );
        println!("ratio            {:.2}", report.ratio);
        Ok(())
    }
}
