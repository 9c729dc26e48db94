//! The keys that line 2 of Algorithm 1 distributes. Their fields say which party knows what.

use std::collections::BTreeMap;

use dphe_paillier::EncryptionKey;

use crate::scheme::permutation::{MaskSeed, UserAggregatorSeed, UserSharedSeed};
use crate::{TaskParams, UserId};

/// The keys of a user.
#[derive(Clone, Debug)]
pub struct UserKeys {
    pub(crate) task: TaskParams,
    pub(crate) user: UserId,
    pub(crate) encryption: EncryptionKey,
    pub(crate) us: UserSharedSeed,
    pub(crate) ua: UserAggregatorSeed,
    pub(crate) mask: MaskSeed,
}

/// The keys of the aggregator. They contain neither the user-shared seed nor mask seeds.
#[derive(Clone, Debug)]
pub struct AggregatorKeys {
    pub(crate) task: TaskParams,
    pub(crate) encryption: EncryptionKey,
    pub(crate) ua: BTreeMap<UserId, UserAggregatorSeed>,
}

impl UserKeys {
    /// Returns the user.
    pub fn user(&self) -> UserId {
        self.user
    }

    /// Returns the task.
    pub fn task(&self) -> &TaskParams {
        &self.task
    }

    /// Returns the encryption key.
    pub fn encryption_key(&self) -> &EncryptionKey {
        &self.encryption
    }
}

impl AggregatorKeys {
    /// Returns the task.
    pub fn task(&self) -> &TaskParams {
        &self.task
    }

    /// Returns the encryption key.
    pub fn encryption_key(&self) -> &EncryptionKey {
        &self.encryption
    }
}
