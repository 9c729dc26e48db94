//! Encrypted vectors in a few lines, with the operating system's randomness and all cores.
//!
//! Every number gets a ciphertext of its own, so sums have room for any number of terms. A single number is a vector of
//! one. Callers who need more (packing, noise made ahead of time, fewer threads, a random generator of their own) call
//! the methods of [`EncryptionKey`] and [`DecryptionKey`], and can pass them the generator of [`os_rng`].
//!
//! ```
//! use dphe_paillier::{KeyBits, simple};
//!
//! # fn main() -> Result<(), dphe_paillier::Error> {
//! let secret = simple::generate_key(KeyBits::B2048)?;
//! let key = secret.encryption_key();
//! let prices = simple::encrypt_f64(key, &[0.5, 2.25], 16)?; // 16 bits behind the binary point
//! let total = prices.add(&prices)?.scale(-3)?;
//! assert_eq!(simple::decrypt_f64(&secret, &total)?, [-3.0, -13.5]);
//! # Ok(())
//! # }
//! ```

use rand_core::{CryptoRng, SeedableRng};
use zeroize::Zeroizing;

use crate::{Ciphertext, DecryptionKey, EncryptionKey, Error, KeyBits, NoiseMode, Plaintext, Threads};

/// Returns a random generator that is seeded by the operating system.
///
/// # Errors
/// [`Error::Randomness`] if the operating system provides none.
pub fn os_rng() -> Result<impl CryptoRng + Send, Error> {
    chacha20::ChaCha20Rng::try_from_rng(&mut getrandom::SysRng).map_err(|_| Error::Randomness)
}

/// Generates a key with [`NoiseMode::Secure`]. That takes seconds, and longer for longer keys.
///
/// # Errors
/// As [`os_rng`].
pub fn generate_key(bits: KeyBits) -> Result<DecryptionKey, Error> {
    DecryptionKey::generate(bits, NoiseMode::Secure, &mut os_rng()?, Threads::all())
}

/// Encrypts integers.
///
/// # Errors
/// As [`os_rng`].
pub fn encrypt(key: &EncryptionKey, numbers: &[i64]) -> Result<EncryptedVector, Error> {
    encrypt_integers(key, 0, numbers.iter().map(|&number| Ok(number.into())))
}

/// Encrypts numbers, each rounded to the nearest multiple of `2^-fractional_bits`. The number of fractional bits is
/// public. The result adds only to vectors with the same number.
///
/// # Errors
/// [`Error::Number`] for a number that is not finite, or whose magnitude is 2^(126 - `fractional_bits`) or more.
/// Otherwise as [`os_rng`].
pub fn encrypt_f64(
    key: &EncryptionKey,
    numbers: &[f64],
    fractional_bits: u32,
) -> Result<EncryptedVector, Error> {
    let to_fixed = |(index, &number)| fixed_point(index, number, fractional_bits);
    encrypt_integers(key, fractional_bits, numbers.iter().enumerate().map(to_fixed))
}

/// Decrypts integers.
///
/// # Errors
/// [`Error::FractionalBits`] for a vector of fractions, [`Error::Number`] for an integer that does not fit an `i64`,
/// [`Error::KeyMismatch`] for a vector of another key, [`Error::Decryption`] if the self-check fails. Otherwise as
/// [`os_rng`].
pub fn decrypt(secret: &DecryptionKey, vector: &EncryptedVector) -> Result<Vec<i64>, Error> {
    if vector.fractional_bits != 0 {
        return Err(Error::FractionalBits { expected: 0, found: vector.fractional_bits });
    }
    decrypt_plaintexts(secret, vector)?
        .iter()
        .enumerate()
        .map(|(index, plaintext)| {
            plaintext.to_i64().ok_or(Error::Number { index, reason: "does not fit into 64 bits" })
        })
        .collect()
}

/// Decrypts numbers. Each is rounded to the nearest `f64`.
///
/// # Errors
/// [`Error::Number`] for a number that needs more than 128 bits in fixed point, otherwise as [`decrypt`].
pub fn decrypt_f64(secret: &DecryptionKey, vector: &EncryptedVector) -> Result<Vec<f64>, Error> {
    let plaintexts = decrypt_plaintexts(secret, vector)?;
    let read = |(index, plaintext)| fraction(index, plaintext, vector.fractional_bits);
    plaintexts.iter().enumerate().map(read).collect()
}

/// Returns a number times `2^fractional_bits`, rounded to the nearest integer. `index` is for the error.
///
/// # Errors
/// [`Error::Number`] as for [`encrypt_f64`].
pub fn fixed_point(index: usize, number: f64, fractional_bits: u32) -> Result<i128, Error> {
    if !number.is_finite() {
        return Err(Error::Number { index, reason: "is not finite" });
    }
    // A product with a power of two is exact unless it overflows, which the comparison notices.
    let scaled = Zeroizing::new((number * power_of_two(fractional_bits)).round_ties_even());
    if scaled.abs() < power_of_two(126) {
        Ok(*scaled as i128)
    } else {
        Err(Error::Number { index, reason: TOO_LARGE })
    }
}

/// Returns the number whose fixed-point form a plaintext holds, rounded to the nearest `f64`. `index` is for the error.
///
/// # Errors
/// [`Error::Number`] as for [`decrypt_f64`].
pub fn fraction(index: usize, plaintext: &Plaintext, fractional_bits: u32) -> Result<f64, Error> {
    let fixed = plaintext.to_i128().ok_or(Error::Number { index, reason: TOO_LARGE })?;
    Ok(fixed as f64 / power_of_two(fractional_bits))
}

/// A vector of encrypted numbers with one public number of fractional bits, which is 0 for integers.
#[derive(Clone, Debug)]
pub struct EncryptedVector {
    key: EncryptionKey,
    ciphertexts: Vec<Ciphertext>,
    fractional_bits: u32,
}

impl EncryptedVector {
    /// Returns the sum of two vectors.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::FractionalBits`] or [`Error::KeyMismatch`] if the vectors do not fit each other.
    pub fn add(&self, other: &Self) -> Result<Self, Error> {
        if self.fractional_bits != other.fractional_bits {
            return Err(Error::FractionalBits {
                expected: self.fractional_bits,
                found: other.fractional_bits,
            });
        }
        Ok(self.with(self.key.add(&self.ciphertexts, &other.ciphertexts, Threads::all())?))
    }

    /// Returns the vector multiplied by a small public integer. The time depends on the integer. Multiplied by 0, the
    /// vector is a vector of zeros that anyone can read.
    ///
    /// # Errors
    /// None for vectors that this module made.
    pub fn scale(&self, factor: i64) -> Result<Self, Error> {
        let factors = vec![factor; self.len()];
        Ok(self.with(self.key.mul_small_vartime(&self.ciphertexts, &factors, Threads::all())?))
    }

    /// Returns the number of numbers.
    pub fn len(&self) -> usize {
        self.ciphertexts.len()
    }

    /// Returns whether there are no numbers.
    pub fn is_empty(&self) -> bool {
        self.ciphertexts.is_empty()
    }

    /// Returns the number of fractional bits.
    pub fn fractional_bits(&self) -> u32 {
        self.fractional_bits
    }

    /// Returns the ciphertexts, for the methods of [`EncryptionKey`].
    pub fn ciphertexts(&self) -> &[Ciphertext] {
        &self.ciphertexts
    }

    /// Returns the vector as bytes: the number of fractional bits (32 bits, big-endian) and the ciphertexts in wire
    /// form.
    ///
    /// # Errors
    /// None for vectors that this module made.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = self.fractional_bits.to_be_bytes().to_vec();
        bytes.extend(self.key.encode(&self.ciphertexts, Threads::all())?);
        Ok(bytes)
    }

    /// Reads a vector that [`EncryptedVector::to_bytes`] wrote, and checks that it consists of ciphertexts of this key.
    ///
    /// # Errors
    /// [`Error::CiphertextLength`], [`Error::CiphertextRange`] or [`Error::CiphertextUnit`] if it does not.
    pub fn from_bytes(key: &EncryptionKey, bytes: &[u8]) -> Result<Self, Error> {
        let (fractional_bits, ciphertexts) = bytes
            .split_first_chunk()
            .ok_or(Error::CiphertextLength { expected: key.ciphertext_bytes(), found: bytes.len() })?;
        Ok(Self {
            key: key.clone(),
            ciphertexts: key.decode(ciphertexts, Threads::all())?,
            fractional_bits: u32::from_be_bytes(*fractional_bits),
        })
    }

    /// Returns other ciphertexts with the same key and the same number of fractional bits.
    fn with(&self, ciphertexts: Vec<Ciphertext>) -> Self {
        Self { key: self.key.clone(), ciphertexts, fractional_bits: self.fractional_bits }
    }
}

const TOO_LARGE: &str = "is too large for this number of fractional bits";

fn encrypt_integers(
    key: &EncryptionKey,
    fractional_bits: u32,
    integers: impl Iterator<Item = Result<i128, Error>>,
) -> Result<EncryptedVector, Error> {
    let plaintexts =
        integers.map(|integer| Plaintext::new(key, integer?)).collect::<Result<Vec<_>, Error>>()?;
    let ciphertexts = key.encrypt_all(&plaintexts, &mut os_rng()?, Threads::all())?;
    Ok(EncryptedVector { key: key.clone(), ciphertexts, fractional_bits })
}

fn decrypt_plaintexts(secret: &DecryptionKey, vector: &EncryptedVector) -> Result<Vec<Plaintext>, Error> {
    secret.decrypt_all(&vector.ciphertexts, &mut os_rng()?, Threads::all())
}

/// Returns `2^bits`, or infinity if it is too large for an `f64`.
fn power_of_two(bits: u32) -> f64 {
    2f64.powi(bits.min(1 << 11) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> DecryptionKey {
        let bits = KeyBits::insecure(512).unwrap();
        DecryptionKey::generate(bits, NoiseMode::Secure, &mut os_rng().unwrap(), Threads::all()).unwrap()
    }

    #[test]
    fn integers_are_added_scaled_and_decrypted() {
        let secret = key();
        let key = secret.encryption_key();
        let one = encrypt(key, &[17, -4, i64::MAX]).unwrap();
        let two = encrypt(key, &[1, 2, i64::MIN]).unwrap();
        let sum = one.add(&two).unwrap().scale(-2).unwrap();
        assert_eq!(decrypt(&secret, &sum).unwrap(), [-36, 4, 2]);
        // fresh noise: equal numbers do not have equal ciphertexts
        assert_ne!(one.to_bytes().unwrap(), encrypt(key, &[17, -4, i64::MAX]).unwrap().to_bytes().unwrap());
        let none = encrypt(key, &[]).unwrap();
        assert!(none.is_empty() && decrypt(&secret, &none).unwrap().is_empty());
        let zero = one.scale(0).unwrap();
        assert_eq!(decrypt(&secret, &zero).unwrap(), [0, 0, 0]);
        let twice = encrypt(key, &[i64::MAX]).unwrap().scale(2).unwrap();
        assert!(matches!(decrypt(&secret, &twice), Err(Error::Number { index: 0, .. })));
    }

    #[test]
    fn fractions_are_rounded_to_the_nearest_step() {
        let secret = key();
        let key = secret.encryption_key();
        let one = encrypt_f64(key, &[0.1, -1.26, 0.0], 3).unwrap();
        assert_eq!(decrypt_f64(&secret, &one).unwrap(), [0.125, -1.25, 0.0]);
        let three = one.scale(3).unwrap();
        assert_eq!(three.fractional_bits(), 3);
        assert_eq!(decrypt_f64(&secret, &three).unwrap(), [0.375, -3.75, 0.0]);
        // integers are fractions without fractional bits, but not the other way round
        assert_eq!(decrypt_f64(&secret, &encrypt(key, &[-5]).unwrap()).unwrap(), [-5.0]);
        let refused = decrypt(&secret, &one);
        assert_eq!(refused, Err(Error::FractionalBits { expected: 0, found: 3 }));
    }

    #[test]
    fn numbers_that_have_no_fixed_point_are_refused_with_their_index() {
        let secret = key();
        let key = secret.encryption_key();
        let refused = |numbers: &[f64], bits| match encrypt_f64(key, numbers, bits) {
            Err(Error::Number { index, .. }) => Some(index),
            _ => None,
        };
        assert_eq!(refused(&[0.0, f64::NAN], 8), Some(1));
        assert_eq!(refused(&[f64::NEG_INFINITY], 8), Some(0));
        assert_eq!(refused(&[2f64.powi(118)], 8), Some(0));
        assert_eq!(refused(&[-2f64.powi(117)], 8), None);
        assert_eq!(refused(&[1.0], u32::MAX), Some(0));
        assert_eq!(refused(&[0.0], u32::MAX), Some(0));
    }

    #[test]
    fn vectors_that_do_not_fit_each_other_are_refused() {
        let (secret, other) = (key(), key());
        let key = secret.encryption_key();
        let one = encrypt(key, &[1, 2]).unwrap();
        let refused = |other: &EncryptedVector| one.add(other).unwrap_err();
        assert_eq!(refused(&encrypt(key, &[1]).unwrap()), Error::Length { expected: 2, found: 1 });
        assert_eq!(refused(&encrypt(other.encryption_key(), &[1, 2]).unwrap()), Error::KeyMismatch);
        let fractions = encrypt_f64(key, &[1.0, 2.0], 4).unwrap();
        assert_eq!(refused(&fractions), Error::FractionalBits { expected: 0, found: 4 });
        assert_eq!(decrypt(&other, &one), Err(Error::KeyMismatch));
    }

    #[test]
    fn bytes_are_read_back_and_bad_ones_are_refused() {
        let secret = key();
        let key = secret.encryption_key();
        let vector = encrypt_f64(key, &[0.5, -2.0], 20).unwrap();
        let bytes = vector.to_bytes().unwrap();
        let read = EncryptedVector::from_bytes(key, &bytes).unwrap();
        assert_eq!((read.len(), read.fractional_bits()), (2, 20));
        assert_eq!(decrypt_f64(&secret, &read).unwrap(), [0.5, -2.0]);
        for length in [0, 3, 5, bytes.len() - 1] {
            let refused = EncryptedVector::from_bytes(key, &bytes[..length]);
            assert!(matches!(refused, Err(Error::CiphertextLength { .. })), "{length}");
        }
        let zeros = vec![0; bytes.len()];
        assert_eq!(
            EncryptedVector::from_bytes(key, &zeros).unwrap_err(),
            Error::CiphertextRange { index: 0 }
        );
    }
}
