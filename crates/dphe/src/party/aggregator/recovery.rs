//! What an aggregator keeps between rounds, and how it takes up a round from its log.

use super::{
    AggregatorParty, DECRYPT, END, Ended, FREEZE, GATHERED, InRound, OPEN, RESULT, State, TICKET, UPLOAD,
};
use crate::log::LogPoint;
use crate::message::codec::{Reader, Writer};
use crate::message::{Freeze, FreezeAck, RoundResult, RoundTicket, Signed, Upload, sum_hash};
use crate::party::{Time, damaged, read_point, read_record, read_round, stored, write_point};
use crate::permutation::UserAggregatorSeed;
use crate::{Error, Party};

impl AggregatorParty {
    pub(super) fn write_checkpoint(&self) -> Vec<u8> {
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
            let close = ended.close.to_bytes();
            out.u32(close.len() as u32);
            out.bytes(&close);
            ended.publish.iter().for_each(|publish| out.bytes(&publish.to_bytes()));
        }
        out.into_bytes()
    }

    pub(super) fn read_checkpoint(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut input = Reader::new(bytes);
        self.round = read_round(&mut input).map_err(damaged)?;
        self.seen = read_point(&mut input).map_err(damaged)?;
        let count = input.u32().map_err(damaged)?;
        for _ in 0..count {
            let user = input.user().map_err(damaged)?;
            let round = read_round(&mut input).map_err(damaged)?;
            let key = input.array().map_err(damaged)?;
            self.aggregator.resume(user, UserAggregatorSeed::from_parts(round, key));
        }
        if !input.rest().is_empty() {
            let length = input.u32().map_err(damaged)? as usize;
            let close = input.take(length).map_err(damaged)?;
            let close = stored(&[close], 0, &self.desk.roster)?;
            let publish = match input.rest() {
                [] => None,
                publish => Some(stored(&[publish], 0, &self.desk.roster)?),
            };
            self.last = Some(Ended { publish, close });
        }
        Ok(())
    }

    pub(super) fn replay(&mut self, record: &[u8], now: Time) -> Result<(), Error> {
        let (tag, messages) = read_record(record)?;
        let roster = &self.desk.roster;
        match (tag, core::mem::replace(&mut self.state, State::Idle)) {
            (OPEN, State::Idle) => self.state = State::Opened(stored(&messages, 0, roster)?),
            (TICKET, State::Opened(_)) => {
                let ticket: Signed<RoundTicket> = stored(&messages, 0, roster)?;
                LogPoint::follow(&mut self.seen, ticket.message().log)?;
                self.gather(ticket, now);
            }
            (UPLOAD, State::Collecting(mut gathering)) => {
                let upload: Signed<Upload> = stored(&messages, 0, roster)?;
                let Party::User(user) = upload.from() else { return Err(Error::Signature) };
                gathering.fold(&upload, user, roster, self.threads)?;
                self.state = State::Collecting(gathering);
            }
            (FREEZE, State::Collecting(gathering)) => {
                let freeze: Signed<Freeze> = stored(&messages, 0, roster)?;
                self.state = State::Collecting(gathering);
                let (round, again, body) = self
                    .take_sum()
                    .filter(|(_, again, _)| again.hash() == freeze.hash())
                    .ok_or(Error::Storage { reason: "the stored uploads do not give the frozen sum" })?;
                self.state = State::Frozen(round, again, body);
            }
            (GATHERED, State::Collecting(gathering)) => {
                let freeze: Signed<Freeze> = stored(&messages, 0, roster)?;
                let body = messages.get(1).ok_or(Error::Storage { reason: "a record lacks a sum" })?;
                if freeze.message().ticket != gathering.ticket.hash()
                    || freeze.message().sum_hash != sum_hash(body)
                {
                    return Err(Error::Storage { reason: "the stored sum is not the frozen one" });
                }
                let uploads = freeze.message().users.iter().map(|p| (p.user, p.body_hash)).collect();
                let round = InRound { ticket: gathering.ticket, overlap: None, uploads };
                self.state = State::Frozen(round, freeze, body.to_vec());
            }
            (DECRYPT, State::Frozen(round, freeze, _)) => {
                let ack: Signed<FreezeAck> = stored(&messages, 1, roster)?;
                LogPoint::follow(&mut self.seen, ack.message().log)?;
                self.state = State::Requested(round, freeze, stored(&messages, 0, roster)?);
            }
            (RESULT, State::Requested(round, freeze, _)) => {
                let result: Signed<RoundResult> = stored(&messages, 0, roster)?;
                LogPoint::follow(&mut self.seen, result.message().log)?;
                self.state = State::Received(round, freeze, result);
            }
            (END, State::Opened(_) | State::Collecting(_) | State::Frozen(..) | State::Received(..)) => {
                let close = stored(&messages, 0, roster)?;
                let publish = if messages.len() > 1 { Some(stored(&messages, 1, roster)?) } else { None };
                self.last = Some(Ended { publish, close });
                self.state = State::Ended;
            }
            _ => return Err(Error::Storage { reason: "a record does not follow from the one before" }),
        }
        Ok(())
    }
}
