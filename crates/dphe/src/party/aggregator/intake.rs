//! Checks uploads on behalf of the aggregator, in any number of replicas. An intake stores nothing. The program that
//! runs it stores partial sums, and hands them to the one [`AggregatorParty`](super::AggregatorParty).

use std::sync::Arc;

use dphe_paillier::Threads;

use super::{check_keys, sealed_update};
use crate::scheme::RoundParams;
use crate::wire::{AgreementKey, Participant, RoundTicket, Signed, Upload, UploadAck};
use crate::{Aggregator, AggregatorKeys, Collecting, Digest, Error, IdentityKey, PartyId, Roster, Round};

/// Checks the uploads of a task.
#[derive(Debug)]
pub struct Intake {
    context: Arc<IntakeContext>,
    aggregator: Aggregator,
}

#[derive(Debug)]
struct IntakeContext {
    identity: IdentityKey,
    roster: Roster,
    agreement: AgreementKey,
    threads: Threads,
}

/// Checks the uploads of one round.
#[derive(Debug)]
pub struct IntakeRound {
    context: Arc<IntakeContext>,
    ticket: Signed<RoundTicket>,
    aggregator: Aggregator,
    params: Arc<RoundParams>,
}

/// An upload that was checked and can be added.
#[derive(Debug)]
pub struct Checked {
    /// The user who sent it, and what shows that it did.
    pub participant: Participant,
    /// A sum of this update alone.
    pub collecting: Collecting,
}

impl Intake {
    /// Creates an intake with the aggregator's keys and identity.
    ///
    /// # Errors
    /// [`Error::Signature`], [`Error::Key`] or [`Error::Roster`] if they do not match the roster.
    pub fn new(
        keys: AggregatorKeys,
        identity: IdentityKey,
        roster: Roster,
        threads: Threads,
    ) -> Result<Self, Error> {
        check_keys(&keys, &roster)?;
        if roster.identity(PartyId::Aggregator)? != identity.identity() {
            return Err(Error::Signature);
        }
        let agreement = identity.agreement_key();
        if agreement.public() != *roster.agreement() {
            return Err(Error::Roster);
        }
        let context = Arc::new(IntakeContext { identity, roster, agreement, threads });
        Ok(Self { context, aggregator: Aggregator::new(keys)? })
    }

    /// Starts the round of a ticket. The returned value has forgotten the permutations of earlier rounds.
    ///
    /// # Errors
    /// The errors of [`Signed::decode`] if the ticket is invalid.
    pub fn begin(&self, ticket: &[u8]) -> Result<IntakeRound, Error> {
        let ticket = Signed::decode(ticket, &self.context.roster)?;
        Ok(IntakeRound::new(self.context.clone(), &self.aggregator, ticket))
    }
}

impl IntakeRound {
    fn new(context: Arc<IntakeContext>, aggregator: &Aggregator, ticket: Signed<RoundTicket>) -> Self {
        let mut aggregator = aggregator.clone();
        aggregator.advance(ticket.round());
        let params = RoundParams::new(aggregator.task(), ticket.round()).with_ticket(ticket.hash());
        let params = Arc::new(params);
        Self { context, ticket, aggregator, params }
    }

    /// Continues with the ticket of a later round.
    ///
    /// # Errors
    /// The errors of [`Signed::decode`] if the ticket is invalid, [`Error::Stale`] if it is of an earlier round.
    pub fn follow(&self, ticket: &[u8]) -> Result<Self, Error> {
        let ticket: Signed<RoundTicket> = Signed::decode(ticket, &self.context.roster)?;
        let (round, current) = (ticket.round(), self.round());
        if round < current {
            return Err(Error::Stale { round, current });
        }
        Ok(Self::new(self.context.clone(), &self.aggregator, ticket))
    }

    /// Returns the ticket.
    pub fn ticket(&self) -> &Signed<RoundTicket> {
        &self.ticket
    }

    /// Returns the round.
    pub fn round(&self) -> Round {
        self.ticket.round()
    }

    /// Returns empty sums.
    pub fn empty(&self) -> Collecting {
        self.aggregator.begin_in(self.params.clone())
    }

    /// Adds collected updates to a partial sum, and returns its new bytes. No bytes stand for an empty sum.
    ///
    /// # Errors
    /// [`Error::Storage`] if the bytes are not a partial sum of this round.
    pub fn add_to(&self, partial: &[u8], collecting: Collecting) -> Result<Vec<u8>, Error> {
        let threads = self.context.threads;
        if partial.is_empty() {
            return Ok(collecting.to_partial_sum(threads));
        }
        let mut sums = self.empty();
        sums.add_partial_sum(partial, threads)?;
        sums.merge(collecting, threads)?;
        Ok(sums.to_partial_sum(threads))
    }

    /// Checks an upload completely.
    ///
    /// # Errors
    /// The errors of docs/protocol.md, section 8, except those that depend on other uploads.
    pub fn check(&self, message: &[u8]) -> Result<Checked, Error> {
        let IntakeContext { roster, agreement, threads, .. } = &*self.context;
        let upload: Signed<Upload> = Signed::decode(message, roster)?;
        let PartyId::User(user) = upload.from() else { return Err(Error::Signature) };
        upload.round().check(self.round())?;
        let update = sealed_update(&upload, user, self.ticket.hash(), roster, agreement, &self.params)?;
        let mut collecting = self.empty();
        collecting.accept(update, *threads)?;
        Ok(Checked { participant: Participant::of(&upload, user), collecting })
    }

    /// Signs the acknowledgement of an upload that is stored.
    pub fn acknowledge(&self, body_hash: Digest) -> Vec<u8> {
        let IntakeContext { identity, roster, .. } = &*self.context;
        let (task, ack) = (roster.task().id(), UploadAck { body_hash });
        Signed::sign(identity, task, PartyId::Aggregator, self.round(), ack, Vec::new()).to_bytes()
    }
}
