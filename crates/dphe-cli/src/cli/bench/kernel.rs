//! `dphe bench kernel`: compares the multiplication kernel with the multiplier's peak rate.

use clap::Args;
use dphe_paillier::kernel_rate;
use serde::Serialize;

use super::Common;
use crate::args::TableFormat;
use crate::cli::CliError;

#[derive(Args)]
pub(crate) struct Kernel {
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct KernelReport {
    backend: &'static str,
    bits: u32,
    /// The number of values that one call multiplies.
    lanes: usize,
    multiply_ns: f64,
    square_ns: f64,
    /// Vector multiply instructions per multiplication of all lanes.
    instructions: f64,
    /// The time that the CPU needs for these instructions alone, a lower bound.
    bound_ns: f64,
    ratio: f64,
}

impl Kernel {
    pub(crate) fn run(self) -> Result<(), CliError> {
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
        if self.common.format == TableFormat::Json {
            println!("{}", serde_json::to_string_pretty(&report)?);
            return Ok(());
        }
        println!(
            "multiplication modulo n^2, {} bits, back end {}, {} lanes\n",
            report.bits, report.backend, report.lanes
        );
        println!("multiply         {:.0} ns per value", report.multiply_ns);
        println!("square           {:.0} ns per value", report.square_ns);
        println!(
            "multiplier bound {:.0} ns ({:.0} instructions for all lanes)",
            report.bound_ns, report.instructions
        );
        println!("ratio            {:.2}", report.ratio);
        Ok(())
    }
}
