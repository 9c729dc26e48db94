//! Section 13: the key files of the parties.

use super::derive::{Digest, Task, h};
use super::task::{Policy, key_id};
use crate::algorithm1::Key;

/// A seed with its round.
pub type Seed = (u64, Digest);

/// The task and its encryption key, which most kits contain.
pub struct KitTask<'a> {
    /// The id.
    pub id: Task,
    /// The policy.
    pub policy: &'a Policy,
    /// The key pair.
    pub key: &'a Key,
}

/// Encodes the kit of an identity.
pub fn identity(seed: &Digest) -> Vec<u8> {
    finish(1, seed.to_vec())
}

/// Encodes the kit of G.
pub fn key_generator(task: &KitTask<'_>, next: u64, shared: &Seed, masks: &[(u32, Seed)]) -> Vec<u8> {
    let next = next.to_be_bytes();
    let fields = [&task.bytes()[..], &key_id(task.key), &next, &seed_bytes(shared), &user_bytes(masks)];
    finish(2, fields.concat())
}

/// Encodes the kit of A.
pub fn aggregator(task: &KitTask<'_>, seeds: &[(u32, Seed)]) -> Vec<u8> {
    finish(3, [task.bytes(), task.key_bytes(), user_bytes(seeds)].concat())
}

/// Encodes the kit of a user, with its user-shared seed, user-aggregator seed and mask seed.
pub fn user(task: &KitTask<'_>, user: u32, seeds: &[Seed; 3]) -> Vec<u8> {
    let seeds = seeds.iter().flat_map(seed_bytes).collect();
    finish(4, [task.bytes(), task.key_bytes(), user.to_be_bytes().to_vec(), seeds].concat())
}

impl KitTask<'_> {
    fn bytes(&self) -> Vec<u8> {
        [&self.id[..], &self.policy.bytes()].concat()
    }

    fn key_bytes(&self) -> Vec<u8> {
        let file = public_key_file(self.key);
        [&(file.len() as u32).to_be_bytes()[..], &file].concat()
    }
}

/// Encodes a public key with noise `secure`: a magic line, format 1, the mode, the length in bits, and n.
pub fn public_key_file(key: &Key) -> Vec<u8> {
    let mut bytes = b"dphe-public-key\n".to_vec();
    bytes.extend([1, 1]);
    bytes.extend((key.n.bits() as u32).to_be_bytes());
    bytes.extend(key.n.to_bytes_be());
    bytes
}

fn seed_bytes((round, seed): &Seed) -> Vec<u8> {
    [&round.to_be_bytes()[..], seed].concat()
}

fn user_bytes(users: &[(u32, Seed)]) -> Vec<u8> {
    let mut bytes = (users.len() as u32).to_be_bytes().to_vec();
    for (user, seed) in users {
        bytes.extend(user.to_be_bytes());
        bytes.extend(seed_bytes(seed));
    }
    bytes
}

fn finish(kind: u8, fields: Vec<u8>) -> Vec<u8> {
    with_checksum([&b"DPHEKIT2"[..], &[kind], &fields].concat())
}

/// Appends the checksum of a kit.
pub fn with_checksum(covered: Vec<u8>) -> Vec<u8> {
    let check = h("dphe/v2/kit", &[&covered]);
    [&covered[..], &check].concat()
}
