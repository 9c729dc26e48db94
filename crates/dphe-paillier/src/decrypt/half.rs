//! The arithmetic of decryption modulo the square of one factor.

use crate::arith::crossing::Crossing;
use crate::arith::lanes::Lanes;
use crate::arith::modulus::{Modulus, Scratch};
use crate::arith::nat::{self, Limbs, Nat};
use crate::arith::pow::{self, Exponent};
use crate::arith::units::{Canonical, Counted, Factor, Group, Loose, Mont, Number, P, P2, Plain, Public};
use crate::ciphertext::Digits;

/// A group of numbers modulo `p^2`.
pub(super) type Pairs<F> = Group<P2, F, Loose, Lanes>;

/// Precomputed values of one factor `p` of `n = p q`.
pub(crate) struct Half {
    pub(super) modulus: Modulus<Factor>,
    pub(super) crossing: Crossing<Factor>,
    /// `p - 1`
    pub(super) exponent: Exponent,
    /// `(-q)^-1 q^-1` modulo `p`: from the logarithm to this factor's share of the plaintext.
    pub(super) scale: Group<P, Mont, Canonical, Lanes>,
}

impl Half {
    /// Prepares the prime `p` of `n = p q`, or returns `None` if `q` has no inverse modulo `p`.
    pub(crate) fn new(p: &Nat, q: &Nat, n: &Modulus<Public>) -> Option<Self> {
        let modulus = Modulus::new(p, n.backend());
        // With g = 1 + n, the logarithm of g is -q modulo p.
        let inverse = nat::invert(q, p)?;
        let square = nat::rem(&nat::mul(&inverse, &inverse), p);
        let r = nat::power_of_two(n.backend().digit_bits() * modulus.residue_words() as u32);
        let scale = nat::rem(&nat::mul(&nat::sub(p, &square), &r), p);
        Some(Self {
            crossing: Crossing::new(&modulus, q, n)?,
            exponent: Exponent::new(&nat::sub(p, &nat::small(1)), modulus.bits()),
            scale: modulus.broadcast(&modulus.residue(&scale).claim_form()),
            modulus,
        })
    }

    /// Returns the prime.
    pub(crate) fn prime(&self) -> &Nat {
        self.modulus.nat()
    }

    /// Returns a group of ciphertexts modulo `p^2`.
    pub(super) fn enter(
        &self,
        n: &Modulus<Public>,
        group: &[Digits<'_>],
        scratch: &mut Scratch,
    ) -> Pairs<Mont> {
        self.crossing.enter(n, &self.modulus, group, scratch)
    }

    /// Returns `c^(p-1)` modulo `p^2` for a group.
    fn power(&self, base: &Pairs<Mont>, scratch: &mut Scratch) -> Pairs<Plain> {
        let p = &self.modulus;
        let power = pow::pow(p, base, &self.exponent, scratch);
        let mut plain = p.pairs();
        p.leave(&mut plain, &power, scratch);
        plain
    }

    /// Returns this factor's shares `m q^-1` modulo `p` of the first `count` plaintexts of a group.
    pub(super) fn shares(&self, base: &Pairs<Mont>, count: usize, scratch: &mut Scratch) -> Vec<Limbs> {
        let p = &self.modulus;
        let mut power = self.power(base, scratch);
        let [_, logarithm] = p.canonical(&mut power, scratch).halves_mut();
        let mut share = p.residues();
        // A plain number times one in Montgomery form is plain.
        p.mul(&mut share, &self.scale, &logarithm, scratch);
        let shares: Vec<Number<_, _, _, Lanes>> = p.take_apart(&p.canonical(&mut share, scratch), count);
        shares.iter().map(|share| p.to_limbs(share)).collect()
    }

    /// Returns whether the first number of a group encrypts zero modulo this factor.
    pub(super) fn encrypts_zero(&self, base: &Pairs<Mont>, scratch: &mut Scratch) -> bool {
        let p = &self.modulus;
        let mut power = self.power(base, scratch);
        let power = p.lane(&p.canonical(&mut power, scratch), 0);
        // No early exit, because the digits are secret.
        let one = p.plain_one();
        let difference = power.digits().iter().zip(one.digits()).fold(0, |all, (x, y)| all | (x ^ y));
        core::hint::black_box(difference) == 0
    }

    /// Returns `R^2` in Montgomery form.
    pub(super) fn r_squared(&self, scratch: &mut Scratch) -> Number<P2, Counted, Loose, Lanes> {
        let p = &self.modulus;
        let mut square = p.pairs();
        p.square(&mut square, &p.r_in_mont(), scratch);
        p.lane(&square, 0).counted()
    }

    /// Damages one of the three constants.
    #[cfg(test)]
    pub(super) fn damage(&mut self, constant: usize) {
        let lanes = 0..self.modulus.lanes();
        if constant < 2 { self.crossing.damage(constant, lanes) } else { self.scale.damage_lanes(lanes) }
    }
}
