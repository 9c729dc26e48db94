//! Exactly what line 2 of Algorithm 1 hands to whom. Who knows what can be read off the fields.

use std::collections::BTreeMap;

use dphe_paillier::EncryptionKey;

use crate::permutation::{UserAggregatorSeed, UserSharedSeed};
use crate::{TaskParams, UserId};

/// What a user gets.
#[derive(Clone, Debug)]
pub struct UserKeys {
    pub(crate) task: TaskParams,
    pub(crate) user: UserId,
    pub(crate) encryption: EncryptionKey,
    pub(crate) us: UserSharedSeed,
    pub(crate) ua: UserAggregatorSeed,
}

/// What the aggregator gets: no user-shared seed.
#[derive(Clone, Debug)]
pub struct AggregatorKeys {
    pub(crate) task: TaskParams,
    pub(crate) encryption: EncryptionKey,
    pub(crate) ua: BTreeMap<UserId, UserAggregatorSeed>,
}

impl UserKeys {
    /// Whose they are.
    pub fn user(&self) -> UserId {
        self.user
    }

    /// The task they are for.
    pub fn task(&self) -> &TaskParams {
        &self.task
    }

    /// The encryption key.
    pub fn encryption_key(&self) -> &EncryptionKey {
        &self.encryption
    }
}

impl AggregatorKeys {
    /// The task they are for.
    pub fn task(&self) -> &TaskParams {
        &self.task
    }

    /// The encryption key.
    pub fn encryption_key(&self) -> &EncryptionKey {
        &self.encryption
    }
}
