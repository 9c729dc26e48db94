//! The domain strings of every hash and signature, one per purpose, so that no hash of one kind is valid as another.
//! Messages have theirs in [`Kind::domain`](super::Kind::domain): `dphe/v1/` and the name of the message.

/// The digest of a model.
pub(crate) const MODEL: &str = "dphe/v1/model";
/// The policy of a task.
pub(crate) const POLICY: &str = "dphe/v1/policy";
/// The signed part of a roster.
pub(crate) const ROSTER: &str = "dphe/v1/roster";
/// A request to be enrolled.
pub(crate) const REQUEST: &str = "dphe/v1/request";
/// The checksum of a party's keys at rest.
pub(crate) const KEY_BYTES: &str = "dphe/v1/kit";
/// The body of an upload.
pub(crate) const UPLOAD_BODY: &str = "dphe/v1/upload-body";
/// A sealed sum.
pub(crate) const SUM: &str = "dphe/v1/sum";
/// An opened sum.
pub(crate) const PAYLOAD: &str = "dphe/v1/payload";
/// The head of an empty log.
pub(crate) const LOG: &str = "dphe/v1/log";
/// The head of a log after one more record.
pub(crate) const LOG_RECORD: &str = "dphe/v1/log-record";
/// The key of a round's user-shared permutation.
pub(crate) const USER_SHARED: &str = "dphe/v1/user-shared";
/// The key of a round's user-aggregator permutation.
pub(crate) const USER_AGGREGATOR: &str = "dphe/v1/user-aggregator";
/// The seed of the next round.
pub(crate) const RATCHET: &str = "dphe/v1/ratchet";
/// The order in which public supports rotate.
pub(crate) const ROTATION: &str = "dphe/v1/rotation";
/// The digest of a public support.
pub(crate) const SUPPORT: &str = "dphe/v1/support";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Kind;

    #[test]
    fn hash_domains_are_distinct() {
        let own = [
            MODEL,
            POLICY,
            ROSTER,
            REQUEST,
            KEY_BYTES,
            UPLOAD_BODY,
            SUM,
            PAYLOAD,
            LOG,
            LOG_RECORD,
            USER_SHARED,
            USER_AGGREGATOR,
            RATCHET,
            ROTATION,
            SUPPORT,
        ];
        let mut all: Vec<&str> = own.into_iter().chain(Kind::ALL.iter().map(|kind| kind.domain())).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|domain| domain.starts_with("dphe/v1/")));
    }
}
