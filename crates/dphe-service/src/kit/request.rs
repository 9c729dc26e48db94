//! Requests of parties that create their secret keys themselves and ask for a kit without them.

use std::path::Path;

use dphe::{Identity, IdentityKey, PartyId, TaskId};
use rand_core::CryptoRng;
use rcgen::KeyPair;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{FORMAT, KitError, make::make_folder};
use crate::Error;
use crate::certificates::{certificate_name, new_key, party_name, party_of, request};
use crate::hex;
use crate::key_file::{write_public, write_secret};
use crate::task_file::TaskFile;

/// The file that a party sends to the operator of the key generator, for `dphe keygen` or `dphe certificate issue`. It
/// contains no secrets.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    format: u32,
    party: String,
    task_id: String,
    identity: String,
    request: String,
    /// The identity's signature of the request. A party's first request has none, because no roster with its identity
    /// exists yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
}

impl Request {
    /// Creates a request for a certificate of this party for this TLS key.
    pub(super) fn new(
        task: TaskId,
        party: PartyId,
        identity: &Identity,
        key: &KeyPair,
    ) -> Result<Self, Error> {
        Ok(Self {
            format: FORMAT,
            party: party_name(party),
            task_id: task.to_string(),
            identity: hex::encode(&identity.to_bytes()),
            request: request(&certificate_name(task, party, identity), key)?,
            signature: None,
        })
    }

    /// Signs the request with the party's identity.
    pub(super) fn signed(mut self, task: TaskId, identity: &IdentityKey) -> Self {
        self.signature =
            Some(hex::encode(&identity.sign_certificate_request(task, self.covered().as_bytes())));
        self
    }

    /// Writes the request and its secret TLS key into a directory.
    pub(super) fn write(&self, folder: &Path, key: &KeyPair) -> Result<(), Error> {
        write_secret(&folder.join("tls.key"), Zeroizing::new(key.serialize_pem()).as_bytes())?;
        let text = toml::to_string(self)
            .map_err(|_| Error::Unexpected { what: "the request cannot be written as TOML" })?;
        Ok(write_public(&folder.join("request.toml"), text.as_bytes())?)
    }

    /// Reads a request.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is not a request.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let error = |reason: String| KitError::Request { party: path.display().to_string(), reason };
        let text = std::fs::read_to_string(path).map_err(|source| error(source.to_string()))?;
        let request: Self = toml::from_str(&text).map_err(|source| error(source.message().to_owned()))?;
        match request.format {
            FORMAT => Ok(request),
            other => {
                Err(error(format!("the request has format {other}, but this program reads format {FORMAT}"))
                    .into())
            }
        }
    }

    /// Returns the party that sent the request.
    ///
    /// # Errors
    /// Fails if the name is not that of a party.
    pub fn party(&self) -> Result<PartyId, Error> {
        party_of(&self.party).ok_or_else(|| self.error("there is no such party").into())
    }

    /// Returns the identity and the certificate signing request, if the request is for this task.
    pub(super) fn check(&self, task_file: &TaskFile) -> Result<(Identity, &str), Error> {
        if self.task_id != task_file.task.id {
            return Err(self.error("the request is for another task").into());
        }
        let identity = hex::decode(&self.identity)
            .ok_or_else(|| self.error("the identity is not 64 hexadecimal digits"))?;
        Ok((Identity::from_bytes(&identity)?, &self.request))
    }

    /// Fails unless the request is signed by this identity. Everything else in it is public, so anyone could have
    /// made it.
    pub(super) fn check_signature(&self, task: TaskId, identity: &Identity) -> Result<(), Error> {
        let Some(text) = &self.signature else {
            let reason =
                "it is not signed by the party's identity; `dphe certificate request` makes a signed one";
            return Err(self.error(reason).into());
        };
        let signature =
            hex::decode(text).ok_or_else(|| self.error("the signature is not 128 hexadecimal digits"))?;
        identity.verify_certificate_request(task, self.covered().as_bytes(), &signature).map_err(|_| {
            self.error("the signature was not made by the party's identity in the roster").into()
        })
    }

    /// The signed text. It is the whole PEM text, so that the signature does not depend on how it is parsed. Carriage
    /// returns are dropped, because mail programs add them.
    fn covered(&self) -> String {
        self.request.replace('\r', "")
    }

    fn error(&self, reason: &str) -> KitError {
        KitError::Request { party: self.party.clone(), reason: reason.into() }
    }
}

/// Creates the secret keys of a party in a new directory, and a request for the key generator.
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
    let (identity, key) = (IdentityKey::generate(rng), new_key()?);
    let request = Request::new(task, party, &identity.identity(), &key)?;
    write_secret(&folder.join("identity.key"), &identity.to_secret_bytes())?;
    request.write(folder, &key)
}

#[cfg(test)]
mod tests {
    use dphe::UserId;

    use super::*;

    #[test]
    fn request_is_refused_unless_signed_by_its_party() {
        let (own, other) = (IdentityKey::from_seed(&[1; 32]), IdentityKey::from_seed(&[2; 32]));
        let (task, another) = (TaskId::from_bytes([3; 16]), TaskId::from_bytes([4; 16]));
        let party = PartyId::User(UserId::new(1).unwrap());
        let make = || Request::new(task, party, &own.identity(), &new_key().unwrap()).unwrap();
        let reason =
            |request: &Request| request.check_signature(task, &own.identity()).unwrap_err().to_string();
        let signed = make().signed(task, &own);
        signed.check_signature(task, &own.identity()).unwrap();
        assert!(signed.check_signature(another, &own.identity()).is_err());
        // read back from a file
        let text = toml::to_string(&signed).unwrap();
        let read: Request = toml::from_str(&text).unwrap();
        read.check_signature(task, &own.identity()).unwrap();
        let mut lines = signed.clone();
        lines.request = signed.request.replace('\n', "\r\n");
        lines.check_signature(task, &own.identity()).unwrap();
        // signed by nobody, or by another identity
        assert!(reason(&make()).contains("not signed"));
        assert!(reason(&make().signed(task, &other)).contains("not made by the party's identity"));
        // a valid signature is not valid for another key
        let mut moved = make();
        moved.signature = signed.signature.clone();
        assert!(reason(&moved).contains("not made by the party's identity"));
        moved.request = format!("{}{}", make().request, signed.request);
        assert!(reason(&moved).contains("not made by the party's identity"), "nor to two requests in one");
        for wrong in ["", "ab", &"é".repeat(64), &"0".repeat(127), &"0".repeat(129)] {
            moved.signature = Some(wrong.to_owned());
            assert!(reason(&moved).contains("128 hexadecimal digits"), "{wrong}");
        }
    }
}
