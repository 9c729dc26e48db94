//! Checks everything that a party needs before it is started.

use std::path::Path;
use std::time::{Duration, SystemTime};

use axum::http::Method;
use bytes::Bytes;
use dphe::{KeyLengths, PartyId};
use serde::Serialize;
use tokio::net::TcpListener;

use crate::Error;
use crate::http::client::{Answer, Client, ClientError};
use crate::kit::{Fingerprint, Kit, RosterHash};
use crate::party::party_name;
use crate::store::{LogStore as _, SqliteStore, StoreError};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Everything is fine.
    Ok,
    /// Something is unusual.
    Note,
    /// The party will not work.
    Bad,
}

/// One check and its result.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The result.
    pub health: Health,
    /// What was checked.
    pub what: &'static str,
    /// What was found.
    pub found: String,
    /// A hint, unless the result is fine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The largest difference between two clocks that is reported as fine. Times in logs and reports depend on clocks.
const SKEW: Duration = Duration::from_secs(60);

/// What is checked.
pub struct Examined<'a> {
    /// The directory of the kit.
    pub kit: &'a Path,
    /// The identity key, if it is not in the kit.
    pub identity: Option<&'a Path>,
    /// The data directory.
    pub data: Option<&'a Path>,
    /// The hash of the roster, as a person has compared it with other parties.
    pub roster: Option<&'a RosterHash>,
    /// The keys that the task may have.
    pub key_lengths: KeyLengths,
}

/// Checks a kit, and a data directory if one is given.
pub async fn examine(examined: &Examined<'_>) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    let Examined { kit: directory, identity, data, roster, key_lengths } = *examined;
    let kit = match Kit::read_with_identity(directory, identity, key_lengths) {
        Ok(kit) => kit,
        Err(error) => {
            findings.bad("kit", error.to_string(), error.hint());
            return findings.0;
        }
    };
    let task = kit.roster().task();
    let what = format!(
        "{} of task {:?}: profile {}, {} users, {}-bit key; all files match",
        party_name(kit.party()),
        kit.task_file().task.name,
        task.profile(),
        kit.roster().users().len(),
        task.key_bits().get(),
    );
    findings.ok("kit", what);
    if !task.key_bits().is_secure() {
        findings.note(
            "key",
            "the key is too short to protect anything; use it for reproduction only".into(),
            None,
        );
    }
    findings.identity(&kit);
    findings.roster(&kit, roster);
    findings.keys(&kit);
    findings.directory_mode(directory);
    if let Some(data) = data {
        findings.data(&kit, data).await;
    }
    findings.port(&kit).await;
    for peer in peers(kit.party()) {
        findings.peer(&kit, peer).await;
    }
    findings.0
}

/// Returns the services that a party calls.
pub fn peers(party: PartyId) -> Vec<PartyId> {
    match party {
        PartyId::KeyGenerator => Vec::new(),
        PartyId::Aggregator => vec![PartyId::KeyGenerator],
        PartyId::User(_) => vec![PartyId::Aggregator],
    }
}

/// Asks a service of the task for its status.
///
/// # Errors
/// Fails if the service cannot be reached, or if it does not prove the party's identity.
pub async fn ask_status(kit: &Kit, party: PartyId) -> Result<Answer, Error> {
    let parties = &kit.task_file().parties;
    let address = match party {
        PartyId::KeyGenerator => &parties.key_generator,
        _ => &parties.aggregator,
    };
    let mut client = Client::new(address.clone(), kit.tls().client(party)?, 1 << 20);
    let answer = client.send(Method::GET, "/v1/status", None, Bytes::new(), Duration::from_secs(10)).await?;
    Ok(answer)
}

/// Opens a data directory, and checks that it is the one of this kit.
async fn matching_store(kit: &Kit, directory: &Path) -> Result<(), Error> {
    let mut store = SqliteStore::open(directory).await?;
    let about = store.about().await?;
    store.close().await?;
    kit.check_store(&about)
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, health: Health, what: &'static str, found: String, hint: Option<String>) {
        self.0.push(Finding { health, what, found, hint });
    }

    fn ok(&mut self, what: &'static str, found: String) {
        self.add(Health::Ok, what, found, None);
    }

    fn note(&mut self, what: &'static str, found: String, hint: Option<String>) {
        self.add(Health::Note, what, found, hint);
    }

    fn bad(&mut self, what: &'static str, found: String, hint: Option<String>) {
        self.add(Health::Bad, what, found, hint);
    }

    /// Tells what other parties can compare by telephone.
    fn identity(&mut self, kit: &Kit) {
        match kit.fingerprint() {
            Ok(fingerprint) => self.ok("identity", format!("fingerprint {fingerprint}")),
            Err(error) => self.bad("identity", error.to_string(), error.hint()),
        }
    }

    fn roster(&mut self, kit: &Kit, compared: Option<&RosterHash>) {
        let hash = Fingerprint::of_roster(kit.roster());
        match kit.check_roster(compared) {
            Err(error) => self.bad("roster", error.to_string(), error.hint()),
            Ok(()) if compared.is_some() => self.ok("roster", format!("hash {hash}, as compared")),
            // a party that has run has remembered the hash
            Ok(()) if kit.needs_no_comparison() || matches!(kit.moved_to(), Ok(Some(_))) => {
                self.ok("roster", format!("hash {hash}"));
            }
            Ok(()) => {
                let hint = "Compare it with the other parties by telephone, and pass it with `--roster`.";
                self.note("roster", format!("hash {hash}, not compared yet"), Some(hint.into()));
            }
        }
    }

    fn keys(&mut self, kit: &Kit) {
        let moved = match kit.moved_to() {
            Ok(moved) => moved,
            Err(error) => return self.bad("keys", error.to_string(), error.hint()),
        };
        let read = match (kit.party(), moved) {
            (PartyId::KeyGenerator, _) if kit.needs_passphrase() => {
                return self.ok(
                    "keys",
                    "the decryption key is encrypted with a passphrase; it was not decrypted".into(),
                );
            }
            (PartyId::KeyGenerator, None) => kit.key_generator(b"").map(drop),
            (PartyId::KeyGenerator, Some(_)) => kit.decryption_key(b"").map(drop),
            (PartyId::User(_), None) => kit.user_keys().map(drop),
            (PartyId::User(_), Some(_)) => kit.encryption_key().map(drop),
            (PartyId::Aggregator, None) => kit.aggregator_keys().map(drop),
            (PartyId::Aggregator, Some(_)) => kit.encryption_key().map(drop),
        };
        match read {
            Ok(()) if kit.party() == PartyId::KeyGenerator => {
                let found = "the keys can be read; only its file mode protects the decryption key".into();
                self.note("keys", found, Some("Use a passphrase if a person starts the service.".into()));
            }
            Ok(()) => self.ok("keys", "the keys can be read and belong to this task".into()),
            Err(error) => self.bad("keys", error.to_string(), error.hint()),
        }
        self.models(kit);
        match moved {
            Some(store) => self.ok("seeds", format!("they moved into the data {store} at the first start")),
            None => self.ok("seeds", "they are in the kit, and move into the data at the first start".into()),
        }
    }

    /// Checks the models that rounds start from.
    fn models(&mut self, kit: &Kit) {
        let weights = match kit.party() {
            PartyId::KeyGenerator => Ok(()),
            PartyId::Aggregator | PartyId::User(_) => kit.initial_model().map(drop),
        };
        match weights.and_then(|()| kit.start().map(drop)) {
            Ok(()) => self.ok("model", "the initial model can be read and is the one of the roster".into()),
            Err(error) => self.bad("model", error.to_string(), error.hint()),
        }
    }

    #[cfg(unix)]
    fn directory_mode(&mut self, directory: &Path) {
        use std::os::unix::fs::PermissionsExt as _;
        match std::fs::metadata(directory).map(|metadata| metadata.permissions().mode() & 0o777) {
            Ok(mode) if mode & 0o077 == 0 => self.ok("mode", "only its owner can access the kit".into()),
            Ok(mode) => {
                let hint = Some(format!("Run `chmod 700 {}`.", directory.display()));
                self.note(
                    "mode",
                    format!("other users of this machine can access the kit (mode {mode:o})"),
                    hint,
                );
            }
            Err(error) => self.bad("mode", error.to_string(), None),
        }
    }

    #[cfg(not(unix))]
    fn directory_mode(&mut self, _: &Path) {}

    async fn data(&mut self, kit: &Kit, directory: &Path) {
        match matching_store(kit, directory).await {
            Ok(()) => self.ok("data", format!("{} can be written", directory.display())),
            Err(error @ Error::Store(StoreError::InUse { .. })) => {
                self.note(
                    "data",
                    error.to_string(),
                    Some("Ignore this if the party is already running.".into()),
                );
            }
            Err(error) => self.bad("data", error.to_string(), error.hint()),
        }
    }

    async fn port(&mut self, kit: &Kit) {
        let parties = &kit.task_file().parties;
        let address = match kit.party() {
            PartyId::Aggregator => &parties.aggregator,
            PartyId::KeyGenerator => &parties.key_generator,
            PartyId::User(_) => return,
        };
        match TcpListener::bind(address).await {
            Ok(_) => self.ok("port", format!("{address} is free")),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                let hint = Some("Ignore this if the party is already running.".into());
                self.note("port", format!("{address} is already in use"), hint);
            }
            Err(error) => {
                let hint = Some("Start the service with `--listen 0.0.0.0:PORT` if the address belongs to a router in front of it.".into());
                self.note("port", format!("the service cannot listen on {address}: {error}"), hint);
            }
        }
    }

    async fn peer(&mut self, kit: &Kit, peer: PartyId) {
        match ask_status(kit, peer).await {
            Ok(answer) => {
                self.ok("peer", format!("the {} answers and has the right identity", party_name(peer)));
                self.clock(answer.date);
            }
            Err(Error::Client(error @ ClientError::Transport { fault, .. })) => {
                self.bad("peer", error.to_string(), Some(fault.hint(peer)));
            }
            Err(error) => self.bad("peer", error.to_string(), error.hint()),
        }
    }

    fn clock(&mut self, theirs: Option<SystemTime>) {
        let Some(theirs) = theirs else { return };
        let ours = SystemTime::now();
        let skew = ours.duration_since(theirs).or_else(|_| theirs.duration_since(ours)).unwrap_or_default();
        let found = format!("{} s off the peer's clock", skew.as_secs());
        if skew <= SKEW {
            self.ok("clock", found);
        } else {
            self.note(
                "clock",
                found,
                Some("Set both clocks. Times in logs and reports depend on them.".into()),
            );
        }
    }
}
