//! Many small numbers in one plaintext.

use zeroize::Zeroizing;

use crate::arith::nat;
use crate::{EncryptionKey, Error, KeyBits, Plaintext};

/// How small signed numbers share a plaintext: `sum_k v_k 2^(slot_bits k)`, signs included, no offsets.
///
/// A sum of packed plaintexts is the packed sums, so ciphertexts of packed plaintexts can be added; the
/// layout leaves room for a stated number of terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLayout {
    key_bits: KeyBits,
    value_bits: u32,
    terms: u64,
    slot_bits: u32,
    slots: usize,
}

impl SlotLayout {
    /// Slots for values of `value_bits` bits, sign included, of which up to `terms` are added up.
    ///
    /// # Errors
    /// [`Error::SlotLayout`] if such a slot cannot be, or is wider than 64 bits or than the plaintext.
    pub fn new(key: &EncryptionKey, value_bits: u32, terms: u64) -> Result<Self, Error> {
        let error = |reason| Error::SlotLayout { value_bits, terms, reason };
        if value_bits < 2 {
            return Err(error("a value needs at least two bits, one of them the sign"));
        }
        if terms == 0 {
            return Err(error("at least one term must fit"));
        }
        let slot_bits = value_bits.saturating_add(64 - (terms - 1).leading_zeros());
        if slot_bits > 64 {
            return Err(error("the sums would need more than 64 bits"));
        }
        let slots = ((key.bits().get() - 2) / slot_bits) as usize;
        if slots == 0 {
            return Err(error("not one slot fits the plaintext"));
        }
        Ok(Self { key_bits: key.bits(), value_bits, terms, slot_bits, slots })
    }

    /// Bits of one slot.
    pub fn slot_bits(&self) -> u32 {
        self.slot_bits
    }

    /// Slots of one plaintext.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// How many values may be added up in a slot.
    pub fn terms(&self) -> u64 {
        self.terms
    }

    /// Values must be above `-bound` and below `bound`.
    pub fn bound(&self) -> i64 {
        // value_bits is at most 64, when one term fits; the bound is then that of i64 itself
        1i64.checked_shl(self.value_bits - 1).filter(|&bound| bound > 0).unwrap_or(i64::MAX)
    }

    /// How many plaintexts hold `values` values.
    pub fn plaintexts(&self, values: usize) -> usize {
        values.div_ceil(self.slots)
    }

    /// Packs values, the last plaintext filled up with zeros.
    ///
    /// # Errors
    /// [`Error::SlotOverflow`] for a value that does not fit, [`Error::KeyMismatch`] for a key of another
    /// length than the layout was made for; nothing is packed then.
    pub fn pack(&self, key: &EncryptionKey, values: &[i64]) -> Result<Vec<Plaintext>, Error> {
        self.check_key(key)?;
        let bound = self.bound();
        if let Some(index) = values.iter().position(|&value| value >= bound || value <= -bound) {
            return Err(Error::SlotOverflow { index, bound });
        }
        let limb_count = key.modulus().limbs();
        values
            .chunks(self.slots)
            .map(|values| {
                // two's complement over the whole width: add each value sign-extended
                let mut limbs = Zeroizing::new(vec![0u64; limb_count]);
                for (k, &value) in values.iter().enumerate() {
                    add_shifted(&mut limbs, value, k as u32 * self.slot_bits);
                }
                let negative = limbs.last().is_some_and(|limb| limb >> 63 == 1);
                if negative {
                    negate(&mut limbs);
                }
                Plaintext::from_nat(key, negative, &nat::from_limbs(&limbs))
            })
            .collect()
    }

    /// Unpacks the first `count` values.
    ///
    /// # Errors
    /// [`Error::Length`] if there are not as many plaintexts as hold that many values,
    /// [`Error::KeyMismatch`] if one is of a key of another length, [`Error::SlotResidue`] if a sum is larger
    /// than its terms can make it or something lies beyond the slots: an overflow, or tampering.
    pub fn unpack(&self, plaintexts: &[Plaintext], count: usize) -> Result<Vec<i64>, Error> {
        let expected = self.plaintexts(count);
        if plaintexts.len() != expected {
            return Err(Error::Length { expected, found: plaintexts.len() });
        }
        let mut values = Vec::with_capacity(plaintexts.len() * self.slots);
        // the largest magnitude that `terms` values can add up to, which fits a slot by construction
        let most = u128::from(self.terms) * (self.bound().unsigned_abs() as u128 - 1);
        for plaintext in plaintexts {
            self.check_key(plaintext.key())?;
            let (negative, mut limbs) = plaintext.sign_and_limbs();
            limbs.push(0);
            if negative {
                negate(&mut limbs);
            }
            let mut borrow = 0u64;
            for k in 0..self.slots as u32 {
                // a negative slot below took one away
                let digit = slot(&limbs, k * self.slot_bits, self.slot_bits).wrapping_add(borrow);
                let spare = 64 - self.slot_bits;
                let value = ((digit << spare) as i64) >> spare;
                borrow = u64::from(value < 0 || (borrow == 1 && value == 0));
                if u128::from(value.unsigned_abs()) > most {
                    return Err(Error::SlotResidue);
                }
                values.push(value);
            }
            // above the slots there must be nothing but sign
            let top = self.slots as u32 * self.slot_bits;
            let rest = if borrow == 1 { u64::MAX } else { 0 };
            let bits = 64 * limbs.len() as u32 - top;
            for at in (0..bits).step_by(32) {
                let width = 32.min(bits - at);
                if slot(&limbs, top + at, width) != rest & (u64::MAX >> (64 - width)) {
                    return Err(Error::SlotResidue);
                }
            }
        }
        values.truncate(count);
        Ok(values)
    }
}

impl SlotLayout {
    pub(crate) fn check_key(&self, key: &EncryptionKey) -> Result<(), Error> {
        if key.bits() == self.key_bits { Ok(()) } else { Err(Error::KeyMismatch) }
    }
}

/// Adds `value 2^at` in two's complement.
fn add_shifted(limbs: &mut [u64], value: i64, at: u32) {
    let (first, shift) = (at as usize / 64, at % 64);
    let sign = (value >> 63) as u64;
    let wide = i128::from(value) << shift;
    let mut carry = false;
    for (i, limb) in limbs.iter_mut().enumerate().skip(first) {
        let addend = match i - first {
            0 => wide as u64,
            1 => (wide >> 64) as u64,
            _ => sign,
        };
        let (sum, c1) = limb.overflowing_add(addend);
        let (sum, c2) = sum.overflowing_add(u64::from(carry));
        *limb = sum;
        carry = c1 | c2;
        // beyond the value itself, only a carry or a sign goes on
        if i > first && (sign == 0) != carry {
            break;
        }
    }
}

/// Two's complement negation.
fn negate(limbs: &mut [u64]) {
    let mut carry = true;
    for limb in limbs {
        let (sum, c) = (!*limb).overflowing_add(u64::from(carry));
        *limb = sum;
        carry = c;
    }
}

/// `width <= 64` bits from bit `at` on.
fn slot(limbs: &[u64], at: u32, width: u32) -> u64 {
    let (first, shift) = (at as usize / 64, at % 64);
    let low = limbs.get(first).copied().unwrap_or(0) >> shift;
    let high = limbs.get(first + 1).copied().unwrap_or(0) << 1 << (63 - shift);
    (low | high) & (u64::MAX >> (64 - width))
}
