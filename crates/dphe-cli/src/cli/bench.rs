//! `dphe bench`: measures this machine.

mod binding;
mod kernel;
mod keygen;
mod learn;
mod packing;
mod paillier;
mod protocol;
mod service;

use clap::{Args, Subcommand};
use dphe_paillier::{KeyBits, NoiseMode};

use super::{CliError, key_bits};
use crate::args::TableFormat;
use crate::args::one_of;

/// The default slot width for packing.
const SLOT_BITS: u32 = 32;

/// Measure this machine
#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    /// Time each Paillier operation
    Paillier(paillier::Paillier),
    /// Time key generation over several runs
    Keygen(keygen::Keygen),
    /// Pack and encrypt a dense vector
    Packing(packing::Packing),
    /// Compare the multiplication kernel with the multiplier's peak rate
    Kernel(kernel::Kernel),
    Protocol(protocol::Protocol),
    Learn(learn::Learn),
    Service(service::Service),
}

#[derive(Args)]
pub(crate) struct Common {
    /// The key length in bits: 2048, 3072 or 4096
    #[arg(long, default_value_t = 3072)]
    bits: u32,
    /// Allow short keys as in the paper, which protect nothing
    #[arg(long)]
    paper: bool,
    /// How noise is generated
    #[arg(long, value_parser = one_of::<NoiseMode>(), default_value = NoiseMode::Secure.name())]
    noise: NoiseMode,
    /// The output format
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    format: TableFormat,
}

impl Common {
    fn bits(&self) -> Result<KeyBits, CliError> {
        key_bits(self.bits, self.paper)
    }
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
            Self::Service(service) => service.run(),
        }
    }
}

/// Formats microseconds with a suitable unit.
pub(crate) fn readable(us: f64) -> String {
    if us >= 1e6 {
        format!("{:.2} s", us / 1e6)
    } else if us >= 1e3 {
        format!("{:.2} ms", us / 1e3)
    } else {
        format!("{us:.2} us")
    }
}
