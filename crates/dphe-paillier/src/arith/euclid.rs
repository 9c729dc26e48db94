//! Inverses of public numbers, by Lehmer's form of Euclid's algorithm.
//!
//! The quotients of two long numbers are those of their top 128 bits, up to a point that Jebelean's condition finds (A
//! double-digit Lehmer-Euclid algorithm, 1995). So about 37 steps on words replace as many steps on long numbers, which
//! are then carried out at once. The time depends on the numbers.

use super::nat;

/// Returns the inverse of `x` modulo `m`, if there is one. Both have equally many limbs, and `x < m`.
pub(super) fn invert_vartime(x: &[u64], m: &[u64]) -> Option<Vec<u64>> {
    let limbs = m.len();
    let (mut a, mut b) = (m.to_vec(), x.to_vec());
    // Up to its sign, `a` is `u x` modulo `m`, and `b` is `v x` with the other sign. Both stay below `m`.
    let (mut u, mut v) = (vec![0; limbs], vec![0; limbs]);
    v[0] = 1;
    let mut b_is_positive = true;
    while length(&b) > 0 {
        let steps = Steps::of(&a, &b);
        if steps.count == 0 {
            // A quotient that is longer than a word, or whose size the top bits do not decide.
            let (quotient, remainder) = nat::div_rem_vartime(&nat::from_limbs(&a), &nat::from_limbs(&b));
            a = core::mem::replace(&mut b, nat::limbs(&remainder, limbs).to_vec());
            let sum = nat::add(&nat::from_limbs(&u), &nat::mul(&quotient, &nat::from_limbs(&v)));
            u = core::mem::replace(&mut v, nat::limbs(&sum, limbs).to_vec());
        } else {
            steps.reduce(&mut a, &mut b);
            steps.extend(&mut u, &mut v);
        }
        b_is_positive ^= steps.count % 2 == 1 || steps.count == 0;
    }
    if length(&a) != 1 || a[0] != 1 {
        return None;
    }
    if b_is_positive {
        // `a` is `-u x`
        let difference = nat::sub(&nat::from_limbs(m), &nat::from_limbs(&u));
        u = nat::limbs(&difference, limbs).to_vec();
    }
    Some(u)
}

/// Some steps of Euclid's algorithm: the new `a` is `x0 a - y0 b`, and the new `b` is `y1 b - x1 a`, both with the
/// other sign after an odd number of steps.
struct Steps {
    x: [u64; 2],
    y: [u64; 2],
    count: u32,
}

impl Steps {
    /// Returns the steps that the top bits of `a >= b` decide.
    fn of(a: &[u64], b: &[u64]) -> Self {
        let limbs = length(a);
        let exact = limbs <= 2;
        let shift = if exact { 0 } else { a[limbs - 1].leading_zeros() };
        let top = |x: &[u64]| {
            let limb = |i: usize| limbs.checked_sub(i).map_or(0, |at| u128::from(x[at]));
            match limbs {
                0 | 1 => limb(1),
                2 => limb(1) << 64 | limb(2),
                // Two shifts, because a shift by 64 is not defined.
                _ => (limb(1) << 64 | limb(2)) << shift | limb(3) >> 1 >> (63 - shift),
            }
        };
        let (mut a, mut b) = (top(a), top(b));
        let mut steps = Self { x: [1, 0], y: [0, 1], count: 0 };
        while b != 0 {
            let Some((quotient, rest)) = divide(a, b) else { break };
            let next =
                |[x0, x1]: [u64; 2]| quotient.checked_mul(x1)?.checked_add(x0).filter(|x| x >> 63 == 0);
            let (Some(x), Some(y)) = (next(steps.x), next(steps.y)) else { break };
            // Jebelean's condition
            if !exact && (rest < y.into() || b - rest < u128::from(y) + u128::from(steps.y[1])) {
                break;
            }
            (a, b) = (b, rest);
            steps.x = [steps.x[1], x];
            steps.y = [steps.y[1], y];
            steps.count += 1;
        }
        steps
    }

    /// Carries the steps out on the numbers.
    fn reduce(&self, a: &mut [u64], b: &mut [u64]) {
        let sign = if self.count.is_multiple_of(2) { 1 } else { -1 };
        let [x0, x1] = self.x.map(|x| sign * i128::from(x));
        let [y0, y1] = self.y.map(|y| sign * i128::from(y));
        // Products are below 2^127, because the factors are below 2^63, and so are their differences.
        let (mut carry_a, mut carry_b) = (0, 0);
        let limbs = length(a);
        for (a, b) in a[..limbs].iter_mut().zip(b) {
            let (old_a, old_b) = (i128::from(*a), i128::from(*b));
            let new_a = x0 * old_a - y0 * old_b + carry_a;
            let new_b = y1 * old_b - x1 * old_a + carry_b;
            (*a, *b) = (new_a as u64, new_b as u64);
            (carry_a, carry_b) = (new_a >> 64, new_b >> 64);
        }
    }

    /// Carries the steps out on the factors of the input, whose signs alternate, so that they grow.
    fn extend(&self, u: &mut [u64], v: &mut [u64]) {
        let ([x0, x1], [y0, y1]) = (self.x.map(u128::from), self.y.map(u128::from));
        let (mut carry_u, mut carry_v) = (0, 0);
        let limbs = length(u).max(length(v)) + 1;
        for (u, v) in u.iter_mut().zip(v).take(limbs) {
            let (old_u, old_v) = (u128::from(*u), u128::from(*v));
            let new_u = x0 * old_u + y0 * old_v + carry_u;
            let new_v = x1 * old_u + y1 * old_v + carry_v;
            (*u, *v) = (new_u as u64, new_v as u64);
            (carry_u, carry_v) = (new_u >> 64, new_v >> 64);
        }
    }
}

/// Returns quotient and remainder of `a >= b > 0`, unless the quotient is longer than a word. Most quotients are small,
/// and subtractions are faster than a long division.
fn divide(a: u128, b: u128) -> Option<(u64, u128)> {
    let (mut quotient, mut rest) = (0, a);
    while rest >= b {
        if quotient == 8 {
            let more = u64::try_from(rest / b).ok()?;
            return Some((more.checked_add(quotient)?, rest % b));
        }
        rest -= b;
        quotient += 1;
    }
    Some((quotient, rest))
}

/// Returns how many limbs a number has without leading zeros.
fn length(x: &[u64]) -> usize {
    x.iter().rposition(|&limb| limb != 0).map_or(0, |top| top + 1)
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;

    use super::*;

    #[test]
    fn inverses_match_big_integers() {
        let mut state = 7u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 29
        };
        let number = |limbs: &[u64]| {
            BigUint::from_bytes_le(&limbs.iter().flat_map(|limb| limb.to_le_bytes()).collect::<Vec<u8>>())
        };
        for round in 0..2_000 {
            let limbs = 1 + round % 35;
            let mut m: Vec<u64> = (0..limbs).map(|_| random()).collect();
            let mut x: Vec<u64> = (0..limbs).map(|_| random()).collect();
            match round % 7 {
                // short numbers, long runs of ones or zeros, common factors
                0 => x[limbs / 2..].fill(0),
                1 => x[..limbs / 2].fill(0),
                2 => m[..limbs / 2].fill(u64::MAX),
                3 => (m[0], x[0]) = (m[0] & !1, x[0] & !1),
                4 => x.fill(u64::MAX),
                _ => {}
            }
            m[0] |= u64::from(round % 7 != 3);
            let reduced = number(&x) % number(&m);
            let mut x = reduced.to_u64_digits();
            x.resize(limbs, 0);
            let inverse = invert_vartime(&x, &m);
            let expected = if number(&m) == BigUint::from(1u8) { None } else { reduced.modinv(&number(&m)) };
            assert_eq!(inverse.map(|inverse| number(&inverse)), expected, "round {round}");
        }
        // consecutive Fibonacci numbers: every quotient is 1
        let (mut small, mut large) = (BigUint::from(1u8), BigUint::from(2u8));
        for _ in 0..2_900 {
            (small, large) = (large.clone(), large + small);
        }
        let (m, mut x) = (large.to_u64_digits(), small.to_u64_digits());
        x.resize(m.len(), 0);
        assert_eq!(number(&invert_vartime(&x, &m).unwrap()), small.modinv(&large).unwrap());
    }
}
