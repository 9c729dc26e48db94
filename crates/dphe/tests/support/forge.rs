//! Messages that a dishonest party writes and signs itself, by docs/protocol.md and not by the code of the parties.

use dphe::PartyId;
use dphe::wire::{Kind, Message};
use ed25519_dalek::{Signer as _, SigningKey};
use sha2::{Digest as _, Sha256};

/// `H(domain, parts...)` of section 2.
pub fn hash(domain: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut sha = Sha256::new();
    for part in [domain.as_bytes()].iter().chain(parts) {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part);
    }
    sha.finalize().into()
}

/// Returns the domain of a kind of message.
pub fn domain(kind: Kind) -> String {
    format!("dphe/v2/{}", kind.as_str())
}

/// Signs the hash of these bytes.
pub fn signature(party: PartyId, domain: &str, bytes: &[u8]) -> [u8; 64] {
    SigningKey::from_bytes(&super::identity_seed(party)).sign(&hash(domain, &[bytes])).to_bytes()
}

/// Returns the header of a message of the test task, with its fields.
pub fn header(from: PartyId, kind: Kind, round: u64, fields: &[u8]) -> Vec<u8> {
    let (role, user) = match from {
        PartyId::Aggregator => (1, 0),
        PartyId::KeyGenerator => (2, 0),
        PartyId::User(user) => (3, user.get()),
    };
    let round = round.to_be_bytes();
    [b"DPHE", &[2, kind.number()][..], &[7; 16], &round, &[role], &u32::to_be_bytes(user), fields].concat()
}

/// Signs a message of the test task with these fields.
pub fn signed(from: PartyId, kind: Kind, round: u64, fields: &[u8], body: &[u8]) -> Vec<u8> {
    let header = header(from, kind, round, fields);
    let signature = signature(from, &domain(kind), &header);
    [&header[..], &signature, body].concat()
}

/// Signs a message of the aggregator.
pub fn from_aggregator<M: Message>(round: u64, message: &M, body: &[u8]) -> Vec<u8> {
    signed(PartyId::Aggregator, M::KIND, round, &message.to_bytes(), body)
}

/// The length of the header of a message of this kind in a round of three users.
pub fn header_bytes(kind: u8) -> usize {
    35 + match kind {
        1 => 4 * 32 + 8 + 16,
        2 => 5 * 32 + 8 + 32 + 1 + 40,
        3 => 32 + 32 + 4 + 16 + 32,
        4 => 32,
        5 => 32 + 4 + 32 + 4 + 4 + 3 * 120,
        6 => 32 + 4 + 40,
        9 => 32 + 4 + 32,
        10 => 32 + 1 + 4 + 32 + 32 + 40,
        11 => header_bytes(10) + 64 + 32 + 32,
        12 => 1 + 32,
        // the first two of three leaves have paths of two digests
        15 => 32 + 4 + 1 + 2 * 32,
        _ => panic!("no such kind"),
    }
}
