//! Start-up kits: one directory per party, with everything that the party needs to take part in a task and nothing that
//! belongs to another party.
//!
//! | file | in the kit of | contents |
//! | --- | --- | --- |
//! | `kit.toml` | all | the party's name, and the hash of the roster |
//! | `README.txt` | all | what to do with the kit |
//! | `task.toml` | all | the task file |
//! | `roster.bin` | all | the roster, signed by the key generator |
//! | `identity.key` | all, secret | the private key of the party's identity, for messages and TLS |
//! | `seeds.bin` | all, secret | the seeds of this role, and the encryption key; later, where the seeds are |
//! | `paillier.key` | key generator, secret | the decryption key |
//! | `roster-2.change` | all | the first change of the roster that was applied; later ones have higher numbers |
//! | `identity-2.key` | aggregator, secret | the key of its identity from this roster on |
//! | `dashboard.token` | aggregator, secret | the token of the dashboard |
//! | `initial.model` | aggregator, users | the initial global weights or tensors, whose digest is in the roster |
//! | `initial.safetensors` | all, if the task has one | the same with class names and standardisation |

mod change;
mod fingerprint;
mod make;
mod request;
mod seeds;
mod start;

pub use change::{AppliedChange, KitChange, MadeChange, apply_change, make_change};
pub use fingerprint::{Fingerprint, RosterHash};
pub use make::{KitPlan, KitSet, MadeKits, Protection, UserKit, make_kits};
pub use request::{MadeRequest, Request, make_request, read_requests};
pub use start::Start;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dphe::party::IdentityKeys;
use dphe::wire::Rosters;
use dphe::{
    AggregatorKeys, Digest, IdentityKey, KeyGenerator, KeyLengths, PartyId, Roster, UserId, UserKeys,
};
use dphe_paillier::{DecryptionKey, EncryptionKey};
use seeds::{SEEDS, SeedsFile};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::files;
use crate::hex;
use crate::key_file::{self, KeyFileError};
use crate::model::Model;
use crate::party::{party_name, party_of};
use crate::store::{AboutStore, StoreId};
use crate::task_file::TaskFile;
use crate::tls::TlsIdentity;

/// Kits of format 1 had certificates, and those of format 2 no mask seeds.
const FORMAT: u32 = 3;
const START: &str = "initial.safetensors";
const IDENTITY: &str = "identity.key";
/// How many missing requests an error names.
const NAMED_PARTIES: usize = 8;
const DASHBOARD_TOKEN: &str = "dashboard.token";
/// The name of the same file in kits of version 0.1.0.
const OLD_DASHBOARD_TOKEN: &str = "watch.token";
/// The largest roster has 65,536 users of 68 bytes each.
const MAX_BYTES: u64 = 8 << 20;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KitFile {
    format: u32,
    party: String,
    task: String,
    task_id: String,
    roster_hash: String,
    /// Whether the decryption key needs a passphrase. Only in the key generator's kit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    passphrase: Option<bool>,
    /// Whether `dphe keygen` made the identity keys of all parties, for a demo or a test.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    for_all_parties: bool,
}

/// A kit whose files have been checked against each other.
pub struct Kit {
    folder: PathBuf,
    party: PartyId,
    needs_passphrase: bool,
    for_all_parties: bool,
    identity: PathBuf,
    task_file: TaskFile,
    /// The first roster of the kit, and the changes that were applied since.
    rosters: Rosters,
    /// The latest roster.
    roster: Arc<Roster>,
    tls: TlsIdentity,
    key_lengths: KeyLengths,
}

/// An error in a kit or in a request for one.
#[derive(Debug, thiserror::Error)]
pub enum KitError {
    /// The directory is not a kit.
    #[error("{} is not a kit: {reason}", folder.display())]
    NotAKit {
        /// The directory.
        folder: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A kit of an earlier version.
    #[error("the kit {} has format {format}, but this program reads format {FORMAT}", folder.display())]
    Format {
        /// The directory.
        folder: PathBuf,
        /// Its format.
        format: u32,
    },
    /// Two files do not belong to the same kit.
    #[error("{} does not belong to this kit: {reason}", file.display())]
    Foreign {
        /// The file that does not match the others.
        file: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file of the kit is damaged.
    #[error("{} is damaged: {reason}", file.display())]
    Damaged {
        /// The damaged file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Other users of this machine can read a secret of the kit.
    #[error("{} is secret, but others on this machine can read it (mode {mode:o})", file.display())]
    ReadableByOthers {
        /// The kit's directory.
        folder: PathBuf,
        /// The file.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The kit belongs to a party with another role.
    #[error("this kit belongs to {} and cannot start {wanted}", party_name(*found))]
    Role {
        /// The kit's party.
        found: PartyId,
        /// The party whose kit is needed.
        wanted: &'static str,
    },
    /// The directory exists already.
    #[error("{} already exists", folder.display())]
    Exists {
        /// The directory.
        folder: PathBuf,
    },
    /// A change of the roster cannot be applied.
    #[error("the roster change cannot be applied: {reason}")]
    Change {
        /// The reason.
        reason: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// A request is invalid.
    #[error("the request of {party} cannot be used: {reason}")]
    Request {
        /// The party that sent the request.
        party: String,
        /// The reason.
        reason: String,
    },
    /// Some parties sent no request.
    #[error("these parties sent no request: {}", some_of(parties))]
    MissingRequests {
        /// The names of the parties.
        parties: Vec<String>,
    },
    /// The kit has no identity key.
    #[error("{} has no identity.key, because the party made this key itself", folder.display())]
    NoIdentity {
        /// The kit's directory.
        folder: PathBuf,
    },
    /// The hash that a person passed is not the hash of the kit's roster.
    #[error("the roster of this kit has the hash {found}, not {compared}")]
    WrongRoster {
        /// The hash that the person passed.
        compared: RosterHash,
        /// The hash of the kit's roster.
        found: Fingerprint,
    },
    /// The party has run with another roster.
    #[error(
        "this data belongs to a task whose roster has the hash {known}, but the roster of the kit has {found}"
    )]
    OtherRoster {
        /// The hash that the store remembers.
        known: Fingerprint,
        /// The hash of the kit's roster.
        found: Fingerprint,
    },
    /// Nobody has passed the hash of the roster.
    #[error("this is the first start with this roster, and nobody has confirmed its hash")]
    RosterNotCompared,
    /// The seeds of the kit moved into another store.
    #[error("{} has no seeds any more: they moved into the data {store} at the first start", folder.display())]
    SeedsMoved {
        /// The kit's directory.
        folder: PathBuf,
        /// The store that has the seeds.
        store: StoreId,
    },
    /// The seeds cannot be removed from the kit.
    #[error("the seeds are in the log, but cannot be removed from {}: {source}", folder.display())]
    ReadOnly {
        /// The kit's directory.
        folder: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// Lists names, or the first of many.
fn some_of(names: &[String]) -> String {
    match names.len().checked_sub(NAMED_PARTIES) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{}, and {more} more", names[..NAMED_PARTIES].join(", ")),
    }
}

impl KitError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotAKit { .. } => {
                "Set `--kit` to a directory made by `dphe keygen`, such as kits/user-1.".into()
            }
            Self::Format { .. } => {
                "Finish the task with the version that started it. Or make new kits with `dphe keygen`, and start a new \
                 task from the old model with `dphe init --model`."
                    .into()
            }
            Self::Foreign { .. } => {
                "Copy the whole kit again. Files from different `dphe keygen` runs cannot be mixed.".into()
            }
            Self::Damaged { file, .. } if file.ends_with(IDENTITY) => {
                "Restore it from a backup. Without one, this party needs a new identity: see \"Members get a new \
                 identity\" in docs/operations.md."
                    .into()
            }
            Self::Damaged { .. } => {
                "Restore it from a backup of the kit, or copy it again from the kit that was handed over.".into()
            }
            Self::ReadableByOthers { folder, .. } => format!("Run `chmod -R go= {}`.", folder.display()),
            Self::Role { found: PartyId::User(_), .. } => "Run `dphe join` with this kit.".into(),
            Self::Role { found: found @ (PartyId::Aggregator | PartyId::KeyGenerator), .. } => {
                format!("Run `dphe serve {}` with this kit.", party_name(*found))
            }
            Self::Change { hint, .. } => (*hint).into(),
            Self::Exists { .. } => {
                "Choose another directory with `--output`. Kits are never overwritten.".into()
            }
            Self::Request { .. } => {
                "Make a new request from the same task file with `dphe keygen --request`.".into()
            }
            Self::MissingRequests { .. } => {
                "Ask each party to run `dphe keygen --request PARTY`. Then add `--with` and the files that they send. \
                 For a demo or a test, add `--for-all-parties`."
                    .into()
            }
            Self::NoIdentity { .. } => {
                "Start the party with `--identity FILE` once, where FILE is the identity.key that \
                 `dphe keygen --request` made."
                    .into()
            }
            Self::WrongRoster { .. } => {
                "Check the digits. If other parties have another hash than this kit, do not start: somebody has \
                 handed out different rosters."
                    .into()
            }
            Self::OtherRoster { .. } => {
                "Use the kit that this data was made with, or a new data directory for a new task.".into()
            }
            Self::RosterNotCompared => {
                "Run `dphe doctor`, compare the hash that it prints with the other parties by telephone, and pass it \
                 with `--roster HASH`."
                    .into()
            }
            Self::SeedsMoved { .. } => {
                "Start the party with the data directory or database of its first start, or with a backup of it. \
                 Without that data it can no longer take part in this task."
                    .into()
            }
            Self::ReadOnly { .. } => {
                "Make the kit writable for this user, and start the party again with the same data.".into()
            }
        })
    }
}

impl Kit {
    /// Reads a kit and checks its files against each other.
    ///
    /// # Errors
    /// Fails if a file is missing, damaged or from another kit, or if other users of this machine can read a secret.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        Self::read_with(folder, KeyLengths::default())
    }

    /// Reads a kit as [`Kit::read`], with other key lengths. Only the `hazmat` feature of `dphe` has values that accept
    /// the short keys of the paper.
    ///
    /// # Errors
    /// As [`Kit::read`].
    pub fn read_with(folder: &Path, key_lengths: KeyLengths) -> Result<Self, Error> {
        Self::read_with_identity(folder, None, key_lengths)
    }

    /// Reads a kit as [`Kit::read_with`]. The identity key is in this file instead of the kit.
    ///
    /// # Errors
    /// As [`Kit::read`]. Fails too if the kit has another identity key.
    pub fn read_with_identity(
        folder: &Path,
        identity: Option<&Path>,
        key_lengths: KeyLengths,
    ) -> Result<Self, Error> {
        let not_a_kit = |reason: String| KitError::NotAKit { folder: folder.into(), reason };
        let path = folder.join("kit.toml");
        let text = std::fs::read_to_string(&path).map_err(|error| not_a_kit(format!("kit.toml: {error}")))?;
        let file: KitFile =
            toml::from_str(&text).map_err(|error| not_a_kit(format!("kit.toml: {}", error.message())))?;
        if file.format != FORMAT {
            return Err(KitError::Format { folder: folder.into(), format: file.format }.into());
        }
        let party = party_of(&file.party)
            .ok_or_else(|| not_a_kit(format!("kit.toml names an unknown party {:?}", file.party)))?;
        let task_file = TaskFile::read(&folder.join("task.toml"))?;
        let text = read(folder, "task.toml")?;
        let roster = Roster::decode_with(&read(folder, "roster.bin")?, key_lengths)
            .map_err(|error| damaged(folder, "roster.bin", error))?;
        let foreign =
            |name: &str, reason: &str| KitError::Foreign { file: folder.join(name), reason: reason.into() };
        if hex::encode(roster.hash().as_bytes()) != file.roster_hash {
            return Err(foreign("roster.bin", "kit.toml has the hash of another roster").into());
        }
        if Some(roster.task().id()) != task_file.id() || file.task_id != task_file.task.id {
            return Err(foreign("task.toml", "the file describes another task").into());
        }
        if roster.task_file() != Digest::of_task_file(&text) {
            return Err(foreign("task.toml", "the roster has the hash of another task file").into());
        }
        // what people agree on is the task file, and what the parties enforce is the policy in the roster
        if !task_file.is_enforced_by(roster.task().config())? {
            return Err(foreign("roster.bin", "its policy is not the one of task.toml").into());
        }
        let rosters = change::read_rosters(folder, roster, key_lengths)?;
        let roster = Arc::new(rosters.latest().clone());
        let identity_file = identity_file(folder, identity)?;
        let Some((identity, _)) = change::read_identities(folder, &identity_file, party, &rosters)? else {
            let reason = "the roster has another identity for this party".to_owned();
            return Err(KitError::Foreign { file: identity_file, reason }.into());
        };
        let tls = TlsIdentity::new(identity, roster.clone());
        Ok(Self {
            folder: folder.into(),
            party,
            needs_passphrase: file.passphrase.unwrap_or(false),
            for_all_parties: file.for_all_parties,
            identity: identity_file,
            task_file,
            rosters,
            roster,
            tls,
            key_lengths,
        })
    }

    /// Puts a copy of the identity key into the kit, if it is elsewhere. The key is one that the roster names.
    ///
    /// # Errors
    /// Fails if the kit cannot be written.
    pub fn keep_identity(&self) -> Result<(), Error> {
        let kept = self.folder.join(IDENTITY);
        if kept.exists() {
            return Ok(());
        }
        let bytes = read_identity(&self.identity)?.to_secret_bytes();
        files::replace_private(&kept, &bytes)
            .map_err(|source| KeyFileError::Write { path: kept, source }.into())
    }

    /// Checks the hash of the latest roster, which a person has compared with other parties. The hash of an earlier one
    /// says nothing about the changes after it.
    ///
    /// # Errors
    /// [`KitError::WrongRoster`] if the kit has another roster.
    pub fn check_roster(&self, compared: Option<&RosterHash>) -> Result<(), Error> {
        match compared {
            Some(compared) if !compared.matches(&self.roster) => {
                let found = Fingerprint::of_roster(&self.roster);
                Err(KitError::WrongRoster { compared: compared.clone(), found }.into())
            }
            _ => Ok(()),
        }
    }

    /// Returns whether nobody has to compare the roster: all keys were made in one place for a demo or a test, and both
    /// services are on this machine. The kit alone does not decide this, because its maker could then keep a user from
    /// comparing.
    pub(crate) fn needs_no_comparison(&self) -> bool {
        self.for_all_parties && self.task_file.parties.are_local()
    }

    /// Returns the fingerprint of the party's identity.
    ///
    /// # Errors
    /// Fails only if the roster does not have the party, which was checked when the kit was read.
    pub fn fingerprint(&self) -> Result<Fingerprint, Error> {
        Ok(Fingerprint::of_identity(&self.roster.identity(self.party)?))
    }

    /// Returns the party that the kit belongs to.
    pub fn party(&self) -> PartyId {
        self.party
    }

    /// Returns the kit's directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the task file.
    pub fn task_file(&self) -> &TaskFile {
        &self.task_file
    }

    /// Returns the rosters: the first one, whose hash is in the kit, and the changes that were applied.
    pub fn rosters(&self) -> &Rosters {
        &self.rosters
    }

    /// Returns the latest roster. Until its first round, the one before is in force.
    pub fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// Returns the party's side of TLS.
    pub fn tls(&self) -> &TlsIdentity {
        &self.tls
    }

    /// Reads the secret key of the party's identity.
    ///
    /// # Errors
    /// Fails if the file has been removed or damaged since the kit was read.
    pub fn identity(&self) -> Result<IdentityKey, Error> {
        Ok(self.all_identities()?.0)
    }

    /// Reads the secret keys of the party's present and earlier identities.
    ///
    /// # Errors
    /// As [`Kit::identity`].
    pub fn identities(&self) -> Result<IdentityKeys, Error> {
        let (present, former) = self.all_identities()?;
        Ok(IdentityKeys::new(present, former))
    }

    fn all_identities(&self) -> Result<(IdentityKey, Vec<IdentityKey>), Error> {
        let found = change::read_identities(&self.folder, &self.identity, self.party, &self.rosters)?;
        let file = self.identity.clone();
        let reason = "the roster has another identity for this party".into();
        found.ok_or_else(|| KitError::Foreign { file, reason }.into())
    }

    /// Returns the user whose kit this is.
    ///
    /// # Errors
    /// [`KitError::Role`] if this is not a user's kit.
    pub fn user(&self) -> Result<UserId, Error> {
        match self.party {
            PartyId::User(user) => Ok(user),
            PartyId::Aggregator | PartyId::KeyGenerator => Err(self.role("a user").into()),
        }
    }

    /// Reads a user's keys from a kit that was never used. [`Start`] has the keys of a party that has run.
    ///
    /// # Errors
    /// Fails if this is not a user's kit, if the seeds have moved, or if the keys are damaged or belong to another
    /// task.
    pub fn user_keys(&self) -> Result<UserKeys, Error> {
        self.user()?;
        self.user_keys_in(&self.seeds_in_kit()?)
    }

    /// Reads the aggregator's keys from a kit that was never used. [`Start`] has the keys of a party that has run.
    ///
    /// # Errors
    /// Fails if this is not the aggregator's kit, if the seeds have moved, or if the keys are damaged or belong to
    /// another task.
    pub fn aggregator_keys(&self) -> Result<AggregatorKeys, Error> {
        self.check_is_aggregator()?;
        self.aggregator_keys_in(&self.seeds_in_kit()?)
    }

    /// Reads the encryption key from the kit of the aggregator or of a user.
    ///
    /// # Errors
    /// Fails if this is the key generator's kit, or if the file is damaged.
    pub fn encryption_key(&self) -> Result<EncryptionKey, Error> {
        if !self.has_encryption_key() {
            return Err(self.role("the aggregator or a user").into());
        }
        self.encryption_key_in(&self.seeds()?)
    }

    fn has_encryption_key(&self) -> bool {
        self.party != PartyId::KeyGenerator
    }

    fn encryption_key_in(&self, seeds: &SeedsFile) -> Result<EncryptionKey, Error> {
        match seeds {
            SeedsFile::Here(bytes) if self.party == PartyId::Aggregator => {
                Ok(self.aggregator_keys_in(bytes)?.encryption_key().clone())
            }
            SeedsFile::Here(bytes) => Ok(self.user_keys_in(bytes)?.encryption_key().clone()),
            SeedsFile::Moved(moved) => {
                let bytes = moved.encryption_key.as_ref().ok_or_else(|| self.foreign_seeds())?;
                let config = self.roster.task().config();
                let key = self.key_lengths.encryption_key(config, bytes);
                Ok(key.map_err(|error| damaged(&self.folder, SEEDS, error))?)
            }
        }
    }

    fn seeds(&self) -> Result<SeedsFile, Error> {
        SeedsFile::read(&self.folder)
    }

    /// Returns the store that the seeds moved into, if they did.
    ///
    /// # Errors
    /// Fails if the file is missing or damaged.
    pub fn moved_to(&self) -> Result<Option<StoreId>, Error> {
        match self.seeds()? {
            SeedsFile::Here(_) => Ok(None),
            SeedsFile::Moved(moved) => Ok(Some(moved.store)),
        }
    }

    /// Checks that the party ran with this roster in a store, and that the seeds did not move into another one.
    pub(crate) fn check_store(&self, about: &AboutStore) -> Result<(), Error> {
        if let Some(known) = about.roster
            && self.rosters.iter().all(|roster| roster.hash() != known)
        {
            let (known, found) = (Fingerprint::of_digest(&known), Fingerprint::of_roster(&self.roster));
            return Err(KitError::OtherRoster { known, found }.into());
        }
        match self.moved_to()? {
            Some(store) if store != about.id => {
                Err(KitError::SeedsMoved { folder: self.folder.clone(), store }.into())
            }
            _ => Ok(()),
        }
    }

    fn seeds_in_kit(&self) -> Result<zeroize::Zeroizing<Vec<u8>>, Error> {
        match self.seeds()? {
            SeedsFile::Here(bytes) => Ok(bytes),
            SeedsFile::Moved(moved) => {
                Err(KitError::SeedsMoved { folder: self.folder.clone(), store: moved.store }.into())
            }
        }
    }

    fn user_keys_in(&self, seeds: &[u8]) -> Result<UserKeys, Error> {
        let user = self.user()?;
        let keys = UserKeys::from_secret_bytes_with(seeds, self.key_lengths)
            .map_err(|error| damaged(&self.folder, SEEDS, error))?;
        if keys.user() != user || keys.task() != self.roster.task() {
            return Err(self.foreign_seeds().into());
        }
        Ok(keys)
    }

    fn aggregator_keys_in(&self, seeds: &[u8]) -> Result<AggregatorKeys, Error> {
        self.check_is_aggregator()?;
        let keys = AggregatorKeys::from_secret_bytes_with(seeds, self.key_lengths)
            .map_err(|error| damaged(&self.folder, SEEDS, error))?;
        if keys.task() != self.roster.task() {
            return Err(self.foreign_seeds().into());
        }
        Ok(keys)
    }

    fn check_is_aggregator(&self) -> Result<(), KitError> {
        if self.party == PartyId::Aggregator { Ok(()) } else { Err(self.role("the aggregator")) }
    }

    /// Reads the initial global weights from the kit of the aggregator or of a user.
    ///
    /// # Errors
    /// Fails if this is the key generator's kit, or if the file cannot be read or is not the roster's.
    pub fn initial_model(&self) -> Result<Vec<u8>, Error> {
        if self.party == PartyId::KeyGenerator {
            return Err(self.role("the aggregator or a user").into());
        }
        let path = self.folder.join("initial.model");
        let model =
            std::fs::read(&path).map_err(|source| KeyFileError::Read { path: path.clone(), source })?;
        if Digest::of_model(&model) != self.roster.initial_model() {
            let reason = "the file is damaged, or the roster has another initial model".into();
            return Err(KitError::Damaged { file: path, reason }.into());
        }
        match self.task_file.tensors() {
            Ok(sections) => Ok(sections.model(model)?.into_bytes()),
            Err(_) => Ok(model),
        }
    }

    /// Reads the initial model with class names and standardisation, if the task has one.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if its shape is not that of the task.
    pub fn start(&self) -> Result<Option<Model>, Error> {
        let path = self.folder.join(START);
        // tensors have no class names, and their initial model is a safetensors file anyway
        if self.task_file.tensors().is_ok() || !path.exists() {
            return Ok(None);
        }
        let model = Model::read(&path)?;
        let shape = (model.weights.features(), model.weights.classes());
        let size = self.task_file.linear()?.model_size();
        if shape != (size.features, size.classes) {
            return Err(Error::Model { reason: "the initial model does not have the shape of the task" });
        }
        Ok(Some(model))
    }

    /// Reads the dashboard's token from the aggregator's kit. Without a token there is no dashboard.
    ///
    /// # Errors
    /// Fails if other users of this machine can read the token, or if it is malformed.
    pub fn dashboard_token(&self) -> Result<Option<zeroize::Zeroizing<String>>, Error> {
        let names = [DASHBOARD_TOKEN, OLD_DASHBOARD_TOKEN];
        let Some(name) = names.into_iter().find(|name| self.folder.join(name).exists()) else {
            return Ok(None);
        };
        let bytes = read_secret(&self.folder, name)?;
        let text = core::str::from_utf8(&bytes).unwrap_or_default().trim();
        if text.len() < 16 || !text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            let reason = format!("{name} must contain at least 16 letters and digits, and nothing else");
            return Err(KitError::NotAKit { folder: self.folder.clone(), reason }.into());
        }
        Ok(Some(zeroize::Zeroizing::new(text.to_owned())))
    }

    /// Returns whether the decryption key needs a passphrase.
    pub fn needs_passphrase(&self) -> bool {
        self.needs_passphrase
    }

    /// Reads the key generator's keys, including the decryption key, from a kit that was never used. [`Start`] has the
    /// keys of a key generator that has run.
    ///
    /// # Errors
    /// Fails if this is not the key generator's kit, the passphrase is wrong, the seeds have moved, or a file is
    /// damaged.
    pub fn key_generator(&self, passphrase: &[u8]) -> Result<KeyGenerator, Error> {
        let key = self.decryption_key(passphrase)?;
        self.key_generator_in(&self.seeds_in_kit()?, key)
    }

    /// Reads the decryption key from the key generator's kit.
    ///
    /// # Errors
    /// Fails if this is not the key generator's kit, the passphrase is wrong, or the file is damaged.
    pub fn decryption_key(&self, passphrase: &[u8]) -> Result<DecryptionKey, Error> {
        if self.party != PartyId::KeyGenerator {
            return Err(self.role("the key generator").into());
        }
        let sealed = read_secret(&self.folder, "paillier.key")?;
        let key = self.key_lengths.decryption_key(self.roster.task().config(), &sealed, passphrase);
        key.map_err(|error| match error {
            // what a person can get wrong
            error @ dphe_paillier::Error::KeyEncrypted => error.into(),
            error => damaged(&self.folder, "paillier.key", error).into(),
        })
    }

    fn key_generator_in(&self, seeds: &[u8], key: DecryptionKey) -> Result<KeyGenerator, Error> {
        let keys = KeyGenerator::from_secret_bytes_with(seeds, key, self.key_lengths)
            .map_err(|error| damaged(&self.folder, SEEDS, error))?;
        if keys.task() != self.roster.task() {
            return Err(self.foreign_seeds().into());
        }
        Ok(keys)
    }

    fn role(&self, wanted: &'static str) -> KitError {
        KitError::Role { found: self.party, wanted }
    }

    fn foreign_seeds(&self) -> KitError {
        KitError::Foreign {
            file: self.folder.join(SEEDS),
            reason: "the keys belong to another task or user".into(),
        }
    }
}

impl std::fmt::Debug for Kit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kit({}, {:?})", party_name(self.party), self.roster.hash())
    }
}

/// Returns the file of the identity key: the given one, or the one in the kit.
fn identity_file(folder: &Path, given: Option<&Path>) -> Result<PathBuf, Error> {
    let kept = folder.join(IDENTITY);
    match given {
        None if !kept.exists() => Err(KitError::NoIdentity { folder: folder.into() }.into()),
        None => Ok(kept),
        Some(given)
            if kept.exists() && read_identity(given)?.identity() != read_identity(&kept)?.identity() =>
        {
            let reason = "it is another key than the one given with `--identity`".to_owned();
            Err(KitError::Foreign { file: kept, reason }.into())
        }
        Some(given) => Ok(given.into()),
    }
}

fn read_identity(path: &Path) -> Result<IdentityKey, Error> {
    let file = key_file::read_up_to(path, MAX_BYTES)?;
    file.refuse_readable_by_others()?;
    let damaged = |error: dphe::Error| KitError::Damaged { file: path.into(), reason: error.to_string() };
    Ok(IdentityKey::from_secret_bytes(&file.bytes).map_err(damaged)?)
}

/// Returns the error of a file that cannot be decoded.
fn damaged(folder: &Path, name: &str, reason: impl std::fmt::Display) -> KitError {
    KitError::Damaged { file: folder.join(name), reason: reason.to_string() }
}

fn read(folder: &Path, name: &str) -> Result<zeroize::Zeroizing<Vec<u8>>, KeyFileError> {
    Ok(key_file::read_up_to(&folder.join(name), MAX_BYTES)?.bytes)
}

fn read_secret(folder: &Path, name: &str) -> Result<zeroize::Zeroizing<Vec<u8>>, Error> {
    let file = key_file::read_up_to(&folder.join(name), MAX_BYTES)?;
    match file.refuse_readable_by_others() {
        Ok(()) => Ok(file.bytes),
        // a kit that was copied without its modes has several such files
        Err(KeyFileError::ReadableByOthers { path, mode }) => {
            Err(KitError::ReadableByOthers { folder: folder.into(), file: path, mode }.into())
        }
        Err(error) => Err(error.into()),
    }
}
