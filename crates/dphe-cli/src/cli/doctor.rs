//! `dphe doctor`: checks everything that a party needs.

use std::path::{Path, PathBuf};

use clap::Args;
use dphe::hazmat::paper_keys;
use dphe_service::doctor::{Examined, Finding, Health, examine};
use dphe_service::kit::Kit;

use super::samples::task_samples;
use super::{CliError, block_on};
use crate::args::{KitArgs, TextFormat};
use crate::terminal::{Tone, WIDTH, coloured, wrapped};

/// The width of the columns before a finding.
const LABELS: usize = 19;

/// Check a kit, the clock, the port and the peers
#[derive(Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    kit: KitArgs,
    /// The data directory that the party will use
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The samples with which the user will join, to check that they fit the task
    #[arg(long, value_name = "FILE")]
    features: Option<PathBuf>,
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
        let mut findings = block_on(examine(&examined))?;
        findings.extend(self.features.as_deref().map(|file| self.samples(file)));
        if self.format == TextFormat::Json {
            println!("{}", serde_json::to_string_pretty(&findings)?);
        } else {
            for finding in &findings {
                let (word, tone) = match finding.health {
                    Health::Ok => ("ok   ", Tone::Good),
                    Health::Note => ("note ", Tone::Doubtful),
                    Health::Bad => ("bad  ", Tone::Bad),
                };
                let hint = finding.hint.iter().map(|hint| format!("hint: {hint}"));
                for (i, text) in [finding.found.clone()].into_iter().chain(hint).enumerate() {
                    for (j, line) in wrapped(&text, WIDTH - LABELS).into_iter().enumerate() {
                        match i + j {
                            0 => println!("{} {:<12} {line}", coloured(word, tone), finding.what),
                            _ => println!("{:<LABELS$}{line}", ""),
                        }
                    }
                }
            }
        }
        match findings.iter().any(|finding| finding.health == Health::Bad) {
            true => Err(CliError::CheckFailed { what: "this party cannot take part yet" }),
            false => Ok(()),
        }
    }
    /// Checks that samples fit the task. A kit that cannot be read is a finding of its own.
    fn samples(&self, file: &Path) -> Finding {
        let kit = Kit::read_with_identity(&self.kit.kit, self.kit.identity.as_deref(), paper_keys());
        let read = kit.map_err(CliError::from).and_then(|kit| task_samples(&kit, file));
        let (health, found, hint) = match read {
            Ok(data) => {
                let counts = data.labels().counts();
                let present = counts.iter().filter(|&&count| count > 0).count();
                let found = format!(
                    "{}: {} samples of {present} of the {} classes, which fit the task",
                    file.display(),
                    data.len(),
                    counts.len()
                );
                (Health::Ok, found, None)
            }
            Err(error) => (Health::Bad, error.to_string(), error.hint()),
        };
        Finding { health, what: "features", found, hint }
    }
}
