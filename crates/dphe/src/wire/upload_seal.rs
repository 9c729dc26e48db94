//! Uploads are encrypted to the aggregator's agreement key, so that a party that terminates TLS in its place reads
//! nothing (docs/protocol.md, section 6). HPKE as in RFC 9180.

use core::fmt;

use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable as _, Kem as _, OpModeR, OpModeS, Serializable as _};
use rand_core::CryptoRng;

use super::codec::{Encode as _, Writer};
use super::domains;
use crate::hash::derive;
use crate::{Digest, Error, IdentityKey, Round, TaskId, UserId};

type Kem = X25519HkdfSha256;

/// The bytes that sealing adds: the encapsulated key and the tag.
pub(crate) const SEAL_BYTES: usize = ENCAPSULATED_BYTES + 16;
const ENCAPSULATED_BYTES: usize = 32;

/// The public key that uploads are encrypted to: a point of X25519.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Agreement([u8; 32]);

impl Agreement {
    /// Reads a public key.
    ///
    /// # Errors
    /// [`Error::Signature`] if it cannot be used.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self, Error> {
        let key = Self(bytes);
        key.to_key().map(|_| key)
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn to_key(self) -> Result<<Kem as hpke::Kem>::PublicKey, Error> {
        <Kem as hpke::Kem>::PublicKey::from_bytes(&self.0).map_err(|_| Error::Signature)
    }

    /// Encrypts the content of an upload.
    pub(crate) fn seal(
        &self,
        upload: UploadName,
        content: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<u8>, Error> {
        self.seal_bytes(domains::UPLOAD_SEAL, &upload.to_bytes(), content, rng)
            .ok_or(Error::Body { user: upload.user })
    }

    /// Encrypts `content` for a purpose, bound to `name`.
    pub(crate) fn seal_bytes(
        &self,
        domain: &str,
        name: &[u8],
        content: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Option<Vec<u8>> {
        let (encapsulated, sealed) = hpke::single_shot_seal_with_rng::<ChaCha20Poly1305, HkdfSha256, Kem>(
            &OpModeS::Base,
            &self.to_key().ok()?,
            domain.as_bytes(),
            content,
            name,
            rng,
        )
        .ok()?;
        Some([&encapsulated.to_bytes()[..], &sealed].concat())
    }
}

impl fmt::Debug for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agreement({})", Digest::from_bytes(self.0))
    }
}

/// The secret key that uploads are decrypted with. `Debug` does not print it.
#[derive(Clone)]
pub struct AgreementKey(<Kem as hpke::Kem>::PrivateKey);

impl AgreementKey {
    /// Returns the public key.
    pub fn public(&self) -> Agreement {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(&Kem::sk_to_pk(&self.0).to_bytes());
        Agreement(bytes)
    }

    /// Decrypts the content of an upload.
    pub(crate) fn open(&self, upload: UploadName, body: &[u8]) -> Result<Vec<u8>, Error> {
        self.open_bytes(domains::UPLOAD_SEAL, &upload.to_bytes(), body)
            .ok_or(Error::Body { user: upload.user })
    }

    /// Decrypts what [`Agreement::seal_bytes`] encrypted for the same purpose and name.
    pub(crate) fn open_bytes(&self, domain: &str, name: &[u8], body: &[u8]) -> Option<Vec<u8>> {
        let (encapsulated, sealed) = body.split_at_checked(ENCAPSULATED_BYTES)?;
        let encapsulated = <Kem as hpke::Kem>::EncappedKey::from_bytes(encapsulated).ok()?;
        hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, Kem>(
            &OpModeR::Base,
            &self.0,
            &encapsulated,
            domain.as_bytes(),
            sealed,
            name,
        )
        .ok()
    }
}

impl fmt::Debug for AgreementKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgreementKey({:?}, <redacted>)", self.public())
    }
}

impl IdentityKey {
    /// Derives the secret key that uploads to this party are decrypted with.
    pub fn agreement_key(&self) -> AgreementKey {
        AgreementKey(Kem::derive_keypair(&*derive(domains::AGREEMENT, &[&*self.seed()])).0)
    }
}

/// What a sealed upload is bound to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadName {
    pub(crate) task: TaskId,
    pub(crate) round: Round,
    pub(crate) user: UserId,
    pub(crate) ticket: Digest,
}

impl UploadName {
    fn to_bytes(self) -> Vec<u8> {
        let mut out = Writer::new();
        self.task.encode(&mut out);
        self.round.encode(&mut out);
        self.user.encode(&mut out);
        self.ticket.encode(&mut out);
        out.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upload_is_decrypted_by_its_receiver_and_under_its_name_only() {
        let mut rng = dphe_paillier::simple::os_rng().unwrap();
        let key = IdentityKey::from_seed(&[1; 32]).agreement_key();
        let (user, round) = (UserId::new(7).unwrap(), Round::FIRST);
        let name = UploadName { task: TaskId::from_bytes([3; 16]), round, user, ticket: Digest::ZERO };
        let body = key.public().seal(name, b"content", &mut rng).unwrap();
        assert_eq!(body.len(), 7 + SEAL_BYTES);
        assert_eq!(key.open(name, &body).unwrap(), b"content");
        let other = IdentityKey::from_seed(&[2; 32]).agreement_key();
        assert_eq!(other.open(name, &body), Err(Error::Body { user }));
        for changed in [
            UploadName { task: TaskId::from_bytes([4; 16]), ..name },
            UploadName { round: round.next(), ..name },
            UploadName { user: UserId::new(8).unwrap(), ..name },
            UploadName { ticket: Digest::from_bytes([1; 32]), ..name },
        ] {
            assert!(key.open(changed, &body).is_err(), "{changed:?}");
        }
        for length in 0..body.len() {
            assert!(key.open(name, &body[..length]).is_err(), "{length}");
        }
    }
}
