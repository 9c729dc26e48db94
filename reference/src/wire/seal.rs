//! Section 6: sealing, summing and opening, in bytes.

use std::collections::BTreeMap;

use num_bigint::{BigInt, BigUint};

use super::derive::{Digest, h, inverse};
use super::fixed::{pack, payload_integer, unpack};
use super::task::{Policy, Profile};
use crate::algorithm1::Key;
use crate::rng::Rng;

/// One upload, with all random choices that were made for it.
pub struct Sealed {
    /// The position of each value, per shard, in the order of the body.
    pub rows: Vec<Vec<u32>>,
    /// The permuted indices, per shard, in ascending order.
    pub slots: Vec<Vec<u32>>,
    /// In the order of the body.
    pub plaintexts: Vec<BigInt>,
    /// In the order of the body.
    pub nonces: Vec<BigUint>,
    /// The bytes.
    pub body: Vec<u8>,
}

impl Sealed {
    /// Returns `count`, the number of ciphertexts.
    pub fn count(&self) -> u32 {
        self.plaintexts.len() as u32
    }

    /// Returns the ciphertexts in the order of the body.
    pub fn ciphertexts(&self, key: &Key) -> Vec<BigUint> {
        self.plaintexts.iter().zip(&self.nonces).map(|(m, r)| key.encrypt(m, r)).collect()
    }
}

/// The permutations of one user in one round with a private support.
pub struct Permutations<'a> {
    /// `phi_t`.
    pub shared: &'a [u32],
    /// `phi(n)_t`.
    pub own: &'a [u32],
}

/// Returns the plaintext of one position.
pub fn position_plaintext(policy: &Policy, encoded: &[i64], position: u32) -> BigInt {
    let from = position as usize * policy.block as usize;
    let to = (from + policy.block as usize).min(encoded.len());
    pack(policy, &encoded[from..to])
}

/// Returns the positions with a nonzero weight.
pub fn occupied(policy: &Policy, encoded: &[i64]) -> Vec<u32> {
    let zero = BigInt::from(0);
    (0..policy.positions()).filter(|&b| position_plaintext(policy, encoded, b) != zero).collect()
}

/// One column of K.
#[derive(Clone, Copy)]
pub struct Column {
    /// The position.
    pub row: u32,
    /// Whether it is a pad, whose value is zero for any weights. In `paper`, a pad may fall on a position whose value
    /// is in another shard.
    pub pad: bool,
}

/// Assigns the occupied positions to shards and fills the shards with pads, all in random order.
///
/// In `sparse`, all positions are distinct. In `paper`, shards are independent.
pub fn deal(policy: &Policy, encoded: &[i64], rng: &mut Rng) -> Vec<Vec<Column>> {
    let capacity = policy.capacity as usize;
    let occupied = rng.shuffled(occupied(policy, encoded));
    assert!(occupied.len() <= policy.shards as usize * capacity, "capacity");
    let paper = policy.profile == Profile::Paper;
    let count = if paper { occupied.len().div_ceil(capacity).max(1) } else { policy.shards as usize };
    let mut shards: Vec<Vec<u32>> = vec![Vec::new(); count];
    for position in &occupied {
        let open: Vec<usize> = (0..count).filter(|&f| shards[f].len() < capacity).collect();
        shards[open[rng.below(open.len())]].push(*position);
    }
    let mut used = occupied;
    let mut dealt = Vec::new();
    for shard in shards {
        let taken = if paper { shard.clone() } else { used.clone() };
        let free: Vec<u32> = (0..policy.positions()).filter(|b| !taken.contains(b)).collect();
        let pads = rng.shuffled(free)[..capacity - shard.len()].to_vec();
        used.extend(&pads);
        let values = shard.iter().map(|&row| Column { row, pad: false });
        let pads = pads.iter().map(|&row| Column { row, pad: true });
        dealt.push(rng.shuffled(values.chain(pads).collect()));
    }
    dealt
}

/// Seals with a private support: the weights in shards, then the dense values.
pub fn seal_private(
    policy: &Policy,
    key: &Key,
    permutations: &Permutations<'_>,
    encoded: &[i64],
    dense: &[i64],
    shards: &[Vec<Column>],
    rng: &mut Rng,
) -> Sealed {
    let mut sealed = Sealed { rows: vec![], slots: vec![], plaintexts: vec![], nonces: vec![], body: vec![] };
    for shard in shards {
        let slot = |row: u32| permutations.own[permutations.shared[row as usize] as usize];
        let mut pairs: Vec<(u32, Column)> = shard.iter().map(|&column| (slot(column.row), column)).collect();
        pairs.sort_unstable_by_key(|pair| pair.0);
        let mut ciphertexts = Vec::new();
        for &(slot, Column { row, pad }) in &pairs {
            let m = if pad { BigInt::from(0) } else { position_plaintext(policy, encoded, row) };
            sealed.body.extend(slot.to_be_bytes());
            ciphertexts.extend(sealed.encrypt(policy, key, m, rng));
        }
        sealed.body.extend(ciphertexts);
        sealed.slots.push(pairs.iter().map(|pair| pair.0).collect());
        sealed.rows.push(pairs.iter().map(|pair| pair.1.row).collect());
    }
    for values in dense.chunks(policy.slots()) {
        let ciphertext = sealed.encrypt(policy, key, pack(policy, values), rng);
        sealed.body.extend(ciphertext);
    }
    sealed
}

/// Seals with a public support: the weights of its positions and the dense values, all packed.
pub fn seal_public(
    policy: &Policy,
    key: &Key,
    support: &[u32],
    encoded: &[i64],
    dense: &[i64],
    rng: &mut Rng,
) -> Sealed {
    let mut sealed = Sealed { rows: vec![], slots: vec![], plaintexts: vec![], nonces: vec![], body: vec![] };
    let mut values: Vec<i64> = public_indices(policy, support).iter().map(|&i| encoded[i]).collect();
    values.extend(dense);
    for values in values.chunks(policy.slots()) {
        let ciphertext = sealed.encrypt(policy, key, pack(policy, values), rng);
        sealed.body.extend(ciphertext);
    }
    sealed
}

/// Returns the indices of the weights of a public support. The last position may have fewer than B.
pub fn public_indices(policy: &Policy, support: &[u32]) -> Vec<usize> {
    let of = |b: u32| (b * policy.block..(b + 1) * policy.block).filter(|&i| i < policy.dimension);
    support.iter().flat_map(|&b| of(b)).map(|i| i as usize).collect()
}

impl Sealed {
    fn encrypt(&mut self, policy: &Policy, key: &Key, m: BigInt, rng: &mut Rng) -> Vec<u8> {
        let r = rng.nonce(&key.n);
        let bytes = ciphertext_bytes(policy, key, &key.encrypt(&m, &r));
        self.plaintexts.push(m);
        self.nonces.push(r);
        bytes
    }
}

/// Encodes `c = c0 + c1 n` as `c1 || c0`.
pub fn ciphertext_bytes(policy: &Policy, key: &Key, c: &BigUint) -> Vec<u8> {
    let mut bytes = fixed_width(&(c / &key.n), policy.ciphertext_bytes() / 2);
    bytes.extend(fixed_width(&(c % &key.n), policy.ciphertext_bytes() / 2));
    bytes
}

/// Encodes a number in a fixed number of bytes.
pub fn fixed_width(x: &BigUint, width: usize) -> Vec<u8> {
    let bytes = x.to_bytes_be();
    // num-bigint encodes zero as one byte
    let bytes = if bytes == [0] { vec![] } else { bytes };
    let mut all = vec![0; width - bytes.len()];
    all.extend(bytes);
    all
}

fn read_ciphertext(key: &Key, bytes: &[u8]) -> BigUint {
    let (c1, c0) = bytes.split_at(bytes.len() / 2);
    BigUint::from_bytes_be(c0) + BigUint::from_bytes_be(c1) * &key.n
}

/// Returns L, the number of ciphertexts after the shards.
pub fn packed_ciphertexts(policy: &Policy, support: Option<&[u32]>) -> usize {
    let weights = support.map_or(0, |support| public_indices(policy, support).len());
    (weights + policy.dense as usize).div_ceil(policy.slots())
}

/// The sum of a round: ciphertexts of positions in the order of `phi_t`, and of packed numbers.
pub struct Sum {
    /// The ciphertexts by position. An absent one stands for the neutral element.
    pub present: BTreeMap<u32, BigUint>,
    /// The packed ciphertexts.
    pub packed: Vec<BigUint>,
}

/// Adds bodies, each with the `phi(n)_t` of its user, if there is one.
pub fn sum(policy: &Policy, key: &Key, support: Option<&[u32]>, uploads: &[(Vec<u32>, Vec<u8>)]) -> Sum {
    let n_squared = key.n_squared();
    let one = BigUint::from(1u8);
    let width = policy.ciphertext_bytes();
    let packed_count = packed_ciphertexts(policy, support);
    let mut present: BTreeMap<u32, BigUint> = BTreeMap::new();
    let mut packed = vec![one.clone(); packed_count];
    for (own, body) in uploads {
        let (shards, rest) = body.split_at(body.len() - packed_count * width);
        let undo = inverse(own);
        let capacity = policy.capacity as usize;
        for shard in shards.chunks(capacity * (4 + width)) {
            let (slots, ciphertexts) = shard.split_at(4 * capacity);
            for (slot, c) in slots.chunks(4).zip(ciphertexts.chunks(width)) {
                let slot = slot.iter().fold(0usize, |x, &byte| x << 8 | usize::from(byte));
                let entry = present.entry(undo[slot]).or_insert_with(|| one.clone());
                *entry = &*entry * read_ciphertext(key, c) % &n_squared;
            }
        }
        for (all, c) in packed.iter_mut().zip(rest.chunks(width)) {
            *all = &*all * read_ciphertext(key, c) % &n_squared;
        }
    }
    Sum { present, packed }
}

impl Sum {
    /// Encodes the sum as A sends it to G.
    pub fn bytes(&self, policy: &Policy, key: &Key) -> Vec<u8> {
        let mut bytes = Vec::new();
        if policy.profile != Profile::Full {
            bytes.resize(policy.positions().div_ceil(8) as usize, 0);
            for &i in self.present.keys() {
                bytes[i as usize / 8] |= 1 << (7 - i % 8);
            }
        }
        for c in self.present.values().chain(&self.packed) {
            bytes.extend(ciphertext_bytes(policy, key, c));
        }
        bytes
    }

    /// Returns the number of present positions.
    pub fn occupied(&self) -> u32 {
        self.present.len() as u32
    }
}

/// Computes `sum_hash`.
pub fn sum_hash(sum: &[u8]) -> Digest {
    h("dphe/v1/sum", &[sum])
}

/// Opens a sum. Returns all D weight sums in their true order for a private support, or those of a public support, and
/// the dense sums. Returns `None` if a value is out of range, which is `round_failed`.
pub fn open(
    policy: &Policy,
    key: &Key,
    shared: &[u32],
    support: Option<&[u32]>,
    sum: &Sum,
) -> Option<(Vec<i64>, Vec<i64>)> {
    let mut weights = Vec::new();
    if support.is_none() {
        for r in 0..policy.positions() {
            let c = sum.present.get(&shared[r as usize]);
            let m = c.map_or_else(|| BigInt::from(0), |c| key.decrypt(c));
            weights.extend(unpack(policy, &m, policy.block as usize)?);
        }
        weights.truncate(policy.dimension as usize);
    }
    let mut packed = Vec::new();
    for c in &sum.packed {
        packed.extend(unpack(policy, &key.decrypt(c), policy.slots())?);
    }
    if let Some(support) = support {
        let rest = packed.split_off(public_indices(policy, support).len());
        (weights, packed) = (packed, rest);
    }
    packed.truncate(policy.dense as usize);
    Some((weights, packed))
}

/// Encodes the payload of a result.
pub fn payload(policy: &Policy, weights: &[i64], dense: &[i64]) -> Vec<u8> {
    weights.iter().chain(dense).flat_map(|&sum| payload_integer(policy, sum)).collect()
}
