//! The log of a party: records chained by hashes, stored before messages are sent (docs/protocol.md, section 9). This
//! module only produces and reads bytes. The caller makes them durable.

use core::fmt;

use zeroize::Zeroizing;

use crate::Error;
use crate::hash::{Digest, hash};
use crate::wire::domains;
use crate::wire::{Reader, Rosters, Writer};
use crate::{PartyId, Roster};

/// A point in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPoint {
    /// The number of records since the beginning of the task.
    pub seq: u64,
    /// The hash that chains them.
    pub head: Digest,
}

impl LogPoint {
    /// Moves to a later point of another party's log.
    ///
    /// # Errors
    /// [`Error::Rollback`] if the point is earlier, or differs from the known point with the same number.
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

/// How logs begin, and how those of version 1 of the protocol began.
const MAGIC: &[u8; 8] = b"DPHELOG2";
const FORMER_MAGIC: &[u8; 8] = b"DPHELOG1";

/// The first byte of a checkpoint. Other records start with another byte.
const CHECKPOINT: u8 = 0;

/// A log that is being written.
#[derive(Clone, Debug)]
pub struct Log {
    prefix: Vec<u8>,
    point: LogPoint,
}

/// The content of a log. It may hold seeds and sums, so `Debug` prints only its size.
pub struct Recovered<'a> {
    /// The log, ready for more records.
    pub log: Log,
    /// The checkpoint at its beginning, if there is one.
    pub checkpoint: Option<&'a [u8]>,
    /// The records.
    pub records: Vec<&'a [u8]>,
    /// The number of valid bytes. The rest is a torn write, and must be cut off before the log is continued.
    pub valid: usize,
}

impl fmt::Debug for Recovered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checkpoint = if self.checkpoint.is_some() { "a checkpoint and " } else { "" };
        write!(f, "Recovered({checkpoint}{} records, {} bytes)", self.records.len(), self.valid)
    }
}

impl Log {
    /// Creates the empty log of a party.
    pub fn new(party: PartyId, roster: &Roster) -> Self {
        let prefix = prefix_of(party, roster);
        let head = hash(domains::LOG, &[&prefix]);
        Self { prefix, point: LogPoint { seq: 0, head } }
    }

    /// Names another roster in the next checkpoint. The records before stay chained to those after it.
    pub(crate) fn change_roster(&mut self, party: PartyId, roster: &Roster) {
        self.prefix = prefix_of(party, roster);
    }

    /// Returns the bytes of an empty log.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Returns the current end of the log.
    pub fn point(&self) -> LogPoint {
        self.point
    }

    /// Appends a record, and returns the bytes to append to the file.
    pub fn append(&mut self, payload: &[u8]) -> Vec<u8> {
        self.point = next(self.point, payload);
        let mut out = Writer::new();
        write_frame(&mut out, payload, &self.point.head);
        out.into_bytes()
    }

    /// Replaces all records by a checkpoint, and returns the bytes of the new file.
    pub fn checkpoint(&mut self, state: &[u8]) -> Zeroizing<Vec<u8>> {
        let mut out = Writer::new();
        out.u8(CHECKPOINT);
        out.u64(self.point.seq);
        out.put(&self.point.head);
        out.bytes(state);
        let payload = Zeroizing::new(out.into_bytes());
        self.point = next(self.point, &payload);
        let mut out = Writer::new();
        out.bytes(&self.prefix);
        write_frame(&mut out, &payload, &self.point.head);
        Zeroizing::new(out.into_bytes())
    }

    /// Returns the state in the checkpoint at the beginning of a log, without reading the records after it.
    ///
    /// # Errors
    /// [`Error::Storage`] if the checkpoint is damaged, or if the log belongs to another party or task.
    pub(super) fn first_checkpoint<'a>(
        party: PartyId,
        roster: &Roster,
        bytes: &'a [u8],
    ) -> Result<Option<&'a [u8]>, Error> {
        let mut end = bytes.len();
        if let Some(rest) = bytes.strip_prefix(Self::new(party, roster).prefix())
            && let Some((_, _, after)) = read_frame(rest)?
        {
            end -= after.len();
        }
        Ok(Self::recover(party, roster, &bytes[..end])?.checkpoint)
    }

    /// Returns the roster that a log names, or the first one if it names none of these.
    pub fn roster_of<'r>(party: PartyId, rosters: &'r Rosters, bytes: &[u8]) -> &'r Roster {
        let named = |roster: &&Roster| bytes.starts_with(&prefix_of(party, roster));
        rosters.iter().find(named).unwrap_or(rosters.first())
    }

    /// Reads the log of a party. A party that has never run has an empty file.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log is damaged or belongs to another party or task.
    pub fn recover<'a>(party: PartyId, roster: &Roster, bytes: &'a [u8]) -> Result<Recovered<'a>, Error> {
        let log = Self::new(party, roster);
        let mut recovered = Recovered { log, checkpoint: None, records: Vec::new(), valid: 0 };
        let prefix = recovered.log.prefix.clone();
        let Some(mut rest) = bytes.strip_prefix(&prefix[..]) else {
            // torn before the first record, which is the same as a file that was never written
            let torn = prefix.starts_with(bytes) || (blank(bytes) && bytes.len() <= prefix.len());
            // the prefix ends with the hash of the roster
            let others = prefix.len() - Digest::ZERO.as_bytes().len();
            return if torn {
                Ok(recovered)
            } else if bytes.starts_with(&prefix[..others]) {
                Err(Error::Storage { reason: "the log belongs to another roster of this task" })
            } else if bytes.starts_with(FORMER_MAGIC) {
                Err(Error::Storage { reason: "the log was written by version 1 of the protocol" })
            } else {
                Err(Error::Storage { reason: "the log belongs to another party or task" })
            };
        };
        recovered.valid = prefix.len();
        while let Some((payload, head, after)) = read_frame(rest)? {
            let point = recovered.log.point;
            let opening = recovered.valid == prefix.len() && payload.first() == Some(&CHECKPOINT);
            if opening && blank(&rest[8..]) {
                // not a checkpoint but a first record of which only the length was written
                break;
            }
            if opening {
                let mut input = Reader::new(&payload[1..]);
                let damaged = |_| Error::Storage { reason: "the checkpoint is damaged" };
                let carried =
                    LogPoint { seq: input.u64().map_err(damaged)?, head: input.get().map_err(damaged)? };
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
        // checkpoints are written atomically, so an incomplete one is damage and must not look like a new log
        let payload = rest.get(8..).unwrap_or_default();
        if recovered.valid == prefix.len() && payload.first() == Some(&CHECKPOINT) && !blank(payload) {
            return Err(Error::Storage { reason: "the checkpoint is truncated" });
        }
        Ok(recovered)
    }
}

fn prefix_of(party: PartyId, roster: &Roster) -> Vec<u8> {
    let mut out = Writer::new();
    out.bytes(MAGIC);
    out.put(&party);
    out.bytes(roster.task().id().as_bytes());
    out.put(&roster.hash());
    out.into_bytes()
}

fn next(point: LogPoint, payload: &[u8]) -> LogPoint {
    let head = hash(domains::LOG_RECORD, &[point.head.as_bytes(), payload]);
    LogPoint { seq: point.seq.wrapping_add(1), head }
}

/// Writes a record: its length, the complement of the length, the payload, and the new head.
fn write_frame(out: &mut Writer, payload: &[u8], head: &Digest) {
    // TaskParams guarantees that every message, and with it every record, is shorter than 4 GiB
    let length = payload.len() as u32;
    out.u32(length);
    out.u32(!length);
    out.bytes(payload);
    out.put(head);
}

/// Returns whether a torn write left these bytes in place of a head: the beginning of the right bytes, then zeros. If
/// the payload was torn as well, there are only zeros.
fn half_written(stored: &Digest, head: &Digest) -> bool {
    let (stored, head) = (stored.as_bytes(), head.as_bytes());
    let written = stored.iter().zip(head).take_while(|(a, b)| a == b).count();
    blank(&stored[written..])
}

fn blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// A record, its head and the bytes after it, or nothing at the end of the log or at a torn write.
type Frame<'a> = Option<(&'a [u8], Digest, &'a [u8])>;

fn read_frame(bytes: &[u8]) -> Result<Frame<'_>, Error> {
    let mut input = Reader::new(bytes);
    let (Ok(length), Ok(complement)) = (input.u32(), input.u32()) else { return Ok(None) };
    if length != !complement {
        // file systems may extend a file before its content is written
        return if blank(&bytes[8..]) {
            Ok(None)
        } else {
            Err(Error::Storage { reason: "the length of a record is damaged" })
        };
    }
    let (Ok(payload), Ok(head)) = (input.take(length as usize), input.get()) else { return Ok(None) };
    Ok(Some((payload, head, input.rest())))
}
