//! The domain strings of every hash and signature, one per purpose, so that no hash of one kind is valid as another.
//! Messages have theirs in [`Kind::domain`](super::Kind::domain): `dphe/v2/` and the name of the message.

/// The digest of a model.
pub(crate) const MODEL: &str = "dphe/v2/model";
/// The policy of a task.
pub(crate) const POLICY: &str = "dphe/v2/policy";
/// The signed part of a roster.
pub(crate) const ROSTER: &str = "dphe/v2/roster";
/// The signed part of a roster change.
pub(crate) const ROSTER_CHANGE: &str = "dphe/v2/roster-change";
/// The key that a new user-shared seed is hidden with.
pub(crate) const ROSTER_SEED: &str = "dphe/v2/roster-seed";
/// The check of a new user-shared seed.
pub(crate) const ROSTER_SEED_CHECK: &str = "dphe/v2/roster-seed-check";
/// What the aggregator's part of a roster change is encrypted for.
pub(crate) const ROSTER_SEAL: &str = "dphe/v2/roster-seal";
/// A request to be enrolled.
pub(crate) const REQUEST: &str = "dphe/v2/request";
/// The checksum of a party's keys at rest.
pub(crate) const KEY_BYTES: &str = "dphe/v2/kit";
/// The body of an upload.
pub(crate) const UPLOAD_BODY: &str = "dphe/v2/upload-body";
/// A sealed sum.
pub(crate) const SUM: &str = "dphe/v2/sum";
/// An opened sum.
pub(crate) const PAYLOAD: &str = "dphe/v2/payload";
/// The head of an empty log.
pub(crate) const LOG: &str = "dphe/v2/log";
/// The head of a log after one more record.
pub(crate) const LOG_RECORD: &str = "dphe/v2/log-record";
/// The key of a round's user-shared permutation.
pub(crate) const USER_SHARED: &str = "dphe/v2/user-shared";
/// The key of a round's user-aggregator permutation.
pub(crate) const USER_AGGREGATOR: &str = "dphe/v2/user-aggregator";
/// The seed of the next round.
pub(crate) const RATCHET: &str = "dphe/v2/ratchet";
/// The order in which public supports rotate. It is public and the same as in version 1, so that models are the same.
pub(crate) const ROTATION: &str = "dphe/v1/rotation";
/// The digest of a public support.
pub(crate) const SUPPORT: &str = "dphe/v2/support";
/// A task file.
pub(crate) const TASK_FILE: &str = "dphe/v2/task-file";
/// The key material of an agreement key.
pub(crate) const AGREEMENT: &str = "dphe/v2/agreement";
/// What the content of an upload is encrypted for.
pub(crate) const UPLOAD_SEAL: &str = "dphe/v2/upload-seal";
/// The key of the masks that a user and the key generator share.
pub(crate) const MASK_KEY_GENERATOR: &str = "dphe/v2/mask-key-generator";
/// The key of the masks that a user and the aggregator share.
pub(crate) const MASK_AGGREGATOR: &str = "dphe/v2/mask-aggregator";
/// The key of a round's check.
pub(crate) const CHECK: &str = "dphe/v2/check";
/// The key of the constant in a check.
pub(crate) const CHECK_GROUP: &str = "dphe/v2/check-group";
/// A participant, as a leaf of the tree.
pub(crate) const PARTICIPANT: &str = "dphe/v2/participant";
/// An inner node of the tree of participants.
pub(crate) const PARTICIPANTS: &str = "dphe/v2/participants";
/// The seed of the randomness that seals one update.
pub(crate) const SEALING: &str = "dphe/v2/sealing";
/// The history of a task.
pub(crate) const HISTORY: &str = "dphe/v2/history";
/// The history of a task when another roster comes into force.
pub(crate) const HISTORY_ROSTER: &str = "dphe/v2/history-roster";

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
            ROSTER_CHANGE,
            ROSTER_SEED,
            ROSTER_SEED_CHECK,
            ROSTER_SEAL,
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
            TASK_FILE,
            AGREEMENT,
            UPLOAD_SEAL,
            MASK_KEY_GENERATOR,
            MASK_AGGREGATOR,
            CHECK,
            CHECK_GROUP,
            PARTICIPANT,
            PARTICIPANTS,
            SEALING,
            HISTORY,
            HISTORY_ROSTER,
        ];
        let mut all: Vec<&str> = own.into_iter().chain(Kind::ALL.iter().map(|kind| kind.domain())).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|domain| domain.starts_with("dphe/v2/") || *domain == ROTATION));
    }
}
