//! Requests of parties that create their secret keys themselves and ask for a kit without them.

use std::path::{Path, PathBuf};

use dphe::wire::Agreement;
use dphe::{Identity, IdentityKey, PartyId, TaskId};
use rand_core::CryptoRng;
use serde::{Deserialize, Serialize};

use super::{FORMAT, Fingerprint, IDENTITY, KitError, make::make_folder};
use crate::Error;
use crate::files;
use crate::hex;
use crate::http::remote_text::clean;
use crate::key_file::{KeyFileError, write_public, write_secret};
use crate::party::{party_name, party_of};
use crate::task_file::TaskFile;

/// The largest request that is read.
const MAX_BYTES: u64 = 64 * 1024;

/// The file that a party sends to the operator of the key generator, for `dphe keygen`. It contains no secrets.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    format: u32,
    party: String,
    task_id: String,
    identity: String,
    /// The key that uploads to the aggregator are encrypted to.
    agreement: String,
    /// The identity's signature of the party's name and the agreement key, which proves that the sender has the secret
    /// key.
    signature: String,
}

impl Request {
    fn new(task: TaskId, party: PartyId, identity: &IdentityKey) -> Self {
        let party = party_name(party);
        let agreement = hex::encode(identity.agreement_key().public().as_bytes());
        let signature = hex::encode(&identity.sign_request(task, &signed(&party, &agreement)));
        let identity = hex::encode(&identity.identity().to_bytes());
        Self { format: FORMAT, party, task_id: task.to_string(), identity, agreement, signature }
    }

    /// Reads a request.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is not a request.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let error = |reason: String| KitError::Request { party: path.display().to_string(), reason };
        let bytes = files::read_at_most(path, MAX_BYTES).map_err(|source| error(source.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| error("the file is not text".to_owned()))?;
        let format: Format = toml::from_str(&text).map_err(|source| error(source.message().to_owned()))?;
        if format.format != FORMAT {
            let other = format.format;
            return Err(error(format!(
                "the request has format {other}, and this program reads format {FORMAT}"
            ))
            .into());
        }
        Ok(toml::from_str(&text).map_err(|source| error(source.message().to_owned()))?)
    }

    /// Returns the party that sent the request.
    ///
    /// # Errors
    /// Fails if the name is not that of a party.
    pub fn party(&self) -> Result<PartyId, Error> {
        party_of(&self.party).ok_or_else(|| self.error("there is no such party").into())
    }

    /// Returns the identity, if the request is for this task and its sender has the identity's key.
    pub(super) fn check(&self, task_file: &TaskFile) -> Result<Identity, Error> {
        let task = task_file.id().filter(|_| self.task_id == task_file.task.id);
        let task = task.ok_or_else(|| self.error("the request is for another task"))?;
        let identity = hex::decode(&self.identity)
            .ok_or_else(|| self.error("the identity is not 64 hexadecimal digits"))?;
        let identity = Identity::from_bytes(&identity)?;
        let signature = hex::decode(&self.signature)
            .ok_or_else(|| self.error("the signature is not 128 hexadecimal digits"))?;
        identity
            .verify_request(task, &signed(&self.party, &self.agreement), &signature)
            .map_err(|_| self.error("the signature was not made by the identity in the request"))?;
        Ok(identity)
    }

    /// Returns the key that uploads are encrypted to, if this is the aggregator's request.
    pub(super) fn agreement(&self) -> Result<Agreement, Error> {
        let bytes = hex::decode(&self.agreement)
            .ok_or_else(|| self.error("the agreement key is not 64 hexadecimal digits"))?;
        Ok(Agreement::from_bytes(bytes)?)
    }

    fn error(&self, reason: &str) -> KitError {
        KitError::Request { party: clean(&self.party), reason: reason.into() }
    }
}

/// Returns what the identity signs.
fn signed(party: &str, agreement: &str) -> Vec<u8> {
    format!("{party}\n{agreement}").into_bytes()
}

/// The field that all formats share.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// Reads requests from files and directories. In a directory, every file with the extension `toml` is a request.
///
/// # Errors
/// Fails if a file or a directory cannot be read, or if a file is not a request.
pub fn read_requests(paths: &[PathBuf]) -> Result<Vec<Request>, Error> {
    let mut requests = Vec::new();
    for path in paths {
        if path.is_dir() {
            for file in requests_in(path)? {
                requests.push(Request::read(&file)?);
            }
        } else {
            requests.push(Request::read(path)?);
        }
    }
    Ok(requests)
}

/// Returns the files with requests in a directory, by name.
fn requests_in(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let error = |source| KeyFileError::Read { path: directory.into(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(error)? {
        let path = entry.map_err(error)?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A request as written, and the secret key that belongs to it.
pub struct MadeRequest {
    /// The file with the secret key.
    pub identity: PathBuf,
    /// The file to send.
    pub request: PathBuf,
    /// The fingerprint of the identity.
    pub fingerprint: Fingerprint,
}

/// Creates the secret key of a party in a new directory, and a request for the key generator. The request's file is
/// named after the party, so that the requests of all parties can be put into one directory.
///
/// # Errors
/// Fails if the directory already exists or cannot be written.
pub fn make_request(
    task_file: &TaskFile,
    party: PartyId,
    folder: &Path,
    rng: &mut impl CryptoRng,
) -> Result<MadeRequest, Error> {
    let Some(task) = task_file.id() else { return Err(Error::Unexpected { what: "the task has no id" }) };
    make_folder(folder)?;
    let key = IdentityKey::generate(rng);
    let fingerprint = Fingerprint::of_identity(&key.identity());
    let (identity, request) =
        (folder.join(IDENTITY), folder.join(format!("{}-request.toml", party_name(party))));
    write_secret(&identity, &key.to_secret_bytes())?;
    let text = toml::to_string(&Request::new(task, party, &key))
        .map_err(|_| Error::Unexpected { what: "the request cannot be written as TOML" })?;
    write_public(&request, text.as_bytes())?;
    Ok(MadeRequest { identity, request, fingerprint })
}

#[cfg(test)]
mod tests {
    use dphe::UserId;

    use super::*;

    #[test]
    fn request_is_refused_unless_signed_by_its_identity_for_this_party_and_task() {
        let (own, other) = (IdentityKey::from_seed(&[1; 32]), IdentityKey::from_seed(&[2; 32]));
        let text = crate::task_file::template(TaskId::from_bytes([3; 16]));
        let task_file = TaskFile::parse(&text, Path::new("task.toml")).unwrap();
        let task = task_file.id().unwrap();
        let user = |number| PartyId::User(UserId::new(number).unwrap());
        let request = Request::new(task, user(1), &own);
        let read: Request = toml::from_str(&toml::to_string(&request).unwrap()).unwrap();
        assert_eq!(read.check(&task_file).unwrap(), own.identity());
        let reason = |request: Request| request.check(&task_file).unwrap_err().to_string();
        let foreign = Request { identity: hex::encode(&other.identity().to_bytes()), ..request.clone() };
        assert!(reason(foreign).contains("not made by the identity"));
        let moved = Request { party: party_name(user(2)), ..request.clone() };
        assert!(reason(moved).contains("not made by the identity"), "valid for another party");
        let elsewhere = Request::new(TaskId::from_bytes([4; 16]), user(1), &own);
        assert!(reason(elsewhere.clone()).contains("another task"));
        let renamed = Request { task_id: request.task_id.clone(), ..elsewhere };
        assert!(reason(renamed).contains("not made by the identity"), "valid for another task");
        for wrong in ["", "ab", &"é".repeat(64), &"0".repeat(127), &"0".repeat(129)] {
            let malformed = Request { signature: wrong.to_owned(), ..request.clone() };
            assert!(reason(malformed).contains("128 hexadecimal digits"), "{wrong}");
        }
    }
}
