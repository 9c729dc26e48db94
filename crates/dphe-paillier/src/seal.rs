//! Keys as bytes: the public key in the clear, the secret key under a passphrase.
//!
//! Both start with a line of magic that names kind and version. Nothing of the secret key is ever
//! written in the clear; where the bytes go is the caller's business.

use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::arith::nat;
use crate::{DecryptionKey, EncryptionKey, Error, KeyBits, NoiseMode};

const PUBLIC_MAGIC: &[u8; 16] = b"dphe-public-key\n";
const SECRET_MAGIC: &[u8; 16] = b"dphe-secret-key\n";
const FORMAT: u8 = 1;
const SALT: usize = 16;
const NONCE: usize = 24;
const TAG: usize = 16;

/// How hard it is to try passphrases: Argon2id's memory and passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassphraseCost {
    memory_kib: u32,
    passes: u32,
}

impl PassphraseCost {
    /// 64 MiB and three passes: the second recommendation of RFC 9106.
    pub const STANDARD: Self = Self { memory_kib: 64 * 1024, passes: 3 };
    /// Next to nothing, for tests.
    #[cfg(feature = "hazmat")]
    pub const TEST: Self = Self { memory_kib: 8, passes: 1 };

    /// Refuses to spend more than this on a file that came from somewhere.
    const LIMIT: Self = Self { memory_kib: 256 * 1024, passes: 16 };
}

impl EncryptionKey {
    /// The public key: magic, format, mode, bits, modulus.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = header(PUBLIC_MAGIC, self);
        bytes.extend(self.modulus_be_bytes());
        bytes
    }

    /// Reads a public key and checks its modulus.
    ///
    /// # Errors
    /// [`Error::KeyFormat`], or one of the `Key...` errors about the modulus.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_bytes_of(bytes, KeyBits::new)
    }

    /// Reads a public key of one of the lengths that `allowed` allows.
    pub(crate) fn from_bytes_of(
        bytes: &[u8],
        allowed: fn(u32) -> Result<KeyBits, Error>,
    ) -> Result<Self, Error> {
        let (mode, bits, modulus) = parse_header(PUBLIC_MAGIC, bytes, allowed)?;
        if modulus.len() != bits.get().div_ceil(8) as usize {
            return Err(Error::KeyFormat { reason: "its length is wrong" });
        }
        let length = Error::KeyFormat { reason: "its length is wrong" };
        let n = nat::from_be_bytes(modulus, modulus.len()).ok_or(length)?;
        if n.bits() != bits.get() {
            return Err(Error::KeySize { bits: n.bits() });
        }
        Self::checked(&n, bits, mode)
    }
}

impl DecryptionKey {
    /// The secret key, encrypted under a passphrase.
    ///
    /// # Errors
    /// [`Error::KeySealed`] if the cost is beyond what Argon2 can do.
    pub fn seal(
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
        let sealed = cipher.encrypt(&XNonce::from(nonce), payload).map_err(|_| Error::KeySealed)?;
        bytes.extend(sealed);
        Ok(bytes)
    }

    /// Opens a secret key.
    ///
    /// # Errors
    /// [`Error::KeyFormat`] if it is not one or of another version; [`Error::KeySealed`] if the passphrase
    /// is wrong or anything has been altered.
    pub fn open(bytes: &[u8], passphrase: &[u8]) -> Result<Self, Error> {
        Self::open_of(bytes, passphrase, KeyBits::new)
    }

    /// Opens a secret key of one of the lengths that `allowed` allows.
    pub(crate) fn open_of(
        bytes: &[u8],
        passphrase: &[u8],
        allowed: fn(u32) -> Result<KeyBits, Error>,
    ) -> Result<Self, Error> {
        let (mode, bits, rest) = parse_header(SECRET_MAGIC, bytes, allowed)?;
        let truncated = Error::KeyFormat { reason: "its length is wrong" };
        let width = bits.get().div_ceil(8) as usize / 2;
        if rest.len() != 8 + SALT + NONCE + 2 * width + TAG {
            return Err(truncated);
        }
        let (memory_kib, rest) = take_u32(rest).ok_or(truncated.clone())?;
        let (passes, rest) = take_u32(rest).ok_or(truncated.clone())?;
        let (salt, rest) = rest.split_first_chunk::<SALT>().ok_or(truncated.clone())?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE>().ok_or(truncated)?;
        let limit = PassphraseCost::LIMIT;
        if memory_kib > limit.memory_kib || passes > limit.passes {
            return Err(Error::KeyFormat { reason: "opening it would cost too much" });
        }
        let cipher = cipher(passphrase, salt, PassphraseCost { memory_kib, passes })?;
        let aad = &bytes[..bytes.len() - sealed.len()];
        let factors = cipher
            .decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad })
            .map(Zeroizing::new)
            .map_err(|_| Error::KeySealed)?;
        let (p, q) = factors.split_at(width);
        match (nat::from_be_bytes(p, width), nat::from_be_bytes(q, width)) {
            (Some(p), Some(q)) => Self::from_factors(&p, &q, bits, mode),
            _ => Err(Error::KeySealed),
        }
    }
}

fn cipher(passphrase: &[u8], salt: &[u8; SALT], cost: PassphraseCost) -> Result<XChaCha20Poly1305, Error> {
    let params = Params::new(cost.memory_kib, cost.passes, 1, Some(32)).map_err(|_| Error::KeySealed)?;
    let mut key = Zeroizing::new([0; 32]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(passphrase, salt, &mut key[..])
        .map_err(|_| Error::KeySealed)?;
    XChaCha20Poly1305::new_from_slice(&key[..]).map_err(|_| Error::KeySealed)
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
    let (found, rest) = bytes.split_first_chunk::<16>().ok_or(error("it is too short"))?;
    if found != magic {
        return Err(error(match found {
            _ if found == PUBLIC_MAGIC => "it is a public key",
            _ if found == SECRET_MAGIC => "it is a secret key",
            _ => "it does not start like one",
        }));
    }
    let ([format, mode], rest) = rest.split_first_chunk::<2>().ok_or(error("it is too short"))?;
    if *format != FORMAT {
        return Err(error("its format is newer"));
    }
    let mode = NoiseMode::from_tag(*mode).ok_or(error("its noise mode is unknown"))?;
    let (bits, rest) = take_u32(rest).ok_or(error("it is too short"))?;
    Ok((mode, allowed(bits)?, rest))
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*number), rest))
}
