//! A semaphore per party.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use dphe::PartyId;

/// A limited number of permits for each party.
#[derive(Clone, Debug)]
pub struct PartyPermits {
    per_party: usize,
    taken: Arc<Mutex<HashMap<PartyId, usize>>>,
}

/// A permit of a party. It is returned on drop.
#[derive(Debug)]
pub struct PartyPermit {
    permits: PartyPermits,
    party: PartyId,
}

impl PartyPermits {
    /// Creates `per_party` permits for each party.
    pub fn new(per_party: usize) -> Self {
        Self { per_party, taken: Arc::default() }
    }

    /// Takes a permit, or returns `None` if the party has taken all of its permits.
    pub fn take(&self, party: PartyId) -> Option<PartyPermit> {
        let mut taken = self.taken.lock().ok()?;
        let count = taken.entry(party).or_default();
        if *count >= self.per_party {
            return None;
        }
        *count += 1;
        Some(PartyPermit { permits: self.clone(), party })
    }
}

impl Drop for PartyPermit {
    fn drop(&mut self) {
        if let Ok(mut taken) = self.permits.taken.lock()
            && let Some(count) = taken.get_mut(&self.party)
        {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.party);
            }
        }
    }
}
