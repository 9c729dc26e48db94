//! The participants of a round: who they are, what they signed, and the tree by which each finds itself.

use super::codec::{Decode, Encode, Reader, Writer};
use super::messages::Upload;
use super::signed::Unverified;
use super::{PartyId, Roster, Signed};
use crate::hash::hash;
use crate::wire::domains;
use crate::{Digest, Error, Round, UserId};

/// A participant of a round, with everything that shows that it uploaded in this round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participant {
    /// The user.
    pub user: UserId,
    /// The number of ciphertexts that the user sent.
    pub count: u32,
    /// The salt of the user's masks.
    pub salt: [u8; 16],
    /// The hash of the body that the user sent.
    pub body_hash: Digest,
    /// The user's signature of its upload.
    pub signature: [u8; 64],
}

/// The length of an encoded participant.
pub(super) const PARTICIPANT_BYTES: u64 = 120;

impl Participant {
    /// Returns the participant that an upload makes of its sender.
    pub(crate) fn of(upload: &Signed<Upload>, user: UserId) -> Self {
        let &Upload { count, salt, body_hash, .. } = upload.message();
        Self { user, count, salt, body_hash, signature: upload.signature() }
    }

    /// Verifies that the user signed this upload for a ticket.
    ///
    /// # Errors
    /// [`Error::UnknownUser`] or [`Error::Signature`].
    pub fn verify(&self, roster: &Roster, round: Round, ticket: Digest) -> Result<(), Error> {
        let upload = Upload {
            ticket,
            key_id: *roster.key_id(),
            count: self.count,
            salt: self.salt,
            body_hash: self.body_hash,
        };
        let sender = PartyId::User(self.user);
        let digest = Unverified::<Upload>::digest_of(roster.task().id(), sender, round, &upload);
        roster.identity(sender)?.verify(&digest, &self.signature)
    }

    /// Returns the participant as a leaf of the tree.
    pub(crate) fn leaf(&self) -> Digest {
        let user = self.user.get().to_be_bytes();
        hash(domains::PARTICIPANT, &[&user, self.body_hash.as_bytes(), &self.salt])
    }
}

impl Encode for Participant {
    fn encode(&self, out: &mut Writer) {
        out.put(&self.user);
        out.put(&self.count);
        out.put(&self.salt);
        out.put(&self.body_hash);
        out.put(&self.signature);
    }
}

impl Decode for Participant {
    fn decode(input: &mut Reader<'_>) -> Result<Self, Error> {
        let (user, count, salt) = (input.get()?, input.get()?, input.get()?);
        Ok(Self { user, count, salt, body_hash: input.get()?, signature: input.get()? })
    }
}

impl Encode for Vec<Participant> {
    fn encode(&self, out: &mut Writer) {
        out.u32(self.len() as u32);
        self.iter().for_each(|participant| out.put(participant));
    }
}

/// Reads a set of participants. [`check_set`] checks their order and whether they are in the roster.
pub(super) fn read_participants(input: &mut Reader<'_>, roster: &Roster) -> Result<Vec<Participant>, Error> {
    let count = input.u32()? as usize;
    if count > roster.users().len() || count > roster.task().max_users() {
        return Err(Error::Size { what: "the set of users" });
    }
    (0..count).map(|_| input.get()).collect()
}

/// Checks that participants are enough, ascending, and in the roster.
pub(crate) fn check_set(users: &[Participant], roster: &Roster) -> Result<(), Error> {
    let floor = roster.floor();
    if users.len() < floor {
        return Err(Error::SetSmall { users: users.len(), floor });
    }
    if !users.is_sorted_by(|a, b| a.user < b.user) {
        return Err(Error::SetOrder);
    }
    match users.iter().find(|participant| !roster.contains(participant.user)) {
        Some(participant) => Err(Error::SetUnknown(participant.user)),
        None => Ok(()),
    }
}

/// The longest path in a tree of 65,536 participants.
pub(super) const MOST_PATH: usize = 16;

/// The Merkle tree over the participants of a round, as in RFC 6962.
#[derive(Clone, Debug)]
pub struct ParticipantTree {
    users: Vec<UserId>,
    /// The leaves, then their parents, and so on up to the root. A node without a sibling is its own parent.
    levels: Vec<Vec<Digest>>,
}

impl ParticipantTree {
    /// Creates the tree over participants in ascending order.
    pub fn new(participants: &[Participant]) -> Self {
        let mut levels = vec![participants.iter().map(Participant::leaf).collect::<Vec<_>>()];
        while let Some(last) = levels.last().filter(|last| last.len() > 1) {
            let next = last
                .chunks(2)
                .map(|pair| pair.iter().copied().reduce(parent).unwrap_or(Digest::ZERO))
                .collect();
            levels.push(next);
        }
        Self { users: participants.iter().map(|participant| participant.user).collect(), levels }
    }

    /// Returns the root, or zeros if there are no participants.
    pub fn root(&self) -> Digest {
        self.levels.last().and_then(|top| top.first()).copied().unwrap_or(Digest::ZERO)
    }

    /// Returns the place of a user among the participants, and the path from its leaf to the root.
    pub fn path(&self, user: UserId) -> Option<(u32, Vec<Digest>)> {
        let index = self.users.binary_search(&user).ok()?;
        let siblings = self.levels.iter().enumerate();
        let path = siblings.filter_map(|(level, nodes)| nodes.get((index >> level) ^ 1).copied()).collect();
        Some((u32::try_from(index).ok()?, path))
    }
}

fn parent(left: Digest, right: Digest) -> Digest {
    hash(domains::PARTICIPANTS, &[left.as_bytes(), right.as_bytes()])
}

/// Returns the root of a tree with this many leaves, from one leaf and its path. `None` if the path has another length.
pub(crate) fn root_of(leaf: Digest, index: u32, path: &[Digest], leaves: u32) -> Option<Digest> {
    if index >= leaves {
        return None;
    }
    let (mut node, mut index, mut last, mut path) = (leaf, index, leaves - 1, path.iter());
    while last > 0 {
        // the last node of a level may have no sibling
        if index % 2 == 1 {
            node = parent(*path.next()?, node);
        } else if index < last {
            node = parent(node, *path.next()?);
        }
        (index, last) = (index / 2, last / 2);
    }
    path.next().is_none().then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn participants(count: u32) -> Vec<Participant> {
        let of = |n: u32| Participant {
            user: UserId::new(2 * n + 1).unwrap(),
            count: 1,
            salt: [n as u8; 16],
            body_hash: Digest::from_bytes([n as u8 ^ 0x55; 32]),
            signature: [0; 64],
        };
        (0..count).map(of).collect()
    }

    /// The definition of docs/protocol.md, section 6.
    fn root(leaves: &[Digest]) -> Digest {
        match leaves {
            [leaf] => *leaf,
            _ => {
                let k = leaves.len().next_power_of_two() / 2;
                parent(root(&leaves[..k]), root(&leaves[k..]))
            }
        }
    }

    #[test]
    fn root_is_that_of_the_definition_and_paths_lead_to_it_from_their_leaf_only() {
        for count in (1..=40).chain([255, 256, 257]) {
            let all = participants(count);
            let tree = ParticipantTree::new(&all);
            let leaves: Vec<Digest> = all.iter().map(Participant::leaf).collect();
            assert_eq!(tree.root(), root(&leaves), "{count}");
            for (at, one) in (0..).zip(&all) {
                let (index, path) = tree.path(one.user).unwrap();
                assert_eq!(index, at);
                assert!(path.len() <= MOST_PATH);
                assert_eq!(root_of(one.leaf(), index, &path, count), Some(tree.root()));
                assert_ne!(root_of(Digest::ZERO, index, &path, count), Some(tree.root()));
                if count > 1 {
                    assert_eq!(root_of(one.leaf(), index, &path[1..], count), None);
                    assert_ne!(root_of(one.leaf(), index ^ 1, &path, count), Some(tree.root()));
                }
                let longer = [&path[..], &[Digest::ZERO]].concat();
                assert_eq!(root_of(one.leaf(), index, &longer, count), None);
            }
            assert_eq!(tree.path(UserId::new(2).unwrap()), None);
            assert_eq!(root_of(leaves[0], count, &[], count), None);
        }
    }
}
