//! Uploads that wait for their answers, and the answers. The single aggregator and the replicas share this.

use bytes::Bytes;
use dphe::{Digest, Round, UserId};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::http::problem::{HttpErrorCode, Problem};
use crate::http::server::{BodyPermit, PartyPermit};
use crate::telemetry::Metrics;

/// A complete upload, and where its answer goes.
pub(super) struct PendingUpload {
    pub(super) user: UserId,
    pub(super) message: Bytes,
    pub(super) reply: UploadReply,
    /// Returned when the upload is answered, even if its sender has disconnected long before.
    pub(super) _permits: (PartyPermit, OwnedSemaphorePermit, BodyPermit),
}

/// The sender of an answer to an upload.
pub(super) struct UploadReply(oneshot::Sender<Result<Vec<u8>, Problem>>);

impl UploadReply {
    pub(super) fn new() -> (Self, oneshot::Receiver<Result<Vec<u8>, Problem>>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), receiver)
    }

    /// Sends an answer. It is lost if the client has disconnected.
    pub(super) fn send(self, answer: Result<Vec<u8>, Problem>) {
        let _ = self.0.send(answer);
    }
}

/// Answers an upload that is stored. A user who sent it twice gets the answer twice.
pub(super) fn send_ack(
    replies: impl IntoIterator<Item = UploadReply>,
    (round, user, body_hash): (Round, UserId, Digest),
    ack: &[u8],
) {
    tracing::info!(round = round.get(), user = user.get(), body = %body_hash, "acknowledged");
    replies.into_iter().for_each(|reply| reply.send(Ok(ack.to_vec())));
}

/// Answers an upload that the protocol refuses. The handler counts the refusal.
pub(super) fn send_refusal(
    replies: impl IntoIterator<Item = UploadReply>,
    user: UserId,
    error: &dphe::Error,
) {
    tracing::warn!(what = "upload", user = user.get(), code = error.code().as_str(), %error, "refused");
    replies.into_iter().for_each(|reply| reply.send(Err(Problem::from(error))));
}

/// Returns the answer to an upload that could not be stored.
pub(super) fn not_stored() -> Problem {
    HttpErrorCode::Storage.because("the upload could not be stored")
}

/// Counts an upload that is stored.
pub(super) fn count(metrics: &Metrics, bytes: usize) {
    metrics.uploads.add(1);
    metrics.upload_bytes.add(i64::try_from(bytes).unwrap_or(i64::MAX));
}
