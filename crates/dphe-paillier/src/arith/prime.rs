//! The search for safe primes, many candidates at a time.
//!
//! Candidates `h` for `p = 2h + 1` are sieved by interval, then tested side by side, with a different modulus
//! in each lane. The intervals are numbered, and their starting points are derived from one seed. The result
//! is the first prime of each of the lowest two intervals that contain one, so it depends on the seed and not
//! on the threads. The search itself does not take constant time.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;

use chacha20::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use zeroize::Zeroizing;

use super::backend::Backend;
use super::lanes::{Lanes, MAX_LANES};
use super::modulus::Modulus;
use super::nat::{self, Limbs, Nat};
use super::pow::{self, Exponent};
use super::units::{Candidate, Mod, Mont, Number, Value};

/// Candidates per interval. One of nine intervals contains a safe prime of 1536 bits.
const INTERVAL: usize = 1 << 14;
/// The distance of candidates. Unless `h` is 5 modulo 6, 2 or 3 divides `h` or `2h + 1`.
const STEP: u32 = 6;
/// The sieve removes multiples of primes below this limit.
const SIEVE_LIMIT: u32 = 1 << 18;
/// Miller-Rabin rounds with random bases for each prime that is kept. The error is below `4^-40`.
const ROUNDS: usize = 40;

/// How far a search for primes has come.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// Intervals searched so far.
    pub searched: u64,
    /// Intervals that a search takes on average.
    pub expected: f64,
}

/// What a search calls often: after each interval, and between groups of candidates. It can break the search off.
pub(crate) type ProgressFn<'a> = dyn Fn(Progress) -> ControlFlow<()> + Sync + 'a;

/// Returns the two safe primes of `bits` bits that `seed` leads to. The two top bits of each are set, so that
/// their product has exactly `2 * bits` bits. Returns `None` if `progress` breaks the search off.
pub(crate) fn two_safe_primes(
    bits: u32,
    seed: &[u8; 32],
    backend: Backend,
    threads: usize,
    progress: &ProgressFn<'_>,
) -> Option<(Nat, Nat)> {
    let sieve = Sieve::new(bits);
    // Only an interval with at least one prime counts.
    let expected = 2.0 / (1.0 - (-hit_rate(bits)).exp());
    let (next, searched) = (AtomicU64::new(0), AtomicU64::new(0));
    let (done, cancelled) = (AtomicBool::new(false), AtomicBool::new(false));
    let report = || {
        if progress(Progress { searched: searched.load(Ordering::Relaxed), expected }).is_break() {
            cancelled.store(true, Ordering::Relaxed);
        }
        !cancelled.load(Ordering::Relaxed)
    };
    let found: Mutex<Vec<(u64, Nat)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) && !cancelled.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let hits = search_interval(bits, seed, index, &sieve, backend, &report);
                    // A panic in another thread has already ended the search.
                    let Ok(mut found) = found.lock() else { return };
                    found.extend(hits.into_iter().map(|prime| (index, prime)));
                    // Two primes of one interval are so close that anyone could factor their product.
                    if found.iter().any(|(other, _)| *other != found[0].0) {
                        done.store(true, Ordering::Relaxed);
                    }
                    searched.fetch_add(1, Ordering::Relaxed);
                    report();
                }
            });
        }
    });
    if cancelled.into_inner() {
        return None;
    }
    // Every interval below the last one handed out has been searched, in whatever order.
    let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.sort_by_key(|(index, _)| *index);
    found.dedup_by_key(|(index, _)| *index);
    let mut primes = found.into_iter().map(|(_, prime)| prime);
    match (primes.next(), primes.next()) {
        (Some(p), Some(q)) => Some((p, q)),
        _ => unreachable!("the search ends with two primes"),
    }
}

/// Returns the average number of safe primes per interval. The density of `h` with `h` and `2h + 1` both
/// prime is `2 C / ln^2` (Hardy and Littlewood, `C` = 0.66), and six times that among numbers that are 5
/// modulo 6.
fn hit_rate(bits: u32) -> f64 {
    let ln = f64::from(bits) * core::f64::consts::LN_2;
    INTERVAL as f64 * f64::from(STEP) * 1.32 / (ln * ln)
}

/// Returns the safe primes of one interval, or none if `goes_on` answers before the end that the search does not.
fn search_interval(
    bits: u32,
    seed: &[u8; 32],
    index: u64,
    sieve: &Sieve,
    backend: Backend,
    goes_on: &dyn Fn() -> bool,
) -> Vec<Nat> {
    let mut rng = ChaCha20Rng::from_seed(*seed);
    rng.set_stream(index);
    let start = starting_point(bits - 1, &mut rng);
    let candidate = |i: usize| nat::add(&start, &nat::small(u64::from(STEP) * i as u64));
    let survivors: Vec<usize> = sieve.survivors(&start, bits);
    let mut halves = Vec::new();
    for chunk in survivors.chunks(backend.lanes()) {
        if !goes_on() {
            return Vec::new();
        }
        let numbers: Vec<Nat> = chunk.iter().map(|&i| candidate(i)).collect();
        halves.extend(
            numbers.iter().zip(fermat(&numbers, backend)).filter(|(_, prime)| *prime).map(|(h, _)| h.clone()),
        );
    }
    // Pocklington's criterion: for a prime h, p = 2h + 1 is prime if 2^(p-1) = 1 modulo p and 3 does not
    // divide p.
    let wholes: Vec<Nat> = halves.iter().map(|h| nat::add(&nat::add(h, h), &nat::small(1))).collect();
    let mut primes = Vec::new();
    for (h, p) in halves.chunks(backend.lanes()).zip(wholes.chunks(backend.lanes())) {
        for ((h, p), prime) in h.iter().zip(p).zip(fermat(p, backend)) {
            if prime && p.bits() == bits && miller_rabin(h, ROUNDS, &mut rng, backend) {
                primes.push(p.shortened());
            }
        }
    }
    primes
}

/// Returns a random number of `bits` bits that is 5 modulo 6 and has its top two bits set.
fn starting_point(bits: u32, rng: &mut ChaCha20Rng) -> Nat {
    let mut limbs = Zeroizing::new(vec![0u64; (bits as usize).div_ceil(64)]);
    limbs.iter_mut().for_each(|limb| *limb = rng.next_u64());
    let top = (bits - 1) % 64;
    let last = limbs.len() - 1;
    limbs[last] &= u64::MAX >> (63 - top);
    limbs[last] |= 1 << top;
    let second = bits as usize - 2;
    limbs[second / 64] |= 1 << (second % 64);
    let number = nat::from_limbs(&limbs);
    let residue = nat::rem_small(&number, STEP);
    nat::sub(&number, &nat::small(u64::from((residue + 1) % STEP)))
}

/// Returns whether `2^(n-1) = 1` modulo each `n`: true for primes, and for very few other numbers.
fn fermat(numbers: &[Nat], backend: Backend) -> Vec<bool> {
    let modulus = Modulus::<Candidate>::side_by_side(numbers, backend);
    let (lanes, limb_count) = (modulus.lanes(), modulus.limbs());
    let r = nat::power_of_two(backend.digit_bits() * modulus.residue_words() as u32);
    let one_of = |n: &Nat| modulus.residue(&nat::rem(&r, n)).claim_form::<Mont>();
    let ones: Vec<_> = numbers.iter().map(one_of).collect();
    let mut x = modulus.residues();
    modulus.gather(&mut x, &ones.iter().map(Value::view).collect::<Vec<_>>(), ones[0].view());
    let limbs: Vec<Limbs> = numbers.iter().map(|n| nat::limbs(n, limb_count)).collect();

    let mut scratch = modulus.scratch();
    let mut next = modulus.residues();
    let mut masks = [0; MAX_LANES];
    for bit in (0..modulus.bits()).rev() {
        modulus.square(&mut next, &x, &mut scratch);
        core::mem::swap(&mut next, &mut x);
        for (lane, mask) in masks.iter_mut().enumerate().take(lanes) {
            let exponent = limbs.get(lane).unwrap_or(&limbs[0]);
            // n - 1 differs from the odd n in the last bit only
            let set = if bit == 0 { 0 } else { exponent[bit as usize / 64] >> (bit % 64) & 1 };
            *mask = 0u64.wrapping_sub(set);
        }
        modulus.double(&mut x, &masks[..lanes]);
    }
    let powers: Vec<Number<_, _, _, Lanes>> =
        modulus.take_apart(&modulus.canonical(&mut x, &mut scratch), numbers.len());
    powers.iter().zip(&ones).map(|(power, one)| power == one).collect()
}

/// Runs the test of Miller and Rabin with random bases.
pub(crate) fn miller_rabin(n: &Nat, rounds: usize, rng: &mut impl Rng, backend: Backend) -> bool {
    let modulus = Modulus::<Candidate>::new(n, backend);
    let minus_one = nat::sub(n, &nat::small(1));
    let (twos, odd) = minus_one.split_twos_vartime();
    let exponent = Exponent::new(&odd, modulus.bits());
    let one = modulus.one::<Mod<Candidate>>();
    // N - R is -1 in Montgomery form.
    let minus = nat::sub(n, &nat::from_limbs(&modulus.representation(&one)));
    let minus = modulus.residue(&minus).claim_form::<Mont>();
    let mut scratch = modulus.scratch();
    for _ in 0..rounds.div_ceil(modulus.lanes()) {
        // The Montgomery forms of uniform residues are uniform residues.
        let bases: Vec<_> = (0..modulus.lanes())
            .map(|_| {
                let limbs: Vec<u64> = (0..=modulus.limbs()).map(|_| rng.next_u64()).collect();
                modulus.residue(&nat::rem(&nat::from_limbs(&limbs), n)).claim_form::<Mont>()
            })
            .collect();
        let mut group = modulus.residues();
        modulus.gather(&mut group, &bases.iter().map(Value::view).collect::<Vec<_>>(), one);
        let mut x = pow::pow(&modulus, &group, &exponent, &mut scratch);
        let mut passed = vec![false; modulus.lanes()];
        for step in 0..twos.max(1) {
            let results: Vec<Number<_, _, _, Lanes>> =
                modulus.take_apart(&modulus.canonical(&mut x, &mut scratch), modulus.lanes());
            for (passed, result) in passed.iter_mut().zip(&results) {
                *passed |= *result == minus || (step == 0 && *result == one);
            }
            let mut next = modulus.residues();
            modulus.square(&mut next, &x, &mut scratch);
            x = next;
        }
        if passed.contains(&false) {
            return false;
        }
    }
    true
}

/// Strikes out candidates that have a small prime factor.
struct Sieve {
    /// The primes from 5 up.
    primes: Vec<u32>,
}

impl Sieve {
    /// Prepares a sieve for candidates of `bits - 1` bits. For the tiny sizes of tests, its primes stay below
    /// the candidates.
    fn new(bits: u32) -> Self {
        let limit = if bits < 40 { 1 << (bits / 3) } else { SIEVE_LIMIT };
        Self { primes: small_primes(limit).into_iter().filter(|&q| q >= 5).collect() }
    }

    /// Returns the indices `i` for which no small prime divides `h = start + 6 i` or `2 h + 1`.
    fn survivors(&self, start: &Nat, bits: u32) -> Vec<usize> {
        let mut struck = vec![false; INTERVAL];
        let limbs = nat::limbs(start, (bits as usize).div_ceil(64));
        // The product of three primes below 2^18 fits 64 bits, so one pass over the number serves three
        // primes.
        for three in self.primes.chunks(3) {
            let product: u64 = three.iter().map(|&q| u64::from(q)).product();
            let residue = limbs.iter().rev().fold(0u64, |r, &limb| {
                (((u128::from(r) << 64) | u128::from(limb)) % u128::from(product)) as u64
            });
            for &q in three {
                let r = (residue % u64::from(q)) as u32;
                let sixth = inverse_of_six(q);
                // h = 0 and h = (q - 1) / 2 are the residues to avoid
                for bad in [0, (q - 1) / 2] {
                    let distance = u64::from((bad + q - r) % q);
                    let first = distance * u64::from(sixth) % u64::from(q);
                    struck.iter_mut().skip(first as usize).step_by(q as usize).for_each(|s| *s = true);
                }
            }
        }
        (0..INTERVAL).filter(|&i| !struck[i]).collect()
    }
}

/// Returns `6^-1` modulo a prime `q >= 5`, which is one of `(q + 1) / 6`, `(5 q + 1) / 6`.
fn inverse_of_six(q: u32) -> u32 {
    if q % 6 == 5 { q.div_ceil(6) } else { ((5 * u64::from(q) + 1) / 6) as u32 }
}

/// Returns all primes below `limit`.
pub(crate) fn small_primes(limit: u32) -> Vec<u32> {
    let mut composite = vec![false; limit as usize];
    let mut primes = Vec::new();
    for n in 2..limit as usize {
        if !composite[n] {
            primes.push(n as u32);
            composite.iter_mut().skip(n * n).step_by(n).for_each(|c| *c = true);
        }
    }
    primes
}
