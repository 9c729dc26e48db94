//! Errors. A failed decryption, and a key file that cannot be decrypted, give no details, because these would
//! help an attacker. All other errors say what is wrong.

use core::fmt;

use thiserror::Error;

/// An error of this crate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The length of the modulus is not supported.
    #[error("keys of {bits} bits are not supported; use 2048, 3072 or 4096")]
    KeySize {
        /// The bits of the modulus.
        bits: u32,
    },
    /// The modulus is even.
    #[error("the modulus is even; it cannot be a product of two large primes")]
    KeyEven,
    /// Trial division found a factor of the modulus.
    #[error("the modulus is divisible by {factor}; it must have no small factors")]
    KeySmallFactor {
        /// The factor.
        factor: u32,
    },
    /// The modulus is a prime.
    #[error("the modulus is a prime; it must be a product of two primes")]
    KeyPrime,
    /// The modulus is a power of a smaller number.
    #[error("the modulus is a perfect power; it must be a product of two different primes")]
    KeyPerfectPower,
    /// The noise of this modulus would not hide anything.
    #[error("the noise base of this modulus is degenerate; generate another key")]
    KeyDegenerate,
    /// The factors of a secret key are not suitable.
    #[error("the factors of a key must be safe primes of equal length that are far apart")]
    KeyFactors,
    /// Ciphertexts, blindings, plaintexts or layouts of different keys were mixed.
    #[error("the operands belong to different keys")]
    KeyMismatch,
    /// A plaintext is outside `(-n/2, n/2)`.
    #[error("the plaintext is out of range; its magnitude must be below half the modulus")]
    PlaintextRange,
    /// The bytes do not hold a whole number of ciphertexts.
    #[error(
        "a ciphertext of this key has {expected} bytes; {found} bytes are not a whole number of ciphertexts"
    )]
    CiphertextLength {
        /// The bytes of one ciphertext.
        expected: usize,
        /// The bytes that were given.
        found: usize,
    },
    /// A ciphertext is 0 or not below `n^2`, or a half of it is not below `n`.
    #[error("ciphertext {index} is out of range; both halves must be below n, and the lower one above 0")]
    CiphertextRange {
        /// Its index, counted from 0.
        index: usize,
    },
    /// A ciphertext has a factor in common with the modulus.
    #[error("ciphertext {index} is not a unit; it shares a factor with the modulus")]
    CiphertextUnit {
        /// Its index, counted from 0.
        index: usize,
    },
    /// Two slices must be equally long and are not.
    #[error("expected {expected} elements, found {found}")]
    Length {
        /// The number of elements expected.
        expected: usize,
        /// The number of elements found.
        found: usize,
    },
    /// A position of a running sum appears twice or is out of range.
    #[error(
        "position {position} appears twice or is out of range; positions must be distinct and below {positions}"
    )]
    Position {
        /// The first position that is wrong.
        position: u32,
        /// The number of positions.
        positions: usize,
    },
    /// A running sum has no terms, or more than can be counted.
    #[error("the sum at position {position} must have between 1 and 4294967295 terms")]
    Terms {
        /// The position of the sum.
        position: u32,
    },
    /// A value does not fit its slot.
    #[error("value {index} does not fit its slot; its magnitude must stay below {bound}")]
    SlotOverflow {
        /// Its index, counted from 0.
        index: usize,
        /// The bound for the magnitude of a value.
        bound: i64,
    },
    /// A layout is not possible.
    #[error("slots for {terms} terms of {value_bits} bits are not possible: {reason}")]
    SlotLayout {
        /// The bits of one value, including the sign.
        value_bits: u32,
        /// The number of values that are summed in one slot.
        terms: u64,
        /// The reason.
        reason: &'static str,
    },
    /// A packed plaintext overflows its slots, or was tampered with.
    #[error("the packed plaintext overflows its slots")]
    SlotResidue,
    /// The pool holds fewer blindings than the operation needs.
    #[error("the pool holds {available} blindings, but {wanted} are needed; refill it first")]
    PoolEmpty {
        /// The number of blindings needed.
        wanted: usize,
        /// The number of blindings in the pool.
        available: usize,
    },
    /// A number cannot be encrypted, or a decrypted one does not fit its type. Only the module `simple` returns it.
    #[error("number {index} {reason}")]
    Number {
        /// Its index, counted from 0.
        index: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Two encrypted vectors have different numbers of fractional bits, or integers were expected and fractions found.
    #[error("expected {expected} fractional bits, found {found}")]
    FractionalBits {
        /// The number of fractional bits expected.
        expected: u32,
        /// The number of fractional bits found.
        found: u32,
    },
    /// The operating system provides no randomness.
    #[error("the operating system provides no randomness")]
    Randomness,
    /// The caller broke off the generation of a key.
    #[error("the generation of the key was cancelled")]
    Cancelled,
    /// The decryption failed. The reason is not given.
    #[error("the decryption failed")]
    Decryption,
    /// The bytes are not a key file of a supported version.
    #[error("the key file cannot be read: {reason}")]
    KeyFormat {
        /// The reason.
        reason: &'static str,
    },
    /// The key file holds a public key instead of a secret one, or the other way round.
    #[error("the file holds a {found} key")]
    KeyKind {
        /// The kind of key in the file.
        found: KeyKind,
    },
    /// The secret key cannot be decrypted: the passphrase is wrong or the file was altered.
    #[error("the key cannot be decrypted: the passphrase is wrong or the file is damaged")]
    KeyEncrypted,
}

impl Error {
    /// Returns the short name of the error, for programs in other languages. It never changes. Where
    /// `docs/protocol.md`, section 10, has a code for the same thing, the name is equal to the code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::KeySize { .. } => "key_size",
            Self::KeyEven
            | Self::KeySmallFactor { .. }
            | Self::KeyPrime
            | Self::KeyPerfectPower
            | Self::KeyDegenerate => "key_modulus",
            Self::KeyFactors => "key_factors",
            Self::KeyMismatch => "key_id",
            Self::PlaintextRange => "plaintext_range",
            Self::CiphertextLength { .. } => "ct_length",
            Self::CiphertextRange { .. } => "ct_range",
            Self::CiphertextUnit { .. } => "ct_unit",
            Self::Length { .. } => "length",
            Self::Position { .. } => "position",
            Self::Terms { .. } => "terms",
            Self::SlotOverflow { .. } => "slot_overflow",
            Self::SlotLayout { .. } => "slot_layout",
            Self::SlotResidue => "slot_residue",
            Self::PoolEmpty { .. } => "pool_empty",
            Self::Number { .. } => "number",
            Self::FractionalBits { .. } => "fractional_bits",
            Self::Randomness => "randomness",
            Self::Cancelled => "cancelled",
            Self::Decryption => "decryption",
            Self::KeyFormat { .. } => "key_format",
            Self::KeyKind { .. } => "key_kind",
            Self::KeyEncrypted => "key_encrypted",
        }
    }
}

/// The kind of a key in a key file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// A public key.
    Public,
    /// A secret key, encrypted under a passphrase.
    Secret,
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Secret => "secret",
        })
    }
}
