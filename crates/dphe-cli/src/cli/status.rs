//! `dphe status`: asks the services of a task for their status.

use std::path::PathBuf;

use clap::Args;
use dphe::PartyId;
use dphe::hazmat::paper_keys;
use dphe_service::doctor::ask_status;
use dphe_service::kit::Kit;
use dphe_service::party::party_name;

use super::{CliError, block_on};
use crate::args::TextFormat;

/// Ask the services of a task for their status
#[derive(Args)]
pub(crate) struct Status {
    /// The kit of any party
    #[arg(long, value_name = "DIR")]
    kit: PathBuf,
    /// The output format
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    format: TextFormat,
}

/// Returns an entry of a status. Sixteen digits of a history are enough to compare.
fn status_words(name: &str, value: &serde_json::Value) -> String {
    let text = value.to_string();
    let text = text.trim_matches('"');
    if name == "history" { format!("{name} {text:.16}") } else { format!("{name} {text}") }
}

impl Status {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let kit = Kit::read_with(&self.kit, paper_keys())?;
        // the services that answer this party
        let services = match kit.party() {
            PartyId::KeyGenerator => vec![PartyId::KeyGenerator, PartyId::Aggregator],
            PartyId::Aggregator => vec![PartyId::Aggregator, PartyId::KeyGenerator],
            PartyId::User(_) => vec![PartyId::Aggregator],
        };
        let mut all = Vec::new();
        for service in services {
            let answer = block_on(ask_status(&kit, service))??;
            let status: serde_json::Value = serde_json::from_slice(&answer.body)?;
            if self.format == TextFormat::Text {
                let words: Vec<String> = status
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(name, _)| !["party", "task"].contains(&name.as_str()))
                    .map(|(name, value)| status_words(name, value))
                    .collect();
                println!("{:<14} {}", party_name(service), words.join(", "));
            }
            all.push(status);
        }
        if self.format == TextFormat::Json {
            println!("{}", serde_json::to_string_pretty(&all)?);
        }
        Ok(())
    }
}
