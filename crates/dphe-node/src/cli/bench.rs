//! `dphe bench`: what this machine can do.

mod kernel;
mod keygen;
mod learn;
mod packing;
mod paillier;
mod protocol;
mod service;

use clap::{Args, Subcommand, ValueEnum};
use dphe_paillier::KeyBits;

use super::key::Mode;
use super::{CliError, key_bits};

/// Bits of a slot when ciphertexts are packed.
const SLOT_BITS: u32 = 32;

#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    /// Time of each Paillier operation
    Paillier(paillier::Paillier),
    /// Time to make a key pair: the search is random, so many runs
    Keygen(keygen::Keygen),
    /// Processor time and bytes of a dense vector, packed and encrypted
    Packing(packing::Packing),
    /// The multiplication kernel against the multiplier's peak rate
    Kernel(kernel::Kernel),
    /// A round of the protocol: seal, accept, open, and the bytes that travel
    Protocol(protocol::Protocol),
    /// A fit of the learner, to be set beside scikit-learn's
    Learn(learn::Learn),
    /// The services under load: many users, some of them a nuisance
    Service(service::Service),
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
