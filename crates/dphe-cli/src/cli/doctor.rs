//! `dphe doctor`: checks everything that a party needs.

use std::path::PathBuf;

use clap::Args;
use dphe::hazmat::paper_keys;
use dphe_service::doctor::{Health, examine};

use super::{CliError, block_on};
use crate::args::TextFormat;

/// Check a kit, the clock, the port and the peers
#[derive(Args)]
pub(crate) struct Doctor {
    /// The kit of the party
    #[arg(long, value_name = "DIR")]
    kit: PathBuf,
    /// The data directory that the party will use
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The output format
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    format: TextFormat,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let findings = block_on(examine(&self.kit, self.data.as_deref(), paper_keys()))?;
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
