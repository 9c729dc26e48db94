//! Who signed: Ed25519, verified strictly.

use core::fmt;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::hash::{Digest, hash};
use crate::{Error, TaskId};

/// The secret key of an identity. Wiped when dropped; prints nothing.
pub struct IdentityKey(SigningKey);

impl IdentityKey {
    /// A new one.
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut seed[..]);
        Self::from_seed(&seed)
    }

    /// The one of this seed.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// What others know it by.
    pub fn identity(&self) -> Identity {
        Identity(self.0.verifying_key())
    }

    /// What it is made from.
    pub(crate) fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// Signs a request for a certificate in this task, so that nobody else can ask in its name.
    pub fn sign_certificate_request(&self, task: TaskId, request: &[u8]) -> [u8; 64] {
        self.sign(&certificate_request(task, request))
    }

    pub(crate) fn sign(&self, digest: &Digest) -> [u8; 64] {
        self.0.sign(digest.as_bytes()).to_bytes()
    }
}

impl fmt::Debug for IdentityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdentityKey({:?}, <redacted>)", self.identity())
    }
}

/// An identity: a public key that is not of small order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity(VerifyingKey);

impl Identity {
    /// The identity with this public key.
    ///
    /// # Errors
    /// [`Error::Signature`] if it is no point of the curve, or one of small order.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, Error> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| Error::Signature)?;
        if key.is_weak() { Err(Error::Signature) } else { Ok(Self(key)) }
    }

    /// The public key.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// Checks that a request for a certificate was signed by it, for this task.
    ///
    /// # Errors
    /// [`Error::Signature`] if not.
    pub fn verify_certificate_request(
        &self,
        task: TaskId,
        request: &[u8],
        signature: &[u8; 64],
    ) -> Result<(), Error> {
        self.verify(&certificate_request(task, request), signature)
    }

    pub(crate) fn verify(&self, digest: &Digest, signature: &[u8; 64]) -> Result<(), Error> {
        self.0
            .verify_strict(digest.as_bytes(), &Signature::from_bytes(signature))
            .map_err(|_| Error::Signature)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", Digest::from_bytes(self.to_bytes()))
    }
}

/// A label of its own: no such signature is one of a message.
fn certificate_request(task: TaskId, request: &[u8]) -> Digest {
    hash("dphe/v1/certificate-request", &[task.as_bytes(), request])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_a_certificate_is_signed_by_one_identity_for_one_task() {
        let (key, other) = (IdentityKey::from_seed(&[1; 32]), IdentityKey::from_seed(&[2; 32]));
        let (task, another) = (TaskId::from_bytes([3; 16]), TaskId::from_bytes([4; 16]));
        let signature = key.sign_certificate_request(task, b"request");
        let check = |key: &IdentityKey, task, request: &[u8]| {
            key.identity().verify_certificate_request(task, request, &signature)
        };
        check(&key, task, b"request").unwrap();
        assert!(matches!(check(&other, task, b"request"), Err(Error::Signature)));
        assert!(matches!(check(&key, another, b"request"), Err(Error::Signature)));
        assert!(matches!(check(&key, task, b"another"), Err(Error::Signature)));
        // nor is it a signature of the bytes themselves under another label
        assert!(key.identity().verify(&hash("dphe/v1/roster", &[b"request"]), &signature).is_err());
    }
}
