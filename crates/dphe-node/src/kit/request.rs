//! A party that makes its secret keys at its own place, and asks for a kit without them.

use std::path::Path;

use dphe::{Identity, IdentityKey, Party};
use rand_core::CryptoRng;
use serde::{Deserialize, Serialize};

use super::{FORMAT, KitError, hex, make::make_folder, unhex};
use crate::Error;
use crate::certificates::{certificate_name, new_key, party_of, request, role_name};
use crate::key_file::{write_public, write_secret};
use crate::task_file::TaskFile;

/// What a party sends to whoever runs `dphe keygen`: nothing secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub(super) format: u32,
    pub(super) party: String,
    pub(super) task_id: String,
    pub(super) identity: String,
    pub(super) request: String,
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let error = |reason: String| KitError::Request { party: path.display().to_string(), reason };
        let text = std::fs::read_to_string(path).map_err(|source| error(source.to_string()))?;
        let request: Self = toml::from_str(&text).map_err(|source| error(source.message().to_owned()))?;
        match request.format {
            FORMAT => Ok(request),
            other => Err(error(format!("its format is {other}, this program reads {FORMAT}")).into()),
        }
    }

    /// Whose request it is.
    ///
    /// # Errors
    /// If there is no such role.
    pub fn party(&self) -> Result<Party, Error> {
        party_of(&self.party).ok_or_else(|| self.error("there is no such role").into())
    }

    /// The identity it is for, and the request for a certificate, if it is of this task.
    pub(super) fn check(&self, task_file: &TaskFile) -> Result<(Identity, &str), Error> {
        if self.task_id != task_file.task.id {
            return Err(self.error("it is for another task").into());
        }
        let identity = unhex(&self.identity).ok_or_else(|| self.error("its identity is not 64 digits"))?;
        Ok((Identity::from_bytes(&identity)?, &self.request))
    }

    fn error(&self, reason: &str) -> KitError {
        KitError::Request { party: self.party.clone(), reason: reason.into() }
    }
}

/// Makes the secret keys of a party in a new folder, and the request that goes to the key generator.
///
/// # Errors
/// If the folder is there already or cannot be written.
pub fn make_request(
    task_file: &TaskFile,
    party: Party,
    folder: &Path,
    rng: &mut impl CryptoRng,
) -> Result<(), Error> {
    let Some(task) = task_file.id() else { return Err(Error::Unexpected { what: "a task without an id" }) };
    make_folder(folder)?;
    let (identity, key) = (IdentityKey::generate(rng), new_key()?);
    let name = certificate_name(task, party, &identity.identity());
    let request = Request {
        format: FORMAT,
        party: role_name(party),
        task_id: task.to_string(),
        identity: hex(&identity.identity().to_bytes()),
        request: request(&name, &key)?,
    };
    write_secret(&folder.join("identity.key"), &identity.to_kit_bytes())?;
    write_secret(&folder.join("tls.key"), zeroize::Zeroizing::new(key.serialize_pem()).as_bytes())?;
    let text =
        toml::to_string(&request).map_err(|_| Error::Unexpected { what: "a request that is no TOML" })?;
    write_public(&folder.join("request.toml"), text.as_bytes())?;
    Ok(())
}
