//! Who uploads: users with real keys and certificates, and updates that were sealed beforehand.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chacha20::ChaCha20Rng;
use dphe::message::{RoundTicket, Signed, Upload};
use dphe::{LocalUpdate, Party, Roster, Round, SparseVector, Threads, User, UserId};
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

    /// Seals all updates of this many rounds into a new file of this folder. The noise follows from the seed, and is
    /// another one for every user and round.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn seal(&mut self, rounds: u64, seed: u64, folder: &Path, threads: Threads) -> Result<(), Error> {
        let path = folder.join("bodies.bin");
        let error = |source: std::io::Error| Error::Data {
            file: path.display().to_string(),
            reason: source.to_string(),
        };
        let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(error)?;
        let update = LocalUpdate::new(SparseVector::from_dense(&self.weights)?).with_dense(vec![
            0.0;
            self.roster
                .task()
                .dense()
        ]);
        let all = self.honest * usize::try_from(rounds).unwrap_or(usize::MAX);
        let first = self.sealed(0, &update, seed)?;
        let bytes = first.to_body().len();
        let count = first.ciphertexts(self.roster.task()) as u32;
        let next = AtomicUsize::new(0);
        let work = || -> Result<(), Error> {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= all {
                    return Ok(());
                }
                let body = self.sealed(at, &update, seed)?.to_body();
                if body.len() != bytes {
                    return Err(Error::Unexpected { what: "updates of different lengths" });
                }
                file.write_all_at(&body, (at * bytes) as u64).map_err(error)?;
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads.get()).map(|_| scope.spawn(work)).collect();
            const PANICKED: Error = Error::Unexpected { what: "sealing that panicked" };
            workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Err(PANICKED)))
        })?;
        self.bodies = Some(Bodies { file, bytes, count });
        Ok(())
    }

    /// The update of a user in a round, both in one number: all users of the first round come first.
    fn sealed(&self, at: usize, update: &LocalUpdate, seed: u64) -> Result<dphe::SealedUpdate, Error> {
        let round = Round::new((at / self.honest) as u64 + 1).unwrap_or(Round::FIRST);
        let user = User::new(self.members[at % self.honest].keys.clone())?;
        // one stream for each
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        rng.set_stream(at as u64 + 1);
        Ok(user.seal(round, update, &mut rng, Threads::ONE)?)
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
