//! The users of a load: real keys, and updates that are sealed in advance.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chacha20::ChaCha20Rng;
use dphe::wire::{Encode as _, RoundTicket, Signed, Upload};
use dphe::{PartyId, Roster, Round, SparseVector, Threads, Update, User, UserId};
use dphe_paillier::Plaintext;
use rand_core::SeedableRng as _;

use dphe_service::Error;
use dphe_service::http::client::Client;
use dphe_service::http::max_list_bytes;
use dphe_service::kit::{KitSet, UserKit};
use dphe_service::tls::ClientTls;

/// The users of a task. All send the same weights, so the expected sum is known.
pub(crate) struct LoadUsers {
    roster: Arc<Roster>,
    /// The users that upload, then those that abusive clients use.
    members: Vec<UserKit>,
    honest: usize,
    weights: Vec<f64>,
    bodies: Option<Bodies>,
}

/// Sealed updates of equal length in a file, because many rounds of many users may not fit in memory.
struct Bodies {
    file: File,
    bytes: usize,
    /// The number of ciphertexts per update.
    count: u32,
}

impl LoadUsers {
    /// Creates the users of these kits. The first `honest` of them will upload.
    ///
    /// # Errors
    /// Fails if there are fewer users.
    pub(crate) fn new(kits: &KitSet<'_>, honest: usize) -> Result<Self, Error> {
        let members: Vec<UserKit> =
            kits.roster().users().map(|user| kits.user(user)).collect::<Result<_, _>>()?;
        if members.len() < honest {
            return Err(Error::Unexpected { what: "the load has fewer users than uploads" });
        }
        let roster = Arc::new(kits.roster().clone());
        let task = roster.task();
        // fifteen different numbers on a coarse grid, so that sums are exact
        let step = 2f64.powi(i32::from(task.config().clip_exponent) - 4);
        let weights = (0..task.dimension()).map(|i| (i * 7 % 15) as f64 - 7.0).map(|k| k * step).collect();
        Ok(Self { roster, members, honest, weights, bodies: None })
    }

    /// Returns the roster.
    pub(crate) fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// Returns the number of users that upload.
    pub(crate) fn honest(&self) -> usize {
        self.honest
    }

    /// Returns the number of users that do not upload.
    pub(crate) fn others(&self) -> usize {
        self.members.len() - self.honest
    }

    /// Returns the update that every user sends in every round.
    pub(crate) fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Returns the bytes and ciphertexts per upload body, if updates have been sealed.
    pub(crate) fn body_size(&self) -> Option<(usize, u32)> {
        self.bodies.as_ref().map(|bodies| (bodies.bytes, bodies.count))
    }

    /// Creates the upload bodies of this many rounds in a file of `directory`. Only one update is sealed. Every other
    /// body adds an encryption of zero to each ciphertext of the first one, which takes a fortieth of the time. All
    /// noise differs, as the aggregator requires, and a load has no secrets.
    ///
    /// # Errors
    /// Fails if the file cannot be written, or if uploads of the task differ in length from round to round.
    pub(crate) fn seal(
        &mut self,
        rounds: u64,
        seed: u64,
        directory: &Path,
        threads: Threads,
    ) -> Result<(), Error> {
        let path = directory.join("bodies.bin");
        let error = |source: std::io::Error| Error::Data {
            file: path.display().to_string(),
            reason: source.to_string(),
        };
        let task = self.roster.task();
        if task.has_private_support() || task.capacity() != task.positions() as usize {
            return Err(Error::Unexpected {
                what: "uploads of this task differ in length from round to round",
            });
        }
        let Some(first) = self.members.first() else {
            return Err(Error::Unexpected { what: "the load has no users" });
        };
        let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(error)?;
        let update =
            Update::new(SparseVector::from_dense(&self.weights)?).with_dense(vec![0.0; task.dense()]);
        let key = first.keys.encryption_key();
        let sealed =
            User::new(first.keys.clone())?.seal(Round::FIRST, &update, &mut stream(seed, 0), threads)?;
        let body = sealed.to_bytes();
        let count = sealed.ciphertexts() as u32;
        let ciphertexts = key.decode(&body, threads)?;
        let all = self.honest * usize::try_from(rounds).unwrap_or(usize::MAX);
        let zeros = vec![Plaintext::new(key, 0)?; BATCH];
        let next = AtomicUsize::new(0);
        let work = || -> Result<(), Error> {
            loop {
                let batch = next.fetch_add(1, Ordering::Relaxed);
                let begin = batch * BATCH;
                if begin >= all {
                    return Ok(());
                }
                let mut rng = stream(seed, 1 + batch as u64);
                let zeros = key.encrypt_all(&zeros[..BATCH.min(all - begin)], &mut rng, Threads::ONE)?;
                for (at, zero) in (begin..).zip(zeros) {
                    let zeros = vec![zero; ciphertexts.len()];
                    let bytes = key.encode(&key.add(&ciphertexts, &zeros, Threads::ONE)?, Threads::ONE)?;
                    file.write_all_at(&bytes, at as u64 * body.len() as u64).map_err(error)?;
                }
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads.get()).map(|_| scope.spawn(work)).collect();
            const PANICKED: Error = Error::Unexpected { what: "a sealing thread panicked" };
            workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Err(PANICKED)))
        })?;
        self.bodies = Some(Bodies { file, bytes: body.len(), count });
        Ok(())
    }

    /// Returns the upload of a member (counted from 0), signed for the round of this ticket.
    ///
    /// # Errors
    /// Fails if no update was sealed for it, or if the file cannot be read.
    pub(super) fn upload(
        &self,
        member: usize,
        ticket: &Signed<RoundTicket>,
    ) -> Result<Signed<Upload>, Error> {
        let Some(bodies) = self.bodies.as_ref().filter(|_| member < self.honest) else {
            return Err(Error::Unexpected { what: "the upload was not sealed" });
        };
        let at = (ticket.round().get() as usize - 1) * self.honest + member;
        let mut body = vec![0; bodies.bytes];
        bodies.file.read_exact_at(&mut body, (at * bodies.bytes) as u64).map_err(|source| Error::Data {
            file: "the sealed updates".into(),
            reason: source.to_string(),
        })?;
        let UserKit { user, identity, .. } = &self.members[member];
        // sums of a load are not bound to their participants, so the salt does not matter
        let (sent, mut rng) = ((bodies.count, [0; 16]), stream(ticket.round().get(), member as u64));
        Ok(dphe::hazmat::sign_upload(identity, &self.roster, *user, ticket, sent, &body, &mut rng)?)
    }

    /// Returns the user id of a member.
    pub(super) fn user(&self, member: usize) -> UserId {
        self.members[member].user
    }

    /// Returns a member's client for the aggregator at this address.
    pub(super) fn client(&self, member: usize, address: &str) -> Result<Client, Error> {
        Ok(Client::new(address.to_owned(), self.tls(member)?, max_list_bytes(&self.roster)))
    }

    /// Returns the TLS configuration of a member.
    pub(super) fn tls(&self, member: usize) -> Result<ClientTls, Error> {
        self.members[member].tls.client(PartyId::Aggregator)
    }
}

/// The number of bodies whose noise is computed together.
const BATCH: usize = 32;

/// Returns one of many random number streams of a seed.
fn stream(seed: u64, number: u64) -> ChaCha20Rng {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    rng.set_stream(number);
    rng
}
