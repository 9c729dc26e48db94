//! Connections that have not proved an identity yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The connections in their TLS handshake. When the service is full, the oldest of them is evicted, so that silent
/// connections cannot keep parties out.
#[derive(Clone, Default)]
pub(super) struct UnauthenticatedConnections(Arc<Mutex<Registry>>);

#[derive(Default)]
struct Registry {
    next_number: u64,
    /// In the order of arrival. Dropping a sender evicts its connection.
    connections: BTreeMap<u64, oneshot::Sender<()>>,
}

pub(super) struct UnauthenticatedConnection {
    number: u64,
    registry: UnauthenticatedConnections,
    /// Resolves when the connection is evicted.
    pub(super) evicted: oneshot::Receiver<()>,
}

impl UnauthenticatedConnections {
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn register(&self) -> UnauthenticatedConnection {
        let (keep, evicted) = oneshot::channel();
        let mut registry = self.lock();
        let number = registry.next_number;
        registry.next_number += 1;
        registry.connections.insert(number, keep);
        UnauthenticatedConnection { number, registry: self.clone(), evicted }
    }

    pub(super) fn evict_oldest(&self) {
        self.lock().connections.pop_first();
    }
}

impl UnauthenticatedConnection {
    /// Marks the peer as authenticated. Returns false if the connection was evicted meanwhile.
    pub(super) fn authenticate(&self) -> bool {
        self.registry.lock().connections.remove(&self.number).is_some()
    }
}

impl Drop for UnauthenticatedConnection {
    fn drop(&mut self) {
        self.registry.lock().connections.remove(&self.number);
    }
}
