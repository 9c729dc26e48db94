//! What a party stores before it sends: records chained by hashes (docs/protocol.md, section 9). Bytes only; writing them, and
//! seeing to it that they are on the disk, is the caller's.

use core::fmt;

use zeroize::Zeroizing;

use crate::Error;
use crate::hash::{Digest, hash};
use crate::message::codec::{Reader, Writer};
use crate::{Party, Roster};

/// A place in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPoint {
    /// Records so far, since the beginning of the task.
    pub seq: u64,
    /// The head after them.
    pub head: Digest,
}

impl LogPoint {
    /// Moves on to a later point of somebody's log.
    ///
    /// # Errors
    /// [`Error::Rollback`] if it is an earlier one, or another one in the same place.
    pub(crate) fn follow(seen: &mut Option<Self>, next: Self) -> Result<(), Error> {
        Self::check(*seen, next)?;
        *seen = Some(next);
        Ok(())
    }

    pub(crate) fn check(seen: Option<Self>, next: Self) -> Result<(), Error> {
        match seen {
            Some(seen) if next.seq < seen.seq => Err(Error::Rollback),
            Some(seen) if next.seq == seen.seq && next.head != seen.head => Err(Error::Rollback),
            _ => Ok(()),
        }
    }
}

/// The first payload byte of a checkpoint; a record of a party begins with another one.
const CHECKPOINT: u8 = 0;

/// The writing end of a log.
#[derive(Clone, Debug)]
pub struct Log {
    prefix: Vec<u8>,
    point: LogPoint,
}

/// What was read of a log. It may hold seeds and sums: it is not printed.
pub struct Recovered<'a> {
    /// The log, to be gone on with.
    pub log: Log,
    /// The payload of the checkpoint it begins with, if there is one.
    pub checkpoint: Option<&'a [u8]>,
    /// The payloads of the records.
    pub records: Vec<&'a [u8]>,
    /// How many bytes are good. What comes after is a torn tail: cut the file there before writing on.
    pub valid: usize,
}

impl fmt::Debug for Recovered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checkpoint = if self.checkpoint.is_some() { "a checkpoint and " } else { "" };
        write!(f, "Recovered({checkpoint}{} records, {} bytes)", self.records.len(), self.valid)
    }
}

impl Log {
    /// An empty log of a party.
    pub fn new(party: Party, roster: &Roster) -> Self {
        let (role, user) = party.tag();
        let mut out = Writer::new();
        out.bytes(b"DPHELOG1");
        out.u8(role);
        out.u32(user);
        out.bytes(roster.task().id().as_bytes());
        out.digest(&roster.hash());
        let prefix = out.into_bytes();
        let head = hash("dphe/v1/log", &[&prefix]);
        Self { prefix, point: LogPoint { seq: 0, head } }
    }

    /// What an empty log file holds.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Where it stands.
    pub fn point(&self) -> LogPoint {
        self.point
    }

    /// The bytes that append a record.
    pub fn append(&mut self, payload: &[u8]) -> Vec<u8> {
        self.point = next(self.point, payload);
        let mut out = Writer::new();
        write_frame(&mut out, payload, &self.point.head);
        out.into_bytes()
    }

    /// The bytes of a whole log that begins with this checkpoint, to take the place of the old one.
    pub fn checkpoint(&mut self, state: &[u8]) -> Zeroizing<Vec<u8>> {
        let mut out = Writer::new();
        out.u8(CHECKPOINT);
        out.u64(self.point.seq);
        out.digest(&self.point.head);
        out.bytes(state);
        let payload = Zeroizing::new(out.into_bytes());
        self.point = next(self.point, &payload);
        let mut out = Writer::new();
        out.bytes(&self.prefix);
        write_frame(&mut out, &payload, &self.point.head);
        Zeroizing::new(out.into_bytes())
    }

    /// Reads a log of a party. A file that was never begun is empty.
    ///
    /// # Errors
    /// [`Error::Storage`] if it is damaged, or another party's or task's.
    pub fn recover<'a>(party: Party, roster: &Roster, bytes: &'a [u8]) -> Result<Recovered<'a>, Error> {
        let log = Self::new(party, roster);
        let mut recovered = Recovered { log, checkpoint: None, records: Vec::new(), valid: 0 };
        let prefix = recovered.log.prefix.clone();
        let Some(mut rest) = bytes.strip_prefix(&prefix[..]) else {
            // cut short before the first record: as if it had never been begun
            let torn = prefix.starts_with(bytes) || (blank(bytes) && bytes.len() <= prefix.len());
            return if torn {
                Ok(recovered)
            } else {
                Err(Error::Storage { reason: "it belongs to another party or task" })
            };
        };
        recovered.valid = prefix.len();
        while let Some((payload, head, after)) = read_frame(rest)? {
            let point = recovered.log.point;
            let opening = recovered.valid == prefix.len() && payload.first() == Some(&CHECKPOINT);
            if opening && blank(&rest[8..]) {
                // no checkpoint: a first record of which only the length was written
                break;
            }
            if opening {
                let mut input = Reader::new(&payload[1..]);
                let damaged = |_| Error::Storage { reason: "its checkpoint is damaged" };
                let carried =
                    LogPoint { seq: input.u64().map_err(damaged)?, head: input.digest().map_err(damaged)? };
                recovered.checkpoint = Some(input.rest());
                recovered.log.point = next(carried, payload);
            } else {
                recovered.records.push(payload);
                recovered.log.point = next(point, payload);
            }
            if recovered.log.point.head != head {
                if !opening && blank(after) && half_written(&head, &recovered.log.point.head) {
                    recovered.log.point = point;
                    recovered.records.pop();
                    break;
                }
                return Err(Error::Storage { reason: "a record is damaged or missing" });
            }
            recovered.valid += rest.len() - after.len();
            rest = after;
        }
        // a checkpoint is written all or nothing: half of one is damage, and must not look like a new log
        let payload = rest.get(8..).unwrap_or_default();
        if recovered.valid == prefix.len() && payload.first() == Some(&CHECKPOINT) && !blank(payload) {
            return Err(Error::Storage { reason: "its checkpoint is cut short" });
        }
        Ok(recovered)
    }
}

fn next(point: LogPoint, payload: &[u8]) -> LogPoint {
    let head = hash("dphe/v1/log-record", &[point.head.as_bytes(), payload]);
    LogPoint { seq: point.seq.wrapping_add(1), head }
}

/// Length, its complement, payload, head.
fn write_frame(out: &mut Writer, payload: &[u8], head: &Digest) {
    // TaskParams keeps every message, and with it every record, below 4 GiB
    let length = payload.len() as u32;
    out.u32(length);
    out.u32(!length);
    out.bytes(payload);
    out.digest(head);
}

/// Whether a write that got half-way left this in the place of a head: the beginning of what it should be, then blanks.
/// Where the payload was not finished either, there is nothing but blanks.
fn half_written(stored: &Digest, head: &Digest) -> bool {
    let (stored, head) = (stored.as_bytes(), head.as_bytes());
    let written = stored.iter().zip(head).take_while(|(a, b)| a == b).count();
    blank(&stored[written..])
}

fn blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// The next frame, and what comes after; nothing at the end or at a torn tail.
type Frame<'a> = Option<(&'a [u8], Digest, &'a [u8])>;

fn read_frame(bytes: &[u8]) -> Result<Frame<'_>, Error> {
    let mut input = Reader::new(bytes);
    let (Ok(length), Ok(complement)) = (input.u32(), input.u32()) else { return Ok(None) };
    if length != !complement {
        // file systems may have made room that was never written, or not to its end
        return if blank(&bytes[8..]) {
            Ok(None)
        } else {
            Err(Error::Storage { reason: "the length of a record is damaged" })
        };
    }
    let (Ok(payload), Ok(head)) = (input.take(length as usize), input.digest()) else { return Ok(None) };
    Ok(Some((payload, head, input.rest())))
}
