//! Takes uploads on behalf of the aggregator, beside others who do the same: checks and folds them, and signs what is
//! acknowledged. It keeps nothing: whoever runs it does, and hands the sums to the one [`AggregatorParty`].
//!
//! [`AggregatorParty`]: super::AggregatorParty

use std::sync::Arc;

use dphe_paillier::Threads;

use super::sealed_update;
use crate::aggregator::{Aggregator, Collecting};
use crate::hash::Digest;
use crate::message::{Party, RoundTicket, Signed, Upload, UploadAck};
use crate::{AggregatorKeys, Error, IdentityKey, Roster, Round, UserId};

/// Takes uploads of a task.
#[derive(Debug)]
pub struct Intake {
    office: Arc<Office>,
    aggregator: Aggregator,
}

#[derive(Debug)]
struct Office {
    identity: IdentityKey,
    roster: Roster,
    threads: Threads,
}

/// Takes uploads of a round.
#[derive(Debug)]
pub struct IntakeRound {
    office: Arc<Office>,
    ticket: Signed<RoundTicket>,
    aggregator: Aggregator,
}

/// An upload that can be folded.
#[derive(Debug)]
pub struct Checked {
    /// Whose.
    pub user: UserId,
    /// The hash of its body.
    pub body_hash: Digest,
    /// Its ciphertexts, as sums of one.
    pub collecting: Collecting,
}

impl Intake {
    /// With the aggregator's keys and identity.
    ///
    /// # Errors
    /// [`Error::Signature`], [`Error::Key`] or [`Error::Roster`] if they are not the roster's.
    pub fn new(
        keys: AggregatorKeys,
        identity: IdentityKey,
        roster: Roster,
        threads: Threads,
    ) -> Result<Self, Error> {
        roster.check_task(&keys.task, &keys.encryption)?;
        if !keys.ua.keys().copied().eq(roster.users()) {
            return Err(Error::Roster);
        }
        if roster.identity(Party::Aggregator)? != identity.identity() {
            return Err(Error::Signature);
        }
        let office = Arc::new(Office { identity, roster, threads });
        Ok(Self { office, aggregator: Aggregator::new(keys)? })
    }

    /// Begins with the round of a ticket; permutations of earlier rounds are not at hand any more in it.
    ///
    /// # Errors
    /// If it is no ticket of the key generator's.
    pub fn begin(&self, ticket: &[u8]) -> Result<IntakeRound, Error> {
        let ticket: Signed<RoundTicket> = Signed::decode(ticket, &self.office.roster)?;
        let mut aggregator = self.aggregator.clone();
        aggregator.advance(ticket.round());
        Ok(IntakeRound { office: self.office.clone(), ticket, aggregator })
    }
}

impl IntakeRound {
    /// Goes on with a later round.
    ///
    /// # Errors
    /// If it is no ticket of the key generator's, or none of a later round.
    pub fn follow(&self, ticket: &[u8]) -> Result<Self, Error> {
        let ticket: Signed<RoundTicket> = Signed::decode(ticket, &self.office.roster)?;
        let (round, current) = (ticket.round(), self.round());
        if round < current {
            return Err(Error::Stale { round, current });
        }
        let mut aggregator = self.aggregator.clone();
        aggregator.advance(round);
        Ok(Self { office: self.office.clone(), ticket, aggregator })
    }

    /// The ticket.
    pub fn ticket(&self) -> &Signed<RoundTicket> {
        &self.ticket
    }

    /// The round.
    pub fn round(&self) -> Round {
        self.ticket.round()
    }

    /// Sums of nothing yet.
    pub fn empty(&self) -> Collecting {
        self.aggregator.begin(self.round())
    }

    /// Adds what was collected to a partial sum; an empty one is the sum of nothing.
    ///
    /// # Errors
    /// [`Error::Storage`] if it is no partial sum of this round.
    pub fn add_to(&self, partial: &[u8], collecting: Collecting) -> Result<Vec<u8>, Error> {
        let Office { threads, .. } = *self.office;
        if partial.is_empty() {
            return Ok(collecting.to_partial(threads));
        }
        let mut sums = self.empty();
        sums.add_partial(partial, threads)?;
        sums.merge(collecting, threads)?;
        Ok(sums.to_partial(threads))
    }

    /// Checks an upload, all of it.
    ///
    /// # Errors
    /// What section 8 of docs/protocol.md lists for uploads, but for what depends on other uploads.
    pub fn check(&self, message: &[u8]) -> Result<Checked, Error> {
        let Office { roster, threads, .. } = &*self.office;
        let upload: Signed<Upload> = Signed::decode(message, roster)?;
        let Party::User(user) = upload.from() else { return Err(Error::Signature) };
        upload.round().check(self.round())?;
        let update = sealed_update(&upload, user, self.ticket.hash(), roster)?;
        let mut collecting = self.empty();
        collecting.accept(update, *threads)?;
        Ok(Checked { user, body_hash: upload.message().body_hash, collecting })
    }

    /// The acknowledgement of an upload that is kept.
    pub fn acknowledge(&self, body_hash: Digest) -> Vec<u8> {
        let Office { identity, roster, .. } = &*self.office;
        let ack = UploadAck { body_hash };
        let task = roster.task().id();
        Signed::sign(identity, task, Party::Aggregator, self.round(), ack, Vec::new()).to_bytes()
    }
}
