//! Keys as bytes: the public key in the clear, the secret key encrypted under a passphrase.
//!
//! Both forms start with a magic line that names the kind, followed by a format version. The secret key is
//! never written in the clear.

use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::arith::nat;
use crate::{DecryptionKey, EncryptionKey, Error, KeyBits, KeyKind, NoiseMode};

const PUBLIC_MAGIC: &[u8; 16] = b"dphe-public-key\n";
const SECRET_MAGIC: &[u8; 16] = b"dphe-secret-key\n";
const FORMAT: u8 = 1;
const SALT: usize = 16;
const NONCE: usize = 24;
const TAG: usize = 16;
const LENGTH: Error = Error::KeyFormat { reason: "its length is wrong" };

/// The cost of trying a passphrase: memory and passes of Argon2id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassphraseCost {
    memory_kib: u32,
    passes: u32,
}

impl PassphraseCost {
    /// 64 MiB and three passes, the second recommendation of RFC 9106.
    pub const STANDARD: Self = Self { memory_kib: 64 * 1024, passes: 3 };
    /// Almost no cost, for tests.
    #[cfg(feature = "hazmat")]
    pub const TEST: Self = Self { memory_kib: 8, passes: 1 };

    /// A key file that asks for more than this is refused.
    const LIMIT: Self = Self { memory_kib: 256 * 1024, passes: 16 };
}

impl EncryptionKey {
    /// Returns the public key as bytes: magic, format, mode, bits, modulus.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = header(PUBLIC_MAGIC, self);
        bytes.extend(self.modulus_be_bytes());
        bytes
    }

    /// Reads a public key and checks its modulus.
    ///
    /// # Errors
    /// One of the `Key...` errors.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_bytes_of(bytes, KeyBits::new)
    }

    /// Reads a public key of a length that `allowed` accepts.
    pub(crate) fn from_bytes_of(
        bytes: &[u8],
        allowed: fn(u32) -> Result<KeyBits, Error>,
    ) -> Result<Self, Error> {
        let (mode, bits, modulus) = parse_header(PUBLIC_MAGIC, bytes, allowed)?;
        if modulus.len() != bits.get().div_ceil(8) as usize {
            return Err(LENGTH);
        }
        let n = nat::from_be_bytes(modulus, modulus.len()).ok_or(LENGTH)?;
        if n.bits() != bits.get() {
            return Err(Error::KeySize { bits: n.bits() });
        }
        Self::checked(&n, bits, mode)
    }
}

impl DecryptionKey {
    /// Returns the secret key, encrypted under a passphrase.
    ///
    /// # Errors
    /// [`Error::KeyEncrypted`] if Argon2 does not support the cost.
    pub fn to_encrypted_bytes(
        &self,
        passphrase: &[u8],
        cost: PassphraseCost,
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<u8>, Error> {
        let key = self.encryption_key();
        let mut bytes = header(SECRET_MAGIC, key);
        bytes.extend(cost.memory_kib.to_be_bytes());
        bytes.extend(cost.passes.to_be_bytes());
        let (mut salt, mut nonce) = ([0; SALT], [0; NONCE]);
        rng.fill_bytes(&mut salt);
        rng.fill_bytes(&mut nonce);
        bytes.extend(salt);
        bytes.extend(nonce);
        let width = key.modulus_bytes() / 2;
        let mut factors = Zeroizing::new(Vec::with_capacity(2 * width));
        for half in [&self.p, &self.q] {
            factors.extend_from_slice(&nat::to_be_bytes(half.prime(), width));
        }
        let cipher = cipher(passphrase, &salt, cost)?;
        let payload = Payload { msg: &factors, aad: &bytes };
        let encrypted = cipher.encrypt(&XNonce::from(nonce), payload).map_err(|_| Error::KeyEncrypted)?;
        bytes.extend(encrypted);
        Ok(bytes)
    }

    /// Reads a secret key that [`DecryptionKey::to_encrypted_bytes`] wrote.
    ///
    /// # Errors
    /// [`Error::KeyFormat`] or [`Error::KeyKind`] if the bytes are not a secret key of this version,
    /// [`Error::KeyEncrypted`] if the passphrase is wrong or the bytes were altered.
    pub fn from_encrypted_bytes(bytes: &[u8], passphrase: &[u8]) -> Result<Self, Error> {
        Self::from_encrypted_bytes_of(bytes, passphrase, KeyBits::new)
    }

    /// Reads a secret key of a length that `allowed` accepts.
    pub(crate) fn from_encrypted_bytes_of(
        bytes: &[u8],
        passphrase: &[u8],
        allowed: fn(u32) -> Result<KeyBits, Error>,
    ) -> Result<Self, Error> {
        let (mode, bits, rest) = parse_header(SECRET_MAGIC, bytes, allowed)?;
        let width = bits.get().div_ceil(8) as usize / 2;
        if rest.len() != 8 + SALT + NONCE + 2 * width + TAG {
            return Err(LENGTH);
        }
        let (memory_kib, rest) = take_u32(rest).ok_or(LENGTH)?;
        let (passes, rest) = take_u32(rest).ok_or(LENGTH)?;
        let (salt, rest) = rest.split_first_chunk::<SALT>().ok_or(LENGTH)?;
        let (nonce, encrypted) = rest.split_first_chunk::<NONCE>().ok_or(LENGTH)?;
        let limit = PassphraseCost::LIMIT;
        if memory_kib > limit.memory_kib || passes > limit.passes {
            return Err(Error::KeyFormat { reason: "its passphrase cost is above the limit" });
        }
        let cipher = cipher(passphrase, salt, PassphraseCost { memory_kib, passes })?;
        let aad = &bytes[..bytes.len() - encrypted.len()];
        let factors = cipher
            .decrypt(&XNonce::from(*nonce), Payload { msg: encrypted, aad })
            .map(Zeroizing::new)
            .map_err(|_| Error::KeyEncrypted)?;
        let (p, q) = factors.split_at(width);
        match (nat::from_be_bytes(p, width), nat::from_be_bytes(q, width)) {
            (Some(p), Some(q)) => Self::from_factors(&p, &q, bits, mode),
            _ => Err(Error::KeyEncrypted),
        }
    }
}

fn cipher(passphrase: &[u8], salt: &[u8; SALT], cost: PassphraseCost) -> Result<XChaCha20Poly1305, Error> {
    let params = Params::new(cost.memory_kib, cost.passes, 1, Some(32)).map_err(|_| Error::KeyEncrypted)?;
    let mut key = Zeroizing::new([0; 32]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(passphrase, salt, &mut key[..])
        .map_err(|_| Error::KeyEncrypted)?;
    XChaCha20Poly1305::new_from_slice(&key[..]).map_err(|_| Error::KeyEncrypted)
}

fn header(magic: &[u8; 16], key: &EncryptionKey) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend([FORMAT, key.mode().tag()]);
    bytes.extend(key.bits().get().to_be_bytes());
    bytes
}

fn parse_header<'a>(
    magic: &[u8; 16],
    bytes: &'a [u8],
    allowed: fn(u32) -> Result<KeyBits, Error>,
) -> Result<(NoiseMode, KeyBits, &'a [u8]), Error> {
    let error = |reason| Error::KeyFormat { reason };
    let short = error("the header is truncated");
    let (found, rest) = bytes.split_first_chunk::<16>().ok_or(short.clone())?;
    if found != magic {
        return Err(match found {
            _ if found == PUBLIC_MAGIC => Error::KeyKind { found: KeyKind::Public },
            _ if found == SECRET_MAGIC => Error::KeyKind { found: KeyKind::Secret },
            _ => error("it does not start with a key file's magic line"),
        });
    }
    let ([format, mode], rest) = rest.split_first_chunk::<2>().ok_or(short.clone())?;
    if *format != FORMAT {
        return Err(error("its format version is not supported"));
    }
    let mode = NoiseMode::from_tag(*mode).ok_or(error("its noise mode is unknown"))?;
    let (bits, rest) = take_u32(rest).ok_or(short)?;
    Ok((mode, allowed(bits)?, rest))
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*number), rest))
}
