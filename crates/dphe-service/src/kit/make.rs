//! Creates the kits of a task.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dphe::wire::RosterPlan;
use dphe::{
    Digest, Identity, IdentityKey, KeyGenerator, KeyLengths, PartyId, Roster, TaskParams, UserId, UserKeys,
};
use dphe_federate::GlobalWeights;
use dphe_learn::Weights;
use dphe_paillier::{DecryptionKey, PassphraseCost};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use super::seeds::SEEDS;
use super::{DASHBOARD_TOKEN, FORMAT, Fingerprint, IDENTITY, KitError, KitFile, Request, START};
use crate::Error;
use crate::hex;
use crate::key_file::{KeyFileError, write_public, write_secret};
use crate::model::{Model, ModelError};
use crate::party::party_name;
use crate::task_file::{LinearSections, TaskFile, Trained};
use crate::tensors::TensorModel;
use crate::tls::TlsIdentity;

/// How the decryption key is protected.
pub enum Protection {
    /// Encrypted with a passphrase.
    Passphrase(Zeroizing<Vec<u8>>),
    /// By the mode of its file. Everyone who can read the disk has the key.
    FileMode,
}

/// A task file, initial model and requests that have been checked. Checking first avoids minutes of key generation for
/// an invalid task.
pub struct KitPlan {
    task_file: TaskFile,
    text: String,
    task: TaskParams,
    initial: Vec<u8>,
    /// The contents of the initial model's file, if the task has one.
    start: Option<Vec<u8>>,
    requests: BTreeMap<PartyId, Request>,
    /// Whether the identity keys of parties without a request are made here.
    for_all_parties: bool,
}

impl KitPlan {
    /// Checks a task file, the initial model that it names, and the requests of the aggregator and of all users.
    /// `key_lengths` says which keys the task may have.
    ///
    /// # Errors
    /// Fails if the task is invalid, if a request is for another task, or with [`KitError::MissingRequests`].
    pub fn new(path: &Path, requests: Vec<Request>, key_lengths: KeyLengths) -> Result<Self, Error> {
        let plan = Self::for_all_parties(path, requests, key_lengths)?;
        let asks = |party: &PartyId| *party == PartyId::KeyGenerator || plan.requests.contains_key(party);
        let parties: Vec<String> = plan.parties().filter(|party| !asks(party)).map(party_name).collect();
        if !parties.is_empty() {
            return Err(KitError::MissingRequests { parties }.into());
        }
        Ok(Self { for_all_parties: false, ..plan })
    }

    /// Checks a task as [`KitPlan::new`], for a demo or a test: the identity keys of parties without a request are made
    /// with the kits. Their maker can then connect and sign as these parties.
    ///
    /// # Errors
    /// As [`KitPlan::new`], except that no request is missing.
    pub fn for_all_parties(
        path: &Path,
        requests: Vec<Request>,
        key_lengths: KeyLengths,
    ) -> Result<Self, Error> {
        let task_file = TaskFile::read(path)?;
        let text = std::fs::read_to_string(path)
            .map_err(|source| KeyFileError::Read { path: path.into(), source })?;
        let Some(id) = task_file.id() else { return Err(Error::Unexpected { what: "the task has no id" }) };
        let checked = |config| -> Result<TaskParams, Error> {
            let task = TaskParams::new_with(id, config, key_lengths)?;
            crate::store::check_task(&task)?;
            Ok(task)
        };
        // relative to the task file, so that both can be moved together
        let beside = |file: &Path| path.parent().unwrap_or(Path::new(".")).join(file);
        let (task, initial, start) = match &task_file.trained {
            Trained::Linear(linear) => {
                let (initial, start) = initial_weights(linear, beside)?;
                let task = checked(task_file.config(&initial)?)?;
                let initial = GlobalWeights::new(initial);
                linear.rules(task.clone())?.check(&initial)?;
                (task, initial.to_bytes(), start)
            }
            Trained::Tensors(sections) => {
                let initial = TensorModel::read(&beside(&sections.tensors.initial), &sections.tensors.keep)?;
                let task = checked(task_file.tensor_config(&initial)?)?;
                sections.rules(task.clone())?;
                (task, initial.into_bytes(), None)
            }
        };
        let mut by_party = BTreeMap::new();
        for request in requests {
            let party = request.party()?;
            let known = match party {
                PartyId::Aggregator => true,
                // the key generator makes the kits
                PartyId::KeyGenerator => false,
                PartyId::User(user) => user.get() <= task_file.task.users,
            };
            let error = |reason: &str| KitError::Request { party: party_name(party), reason: reason.into() };
            if !known {
                return Err(error("the task has no such party").into());
            }
            request.check(&task_file)?;
            if by_party.insert(party, request).is_some() {
                return Err(error("there are two requests of this party").into());
            }
        }
        Ok(Self { task_file, text, task, initial, start, requests: by_party, for_all_parties: true })
    }

    /// Returns the parties that sent requests, with the fingerprints of their identities.
    ///
    /// # Errors
    /// Fails only if a request is invalid, which was checked when the plan was made.
    pub fn fingerprints(&self) -> Result<Vec<(PartyId, Fingerprint)>, Error> {
        let requests = self.requests.iter();
        requests
            .map(|(&party, request)| Ok((party, Fingerprint::of_identity(&request.check(&self.task_file)?))))
            .collect()
    }

    /// Returns the task's parameters.
    pub fn task(&self) -> &TaskParams {
        &self.task
    }

    fn parties(&self) -> impl Iterator<Item = PartyId> {
        let users = (1..=self.task_file.task.users).filter_map(UserId::new).map(PartyId::User);
        [PartyId::KeyGenerator, PartyId::Aggregator].into_iter().chain(users)
    }
}

/// Returns the initial weights of a linear model, and the contents of its file if there is one.
fn initial_weights(
    linear: &LinearSections,
    beside: impl Fn(&Path) -> PathBuf,
) -> Result<(Weights, Option<Vec<u8>>), Error> {
    let (features, classes) = (linear.model.features as usize, linear.model.classes as usize);
    let Some(file) = &linear.model.initial else {
        return Ok((Weights::zeros(features, classes).map_err(dphe_federate::Error::Learn)?, None));
    };
    let path = beside(file);
    let model = Model::read(&path)?;
    let bytes = model.to_bytes().map_err(|reason| ModelError::Format { path, reason })?;
    if (model.weights.features(), model.weights.classes()) != (features, classes) {
        return Err(Error::Model { reason: "the initial model does not have the shape of the task" });
    }
    Ok((model.weights, Some(bytes)))
}

/// The contents of a task's kits, not yet written.
pub struct KitSet<'a> {
    plan: &'a KitPlan,
    keys: KeyGenerator,
    /// The decryption key as stored, and whether it needs a passphrase.
    sealed: Zeroizing<Vec<u8>>,
    passphrase: bool,
    /// The identities of parties that sent no request, whose secret keys are created here.
    own: BTreeMap<PartyId, IdentityKey>,
    identities: BTreeMap<PartyId, Identity>,
    roster: Arc<Roster>,
    user_keys: BTreeMap<UserId, UserKeys>,
}

/// The contents of a user's kit in memory, for load tests with thousands of users in one process.
pub struct UserKit {
    /// The user.
    pub user: UserId,
    /// The secret key of the identity.
    pub identity: IdentityKey,
    /// The seeds and the encryption key.
    pub keys: UserKeys,
    /// The user's side of TLS.
    pub tls: TlsIdentity,
}

impl<'a> KitSet<'a> {
    /// Creates the seeds, identities and roster of a task that uses this decryption key.
    ///
    /// # Errors
    /// Fails if the key does not have the task's length and noise mode.
    pub fn new(
        plan: &'a KitPlan,
        key: DecryptionKey,
        protection: &Protection,
        rng: &mut impl CryptoRng,
    ) -> Result<Self, Error> {
        let empty = Zeroizing::new(Vec::new());
        let (words, passphrase) = match protection {
            Protection::Passphrase(words) => (words, true),
            Protection::FileMode => (&empty, false),
        };
        let sealed = key.to_encrypted_bytes(words, PassphraseCost::STANDARD, rng)?.into();
        let mut keys = KeyGenerator::with_key(plan.task.clone(), key, rng)?;
        let mut own: BTreeMap<PartyId, IdentityKey> = BTreeMap::new();
        let mut identities: BTreeMap<PartyId, Identity> = BTreeMap::new();
        for party in plan.parties() {
            let identity = match plan.requests.get(&party) {
                Some(request) => request.check(&plan.task_file)?,
                None => own.entry(party).or_insert_with(|| IdentityKey::generate(rng)).identity(),
            };
            identities.insert(party, identity);
        }
        let users = identities.iter().filter_map(|(party, identity)| match party {
            PartyId::User(user) => Some((*user, *identity)),
            _ => None,
        });
        let (Some(aggregator), Some(generator)) =
            (identities.get(&PartyId::Aggregator), own.get(&PartyId::KeyGenerator))
        else {
            return Err(NO_IDENTITY);
        };
        let agreement = match (plan.requests.get(&PartyId::Aggregator), own.get(&PartyId::Aggregator)) {
            (Some(request), _) => request.agreement()?,
            (None, Some(identity)) => identity.agreement_key().public(),
            (None, None) => return Err(NO_IDENTITY),
        };
        let roster = RosterPlan {
            task: plan.task.clone(),
            key: keys.encryption_key(),
            initial_model: Digest::of_model(&plan.initial),
            task_file: Digest::of_task_file(plan.text.as_bytes()),
            aggregator: *aggregator,
            agreement,
            users: users.collect(),
        };
        let roster = Roster::new(roster, generator)?;
        let user_keys = roster.users().map(|user| (user, keys.enroll(user, rng))).collect();
        let roster = Arc::new(roster);
        Ok(Self { plan, keys, sealed, passphrase, own, identities, roster, user_keys })
    }

    /// Returns the roster.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Returns the contents of a user's kit.
    ///
    /// # Errors
    /// Fails if there is no such user, or if the user sent a request and keeps its own keys.
    pub fn user(&self, user: UserId) -> Result<UserKit, Error> {
        let party = PartyId::User(user);
        let identity = self.own.get(&party).ok_or(NO_IDENTITY)?;
        let keys = self.user_keys.get(&user).ok_or(NO_KEYS)?.clone();
        let copy = || IdentityKey::from_secret_bytes(&identity.to_secret_bytes());
        let tls = TlsIdentity::new(copy()?, self.roster.clone());
        Ok(UserKit { user, identity: copy()?, keys, tls })
    }

    /// Writes the kit of a party into a new directory inside `output` and returns its path.
    ///
    /// # Errors
    /// Fails if the directory already exists or cannot be written.
    pub fn write(&self, party: PartyId, output: &Path, rng: &mut impl CryptoRng) -> Result<PathBuf, Error> {
        let plan = self.plan;
        let folder = output.join(party_name(party));
        make_folder(&folder)?;
        let public = |name: &str, bytes: &[u8]| write_public(&folder.join(name), bytes);
        let secret = |name: &str, bytes: &[u8]| write_secret(&folder.join(name), bytes);
        let kit = KitFile {
            format: FORMAT,
            party: party_name(party),
            task: plan.task_file.task.name.clone(),
            task_id: plan.task.id().to_string(),
            roster_hash: hex::encode(self.roster.hash().as_bytes()),
            passphrase: (party == PartyId::KeyGenerator).then_some(self.passphrase),
            for_all_parties: plan.for_all_parties,
        };
        let kit = toml::to_string(&kit)
            .map_err(|_| Error::Unexpected { what: "the kit cannot be written as TOML" })?;
        public("task.toml", plan.text.as_bytes())?;
        public("roster.bin", self.roster.as_bytes())?;
        if let Some(start) = &plan.start {
            public(START, start)?;
        }
        if let Some(identity) = self.own.get(&party) {
            secret(IDENTITY, &identity.to_secret_bytes())?;
        }
        match party {
            PartyId::KeyGenerator => {
                secret(SEEDS, &self.keys.to_secret_bytes())?;
                secret("paillier.key", &self.sealed)?;
            }
            PartyId::Aggregator => {
                secret(SEEDS, &self.keys.aggregator_keys().to_secret_bytes())?;
                public("initial.model", &plan.initial)?;
                let mut token = Zeroizing::new([0; 16]);
                rng.fill_bytes(&mut token[..]);
                secret(DASHBOARD_TOKEN, Zeroizing::new(hex::encode(&token[..]) + "\n").as_bytes())?;
            }
            PartyId::User(user) => {
                let keys = self.user_keys.get(&user).ok_or(NO_KEYS)?;
                secret(SEEDS, &keys.to_secret_bytes())?;
                public("initial.model", &plan.initial)?;
            }
        }
        let own = self.own.contains_key(&party);
        public("README.txt", instructions(party, &plan.task_file, own).as_bytes())?;
        // written last, so that an incomplete kit is not mistaken for a kit
        public("kit.toml", kit.as_bytes())?;
        Ok(folder)
    }
}

/// Tells the person who gets a kit what to do with it. `own` says whether the kit has the identity key.
fn instructions(party: PartyId, task_file: &TaskFile, own: bool) -> String {
    let (name, task) = (party_name(party), &task_file.task.name);
    let identity = if own { "" } else { " --identity FILE" };
    let start = match party {
        PartyId::KeyGenerator | PartyId::Aggregator => format!("dphe serve {name}"),
        PartyId::User(_) => "dphe join".to_owned(),
    };
    let more = match (party, &task_file.trained) {
        (PartyId::KeyGenerator | PartyId::Aggregator, _) => "",
        (PartyId::User(_), Trained::Linear(_)) => " \\\n           --features FEATURES -o model.safetensors",
        (PartyId::User(_), Trained::Tensors(_)) => " \\\n           --trainer COMMAND -o model.safetensors",
    };
    let file = if own {
        String::new()
    } else {
        format!("   FILE is the identity.key that `dphe keygen --request {name}` made on this machine.\n")
    };
    format!(
        "This is the kit of {name} for the task {task:?}. It holds secrets of this party: nobody else may read it.\n\n\
         1. Check it:\n       dphe doctor --kit .{identity}\n{file}\
         2. By telephone, compare the hash of the roster that this prints with the other parties.\n\
         3. Start, where HASH is that hash and DATA a new directory that is backed up:\n       \
         {start} --kit .{identity} --data DATA --roster HASH{more}\n\n\
         The first start moves the seeds into DATA. From then on, this kit and DATA belong together.\n"
    )
}

const NO_IDENTITY: Error = Error::Unexpected { what: "a party has no identity" };
const NO_KEYS: Error = Error::Unexpected { what: "a user has no keys" };

/// The kits of a task, as written.
pub struct MadeKits {
    /// The roster.
    pub roster: Arc<Roster>,
    /// The kits' directories.
    pub folders: Vec<PathBuf>,
}

/// Creates all kits of a task in a new directory, with this decryption key.
///
/// # Errors
/// Fails if a directory already exists or cannot be written, or if the key does not have the task's length and noise
/// mode.
pub fn make_kits(
    plan: &KitPlan,
    key: DecryptionKey,
    output: &Path,
    protection: &Protection,
    rng: &mut impl CryptoRng,
) -> Result<MadeKits, Error> {
    make_folder(output)?;
    let kits = KitSet::new(plan, key, protection, rng)?;
    let folders = kits.identities.keys().map(|&party| kits.write(party, output, rng));
    Ok(MadeKits { folders: folders.collect::<Result<_, _>>()?, roster: kits.roster.clone() })
}

/// Creates a directory that only its owner can access.
pub(super) fn make_folder(folder: &Path) -> Result<(), Error> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => KitError::Exists { folder: folder.into() }.into(),
        _ => KeyFileError::Write { path: folder.into(), source }.into(),
    })
}
