//! Messages that an aggregator writes and signs itself, by docs/protocol.md and not by the code of the parties.

use dphe::wire::{Kind, Message};
use dphe::{Digest, PartyId, Roster, Round};
use ed25519_dalek::{Signer as _, SigningKey};
use sha2::{Digest as _, Sha256};

use crate::world::identity_seed;

/// `H(domain, part)` of section 2.
pub(crate) fn hash(domain: &str, part: &[u8]) -> Digest {
    let mut sha = Sha256::new();
    for part in [domain.as_bytes(), part] {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part);
    }
    Digest::from_bytes(sha.finalize().into())
}

/// Signs a message of the aggregator.
pub(crate) fn message<M: Message>(roster: &Roster, round: Round, message: &M, body: &[u8]) -> Vec<u8> {
    signed(roster, PartyId::Aggregator, M::KIND, round, &message.to_bytes(), body)
}

/// Signs a message that is said to be from a party with the aggregator's key. An accomplice signs its own uploads.
pub(crate) fn signed(
    roster: &Roster,
    from: PartyId,
    kind: Kind,
    round: Round,
    fields: &[u8],
    body: &[u8],
) -> Vec<u8> {
    let (role, user) = match from {
        PartyId::Aggregator => (1u8, 0u32),
        PartyId::KeyGenerator => (2, 0),
        PartyId::User(user) => (3, user.get()),
    };
    let signer = if let PartyId::User(_) = from { from } else { PartyId::Aggregator };
    let task = roster.task().id();
    let round = round.get().to_be_bytes();
    let begin = [b"DPHE", &[2, kind.number()][..], task.as_bytes(), &round, &[role]].concat();
    let header = [&begin[..], &user.to_be_bytes(), fields].concat();
    let digest = hash(&format!("dphe/v2/{kind}"), &header);
    let key = SigningKey::from_bytes(&identity_seed(signer));
    [&header[..], &key.sign(digest.as_bytes()).to_bytes(), body].concat()
}
