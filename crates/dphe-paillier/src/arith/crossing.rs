//! From residues modulo `n^2` to residues modulo the square of a factor.
//!
//! With `n = p q`, the pair `c0 + c1 n` is `c0 + (c1 q) p`. So the upper half is reduced modulo `p` and
//! multiplied by `q`, and both halves together are reduced to a pair modulo `p^2`.

use super::lanes::Lanes;
use super::modulus::{Modulus, Scratch};
use super::nat::{self, Nat};
use super::units::{
    BufferMut, Canonical, Factor, Factors, Foreign, FromForeign, Group, Loose, Mod, ModSquared, Mont, N2,
    Number, OverR, Plain, Public, RSquared, Value,
};

/// The constants of one factor `p`, or of both factors side by side.
pub(crate) struct Crossing<M> {
    /// `R^3 / R_n` modulo `p^2`, where `R_n` belongs to `n`: from one Montgomery form to the other.
    enter: Group<ModSquared<M>, FromForeign, Canonical, Lanes>,
    /// `q R^2` modulo `p`.
    cofactor: Group<Mod<M>, RSquared, Canonical, Lanes>,
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

impl Crossing<Factor> {
    /// Prepares the factor `p` of `n = p q`, or returns `None` if the `R` of `n` has no inverse modulo `p`.
    pub(crate) fn new(p: &Modulus<Factor>, q: &Nat, n: &Modulus<Public>) -> Option<Self> {
        let digit_bits = n.backend().digit_bits();
        let r = nat::power_of_two(digit_bits * p.residue_words() as u32);
        let r_n = nat::power_of_two(digit_bits * n.residue_words() as u32);
        let p_squared = nat::mul(p.nat(), p.nat());
        let r_cubed = nat::mul(&nat::mul(&r, &r), &r);
        let enter = nat::mul(&nat::rem(&r_cubed, &p_squared), &nat::invert(&r_n, &p_squared)?);
        let cofactor = nat::rem(&nat::mul(q, &nat::mul(&r, &r)), p.nat());
        Some(Self {
            enter: p.broadcast(&p.pair(&enter).claim_form()),
            cofactor: p.broadcast(&p.residue(&cofactor).claim_form()),
        })
    }
}

impl Crossing<Factors> {
    /// Puts the constants of both factors side by side.
    pub(crate) fn beside(p: &Crossing<Factor>, q: &Crossing<Factor>, lanes: usize) -> Self {
        Self {
            enter: Value::claim(Lanes::side_by_side(p.enter.digits(), q.enter.digits(), lanes)),
            cofactor: Value::claim(Lanes::side_by_side(p.cofactor.digits(), q.cofactor.digits(), lanes)),
        }
    }
}

impl<M> Crossing<M> {
    /// `c / R` modulo `p^2` for a group of pairs modulo `n^2`.
    pub(crate) fn reduce<F: Cross>(
        &self,
        n: &Modulus<Public>,
        p: &Modulus<M>,
        z: &mut Group<ModSquared<M>, F::Crossed, Loose, impl BufferMut>,
        group: &[Number<N2, F, Canonical, &[u64]>],
        scratch: &mut Scratch,
    ) {
        let (mut lower, mut upper) = (p.wide::<Plain>(), p.wide::<Plain>());
        let half = |i: usize| group.iter().map(|c| c.halves()[i]).collect::<Vec<_>>();
        // The steps are the same for both forms of `c`. They are written for plain numbers.
        let mut z = Group::<ModSquared<M>, OverR, Loose, _>::claim(z.digits_mut());
        let mut product = p.residues();
        p.gather_wide(&mut lower, &half(1), n.residue_words());
        {
            let [mut reduced, _] = z.view_mut().halves_mut();
            p.reduce_wide(&mut reduced, &lower, scratch);
            p.mul(&mut product, &reduced, &self.cofactor, scratch);
        }
        upper.digits_mut()[..product.digits().len()].copy_from_slice(product.digits());
        p.gather_wide(&mut lower, &half(0), n.residue_words());
        p.reduce_pair(&mut z, &mut lower, &mut upper, scratch);
    }

    /// A group of ciphertexts in the Montgomery form of `p`.
    pub(crate) fn enter(
        &self,
        n: &Modulus<Public>,
        p: &Modulus<M>,
        group: &[Number<N2, Mont, Canonical, &[u64]>],
        scratch: &mut Scratch,
    ) -> Group<ModSquared<M>, Mont, Loose, Lanes> {
        let (mut z, mut base) = (p.pairs(), p.pairs());
        self.reduce(n, p, &mut z, group, scratch);
        p.mul(&mut base, &z, &self.enter, scratch);
        base
    }

    /// Damages one of the two constants in some lanes.
    #[cfg(test)]
    pub(crate) fn damage(&mut self, constant: usize, lanes: core::ops::Range<usize>) {
        if constant == 0 { self.enter.damage_lanes(lanes) } else { self.cofactor.damage_lanes(lanes) }
    }
}
