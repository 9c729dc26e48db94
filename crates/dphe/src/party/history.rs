//! The history of a task, which the key generator signs in every ticket and every user keeps for itself
//! (docs/protocol.md, section 6).

use crate::hash::hash;
use crate::wire::{Close, Encode as _, Ending, RoundTicket, Signed, Unverified, domains};
use crate::{Digest, PartyId, Roster, Round};

/// Returns the history before the first round.
pub fn first(roster: &Roster) -> Digest {
    hash(domains::HISTORY, &[roster.hash().as_bytes()])
}

/// Returns the history once another roster is in force.
pub fn with_roster(last: Digest, roster: Digest) -> Digest {
    hash(domains::HISTORY_ROSTER, &[last.as_bytes(), roster.as_bytes()])
}

/// Returns the history after one more round. `publish` is the hash of the publish message and the root of the
/// participants, if the round was published.
pub fn next(
    last: Digest,
    roster: &Roster,
    ticket: &Signed<RoundTicket>,
    ending: Ending,
    publish: Option<(Digest, Digest)>,
) -> Digest {
    let (publish, users_root) = publish.unwrap_or((Digest::ZERO, Digest::ZERO));
    let close = close_hash(roster, ticket.round(), ending, publish);
    let outcome = ending.outcome().to_bytes();
    let ticket = ticket.hash();
    hash(
        domains::HISTORY,
        &[last.as_bytes(), ticket.as_bytes(), &outcome, users_root.as_bytes(), close.as_bytes()],
    )
}

/// Returns the hash of the aggregator's close message, which follows from its fields.
fn close_hash(roster: &Roster, round: Round, ending: Ending, publish: Digest) -> Digest {
    let close = Close { ending, publish };
    Unverified::<Close>::digest_of(roster.task().id(), PartyId::Aggregator, round, &close)
}
