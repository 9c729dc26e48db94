//! `dphe verify`: checks a party's log and the messages of every round, or a whole task as the aggregator shows it.

use std::path::PathBuf;

use clap::Args;
use dphe::hazmat::paper_keys;
use dphe::party::{Party as _, PartyContext, Time, UserParty};
use dphe::{PartyId, Round, Threads, User, UserKeys};
use dphe_service::Error;
use dphe_service::doctor::ask_status;
use dphe_service::kit::Kit;
use dphe_service::learning::{ModelMaker, model_maker};
#[cfg(feature = "postgres")]
use dphe_service::store::postgres::PgStore;
use dphe_service::store::{Archive, LogStore, SqliteStore};
use dphe_service::verify::export::{Comparison, Export};
use dphe_service::verify::fetch::RoundFetcher;
use dphe_service::verify::{
    CheckedLog, CheckedRound, MessageSource, Replay, SumCheck, Verifier, check_against_user, check_log,
    check_rounds,
};
use zeroize::Zeroizing;

use super::{CliError, block_on};
#[cfg(not(feature = "postgres"))]
use crate::args::NO_DATABASE;
use crate::args::{Storage, StorageArgs, TextFormat};

/// Check a party's log, the messages of every round, and the models
///
/// With the kit of the aggregator or of a user, every model is computed again from the initial model and the published
/// sums, unless --from skips rounds. A data directory must be a backup or belong to a stopped party. A database can be
/// checked at any time. With --from-aggregator, a member verifies the whole task while it runs.
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
    /// Fetch all rounds from the aggregator, with the lists of participants
    #[arg(long, conflicts_with = "from")]
    from_aggregator: bool,
    /// Write a file that another member can compare with its own rounds
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// Compare the rounds with those that another member exported
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
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
        let kit = Kit::read_with(&self.kit, paper_keys())?;
        let without_data = self.from_aggregator && self.storage.is_absent();
        let stored = if without_data { None } else { Some(self.read_stored(&kit)?) };
        let report = self.check(&kit, stored)?;
        match self.format {
            TextFormat::Json => println!("{}", serde_json::to_string_pretty(&report.to_json())?),
            TextFormat::Text => report.print(),
        }
        match report.is_good() {
            true => Ok(()),
            false => Err(CliError::CheckFailed { what: "the task or its stored data is invalid" }),
        }
    }

    fn first_round(&self) -> Round {
        Round::new(self.from).unwrap_or(Round::FIRST)
    }

    #[cfg_attr(
        not(feature = "postgres"),
        expect(unused_variables, reason = "only the schema of a database depends on the kit")
    )]
    fn read_stored(&self, kit: &Kit) -> Result<Stored, CliError> {
        let (storage, from) = (self.storage.storage()?, self.first_round());
        block_on(async {
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
        })?
    }

    fn check(&self, kit: &Kit, stored: Option<Stored>) -> Result<Report, CliError> {
        let (log, messages) = stored.unzip();
        let checked_log = log.as_ref().map(|log| check_log(kit.party(), kit.rosters(), log)).transpose()?;
        let member = Member::new(kit, log.as_ref())?;
        let mut maker = model_maker(kit.task_file(), kit.roster().task().clone())?;
        let replay = if self.first_round() == Round::FIRST { member.replay(kit, &mut *maker)? } else { None };
        let models_recomputed = replay.is_some();
        let mut findings = Vec::new();
        let rounds = if self.from_aggregator {
            let (rounds, missing) = block_on(fetch_and_check(kit, replay))??;
            findings.extend(missing);
            rounds
        } else {
            let source = match kit.party() {
                PartyId::User(_) => MessageSource::User,
                PartyId::Aggregator | PartyId::KeyGenerator => MessageSource::Archive,
            };
            check_rounds(kit.rosters(), source, messages.unwrap_or_default(), replay)
        };
        let party = member.party.as_ref().filter(|_| models_recomputed);
        if let Some(party) = party {
            findings.extend(check_against_user(party, kit.rosters(), &rounds));
        }
        let export = Export::new(kit.party(), kit.roster(), &rounds);
        if let Some(path) = &self.export {
            let text = serde_json::to_vec_pretty(&export)?;
            std::fs::write(path, text).map_err(|source| CliError::Output { path: path.clone(), source })?;
        }
        let comparison =
            self.compare.as_ref().map(|path| export.compare(&Export::read(path)?)).transpose()?;
        let followed = party.map(|party| party.round().get() - 1);
        Ok(Report { log: checked_log, models_recomputed, rounds, findings, followed, comparison })
    }
}

/// Fetches all rounds that have ended, and checks one after the other. Returns what is missing too.
async fn fetch_and_check(
    kit: &Kit,
    replay: Option<Replay<'_>>,
) -> Result<(Vec<CheckedRound>, Option<String>), CliError> {
    let status: serde_json::Value =
        serde_json::from_slice(&ask_status(kit, PartyId::Aggregator).await?.body)?;
    let mut fetcher = RoundFetcher::new(kit)?;
    let mut verifier = Verifier::new(kit.rosters(), MessageSource::Aggregator, replay);
    let (mut rounds, mut round) = (Vec::new(), Round::FIRST);
    while let Some(messages) = fetcher.round(round).await? {
        rounds.push(verifier.check(round, &messages, false));
        round = round.next();
    }
    let current = status["round"].as_u64().unwrap_or(0);
    let missing = (round.get() < current)
        .then(|| format!("the aggregator is in round {current}, but does not send round {round}"));
    Ok((rounds, missing))
}

/// What the keys and the log of a party can verify.
struct Member {
    /// A user with the seeds of its kit.
    user: Option<User>,
    /// A user with the seeds of its log, if it has one.
    party: Option<UserParty>,
}

impl Member {
    fn new(kit: &Kit, log: Option<&Zeroizing<Vec<u8>>>) -> Result<Self, CliError> {
        let PartyId::User(id) = kit.party() else { return Ok(Self { user: None, party: None }) };
        let in_kit = if kit.moved_to()?.is_none() { Some(kit.user_keys()?) } else { None };
        let user = in_kit.clone().map(User::new).transpose()?;
        let Some(log) = log.filter(|log| !log.is_empty()) else { return Ok(Self { user, party: None }) };
        let keys = match in_kit {
            Some(keys) => keys,
            None => UserKeys::from_log(log, id, kit.encryption_key()?, kit.rosters())?,
        };
        let (identity, rosters) = (kit.identities()?, kit.rosters().clone());
        let context = PartyContext { identity, rosters, log, threads: Threads::all() };
        let (party, _) = UserParty::start(keys, context, Time(0))?;
        Ok(Self { user, party: Some(party) })
    }

    /// Returns what models are computed again with. The key generator has no models.
    fn replay<'a>(
        &'a self,
        kit: &Kit,
        maker: &'a mut dyn ModelMaker,
    ) -> Result<Option<Replay<'a>>, CliError> {
        if kit.party() == PartyId::KeyGenerator {
            return Ok(None);
        }
        let key = kit.encryption_key()?;
        let users = self.user.iter().chain(self.party.as_ref().map(UserParty::user)).collect();
        Ok(Some(Replay { model: kit.initial_model()?, key, maker, users }))
    }
}

/// The results of all checks.
struct Report {
    log: Option<CheckedLog>,
    models_recomputed: bool,
    rounds: Vec<CheckedRound>,
    /// What is wrong with the task as a whole.
    findings: Vec<String>,
    /// The last round in the user's own log, which the rounds were compared with.
    followed: Option<u64>,
    comparison: Option<Comparison>,
}

impl Report {
    fn is_good(&self) -> bool {
        let differs = self.comparison.as_ref().is_some_and(|comparison| comparison.differs.is_some());
        !differs && self.findings.is_empty() && self.rounds.iter().all(|round| round.findings.is_empty())
    }

    fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "log": self.log,
            "models_recomputed": self.models_recomputed,
            "rounds": self.rounds,
            "findings": self.findings,
            "comparison": self.comparison,
        })
    }

    fn print(&self) {
        self.print_log();
        if self.rounds.is_empty() {
            println!("note  rounds       there are none yet");
        } else if !self.models_recomputed {
            println!(
                "note  models       not computed again: this needs the kit of a user or the aggregator, and all rounds"
            );
        }
        self.rounds.iter().for_each(print_round);
        let chained: Vec<u64> = self
            .rounds
            .iter()
            .filter(|round| round.sum == SumCheck::Chained)
            .map(|round| round.round)
            .collect();
        if let (Some(first), Some(last)) = (chained.first(), chained.last()) {
            println!(
                "note  sums         {} of rounds {first} to {last} are only chained: the seeds of these rounds are \
                 forgotten, so their check cannot be made again",
                chained.len()
            );
        }
        if let Some(round) = self.followed
            && round > 0
            && self.findings.is_empty()
        {
            println!("ok    own log      this user has the same history and model after round {round}");
        }
        self.findings.iter().for_each(|finding| println!("bad   task         {finding}"));
        if let Some(comparison) = &self.comparison {
            print_comparison(comparison);
        }
    }

    fn print_log(&self) {
        let Some(log) = &self.log else { return };
        println!("ok    log          {} records, head {}", log.records, &log.head[..16]);
        if log.torn > 0 {
            println!(
                "note  log          the last {} bytes are incomplete; the party truncates them at start",
                log.torn
            );
        }
    }
}

fn print_round(round: &CheckedRound) {
    let word = if round.findings.is_empty() { "ok" } else { "bad" };
    let (number, ending, users) = (round.round, round.ending_name(), round.users);
    let sum = match round.sum {
        SumCheck::None | SumCheck::Read => "",
        SumCheck::Checked => ", sum checked",
        SumCheck::Chained => ", sum only chained",
    };
    let history = round.head.as_ref().and_then(|head| head.history.as_ref());
    let history = history.map(|history| format!(", history {history:.16}")).unwrap_or_default();
    println!("{word:<5} round {number:<6} {ending}, {users} users{sum}{history}");
    round.findings.iter().for_each(|finding| println!("{:<5} {:<12} {finding}", "", ""));
}

fn print_comparison(comparison: &Comparison) {
    let Comparison { with, agreed, differs, only_one_has } = comparison;
    match differs {
        Some((round, fields)) => {
            println!("bad   compared     {with} has another round {round}: {}", fields.join(", "));
        }
        None => println!("ok    compared     {with} was told the same, rounds compared: {agreed}"),
    }
    if let Some(round) = only_one_has {
        println!("note  compared     from round {round} on, only one of the two has rounds");
    }
}
