//! A bound on the memory that bodies of requests take.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits for the bytes of bodies in memory.
#[derive(Clone, Debug)]
pub struct BodyMemory {
    permits: Arc<Semaphore>,
    blocks: u32,
}

/// Bytes of bodies that are in memory. They are returned on drop.
pub type BodyPermit = OwnedSemaphorePermit;

/// Permits are counted in blocks of this many bytes, because a semaphore gives out at most 2^32 at once.
const BLOCK_BYTES: u64 = 1024;

impl BodyMemory {
    /// Creates permits for this many bytes.
    pub fn new(bytes: u64) -> Self {
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize) as u64;
        let blocks = bytes.div_ceil(BLOCK_BYTES).clamp(1, most) as u32;
        Self { permits: Arc::new(Semaphore::new(blocks as usize)), blocks }
    }

    /// Waits for the memory of a body, in the order of requests. A body that is longer than all memory together gets
    /// all of it, so that it is read alone.
    pub async fn take(&self, bytes: u64) -> Option<BodyPermit> {
        self.permits.clone().acquire_many_owned(self.count(bytes)).await.ok()
    }

    /// Returns the memory of a body if it is free.
    pub fn try_take(&self, bytes: u64) -> Option<BodyPermit> {
        self.permits.clone().try_acquire_many_owned(self.count(bytes)).ok()
    }

    fn count(&self, bytes: u64) -> u32 {
        bytes.div_ceil(BLOCK_BYTES).clamp(1, self.blocks.into()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_take_no_more_memory_than_there_is() {
        let memory = BodyMemory::new(10 * BLOCK_BYTES);
        let first = memory.try_take(6 * BLOCK_BYTES).unwrap();
        assert!(memory.try_take(4 * BLOCK_BYTES + 1).is_none());
        let second = memory.try_take(4 * BLOCK_BYTES).unwrap();
        assert!(memory.try_take(1).is_none());
        drop(first);
        let third = memory.try_take(1).unwrap();
        // more than there is in all: alone
        assert!(memory.try_take(u64::MAX).is_none());
        drop((second, third));
        let all = memory.try_take(u64::MAX).unwrap();
        assert!(memory.try_take(1).is_none());
        drop(all);
        assert!(memory.try_take(1).is_some());
    }
}
