//! Plaintexts: signed integers in the range of a key.

use core::fmt;

use zeroize::Zeroizing;

use crate::arith::nat::{self, Limbs, Nat};
use crate::{EncryptionKey, Error};

/// A signed integer `m` with `|m| < n/2` for one key. It is in range by construction.
///
/// A plaintext may be secret. It is wiped when dropped and prints nothing.
#[derive(Clone)]
pub struct Plaintext {
    /// `m` modulo `n`, in as many limbs as `n` has.
    residue: Limbs,
    key: EncryptionKey,
}

impl Plaintext {
    /// Creates the plaintext `m`.
    ///
    /// # Errors
    /// [`Error::PlaintextRange`] if `m` is not below half the modulus. That cannot happen with keys of a
    /// supported size.
    pub fn new(key: &EncryptionKey, m: i128) -> Result<Self, Error> {
        Self::from_sign_and_magnitude(key, m < 0, &m.unsigned_abs().to_be_bytes())
    }

    /// Creates the plaintext with this sign and this magnitude (big-endian).
    ///
    /// # Errors
    /// [`Error::PlaintextRange`] if the magnitude is not below half the modulus.
    pub fn from_sign_and_magnitude(
        key: &EncryptionKey,
        negative: bool,
        magnitude: &[u8],
    ) -> Result<Self, Error> {
        let magnitude = nat::from_be_bytes(magnitude, key.modulus_bytes()).ok_or(Error::PlaintextRange)?;
        Self::from_nat(key, negative, &magnitude)
    }

    pub(crate) fn from_nat(key: &EncryptionKey, negative: bool, magnitude: &Nat) -> Result<Self, Error> {
        let n = key.modulus().nat();
        if nat::cmp_vartime(magnitude, &n.half()).is_gt() {
            return Err(Error::PlaintextRange);
        }
        let count = key.modulus().limbs();
        let zero = magnitude.is_zero_vartime();
        let residue = if negative && !zero {
            nat::limbs(&nat::sub(n, magnitude), count)
        } else {
            nat::limbs(magnitude, count)
        };
        Ok(Self { residue, key: key.clone() })
    }

    /// Creates the plaintext with this residue modulo `n`, which is below `n`.
    pub(crate) fn from_residue(key: &EncryptionKey, residue: Limbs) -> Self {
        Self { residue, key: key.clone() }
    }

    pub(crate) fn residue(&self) -> &[u64] {
        &self.residue
    }

    pub(crate) fn key(&self) -> &EncryptionKey {
        &self.key
    }

    /// Returns whether `m < 0`, and `|m|` as limbs.
    pub(crate) fn sign_and_limbs(&self) -> (bool, Limbs) {
        let n = self.key.modulus().nat();
        let residue = nat::from_limbs(&self.residue);
        let negative = nat::cmp_vartime(&residue, &n.half()).is_gt();
        let magnitude = if negative { nat::sub(n, &residue) } else { residue };
        (negative, nat::limbs(&magnitude, self.residue.len()))
    }

    /// Returns whether `m < 0`, and `|m|` in as many big-endian bytes as the modulus has.
    pub fn sign_and_magnitude(&self) -> (bool, Zeroizing<Vec<u8>>) {
        let (negative, limbs) = self.sign_and_limbs();
        (negative, nat::to_be_bytes(&nat::from_limbs(&limbs), self.key.modulus_bytes()))
    }

    /// Returns the value if it fits an `i128`.
    pub fn to_i128(&self) -> Option<i128> {
        let (negative, limbs) = self.sign_and_limbs();
        if limbs.iter().skip(2).any(|&limb| limb != 0) {
            return None;
        }
        let magnitude = u128::from(limbs.first().copied().unwrap_or(0))
            | u128::from(limbs.get(1).copied().unwrap_or(0)) << 64;
        if negative { 0i128.checked_sub_unsigned(magnitude) } else { magnitude.try_into().ok() }
    }

    /// Returns the value if it fits an `i64`.
    pub fn to_i64(&self) -> Option<i64> {
        self.to_i128()?.try_into().ok()
    }
}

impl PartialEq for Plaintext {
    fn eq(&self, other: &Self) -> bool {
        // No early exit, because the values may be secret.
        let differences = self.residue.iter().zip(other.residue.iter()).fold(0, |d, (a, b)| d | (a ^ b));
        self.key == other.key && core::hint::black_box(differences) == 0
    }
}

impl Eq for Plaintext {}

impl fmt::Debug for Plaintext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plaintext(<redacted>)")
    }
}
