//! The kit of a party, and what the party passes with it at its first start.

use std::path::PathBuf;

use clap::Args;
use dphe::hazmat::paper_keys;
use dphe_service::kit::{Kit, RosterHash};

use crate::cli::CliError;

#[derive(Args)]
pub(crate) struct KitArgs {
    /// The kit of the party
    #[arg(long, value_name = "DIR")]
    pub(crate) kit: PathBuf,
    /// The identity key that `dphe keygen --request` made; the first start puts a copy into the kit
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// The hash of the roster that the parties have compared, or at least its first 40 digits; needed at the first
    /// start, and after each change of the roster
    #[arg(long, value_name = "HASH")]
    pub(crate) roster: Option<RosterHash>,
}

impl KitArgs {
    /// Reads the kit of a party that is about to start.
    ///
    /// # Errors
    /// If the kit is invalid, or has another roster.
    pub(crate) fn read(&self) -> Result<Kit, CliError> {
        let kit = Kit::read_with_identity(&self.kit, self.identity.as_deref(), paper_keys())?;
        kit.check_roster(self.roster.as_ref())?;
        kit.keep_identity()?;
        Ok(kit)
    }
}
