//! Who uploads: users with real keys and certificates, and updates that were sealed beforehand.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chacha20::ChaCha20Rng;
use dphe::message::{RoundTicket, Signed, Upload};
use dphe::{LocalUpdate, Party, Roster, Round, SparseVector, Threads, User, UserId};
use dphe_paillier::Plaintext;
use rand_core::SeedableRng as _;

use crate::Error;
use crate::certificates::server_name;
use crate::http::client::Client;
use crate::http::max_list_bytes;
use crate::kit::{KitSet, UserKit};

/// The users of a task. All have the same weights, so that everybody can say what the sum must be.
pub struct Crowd {
    roster: Arc<Roster>,
    /// Those who upload, then those who only get in the way.
    members: Vec<UserKit>,
    honest: usize,
    weights: Vec<f64>,
    bodies: Option<Bodies>,
}

/// Sealed updates in a file, all of one length: many rounds of many users need not fit in memory.
struct Bodies {
    file: File,
    bytes: usize,
    /// Ciphertexts of one.
    count: u32,
}

impl Crowd {
    /// The users of these kits; the first `honest` of them will upload.
    ///
    /// # Errors
    /// If there are fewer, or a certificate cannot be made.
    pub fn new(kits: &KitSet<'_>, honest: usize) -> Result<Self, Error> {
        let members: Vec<UserKit> =
            kits.roster().users().map(|user| kits.user(user)).collect::<Result<_, _>>()?;
        if members.len() < honest {
            return Err(Error::Unexpected { what: "fewer users than are to upload" });
        }
        let roster = Arc::new(kits.roster().clone());
        let task = roster.task();
        // fifteen different numbers in the middle of the range, on a grid so coarse that sums of them are exact
        let step = 2f64.powi(i32::from(task.config().clip_exponent) - 4);
        let weights = (0..task.dimension()).map(|i| (i * 7 % 15) as f64 - 7.0).map(|k| k * step).collect();
        Ok(Self { roster, members, honest, weights, bodies: None })
    }

    /// The roster.
    pub fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// How many upload.
    pub fn honest(&self) -> usize {
        self.honest
    }

    /// How many there are beside them.
    pub fn others(&self) -> usize {
        self.members.len() - self.honest
    }

    /// What every user sends in every round: differences of weights.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Bytes and ciphertexts of an upload's body, once they are sealed.
    pub fn body_size(&self) -> Option<(usize, u32)> {
        self.bodies.as_ref().map(|bodies| (bodies.bytes, bodies.count))
    }

    /// Makes the bodies of this many rounds, in a new file of this folder. One update is sealed; every other body is the
    /// same one with an encryption of zero of its own added to each ciphertext. All noise differs, as the aggregator
    /// demands, and it takes a fortieth of the time: a load has no secrets.
    ///
    /// # Errors
    /// If the file cannot be written, or the task's uploads have other lengths from round to round.
    pub fn seal(&mut self, rounds: u64, seed: u64, folder: &Path, threads: Threads) -> Result<(), Error> {
        let path = folder.join("bodies.bin");
        let error = |source: std::io::Error| Error::Data {
            file: path.display().to_string(),
            reason: source.to_string(),
        };
        let task = self.roster.task();
        if task.has_private_support() || task.capacity() != task.positions() as usize {
            return Err(Error::Unexpected { what: "a load of uploads that differ from round to round" });
        }
        let Some(first) = self.members.first() else {
            return Err(Error::Unexpected { what: "a crowd without users" });
        };
        let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(error)?;
        let update =
            LocalUpdate::new(SparseVector::from_dense(&self.weights)?).with_dense(vec![0.0; task.dense()]);
        let key = first.keys.encryption_key();
        let sealed =
            User::new(first.keys.clone())?.seal(Round::FIRST, &update, &mut stream(seed, 0), threads)?;
        let body = sealed.to_body();
        let count = sealed.ciphertexts(task) as u32;
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
            const PANICKED: Error = Error::Unexpected { what: "sealing that panicked" };
            workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Err(PANICKED)))
        })?;
        self.bodies = Some(Bodies { file, bytes: body.len(), count });
        Ok(())
    }

    /// The upload of a member, by its place from 0, signed for the round of this ticket.
    ///
    /// # Errors
    /// If nothing was sealed for it, or the file is gone.
    pub(super) fn upload(
        &self,
        member: usize,
        ticket: &Signed<RoundTicket>,
    ) -> Result<Signed<Upload>, Error> {
        let Some(bodies) = self.bodies.as_ref().filter(|_| member < self.honest) else {
            return Err(Error::Unexpected { what: "an upload that nobody sealed" });
        };
        let at = (ticket.round().get() as usize - 1) * self.honest + member;
        let mut body = vec![0; bodies.bytes];
        bodies.file.read_exact_at(&mut body, (at * bodies.bytes) as u64).map_err(|source| Error::Data {
            file: "the sealed updates".into(),
            reason: source.to_string(),
        })?;
        let UserKit { user, identity, .. } = &self.members[member];
        Ok(dphe::hazmat::sign_upload(identity, &self.roster, *user, ticket, bodies.count, body))
    }

    /// A member's number in the task.
    pub(super) fn user(&self, member: usize) -> UserId {
        self.members[member].user
    }

    /// A member's own way to a service at this address.
    pub(super) fn client(&self, member: usize, address: &str) -> Result<Client, Error> {
        let name = server_name(&self.roster, Party::Aggregator)?;
        let tls = self.members[member].tls.client()?;
        Ok(Client::new(address.to_owned(), name, tls, max_list_bytes(&self.roster)))
    }

    /// A member's certificate and key.
    pub(super) fn tls(&self, member: usize) -> Result<Arc<rustls::ClientConfig>, Error> {
        self.members[member].tls.client()
    }
}

/// Users whose noise is drawn together.
const BATCH: usize = 32;

/// One of many streams of random numbers from one seed.
fn stream(seed: u64, number: u64) -> ChaCha20Rng {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    rng.set_stream(number);
    rng
}
