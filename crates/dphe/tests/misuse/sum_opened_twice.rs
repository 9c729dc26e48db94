// Opening a sealed sum consumes it.
use dphe::{KeyGenerator, SealedSum, Threads};

fn main() {}

pub fn open(keys: &mut KeyGenerator, sum: SealedSum, rng: &mut impl rand_core::CryptoRng) {
    let _ = keys.open(sum, rng, Threads::ONE);
    let _ = keys.open(sum, rng, Threads::ONE);
}
