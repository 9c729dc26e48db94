//! Starts a party from its kit and its store. At the first start, the seeds move from the kit into the log of the
//! store, and the store remembers the hash of the roster.
//!
//! The log is durable before the seeds are removed from the kit. After a crash in between, the next start removes them.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use dphe::party::log::Log;
use dphe::party::{Action, Party, PartyContext, Time};
use dphe::{AggregatorKeys, KeyGenerator, Threads, UserKeys};
use dphe_paillier::EncryptionKey;
use zeroize::Zeroizing;

use super::seeds::{MovedSeeds, SeedsFile};
use super::{Fingerprint, Kit, KitError, RosterHash};
use crate::Error;
use crate::party::party_name;
use crate::store::{LogStore, StoreError, StoreId};

/// How long a start waits for another process that starts with the same kit, such as a replica.
const LOCK_ATTEMPTS: u32 = 1_200;
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// A kit and a store that belong together, and have been read.
pub struct Start<'a> {
    kit: &'a Kit,
    log: Zeroizing<Vec<u8>>,
    store: StoreId,
    seeds: SeedsFile,
    state: LogState,
    /// The encryption key, which takes long to read, once it was read.
    encryption: OnceLock<EncryptionKey>,
    /// Released when the seeds have moved, so that two processes cannot both start with them.
    _lock: Option<File>,
}

/// What the log says about the seeds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogState {
    /// The party has never run.
    New,
    /// The log begins with a checkpoint, which holds the seeds.
    HasSeeds,
    /// An earlier version began the log, which has no checkpoint yet.
    Without,
}

impl<'a> Start<'a> {
    /// Checks that a kit and a store belong together, and that the latest roster is the one that the party has compared
    /// with others. The store remembers the roster then. A changed roster must be compared again: the key generator
    /// signs it alone, and can give each party another one.
    ///
    /// # Errors
    /// [`KitError::WrongRoster`] if `compared` is the hash of another roster, [`KitError::OtherRoster`] if the store
    /// remembers another one, [`KitError::RosterNotCompared`] at the first start with a roster
    /// without `compared`,
    /// [`KitError::SeedsMoved`] if the seeds moved into another store. Fails too if a file or the store cannot be read.
    pub async fn new<S: LogStore>(
        kit: &'a Kit,
        store: &mut S,
        compared: Option<&RosterHash>,
    ) -> Result<Self, Error> {
        kit.check_roster(compared)?;
        let about = store.about().await?;
        kit.check_store(&about)?;
        let mut lock = None;
        let mut seeds = kit.seeds()?;
        if let SeedsFile::Here(_) = seeds {
            lock = lock_kit(&kit.folder).await?;
            // another process may have moved them meanwhile
            seeds = kit.seeds()?;
        }
        let log = store.load().await?;
        let recovered = Log::recover(kit.party, Log::roster_of(kit.party, &kit.rosters, &log), &log)?;
        let state = match (&recovered.checkpoint, recovered.records.is_empty()) {
            (Some(_), _) => LogState::HasSeeds,
            (None, true) if log.is_empty() => LogState::New,
            (None, _) => LogState::Without,
        };
        if let SeedsFile::Moved(MovedSeeds { store, .. }) = &seeds
            && (*store != about.id || state != LogState::HasSeeds)
        {
            return Err(KitError::SeedsMoved { folder: kit.folder.clone(), store: *store }.into());
        }
        if about.roster != Some(kit.roster.hash()) {
            if compared.is_none() && !kit.needs_no_comparison() {
                return Err(KitError::RosterNotCompared.into());
            }
            store.remember_roster(kit.roster.hash()).await?;
        }
        let (party, roster) = (party_name(kit.party), Fingerprint::of_roster(&kit.roster));
        let fingerprint = kit.fingerprint()?;
        tracing::info!(party, %fingerprint, %roster, "identity");
        Ok(Self { kit, log, store: about.id, seeds, state, encryption: OnceLock::new(), _lock: lock })
    }

    /// Returns a user's keys.
    ///
    /// # Errors
    /// Fails if this is not a user's kit, or if the keys are damaged or belong to another task.
    pub fn user_keys(&self) -> Result<UserKeys, Error> {
        match (&self.seeds, self.state) {
            (SeedsFile::Here(bytes), LogState::New | LogState::Without) => {
                let keys = self.kit.user_keys_in(bytes)?;
                let _ = self.encryption.set(keys.encryption_key().clone());
                Ok(keys)
            }
            _ => Ok(UserKeys::from_log(
                &self.log,
                self.kit.user()?,
                self.encryption_key()?,
                &self.kit.rosters,
            )?),
        }
    }

    /// Returns the aggregator's keys.
    ///
    /// # Errors
    /// Fails if this is not the aggregator's kit, or if the keys are damaged or belong to another task.
    pub fn aggregator_keys(&self) -> Result<AggregatorKeys, Error> {
        match (&self.seeds, self.state) {
            (SeedsFile::Here(bytes), LogState::New | LogState::Without) => {
                let keys = self.kit.aggregator_keys_in(bytes)?;
                let _ = self.encryption.set(keys.encryption_key().clone());
                Ok(keys)
            }
            _ => Ok(AggregatorKeys::from_log(&self.log, self.encryption_key()?, &self.kit.rosters)?),
        }
    }

    /// Returns the key generator's keys.
    ///
    /// # Errors
    /// Fails if this is not the key generator's kit, the passphrase is wrong, or a file is damaged.
    pub fn key_generator(&self, passphrase: &[u8]) -> Result<KeyGenerator, Error> {
        let key = self.kit.decryption_key(passphrase)?;
        match (&self.seeds, self.state) {
            (SeedsFile::Here(bytes), LogState::New | LogState::Without) => {
                self.kit.key_generator_in(bytes, key)
            }
            _ => Ok(KeyGenerator::from_log(&self.log, key, &self.kit.rosters)?),
        }
    }

    /// Starts the party, with actions that remain to be carried out. At the first start, the seeds move from the kit
    /// into the log.
    ///
    /// # Errors
    /// Fails if the keys or the log are invalid, the store fails, or the kit cannot be written.
    pub async fn party<P: Party, S: LogStore>(
        self,
        keys: P::Keys,
        store: &mut S,
        threads: Threads,
        now: Time,
    ) -> Result<(P, Vec<Action>), Error> {
        let (identity, rosters) = (self.kit.identities()?, self.kit.rosters.clone());
        let context = PartyContext { identity, rosters, log: &self.log, threads };
        let started = match self.state {
            LogState::HasSeeds | LogState::Without => P::start(keys, context, now)?,
            LogState::New => {
                let (party, mut actions) = P::start_new(keys, context, now)?;
                // durable before the seeds are removed from the kit
                if let Action::Replace(log) = actions.remove(0) {
                    store.begin_log(&log).await?;
                }
                (party, actions)
            }
        };
        if let SeedsFile::Here(_) = self.seeds
            && self.state != LogState::Without
        {
            let has_key = self.kit.has_encryption_key();
            let encryption_key =
                has_key.then(|| Ok::<_, Error>(self.encryption_key()?.to_bytes())).transpose()?;
            MovedSeeds { store: self.store, encryption_key }.write(&self.kit.folder)?;
            tracing::info!(data = %self.store, "the seeds moved from the kit into the log");
        }
        Ok(started)
    }

    fn encryption_key(&self) -> Result<EncryptionKey, Error> {
        if let Some(key) = self.encryption.get() {
            return Ok(key.clone());
        }
        let key = self.kit.encryption_key_in(&self.seeds)?;
        Ok(self.encryption.get_or_init(|| key).clone())
    }
}

/// Waits until no other process starts with this kit. File systems without locks cannot tell.
async fn lock_kit(folder: &Path) -> Result<Option<File>, Error> {
    let Ok(directory) = File::open(folder) else { return Ok(None) };
    for _ in 0..LOCK_ATTEMPTS {
        match directory.try_lock() {
            Ok(()) => return Ok(Some(directory)),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_INTERVAL).await,
            Err(TryLockError::Error(_)) => return Ok(None),
        }
    }
    Err(StoreError::InUse { directory: folder.into() }.into())
}
