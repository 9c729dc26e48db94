//! Stands in for `shared.rs` in builds without the feature `postgres`. No replicas exist there, so this type has no
//! values and none of its functions can be called.

use dphe::party::Time;
use dphe::{Round, UserId};

use super::super::Snapshot;
use super::AggregatorActor;
use crate::Error;
use crate::store::StoreError;

pub(in super::super) enum SharedRound {}

impl SharedRound {
    pub(super) fn collected(&self) -> &[UserId] {
        match *self {}
    }

    pub(super) async fn start(&self, _: Round) -> Result<(), StoreError> {
        match *self {}
    }

    pub(super) async fn forget(&self, _: Round) -> Result<(), StoreError> {
        match *self {}
    }

    pub(super) fn should_publish(&mut self, _: bool, _: Time) -> bool {
        match *self {}
    }

    pub(super) async fn publish(&self, _: &Snapshot, _: &Snapshot) -> Result<(), Error> {
        match *self {}
    }
}

impl AggregatorActor {
    pub(super) async fn count_shared_uploads(&mut self, _: bool) -> Result<(), Error> {
        match self.shared {
            Some(ref shared) => match *shared {},
            None => Ok(()),
        }
    }
}
