//! Section 3: rosters that replace others within a task.

use super::derive::{Digest, h};
use super::hpke::{KeyPair, seal};
use super::message::sign;
use super::task::Roster;

/// The `info` of the part that only A can read.
pub const ROSTER_INFO: &[u8] = b"dphe/v2/roster-seal";

/// Computes what hides the new user-shared seed from everybody but one user and G. The mask seed is that of the first
/// round of the new roster.
pub fn hiding_key(mask_seed: &Digest, roster_hash: &Digest, salt: &[u8; 16], user: u32) -> Digest {
    h("dphe/v2/roster-seed", &[mask_seed, roster_hash, salt, &user.to_be_bytes()])
}

/// Computes what shows that a user has the right seed.
pub fn seed_check(user_shared: &Digest, roster_hash: &Digest) -> Digest {
    h("dphe/v2/roster-seed-check", &[user_shared, roster_hash])
}

/// A change of a roster, and the secrets that it carries. All seeds are those of the first round of the new roster.
pub struct Change<'a> {
    /// The roster that is replaced.
    pub previous: &'a Roster,
    /// The new roster.
    pub roster: &'a Roster,
    /// 16 random bytes.
    pub salt: [u8; 16],
    /// The new user-shared seed.
    pub user_shared: Digest,
    /// The mask seeds of the users who keep their identities, ascending.
    pub masks: &'a [(u32, Digest)],
    /// The new user-aggregator seeds of the users with a new identity, ascending.
    pub user_aggregator: &'a [(u32, Digest)],
    /// The ephemeral key pair of the part for A.
    pub ephemeral: &'a KeyPair,
}

impl Change<'_> {
    /// Returns whether a user has another identity than before.
    fn is_replaced(&self, user: u32) -> bool {
        let key = |roster: &Roster| {
            let entry = roster.users.iter().find(|(id, _)| *id == user);
            entry.map(|(_, key)| key.verifying_key().to_bytes())
        };
        key(self.roster) != key(self.previous)
    }

    /// Encodes the change, signed by G.
    pub fn bytes(&self) -> Vec<u8> {
        let roster = self.roster.bytes();
        let mut bytes = b"DPHEROS2".to_vec();
        bytes.extend((roster.len() as u32).to_be_bytes());
        bytes.extend(&roster);
        bytes.extend(self.salt);
        bytes.extend(seed_check(&self.user_shared, &self.roster.hash()));
        let (mut hidden, mut content) = (vec![], vec![]);
        for (user, _) in &self.roster.users {
            if self.is_replaced(*user) {
                let (_, seed) = self.user_aggregator.iter().find(|(id, _)| id == user).expect("a seed");
                content.extend(user.to_be_bytes());
                content.extend(seed);
            } else {
                let (_, mask) = self.masks.iter().find(|(id, _)| id == user).expect("a mask seed");
                let key = hiding_key(mask, &self.roster.hash(), &self.salt, *user);
                hidden.extend(key.iter().zip(&self.user_shared).map(|(a, b)| a ^ b));
            }
        }
        bytes.extend(hidden);
        if !content.is_empty() {
            let agreement = self.roster.agreement().public;
            bytes.extend(seal(&agreement, self.ephemeral, ROSTER_INFO, &self.roster.hash(), &content));
        }
        let signature = sign(&self.roster.key_generator, &h("dphe/v2/roster-change", &[&bytes]));
        bytes.extend(signature);
        bytes
    }
}
