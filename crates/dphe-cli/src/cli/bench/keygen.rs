//! `dphe bench keygen`: times key generation.

use std::time::Instant;

use clap::Args;
use dphe_paillier::Threads;
use serde::Serialize;

use super::Common;
use crate::args::TableFormat;
use crate::cli::CliError;
use crate::cli::key::generate;

#[derive(Args)]
pub(crate) struct Keygen {
    #[command(flatten)]
    common: Common,
    /// The number of keys to generate
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The number of threads [default: all cores]
    #[arg(long)]
    threads: Option<usize>,
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
    pub(crate) fn run(self) -> Result<(), CliError> {
        let (bits, mode) = (self.common.bits()?, self.common.noise);
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
        if self.common.format == TableFormat::Json {
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
