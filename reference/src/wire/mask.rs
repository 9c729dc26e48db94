//! Section 6: masks, the check, and ChaCha20 (RFC 8439), from which both are drawn.

use num_bigint::{BigInt, BigUint};

use super::derive::{Digest, Task, h, ratchet};
use super::task::Policy;
use crate::algorithm1::Key;

/// The salt of a sealed update.
pub type Salt = [u8; 16];

/// Computes the first bytes of `Words(K)`: the key stream of ChaCha20 with a nonce of zeros and a counter from 0.
pub fn words(key: &Digest, count: usize) -> Vec<u8> {
    let blocks = count.div_ceil(64) as u32;
    let mut bytes: Vec<u8> = (0..blocks).flat_map(|counter| block(key, counter)).collect();
    bytes.truncate(count);
    bytes
}

/// Computes a block of the key stream. Words are little-endian here, as in the RFC.
fn block(key: &Digest, counter: u32) -> Vec<u8> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0u32, |x, &byte| x << 8 | u32::from(byte));
    let mut start: Vec<u32> = b"expand 32-byte k".chunks(4).map(word).collect();
    start.extend(key.chunks(4).map(word));
    start.extend([counter, 0, 0, 0]);
    let mut state = start.clone();
    for _ in 0..10 {
        for column in 0..4 {
            quarter_round(&mut state, [column, 4 + column, 8 + column, 12 + column]);
        }
        for diagonal in 0..4 {
            let at = |row: usize| 4 * row + (diagonal + row) % 4;
            quarter_round(&mut state, [at(0), at(1), at(2), at(3)]);
        }
    }
    state.iter().zip(start).flat_map(|(x, y)| x.wrapping_add(y).to_le_bytes()).collect()
}

fn quarter_round(state: &mut [u32], [a, b, c, d]: [usize; 4]) {
    for (to, from, into, bits) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
        state[to] = state[to].wrapping_add(state[from]);
        state[into] = (state[into] ^ state[to]).rotate_left(bits);
    }
}

/// Returns W, the number of bytes that are reduced to one mask.
pub fn width(key_bits: u32) -> usize {
    key_bits as usize / 8 + 16
}

/// Computes `Mask(K)_i` for i below `count`.
pub fn masks(key: &Digest, n: &BigUint, count: usize) -> Vec<BigUint> {
    let width = width(n.bits() as u32);
    words(key, width * count).chunks(width).map(|bytes| BigUint::from_bytes_be(bytes) % n).collect()
}

/// Returns the number between 0 and n - 1 that is congruent to `m`.
pub fn residue(m: &BigInt, n: &BigUint) -> BigUint {
    let n = BigInt::from(n.clone());
    (((m % &n) + &n) % &n).to_biguint().expect("made positive")
}

/// The round in which something is sealed: what all its keys are derived from.
#[derive(Clone, Debug)]
pub struct Round {
    /// The task.
    pub task: Task,
    /// The number.
    pub number: u64,
    /// The hash of the round's ticket.
    pub ticket: Digest,
    /// The first seed that users and G share.
    pub seed: Digest,
}

/// The secrets of a user, with the random values of one sealed update.
#[derive(Clone, Debug)]
pub struct Secrets {
    /// The user.
    pub user: u32,
    /// The first seed that it shares with A.
    pub seed: Digest,
    /// The first seed that it shares with G.
    pub mask_seed: Digest,
    /// The salt.
    pub salt: Salt,
    /// `a(u)`.
    pub blind: Digest,
}

impl Secrets {
    /// Computes `K_G(u)`.
    pub fn key_generator_key(&self, round: &Round) -> Digest {
        let seed = ratchet(self.mask_seed, round.number);
        let (number, user) = (round.number.to_be_bytes(), self.user.to_be_bytes());
        let parts: [&[u8]; 6] = [&seed, &round.task, &number, &round.ticket, &user, &self.salt];
        h("dphe/v2/mask-key-generator", &parts)
    }

    /// Computes `K_A(u)`.
    pub fn aggregator_key(&self, round: &Round) -> Digest {
        h("dphe/v2/mask-aggregator", &[&self.blind, &round.ticket, &self.user.to_be_bytes()])
    }
}

/// The secrets of a round's check.
pub struct Check {
    /// `K_C`.
    pub key: Digest,
    /// The factors.
    pub rho: Vec<BigUint>,
    /// The constant that every user adds.
    pub kappa: BigUint,
}

impl Check {
    /// Derives the check of a round for this many plaintexts.
    pub fn new(round: &Round, n: &BigUint, count: usize) -> Self {
        let seed = ratchet(round.seed, round.number);
        let key = h("dphe/v2/check", &[&seed, &round.task, &round.number.to_be_bytes(), &round.ticket]);
        let rho = words(&key, 16 * count).chunks(16).map(BigUint::from_bytes_be).collect();
        let group = h("dphe/v2/check-group", &[&key, &0u32.to_be_bytes()]);
        let kappa = masks(&group, n, 1).remove(0);
        Self { key, rho, kappa }
    }

    /// Computes `|U| kappa + sum_i rho_i m_i` of plaintexts, each with its i.
    pub fn value(&self, n: &BigUint, users: usize, plaintexts: &[(usize, BigInt)]) -> BigUint {
        let term = |(i, m): &(usize, BigInt)| &self.rho[*i] * residue(m, n);
        (&self.kappa * users + plaintexts.iter().map(term).sum::<BigUint>()) % n
    }
}

/// Adds the sums over users of the first masks of their keys to plaintexts, or subtracts them.
pub fn shift(n: &BigUint, plaintexts: &[BigInt], keys: &[Digest], add: bool) -> Vec<BigUint> {
    let mut shifted = plaintexts.to_vec();
    for key in keys {
        for (m, mask) in shifted.iter_mut().zip(masks(key, n, plaintexts.len())) {
            *m += if add { BigInt::from(mask) } else { -BigInt::from(mask) };
        }
    }
    shifted.iter().map(|m| residue(m, n)).collect()
}

/// Encodes residues, each in as many bytes as n.
pub fn residue_bytes(policy: &Policy, residues: &[BigUint]) -> Vec<u8> {
    let width = policy.key_bits as usize / 8;
    residues.iter().flat_map(|z| super::seal::fixed_width(z, width)).collect()
}

/// Returns the integer of least magnitude with this residue.
pub fn least(z: &BigUint, key: &Key) -> BigInt {
    if z + z > key.n {
        BigInt::from(z.clone()) - BigInt::from(key.n.clone())
    } else {
        BigInt::from(z.clone())
    }
}
