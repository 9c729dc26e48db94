//! Looks at everything a party needs before the day it matters.

use std::path::Path;
use std::time::{Duration, SystemTime};

use axum::http::Method;
use bytes::Bytes;
use dphe::Party;
use serde::Serialize;
use time::OffsetDateTime;
use tokio::net::TcpListener;

use crate::Error;
use crate::certificates::{role_name, server_name};
use crate::http::client::{Answer, Client, ClientError};
use crate::kit::Kit;
use crate::store::{SqliteStore, StoreError};

/// How well something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Well.
    Ok,
    /// Look at it.
    Note,
    /// It will not work.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// How well it is.
    pub health: Health,
    /// What was looked at.
    pub what: &'static str,
    /// What was found.
    pub found: String,
    /// What to try, if it is not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Clocks that differ by more than this make trouble with certificates sooner or later.
const SKEW: Duration = Duration::from_secs(60);
/// Certificates that end sooner are worth a word.
const SOON: i64 = 14;

/// Looks at a kit, and at a data folder if there is one.
pub async fn examine(folder: &Path, data: Option<&Path>) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    let kit = match Kit::read(folder) {
        Ok(kit) => kit,
        Err(error) => {
            findings.bad("kit", error.to_string(), error.hint());
            return findings.0;
        }
    };
    let task = kit.roster().task();
    let what = format!(
        "{} of task {:?}: profile {}, {} users, {}-bit key; its files belong together",
        role_name(kit.party()),
        kit.task_file().task.name,
        task.profile(),
        kit.roster().users().len(),
        task.key_bits().get(),
    );
    findings.ok("kit", what);
    if !task.key_bits().is_secure() {
        findings.note("key", "so short a key protects nothing: for reproduction only".into(), None);
    }
    findings.keys(&kit);
    findings.folder_mode(folder);
    findings.certificate(&kit);
    if let Some(data) = data {
        findings.data(data).await;
    }
    findings.port(&kit).await;
    for peer in peers(kit.party()) {
        findings.peer(&kit, peer).await;
    }
    findings.0
}

/// Whom a party calls.
pub fn peers(party: Party) -> Vec<Party> {
    match party {
        Party::KeyGenerator => Vec::new(),
        Party::Aggregator => vec![Party::KeyGenerator],
        Party::User(_) => vec![Party::Aggregator],
    }
}

/// Asks a service of the task how it stands.
///
/// # Errors
/// If it cannot be reached, or is not who it should be.
pub async fn ask_status(kit: &Kit, party: Party) -> Result<Answer, Error> {
    let parties = &kit.task_file().parties;
    let address = match party {
        Party::KeyGenerator => &parties.key_generator,
        _ => &parties.aggregator,
    };
    let name = server_name(kit.roster(), party)?;
    let mut client = Client::new(address.clone(), name, kit.tls().client()?, 1 << 20);
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
            Party::User(_) => kit.user_keys().map(drop),
            Party::Aggregator => kit.aggregator_keys().and_then(|_| kit.initial_model()).map(drop),
            Party::KeyGenerator if kit.needs_passphrase() => {
                return self.ok("keys", "the key that decrypts has a passphrase; it was not tried".into());
            }
            Party::KeyGenerator => kit.key_generator(b"").map(drop),
        };
        match read {
            Ok(()) if kit.party() == Party::KeyGenerator => {
                let found =
                    "they can be read; the key that decrypts is protected by its file's mode alone".into();
                self.note("keys", found, Some("a passphrase, if a person starts the service".into()));
            }
            Ok(()) => self.ok("keys", "they can be read, and are of this task".into()),
            Err(error) => self.bad("keys", error.to_string(), error.hint()),
        }
    }

    #[cfg(unix)]
    fn folder_mode(&mut self, folder: &Path) {
        use std::os::unix::fs::PermissionsExt as _;
        match std::fs::metadata(folder).map(|metadata| metadata.permissions().mode() & 0o777) {
            Ok(mode) if mode & 0o077 == 0 => self.ok("mode", "the kit is its owner's alone".into()),
            Ok(mode) => {
                let hint = Some(format!("chmod 700 {}", folder.display()));
                self.note(
                    "mode",
                    format!("others on this machine can look into the kit (mode {mode:o})"),
                    hint,
                );
            }
            Err(error) => self.bad("mode", error.to_string(), None),
        }
    }

    #[cfg(not(unix))]
    fn folder_mode(&mut self, _: &Path) {}

    fn certificate(&mut self, kit: &Kit) {
        let Some(validity) = kit.tls().validity() else {
            return self.bad("certificate", "it cannot be read".into(), None);
        };
        let now = OffsetDateTime::now_utc();
        let left = (validity.to - now).whole_days();
        let renew = || Some("`dphe certificate issue`, at the key generator".to_owned());
        if now < validity.from {
            let hint = Some("set the clock of this machine".into());
            self.bad("certificate", format!("it is not valid before {}", validity.from.date()), hint);
        } else if now > validity.to {
            self.bad("certificate", format!("it was valid until {}", validity.to.date()), renew());
        } else if left < SOON {
            self.note("certificate", format!("it is valid for {left} more days"), renew());
        } else {
            self.ok("certificate", format!("it is valid for {left} more days"));
        }
    }

    async fn data(&mut self, folder: &Path) {
        match SqliteStore::open(folder).await {
            Ok(store) => {
                let _ = store.close().await;
                self.ok("data", format!("{} can be written", folder.display()));
            }
            Err(error @ StoreError::InUse { .. }) => {
                self.note("data", error.to_string(), Some("that is well if this party runs already".into()));
            }
            Err(error) => self.bad("data", error.to_string(), error.hint()),
        }
    }

    async fn port(&mut self, kit: &Kit) {
        let parties = &kit.task_file().parties;
        let address = match kit.party() {
            Party::Aggregator => &parties.aggregator,
            Party::KeyGenerator => &parties.key_generator,
            Party::User(_) => return,
        };
        match TcpListener::bind(address).await {
            Ok(_) => self.ok("port", format!("{address} is free")),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                let hint = Some("that is well if this party runs already".into());
                self.note("port", format!("something listens on {address}"), hint);
            }
            Err(error) => {
                let hint = Some("--listen 0.0.0.0:PORT, if the address is that of a router before it".into());
                self.note("port", format!("{address} cannot be listened on: {error}"), hint);
            }
        }
    }

    async fn peer(&mut self, kit: &Kit, peer: Party) {
        match ask_status(kit, peer).await {
            Ok(answer) => {
                self.ok("peer", format!("the {} answers, and is who it should be", role_name(peer)));
                self.clock(answer.date);
            }
            Err(error @ Error::Client(ClientError::Line { .. })) => {
                let hint =
                    Some("start it first; see that its address is right and no firewall is between".into());
                self.bad("peer", error.to_string(), hint);
            }
            Err(error) => self.bad("peer", error.to_string(), error.hint()),
        }
    }

    fn clock(&mut self, theirs: Option<SystemTime>) {
        let Some(theirs) = theirs else { return };
        let ours = SystemTime::now();
        let skew = ours.duration_since(theirs).or_else(|_| theirs.duration_since(ours)).unwrap_or_default();
        let found = format!("{} s from the peer's", skew.as_secs());
        if skew <= SKEW {
            self.ok("clock", found);
        } else {
            self.note("clock", found, Some("set both clocks: certificates are valid by them".into()));
        }
    }
}
