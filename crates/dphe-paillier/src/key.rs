//! Key lengths, noise modes and key identifiers. The keys themselves are in [`public`] and [`secret`].

mod check;
mod public;
mod secret;

use core::fmt;

pub use public::EncryptionKey;
pub use secret::DecryptionKey;

use crate::Error;

/// No modulus is longer than this, in bytes.
pub(crate) const MAX_MODULUS_BYTES: usize = 512;

/// The length of a modulus in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBits(u32);

impl KeyBits {
    /// 2048 bits: about 112 bits of security.
    pub const B2048: Self = Self(2048);
    /// 3072 bits, the default: about 128 bits of security.
    pub const B3072: Self = Self(3072);
    /// 4096 bits.
    pub const B4096: Self = Self(4096);

    /// Returns a supported length: 2048, 3072 or 4096.
    ///
    /// # Errors
    /// [`Error::KeySize`] for any other.
    pub fn new(bits: u32) -> Result<Self, Error> {
        match bits {
            2048 | 3072 | 4096 => Ok(Self(bits)),
            _ => Err(Error::KeySize { bits }),
        }
    }

    /// Returns a length to reproduce the paper (1024) or for fast tests. See [`crate::hazmat`].
    #[cfg(feature = "hazmat")]
    pub(crate) fn insecure(bits: u32) -> Result<Self, Error> {
        match bits {
            128..2048 if bits.is_multiple_of(128) => Ok(Self(bits)),
            _ => Self::new(bits),
        }
    }

    /// Returns the number of bits.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Returns whether the length is one of the supported ones.
    pub fn is_secure(self) -> bool {
        self.0 >= 2048
    }
}

impl Default for KeyBits {
    fn default() -> Self {
        Self::B3072
    }
}

/// How the noise of a ciphertext is drawn. The mode is part of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoiseMode {
    /// Exponents of half the length of the modulus. The security rests on the decisional composite
    /// residuosity assumption, and on half-length exponents being indistinguishable from full ones.
    #[default]
    Secure,
    /// Exponents of 224 bits (2048-bit keys), 256 bits (3072) or 304 bits (4096). Several times faster. It
    /// needs the further assumption that, modulo a product of unknown safe primes, short exponents are
    /// indistinguishable from long ones. It is not secure under composite residuosity alone.
    Fast,
    /// The noise of the textbook: `r^n` for a random `r`. The security rests on composite residuosity alone and
    /// assumes nothing about the factors, so this mode is for keys that other programs made. It is many times slower,
    /// because no table of powers helps. Tasks refuse it.
    Textbook,
}

impl NoiseMode {
    /// Returns the name used in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Secure => "secure",
            Self::Fast => "fast",
            Self::Textbook => "textbook",
        }
    }

    pub(crate) fn tag(self) -> u8 {
        match self {
            Self::Secure => 1,
            Self::Fast => 2,
            Self::Textbook => 3,
        }
    }

    pub(crate) fn from_tag(tag: u8) -> Option<Self> {
        Self::all().into_iter().find(|mode| mode.tag() == tag)
    }

    /// Returns all modes.
    fn all() -> [Self; 3] {
        [Self::Secure, Self::Fast, Self::Textbook]
    }

    /// Returns the mode with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|mode| mode.name() == name)
    }

    /// Returns the bits of an exponent of the noise base.
    pub(crate) fn exponent_bits(self, bits: u32) -> u32 {
        let short = match bits {
            0..=2048 => 224,
            2049..=3072 => 256,
            3073.. => 304,
        };
        match self {
            Self::Secure | Self::Textbook => bits / 2,
            Self::Fast => short.min(bits / 2),
        }
    }
}

impl fmt::Display for NoiseMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The identifier of a key: a digest of its modulus and mode.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId([u8; 32]);

impl KeyId {
    /// Returns the digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for KeyId {
    /// Writes the first eight bytes in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}
