//! A round that has ended, as users are told of it.

use std::sync::Arc;

use dphe_paillier::EncryptionKey;

use super::super::history;
use crate::scheme::{RoundParams, UncheckedSum};
use crate::wire::{
    Close, DecodeWith as _, Freeze, Inclusion, Participant, ParticipantTree, Publish, Reader, Rosters,
    RoundTicket, Signed, SumContext, Writer,
};
use crate::{Digest, Error, IdentityKey, PartyId, Receipts, Roster, Round, User, UserId, WeightSum};

/// The sum of a publish message, with what is needed to read it.
#[derive(Clone, Debug)]
pub struct PublishedSum<'a> {
    params: Arc<RoundParams>,
    users: usize,
    /// Whether the key generator signed this very sum.
    signed: bool,
    body: &'a [u8],
}

impl<'a> PublishedSum<'a> {
    /// Takes the sum of a round from the round's messages.
    ///
    /// # Errors
    /// [`Error::Proof`] if the key generator did not sign the result, [`Error::Encoding`] if the body is not the one
    /// that the message names.
    pub fn new(
        roster: &Roster,
        ticket: &Signed<RoundTicket>,
        publish: &'a Signed<Publish>,
    ) -> Result<Self, Error> {
        let message = publish.message();
        let result = message.check_result(roster, publish.round())?;
        if Digest::of_payload(publish.body()) != message.sum_hash {
            return Err(Error::Encoding { reason: "the body is not the one that the header names" });
        }
        let params = RoundParams::new(roster.task(), publish.round()).with_ticket(ticket.hash());
        let signed = result.message().payload_hash == message.sum_hash;
        let users = result.message().users as usize;
        Ok(Self { params: Arc::new(params), users, signed, body: publish.body() })
    }

    /// Reads the sum without checking it, for audits and for an aggregator that computes its models again.
    ///
    /// # Errors
    /// [`Error::Encoding`], [`Error::Range`] or [`Error::Key`] if it is not a sum of the round under this key.
    pub fn unchecked(&self, key: &EncryptionKey) -> Result<WeightSum, Error> {
        let task = self.params.task();
        match task.receipts() {
            Receipts::None | Receipts::Checked => WeightSum::from_bytes(self.body, &self.context(key)),
            Receipts::Masked => {
                UncheckedSum::from_bytes(self.body, &self.context(key))?.decode(&task.layout(key)?)
            }
        }
    }

    /// Reads the sum after the check that every user makes.
    ///
    /// # Errors
    /// [`Error::Proof`] or [`Error::Check`] if it is not the sum of the listed users, [`Error::Stale`] if this user has
    /// forgotten the seeds of the round, and the errors of [`PublishedSum::unchecked`].
    pub fn checked(&self, user: &User) -> Result<WeightSum, Error> {
        let key = user.keys().encryption_key();
        match self.params.task().receipts() {
            Receipts::Masked => UncheckedSum::from_bytes(self.body, &self.context(key))?.check(user),
            // the key generator signed this very sum
            Receipts::None | Receipts::Checked if self.signed => self.unchecked(key),
            Receipts::None | Receipts::Checked => Err(Error::Proof),
        }
    }

    fn context<'b>(&'b self, key: &'b EncryptionKey) -> SumContext<'b> {
        SumContext { params: &self.params, users: self.users, key }
    }
}

/// A round that has ended: what a user needs to check it and to compute the next model.
#[derive(Clone, Debug)]
pub struct EndedRound {
    ticket: Signed<RoundTicket>,
    close: Signed<Close>,
    publish: Option<Signed<Publish>>,
    /// Empty unless the round was published.
    tree: ParticipantTree,
    users: Vec<Participant>,
}

impl EndedRound {
    pub(super) fn new(
        ticket: Signed<RoundTicket>,
        close: Signed<Close>,
        publish: Option<Signed<Publish>>,
        users: Vec<Participant>,
    ) -> Self {
        Self { ticket, close, publish, tree: ParticipantTree::new(&users), users }
    }

    /// Puts the round together from stored messages. The freeze and the publish message exist if it was published.
    ///
    /// # Errors
    /// The errors of [`Signed::decode`].
    pub fn from_messages(
        roster: &Roster,
        ticket: &[u8],
        close: &[u8],
        publish: Option<(&[u8], &[u8])>,
    ) -> Result<Self, Error> {
        let (ticket, close) = (Signed::decode(ticket, roster)?, Signed::decode(close, roster)?);
        let Some((freeze, publish)) = publish else { return Ok(Self::new(ticket, close, None, Vec::new())) };
        let freeze: Signed<Freeze> = Signed::decode(freeze, roster)?;
        Ok(Self::new(ticket, close, Some(Signed::decode(publish, roster)?), freeze.message().users.clone()))
    }

    /// Returns the round.
    pub fn round(&self) -> Round {
        self.close.round()
    }

    /// Returns the close message.
    pub fn close(&self) -> &Signed<Close> {
        &self.close
    }

    /// Returns the publish message, if the round was published.
    pub fn publish(&self) -> Option<&Signed<Publish>> {
        self.publish.as_ref()
    }

    /// Returns the ticket.
    pub fn ticket(&self) -> &Signed<RoundTicket> {
        &self.ticket
    }

    /// Returns the history of the task after this round, as it follows from the one in the ticket.
    pub fn history(&self, roster: &Roster) -> Digest {
        let published = self.publish.as_ref().map(|publish| (publish.hash(), self.tree.root()));
        let ending = self.close.message().ending;
        history::next(self.ticket.message().history, roster, &self.ticket, ending, published)
    }

    /// Reads the published sum without checking it, for an aggregator that computes its models again. Users check sums
    /// with their own keys.
    ///
    /// # Errors
    /// The errors of [`PublishedSum::new`] and [`PublishedSum::unchecked`].
    pub fn sum_unchecked(&self, roster: &Roster, key: &EncryptionKey) -> Result<Option<WeightSum>, Error> {
        let Some(publish) = &self.publish else { return Ok(None) };
        PublishedSum::new(roster, &self.ticket, publish)?.unchecked(key).map(Some)
    }

    /// Returns the participants, if the round was published.
    pub fn participants(&self) -> &[Participant] {
        &self.users
    }

    /// Returns the round as bytes, for replicas that share a database.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        self.write(&mut out);
        out.into_bytes()
    }

    /// Reads what [`EndedRound::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`Error::Encoding`] or [`Error::Storage`].
    pub fn from_bytes(bytes: &[u8], rosters: &Rosters) -> Result<Self, Error> {
        let mut input = Reader::new(bytes);
        let ended = Self::read(&mut input, rosters)?;
        input.finish()?;
        Ok(ended)
    }

    /// Returns the messages for all users, in the order in which a user needs them.
    pub fn messages(&self) -> Vec<Vec<u8>> {
        let publish = self.publish.iter().map(Signed::to_bytes);
        [self.ticket.to_bytes()].into_iter().chain(publish).chain([self.close.to_bytes()]).collect()
    }

    /// Returns the message that shows a user that it is among the participants, if it is.
    pub fn inclusion(&self, user: UserId, identity: &IdentityKey, roster: &Roster) -> Option<Vec<u8>> {
        let (index, path) = self.tree.path(user)?;
        let inclusion = Inclusion { users_root: self.tree.root(), index, path };
        let (task, round) = (roster.task().id(), self.round());
        let signed = Signed::sign(identity, task, PartyId::Aggregator, round, inclusion, Vec::new());
        Some(signed.to_bytes())
    }

    pub(super) fn write(&self, out: &mut Writer) {
        for message in self.messages() {
            out.u32(message.len() as u32);
            out.bytes(&message);
        }
        out.put(&self.users);
    }

    pub(super) fn read(input: &mut Reader<'_>, rosters: &Rosters) -> Result<Self, Error> {
        let mut next = || {
            let length = input.u32()? as usize;
            input.take(length)
        };
        let first = next()?;
        let roster = rosters.at(crate::wire::Header::peek(first)?.round.unwrap_or(Round::FIRST));
        let ticket = super::super::context::stored(first, roster)?;
        let second = next()?;
        let is_publish = crate::wire::Header::peek(second)?.kind == crate::wire::Kind::Publish;
        let (publish, close) = if is_publish {
            (Some(super::super::context::stored(second, roster)?), next()?)
        } else {
            (None, second)
        };
        let close = super::super::context::stored(close, roster)?;
        let count = input.u32()?;
        let users = (0..count).map(|_| input.get()).collect::<Result<_, _>>()?;
        Ok(Self::new(ticket, close, publish, users))
    }
}
