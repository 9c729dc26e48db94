//! Packing of many small numbers into one plaintext.

use zeroize::Zeroizing;

use crate::arith::nat;
use crate::{EncryptionKey, Error, KeyBits, Plaintext};

/// The layout of small signed numbers in a plaintext: `sum_k v_k 2^(slot_bits k)`, where the `v_k` keep their
/// signs.
///
/// The sum of packed plaintexts holds the sums of their slots, so ciphertexts of packed plaintexts can be
/// added. The layout leaves room for a given number of terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLayout {
    key_bits: KeyBits,
    value_bits: u32,
    terms: u64,
    slot_bits: u32,
    slots: usize,
}

impl SlotLayout {
    /// Creates a layout for values of `value_bits` bits, including the sign, of which up to `terms` are added
    /// up.
    ///
    /// # Errors
    /// [`Error::SlotLayout`] if a slot would have no room for a value, or more than 64 bits, or more bits
    /// than a plaintext.
    pub fn new(key: &EncryptionKey, value_bits: u32, terms: u64) -> Result<Self, Error> {
        let error = |reason| Error::SlotLayout { value_bits, terms, reason };
        if value_bits < 2 {
            return Err(error("a value needs at least two bits, one of which is the sign"));
        }
        if terms == 0 {
            return Err(error("a slot needs room for at least one term"));
        }
        let slot_bits = value_bits.saturating_add(64 - (terms - 1).leading_zeros());
        if slot_bits > 64 {
            return Err(error("the sums would need more than 64 bits"));
        }
        let slots = ((key.bits().get() - 2) / slot_bits) as usize;
        if slots == 0 {
            return Err(error("a plaintext has no room for a slot"));
        }
        Ok(Self { key_bits: key.bits(), value_bits, terms, slot_bits, slots })
    }

    /// Returns the bits of one slot.
    pub fn slot_bits(&self) -> u32 {
        self.slot_bits
    }

    /// Returns the slots of one plaintext.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Returns how many values may be added up in a slot.
    pub fn terms(&self) -> u64 {
        self.terms
    }

    /// Returns the bound: values must be above `-bound` and below `bound`.
    pub fn bound(&self) -> i64 {
        // With 64 value bits, one term fits, and the bound is that of i64 itself.
        1i64.checked_shl(self.value_bits - 1).filter(|&bound| bound > 0).unwrap_or(i64::MAX)
    }

    /// Returns how many plaintexts hold `values` values.
    pub fn plaintexts(&self, values: usize) -> usize {
        values.div_ceil(self.slots)
    }

    /// Packs values. The last plaintext is filled up with zeros.
    ///
    /// # Errors
    /// [`Error::SlotOverflow`] for a value that does not fit, [`Error::KeyMismatch`] for a key whose length
    /// differs from that of the layout.
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
                // Two's complement over the whole width: each value is added with its sign extended.
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
    /// [`Error::Length`] if the number of plaintexts is not that of `count` values, [`Error::KeyMismatch`]
    /// for a plaintext of a key of another length, [`Error::SlotResidue`] if a sum is larger than its terms
    /// allow or there are bits beyond the slots, because of an overflow or tampering.
    pub fn unpack(&self, plaintexts: &[Plaintext], count: usize) -> Result<Vec<i64>, Error> {
        let expected = self.plaintexts(count);
        if plaintexts.len() != expected {
            return Err(Error::Length { expected, found: plaintexts.len() });
        }
        let mut values = Vec::with_capacity(plaintexts.len() * self.slots);
        // The largest magnitude that `terms` values can add up to. It fits a slot by construction.
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
                // A negative slot below has borrowed one.
                let digit = slot(&limbs, k * self.slot_bits, self.slot_bits).wrapping_add(borrow);
                let spare = 64 - self.slot_bits;
                let value = ((digit << spare) as i64) >> spare;
                borrow = u64::from(value < 0 || (borrow == 1 && value == 0));
                if u128::from(value.unsigned_abs()) > most {
                    return Err(Error::SlotResidue);
                }
                values.push(value);
            }
            // Above the slots, there must be only copies of the sign.
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
        // Beyond the value itself, only a carry or the sign propagates.
        if i > first && (sign == 0) != carry {
            break;
        }
    }
}

/// Negates in two's complement.
fn negate(limbs: &mut [u64]) {
    let mut carry = true;
    for limb in limbs {
        let (sum, c) = (!*limb).overflowing_add(u64::from(carry));
        *limb = sum;
        carry = c;
    }
}

/// Returns `width <= 64` bits, starting at bit `at`.
fn slot(limbs: &[u64], at: u32, width: u32) -> u64 {
    let (first, shift) = (at as usize / 64, at % 64);
    let low = limbs.get(first).copied().unwrap_or(0) >> shift;
    let high = limbs.get(first + 1).copied().unwrap_or(0) << 1 << (63 - shift);
    (low | high) & (u64::MAX >> (64 - width))
}
