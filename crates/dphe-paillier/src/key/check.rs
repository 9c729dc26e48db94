//! Number-theoretic checks of a modulus that somebody else made.

use core::cmp::Ordering;

use sha2::{Digest, Sha256};

use super::KeyBits;
use crate::Error;
use crate::arith::backend::Backend;
use crate::arith::nat::{self, Nat};
use crate::arith::prime;

/// Trial division covers the primes below this limit.
const SMALL_FACTOR_LIMIT: u32 = 1 << 20;

/// Checks that `n` is odd, has no small factor, and is neither a perfect power nor a prime.
pub(super) fn modulus(n: &Nat, bits: KeyBits) -> Result<(), Error> {
    if !n.is_odd() {
        return Err(Error::KeyEven);
    }
    // Keys for tests may have factors below the limit.
    let limit = SMALL_FACTOR_LIMIT.min(1 << (bits.get() / 16).min(30));
    if let Some(factor) = prime::small_primes(limit).into_iter().find(|&q| nat::rem_small(n, q) == 0) {
        return Err(Error::KeySmallFactor { factor });
    }
    if is_perfect_power(n, limit.ilog2()) {
        return Err(Error::KeyPerfectPower);
    }
    // Nobody can choose the bases, so a number that passes is prime up to a negligible error.
    let mut rng = derived_rng(b"dphe/paillier/primality/v1", n);
    if prime::miller_rabin(n, 16, &mut rng, Backend::for_key(bits.get())) {
        return Err(Error::KeyPrime);
    }
    Ok(())
}

/// Returns a generator that is a public function of a domain and a number.
pub(super) fn derived_rng(domain: &[u8], n: &Nat) -> chacha20::ChaCha20Rng {
    let mut hash = Sha256::new();
    hash.update((domain.len() as u64).to_be_bytes());
    hash.update(domain);
    hash.update(&*nat::to_be_bytes(n, n.bits().div_ceil(8) as usize));
    rand_core::SeedableRng::from_seed(hash.finalize().into())
}

/// Returns whether `n` is `a^k` for some `k > 1`. `n` has no factor below `2^factor_bits`, which bounds `k`.
fn is_perfect_power(n: &Nat, factor_bits: u32) -> bool {
    let bits = n.bits();
    prime::small_primes(bits / factor_bits.max(1) + 2).into_iter().any(|k| is_power(n, k))
}

/// Returns whether `n` is a `k`-th power. The candidate root is found bit by bit.
fn is_power(n: &Nat, k: u32) -> bool {
    let root_bits = n.bits().div_ceil(k);
    let mut root = vec![0u64; root_bits as usize / 64 + 1];
    for bit in (0..root_bits).rev() {
        root[bit as usize / 64] |= 1 << (bit % 64);
        let order = power_order(&nat::from_limbs(&root), k, n);
        if order.is_eq() {
            return true;
        }
        if order.is_gt() {
            root[bit as usize / 64] &= !(1 << (bit % 64));
        }
    }
    false
}

/// Compares `root^k` to `n`, and stops as soon as it is larger.
fn power_order(root: &Nat, k: u32, n: &Nat) -> Ordering {
    let mut power = nat::small(1);
    for _ in 0..k {
        power = nat::mul(&power, root).shortened();
        if nat::cmp_vartime(&power, n).is_gt() {
            return Ordering::Greater;
        }
    }
    nat::cmp_vartime(&power, n)
}
