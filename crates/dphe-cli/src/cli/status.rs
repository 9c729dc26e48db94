//! `dphe status`: asks the services of a task for their status.

use std::path::PathBuf;

use clap::Args;
use dphe::PartyId;
use dphe::hazmat::paper_keys;
use dphe_service::doctor::ask_status;
use dphe_service::http::remote_text::clean_json;
use dphe_service::kit::{Fingerprint, Kit};
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

/// Returns the entries of a status. The round and the history before it come first, because members compare them; 16
/// digits of the history are enough for that.
fn status_words(status: &serde_json::Value) -> Vec<String> {
    let rank = |name: &str| match name {
        "round" => 0,
        "history" => 1,
        _ => 2,
    };
    let entries = status.as_object().into_iter().flatten();
    let mut entries: Vec<_> =
        entries.filter(|(name, _)| !["party", "task"].contains(&name.as_str())).collect();
    entries.sort_by_key(|(name, _)| rank(name));
    let word = |(name, value): (&String, &serde_json::Value)| {
        let text = value.to_string();
        let text = text.trim_matches('"');
        if name == "history" { format!("{name} {text:.16}") } else { format!("{name} {text}") }
    };
    entries.into_iter().map(word).collect()
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
        if self.format == TextFormat::Text {
            println!("{:<14} fingerprint {}", party_name(kit.party()), kit.fingerprint()?);
            println!("{:<14} hash {}", "roster", Fingerprint::of_roster(kit.roster()));
        }
        let mut all = Vec::new();
        for service in services {
            let answer = block_on(ask_status(&kit, service))??;
            // a peer wrote it
            let status = clean_json(serde_json::from_slice(&answer.body)?);
            if self.format == TextFormat::Text {
                let words = status_words(&status);
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
