//! Start-up kits: one folder a party, with all it needs to take part and nothing of anybody else's.
//!
//! | file | who | what |
//! | --- | --- | --- |
//! | `kit.toml` | all | whose kit this is, and the roster it pins |
//! | `task.toml` | all | the task file |
//! | `roster.bin` | all | the roster, signed by the key generator |
//! | `authority.pem`, `certificate.pem` | all | the task's authority; this party's certificate |
//! | `tls.key`, `identity.key` | all, secret | the keys of the certificate and of the identity |
//! | `seeds.bin` | all, secret | seeds and the encryption key, by role |
//! | `paillier.key` | key generator, secret | the key that decrypts |
//! | `authority.key` | key generator, secret | the key that signs certificates |
//! | `certificate.pem.old`, `tls.key.old` | after `dphe certificate install` | what was there before |
//! | `initial.model` | aggregator | the model that rounds start from |
//! | `initial.safetensors` | all, if the task has one | the same with the names of classes and the standardisation |

mod make;
mod renew;
mod request;

pub use make::{KitPlan, KitSet, Protection, UserKit, make_kits};
pub use renew::{install_certificate, issue_certificates, request_certificate};
pub use request::{Request, make_request};

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dphe::{AggregatorKeys, Digest, IdentityKey, KeyGenerator, Party, Profile, Roster, UserKeys};
use dphe_paillier::DecryptionKey;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::certificates::{TlsIdentity, certificate_name, party_of, role_name};
use crate::key_file::{self, KeyFileError};
use crate::model::Model;
use crate::task_file::TaskFile;

const FORMAT: u32 = 1;
const START: &str = "initial.safetensors";
const WATCH_TOKEN: &str = "watch.token";
/// No roster or seed file is longer: 65,536 users of 44 bytes, and a key.
const MAX_BYTES: u64 = 4 << 20;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KitFile {
    format: u32,
    party: String,
    task: String,
    task_id: String,
    roster_hash: String,
    /// Of the key generator: whether its key needs a passphrase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    passphrase: Option<bool>,
}

/// A kit that has been read: everything in it belongs together.
pub struct Kit {
    folder: PathBuf,
    party: Party,
    needs_passphrase: bool,
    task_file: TaskFile,
    roster: Arc<Roster>,
    tls: TlsIdentity,
}

/// Why a kit cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KitError {
    /// It is no kit.
    #[error("{} is not a kit: {reason}", folder.display())]
    NotAKit {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Two of its files do not belong together.
    #[error("{} does not belong to this kit: {reason}", file.display())]
    Foreign {
        /// One of them.
        file: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The kit of another role.
    #[error("this is the kit of {found}, and {wanted} was to be started")]
    Role {
        /// Whose kit it is.
        found: String,
        /// Whose kit was needed.
        wanted: &'static str,
    },
    /// A folder that is there already.
    #[error("{} exists already", folder.display())]
    Exists {
        /// The folder.
        folder: PathBuf,
    },
    /// A request that cannot be taken.
    #[error("the request of {party} cannot be used: {reason}")]
    Request {
        /// Whose request.
        party: String,
        /// Why not.
        reason: String,
    },
}

impl KitError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotAKit { .. } => "--kit names a folder made by `dphe keygen`, such as kits/user-1".into(),
            Self::Foreign { .. } => "copy the whole kit again; kits of different runs do not mix".into(),
            Self::Role { found, .. } if found.starts_with("user") => "`dphe join` for a user's kit".into(),
            Self::Role { found, .. } => format!("`dphe serve {found}` for this kit"),
            Self::Exists { .. } => "another folder with --output; kits are never overwritten".into(),
            Self::Request { .. } => {
                "make it again: `dphe keygen --request` from the same task file, or `dphe certificate request`".into()
            }
        })
    }
}

impl Kit {
    /// Reads a kit and checks that everything in it belongs together.
    ///
    /// # Errors
    /// If something is missing, damaged, another kit's, or a secret that others can read.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let not_a_kit = |reason: String| KitError::NotAKit { folder: folder.into(), reason };
        let path = folder.join("kit.toml");
        let text = std::fs::read_to_string(&path).map_err(|error| not_a_kit(format!("kit.toml: {error}")))?;
        let file: KitFile =
            toml::from_str(&text).map_err(|error| not_a_kit(format!("kit.toml: {}", error.message())))?;
        if file.format != FORMAT {
            return Err(
                not_a_kit(format!("its format is {}, this program reads {FORMAT}", file.format)).into()
            );
        }
        let party =
            party_of(&file.party).ok_or_else(|| not_a_kit(format!("there is no role {:?}", file.party)))?;
        let task_file = TaskFile::read(&folder.join("task.toml"))?;
        let roster = Roster::decode(&read(folder, "roster.bin")?)?;
        let foreign =
            |name: &str, reason: &str| KitError::Foreign { file: folder.join(name), reason: reason.into() };
        if hex(roster.hash().as_bytes()) != file.roster_hash {
            return Err(foreign("roster.bin", "it is not the roster that the kit pins").into());
        }
        if Some(roster.task().id()) != task_file.id() || file.task_id != task_file.task.id {
            return Err(foreign("task.toml", "it is another task's").into());
        }
        let identity = IdentityKey::from_kit_bytes(&read_secret(folder, "identity.key")?)?.identity();
        if roster.identity(party)? != identity {
            return Err(foreign("identity.key", "the roster has another identity for this party").into());
        }
        let tls = TlsIdentity::from_pem(
            &read(folder, "authority.pem")?,
            &read(folder, "certificate.pem")?,
            &read_secret(folder, "tls.key")?,
        )?;
        if tls.name() != Some(certificate_name(roster.task().id(), party, &identity)) {
            return Err(foreign("certificate.pem", "it names another party or task").into());
        }
        // key and certificate must be a pair
        tls.client()?;
        let needs_passphrase = file.passphrase.unwrap_or(false);
        Ok(Self { folder: folder.into(), party, needs_passphrase, task_file, roster: Arc::new(roster), tls })
    }

    /// Whose kit it is.
    pub fn party(&self) -> Party {
        self.party
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The task file.
    pub fn task_file(&self) -> &TaskFile {
        &self.task_file
    }

    /// The roster it pins.
    pub fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// Certificates and their key.
    pub fn tls(&self) -> &TlsIdentity {
        &self.tls
    }

    /// The identity's secret key.
    ///
    /// # Errors
    /// If it has gone since the kit was read.
    pub fn identity(&self) -> Result<IdentityKey, Error> {
        Ok(IdentityKey::from_kit_bytes(&read_secret(&self.folder, "identity.key")?)?)
    }

    /// A user's keys.
    ///
    /// # Errors
    /// If it is not a user's kit, or they are damaged or of another task.
    pub fn user_keys(&self) -> Result<UserKeys, Error> {
        let Party::User(user) = self.party else { return Err(self.role("a user").into()) };
        let keys = UserKeys::from_kit_bytes(&read_secret(&self.folder, "seeds.bin")?)?;
        if keys.user() != user || keys.task() != self.roster.task() {
            return Err(self.foreign_seeds().into());
        }
        Ok(keys)
    }

    /// The aggregator's keys.
    ///
    /// # Errors
    /// If it is not the aggregator's kit, or they are damaged or of another task.
    pub fn aggregator_keys(&self) -> Result<AggregatorKeys, Error> {
        if self.party != Party::Aggregator {
            return Err(self.role("the aggregator").into());
        }
        let keys = AggregatorKeys::from_kit_bytes(&read_secret(&self.folder, "seeds.bin")?)?;
        if keys.task() != self.roster.task() {
            return Err(self.foreign_seeds().into());
        }
        Ok(keys)
    }

    /// The model that rounds start from, of the aggregator's kit.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn initial_model(&self) -> Result<Vec<u8>, Error> {
        if self.party != Party::Aggregator {
            return Err(self.role("the aggregator").into());
        }
        let path = self.folder.join("initial.model");
        std::fs::read(&path).map_err(|source| KeyFileError::Read { path, source }.into())
    }

    /// The model that rounds start from, with the names of classes and the standardisation, if the task has one.
    ///
    /// # Errors
    /// If it cannot be read, or is of another shape than the task.
    pub fn start(&self) -> Result<Option<Model>, Error> {
        let path = self.folder.join(START);
        if !path.exists() {
            return Ok(None);
        }
        let model = Model::read(&path)?;
        let shape = (model.weights.features(), model.weights.classes());
        if shape != (self.task_file.model.features as usize, self.task_file.model.classes as usize) {
            return Err(Error::Model { reason: "the initial model has another shape than the task" });
        }
        Ok(Some(model))
    }

    /// What the page to watch the task on asks for, of the aggregator's kit. Without it there is no page.
    ///
    /// # Errors
    /// If others can read it, or it is no token.
    pub fn watch_token(&self) -> Result<Option<zeroize::Zeroizing<String>>, Error> {
        if !self.folder.join(WATCH_TOKEN).exists() {
            return Ok(None);
        }
        let bytes = read_secret(&self.folder, WATCH_TOKEN)?;
        let text = core::str::from_utf8(&bytes).unwrap_or_default().trim();
        if text.len() < 16 || !text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            let reason = format!("{WATCH_TOKEN} must be at least 16 letters and digits");
            return Err(KitError::NotAKit { folder: self.folder.clone(), reason }.into());
        }
        Ok(Some(zeroize::Zeroizing::new(text.to_owned())))
    }

    /// Whether the key generator's key needs a passphrase.
    pub fn needs_passphrase(&self) -> bool {
        self.needs_passphrase
    }

    /// The key generator, with the key that decrypts.
    ///
    /// # Errors
    /// If it is not the key generator's kit, the passphrase is wrong, or something is damaged.
    pub fn key_generator(&self, passphrase: &[u8]) -> Result<KeyGenerator, Error> {
        if self.party != Party::KeyGenerator {
            return Err(self.role("the key generator").into());
        }
        let sealed = read_secret(&self.folder, "paillier.key")?;
        let key = match self.roster.task().profile() {
            // only this profile has keys below 2048 bits
            Profile::Paper => dphe_paillier::hazmat::open_secret_key(&sealed, passphrase)?,
            _ => DecryptionKey::open(&sealed, passphrase)?,
        };
        let keys = KeyGenerator::from_kit_bytes(&read_secret(&self.folder, "seeds.bin")?, key)?;
        if keys.task() != self.roster.task() {
            return Err(self.foreign_seeds().into());
        }
        Ok(keys)
    }

    fn role(&self, wanted: &'static str) -> KitError {
        KitError::Role { found: role_name(self.party), wanted }
    }

    fn foreign_seeds(&self) -> KitError {
        KitError::Foreign {
            file: self.folder.join("seeds.bin"),
            reason: "it is another task's or user's".into(),
        }
    }
}

impl std::fmt::Debug for Kit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kit({}, {:?})", role_name(self.party), self.roster.hash())
    }
}

fn read(folder: &Path, name: &str) -> Result<zeroize::Zeroizing<Vec<u8>>, KeyFileError> {
    Ok(key_file::read_up_to(&folder.join(name), MAX_BYTES)?.bytes)
}

fn read_secret(folder: &Path, name: &str) -> Result<zeroize::Zeroizing<Vec<u8>>, KeyFileError> {
    let file = key_file::read_up_to(&folder.join(name), MAX_BYTES)?;
    file.refuse_readable_by_others()?;
    Ok(file.bytes)
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digest with these hexadecimal digits.
pub fn digest_from_hex(text: &str) -> Option<Digest> {
    unhex(text).map(Digest::from_bytes)
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}
