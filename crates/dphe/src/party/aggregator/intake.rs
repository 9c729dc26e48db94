//! Checks uploads on behalf of the aggregator, in any number of replicas. An intake stores nothing. The program that
//! runs it stores partial sums, and hands them to the one [`AggregatorParty`](super::AggregatorParty).

use std::sync::Arc;

use dphe_paillier::Threads;

use super::{agreement_key, check_keys, sealed_update};
use crate::party::IdentityKeys;
use crate::scheme::RoundParams;
use crate::wire::{AgreementKey, Header, Participant, Rosters, RoundTicket, Signed, Upload, UploadAck};
use crate::{Aggregator, AggregatorKeys, Collecting, Digest, Error, PartyId, Roster, Round};

/// Checks the uploads of a task.
#[derive(Debug)]
pub struct Intake {
    context: Arc<IntakeContext>,
}

#[derive(Debug)]
struct IntakeContext {
    identity: IdentityKeys,
    rosters: Rosters,
    /// The first roster and each later one, with the aggregator's keys under it.
    epochs: Vec<IntakeEpoch>,
    threads: Threads,
}

#[derive(Debug)]
struct IntakeEpoch {
    roster: Roster,
    aggregator: Aggregator,
    agreement: AgreementKey,
}

impl IntakeContext {
    /// Returns the keys that belong to a ticket, and the ticket.
    fn read(&self, ticket: &[u8]) -> Result<(usize, Signed<RoundTicket>), Error> {
        let round = Header::peek(ticket)?.round.unwrap_or(Round::FIRST);
        let roster = self.rosters.at(round);
        let ticket: Signed<RoundTicket> = Signed::decode(ticket, roster)?;
        // a replica that lacks the latest roster would accept uploads of users who have left
        if ticket.message().roster != roster.hash() {
            return Err(Error::Roster);
        }
        let at = self.epochs.iter().position(|epoch| epoch.roster.hash() == roster.hash());
        Ok((at.unwrap_or_default(), ticket))
    }
}

/// Checks the uploads of one round.
#[derive(Debug)]
pub struct IntakeRound {
    context: Arc<IntakeContext>,
    /// The place of the round's roster in the context.
    epoch: usize,
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
    /// Creates an intake with the aggregator's keys, from its kit or its log, and its identity.
    ///
    /// # Errors
    /// [`Error::Signature`], [`Error::Key`] or [`Error::Roster`] if they do not match the rosters.
    pub fn new(
        keys: AggregatorKeys,
        identity: impl Into<IdentityKeys>,
        rosters: impl Into<Rosters>,
        threads: Threads,
    ) -> Result<Self, Error> {
        let (identity, rosters) = (identity.into(), rosters.into());
        let first = rosters.first();
        check_keys(&keys, &rosters, rosters.latest())?;
        let agreement_in = |roster| agreement_key(identity.of(PartyId::Aggregator, roster)?, roster);
        let mut aggregator = Aggregator::new(keys)?;
        let (roster, agreement) = (first.clone(), agreement_in(first)?);
        let mut epochs = vec![IntakeEpoch { roster, aggregator: aggregator.clone(), agreement }];
        for change in rosters.changes() {
            let agreement = agreement_in(change.roster())?;
            aggregator.advance(change.roster().first_round());
            aggregator.renew(change.roster(), change.user_aggregator_seeds(&agreement)?);
            let roster = change.roster().clone();
            epochs.push(IntakeEpoch { roster, aggregator: aggregator.clone(), agreement });
        }
        Ok(Self { context: Arc::new(IntakeContext { identity, rosters, epochs, threads }) })
    }

    /// Starts the round of a ticket. The returned value has forgotten the permutations of earlier rounds.
    ///
    /// # Errors
    /// The errors of [`Signed::decode`] if the ticket is invalid.
    pub fn begin(&self, ticket: &[u8]) -> Result<IntakeRound, Error> {
        let (epoch, ticket) = self.context.read(ticket)?;
        let aggregator = &self.context.epochs[epoch].aggregator;
        Ok(IntakeRound::new(self.context.clone(), epoch, aggregator, ticket))
    }
}

impl IntakeRound {
    fn new(
        context: Arc<IntakeContext>,
        epoch: usize,
        aggregator: &Aggregator,
        ticket: Signed<RoundTicket>,
    ) -> Self {
        let mut aggregator = aggregator.clone();
        aggregator.advance(ticket.round());
        let params = RoundParams::new(aggregator.task(), ticket.round()).with_ticket(ticket.hash());
        let params = Arc::new(params);
        Self { context, epoch, ticket, aggregator, params }
    }

    /// Continues with the ticket of a later round.
    ///
    /// # Errors
    /// The errors of [`Signed::decode`] if the ticket is invalid, [`Error::Stale`] if it is of an earlier round.
    pub fn follow(&self, ticket: &[u8]) -> Result<Self, Error> {
        let (epoch, ticket) = self.context.read(ticket)?;
        let (round, current) = (ticket.round(), self.round());
        if round < current {
            return Err(Error::Stale { round, current });
        }
        let same = epoch == self.epoch;
        let aggregator = if same { &self.aggregator } else { &self.context.epochs[epoch].aggregator };
        Ok(Self::new(self.context.clone(), epoch, aggregator, ticket))
    }

    fn keys(&self) -> &IntakeEpoch {
        &self.context.epochs[self.epoch]
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
        let (IntakeEpoch { roster, agreement, .. }, threads) = (self.keys(), self.context.threads);
        let upload: Signed<Upload> = Signed::decode(message, roster)?;
        let PartyId::User(user) = upload.from() else { return Err(Error::Signature) };
        upload.round().check(self.round())?;
        let update = sealed_update(&upload, user, self.ticket.hash(), roster, agreement, &self.params)?;
        let mut collecting = self.empty();
        collecting.accept(update, threads)?;
        Ok(Checked { participant: Participant::of(&upload, user), collecting })
    }

    /// Signs the acknowledgement of an upload that is stored.
    pub fn acknowledge(&self, body_hash: Digest) -> Vec<u8> {
        let roster = &self.keys().roster;
        let identity = self.context.identity.known(PartyId::Aggregator, roster);
        let (task, ack) = (roster.task().id(), UploadAck { body_hash });
        Signed::sign(identity, task, PartyId::Aggregator, self.round(), ack, Vec::new()).to_bytes()
    }
}
