//! `dphe verify`: checks the stored log and messages of a party.

use std::path::PathBuf;

use clap::Args;
use dphe::hazmat::paper_keys;
use dphe::{PartyId, Round};
use dphe_service::Error;
use dphe_service::kit::Kit;
use dphe_service::learning::LinearModelMaker;
#[cfg(feature = "postgres")]
use dphe_service::store::postgres::PgStore;
use dphe_service::store::{Archive, LogStore, SqliteStore};
use dphe_service::verify::{Replay, check_log, check_rounds};
use zeroize::Zeroizing;

use super::{CliError, block_on};
#[cfg(not(feature = "postgres"))]
use crate::args::NO_DATABASE;
use crate::args::{Storage, StorageArgs, TextFormat};

/// Check a party's log, the stored messages of every round, and the models
///
/// With the aggregator's kit, every model is computed again from the initial model and the sums that the key generator
/// signed, unless --from skips rounds. A data directory must be a backup or belong to a stopped party. A database can
/// be checked at any time.
#[derive(Args)]
pub(crate) struct Verify {
    /// The kit of the party
    #[arg(long, value_name = "DIR")]
    kit: PathBuf,
    #[command(flatten)]
    storage: StorageArgs,
    /// The first round to check
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// The output format
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    format: TextFormat,
}

/// The log, and the messages from a round on.
type Stored = (Zeroizing<Vec<u8>>, Vec<(Round, u8, Vec<u8>)>);

async fn read(mut store: impl LogStore + Archive, from: Round) -> Result<Stored, Error> {
    Ok((store.load().await?, store.messages(from).await?))
}

impl Verify {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let storage = self.storage.storage()?;
        let kit = Kit::read_with(&self.kit, paper_keys())?;
        let from = Round::new(self.from).unwrap_or(Round::FIRST);
        let (log, messages) = block_on(async {
            match &storage {
                #[cfg(not(feature = "postgres"))]
                Storage::Database(_) => Err(NO_DATABASE),
                #[cfg(feature = "postgres")]
                Storage::Database(database) => {
                    let address = database.address(kit.roster(), std::time::Duration::from_secs(10))?;
                    Ok::<_, CliError>(
                        read(PgStore::open_read_only(&address).await.map_err(Error::from)?, from).await?,
                    )
                }
                Storage::Directory(data) => {
                    let store = SqliteStore::open_read_only(data).await.map_err(Error::from)?;
                    Ok(read(store, from).await?)
                }
            }
        })??;
        let log = check_log(kit.party(), kit.rosters(), &log)?;
        let mut maker = LinearModelMaker::new(kit.task_file(), kit.roster().task().clone())?;
        // only an aggregator stores sums; without the rounds before them, models cannot be computed again
        let replay = match kit.party() {
            PartyId::Aggregator if from == Round::FIRST => {
                let key = kit.encryption_key()?;
                Some(Replay { model: kit.initial_model()?, key, maker: &mut maker })
            }
            _ => None,
        };
        let recomputed = replay.is_some();
        let rounds = check_rounds(kit.rosters(), &messages, replay);
        if self.format == TextFormat::Json {
            let report = serde_json::json!({ "log": log, "models_recomputed": recomputed, "rounds": rounds });
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            println!("ok    log          {} records, head {}", log.records, &log.head[..16]);
            if log.torn > 0 {
                println!(
                    "note  log          the last {} bytes are incomplete; the party truncates them at start",
                    log.torn
                );
            }
            if rounds.is_empty() {
                println!("note  rounds       none are stored");
            } else if !recomputed {
                println!(
                    "note  models       not computed again: this needs the aggregator's kit and all rounds"
                );
            }
            for round in &rounds {
                let word = if round.findings.is_empty() { "ok" } else { "bad" };
                let (number, ending, users) = (round.round, round.ending_name(), round.users);
                println!("{word:<5} round {number:<6} {ending}, {users} users");
                round.findings.iter().for_each(|finding| println!("{:<5} {:<12} {finding}", "", ""));
            }
        }
        match rounds.iter().any(|round| !round.findings.is_empty()) {
            true => Err(CliError::CheckFailed { what: "the stored data is invalid" }),
            false => Ok(()),
        }
    }
}
