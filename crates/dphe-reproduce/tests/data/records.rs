//! Records as TensorFlow writes them, and damaged copies of them.

use chacha20::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};

/// Encodes a field that holds bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    out.extend(varint(bytes.len() as u64));
    out.extend_from_slice(bytes);
    out
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

/// Encodes a video as `tf.train.Example`.
pub(crate) fn example(id: &[u8], labels: &[u32], rgb: &[f32], audio: &[f32]) -> Vec<u8> {
    let floats = |floats: &[f32]| field(1, &floats.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());
    let labels: Vec<u8> = labels.iter().flat_map(|&label| varint(label.into())).collect();
    let entry = |key: &str, kind: u8, list: Vec<u8>| {
        field(1, &[field(1, key.as_bytes()), field(2, &field(kind, &list))].concat())
    };
    let mut entries = entry("id", 1, field(1, id));
    entries.extend(entry("labels", 3, field(1, &labels)));
    if !rgb.is_empty() {
        entries.extend(entry("mean_rgb", 2, floats(rgb)));
    }
    entries.extend(entry("mean_audio", 2, floats(audio)));
    field(1, &entries)
}

/// An endless iterator over copies with a few bytes changed, removed or inserted.
pub(crate) struct Mutations {
    whole: Vec<u8>,
    rng: ChaCha20Rng,
}

impl Mutations {
    pub(crate) fn new(whole: &[u8], seed: u64) -> Self {
        Self { whole: whole.to_vec(), rng: ChaCha20Rng::seed_from_u64(seed) }
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.rng.next_u64() % bound.max(1) as u64) as usize
    }
}

impl Iterator for Mutations {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut bytes = self.whole.clone();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            let byte = self.rng.next_u32() as u8;
            match self.below(4) {
                0 if !bytes.is_empty() => drop(bytes.remove(at)),
                1 => bytes.insert(at, byte),
                _ if !bytes.is_empty() => bytes[at] = byte,
                _ => {}
            }
        }
        Some(bytes)
    }
}
