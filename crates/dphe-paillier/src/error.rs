//! What can go wrong. Errors about keys, ranges and layouts say what is wrong; a failed decryption and
//! a key file that does not open say nothing, because the details would help an attacker.

use thiserror::Error;

/// An error of this crate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The modulus has a length that is not offered.
    #[error("a key of {bits} bits is not supported; use 2048, 3072 or 4096")]
    KeySize {
        /// Bits of the modulus that was given.
        bits: u32,
    },
    /// The modulus is even.
    #[error("the modulus is even; it cannot be a product of two large primes")]
    KeyEven,
    /// The modulus has a factor that trial division finds.
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
    /// The modulus leads to noise that hides nothing.
    #[error("the noise base of this modulus is degenerate; ask for another key")]
    KeyDegenerate,
    /// Two numbers that do not make a key.
    #[error("these factors do not make a key: they must be safe primes of equal length, far apart")]
    KeyFactors,
    /// Keys, ciphertexts, blindings or plaintexts of different keys were mixed.
    #[error("these belong to different keys")]
    KeyMismatch,
    /// A plaintext outside `(-n/2, n/2)`.
    #[error("the plaintext is out of range; its magnitude must be below half the modulus")]
    PlaintextRange,
    /// A ciphertext of the wrong length.
    #[error(
        "a ciphertext of this key has {expected} bytes; {found} bytes do not hold a whole number of them"
    )]
    CiphertextLength {
        /// Bytes of one ciphertext.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// A ciphertext that is 0 or not below `n^2`.
    #[error("ciphertext {index} is out of range; it must be canonical, above 0 and below n^2")]
    CiphertextRange {
        /// Which one, counted from 0.
        index: usize,
    },
    /// A ciphertext that has a factor in common with the modulus.
    #[error("ciphertext {index} is not a unit; it shares a factor with the modulus")]
    CiphertextUnit {
        /// Which one, counted from 0.
        index: usize,
    },
    /// Slices that should be equally long are not.
    #[error("expected {expected} elements, found {found}")]
    Length {
        /// How many were expected.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A position of a running sum that appears twice, or beyond those there are.
    #[error("position {position} appears twice or is out of range; give distinct ones below {positions}")]
    Position {
        /// The first that is wrong.
        position: u32,
        /// How many positions there are.
        positions: usize,
    },
    /// A running sum of more terms than can be counted.
    #[error("the sum at position {position} has too many terms; start another")]
    Terms {
        /// Where.
        position: u32,
    },
    /// A value that does not fit its slot.
    #[error("value {index} does not fit its slot; its magnitude must stay below {bound}")]
    SlotOverflow {
        /// Which one, counted from 0.
        index: usize,
        /// The bound of a single value.
        bound: i64,
    },
    /// A layout that cannot hold anything.
    #[error("slots of {value_bits} value bits for {terms} terms do not fit: {reason}")]
    SlotLayout {
        /// Bits of one value, sign included.
        value_bits: u32,
        /// Values that are summed in one slot.
        terms: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// A packed plaintext with something beyond its slots: an overflow or tampering.
    #[error("the packed plaintext overflows its slots")]
    SlotResidue,
    /// The pool holds fewer blindings than the operation consumes.
    #[error("the pool holds {available} blindings and {wanted} are needed; refill it first")]
    PoolEmpty {
        /// Blindings asked for.
        wanted: usize,
        /// Blindings there are.
        available: usize,
    },
    /// Decryption failed. Nothing more is said.
    #[error("decryption failed")]
    Decryption,
    /// A key file that is not one, or of another version.
    #[error("this is not a key of a version this program reads: {reason}")]
    KeyFormat {
        /// What is wrong with its outside.
        reason: &'static str,
    },
    /// A key file that does not open: wrong passphrase, or altered.
    #[error("the key does not open: the passphrase is wrong or the file is damaged")]
    KeySealed,
}
