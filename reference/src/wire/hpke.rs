//! Section 6: HPKE (RFC 9180) in base mode, with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and ChaCha20Poly1305.

use chacha20poly1305::ChaCha20Poly1305;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use ed25519_dalek::SigningKey;
use sha2::{Digest as _, Sha256};
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};

use super::derive::{Digest, Task, h};

/// The `info` of an upload.
pub const UPLOAD_INFO: &[u8] = b"dphe/v2/upload-seal";

/// The id of the KEM, for its own derivations.
const KEM_SUITE: &[u8] = b"KEM\x00\x20";
/// The ids of KEM, KDF and AEAD.
const SUITE: &[u8] = b"HPKE\x00\x20\x00\x01\x00\x03";

/// A key pair of X25519.
#[derive(Clone, Debug)]
pub struct KeyPair {
    /// The secret key.
    pub secret: [u8; 32],
    /// The public key.
    pub public: [u8; 32],
}

impl KeyPair {
    /// Computes `DeriveKeyPair(ikm)`.
    pub fn derive(ikm: &[u8]) -> Self {
        let prk = labeled_extract(KEM_SUITE, b"", b"dkp_prk", ikm);
        let mut secret = [0; 32];
        secret.copy_from_slice(&labeled_expand(KEM_SUITE, &prk, b"sk", b"", 32));
        Self { secret, public: x25519(secret, X25519_BASEPOINT_BYTES) }
    }

    /// Derives the agreement key of A from its identity.
    pub fn agreement(identity: &SigningKey) -> Self {
        Self::derive(&agreement_ikm(&identity.to_bytes()))
    }
}

/// Computes the key material of the agreement key of an identity with this Ed25519 seed.
pub fn agreement_ikm(seed: &Digest) -> Digest {
    h("dphe/v2/agreement", &[seed])
}

/// Returns the `aad` of an upload.
pub fn upload_aad(task: &Task, round: u64, user: u32, ticket: &Digest) -> Vec<u8> {
    [&task[..], &round.to_be_bytes(), &user.to_be_bytes(), ticket].concat()
}

/// Encrypts to a public key with a given ephemeral key. Returns `enc` and the ciphertext, concatenated.
pub fn seal(public: &[u8; 32], ephemeral: &KeyPair, info: &[u8], aad: &[u8], plaintext: &[u8]) -> Vec<u8> {
    let shared = x25519(ephemeral.secret, *public);
    let (cipher, nonce) = key_schedule(&shared, &ephemeral.public, public, info);
    let payload = Payload { msg: plaintext, aad };
    let sealed = cipher.encrypt(&nonce.into(), payload).expect("a plaintext of this length is allowed");
    [&ephemeral.public[..], &sealed].concat()
}

/// Decrypts what [`seal`] returned. Returns `None` if that is impossible.
pub fn open(keys: &KeyPair, info: &[u8], aad: &[u8], body: &[u8]) -> Option<Vec<u8>> {
    let (enc, sealed) = body.split_first_chunk::<32>()?;
    let shared = x25519(keys.secret, *enc);
    if shared == [0; 32] {
        return None;
    }
    let (cipher, nonce) = key_schedule(&shared, enc, &keys.public, info);
    cipher.decrypt(&nonce.into(), Payload { msg: sealed, aad }).ok()
}

/// Derives the cipher and its first nonce from the result of Diffie-Hellman.
fn key_schedule(
    shared: &[u8; 32],
    enc: &[u8; 32],
    public: &[u8; 32],
    info: &[u8],
) -> (ChaCha20Poly1305, [u8; 12]) {
    let prk = labeled_extract(KEM_SUITE, b"", b"eae_prk", shared);
    let secret = labeled_expand(KEM_SUITE, &prk, b"shared_secret", &[*enc, *public].concat(), 32);
    let psk_id_hash = labeled_extract(SUITE, b"", b"psk_id_hash", b"");
    let info_hash = labeled_extract(SUITE, b"", b"info_hash", info);
    // base mode is 0
    let context = [&[0][..], &psk_id_hash, &info_hash].concat();
    let secret = labeled_extract(SUITE, &secret, b"secret", b"");
    let (mut key, mut nonce) = ([0; 32], [0; 12]);
    key.copy_from_slice(&labeled_expand(SUITE, &secret, b"key", &context, 32));
    nonce.copy_from_slice(&labeled_expand(SUITE, &secret, b"base_nonce", &context, 12));
    (ChaCha20Poly1305::new(&key.into()), nonce)
}

fn labeled_extract(suite: &[u8], salt: &[u8], label: &[u8], ikm: &[u8]) -> Digest {
    hmac(salt, &[b"HPKE-v1", suite, label, ikm])
}

/// Expands to at most 32 bytes, for which one step of HKDF is enough.
fn labeled_expand(suite: &[u8], prk: &Digest, label: &[u8], info: &[u8], length: usize) -> Vec<u8> {
    assert!(length <= 32);
    hmac(prk, &[&(length as u16).to_be_bytes(), b"HPKE-v1", suite, label, info, &[1]])[..length].to_vec()
}

/// Computes HMAC-SHA256 with a key of at most 64 bytes.
fn hmac(key: &[u8], parts: &[&[u8]]) -> Digest {
    let mut padded = [0; 64];
    padded[..key.len()].copy_from_slice(key);
    let start = |byte: u8| Sha256::new().chain_update(padded.map(|x| x ^ byte));
    let inner = parts.iter().fold(start(0x36), |hash, part| hash.chain_update(part)).finalize();
    start(0x5c).chain_update(inner).finalize().into()
}
