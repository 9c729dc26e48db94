//! Sums that grow as ciphertexts arrive.
//!
//! Ciphertexts are not converted to Montgomery form. The first ciphertext at a position is stored as it came.
//! Each further one costs a single Montgomery product, which divides by `R`. So a product of `k` factors is
//! stored as `c_1 ... c_k R^-(k-1)`, and one product by a power of `R` corrects it when the sum is read. A
//! sum that was written down and read again is one factor, however many ciphertexts it contains.

use core::fmt;
use core::ops::Range;

use crate::arith::lanes::MAX_LANES;
use crate::arith::modulus::{Modulus, Scratch};
use crate::arith::pow;
use crate::arith::units::{Canonical, Counted, Loose, Mont, N2, Number, Numbers, Public};
use crate::ciphertext::Pairs;
use crate::{Ciphertext, EncryptionKey, Error, Threads, WireCiphertexts};

/// One growing sum per position. A position that nobody sent is absent and takes almost no memory.
///
/// The sums depend neither on the order in which ciphertexts arrive nor on how they were divided among
/// several `RunningSums` before a merge.
pub struct RunningSums {
    key: EncryptionKey,
    sums: Vec<Option<Sum>>,
}

struct Sum {
    /// Ciphertexts in the sum, at least one.
    terms: u32,
    /// Numbers that were multiplied, at least one and at most `terms`.
    factors: u32,
    /// `c_1 ... c_k R^-(k-1)` for `k` factors.
    digits: Number<N2, Counted, Loose, Box<[u64]>>,
}

/// A sum or ciphertext that is added to a sum.
struct Addend<'a> {
    terms: u32,
    factors: u32,
    digits: Factors<'a>,
}

/// The digits of a [`Sum`].
type Factors<'a> = Number<N2, Counted, Loose, &'a [u64]>;

impl RunningSums {
    /// Creates empty sums at positions `0..positions`.
    pub fn new(key: &EncryptionKey, positions: usize) -> Self {
        Self { key: key.clone(), sums: (0..positions).map(|_| None).collect() }
    }

    /// Restores sums that [`RunningSums::encode`] wrote. `sums[i]` has `terms[i]` terms and is at position
    /// `occupied[i]`.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`], [`Error::Length`] unless the three slices are equally long,
    /// [`Error::Position`] unless positions are distinct and below `positions`, [`Error::Terms`] for a sum
    /// without terms.
    pub fn restore(
        key: &EncryptionKey,
        positions: usize,
        occupied: &[u32],
        terms: &[u32],
        sums: &WireCiphertexts,
        threads: Threads,
    ) -> Result<Self, Error> {
        if terms.len() != occupied.len() {
            return Err(Error::Length { expected: occupied.len(), found: terms.len() });
        }
        let mut restored = Self::new(key, positions);
        restored.fold(occupied, sums, threads)?;
        for (&position, &terms) in occupied.iter().zip(terms) {
            match restored.sums.get_mut(position as usize) {
                Some(Some(sum)) if terms > 0 => sum.terms = terms,
                _ => return Err(Error::Terms { position }),
            }
        }
        Ok(restored)
    }

    /// Returns the number of positions, occupied or not.
    pub fn positions(&self) -> usize {
        self.sums.len()
    }

    /// Returns the key of the ciphertexts.
    pub fn key(&self) -> &EncryptionKey {
        &self.key
    }

    /// Adds ciphertext `i` of the batch to the sum at `positions[i]`.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`], [`Error::Length`] unless there is one position per ciphertext,
    /// [`Error::Position`] unless positions are distinct and below [`RunningSums::positions`],
    /// [`Error::Terms`] for the ciphertext after the 4294967295th. After an error, the sums are unchanged.
    pub fn fold(
        &mut self,
        positions: &[u32],
        batch: &WireCiphertexts,
        threads: Threads,
    ) -> Result<(), Error> {
        if *batch.key() != self.key {
            return Err(Error::KeyMismatch);
        }
        if positions.len() != batch.len() {
            return Err(Error::Length { expected: batch.len(), found: positions.len() });
        }
        // In the order of positions, the sums can be divided among threads, and memory is read in one
        // direction.
        let mut order: Vec<u32> = (0..positions.len() as u32).collect();
        order.sort_unstable_by_key(|&i| positions[i as usize]);
        let mut last = None;
        for position in order.iter().map(|&i| positions[i as usize]) {
            match self.sums.get(position as usize) {
                Some(sum) if last != Some(position) => check_terms(sum, 1, position)?,
                _ => return Err(Error::Position { position, positions: self.sums.len() }),
            }
            last = Some(position);
        }
        let incoming = |i: usize| {
            let i = order[i] as usize;
            (positions[i], Addend { terms: 1, factors: 1, digits: batch.digits(i).counted().loose() })
        };
        combine(&self.key, &mut self.sums, positions.len(), incoming, threads);
        Ok(())
    }

    /// Adds other sums, position by position, such as those of another replica.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`], [`Error::Length`] for another number of positions, [`Error::Terms`]. After an
    /// error, the sums are unchanged.
    pub fn merge(&mut self, other: Self, threads: Threads) -> Result<(), Error> {
        if other.key != self.key {
            return Err(Error::KeyMismatch);
        }
        if other.sums.len() != self.sums.len() {
            return Err(Error::Length { expected: self.sums.len(), found: other.sums.len() });
        }
        let all: Vec<(u32, &Sum)> = other.sums().collect();
        for &(position, sum) in &all {
            check_terms(&self.sums[position as usize], sum.terms, position)?;
        }
        let incoming = |i: usize| {
            let (position, sum): (u32, &Sum) = all[i];
            (position, Addend { terms: sum.terms, factors: sum.factors, digits: sum.digits.view() })
        };
        combine(&self.key, &mut self.sums, all.len(), incoming, threads);
        Ok(())
    }

    /// Returns the occupied positions in ascending order.
    pub fn occupied(&self) -> Vec<u32> {
        self.sums().map(|(position, _)| position).collect()
    }

    /// Returns the number of ciphertexts in the sum at `position`, 0 for an absent sum.
    pub fn terms(&self, position: u32) -> u32 {
        self.sums.get(position as usize).and_then(Option::as_ref).map_or(0, |sum| sum.terms)
    }

    /// Returns the wire form of the sums at the occupied positions, in their order.
    pub fn encode(&self, threads: Threads) -> Vec<u8> {
        let n = self.key.modulus();
        // c R^-(k-1) R^k / R is the plain number.
        let correction = Correction::new(self, |factors| u64::from(factors) - 1);
        let buffers = || (n.pairs(), n.pairs());
        self.key.write_groups(correction.sums.len(), threads, buffers, |range, z, (x, y), scratch| {
            correction.apply(range, z, x, y, scratch);
        })
    }

    /// Returns the sums at the occupied positions, in their order.
    pub fn to_ciphertexts(&self, threads: Threads) -> Vec<Ciphertext> {
        let n = self.key.modulus();
        // c R^-(k-1) R^(k+1) / R is the number in Montgomery form.
        let correction = Correction::new(self, u64::from);
        let buffers = || (n.pairs(), n.pairs());
        self.key.by_group(correction.sums.len(), threads, buffers, |range, z, (x, y), scratch| {
            correction.apply(range, z, x, y, scratch);
        })
    }

    /// Returns the occupied positions and their sums.
    fn sums(&self) -> impl Iterator<Item = (u32, &Sum)> {
        (0..).zip(&self.sums).filter_map(|(position, sum)| Some((position, sum.as_ref()?)))
    }
}

impl fmt::Debug for RunningSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunningSums({}, {} positions)", self.key.id(), self.sums.len())
    }
}

/// Checks that `more` terms can be counted.
fn check_terms(sum: &Option<Sum>, more: u32, position: u32) -> Result<(), Error> {
    let terms = sum.as_ref().map_or(0, |sum| sum.terms);
    terms.checked_add(more).map(|_| ()).ok_or(Error::Terms { position })
}

/// Adds `count` incoming sums. Their positions are ascending, distinct and in range.
fn combine<'a>(
    key: &EncryptionKey,
    sums: &mut [Option<Sum>],
    count: usize,
    incoming: impl Fn(usize) -> (u32, Addend<'a>) + Sync,
    threads: Threads,
) {
    let n = key.modulus();
    // The incoming sums and the sums they are added to are cut at the same positions.
    let share = count.div_ceil(threads.get()).next_multiple_of(n.lanes()).max(1);
    let mut parts = Vec::new();
    let (mut rest, mut offset) = (sums, 0);
    for start in (0..count).step_by(share) {
        let end = count.min(start + share);
        let last = incoming(end - 1).0 as usize + 1;
        let (part, behind) = core::mem::take(&mut rest).split_at_mut(last - offset);
        parts.push((start..end, offset, part));
        (rest, offset) = (behind, last);
    }
    threads.for_each(&mut parts, 1, |_, parts| {
        let mut adder = Adder::new(key);
        for (range, offset, sums) in parts {
            for i in range {
                let (position, addend) = incoming(i);
                adder.add(sums, position as usize - *offset, addend);
            }
            adder.flush(sums);
        }
    });
}

/// Collects additions until it has one per lane.
struct Adder<'k, 'a> {
    modulus: &'k Modulus<Public>,
    z: Pairs<Counted>,
    x: Pairs<Counted>,
    y: Pairs<Counted>,
    scratch: Scratch,
    waiting: Vec<(usize, Sum, Factors<'a>)>,
}

impl<'k, 'a> Adder<'k, 'a> {
    fn new(key: &'k EncryptionKey) -> Self {
        let n = key.modulus();
        let (z, x, y, scratch) = (n.pairs(), n.pairs(), n.pairs(), n.scratch());
        Self { modulus: n, z, x, y, scratch, waiting: Vec::with_capacity(n.lanes()) }
    }

    /// Adds to the sum at `at`, for which no addition is waiting.
    fn add(&mut self, sums: &mut [Option<Sum>], at: usize, addend: Addend<'a>) {
        let Addend { terms, factors, digits } = addend;
        match sums[at].take() {
            None => sums[at] = Some(Sum { terms, factors, digits: digits.boxed() }),
            Some(mut sum) => {
                sum.terms += terms;
                sum.factors += factors;
                self.waiting.push((at, sum, digits));
                if self.waiting.len() == self.modulus.lanes() {
                    self.flush(sums);
                }
            }
        }
    }

    /// Carries out the waiting additions and puts the sums back.
    fn flush(&mut self, sums: &mut [Option<Sum>]) {
        if self.waiting.is_empty() {
            return;
        }
        let n = self.modulus;
        let one = n.one().counted().loose();
        let (mut xs, mut ys) = ([one; MAX_LANES], [one; MAX_LANES]);
        for ((x, y), (_, sum, digits)) in xs.iter_mut().zip(&mut ys).zip(&self.waiting) {
            (*x, *y) = (sum.digits.view(), *digits);
        }
        n.gather(&mut self.x, &xs[..n.lanes()], one);
        n.gather(&mut self.y, &ys[..n.lanes()], one);
        n.mul(&mut self.z, &self.x, &self.y, &mut self.scratch);
        let mut targets: Vec<_> = self.waiting.iter_mut().map(|(_, sum, _)| sum.digits.view_mut()).collect();
        n.scatter(&mut targets, &self.z);
        for (at, sum, _) in self.waiting.drain(..) {
            sums[at] = Some(sum);
        }
    }
}

/// The powers of `R` that turn stored products into one form.
struct Correction<'a> {
    modulus: &'a Modulus<Public>,
    sums: Vec<&'a Sum>,
    /// The numbers of factors that occur, ascending.
    factors: Vec<u32>,
    /// For each of them, a power of `R`.
    powers: Numbers<N2, Counted, Canonical, Vec<u64>>,
}

impl<'a> Correction<'a> {
    /// Prepares to multiply each sum by `R` times `R` to the `power` of its number of factors.
    fn new(all: &'a RunningSums, power: impl Fn(u32) -> u64) -> Self {
        let n = all.key.modulus();
        let sums: Vec<&Sum> = all.sums().map(|(_, sum)| sum).collect();
        let mut factors: Vec<u32> = sums.iter().map(|sum| sum.factors).collect();
        factors.sort_unstable();
        factors.dedup();
        let powers = powers_of_r(n, &factors.iter().map(|&factors| power(factors)).collect::<Vec<_>>());
        Self { modulus: n, sums, factors, powers }
    }

    /// Writes a range of corrected sums to `z`, whose form is the one that the powers were chosen for.
    fn apply<F>(
        &self,
        range: Range<usize>,
        z: &mut Pairs<F>,
        x: &mut Pairs<Counted>,
        y: &mut Pairs<Counted>,
        scratch: &mut Scratch,
    ) {
        let (n, sums) = (self.modulus, &self.sums[range]);
        let one = n.one().counted();
        n.gather(x, &sums.iter().map(|sum| sum.digits.view()).collect::<Vec<_>>(), one.loose());
        n.gather(y, &sums.iter().map(|sum| self.power(sum)).collect::<Vec<_>>(), one);
        n.mul(&mut z.view_mut().counted(), x, y, scratch);
    }

    fn power(&self, sum: &Sum) -> Number<N2, Counted, Canonical, &[u64]> {
        let at = self.factors.partition_point(|&factors| factors < sum.factors);
        self.modulus.nth(&self.powers, at)
    }
}

/// Returns `R` times `R` to each power.
fn powers_of_r(n: &Modulus<Public>, powers: &[u64]) -> Numbers<N2, Counted, Canonical, Vec<u64>> {
    let mut scratch = n.scratch();
    let mut all: Numbers<N2, Mont, Canonical, Vec<u64>> = n.numbers(powers.len());
    let mut targets: Vec<_> = n.each_mut(&mut all).collect();
    for (powers, targets) in powers.chunks(n.lanes()).zip(targets.chunks_mut(n.lanes())) {
        let mut group = pow::pow_small_vartime(n, &n.r_in_mont(), powers, &mut scratch);
        n.scatter(targets, &n.canonical(&mut group, &mut scratch));
    }
    drop(targets);
    all.counted()
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;
    use crate::{DecryptionKey, KeyBits, NoiseMode, Plaintext};

    #[test]
    fn a_sum_with_too_many_terms_is_refused() {
        let mut rng = chacha20::ChaCha20Rng::seed_from_u64(1);
        let bits = KeyBits::insecure(256).unwrap();
        let secret = DecryptionKey::generate(bits, NoiseMode::Secure, &mut rng, Threads::ONE).unwrap();
        let key = secret.encryption_key();
        let x = key.encrypt(&Plaintext::new(key, 3).unwrap(), &mut rng).unwrap();
        let batch = key.read_wire(&key.encode(&[x], Threads::ONE).unwrap(), Threads::ONE).unwrap();
        let with = |terms| {
            let mut sums = RunningSums::new(key, 2);
            sums.fold(&[1], &batch, Threads::ONE).unwrap();
            sums.sums[1].as_mut().unwrap().terms = terms;
            sums
        };
        let mut full = with(u32::MAX);
        let before = full.encode(Threads::ONE);
        assert_eq!(full.fold(&[1], &batch, Threads::ONE), Err(Error::Terms { position: 1 }));
        assert_eq!(full.merge(with(1), Threads::ONE), Err(Error::Terms { position: 1 }));
        assert_eq!((full.terms(1), full.encode(Threads::ONE)), (u32::MAX, before));
        assert_eq!(with(u32::MAX - 1).fold(&[1], &batch, Threads::ONE), Ok(()));
    }

    #[test]
    fn restored_and_merged_sums_equal_uninterrupted_ones() {
        let mut rng = chacha20::ChaCha20Rng::seed_from_u64(2);
        let bits = KeyBits::insecure(256).unwrap();
        let secret = DecryptionKey::generate(bits, NoiseMode::Secure, &mut rng, Threads::ONE).unwrap();
        let key = secret.encryption_key();
        let mut batch = |values: &[i128]| {
            let values: Vec<_> = values.iter().map(|&x| Plaintext::new(key, x).unwrap()).collect();
            let all = key.encrypt_all(&values, &mut rng, Threads::ONE).unwrap();
            key.read_wire(&key.encode(&all, Threads::ONE).unwrap(), Threads::ONE).unwrap()
        };
        let mut whole = RunningSums::new(key, 5);
        let mut parts = [RunningSums::new(key, 5), RunningSums::new(key, 5)];
        for step in 0..9i128 {
            let (positions, values) = (if step % 3 == 0 { [0, 3] } else { [4, 3] }, batch(&[step, -step]));
            whole.fold(&positions, &values, Threads::ONE).unwrap();
            let part = &mut parts[(step % 2) as usize];
            part.fold(&positions, &values, Threads::ONE).unwrap();
            let occupied = part.occupied();
            let terms: Vec<u32> = occupied.iter().map(|&position| part.terms(position)).collect();
            let sums = key.read_wire(&part.encode(Threads::ONE), Threads::ONE).unwrap();
            *part = RunningSums::restore(key, 5, &occupied, &terms, &sums, Threads::ONE).unwrap();
            let bad = |occupied: &[u32], terms: &[u32]| {
                RunningSums::restore(key, 5, occupied, terms, &sums, Threads::ONE).unwrap_err()
            };
            assert!(matches!(bad(&occupied, &terms[1..]), Error::Length { .. }));
            assert!(matches!(bad(&vec![9; occupied.len()], &terms), Error::Position { .. }));
            assert!(matches!(bad(&occupied, &vec![0; terms.len()]), Error::Terms { .. }));
        }
        let [mut merged, other] = parts;
        merged.merge(other, Threads::ONE).unwrap();
        assert_eq!(merged.encode(Threads::ONE), whole.encode(Threads::ONE));
        assert!((0..5).all(|position| merged.terms(position) == whole.terms(position)));
    }
}
