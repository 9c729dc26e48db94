//! Identities: Ed25519 keys, with strict verification.

use core::fmt;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::hash::{Digest, hash};
use crate::wire::domains;
use crate::{Error, TaskId};

/// The secret key of an identity. It is wiped when dropped, and `Debug` does not print it.
pub struct IdentityKey(SigningKey);

impl IdentityKey {
    /// Generates a new key.
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut seed[..]);
        Self::from_seed(&seed)
    }

    /// Creates the key with this seed.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// Returns the public identity.
    pub fn identity(&self) -> Identity {
        Identity(self.0.verifying_key())
    }

    /// Returns the seed.
    pub(crate) fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// Signs a request to be enrolled in a task, which proves that its sender has this key.
    pub fn sign_request(&self, task: TaskId, request: &[u8]) -> [u8; 64] {
        self.sign(&request_digest(task, request))
    }

    /// Signs the transcript of a TLS 1.3 handshake, which begins with 64 spaces and the purpose of the signature
    /// (RFC 8446, section 4.4.3). Returns `None` for anything else. A transcript is longer than a digest, so that the
    /// signature can never be valid as that of a message.
    pub fn sign_handshake(&self, transcript: &[u8]) -> Option<[u8; 64]> {
        let (spaces, rest) = transcript.split_at_checked(64)?;
        let purposes: [&[u8]; 2] =
            [b"TLS 1.3, server CertificateVerify\0", b"TLS 1.3, client CertificateVerify\0"];
        let is_handshake = spaces == [b' '; 64] && purposes.iter().any(|purpose| rest.starts_with(purpose));
        is_handshake.then(|| self.0.sign(transcript).to_bytes())
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

/// A public identity: an Ed25519 key that does not have small order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity(VerifyingKey);

impl Identity {
    /// Reads a public key.
    ///
    /// # Errors
    /// [`Error::Signature`] if it is not a point of the curve, or has small order.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, Error> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| Error::Signature)?;
        if key.is_weak() { Err(Error::Signature) } else { Ok(Self(key)) }
    }

    /// Returns the public key.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// Verifies that this identity signed a request to be enrolled in a task.
    ///
    /// # Errors
    /// [`Error::Signature`] if it did not.
    pub fn verify_request(&self, task: TaskId, request: &[u8], signature: &[u8; 64]) -> Result<(), Error> {
        self.verify(&request_digest(task, request), signature)
    }

    pub(crate) fn verify(&self, digest: &Digest, signature: &[u8; 64]) -> Result<(), Error> {
        let verify = || self.0.verify_strict(digest.as_bytes(), &Signature::from_bytes(signature)).is_ok();
        #[cfg(feature = "hazmat")]
        let verify = || crate::hazmat::verify_once(self, digest, signature, verify);
        if verify() { Ok(()) } else { Err(Error::Signature) }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", Digest::from_bytes(self.to_bytes()))
    }
}

/// A domain of its own, so that such a signature is never valid for a message.
fn request_digest(task: TaskId, request: &[u8]) -> Digest {
    hash(domains::REQUEST, &[task.as_bytes(), request])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_verified_for_its_identity_and_task_only() {
        let (key, other) = (IdentityKey::from_seed(&[1; 32]), IdentityKey::from_seed(&[2; 32]));
        let (task, another) = (TaskId::from_bytes([3; 16]), TaskId::from_bytes([4; 16]));
        let signature = key.sign_request(task, b"request");
        let check = |key: &IdentityKey, task, request: &[u8]| {
            key.identity().verify_request(task, request, &signature)
        };
        check(&key, task, b"request").unwrap();
        assert!(matches!(check(&other, task, b"request"), Err(Error::Signature)));
        assert!(matches!(check(&key, another, b"request"), Err(Error::Signature)));
        assert!(matches!(check(&key, task, b"another"), Err(Error::Signature)));
        // it is not valid under another domain either
        assert!(key.identity().verify(&hash(domains::ROSTER, &[b"request"]), &signature).is_err());
    }

    #[test]
    #[cfg(feature = "hazmat")]
    fn remembered_signatures_are_those_of_their_key_and_digest() {
        let (key, other) = (IdentityKey::from_seed(&[1; 32]), IdentityKey::from_seed(&[2; 32]));
        let digests = [Digest::from_bytes([3; 32]), Digest::from_bytes([4; 32])];
        let signature = key.sign(&digests[0]);
        crate::hazmat::remember_signatures();
        for _ in 0..2 {
            key.identity().verify(&digests[0], &signature).unwrap();
            assert!(key.identity().verify(&digests[1], &signature).is_err());
            assert!(other.identity().verify(&digests[0], &signature).is_err());
            let mut changed = signature;
            changed[0] ^= 1;
            assert!(key.identity().verify(&digests[0], &changed).is_err());
        }
    }

    #[test]
    fn handshake_signatures_are_made_for_tls_transcripts_only() {
        let key = IdentityKey::from_seed(&[1; 32]);
        let transcript = [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &[7; 32]].concat();
        assert!(key.sign_handshake(&transcript).is_some());
        let other_purpose = [&[b' '; 64][..], b"TLS 1.2, server CertificateVerify\0", &[7; 32]].concat();
        for other in
            [&[][..], &[b' '; 64], &[0; 32], &[1; 131], &transcript[1..], &transcript[..97], &other_purpose]
        {
            assert!(key.sign_handshake(other).is_none(), "{} bytes", other.len());
        }
    }
}
