//! Making the kits of a task.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dphe::{Identity, IdentityKey, KeyGenerator, Party, Roster, TaskParams, UserId, UserKeys};
use dphe_paillier::{DecryptionKey, PassphraseCost};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use super::{FORMAT, KitError, KitFile, Request, START, WATCH_TOKEN, hex};
use crate::Error;
use crate::certificates::{
    Authority, TlsIdentity, Validity, certificate_name, new_key, read_request, role_name,
};
use crate::key_file::{KeyFileError, write_public, write_secret};
use crate::learning::model_to_bytes;
use crate::model::{Model, ModelError};
use crate::task_file::{ProfileName, TaskFile};

/// How the key that decrypts is kept.
pub enum Protection {
    /// Under a passphrase.
    Passphrase(Zeroizing<Vec<u8>>),
    /// By the mode of its file alone: whoever can read the disk has the key.
    FileMode,
}

/// A task whose numbers have been checked, before minutes are spent on its key.
pub struct KitPlan {
    task_file: TaskFile,
    text: String,
    task: TaskParams,
    initial: Vec<u8>,
    /// The file of the initial model, if there is one.
    start: Option<Vec<u8>>,
    requests: BTreeMap<Party, Request>,
}

impl KitPlan {
    /// Checks a task file, the initial model it names, and requests.
    ///
    /// # Errors
    /// If the task cannot be, or a request is not of it.
    pub fn new(path: &Path, requests: Vec<Request>) -> Result<Self, Error> {
        let task_file = TaskFile::read(path)?;
        let text = std::fs::read_to_string(path)
            .map_err(|source| KeyFileError::Read { path: path.into(), source })?;
        let (features, classes) = (task_file.model.features as usize, task_file.model.classes as usize);
        let (initial, start) = match &task_file.model.initial {
            None => {
                let zeros = dphe_learn::Weights::zeros(features, classes);
                (zeros.map_err(dphe_federate::Error::Learn)?, None)
            }
            Some(file) => {
                // relative to the task file, so that both can be handed on together
                let path = path.parent().unwrap_or(Path::new(".")).join(file);
                let model = Model::read(&path)?;
                let bytes = model.to_bytes().map_err(|reason| ModelError::Format { path, reason })?;
                if (model.weights.features(), model.weights.classes()) != (features, classes) {
                    return Err(Error::Model { reason: "the initial model has another shape than the task" });
                }
                (model.weights, Some(bytes))
            }
        };
        let config = task_file.config(&initial)?;
        let trainer = task_file.trainer().map_err(dphe_federate::Error::Learn)?;
        let Some(id) = task_file.id() else { return Err(Error::Unexpected { what: "a task without an id" }) };
        let task = match task_file.policy.profile {
            // short keys are for reproduction, and tagged as such everywhere
            ProfileName::Paper => dphe::hazmat::task_params(id, config)?,
            _ => TaskParams::new(id, config)?,
        };
        let codec = dphe_federate::Codec::new(task.clone(), dphe_federate::Weighting::Equal)?;
        codec.check(&initial, trainer.message())?;
        let mut by_party = BTreeMap::new();
        for request in requests {
            let party = request.party()?;
            let known = match party {
                Party::Aggregator => true,
                // it is the one who makes the kits
                Party::KeyGenerator => false,
                Party::User(user) => user.get() <= task_file.task.users,
            };
            let error = |reason: &str| KitError::Request { party: role_name(party), reason: reason.into() };
            if !known {
                return Err(error("the task has no such party").into());
            }
            request.check(&task_file)?;
            if by_party.insert(party, request).is_some() {
                return Err(error("there are two of them").into());
            }
        }
        let initial = model_to_bytes(&initial);
        Ok(Self { task_file, text, task, initial, start, requests: by_party })
    }

    /// The task.
    pub fn task(&self) -> &TaskParams {
        &self.task
    }

    fn parties(&self) -> impl Iterator<Item = Party> {
        let users = (1..=self.task_file.task.users).filter_map(UserId::new).map(Party::User);
        [Party::KeyGenerator, Party::Aggregator].into_iter().chain(users)
    }
}

/// What goes into the kits of a task: made, and not yet written.
pub struct KitSet<'a> {
    plan: &'a KitPlan,
    keys: KeyGenerator,
    /// The key that decrypts, as it is stored, and whether a passphrase opens it.
    sealed: Zeroizing<Vec<u8>>,
    passphrase: bool,
    /// Identities whose keys are made here.
    own: BTreeMap<Party, IdentityKey>,
    identities: BTreeMap<Party, Identity>,
    roster: Roster,
    user_keys: BTreeMap<UserId, UserKeys>,
    authority: Authority,
    validity: Validity,
}

/// What a user's kit holds, without a folder: for thousands of users in one process.
pub struct UserKit {
    /// The user.
    pub user: UserId,
    /// The identity's secret key.
    pub identity: IdentityKey,
    /// Seeds and the encryption key.
    pub keys: UserKeys,
    /// A new certificate and its key.
    pub tls: TlsIdentity,
}

impl<'a> KitSet<'a> {
    /// Makes keys, identities and the roster of a task, with this key.
    ///
    /// # Errors
    /// If the key is not of the task's length and mode.
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
        let sealed = key.seal(words, PassphraseCost::STANDARD, rng)?.into();
        let mut keys = KeyGenerator::with_key(plan.task.clone(), key, rng)?;
        let mut own: BTreeMap<Party, IdentityKey> = BTreeMap::new();
        let mut identities: BTreeMap<Party, Identity> = BTreeMap::new();
        for party in plan.parties() {
            let identity = match plan.requests.get(&party) {
                Some(request) => request.check(&plan.task_file)?.0,
                None => own.entry(party).or_insert_with(|| IdentityKey::generate(rng)).identity(),
            };
            identities.insert(party, identity);
        }
        let users = identities.iter().filter_map(|(party, identity)| match party {
            Party::User(user) => Some((*user, *identity)),
            _ => None,
        });
        let (Some(aggregator), Some(generator)) =
            (identities.get(&Party::Aggregator), own.get(&Party::KeyGenerator))
        else {
            return Err(NO_IDENTITY);
        };
        let roster = Roster::new(
            plan.task.clone(),
            1,
            keys.encryption_key(),
            *aggregator,
            generator,
            users.collect(),
        )?;
        let user_keys = roster.users().map(|user| (user, keys.enroll(user, rng))).collect();
        let validity = Validity::days(plan.task_file.task.valid_days);
        let authority = Authority::new(plan.task.id(), validity)?;
        Ok(Self { plan, keys, sealed, passphrase, own, identities, roster, user_keys, authority, validity })
    }

    /// The roster.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// What the kit of a user would hold.
    ///
    /// # Errors
    /// If there is no such user, or its keys are made elsewhere.
    pub fn user(&self, user: UserId) -> Result<UserKit, Error> {
        let party = Party::User(user);
        let identity = self.own.get(&party).ok_or(NO_IDENTITY)?;
        let keys = self.user_keys.get(&user).ok_or(NO_KEYS)?.clone();
        let name = certificate_name(self.plan.task.id(), party, &identity.identity());
        let key = new_key()?;
        let certificate = self.authority.issue(&name, &key, self.validity)?;
        let tls = TlsIdentity::from_pem(
            self.authority.certificate_pem().as_bytes(),
            certificate.as_bytes(),
            Zeroizing::new(key.serialize_pem()).as_bytes(),
        )?;
        Ok(UserKit { user, identity: IdentityKey::from_kit_bytes(&identity.to_kit_bytes())?, keys, tls })
    }

    /// Writes the kit of a party into a new folder of this one, which is returned.
    ///
    /// # Errors
    /// If it is there already or cannot be written.
    pub fn write(&self, party: Party, output: &Path, rng: &mut impl CryptoRng) -> Result<PathBuf, Error> {
        let plan = self.plan;
        let identity = self.identities.get(&party).ok_or(NO_IDENTITY)?;
        let folder = output.join(role_name(party));
        make_folder(&folder)?;
        let public = |name: &str, bytes: &[u8]| write_public(&folder.join(name), bytes);
        let secret = |name: &str, bytes: &[u8]| write_secret(&folder.join(name), bytes);
        let kit = KitFile {
            format: FORMAT,
            party: role_name(party),
            task: plan.task_file.task.name.clone(),
            task_id: plan.task.id().to_string(),
            roster_hash: hex(self.roster.hash().as_bytes()),
            passphrase: (party == Party::KeyGenerator).then_some(self.passphrase),
        };
        let kit = toml::to_string(&kit).map_err(|_| Error::Unexpected { what: "a kit that is no TOML" })?;
        public("task.toml", plan.text.as_bytes())?;
        public("roster.bin", self.roster.as_bytes())?;
        if let Some(start) = &plan.start {
            public(START, start)?;
        }
        public("authority.pem", self.authority.certificate_pem().as_bytes())?;
        let name = certificate_name(plan.task.id(), party, identity);
        let certificate = match plan.requests.get(&party) {
            Some(request) => {
                let key = read_request(request.check(&plan.task_file)?.1, &name)?;
                self.authority.issue(&name, &key, self.validity)?
            }
            None => {
                let key = new_key()?;
                secret("tls.key", Zeroizing::new(key.serialize_pem()).as_bytes())?;
                self.authority.issue(&name, &key, self.validity)?
            }
        };
        public("certificate.pem", certificate.as_bytes())?;
        if let Some(identity) = self.own.get(&party) {
            secret("identity.key", &identity.to_kit_bytes())?;
        }
        match party {
            Party::KeyGenerator => {
                secret("seeds.bin", &self.keys.to_kit_bytes())?;
                secret("paillier.key", &self.sealed)?;
                secret("authority.key", self.authority.key_pem().as_bytes())?;
            }
            Party::Aggregator => {
                secret("seeds.bin", &self.keys.aggregator_keys().to_kit_bytes())?;
                public("initial.model", &plan.initial)?;
                let mut token = Zeroizing::new([0; 16]);
                rng.fill_bytes(&mut token[..]);
                secret(WATCH_TOKEN, Zeroizing::new(hex(&token[..]) + "\n").as_bytes())?;
            }
            Party::User(user) => {
                let keys = self.user_keys.get(&user).ok_or(NO_KEYS)?;
                secret("seeds.bin", &keys.to_kit_bytes())?;
            }
        }
        // last, so that half a kit is not taken for one
        public("kit.toml", kit.as_bytes())?;
        Ok(folder)
    }
}

const NO_IDENTITY: Error = Error::Unexpected { what: "a party without an identity" };
const NO_KEYS: Error = Error::Unexpected { what: "a user without keys" };

/// Makes all kits of a task in a new folder, with this key. Returns the folders.
///
/// # Errors
/// If something is there already or cannot be written, or the key is not of the task's length and mode.
pub fn make_kits(
    plan: &KitPlan,
    key: DecryptionKey,
    output: &Path,
    protection: &Protection,
    rng: &mut impl CryptoRng,
) -> Result<Vec<PathBuf>, Error> {
    make_folder(output)?;
    let kits = KitSet::new(plan, key, protection, rng)?;
    kits.identities.keys().map(|&party| kits.write(party, output, rng)).collect()
}

/// A new folder for its owner alone.
pub(super) fn make_folder(folder: &Path) -> Result<(), Error> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => KitError::Exists { folder: folder.into() }.into(),
        _ => KeyFileError::Write { path: folder.into(), source }.into(),
    })
}
