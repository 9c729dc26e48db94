//! Plaintexts as residues modulo `n`: sums that wrap around, for masks and for checks by random combinations.

use core::fmt;

use zeroize::Zeroizing;

use crate::arith::nat::{self, Limbs, Nat};
use crate::{EncryptionKey, Error, Plaintext};

/// A sum of large integers that is reduced modulo `n` once, at the end.
///
/// The terms may be secret. The sum is wiped when dropped, prints nothing, and takes the same time for all terms.
#[derive(Clone)]
pub struct ResidueSum {
    /// 128 bits more than `n` has for products, and 64 more for the number of terms.
    limbs: Limbs,
    key: EncryptionKey,
}

impl ResidueSum {
    /// The bytes that a term may have beyond those of the modulus.
    pub const EXTRA_BYTES: usize = 16;

    /// Creates the empty sum.
    pub fn new(key: &EncryptionKey) -> Self {
        Self { limbs: Zeroizing::new(vec![0; key.modulus().limbs() + Reduction::EXTRA]), key: key.clone() }
    }

    /// Adds a big-endian integer.
    ///
    /// # Errors
    /// [`Error::PlaintextRange`] if it has more than [`ResidueSum::EXTRA_BYTES`] bytes beyond those of the modulus.
    pub fn add_bytes(&mut self, term: &[u8]) -> Result<(), Error> {
        if term.len() > self.key.modulus_bytes() + Self::EXTRA_BYTES {
            return Err(Error::PlaintextRange);
        }
        let (most_significant, whole) = term.as_rchunks::<8>();
        let mut digits = whole.iter().rev().map(|bytes| u64::from_be_bytes(*bytes));
        let last = most_significant.iter().fold(0, |x, &byte| x << 8 | u64::from(byte));
        let mut rest = Some(last);
        let mut carry = false;
        for limb in self.limbs.iter_mut() {
            let digit = digits.next().or_else(|| rest.take()).unwrap_or(0);
            let (sum, over) = limb.overflowing_add(digit);
            let (sum, over_carry) = sum.overflowing_add(u64::from(carry));
            (*limb, carry) = (sum, over | over_carry);
        }
        Ok(())
    }

    /// Adds a plaintext.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`] for a plaintext of another key.
    pub fn add(&mut self, term: &Plaintext) -> Result<(), Error> {
        self.add_product(1, term)
    }

    /// Adds a multiple of a plaintext.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`] for a plaintext of another key.
    pub fn add_product(&mut self, factor: u128, term: &Plaintext) -> Result<(), Error> {
        if *term.key() != self.key {
            return Err(Error::KeyMismatch);
        }
        nat::add_multiple(&mut self.limbs, factor as u64, term.residue());
        nat::add_multiple(&mut self.limbs[1..], (factor >> 64) as u64, term.residue());
        Ok(())
    }

    /// Returns the sum modulo `n`.
    pub fn reduce(&self) -> Plaintext {
        Plaintext::from_residue(&self.key, self.key.reduction().reduce(&self.limbs))
    }
}

impl fmt::Debug for ResidueSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResidueSum(<redacted>)")
    }
}

/// Reduces integers modulo a public `n` without a division (Barrett's method), in time that depends on lengths only.
///
/// Let `n` have `k` limbs. Of an integer `x` with three limbs more, the leading four limbs times the reciprocal give a
/// quotient that is at most two too small, so the remainder is below `3 n`.
pub(crate) struct Reduction {
    /// `floor(2^(64 (k + 4)) / n)`.
    reciprocal: Vec<u64>,
    /// `n` with two more limbs.
    modulus: Vec<u64>,
}

impl Reduction {
    /// How many limbs more than `n` an integer has.
    const EXTRA: usize = 3;

    pub(crate) fn new(n: &Nat, limbs: usize) -> Self {
        let power = nat::power_of_two(u64::BITS * (limbs as u32 + 4));
        let (reciprocal, _) = nat::div_rem_vartime(&power, n);
        Self { reciprocal: nat::limbs(&reciprocal, 6).to_vec(), modulus: nat::limbs(n, limbs + 2).to_vec() }
    }

    fn reduce(&self, x: &[u64]) -> Limbs {
        let limbs = self.modulus.len() - 2;
        let leading = &x[limbs - 1..];
        let mut product = Zeroizing::new(vec![0; leading.len() + self.reciprocal.len()]);
        for (i, &limb) in leading.iter().enumerate() {
            nat::add_multiple(&mut product[i..], limb, &self.reciprocal);
        }
        // the difference is below 2^(64 (k + 2)), so it is computed modulo that
        let mut multiple = Zeroizing::new(vec![0; limbs + 2]);
        for (i, &limb) in product[5..].iter().take(limbs + 2).enumerate() {
            nat::add_multiple(&mut multiple[i..], limb, &self.modulus);
        }
        let mut borrow = false;
        for (m, &x) in multiple.iter_mut().zip(x) {
            let (low, b1) = x.overflowing_sub(*m);
            let (low, b2) = low.overflowing_sub(u64::from(borrow));
            (*m, borrow) = (low, b1 | b2);
        }
        let below_twice = nat::subtract_once(&multiple, &self.modulus);
        nat::subtract_once(&below_twice, &self.modulus[..=limbs])
    }
}

impl Plaintext {
    /// Creates the plaintext with this residue: a big-endian integer below `n`, in as many bytes as `n` has.
    ///
    /// # Errors
    /// [`Error::PlaintextRange`] if it has another length or is not below `n`.
    pub fn from_residue_bytes(key: &EncryptionKey, residue: &[u8]) -> Result<Self, Error> {
        if residue.len() != key.modulus_bytes() {
            return Err(Error::PlaintextRange);
        }
        let residue = nat::from_be_bytes(residue, key.modulus_bytes()).ok_or(Error::PlaintextRange)?;
        if nat::cmp_vartime(&residue, key.modulus().nat()).is_ge() {
            return Err(Error::PlaintextRange);
        }
        Ok(Self::from_residue(key, nat::limbs(&residue, key.modulus().limbs())))
    }

    /// Returns the residue modulo `n` in as many big-endian bytes as `n` has.
    pub fn to_residue_bytes(&self) -> Zeroizing<Vec<u8>> {
        nat::to_be_bytes(&nat::from_limbs(self.residue()), self.key().modulus_bytes())
    }

    /// Returns the difference modulo `n`.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`] for plaintexts of two keys.
    pub fn minus(&self, other: &Self) -> Result<Self, Error> {
        if self.key() != other.key() {
            return Err(Error::KeyMismatch);
        }
        let n = self.key().modulus();
        // x + n - y is below 2 n
        let shifted = nat::add(&nat::from_limbs(self.residue()), n.nat());
        let difference = nat::sub(&shifted, &nat::from_limbs(other.residue()));
        let count = n.limbs();
        let reduced =
            nat::subtract_once(&nat::limbs(&difference, count + 1), &nat::limbs(n.nat(), count + 1));
        Ok(Self::from_residue(self.key(), reduced))
    }
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;
    use rand_core::Rng as _;

    use super::*;
    use crate::{DecryptionKey, NoiseMode, Threads, hazmat};

    fn key() -> EncryptionKey {
        let mut rng = crate::simple::os_rng().unwrap();
        let bits = hazmat::insecure_key_bits(256).unwrap();
        let key = DecryptionKey::generate(bits, NoiseMode::Secure, &mut rng, Threads::new(1)).unwrap();
        key.encryption_key().clone()
    }

    #[test]
    fn reduction_matches_division() {
        let mut rng = crate::simple::os_rng().unwrap();
        for limbs in [1, 2, 4, 5, 32, 48] {
            for shape in 0..6 {
                let mut n: Vec<u64> = (0..limbs).map(|_| rng.next_u64()).collect();
                match shape {
                    0 => n.fill(u64::MAX),
                    // the smallest with this many limbs, and one with a short leading limb
                    1 => n.fill(0),
                    2 => n[limbs - 1] >>= 50,
                    _ => n[limbs - 1] |= 1 << 63,
                }
                n[limbs - 1] |= 1;
                let reduction = Reduction::new(&nat::from_limbs(&n), limbs);
                let big = |limbs: &[u64]| {
                    BigUint::from_bytes_le(
                        &limbs.iter().flat_map(|limb| limb.to_le_bytes()).collect::<Vec<_>>(),
                    )
                };
                let (modulus, most) = (big(&n), big(&vec![u64::MAX; limbs + 3]));
                // around multiples of n, and at random
                let multiple = &most / &modulus * &modulus;
                let one = BigUint::from(1u32);
                let mut all =
                    vec![BigUint::ZERO, most, modulus.clone(), &modulus - &one, &multiple - &one, multiple];
                all.extend((0..50).map(|_| big(&(0..limbs + 3).map(|_| rng.next_u64()).collect::<Vec<_>>())));
                for x in all {
                    let mut digits = x.to_u64_digits();
                    digits.resize(limbs + 3, 0);
                    assert_eq!(
                        big(&reduction.reduce(&digits)),
                        &x % &modulus,
                        "{limbs} limbs, shape {shape}"
                    );
                }
            }
        }
    }

    #[test]
    fn sums_and_differences_match_big_integers() {
        let key = key();
        let bytes =
            |n: usize, salt: u8| (0..n).map(|i| (i as u8).wrapping_mul(37) ^ salt).collect::<Vec<u8>>();
        let n = BigUint::from_bytes_be(&{
            // n is one more than the residue of -1
            let minus_one = Plaintext::new(&key, -1).unwrap().to_residue_bytes().to_vec();
            (BigUint::from_bytes_be(&minus_one) + 1u32).to_bytes_be()
        });
        let mut sum = ResidueSum::new(&key);
        let mut expected = BigUint::ZERO;
        for (length, salt) in [(0, 0), (1, 255), (7, 3), (8, 9), (31, 77), (48, 255), (47, 129)] {
            let term = bytes(length, salt);
            sum.add_bytes(&term).unwrap();
            expected += BigUint::from_bytes_be(&term);
        }
        let m = Plaintext::new(&key, -12_345).unwrap();
        let residue = BigUint::from_bytes_be(&m.to_residue_bytes());
        sum.add_product(u128::MAX, &m).unwrap();
        sum.add(&m).unwrap();
        expected += BigUint::from(u128::MAX) * &residue + &residue;
        let found = sum.reduce();
        assert_eq!(BigUint::from_bytes_be(&found.to_residue_bytes()), &expected % &n);
        let difference = m.minus(&found).unwrap();
        assert_eq!(
            BigUint::from_bytes_be(&difference.to_residue_bytes()),
            (residue + &n - expected % &n) % &n
        );
        assert_eq!(found.minus(&found).unwrap(), Plaintext::new(&key, 0).unwrap());
        assert!(matches!(sum.add_bytes(&[0; 49]), Err(Error::PlaintextRange)));
        // residues of n and above, and other lengths, are refused
        let n_bytes = n.to_bytes_be();
        assert!(Plaintext::from_residue_bytes(&key, &n_bytes).is_err());
        assert!(Plaintext::from_residue_bytes(&key, &n_bytes[1..]).is_err());
        assert!(Plaintext::from_residue_bytes(&key, &[255; 32]).is_err());
        let last = (n - 1u32).to_bytes_be();
        assert_eq!(Plaintext::from_residue_bytes(&key, &last).unwrap().to_i64(), Some(-1));
    }
}
