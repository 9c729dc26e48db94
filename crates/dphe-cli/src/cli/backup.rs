//! `dphe backup`: copies a party's data directory.

use std::path::PathBuf;

use clap::Args;
use dphe::PartyId;
use dphe::hazmat::paper_keys;
use dphe_service::backup::back_up;
use dphe_service::kit::Kit;

use super::{CliError, block_on};

/// Copy a party's data directory, even while the party is running
#[derive(Args)]
pub(crate) struct Backup {
    /// The kit of the party
    #[arg(long, value_name = "DIR")]
    kit: PathBuf,
    /// The data directory of the party
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The directory of the copy; it must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

impl Backup {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let kit = Kit::read_with(&self.kit, paper_keys())?;
        let made = block_on(back_up(&kit, &self.data, &self.output))??;
        println!("copy         {}: {} bytes", self.output.display(), made.bytes);
        println!("log          {} records, head {}", made.log.records, &made.log.head[..16]);
        if made.again > 0 {
            println!("repeated     {} times, because the party was writing", made.again);
        }
        if kit.party() == PartyId::KeyGenerator {
            println!(
                "note         Never restore this copy after the party has continued. Its peers would refuse it."
            );
        }
        Ok(())
    }
}
