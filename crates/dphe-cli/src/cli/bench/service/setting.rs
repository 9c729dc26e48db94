//! The task of a load: its file and key, the services' kits on disk, and the users' kits in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::load::LoadUsers;
use dphe::hazmat::paper_keys;
use dphe::{PartyId, TaskId};
use dphe_paillier::{DecryptionKey, Threads, hazmat};
use dphe_service::kit::{KitPlan, KitSet, Protection};
use rand_core::Rng as _;

use super::Service;
use crate::cli::key::generate;
use crate::cli::{CliError, key_bits, os_rng};
use crate::files;
use crate::processes::free_ports;

/// Public safe primes of 1024 bits. They are only for loads and tests.
const P: &str = "ce1bebc43443505b80bf6a442a6c1771b829b6882a3b630ee06ffae7fa9d68e39a62f5f526f011233634f9b4d6689fc4\
                 c5e66d236eab234f5b5c1b94596457f294d1adf26a92a3378eb016ad1fe61f112bae52120e7f7f91c59fa0692c216e5e\
                 90089ae6245b821b9409a732dc87ec976544d02f119e480381162fa5425fc3e7";
const Q: &str = "d6d04aa475c21d6e0adf332956b7f6e515b5e9dcc006f4866fc6d059952b77cd827c4b77ee73c31410d0cd64fb9e8d2c\
                 39e18328ecb106cd4cc2eebe9a4e044b1b6cf2cdd3d367b58e19282db25afa652b5ce7314ac51baa7dc47dc0071eb538\
                 5b005e59d2d00cbc5c173f35f45a79a8673d5c3a32f7b220761be8bdeb73cb0f";
/// The length of the key with these primes.
const TEST_BITS: u32 = 2048;

/// Everything that a run needs.
pub(super) struct Setting {
    pub(super) load_users: Arc<LoadUsers>,
    /// The key generator's port, then the aggregators' ports.
    pub(super) ports: Vec<u16>,
    pub(super) kits_s: f64,
    pub(super) seal_s: f64,
}

/// Describes the key of a run.
pub(super) fn about_key(bits: u32) -> &'static str {
    match bits {
        TEST_BITS => "TEST KEY, whose factors are in the source code; it protects nothing",
        _ => "generated for this run",
    }
}

impl Setting {
    pub(super) fn new(service: &Service, users: u32, directory: &Path) -> Result<Self, CliError> {
        let begin = Instant::now();
        let key = key(service)?;
        let ports = free_ports(1 + service.replicas as usize)?;
        let path = directory.join("task.toml");
        files::replace(&path, task_text(service, users, &ports)?.as_bytes())
            .map_err(|source| CliError::Output { path: path.clone(), source })?;
        let plan = KitPlan::for_all_parties(&path, Vec::new(), paper_keys())?;
        let mut rng = os_rng()?;
        let kits = KitSet::new(&plan, key, &Protection::FileMode, &mut rng)?;
        let output = directory.join("kits");
        std::fs::create_dir(&output).map_err(|source| CliError::Output { path: output.clone(), source })?;
        for party in [PartyId::KeyGenerator, PartyId::Aggregator] {
            kits.write(party, &output, &mut rng)?;
        }
        // in memory, because each of thousands of kits on disk would contain the roster of thousands
        let mut load_users = LoadUsers::new(&kits, users as usize)?;
        let kits_s = begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        load_users.seal(service.rounds, service.seed, directory, Threads::all())?;
        Ok(Self { load_users: Arc::new(load_users), ports, kits_s, seal_s: begin.elapsed().as_secs_f64() })
    }
}

fn key(service: &Service) -> Result<DecryptionKey, CliError> {
    let bits = key_bits(service.bits, false)?;
    if bits.get() != TEST_BITS {
        return generate(bits, service.noise, Threads::all());
    }
    let bytes = |digits: &str| -> Vec<u8> {
        let digit = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0) as u8;
        digits.as_bytes().chunks(2).map(|pair| pair.iter().fold(0, |byte, &d| 16 * byte + digit(d))).collect()
    };
    Ok(hazmat::decryption_key(&bytes(P), &bytes(Q), service.noise)?)
}

/// Returns a task file with one class, so that the dimension is the number of features. Users of abusive clients are
/// enrolled but never upload.
fn task_text(service: &Service, users: u32, ports: &[u16]) -> Result<String, CliError> {
    let mut id = [0; 16];
    os_rng()?.fill_bytes(&mut id);
    let id = TaskId::from_bytes(id);
    let (enrolled, rounds) = (users as usize + service.abusive_clients(users).users(), service.rounds);
    let (features, bits) = (service.dimension, service.bits);
    let noise = service.noise.name();
    let (key_generator, aggregator) = (ports[0], ports[1]);
    Ok(format!(
        "# the task of a load on one machine\n\n\
         [task]\nid = \"{id}\"\nname = \"load\"\nusers = {enrolled}\nrounds = {rounds}\n\n\
         [parties]\naggregator = \"127.0.0.1:{aggregator}\"\nkey_generator = \"127.0.0.1:{key_generator}\"\n\n\
         [model]\nclasses = 1\nfeatures = {features}\n\n\
         [learner]\npayload = \"all\"\nloss = \"hinge\"\nstrength = 0.001\nepochs = 1\nsquared_radius = 2.0\n\n\
         [encryption]\nprofile = \"full\"\nkey_bits = {bits}\nnoise = \"{noise}\"\nbind_sums = false\n\n\
         [collect]\ncount = {{ min = {users}, max = {users} }}\ntime = {{ min = \"1s\", max = \"12h\" }}\n"
    ))
}
