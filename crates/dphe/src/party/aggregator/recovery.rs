//! What the aggregator keeps between rounds, and how it recovers a round from its log.

use std::collections::BTreeMap;

use dphe_paillier::EncryptionKey;

use super::{
    AggregatorParty, COLLECTED, DECRYPT, END, EndedRound, FREEZE, FrozenRound, OPEN, RESULT, State, TICKET,
    UPLOAD,
};
use crate::party::context::{OUT_OF_SEQUENCE, Record, Recover, read_point, stored_seeds, write_point};
use crate::party::log::LogPoint;
use crate::party::{Action, Time};
use crate::scheme::permutation::UserAggregatorSeed;
use crate::wire::{Freeze, FreezeAck, RoundResult, RoundTicket, Signed, Upload};
use crate::wire::{Reader, Rosters, Writer};
use crate::{AggregatorKeys, Blinds, Digest, Error, PartyId, Round, UserId};

impl AggregatorParty {
    pub(super) fn write_checkpoint(&self) -> Writer {
        let mut out = Writer::new();
        out.u64(self.round.get());
        write_point(&mut out, self.seen);
        let seeds = self.aggregator.seeds();
        out.u32(seeds.len() as u32);
        for (user, seed) in seeds {
            let (round, key) = seed.to_parts();
            out.u32(user.get());
            out.u64(round.get());
            out.bytes(key);
        }
        if let Some(ended) = &self.last {
            ended.write(&mut out);
        }
        out
    }
}

/// Reads the seeds in a checkpoint.
fn read_seeds(input: &mut Reader<'_>) -> Result<BTreeMap<UserId, UserAggregatorSeed>, Error> {
    let count = input.u32()?;
    let mut seeds = BTreeMap::new();
    for _ in 0..count {
        seeds.insert(input.get()?, UserAggregatorSeed::from_parts(input.get()?, input.get()?));
    }
    Ok(seeds)
}

impl AggregatorKeys {
    /// Returns the keys of an aggregator whose seeds are in its log.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log belongs to another party or task, is damaged, or does not begin with a checkpoint.
    pub fn from_log(log: &[u8], encryption: EncryptionKey, rosters: &Rosters) -> Result<Self, Error> {
        stored_seeds(log, PartyId::Aggregator, rosters, |input| {
            let _round: Round = input.get()?;
            read_point(input)?;
            Ok(Self { task: rosters.first().task().clone(), encryption, ua: read_seeds(input)? })
        })
    }
}

impl Recover for AggregatorParty {
    fn read_checkpoint(&mut self, input: &mut Reader<'_>) -> Result<(), Error> {
        self.round = input.get()?;
        self.seen = read_point(input)?;
        self.aggregator.resume(read_seeds(input)?);
        if !input.rest().is_empty() {
            self.last = Some(EndedRound::read(input, &self.session.rosters)?);
        }
        Ok(())
    }

    fn replay(&mut self, tag: u8, record: &Record<'_>, now: Time) -> Result<(), Error> {
        let roster = &self.session.roster;
        match (tag, core::mem::replace(&mut self.state, State::Idle)) {
            (OPEN, State::Idle) => self.state = State::Announced(record.message(0, roster)?),
            (TICKET, State::Announced(_)) => {
                let ticket: Signed<RoundTicket> = record.message(0, roster)?;
                LogPoint::follow(&mut self.seen, ticket.message().log)?;
                self.collect(ticket, now);
            }
            (UPLOAD, State::Collecting(mut collection)) => {
                let upload: Signed<Upload> = record.message(0, roster)?;
                let PartyId::User(user) = upload.from() else { return Err(Error::Signature) };
                collection.add_upload(&upload, user, roster, &self.agreement, self.session.threads)?;
                self.state = State::Collecting(collection);
            }
            (FREEZE, State::Collecting(collection)) => {
                let freeze: Signed<Freeze> = record.message(0, roster)?;
                self.state = State::Collecting(collection);
                let (round, again, body) = self
                    .take_sum()
                    .filter(|(_, again, _)| again.hash() == freeze.hash())
                    .ok_or(Error::Storage { reason: "the stored uploads do not add up to the frozen sum" })?;
                self.state = State::Frozen(round, again, body);
            }
            (COLLECTED, State::Collecting(collection)) => {
                let freeze: Signed<Freeze> = record.message(0, roster)?;
                let body = record.bytes(1)?;
                if freeze.message().ticket != collection.ticket.hash()
                    || freeze.message().sum_hash != Digest::of_sum(body)
                {
                    return Err(Error::Storage { reason: "the stored sum is not the frozen one" });
                }
                let uploads = freeze.message().users.iter().map(|p| (p.user, *p)).collect();
                let blinds = Blinds::from_secret_bytes(record.bytes(2)?)?;
                let round = FrozenRound { ticket: collection.ticket, overlap: None, uploads, blinds };
                self.state = State::Frozen(round, freeze, body.to_vec());
            }
            (DECRYPT, State::Frozen(round, freeze, _)) => {
                let ack: Signed<FreezeAck> = record.message(1, roster)?;
                LogPoint::follow(&mut self.seen, ack.message().log)?;
                self.state = State::Requested(round, freeze, record.message(0, roster)?);
            }
            (RESULT, State::Requested(round, freeze, _)) => {
                let result: Signed<RoundResult> = record.message(0, roster)?;
                LogPoint::follow(&mut self.seen, result.message().log)?;
                self.state = State::Received(round, freeze, result, None);
            }
            (END, State::Collecting(_) | State::Frozen(..) | State::Received(..)) => {
                self.last =
                    Some(EndedRound::read(&mut Reader::new(record.bytes(0)?), &self.session.rosters)?);
                self.state = State::Ended;
            }
            _ => return Err(OUT_OF_SEQUENCE),
        }
        Ok(())
    }

    fn resume(&mut self, now: Time, actions: &mut Vec<Action>) -> Result<(), Error> {
        self.read_changes()?;
        // a round that ended may still have to be finished under the old roster
        if matches!(self.state, State::Idle | State::Announced(_)) && self.follow_rosters() {
            self.state = State::Idle;
            let checkpoint = self.write_checkpoint();
            actions.push(self.session.checkpoint(checkpoint));
        }
        match &self.state {
            State::Received(round, _, result, _) => {
                let (ticket, result) = (round.ticket.clone(), result.clone());
                let opened = self.read_result(&ticket, &result)?;
                self.hand_on(opened, actions);
            }
            State::Ended => self.finish(actions),
            _ => self.send_again(now, actions),
        }
        Ok(())
    }
}
