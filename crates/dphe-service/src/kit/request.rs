//! Requests of parties that create their secret keys themselves and ask for a kit without them.

use std::path::Path;

use dphe::wire::Agreement;
use dphe::{Identity, IdentityKey, PartyId, TaskId};
use rand_core::CryptoRng;
use serde::{Deserialize, Serialize};

use super::{FORMAT, KitError, make::make_folder};
use crate::Error;
use crate::hex;
use crate::key_file::{write_public, write_secret};
use crate::party::{party_name, party_of};
use crate::task_file::TaskFile;

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
        let text = std::fs::read_to_string(path).map_err(|source| error(source.to_string()))?;
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
        KitError::Request { party: self.party.clone(), reason: reason.into() }
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

/// Creates the secret key of a party in a new directory, and a request for the key generator.
///
/// # Errors
/// Fails if the directory already exists or cannot be written.
pub fn make_request(
    task_file: &TaskFile,
    party: PartyId,
    folder: &Path,
    rng: &mut impl CryptoRng,
) -> Result<(), Error> {
    let Some(task) = task_file.id() else { return Err(Error::Unexpected { what: "the task has no id" }) };
    make_folder(folder)?;
    let identity = IdentityKey::generate(rng);
    write_secret(&folder.join("identity.key"), &identity.to_secret_bytes())?;
    let text = toml::to_string(&Request::new(task, party, &identity))
        .map_err(|_| Error::Unexpected { what: "the request cannot be written as TOML" })?;
    Ok(write_public(&folder.join("request.toml"), text.as_bytes())?)
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
