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
use crate::kit::Kit;
use crate::party::party_name;
use crate::store::{SqliteStore, StoreError};

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

/// Checks a kit, and a data directory if one is given.
pub async fn examine(directory: &Path, data: Option<&Path>, key_lengths: KeyLengths) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    let kit = match Kit::read_with(directory, key_lengths) {
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
    findings.keys(&kit);
    findings.directory_mode(directory);
    if let Some(data) = data {
        findings.data(data).await;
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

    fn keys(&mut self, kit: &Kit) {
        let read = match kit.party() {
            PartyId::User(_) => kit.user_keys().map(drop),
            PartyId::Aggregator => kit.aggregator_keys().and_then(|_| kit.initial_model()).map(drop),
            PartyId::KeyGenerator if kit.needs_passphrase() => {
                return self.ok(
                    "keys",
                    "the decryption key is encrypted with a passphrase; it was not decrypted".into(),
                );
            }
            PartyId::KeyGenerator => kit.key_generator(b"").map(drop),
        };
        match read {
            Ok(()) if kit.party() == PartyId::KeyGenerator => {
                let found = "the keys can be read; only its file mode protects the decryption key".into();
                self.note("keys", found, Some("Use a passphrase if a person starts the service.".into()));
            }
            Ok(()) => self.ok("keys", "the keys can be read and belong to this task".into()),
            Err(error) => self.bad("keys", error.to_string(), error.hint()),
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

    async fn data(&mut self, directory: &Path) {
        match SqliteStore::open(directory).await {
            Ok(store) => {
                let _ = store.close().await;
                self.ok("data", format!("{} can be written", directory.display()));
            }
            Err(error @ StoreError::InUse { .. }) => {
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
            Err(error @ Error::Client(ClientError::Transport { .. })) => {
                let hint = Some("Start the peer, and check its address and the firewalls in between.".into());
                self.bad("peer", error.to_string(), hint);
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
