//! Sums that grow while ciphertexts come in.
//!
//! Nothing is brought into Montgomery form on the way. The first ciphertext at a position is kept as it
//! came; each further one is a single Montgomery product, which divides by `R`. So a product of `k` factors
//! is held as `c_1 ... c_k R^-(k-1)`, and one product by a power of `R` puts it right when it is asked for. A sum that
//! was written down and read again is one factor, however many ciphertexts are in it.

use core::fmt;

use crate::arith::lanes::Lanes;
use crate::arith::modulus::Modulus;
use crate::arith::pow;
use crate::ciphertext::Workspace;
use crate::{Ciphertext, EncryptionKey, Error, Threads, WireCiphertexts};

/// Sums that grow as batches come in, one for each position; positions nobody sent are absent and take no
/// memory to speak of.
///
/// The sums do not depend on the order in which ciphertexts came, nor on how they were spread over several of
/// these before they were merged.
pub struct RunningSums {
    key: EncryptionKey,
    sums: Vec<Option<Sum>>,
}

struct Sum {
    /// Ciphertexts in it: at least one.
    terms: u32,
    /// Numbers that were multiplied: at least one, at most as many as terms.
    factors: u32,
    /// `c_1 ... c_k R^-(k-1)` for `k` factors: a loose pair.
    digits: Box<[u64]>,
}

/// What is added to a sum.
struct Addend<'a> {
    terms: u32,
    factors: u32,
    digits: &'a [u64],
}

impl RunningSums {
    /// No sums yet, at positions `0..positions`.
    pub fn new(key: &EncryptionKey, positions: usize) -> Self {
        Self { key: key.clone(), sums: (0..positions).map(|_| None).collect() }
    }

    /// Sums as they were when [`RunningSums::encode`] wrote them: `sums[i]` has so many terms and is at position
    /// `occupied[i]`.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`], [`Error::Length`] if there is not one sum and one number of terms for each position,
    /// [`Error::Position`] unless positions are distinct and below `positions`, [`Error::Terms`] for sums of nothing.
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

    /// How many positions there are, occupied or not.
    pub fn positions(&self) -> usize {
        self.sums.len()
    }

    /// The key of the ciphertexts.
    pub fn key(&self) -> &EncryptionKey {
        &self.key
    }

    /// Adds ciphertext `i` of the batch to the sum at `positions[i]`.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`], [`Error::Length`] if there is not one position for each ciphertext,
    /// [`Error::Position`] unless positions are distinct and below [`RunningSums::positions`],
    /// [`Error::Terms`] for the ciphertext after the 4294967295th. Nothing has changed then.
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
        // in the order of the positions, threads can share them, and memory is walked one way
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
            (positions[i], Addend { terms: 1, factors: 1, digits: batch.digits(i) })
        };
        combine(&self.key, &mut self.sums, positions.len(), incoming, threads);
        Ok(())
    }

    /// Adds another's sums, position by position: those of another replica, say, that took in a part of the
    /// ciphertexts.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`], [`Error::Length`] for another number of positions, [`Error::Terms`]. Nothing has
    /// changed then.
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
            (position, Addend { terms: sum.terms, factors: sum.factors, digits: &sum.digits })
        };
        combine(&self.key, &mut self.sums, all.len(), incoming, threads);
        Ok(())
    }

    /// The occupied positions, ascending.
    pub fn occupied(&self) -> Vec<u32> {
        self.sums().map(|(position, _)| position).collect()
    }

    /// How many ciphertexts went into the sum at `position`: none if nobody sent any.
    pub fn terms(&self, position: u32) -> u32 {
        self.sums.get(position as usize).and_then(Option::as_ref).map_or(0, |sum| sum.terms)
    }

    /// The wire form of the sums at the occupied positions, in their order.
    pub fn encode(&self, threads: Threads) -> Vec<u8> {
        // R^k in Montgomery's product leaves a plain number
        self.finished(
            |factors| u64::from(factors) - 1,
            |count, work| self.key.write_groups(count, threads, work),
        )
    }

    /// The sums at the occupied positions, in their order.
    pub fn to_ciphertexts(&self, threads: Threads) -> Vec<Ciphertext> {
        // R^(k+1) leaves one in Montgomery form
        self.finished(u64::from, |count, work| self.key.by_group(count, threads, work))
    }

    /// Has `write` called with what multiplies groups of sums by `R` times `R` to the `power` of their factors.
    fn finished<T>(
        &self,
        power: impl Fn(u32) -> u64,
        write: impl FnOnce(usize, &(dyn Fn(core::ops::Range<usize>, &mut Workspace) + Sync)) -> T,
    ) -> T {
        let n = self.key.modulus();
        let all: Vec<&Sum> = self.sums().map(|(_, sum)| sum).collect();
        let mut counts: Vec<u32> = all.iter().map(|sum| sum.factors).collect();
        counts.sort_unstable();
        counts.dedup();
        let powers = powers_of_r(n, &counts.iter().map(|&factors| power(factors)).collect::<Vec<_>>());
        let factor = |sum: &Sum| {
            let at = counts.partition_point(|&factors| factors < sum.factors);
            &powers[at * n.pair_words()..(at + 1) * n.pair_words()]
        };
        write(all.len(), &|range, Workspace { z, x, y, scratch }| {
            let sums = &all[range];
            n.gather(x, &sums.iter().map(|sum| &sum.digits[..]).collect::<Vec<_>>(), n.one());
            n.gather(y, &sums.iter().map(|sum| factor(sum)).collect::<Vec<_>>(), n.one());
            n.mul_pair(z, x, y, scratch);
        })
    }

    /// The occupied positions and what is there.
    fn sums(&self) -> impl Iterator<Item = (u32, &Sum)> {
        (0..).zip(&self.sums).filter_map(|(position, sum)| Some((position, sum.as_ref()?)))
    }
}

impl fmt::Debug for RunningSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunningSums({}, {} positions)", self.key.id(), self.sums.len())
    }
}

/// That `more` terms can be counted.
fn check_terms(sum: &Option<Sum>, more: u32, position: u32) -> Result<(), Error> {
    let terms = sum.as_ref().map_or(0, |sum| sum.terms);
    terms.checked_add(more).map(|_| ()).ok_or(Error::Terms { position })
}

/// Adds `count` incoming sums, at positions that are ascending, distinct and in range.
fn combine<'a>(
    key: &EncryptionKey,
    sums: &mut [Option<Sum>],
    count: usize,
    incoming: impl Fn(usize) -> (u32, Addend<'a>) + Sync,
    threads: Threads,
) {
    let n = key.modulus();
    // one cut of both what comes in and where it goes
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

/// Waits until it has as many sums to add to as there are lanes.
struct Adder<'k, 'a> {
    modulus: &'k Modulus,
    workspace: Workspace,
    waiting: Vec<(usize, Sum, &'a [u64])>,
}

impl<'k, 'a> Adder<'k, 'a> {
    fn new(key: &'k EncryptionKey) -> Self {
        let modulus = key.modulus();
        Self { modulus, workspace: Workspace::new(key), waiting: Vec::with_capacity(modulus.lanes()) }
    }

    /// Adds to the sum at `at`, which is not waiting yet.
    fn add(&mut self, sums: &mut [Option<Sum>], at: usize, addend: Addend<'a>) {
        let Addend { terms, factors, digits } = addend;
        match sums[at].take() {
            None => sums[at] = Some(Sum { terms, factors, digits: digits.into() }),
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

    /// Adds what is waiting and puts the sums back.
    fn flush(&mut self, sums: &mut [Option<Sum>]) {
        if self.waiting.is_empty() {
            return;
        }
        let n = self.modulus;
        let Workspace { z, x, y, scratch } = &mut self.workspace;
        let (mut xs, mut ys) = ([n.one(); 8], [n.one(); 8]);
        for ((x, y), (_, sum, digits)) in xs.iter_mut().zip(&mut ys).zip(&self.waiting) {
            (*x, *y) = (&sum.digits, digits);
        }
        n.gather(x, &xs[..n.lanes()], n.one());
        n.gather(y, &ys[..n.lanes()], n.one());
        n.mul_pair(z, x, y, scratch);
        let mut targets: Vec<&mut [u64]> =
            self.waiting.iter_mut().map(|(_, sum, _)| &mut sum.digits[..]).collect();
        n.scatter(&mut targets, z);
        for (at, sum, _) in self.waiting.drain(..) {
            sums[at] = Some(sum);
        }
    }
}

/// `R` times `R` to each power: canonical pairs, one after the other.
fn powers_of_r(n: &Modulus, powers: &[u64]) -> Vec<u64> {
    let mut scratch = n.scratch();
    // R in Montgomery form
    let r = n.broadcast(n.r_squared());
    let mut all = vec![0; powers.len() * n.pair_words()];
    for (powers, out) in powers.chunks(n.lanes()).zip(all.chunks_mut(n.lanes() * n.pair_words())) {
        let mut group: Lanes = pow::pow_small_vartime(n, &r, powers, &mut scratch);
        n.canonical_pair(&mut group, &mut scratch);
        n.scatter(&mut out.chunks_exact_mut(n.pair_words()).collect::<Vec<_>>(), &group);
    }
    all
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;
    use crate::{DecryptionKey, KeyBits, NoiseMode, Plaintext};

    #[test]
    fn sums_that_cannot_be_counted_are_refused() {
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

    /// Written down and read again, in parts that are merged, sums are what they would have been in one go.
    #[test]
    fn sums_can_be_taken_up_where_they_were_left() {
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
