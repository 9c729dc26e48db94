//! Functions that are insecure by design: short keys to reproduce the paper and for tests, chosen factors,
//! and chosen randomness. Do not use them for data that must stay secret.

use zeroize::Zeroizing;

use crate::arith::nat;
use crate::arith::pow::{self, Exponent};
use crate::key::MAX_MODULUS_BYTES;
use crate::{Ciphertext, DecryptionKey, EncryptionKey, Error, KeyBits, NoiseMode, Plaintext, Threads};

/// Returns a key length below 2048 bits, such as 1024 as in the paper, or less for fast tests.
///
/// # Errors
/// [`Error::KeySize`] unless it is a positive multiple of 128 or a supported length.
pub fn insecure_key_bits(bits: u32) -> Result<KeyBits, Error> {
    KeyBits::insecure(bits)
}

/// Creates a public key of any length that [`insecure_key_bits`] allows.
///
/// # Errors
/// As [`EncryptionKey::from_modulus`].
pub fn encryption_key(n: &[u8], mode: NoiseMode) -> Result<EncryptionKey, Error> {
    let n = nat::from_be_bytes(n, MAX_MODULUS_BYTES).ok_or(Error::KeySize { bits: u32::MAX })?;
    EncryptionKey::checked(&n, KeyBits::insecure(n.bits())?, mode)
}

/// Reads a public key of any length that [`insecure_key_bits`] allows.
///
/// # Errors
/// As [`EncryptionKey::from_bytes`].
pub fn read_public_key(bytes: &[u8]) -> Result<EncryptionKey, Error> {
    EncryptionKey::from_bytes_of(bytes, KeyBits::insecure)
}

/// Reads an encrypted secret key of any length that [`insecure_key_bits`] allows.
///
/// # Errors
/// As [`DecryptionKey::from_encrypted_bytes`].
pub fn read_secret_key(bytes: &[u8], passphrase: &[u8]) -> Result<DecryptionKey, Error> {
    DecryptionKey::from_encrypted_bytes_of(bytes, passphrase, KeyBits::insecure)
}

/// Creates the secret key with these factors, big-endian. They should be safe primes, which is not checked.
///
/// # Errors
/// [`Error::KeyFactors`] if they are even, of different lengths or too close to each other,
/// [`Error::KeySize`] if the length of their product is not allowed.
pub fn decryption_key(p: &[u8], q: &[u8], mode: NoiseMode) -> Result<DecryptionKey, Error> {
    let read = |x: &[u8]| nat::from_be_bytes(x, MAX_MODULUS_BYTES / 2).ok_or(Error::KeyFactors);
    let (p, q) = (read(p)?, read(q)?);
    if p.bits() != q.bits() {
        return Err(Error::KeyFactors);
    }
    let bits = KeyBits::insecure(nat::mul(&p, &q).bits())?;
    DecryptionKey::from_factors(&p, &q, bits, mode)
}

/// Returns the factors of a secret key, big-endian. A person who knows one of them can decrypt everything.
pub fn factors(key: &DecryptionKey) -> [Zeroizing<Vec<u8>>; 2] {
    let width = key.encryption_key().modulus_bytes().div_ceil(2);
    [&key.p, &key.q].map(|half| nat::to_be_bytes(half.prime(), width))
}

/// Encrypts by the textbook as `(1 + m n) r^n` with the caller's `r` (big-endian), a unit below `n`. Using an
/// `r` twice reveals the difference of the plaintexts.
///
/// # Errors
/// [`Error::CiphertextRange`] or [`Error::CiphertextUnit`] if `r` is not a unit below `n`,
/// [`Error::KeyMismatch`] for a plaintext of another key.
pub fn encrypt_with_nonce(key: &EncryptionKey, m: &Plaintext, r: &[u8]) -> Result<Ciphertext, Error> {
    let n = key.modulus();
    let r = nat::from_be_bytes(r, key.modulus_bytes()).ok_or(Error::CiphertextRange { index: 0 })?;
    if nat::cmp_vartime(&r, n.nat()).is_ge() {
        return Err(Error::CiphertextRange { index: 0 });
    }
    nat::invert_vartime(&r, n.nat()).ok_or(Error::CiphertextUnit { index: 0 })?;
    let mut scratch = n.scratch();
    let mut base = n.pairs();
    n.enter(&mut base, &n.broadcast(&n.pair(&r)), &mut scratch);
    let exponent = Exponent::new(n.nat(), n.bits());
    let mut power = pow::pow(n, &base, &exponent, &mut scratch);
    let noise = key.take_apart(&mut power, 1, &mut scratch);
    let mut all = key.add_plain(&noise, core::slice::from_ref(m), Threads::ONE)?;
    all.pop().ok_or(Error::KeyMismatch)
}
