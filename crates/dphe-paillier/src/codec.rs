//! Ciphertexts as bytes and as integers.
//!
//! The wire form is the canonical base-`n` pair `c = c0 + c1 n`, written `c1 || c0` in fixed-width
//! big-endian bytes: neither side divides. The integer form `c` itself, big-endian, is what
//! python-paillier and others use.

use crate::arith::lanes::Lanes;
use crate::arith::nat;
use crate::ciphertext::Workspace;
use crate::{Ciphertext, EncryptionKey, Error, Threads};

impl EncryptionKey {
    /// The wire form of a batch, one ciphertext of [`EncryptionKey::ciphertext_bytes`] after the other.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`].
    pub fn encode(&self, ciphertexts: &[Ciphertext], threads: Threads) -> Result<Vec<u8>, Error> {
        self.check_ciphertexts(ciphertexts)?;
        Ok(self.write_groups(ciphertexts.len(), threads, self.leave_montgomery_form(ciphertexts)))
    }

    /// Reads a batch in wire form, checking that each is canonical and a unit, and brings it into the form for
    /// computing.
    ///
    /// # Errors
    /// As [`EncryptionKey::read_wire`].
    pub fn decode(&self, bytes: &[u8], threads: Threads) -> Result<Vec<Ciphertext>, Error> {
        Ok(self.read_wire(bytes, threads)?.to_ciphertexts(threads))
    }

    /// The integers in `0..n^2`, big-endian: the form of python-paillier.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`].
    pub fn to_integers(&self, ciphertexts: &[Ciphertext], threads: Threads) -> Result<Vec<Vec<u8>>, Error> {
        let n = self.modulus();
        self.check_ciphertexts(ciphertexts)?;
        let plain = self.by_group(ciphertexts.len(), threads, self.leave_montgomery_form(ciphertexts));
        let integers = plain.into_iter().map(|pair| {
            let (c0, c1) = pair.digits().split_at(n.residue_words());
            let (c0, c1) = (nat::from_limbs(&n.limbs_of(c0)), nat::from_limbs(&n.limbs_of(c1)));
            nat::to_be_bytes(&nat::add(&c0, &nat::mul(&c1, n.nat())), self.ciphertext_bytes()).to_vec()
        });
        Ok(integers.collect())
    }

    /// Reads integers in `0..n^2`, big-endian, leading zeros allowed.
    ///
    /// # Errors
    /// [`Error::CiphertextRange`] naming one that is too long, else the first that is out of range;
    /// [`Error::CiphertextUnit`] naming the first that is not a unit.
    pub fn from_integers(&self, integers: &[&[u8]], threads: Threads) -> Result<Vec<Ciphertext>, Error> {
        let mut halves = Vec::with_capacity(integers.len());
        for (index, integer) in integers.iter().enumerate() {
            let integer = nat::from_be_bytes(integer, self.ciphertext_bytes());
            let integer = integer.ok_or(Error::CiphertextRange { index })?;
            let (c1, c0) = nat::div_rem_vartime(&integer, self.modulus().nat());
            halves.push((c0, c1));
        }
        let plain = self.read_halves(halves.len(), threads, |i, c0, c1| {
            c0.copy_from_slice(&nat::limbs(&halves[i].0, c0.len()));
            c1.copy_from_slice(&nat::limbs(&halves[i].1, c1.len()));
        })?;
        Ok(plain.to_ciphertexts(threads))
    }

    /// Brings groups of ciphertexts out of Montgomery form. They are then of no use but to be written down.
    fn leave_montgomery_form<'a>(
        &'a self,
        ciphertexts: &'a [Ciphertext],
    ) -> impl Fn(core::ops::Range<usize>, &mut Workspace) + Sync + 'a {
        let n = self.modulus();
        let mut one = Lanes::zeros(n.pair_words());
        one[0] = 1;
        let one = n.broadcast(&one);
        move |range, Workspace { z, x, scratch, .. }| {
            let sources: Vec<&[u64]> = ciphertexts[range].iter().map(Ciphertext::digits).collect();
            n.gather(x, &sources, n.one());
            n.mul_pair(z, x, &one, scratch);
        }
    }
}
