//! `dphe bench packing`: packs and encrypts a dense vector.

use std::time::Duration;

use clap::Args;
use dphe_paillier::{SlotLayout, Threads};
use rand_core::Rng;
use serde::Serialize;

use super::{Common, SLOT_BITS};
use crate::args::TableFormat;
use crate::cli::key::generate;
use crate::cli::{CliError, os_rng};
use crate::timing::processor_time;

#[derive(Args)]
pub(crate) struct Packing {
    #[command(flatten)]
    common: Common,
    /// The number of values; the default is that of the paper, 101 classes of 2048 features
    #[arg(long, default_value_t = 206_848)]
    values: usize,
    /// The slot width in bits
    #[arg(long, default_value_t = SLOT_BITS)]
    slot_bits: u32,
    /// The number of vectors that can be summed before a slot overflows
    #[arg(long, default_value_t = 512)]
    terms: u64,
    /// The number of threads
    #[arg(long, default_value_t = 1)]
    threads: usize,
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
    /// Processor time of packing and encrypting, over all threads.
    cpu_s: f64,
    /// Processor time of encoding the ciphertexts, over all threads.
    encode_cpu_s: f64,
}

impl Packing {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let threads = Threads::new(self.threads);
        let secret = generate(self.common.bits()?, self.common.noise, threads)?;
        let key = secret.encryption_key();
        let headroom = 64 - self.terms.saturating_sub(1).leading_zeros();
        let value_bits = self
            .slot_bits
            .checked_sub(headroom)
            .filter(|&bits| bits >= 2)
            .ok_or(CliError::Slots { slot_bits: self.slot_bits, terms: self.terms })?;
        let layout = SlotLayout::new(key, value_bits, self.terms)?;
        let mut rng = os_rng()?;
        // random bits, sign-extended; the lowest value does not fit a slot
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
    fn print(&self, format: TableFormat) -> Result<(), CliError> {
        if format == TableFormat::Json {
            println!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        let per_value = |x: f64| x / self.values.max(1) as f64;
        println!("{} values in {}-bit slots, {} per ciphertext", self.values, self.slot_bits, self.slots);
        println!("Paillier, {} bits, noise {}, back end {}\n", self.bits, self.mode, self.backend);
        println!("ciphertexts      {}", self.ciphertexts);
        println!("bytes            {} ({:.2} per value)", self.bytes, per_value(self.bytes as f64));
        println!("processor time   {:.3} s ({:.3} us per value)", self.cpu_s, per_value(self.cpu_s * 1e6));
        println!("encoding         {:.3} s", self.encode_cpu_s);
        Ok(())
    }
}
