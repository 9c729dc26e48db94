//! Sections 2 and 5: hashes, streams, shuffles, ratchets, supports.

use sha2::{Digest as _, Sha256};

/// A hash or a seed.
pub type Digest = [u8; 32];
/// The id of a task.
pub type Task = [u8; 16];

/// Computes `H(domain, x1, ..., xk)`. Every part is preceded by its length in eight bytes.
pub fn h(domain: &str, parts: &[&[u8]]) -> Digest {
    let mut hash = Sha256::new();
    for part in [domain.as_bytes()].iter().chain(parts) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// `Stream(key)`, a stream of 32-bit words.
pub struct Stream {
    key: Digest,
    block: u64,
    words: Vec<u32>,
}

impl Stream {
    /// Starts the stream.
    pub fn new(key: Digest) -> Self {
        Self { key, block: 0, words: Vec::new() }
    }

    /// Returns the next word.
    pub fn word(&mut self) -> u32 {
        if self.words.is_empty() {
            let mut hash = Sha256::new();
            hash.update(self.key);
            hash.update(self.block.to_be_bytes());
            let digest: Digest = hash.finalize().into();
            self.words = digest.chunks(4).map(be_u32).collect();
            self.block += 1;
        }
        self.words.remove(0)
    }

    /// Computes `draw(b)`, a uniform number below `b`. Words that would bias it are skipped.
    pub fn draw(&mut self, b: u32) -> u32 {
        let all = 1u64 << 32;
        let limit = all - all % u64::from(b);
        loop {
            let x = self.word();
            if u64::from(x) < limit {
                return x % b;
            }
        }
    }
}

/// Computes `Shuffle(key, P)`. The permutation takes `r` to `p[r]`.
pub fn shuffle(key: Digest, positions: u32) -> Vec<u32> {
    let mut stream = Stream::new(key);
    let mut p: Vec<u32> = (0..positions).collect();
    for i in (1..positions).rev() {
        let j = stream.draw(i + 1);
        p.swap(i as usize, j as usize);
    }
    p
}

/// Returns the inverse permutation.
pub fn inverse(p: &[u32]) -> Vec<u32> {
    let mut inverse = vec![0; p.len()];
    for (r, &to) in p.iter().enumerate() {
        inverse[to as usize] = r as u32;
    }
    inverse
}

/// Derives the seed of a round from that of round 1.
pub fn ratchet(first: Digest, round: u64) -> Digest {
    (1..round).fold(first, |k, _| h("dphe/v2/ratchet", &[&k]))
}

/// Returns the seed and the round number of a permutation. Profile `paper` keeps one permutation for all rounds.
fn seed_and_round(paper: bool, first: Digest, round: u64) -> (Digest, u64) {
    if paper { (first, 0) } else { (ratchet(first, round), round) }
}

/// Derives `phi_t` from the first seed that users and G hold.
pub fn user_shared(paper: bool, first: Digest, task: &Task, round: u64, positions: u32) -> Vec<u32> {
    let (k, t) = seed_and_round(paper, first, round);
    shuffle(h("dphe/v2/user-shared", &[&k, task, &t.to_be_bytes()]), positions)
}

/// Derives `phi(n)_t` from the first seed that user n and A hold.
pub fn user_aggregator(
    paper: bool,
    first: Digest,
    task: &Task,
    round: u64,
    user: u32,
    positions: u32,
) -> Vec<u32> {
    let (k, t) = seed_and_round(paper, first, round);
    let key = h("dphe/v2/user-aggregator", &[&k, task, &t.to_be_bytes(), &user.to_be_bytes()]);
    shuffle(key, positions)
}

/// Returns the public support of a round in profile `full`.
pub fn rotation(task: &Task, round: u64, positions: u32, capacity: u32) -> Vec<u32> {
    let shares = u64::from(positions.div_ceil(capacity));
    let (pass, share) = ((round - 1) / shares, (round - 1) % shares);
    let order = shuffle(h("dphe/v1/rotation", &[task, &pass.to_be_bytes()]), positions);
    let from = share as usize * capacity as usize;
    let to = (from + capacity as usize).min(positions as usize);
    let mut support = order[from..to].to_vec();
    support.sort_unstable();
    support
}

/// Computes `support_digest` of the public positions of a round, of which there may be none.
pub fn support_digest(positions: &[u32]) -> Digest {
    let bytes: Vec<u8> = positions.iter().flat_map(|p| p.to_be_bytes()).collect();
    h("dphe/v2/support", &[&bytes])
}

fn be_u32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |x, &byte| x << 8 | u32::from(byte))
}
