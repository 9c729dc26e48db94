//! `dphe status`: asks the services of a task for their status.

use std::path::PathBuf;

use clap::Args;
use dphe::PartyId;
use dphe::hazmat::paper_keys;
use dphe::party::AggregatorPhase;
use dphe_service::doctor::ask_status;
use dphe_service::http::remote_text::clean_json;
use dphe_service::kit::{Fingerprint, Kit};
use dphe_service::party::{list_of_users, party_name};
use dphe_service::service::aggregator::phase_label;
use serde_json::Value;

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

/// Returns a status in sentences. The round and the history before it come first, because members compare them; 16
/// digits of the history are enough for that.
fn sentences(status: &Value) -> Vec<String> {
    let number = |name: &str| status[name].as_u64().unwrap_or(0);
    let users = |name: &str| -> Vec<u32> {
        let list = status[name].as_array().into_iter().flatten();
        list.filter_map(|user| user.as_u64().and_then(|user| u32::try_from(user).ok())).collect()
    };
    let round = match status["history"].as_str() {
        Some(history) => format!("round {}, history {history:.16}", number("round")),
        None => format!("round {}", number("round")),
    };
    let mut lines = vec![round];
    if status["party"] != party_name(PartyId::Aggregator) {
        let phase = phase_words(status["phase"].as_str().unwrap_or_default());
        lines.push(format!("{phase}, {} records in the log", number("log_records")));
        return lines;
    }
    let rounds = number("rounds");
    let counted = number("round").saturating_sub(1 + number("aborted")).min(rounds);
    let aborted = match number("aborted") {
        0 => String::new(),
        1 => ", 1 aborted round not counted".to_owned(),
        many => format!(", {many} aborted rounds not counted"),
    };
    let over = if status["over"] == true { "the task is over: " } else { "" };
    lines.push(format!("{over}{counted} of {rounds} rounds done{aborted}"));
    let asked = status["asked"].as_array().map_or_else(|| number("users") as usize, Vec::len);
    if status["phase"] == AggregatorPhase::Collecting.as_str() {
        let missing = users("missing");
        let names = match missing.len() {
            0 => String::new(),
            _ => format!("; missing: user {}", list_of_users(&missing)),
        };
        lines.push(format!("collecting updates: {} of {asked} received{names}", users("collected").len()));
    } else if status["over"] != true {
        lines.push(phase_words(status["phase"].as_str().unwrap_or_default()).to_owned());
    }
    let suspects = users("suspects");
    if !suspects.is_empty() {
        let search = if status["searching"] == true { ", and the search goes on" } else { "" };
        lines.push(format!("suspected of spoiling rounds: user {}{search}", list_of_users(&suspects)));
    }
    lines
}

/// Says in words what a phase means.
fn phase_words(phase: &str) -> &str {
    let aggregator = AggregatorPhase::ALL.iter().find(|known| known.as_str() == phase);
    match (aggregator, phase) {
        (_, "ticketed") => "the round has its ticket",
        (_, "frozen") => "the participants are frozen",
        (_, "committed") => "opening the sum",
        (_, "answered") => "the sum is open",
        (Some(known), _) => phase_label(*known),
        (None, other) => other,
    }
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
                let name = party_name(service);
                for (i, line) in sentences(&status).into_iter().enumerate() {
                    println!("{:<14} {line}", if i == 0 { name.as_str() } else { "" });
                }
            }
            all.push(status);
        }
        if self.format == TextFormat::Json {
            println!("{}", serde_json::to_string_pretty(&all)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_of_an_aggregator_says_who_is_missing_and_what_does_not_count() {
        let history = "3f9a0c51d2b4e876".repeat(4);
        let status = json!({
            "party": "aggregator", "task": "00", "round": 3, "rounds": 6, "aborted": 1, "phase": "collecting",
            "collected": [1], "missing": [2, 3], "suspects": [], "searching": false, "users": 3, "over": false,
            "history": history,
        });
        let lines = sentences(&status);
        assert_eq!(
            lines,
            [
                "round 3, history 3f9a0c51d2b4e876",
                "1 of 6 rounds done, 1 aborted round not counted",
                "collecting updates: 1 of 3 received; missing: user 2, 3",
            ]
        );
        assert!(lines.iter().all(|line| line.len() <= 65));
    }

    #[test]
    fn status_of_a_finished_task_says_so() {
        let status = json!({
            "party": "aggregator", "round": 7, "rounds": 6, "aborted": 0, "phase": "idle", "collected": [],
            "suspects": [2], "searching": true, "users": 3, "over": true,
        });
        let suspects = "suspected of spoiling rounds: user 2, and the search goes on";
        assert_eq!(sentences(&status), ["round 7", "the task is over: 6 of 6 rounds done", suspects]);
    }
}
