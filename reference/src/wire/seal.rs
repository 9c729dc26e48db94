//! Section 6: sealing, summing and opening, in bytes.

use std::collections::BTreeMap;

use num_bigint::{BigInt, BigUint};

use super::derive::{Digest, h, inverse, rotation, user_aggregator, user_shared};
use super::fixed::{pack, payload_integer, unpack};
use super::mask::{Check, Round, Secrets, least, residue, residue_bytes, shift};
use super::task::{Policy, Profile, Receipts};
use crate::algorithm1::Key;
use crate::rng::Rng;

/// One upload, with all random choices that were made for it.
pub struct Sealed {
    /// The columns of K in each shard, in the order in which they were drawn.
    pub dealt: Vec<Vec<Column>>,
    /// The position of each value, per shard, in the order of the content.
    pub rows: Vec<Vec<u32>>,
    /// The permuted indices, per shard, in ascending order.
    pub slots: Vec<Vec<u32>>,
    /// The plaintexts without masks, in the order of the content. The last one is the check, if there is one.
    pub unmasked: Vec<BigInt>,
    /// The plaintexts that are encrypted, in the order of the content.
    pub plaintexts: Vec<BigInt>,
    /// In the order of the content.
    pub nonces: Vec<BigUint>,
    /// The content.
    pub content: Vec<u8>,
}

impl Sealed {
    /// Returns `count`, the number of ciphertexts.
    pub fn count(&self) -> u32 {
        self.plaintexts.len() as u32
    }

    /// Encrypts the plaintexts without their masks, as Algorithm 1 does.
    pub fn plain_ciphertexts(&self, key: &Key) -> Vec<BigUint> {
        self.unmasked.iter().zip(&self.nonces).map(|(m, r)| key.encrypt(m, r)).collect()
    }
}

impl Round {
    /// Returns the public support, if there is one.
    pub fn support(&self, policy: &Policy) -> Option<Vec<u32>> {
        let public = policy.profile == Profile::Full;
        public.then(|| rotation(&self.task, self.number, policy.positions(), policy.capacity))
    }

    /// Returns `phi_t`. It is empty if the support is public.
    pub fn shared(&self, policy: &Policy) -> Vec<u32> {
        match policy.profile {
            Profile::Full => vec![],
            profile => {
                let paper = profile == Profile::Paper;
                user_shared(paper, self.seed, &self.task, self.number, policy.positions())
            }
        }
    }

    /// Returns `phi(n)_t`. It is empty if the support is public.
    pub fn own(&self, policy: &Policy, secrets: &Secrets) -> Vec<u32> {
        let (seed, user, positions) = (secrets.seed, secrets.user, policy.positions());
        match policy.profile {
            Profile::Full => vec![],
            profile => {
                let paper = profile == Profile::Paper;
                user_aggregator(paper, seed, &self.task, self.number, user, positions)
            }
        }
    }

    /// Returns the check, with a factor for every position of a private support and every packed plaintext.
    pub fn check(&self, policy: &Policy, key: &Key) -> Check {
        let packed = packed_plaintexts(policy, self.support(policy).as_deref());
        Check::new(self, &key.n, first_packed(policy) + packed)
    }
}

/// Returns the index of the factor of the first packed plaintext.
fn first_packed(policy: &Policy) -> usize {
    if policy.profile == Profile::Full { 0 } else { policy.positions() as usize }
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

/// Seals the weights and dense values of a user.
pub fn seal(
    policy: &Policy,
    key: &Key,
    round: &Round,
    secrets: &Secrets,
    (encoded, dense): (&[i64], &[i64]),
    rng: &mut Rng,
) -> Sealed {
    let support = round.support(policy);
    let mut sealed = Sealed {
        dealt: vec![],
        rows: vec![],
        slots: vec![],
        unmasked: vec![],
        plaintexts: vec![],
        nonces: vec![],
        content: vec![],
    };
    if policy.receipts == Receipts::Masked {
        sealed.content.extend(secrets.blind);
    }
    // the plaintexts of the check, each with the index of its factor
    let mut checked = Vec::new();
    if support.is_none() {
        sealed.dealt = deal(policy, encoded, rng);
        let (shared, own) = (round.shared(policy), round.own(policy, secrets));
        for shard in sealed.dealt.clone() {
            let slot = |row: u32| own[shared[row as usize] as usize];
            let mut pairs: Vec<(u32, Column)> =
                shard.iter().map(|&column| (slot(column.row), column)).collect();
            pairs.sort_unstable_by_key(|pair| pair.0);
            let mut ciphertexts = Vec::new();
            for &(slot, Column { row, pad }) in &pairs {
                let m = if pad { BigInt::from(0) } else { position_plaintext(policy, encoded, row) };
                checked.push((shared[row as usize] as usize, m.clone()));
                sealed.content.extend(slot.to_be_bytes());
                ciphertexts.extend(sealed.encrypt(policy, key, &m, m.clone(), rng));
            }
            sealed.content.extend(ciphertexts);
            sealed.slots.push(pairs.iter().map(|pair| pair.0).collect());
            sealed.rows.push(pairs.iter().map(|pair| pair.1.row).collect());
        }
    }
    let mut values: Vec<i64> = match &support {
        Some(support) => public_indices(policy, support).iter().map(|&i| encoded[i]).collect(),
        None => vec![],
    };
    values.extend(dense);
    let mut packed: Vec<BigInt> = values.chunks(policy.slots()).map(|values| pack(policy, values)).collect();
    checked.extend(packed.iter().cloned().enumerate().map(|(j, d)| (first_packed(policy) + j, d)));
    if policy.receipts != Receipts::None {
        let check = round.check(policy, key).value(&key.n, 1, &checked);
        packed.push(BigInt::from(check));
    }
    let keys = mask_keys(policy, round, secrets);
    let masked: Vec<BigInt> = if keys.is_empty() {
        packed.clone()
    } else {
        shift(&key.n, &packed, &keys, true).into_iter().map(BigInt::from).collect()
    };
    for (plain, masked) in packed.iter().zip(masked) {
        let ciphertext = sealed.encrypt(policy, key, plain, masked, rng);
        sealed.content.extend(ciphertext);
    }
    sealed
}

/// Returns the keys of the masks that a user adds to its packed plaintexts.
fn mask_keys(policy: &Policy, round: &Round, secrets: &Secrets) -> Vec<Digest> {
    match policy.receipts {
        Receipts::None => vec![],
        Receipts::Checked => vec![secrets.key_generator_key(round)],
        Receipts::Masked => vec![secrets.key_generator_key(round), secrets.aggregator_key(round)],
    }
}

/// Returns the indices of the weights of a public support. The last position may have fewer than B.
pub fn public_indices(policy: &Policy, support: &[u32]) -> Vec<usize> {
    let of = |b: u32| (b * policy.block..(b + 1) * policy.block).filter(|&i| i < policy.dimension);
    support.iter().flat_map(|&b| of(b)).map(|i| i as usize).collect()
}

impl Sealed {
    fn encrypt(&mut self, policy: &Policy, key: &Key, plain: &BigInt, m: BigInt, rng: &mut Rng) -> Vec<u8> {
        let r = rng.nonce(&key.n);
        let bytes = ciphertext_bytes(policy, key, &key.encrypt(&m, &r));
        self.unmasked.push(plain.clone());
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

/// Reads `c = c0 + c1 n` from `c1 || c0`.
pub fn read_ciphertext(key: &Key, bytes: &[u8]) -> BigUint {
    let (c1, c0) = bytes.split_at(bytes.len() / 2);
    BigUint::from_bytes_be(c0) + BigUint::from_bytes_be(c1) * &key.n
}

/// Returns L, the number of packed plaintexts.
pub fn packed_plaintexts(policy: &Policy, support: Option<&[u32]>) -> usize {
    let weights = support.map_or(0, |support| public_indices(policy, support).len());
    (weights + policy.dense as usize).div_ceil(policy.slots())
}

/// The sum of a round: ciphertexts of positions in the order of `phi_t`, and of packed numbers.
pub struct Sum {
    /// The ciphertexts by position. An absent one stands for the neutral element.
    pub present: BTreeMap<u32, BigUint>,
    /// The packed ciphertexts and the check.
    pub packed: Vec<BigUint>,
}

/// Adds the contents of uploads.
pub fn sum(policy: &Policy, key: &Key, round: &Round, uploads: &[(&Secrets, &[u8])]) -> Sum {
    let n_squared = key.n_squared();
    let one = BigUint::from(1u8);
    let width = policy.ciphertext_bytes();
    let check = usize::from(policy.receipts != Receipts::None);
    let packed_count = packed_plaintexts(policy, round.support(policy).as_deref()) + check;
    let mut present: BTreeMap<u32, BigUint> = BTreeMap::new();
    let mut packed = vec![one.clone(); packed_count];
    for (secrets, content) in uploads {
        let blind = if policy.receipts == Receipts::Masked { 32 } else { 0 };
        let (shards, rest) = content[blind..].split_at(content.len() - blind - packed_count * width);
        let undo = inverse(&round.own(policy, secrets));
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
    h("dphe/v2/sum", &[sum])
}

/// The sums of weights and of dense values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// All D weight sums in their true order for a private support, or those of a public support.
    pub weights: Vec<i64>,
    /// The dense sums.
    pub dense: Vec<i64>,
}

/// What G sends to A.
pub enum Opened {
    /// The sums themselves.
    Sums(Sums),
    /// With receipts `masked`: Z.
    Residues(Vec<BigUint>),
}

impl Opened {
    /// Encodes the payload of a result.
    pub fn payload(&self, policy: &Policy) -> Vec<u8> {
        match self {
            Self::Sums(sums) => {
                let all = sums.weights.iter().chain(&sums.dense);
                all.flat_map(|&sum| payload_integer(policy, sum)).collect()
            }
            Self::Residues(residues) => residue_bytes(policy, residues),
        }
    }
}

/// Opens the sum of these users. Returns `None` if the check fails or a value is out of range, which is
/// `round_failed`.
pub fn open(policy: &Policy, key: &Key, round: &Round, users: &[&Secrets], sum: &Sum) -> Option<Opened> {
    let mut packed: Vec<BigInt> = sum.packed.iter().map(|c| key.decrypt(c)).collect();
    let masks: Vec<Digest> = users.iter().map(|user| user.key_generator_key(round)).collect();
    if policy.receipts == Receipts::Masked {
        return Some(Opened::Residues(shift(&key.n, &packed, &masks, false)));
    }
    let positions: BTreeMap<u32, BigInt> = sum.present.iter().map(|(&p, c)| (p, key.decrypt(c))).collect();
    if policy.receipts == Receipts::Checked {
        packed = shift(&key.n, &packed, &masks, false).iter().map(|z| least(z, key)).collect();
        let z = packed.pop()?;
        let mut terms: Vec<(usize, BigInt)> =
            positions.iter().map(|(&p, s)| (p as usize, s.clone())).collect();
        terms.extend(packed.iter().cloned().enumerate().map(|(j, d)| (first_packed(policy) + j, d)));
        if round.check(policy, key).value(&key.n, users.len(), &terms) != residue(&z, &key.n) {
            return None;
        }
    }
    let support = round.support(policy);
    let mut sums = decode(policy, support.as_deref(), &packed, users.len())?;
    if support.is_none() {
        let shared = round.shared(policy);
        for r in 0..policy.positions() {
            let m = positions.get(&shared[r as usize]).cloned().unwrap_or_default();
            sums.weights.extend(unpack(policy, &m, policy.block as usize, users.len())?);
        }
        sums.weights.truncate(policy.dimension as usize);
    }
    Some(Opened::Sums(sums))
}

/// Decodes packed plaintexts: the weights of a public support, if there is one, and the dense values.
fn decode(policy: &Policy, support: Option<&[u32]>, packed: &[BigInt], users: usize) -> Option<Sums> {
    let mut values = Vec::new();
    for m in packed {
        values.extend(unpack(policy, m, policy.slots(), users)?);
    }
    let mut dense = values.split_off(support.map_or(0, |support| public_indices(policy, support).len()));
    dense.truncate(policy.dense as usize);
    Some(Sums { weights: values, dense })
}

/// Removes the masks of A from Z.
pub fn unmask(key: &Key, round: &Round, users: &[&Secrets], residues: &[BigUint]) -> Vec<BigUint> {
    let masks: Vec<Digest> = users.iter().map(|user| user.aggregator_key(round)).collect();
    let residues: Vec<BigInt> = residues.iter().cloned().map(BigInt::from).collect();
    shift(&key.n, &residues, &masks, false)
}

/// The error code of a published sum that a user refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `check`.
    Check,
    /// `range`.
    Range,
}

/// Returns the check `z_L` that belongs to `z_0 ... z_(L-1)`.
pub fn check_of(policy: &Policy, key: &Key, round: &Round, users: usize, packed: &[BigUint]) -> BigUint {
    let terms: Vec<(usize, BigInt)> = packed.iter().cloned().map(BigInt::from).enumerate().collect();
    round.check(policy, key).value(&key.n, users, &terms)
}

/// Checks and decodes a published sum with receipts `masked`.
///
/// # Errors
/// Returns what is wrong with it.
pub fn check_and_decode(
    policy: &Policy,
    key: &Key,
    round: &Round,
    users: usize,
    published: &[BigUint],
) -> Result<Sums, Refused> {
    let (last, packed) = published.split_last().ok_or(Refused::Check)?;
    if check_of(policy, key, round, users, packed) != *last {
        return Err(Refused::Check);
    }
    let packed: Vec<BigInt> = packed.iter().map(|z| least(z, key)).collect();
    decode(policy, round.support(policy).as_deref(), &packed, users).ok_or(Refused::Range)
}
