//! `dphe doctor`, `dphe status` and `dphe verify`: looking, without changing anything.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dphe::{Party, Round};
use dphe_node::Error;
use dphe_node::certificates::role_name;
use dphe_node::doctor::{Health, ask_status, examine};
use dphe_node::kit::Kit;
use dphe_node::store::postgres::{PgAddress, PgStore};
use dphe_node::store::{Archive, LogStore, SqliteStore};
use dphe_node::verify::{check_log, check_rounds};
use zeroize::Zeroizing;

use super::CliError;
use super::place::{Place, PlaceArgs};

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    Text,
    Json,
}

fn block_on<R>(work: impl Future<Output = R>) -> Result<R, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|source| CliError::Runtime { source })?.block_on(work))
}

#[derive(Args)]
pub(crate) struct Doctor {
    /// The start-up kit
    #[arg(long, value_name = "DIR")]
    kit: PathBuf,
    /// Where the party will keep its state
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let findings = block_on(examine(&self.kit, self.data.as_deref()))?;
        if self.format == Format::Json {
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
                    println!("{:<5} {:<12} try: {hint}", "", "");
                }
            }
        }
        match findings.iter().any(|finding| finding.health == Health::Bad) {
            true => Err(CliError::NotWell { what: "this party cannot take part as it is" }),
            false => Ok(()),
        }
    }
}

#[derive(Args)]
pub(crate) struct Status {
    /// The start-up kit of any party
    #[arg(long, value_name = "DIR")]
    kit: PathBuf,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl Status {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let kit = Kit::read(&self.kit)?;
        // who may be asked by whom
        let services = match kit.party() {
            Party::KeyGenerator => vec![Party::KeyGenerator, Party::Aggregator],
            Party::Aggregator => vec![Party::Aggregator, Party::KeyGenerator],
            Party::User(_) => vec![Party::Aggregator],
        };
        let mut all = Vec::new();
        for service in services {
            let answer = block_on(ask_status(&kit, service))??;
            let status: serde_json::Value = serde_json::from_slice(&answer.body)?;
            if self.format == Format::Text {
                let words: Vec<String> = status
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(name, _)| !["party", "task"].contains(&name.as_str()))
                    .map(|(name, value)| format!("{name} {}", value.to_string().trim_matches('"')))
                    .collect();
                println!("{:<14} {}", role_name(service), words.join(", "));
            }
            all.push(status);
        }
        if self.format == Format::Json {
            println!("{}", serde_json::to_string_pretty(&all)?);
        }
        Ok(())
    }
}

#[derive(Args)]
pub(crate) struct Verify {
    /// The start-up kit of the party
    #[arg(long, value_name = "DIR")]
    kit: PathBuf,
    /// A copy of a data folder, or the folder itself while the party is down; a database at any time
    #[command(flatten)]
    place: PlaceArgs,
    /// The first round to look at
    #[arg(long, default_value_t = 1)]
    from: u64,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The log, and the messages from a round on.
type Kept = (Zeroizing<Vec<u8>>, Vec<(Round, u8, Vec<u8>)>);

async fn read(mut store: impl LogStore + Archive, from: Round) -> Result<Kept, Error> {
    Ok((store.load().await?, store.messages(from).await?))
}

impl Verify {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let place = self.place.place();
        let kit = Kit::read(&self.kit)?;
        let from = Round::new(self.from).unwrap_or(Round::FIRST);
        let (log, messages) = block_on(async {
            match &place {
                Place::Database(url) => {
                    let address = PgAddress::new(url, kit.roster(), Duration::from_secs(10))?;
                    read(PgStore::open_read_only(&address).await?, from).await
                }
                Place::Folder(data) => read(SqliteStore::open_read_only(data).await?, from).await,
            }
        })??;
        let log = check_log(kit.party(), kit.roster(), &log)?;
        let rounds = check_rounds(kit.roster(), &messages);
        if self.format == Format::Json {
            println!(
                "{}",
                serde_json::to_string_pretty(&serde_json::json!({ "log": log, "rounds": rounds }))?
            );
        } else {
            println!("ok    log          {} records, head {}", log.records, &log.head[..16]);
            if log.torn > 0 {
                println!(
                    "note  log          its last {} bytes were never finished; the party cuts them off",
                    log.torn
                );
            }
            for round in &rounds {
                let word = if round.findings.is_empty() { "ok" } else { "bad" };
                println!("{word:<5} round {:<6} {}, {} users", round.round, round.ending, round.users);
                round.findings.iter().for_each(|finding| println!("{:<5} {:<12} {finding}", "", ""));
            }
        }
        match rounds.iter().any(|round| !round.findings.is_empty()) {
            true => Err(CliError::NotWell { what: "what was stored does not hold" }),
            false => Ok(()),
        }
    }
}
