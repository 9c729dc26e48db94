//! The HTTP interface of the services (docs/api.md).
//!
//! | module | content |
//! | --- | --- |
//! | [`server`] | connections: TLS, limits, shutdown |
//! | `middleware` | request identifiers and the rate limiter |
//! | [`client`] | a client with retries |
//! | [`problem`] | refusals and their codes |
//! | [`remote_text`] | text of a peer, cleaned before it is shown |
//! | [`request_id`], [`openapi`], [`open_files`] | identifiers, descriptions, the limit of open files |

pub mod client;
mod middleware;
pub mod open_files;
pub mod openapi;
pub mod problem;
pub mod remote_text;
pub mod request_id;
pub mod server;

use dphe::Roster;
use dphe::wire::Kind;

/// The header with the number of stored bytes of an upload.
pub const UPLOAD_OFFSET: &str = "upload-offset";
/// The length of the longest upload chunk in bytes.
pub const MAX_CHUNK: usize = 1 << 20;

/// Returns the length of the longest answer that a user receives: a model, or messages with the end of a round
/// and the next ticket.
pub fn max_list_bytes(roster: &Roster) -> u64 {
    let list = Kind::Publish.max_message_bytes(roster) + 4 * Kind::Close.max_message_bytes(roster);
    list.max(roster.task().config().max_model_bytes.into())
}
