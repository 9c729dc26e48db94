//! The randomness of the generator: a fixed stream, so that the files are reproducible.

use num_bigint::BigUint;
use sha2::{Digest, Sha256};

/// A stream of bytes: SHA-256 in counter mode over a label.
pub struct Rng {
    label: String,
    counter: u64,
    left: Vec<u8>,
}

impl Rng {
    /// Starts the stream of a label. Each vector has its own label, so that adding a vector does not change the others.
    pub fn new(label: &str) -> Self {
        Self { label: label.to_owned(), counter: 0, left: Vec::new() }
    }

    /// Returns the next bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.left.len() < count {
            let mut hash = Sha256::new();
            hash.update(self.label.as_bytes());
            hash.update(self.counter.to_be_bytes());
            self.left.extend_from_slice(&hash.finalize());
            self.counter += 1;
        }
        self.left.drain(..count).collect()
    }

    /// Returns the next 32 bytes.
    pub fn digest(&mut self) -> [u8; 32] {
        let mut digest = [0; 32];
        digest.copy_from_slice(&self.bytes(32));
        digest
    }

    /// Returns the next 16 bytes.
    pub fn id(&mut self) -> [u8; 16] {
        let mut id = [0; 16];
        id.copy_from_slice(&self.bytes(16));
        id
    }

    /// Draws a number below `bound`. The bias of 2^-32 does not matter here.
    pub fn below(&mut self, bound: usize) -> usize {
        let wide = self.bytes(8).iter().fold(0u64, |x, &byte| x << 8 | u64::from(byte));
        (wide % bound as u64) as usize
    }

    /// Returns the items in random order.
    pub fn shuffled<T>(&mut self, mut items: Vec<T>) -> Vec<T> {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
        items
    }

    /// Draws a nonce: a unit below `n` other than 1.
    pub fn nonce(&mut self, n: &BigUint) -> BigUint {
        loop {
            let r = BigUint::from_bytes_be(&self.bytes(n.bits().div_ceil(8) as usize + 8)) % n;
            if r > BigUint::from(1u8) && r.modinv(n).is_some() {
                return r;
            }
        }
    }
}
