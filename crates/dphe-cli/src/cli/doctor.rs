//! `dphe doctor`: checks everything that a party needs.

use std::path::PathBuf;

use clap::Args;
use dphe::hazmat::paper_keys;
use dphe_service::doctor::{Examined, Health, examine};

use super::{CliError, block_on};
use crate::args::{KitArgs, TextFormat};

/// Check a kit, the clock, the port and the peers
#[derive(Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    kit: KitArgs,
    /// The data directory that the party will use
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The output format
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    format: TextFormat,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let examined = Examined {
            kit: &self.kit.kit,
            identity: self.kit.identity.as_deref(),
            data: self.data.as_deref(),
            roster: self.kit.roster.as_ref(),
            key_lengths: paper_keys(),
        };
        let findings = block_on(examine(&examined))?;
        if self.format == TextFormat::Json {
            println!("{}", serde_json::to_string_pretty(&findings)?);
        } else {
            for finding in &findings {
                let word = match finding.health {
                    Health::Ok => "ok",
                    Health::Note => "note",
                    Health::Bad => "bad",
                };
                println!("{word:<5} {:<12} {}", finding.what, finding.found);
                if let Some(hint) = &finding.hint {
                    println!("{:<5} {:<12} hint: {hint}", "", "");
                }
            }
        }
        match findings.iter().any(|finding| finding.health == Health::Bad) {
            true => Err(CliError::CheckFailed { what: "this party cannot take part yet" }),
            false => Ok(()),
        }
    }
}
