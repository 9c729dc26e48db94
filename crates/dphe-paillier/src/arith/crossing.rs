//! From residues modulo `n^2` to residues modulo the square of a factor.
//!
//! With `n = p q`, the pair `c0 + c1 n` is `c0 + (c1 q) p`. So the upper half is reduced modulo `p` and
//! multiplied by `q`, and both halves together are reduced to a pair modulo `p^2`.

use super::lanes::Lanes;
use super::modulus::{Modulus, Scratch};
use super::nat::{self, Nat};
use super::units::{
    BufferMut, Canonical, Factor, Foreign, FromForeign, Group, Loose, Mont, N2, Number, OverR, P, P2, Plain,
    Public, RSquared,
};

/// The constants of one factor `p`.
pub(crate) struct Crossing {
    /// `R^3 / R_n` modulo `p^2`, where `R_n` belongs to `n`: from one Montgomery form to the other.
    enter: Number<P2, FromForeign, Canonical, Lanes>,
    /// `q R^2` modulo `p`.
    cofactor: Number<P, RSquared, Canonical, Lanes>,
}

/// Forms modulo `n^2` that can be reduced modulo `p^2`.
pub(crate) trait Cross {
    /// The form of the result.
    type Crossed;
}
impl Cross for Plain {
    type Crossed = OverR;
}
impl Cross for Mont {
    type Crossed = Foreign;
}

impl Crossing {
    /// Prepares the factor `p` of `n = p q`, or returns `None` if the `R` of `n` has no inverse modulo `p`.
    pub(crate) fn new(p: &Modulus<Factor>, q: &Nat, n: &Modulus<Public>) -> Option<Self> {
        let digit_bits = n.backend().digit_bits();
        let r = nat::power_of_two(digit_bits * p.residue_words() as u32);
        let r_n = nat::power_of_two(digit_bits * n.residue_words() as u32);
        let p_squared = nat::mul(p.nat(), p.nat());
        let r_cubed = nat::mul(&nat::mul(&r, &r), &r);
        let enter = nat::mul(&nat::rem(&r_cubed, &p_squared), &nat::invert(&r_n, &p_squared)?);
        let cofactor = nat::rem(&nat::mul(q, &nat::mul(&r, &r)), p.nat());
        Some(Self { enter: p.pair(&enter).claim_form(), cofactor: p.residue(&cofactor).claim_form() })
    }

    /// `c / R` modulo `p^2` for a group of pairs modulo `n^2`.
    pub(crate) fn reduce<F: Cross>(
        &self,
        n: &Modulus<Public>,
        p: &Modulus<Factor>,
        z: &mut Group<P2, F::Crossed, Loose, impl BufferMut>,
        group: &[Number<N2, F, Canonical, &[u64]>],
        scratch: &mut Scratch,
    ) {
        let (mut lower, mut upper) = (p.wide::<Plain>(), p.wide::<Plain>());
        let half = |i: usize| group.iter().map(|c| c.halves()[i]).collect::<Vec<_>>();
        // The steps are the same for both forms of `c`. They are written for plain numbers.
        let mut z = Group::<P2, OverR, Loose, _>::claim(z.digits_mut());
        let mut product = p.residues();
        p.gather_wide(&mut lower, &half(1), n.residue_words());
        {
            let [mut reduced, _] = z.view_mut().halves_mut();
            p.reduce_wide(&mut reduced, &lower, scratch);
            p.mul(&mut product, &reduced, &p.broadcast(&self.cofactor), scratch);
        }
        upper.digits_mut()[..product.digits().len()].copy_from_slice(product.digits());
        p.gather_wide(&mut lower, &half(0), n.residue_words());
        p.reduce_pair(&mut z, &mut lower, &mut upper, scratch);
    }

    /// A group of ciphertexts in the Montgomery form of `p`.
    pub(crate) fn enter(
        &self,
        n: &Modulus<Public>,
        p: &Modulus<Factor>,
        group: &[Number<N2, Mont, Canonical, &[u64]>],
        scratch: &mut Scratch,
    ) -> Group<P2, Mont, Loose, Lanes> {
        let (mut z, mut base) = (p.pairs(), p.pairs());
        self.reduce(n, p, &mut z, group, scratch);
        p.mul(&mut base, &z, &p.broadcast(&self.enter), scratch);
        base
    }

    /// Damages one of the two constants.
    #[cfg(test)]
    pub(crate) fn damage(&mut self, constant: usize) {
        if constant == 0 { self.enter.damage(0) } else { self.cofactor.damage(0) }
    }
}
