//! Section 4: weights as integers, and many integers in one plaintext.

use num_bigint::BigInt;

use super::task::Policy;

/// The error `value`: a weight cannot be sealed.
#[derive(Debug, PartialEq, Eq)]
pub struct Value;

/// Computes `e = round-half-even(w 2^f)`, limited to `2^(f+c) - 1`.
///
/// It works on the bits of `w = mantissa 2^exponent`, so that there is no other rounding.
///
/// # Errors
/// Returns [`Value`] for NaN and infinities, and for values outside the clip range if the policy does not clip.
pub fn encode(policy: &Policy, w: f64) -> Result<i64, Value> {
    let bits = w.to_bits();
    let raw_exponent = (bits >> 52 & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    if raw_exponent == 0x7ff {
        return Err(Value);
    }
    let (mantissa, exponent) =
        if raw_exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, raw_exponent - 1075) };
    let bound = BigInt::from(1) << (i32::from(policy.scale_bits) + i32::from(policy.clip_exponent));

    // w 2^f = mantissa 2^shift
    let shift = exponent + i32::from(policy.scale_bits);
    let mut inside = true;
    let magnitude = if shift >= 0 {
        // at most 2^1023 2^48
        let exact = BigInt::from(mantissa) << shift;
        inside &= exact <= bound;
        exact
    } else {
        let divisor = BigInt::from(1) << -shift;
        let exact = BigInt::from(mantissa);
        inside &= exact <= &bound * &divisor;
        let (mut rounded, rest) = (&exact / &divisor, &exact % &divisor);
        let twice = rest * 2;
        if twice > divisor || (twice == divisor && &rounded % 2 == BigInt::from(1)) {
            rounded += 1;
        }
        rounded
    };
    if !inside && !policy.clip {
        return Err(Value);
    }
    let limited = magnitude.min(bound - 1);
    let e = i64::try_from(limited).expect("value bits are at most 64");
    Ok(if bits >> 63 == 1 { -e } else { e })
}

/// Computes `sum_k e_k 2^(beta k)` of signed numbers.
pub fn pack(policy: &Policy, values: &[i64]) -> BigInt {
    let beta = policy.slot_bits();
    values.iter().rev().fold(BigInt::from(0), |all, &e| (all << beta) + e)
}

/// Decodes the first `count` slots of a sum of the plaintexts of `users` users. Returns `None` if it is not a sum of
/// that many valid plaintexts, for which G answers `round_failed`.
pub fn unpack(policy: &Policy, plaintext: &BigInt, count: usize, users: usize) -> Option<Vec<i64>> {
    let modulus = BigInt::from(1) << policy.slot_bits();
    let half = &modulus / 2;
    let most = BigInt::from(users) * policy.bound();
    let mut q = plaintext.clone();
    let mut values = Vec::new();
    for _ in 0..count {
        let mut r = ((&q % &modulus) + &modulus) % &modulus;
        if r >= half {
            r -= &modulus;
        }
        q = (q - &r) / &modulus;
        if r > most || r < -&most {
            return None;
        }
        values.push(i64::try_from(r).expect("slots have at most 64 bits"));
    }
    (q == BigInt::from(0)).then_some(values)
}

/// Encodes a sum for a payload, in two's complement with `ceil(beta / 8)` bytes.
pub fn payload_integer(policy: &Policy, sum: i64) -> Vec<u8> {
    let width = policy.slot_bits().div_ceil(8) as usize;
    sum.to_be_bytes()[8 - width..].to_vec()
}

/// Computes the average of a weight over users, not shards. Powers of two divide exactly, so it rounds once.
pub fn average(policy: &Policy, sum: i64, users: usize) -> f64 {
    sum as f64 / (1u64 << policy.scale_bits) as f64 / users as f64
}
