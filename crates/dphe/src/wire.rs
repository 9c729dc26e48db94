//! Bytes: one codec, the signed messages of a round (docs/protocol.md, section 7), rosters, and keys at rest.
//!
//! [`Header::peek`] reads the sender that a message names, without verifying it. [`Signed::decode`] verifies the
//! message. A message that was decoded but not verified is an [`Unverified`], whose fields cannot be read.

mod bodies;
mod codec;
pub(crate) mod domains;
mod header;
mod identity;
mod key_bytes;
mod macros;
mod messages;
mod partial_sums;
mod participants;
mod policy;
mod role_bytes;
mod roster;
pub(crate) mod roster_change;
mod signed;
mod upload_seal;

pub use bodies::{SumContext, SumParams, UploadParams, max_sum_bytes, max_upload_bytes, upload_body_bytes};
pub use codec::{Decode, DecodeWith, Encode, Reader, Writer, decode_list, encode_list};
pub use header::Header;
pub use identity::{Identity, IdentityKey};
pub use messages::{
    Close, Decrypt, Ending, Freeze, FreezeAck, Inclusion, Kind, LastOutcome, Outcome, Publish, RoundOpen,
    RoundResult, RoundTicket, Upload, UploadAck,
};
pub use participants::{Participant, ParticipantTree};
pub(crate) use participants::{check_set, root_of};
pub use role_bytes::{
    OpenedBytes, PublicSum, PublishedBytes, RoleKind, role_bytes_round, sealed_update_bytes,
};
pub use roster::{Roster, RosterEdits, RosterPlan};
pub(crate) use roster_change::NewSeeds;
pub use roster_change::{RosterChange, Rosters};
pub use signed::{Message, Signed, Unverified};
pub use upload_seal::{Agreement, AgreementKey};
pub(crate) use upload_seal::{SEAL_BYTES, UploadName};

use crate::UserId;

/// The media type of a list of messages.
pub const LIST_MEDIA_TYPE: &str = "application/vnd.dphe.v2.messages";
/// The media type of a model.
pub const MODEL_MEDIA_TYPE: &str = "application/vnd.dphe.v2.model";

/// A party of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartyId {
    /// The aggregator.
    Aggregator,
    /// The key generator.
    KeyGenerator,
    /// A user.
    User(UserId),
}
