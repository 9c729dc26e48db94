//! Changes of the roster: the key generator signs one, and every party applies it to its kit.

use std::path::{Path, PathBuf};

use dphe::party::{Action, ChangedRoster, KeyGeneratorParty, Time};
use dphe::wire::{RosterChange, RosterEdits, Rosters};
use dphe::{
    Error as ProtocolError, IdentityKey, KeyLengths, PartyId, Roster, Round, Threads, UserId, UserKeys,
};
use rand_core::CryptoRng;

use super::make::make_folder;
use super::{
    FORMAT, Fingerprint, Kit, KitError, KitFile, Request, START, Start, read, read_identity, read_secret,
};
use crate::Error;
use crate::hex;
use crate::key_file::{KeyFileError, write_public, write_secret};
use crate::party::party_name;
use crate::store::LogStore;

/// What a new roster changes.
#[derive(Default)]
pub struct KitChange {
    /// The users who leave.
    pub remove: Vec<UserId>,
    /// Requests with the new identities of parties.
    pub replace: Vec<Request>,
}

/// A change that the key generator has made.
#[derive(Debug)]
pub struct MadeChange {
    /// The change, which all parties apply.
    pub file: PathBuf,
    /// The fingerprint of the new roster.
    pub roster: Fingerprint,
    /// The first round of the new roster.
    pub first_round: Round,
    /// The parties with a new identity, with its fingerprint.
    pub replaced: Vec<(PartyId, Fingerprint)>,
    /// The kits of users with a new identity.
    pub kits: Vec<PathBuf>,
}

/// A change that was applied to a kit.
#[derive(Debug)]
pub struct AppliedChange {
    /// The fingerprint of the new roster.
    pub roster: Fingerprint,
    /// The first round of the new roster.
    pub first_round: Round,
    /// The users who leave.
    pub removed: Vec<UserId>,
    /// The parties with a new identity.
    pub replaced: Vec<PartyId>,
}

fn change_file(epoch: u32) -> String {
    format!("roster-{epoch}.change")
}

fn identity_file(epoch: u32) -> String {
    format!("identity-{epoch}.key")
}

/// Reads the changes in a kit that begins with this roster.
pub(super) fn read_rosters(folder: &Path, first: Roster, key_lengths: KeyLengths) -> Result<Rosters, Error> {
    let mut rosters = Rosters::from(first);
    loop {
        let name = change_file(rosters.latest().epoch().saturating_add(1));
        if !folder.join(&name).exists() {
            return Ok(rosters);
        }
        let bytes = read(folder, &name)?;
        rosters.add(&bytes, key_lengths).map_err(|error| KitError::Foreign {
            file: folder.join(&name),
            reason: format!("the change does not follow the roster before it: {error}"),
        })?;
    }
}

/// Reads the key of a party's present identity and those of earlier ones, of which the first is in the file `first`.
/// Returns `None` if the present one is not here.
pub(super) fn read_identities(
    folder: &Path,
    first: &Path,
    party: PartyId,
    rosters: &Rosters,
) -> Result<Option<(IdentityKey, Vec<IdentityKey>)>, Error> {
    let present = rosters.latest().identity(party)?;
    let later = rosters.changes().iter().map(|change| identity_file(change.roster().epoch()));
    let later = later.filter(|name| folder.join(name).exists());
    let mut keys = vec![read_identity(first)?];
    for name in later {
        keys.push(IdentityKey::from_secret_bytes(&read_secret(folder, &name)?)?);
    }
    let at = keys.iter().position(|key| key.identity() == present);
    Ok(at.map(|at| (keys.swap_remove(at), keys)))
}

/// Signs a new roster, stores it in the log of the key generator, and writes the files for the other parties into a
/// new directory. The key generator's service must be stopped.
///
/// # Errors
/// Fails if the change is not allowed, a request is invalid, or a file or the log cannot be written.
pub async fn make_change(
    kit: &Kit,
    passphrase: &[u8],
    mut store: impl LogStore,
    wanted: &KitChange,
    output: &Path,
    rng: &mut impl CryptoRng,
) -> Result<MadeChange, Error> {
    let edits = wanted.edits(kit)?;
    let start = Start::new(kit, &mut store, None).await?;
    let keys = start.key_generator(passphrase)?;
    let started = start.party::<KeyGeneratorParty, _>(keys, &mut store, Threads::ONE, Time(0)).await;
    let (mut party, actions) = started.map_err(|error| match error {
        Error::Protocol(error) => lacks_change(error),
        other => other,
    })?;
    carry_out(&mut store, actions).await?;
    let ChangedRoster { change, user_keys, actions } =
        party.change_roster(&edits, rng).map_err(not_allowed)?;
    make_folder(output)?;
    let roster = change.roster();
    let name = change_file(roster.epoch());
    let kits = user_keys.iter().map(|keys| write_kit(kit, roster, keys, output));
    let kits = kits.collect::<Result<Vec<_>, _>>()?;
    write_public(&output.join(&name), change.as_bytes())?;
    // the log first: without its seeds, the key generator refuses to start with a change in its kit
    carry_out(&mut store, actions).await?;
    write_public(&kit.folder().join(&name), change.as_bytes())?;
    // the key generator made this roster, so it need not compare it
    store.remember_roster(roster.hash()).await?;
    Ok(MadeChange {
        file: output.join(&name),
        roster: Fingerprint::of_roster(roster),
        first_round: roster.first_round(),
        replaced: edits.identities().map(|(party, key)| (party, Fingerprint::of_identity(key))).collect(),
        kits,
    })
}

impl KitChange {
    fn edits(&self, kit: &Kit) -> Result<RosterEdits, Error> {
        let mut edits =
            RosterEdits { removed: self.remove.iter().copied().collect(), ..RosterEdits::default() };
        for request in &self.replace {
            let identity = request.check(kit.task_file())?;
            match request.party()? {
                PartyId::User(user) => {
                    edits.users.insert(user, identity);
                }
                PartyId::Aggregator => edits.aggregator = Some((identity, request.agreement()?)),
                PartyId::KeyGenerator => {
                    return Err(KitError::Change {
                        reason: "the key generator's identity cannot be replaced".into(),
                        hint: "Start a new task from the latest model with `dphe init --model`.",
                    }
                    .into());
                }
            }
        }
        Ok(edits)
    }
}

async fn carry_out(store: &mut impl LogStore, actions: Vec<Action>) -> Result<(), Error> {
    for action in actions {
        match action {
            Action::Append(bytes) => store.append(&bytes).await?,
            Action::Replace(bytes) => store.replace(&bytes).await?,
            // the service sends its messages when it starts
            _ => {}
        }
    }
    Ok(())
}

/// Writes the kit of a user with a new identity, without the secret key, which the user has.
fn write_kit(kit: &Kit, roster: &Roster, keys: &UserKeys, output: &Path) -> Result<PathBuf, Error> {
    let party = PartyId::User(keys.user());
    let folder = output.join(party_name(party));
    make_folder(&folder)?;
    let file = KitFile {
        format: FORMAT,
        party: party_name(party),
        task: kit.task_file().task.name.clone(),
        task_id: roster.task().id().to_string(),
        roster_hash: hex::encode(roster.hash().as_bytes()),
        passphrase: None,
        for_all_parties: false,
    };
    let file = toml::to_string(&file)
        .map_err(|_| Error::Unexpected { what: "the kit cannot be written as TOML" })?;
    write_public(&folder.join("task.toml"), &read(kit.folder(), "task.toml")?)?;
    write_public(&folder.join("roster.bin"), roster.as_bytes())?;
    if kit.folder().join(START).exists() {
        let start = crate::key_file::read_up_to(&kit.folder().join(START), u64::MAX - 1)?;
        write_public(&folder.join(START), &start.bytes)?;
    }
    write_secret(&folder.join("seeds.bin"), &keys.to_secret_bytes())?;
    // written last, so that an incomplete kit is not mistaken for a kit
    write_public(&folder.join("kit.toml"), file.as_bytes())?;
    Ok(folder)
}

/// Applies a change to a kit. `identity` is the new identity key of the aggregator, if the change replaces it. The
/// party follows when it starts again.
///
/// # Errors
/// Fails if the change does not follow the latest roster of the kit, or if the kit's party cannot follow it.
pub fn apply_change(kit: &Kit, file: &Path, identity: Option<&Path>) -> Result<AppliedChange, Error> {
    let bytes = crate::key_file::read_up_to(file, super::MAX_BYTES)?.bytes;
    let (latest, party) = (kit.roster(), kit.party());
    let change = RosterChange::decode_with(&bytes, latest, kit.key_lengths).map_err(|error| {
        let (reason, hint) = match error {
            ProtocolError::Roster => (
                format!("it does not follow roster {}, the latest one of this kit", latest.epoch()),
                "Apply the changes in the order of their numbers, each once.",
            ),
            other => (other.to_string(), "Get the file again from the operator of the key generator."),
        };
        KitError::Change { reason, hint }
    })?;
    let roster = change.roster();
    let name = party_name(party);
    let refused = |reason, hint| Error::from(KitError::Change { reason, hint });
    let Ok(own) = roster.identity(party) else {
        return Err(refused(
            format!("{name} is not in the new roster"),
            "Keep the data if you need the models. This party cannot take part any more.",
        ));
    };
    if own != latest.identity(party)? {
        let (PartyId::Aggregator, Some(identity)) = (party, identity) else {
            return Err(match party {
                PartyId::Aggregator => refused(
                    "it replaces the aggregator's identity".into(),
                    "Pass the new secret key with `--identity`.",
                ),
                _ => refused(
                    format!("it replaces the identity of {name}"),
                    "Use the new kit from the operator of the key generator, with a new data directory.",
                ),
            });
        };
        let secret = crate::key_file::read(identity)?;
        secret.refuse_readable_by_others()?;
        if IdentityKey::from_secret_bytes(&secret.bytes)?.identity() != own {
            let reason = "the key is not that of the new roster".into();
            return Err(KitError::Foreign { file: identity.into(), reason }.into());
        }
        write_again(&kit.folder().join(identity_file(roster.epoch())), &secret.bytes, write_secret)?;
    }
    write_again(&kit.folder().join(change_file(roster.epoch())), &bytes, write_public)?;
    let identity = |roster: &Roster, party| roster.identity(party).ok();
    let users = latest.users().map(PartyId::User);
    let replaced = [PartyId::Aggregator].into_iter().chain(users).filter(|&party| {
        identity(roster, party).is_some() && identity(roster, party) != identity(latest, party)
    });
    Ok(AppliedChange {
        roster: Fingerprint::of_roster(roster),
        first_round: roster.first_round(),
        removed: latest.users().filter(|&user| !roster.contains(user)).collect(),
        replaced: replaced.collect(),
    })
}

/// Writes a file unless an earlier attempt has written it.
fn write_again(
    path: &Path,
    bytes: &[u8],
    write: impl Fn(&Path, &[u8]) -> Result<(), KeyFileError>,
) -> Result<(), Error> {
    match crate::key_file::read_up_to(path, super::MAX_BYTES) {
        Ok(file) if *file.bytes == *bytes => Ok(()),
        _ => Ok(write(path, bytes)?),
    }
}

/// Explains why the key generator does not start with this kit.
fn lacks_change(error: ProtocolError) -> Error {
    match error {
        ProtocolError::Storage { reason } => KitError::Change {
            reason: reason.to_owned(),
            hint: "Apply the change that was made last to the key generator's kit with `dphe roster apply`.",
        }
        .into(),
        other => other.into(),
    }
}

/// Explains why the key generator does not sign a change.
fn not_allowed(error: ProtocolError) -> Error {
    let (reason, hint) = match &error {
        ProtocolError::SetSmall { users, floor } => (
            format!("{users} users would be left, and the task needs {floor} for a sum"),
            "Start a new task with other users and the latest model (`dphe init --model`).",
        ),
        ProtocolError::UnknownUser(user) => (
            format!("user {user} is not in the roster"),
            "Users can leave or be replaced. A new task is needed to add one.",
        ),
        ProtocolError::Roster => (
            "two parties would have the same identity".to_owned(),
            "Make a new request with a new key, with `dphe keygen --request`.",
        ),
        ProtocolError::Profile { .. } => {
            ("the profile `paper` has one roster only".to_owned(), "Make a new task.")
        }
        _ => return error.into(),
    };
    KitError::Change { reason, hint }.into()
}
