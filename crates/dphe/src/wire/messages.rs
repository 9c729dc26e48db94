//! The messages of a round, in the order in which they are sent (docs/protocol.md, section 7).

use super::bodies::{SumContext, max_result_bytes, max_sum_bytes, max_upload_bytes};
use super::codec::{Decode, DecodeWith, Encode, Reader, Writer};
use super::macros::{byte_enum, field, messages};
use super::participants::{MOST_PATH, PARTICIPANT_BYTES, Participant, read_participants};
use super::{Message, PartyId, Roster, Signed, Unverified};
use crate::names::named_enum;
use crate::party::log::LogPoint;
use crate::{Digest, Error, OpenedSum, Round};

messages! {
    /// The aggregator announces a round.
    1 "round-open" RoundOpen from Aggregator => {
        /// The model that the round starts from.
        model: Digest,
        /// The policy of the task.
        policy: Digest,
        /// The roster.
        roster: Digest,
        /// The public support of the round.
        support: Digest,
        /// How long updates are collected, in milliseconds.
        deadline: u64,
        /// Random bytes, so that two announcements of one round differ.
        nonce: [u8; 16],
    }
    /// The key generator permits a round. Each round has one ticket.
    2 "round-ticket" RoundTicket from KeyGenerator => {
        /// The hash of the round-open message.
        open: Digest,
        /// The model, as announced.
        model: Digest,
        /// The policy, as announced.
        policy: Digest,
        /// The roster, as announced.
        roster: Digest,
        /// The public support, as announced.
        support: Digest,
        /// The deadline, as announced.
        deadline: u64,
        /// The history of the task before this round.
        history: Digest,
        /// What became of the last round.
        last: LastOutcome,
        /// The key generator's log before this ticket.
        log: LogPoint,
    }
    /// A user sends its sealed update.
    3 "upload" Upload from User body |roster| max_upload_bytes(roster.task()) => {
        /// The hash of the ticket.
        ticket: Digest,
        /// The encryption key.
        key_id: [u8; 32],
        /// The number of ciphertexts in the body.
        count: u32,
        /// Random bytes, so that no two sealed updates have the same masks.
        salt: [u8; 16],
        /// The hash of the body.
        body_hash: Digest,
    }
    /// The aggregator has stored an update.
    4 "upload-ack" UploadAck from Aggregator => {
        /// The hash of the update's body.
        body_hash: Digest,
    }
    /// The aggregator fixes the participants and the sealed sum.
    5 "freeze" Freeze from Aggregator => {
        /// The hash of the ticket.
        ticket: Digest,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The hash of the sealed sum.
        sum_hash: Digest,
        /// The number of positions that at least one participant sent.
        occupied: u32 = read_occupied,
        /// The participants.
        users: Vec<Participant> = read_participants,
    }
    /// The key generator has stored a freeze.
    6 "freeze-ack" FreezeAck from KeyGenerator => {
        /// The hash of the freeze.
        freeze: Digest,
        /// The attempt of the freeze.
        attempt: u32,
        /// The key generator's log before this message.
        log: LogPoint,
    }
    /// The aggregator asks the key generator to open the frozen sum.
    9 "decrypt" Decrypt from Aggregator body |roster| max_sum_bytes(roster.task()) => {
        /// The hash of the freeze.
        freeze: Digest,
        /// The number of positions that at least one participant sent.
        occupied: u32 = read_occupied,
        /// The hash of the sealed sum.
        sum_hash: Digest,
    }
    /// The key generator answers a request.
    10 "result" RoundResult from KeyGenerator body |roster| max_result_bytes(roster.task()) => {
        /// The hash of the request.
        request: Digest,
        /// Whether the sum was opened.
        outcome: Outcome,
        /// The number of participants.
        users: u32,
        /// The root of the tree of participants.
        users_root: Digest,
        /// The hash of the opened sum.
        payload_hash: Digest,
        /// The key generator's log before this message.
        log: LogPoint,
    }
    /// The aggregator publishes the sum.
    11 "publish" Publish from Aggregator body |roster| max_result_bytes(roster.task()) => {
        /// The result that the key generator signed, without the sum.
        result: Unverified<RoundResult> = read_result,
        /// The digest of the new model, which follows from the sum.
        model: Digest,
        /// The hash of the sum.
        sum_hash: Digest,
    }
    /// The aggregator ends a round.
    12 "close" Close from Aggregator => {
        /// How the round ended.
        ending: Ending,
        /// The hash of the publish message, or zeros if there is none.
        publish: Digest,
    }
    /// The aggregator shows a user that its update is in a sum.
    15 "inclusion" Inclusion from Aggregator => {
        /// The root of the tree of participants.
        users_root: Digest,
        /// The place of the user among the participants, from 0.
        index: u32,
        /// The siblings on the way from the user's leaf to the root.
        path: Vec<Digest> = read_path,
    }
}

impl Kind {
    /// Returns the kind with this media type.
    pub fn from_media_type(media_type: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.media_type() == media_type)
    }

    /// Returns the length of the longest message in bytes.
    pub fn max_message_bytes(self, roster: &Roster) -> u64 {
        // a freeze names every participant
        1024 + PARTICIPANT_BYTES * roster.users().len() as u64 + self.max_body_bytes(roster).unwrap_or(0)
    }

    /// Returns the error for a body that is too long.
    pub(super) fn oversize(self) -> Error {
        if self == Self::RoundResult { Error::Proof } else { Error::Size { what: "the body" } }
    }
}

byte_enum! {
    /// The outcome of a request to open a sum.
    Outcome {
        /// The sum was opened and is in the body.
        Released = 1 "released",
        /// The sum could not be opened. There is no body.
        Failed = 2 "failed",
    } else "the outcome does not exist"
}

byte_enum! {
    /// How a round ended.
    Ending {
        /// With a published model.
        Published = 1 "published",
        /// With a sum that could not be opened.
        Failed = 2 "failed",
        /// Before a sum was requested.
        Aborted = 3 "aborted",
        /// With a sum that was opened and not used, because it was out of range or too large.
        Rejected = 4 "rejected",
    } else "the ending does not exist"
}

byte_enum! {
    /// What became of a round, as the key generator knows it.
    LastOutcome {
        /// There was no earlier round.
        None = 0 "none",
        /// A sum was opened.
        Released = 1 "released",
        /// Opening a sum failed.
        Failed = 2 "failed",
        /// No sum was requested.
        NotOpened = 3 "not-opened",
    } else "the outcome of the last round does not exist"
}

impl Ending {
    /// Returns the key generator's outcome of a round that ended in this way.
    pub fn outcome(self) -> LastOutcome {
        match self {
            Self::Published | Self::Rejected => LastOutcome::Released,
            Self::Failed => LastOutcome::Failed,
            Self::Aborted => LastOutcome::NotOpened,
        }
    }
}

fn read_occupied(input: &mut Reader<'_>, roster: &Roster) -> Result<u32, Error> {
    at_most(input.u32()?, roster.task().positions(), "the number of positions")
}

impl Encode for Vec<Digest> {
    fn encode(&self, out: &mut Writer) {
        out.u8(self.len() as u8);
        self.iter().for_each(|digest| out.put(digest));
    }
}

fn read_path(input: &mut Reader<'_>, _: &Roster) -> Result<Vec<Digest>, Error> {
    let count = usize::from(input.u8()?);
    if count > MOST_PATH {
        return Err(Error::Size { what: "the path of an inclusion" });
    }
    (0..count).map(|_| input.get()).collect()
}

fn at_most(found: u32, most: u32, what: &'static str) -> Result<u32, Error> {
    if found <= most { Ok(found) } else { Err(Error::Size { what }) }
}

/// Reads an embedded result. Its signature is verified by [`Publish::check_result`].
fn read_result(input: &mut Reader<'_>, roster: &Roster) -> Result<Unverified<RoundResult>, Error> {
    Unverified::decode_with(input, roster).map_err(|error| match error {
        Error::Encoding { .. } => error,
        _ => Error::Proof,
    })
}

impl Signed<RoundResult> {
    /// Reads the opened sum. A result that says that opening failed has none.
    ///
    /// # Errors
    /// [`Error::Proof`] if the body is not the one that the key generator signed, or not a sum of the round.
    pub(crate) fn sum_in(&self, params: &SumContext<'_>) -> Result<Option<OpenedSum>, Error> {
        let message = self.message();
        if message.payload_hash != Digest::of_payload(self.body()) {
            return Err(Error::Proof);
        }
        match message.outcome {
            Outcome::Released => {
                OpenedSum::from_bytes(self.body(), params).map(Some).map_err(|_| Error::Proof)
            }
            Outcome::Failed if self.body().is_empty() => Ok(None),
            Outcome::Failed => Err(Error::Proof),
        }
    }
}

impl Publish {
    /// Verifies that the key generator signed the embedded result and opened the sum of this round.
    ///
    /// # Errors
    /// [`Error::Proof`] if not.
    pub fn check_result(&self, roster: &Roster, round: Round) -> Result<Signed<RoundResult>, Error> {
        let result = self.result.clone().verify(roster, &[]).map_err(|_| Error::Proof)?;
        let released = result.message().outcome == Outcome::Released;
        if released && result.round() == round { Ok(result) } else { Err(Error::Proof) }
    }
}
