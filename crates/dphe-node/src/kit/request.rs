//! A party that makes its secret keys at its own place, and asks for a kit without them.

use std::path::Path;

use dphe::{Identity, IdentityKey, Party, TaskId};
use rand_core::CryptoRng;
use rcgen::KeyPair;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{FORMAT, KitError, hex, make::make_folder, unhex};
use crate::Error;
use crate::certificates::{certificate_name, new_key, party_of, request, role_name};
use crate::key_file::{write_public, write_secret};
use crate::task_file::TaskFile;

/// What a party sends to whoever runs `dphe keygen` or `dphe certificate issue`: nothing secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    format: u32,
    party: String,
    task_id: String,
    identity: String,
    request: String,
    /// Of the identity over the request. Not in a party's first one, before there is a roster to know its identity by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
}

impl Request {
    /// For a certificate of this party's for this TLS key.
    pub(super) fn new(task: TaskId, party: Party, identity: &Identity, key: &KeyPair) -> Result<Self, Error> {
        Ok(Self {
            format: FORMAT,
            party: role_name(party),
            task_id: task.to_string(),
            identity: hex(&identity.to_bytes()),
            request: request(&certificate_name(task, party, identity), key)?,
            signature: None,
        })
    }

    /// The same, signed by the party that asks.
    pub(super) fn signed(mut self, task: TaskId, identity: &IdentityKey) -> Self {
        self.signature = Some(hex(&identity.sign_certificate_request(task, self.covered().as_bytes())));
        self
    }

    /// Writes it into a folder, with the TLS key that it is for, which stays there.
    pub(super) fn write(&self, folder: &Path, key: &KeyPair) -> Result<(), Error> {
        write_secret(&folder.join("tls.key"), Zeroizing::new(key.serialize_pem()).as_bytes())?;
        let text =
            toml::to_string(self).map_err(|_| Error::Unexpected { what: "a request that is no TOML" })?;
        Ok(write_public(&folder.join("request.toml"), text.as_bytes())?)
    }

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

    /// Whether it was signed by this identity. All else in it is public, and anybody could have put it together.
    pub(super) fn check_signature(&self, task: TaskId, identity: &Identity) -> Result<(), Error> {
        let Some(text) = &self.signature else {
            let reason =
                "it is not signed by the party's identity; `dphe certificate request` makes one that is";
            return Err(self.error(reason).into());
        };
        let signature =
            signature_from_hex(text).ok_or_else(|| self.error("its signature is not 128 digits"))?;
        identity
            .verify_certificate_request(task, self.covered().as_bytes(), &signature)
            .map_err(|_| self.error("its signature is not that of the party's identity in the roster").into())
    }

    /// What is signed: the whole text, so that nothing in it is left to how it is parsed, but for line ends, which may
    /// change on the way.
    fn covered(&self) -> String {
        self.request.replace('\r', "")
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
    let request = Request::new(task, party, &identity.identity(), &key)?;
    write_secret(&folder.join("identity.key"), &identity.to_kit_bytes())?;
    request.write(folder, &key)
}

fn signature_from_hex(text: &str) -> Option<[u8; 64]> {
    let (first, second) = text.split_at_checked(64)?;
    let mut bytes = [0; 64];
    bytes[..32].copy_from_slice(&unhex(first)?);
    bytes[32..].copy_from_slice(&unhex(second)?);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use dphe::UserId;

    use super::*;

    #[test]
    fn a_request_is_its_party_s_own() {
        let (own, other) = (IdentityKey::from_seed(&[1; 32]), IdentityKey::from_seed(&[2; 32]));
        let (task, another) = (TaskId::from_bytes([3; 16]), TaskId::from_bytes([4; 16]));
        let party = Party::User(UserId::new(1).unwrap());
        let make = || Request::new(task, party, &own.identity(), &new_key().unwrap()).unwrap();
        let reason =
            |request: &Request| request.check_signature(task, &own.identity()).unwrap_err().to_string();
        let signed = make().signed(task, &own);
        signed.check_signature(task, &own.identity()).unwrap();
        assert!(signed.check_signature(another, &own.identity()).is_err());
        // as it comes out of a file
        let text = toml::to_string(&signed).unwrap();
        let read: Request = toml::from_str(&text).unwrap();
        read.check_signature(task, &own.identity()).unwrap();
        let mut lines = signed.clone();
        lines.request = signed.request.replace('\n', "\r\n");
        lines.check_signature(task, &own.identity()).unwrap();
        // in the name of another
        assert!(reason(&make()).contains("not signed"));
        assert!(reason(&make().signed(task, &other)).contains("not that of the party's identity"));
        // a good signature does not carry over to another key
        let mut moved = make();
        moved.signature = signed.signature.clone();
        assert!(reason(&moved).contains("not that of the party's identity"));
        moved.request = format!("{}{}", make().request, signed.request);
        assert!(reason(&moved).contains("not that of the party's identity"), "nor to two requests in one");
        for wrong in ["", "ab", &"é".repeat(64), &"0".repeat(127), &"0".repeat(129)] {
            moved.signature = Some(wrong.to_owned());
            assert!(reason(&moved).contains("128 digits"), "{wrong}");
        }
    }
}
