//! The participants of a round.

use super::Roster;
use super::codec::{Encode, Reader, Writer};
use crate::{Digest, Error, UserId};

/// A participant of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participant {
    /// The user.
    pub user: UserId,
    /// The hash of the body that the user sent.
    pub body_hash: Digest,
}

impl Encode for Vec<Participant> {
    fn encode(&self, out: &mut Writer) {
        out.u32(self.len() as u32);
        for Participant { user, body_hash } in self {
            out.put(user);
            out.put(body_hash);
        }
    }
}

/// Reads a set of participants. [`check_set`] checks their order and whether they are in the roster.
pub(super) fn read_participants(input: &mut Reader<'_>, roster: &Roster) -> Result<Vec<Participant>, Error> {
    let count = input.u32()? as usize;
    if count > roster.users().len() || count > roster.task().max_users() {
        return Err(Error::Size { what: "the set of users" });
    }
    (0..count).map(|_| Ok(Participant { user: input.get()?, body_hash: input.get()? })).collect()
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
