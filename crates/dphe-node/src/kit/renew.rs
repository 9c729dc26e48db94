//! New certificates for a task that goes on. The authority, the roster and all keys of the protocol stay.

use std::path::{Path, PathBuf};

use dphe::Party;
use zeroize::Zeroizing;

use super::{Kit, KitError, Request, make::make_folder, read, read_secret};
use crate::Error;
use crate::certificates::{
    Authority, TlsIdentity, Validity, certificate_name, new_key, read_request, role_name,
};
use crate::files::{replace, replace_private};
use crate::key_file::{KeyFileError, write_public, write_secret};

const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "tls.key";
/// What was there before the last installation.
const OLD_CERTIFICATE: &str = "certificate.pem.old";
const OLD_KEY: &str = "tls.key.old";

/// Makes a new TLS key of a party in a new folder, and the request that goes to the key generator: nothing secret, and
/// signed by the party.
///
/// # Errors
/// If the folder is there already or cannot be written.
pub fn request_certificate(kit: &Kit, folder: &Path) -> Result<(), Error> {
    let (task, identity, key) = (kit.roster().task().id(), kit.identity()?, new_key()?);
    let request = Request::new(task, kit.party(), &identity.identity(), &key)?.signed(task, &identity);
    make_folder(folder)?;
    request.write(folder, &key)
}

/// Makes new certificates, with the authority of the key generator's kit: with new keys for these parties, without for
/// those that sent a request. Returns a folder a party.
///
/// # Errors
/// If it is not the key generator's kit, a party is not of the task, a request is not signed by the party it names, or
/// something is there already.
pub fn issue_certificates(
    kit: &Kit,
    parties: &[Party],
    requests: &[Request],
    days: u32,
    output: &Path,
) -> Result<Vec<PathBuf>, Error> {
    if kit.party() != Party::KeyGenerator {
        return Err(kit.role("the key generator").into());
    }
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map(Zeroizing::new);
    let damaged = |_| Error::Certificate { reason: "the authority is no text".into() };
    let certificate = text(&read(kit.folder(), "authority.pem")?).map_err(damaged)?;
    let key = text(&read_secret(kit.folder(), "authority.key")?).map_err(damaged)?;
    let authority = Authority::from_pem(&certificate, &key)?;
    let (task, validity) = (kit.roster().task().id(), Validity::days(days));
    // all is looked at before anything is written
    let mut made = Vec::new();
    for &party in parties {
        let name = certificate_name(task, party, &kit.roster().identity(party)?);
        let key = new_key()?;
        let pem = authority.issue(&name, &key, validity)?;
        made.push((party, pem, Some(Zeroizing::new(key.serialize_pem()))));
    }
    for request in requests {
        let party = request.party()?;
        let (identity, pem) = request.check(kit.task_file())?;
        let refuse = |reason: &str| KitError::Request { party: role_name(party), reason: reason.into() };
        if kit.roster().identity(party)? != identity {
            return Err(refuse("the roster has another identity for this party").into());
        }
        request.check_signature(task, &identity)?;
        if made.iter().any(|(known, ..)| *known == party) {
            return Err(refuse("there are two certificates to be made for it").into());
        }
        let name = certificate_name(task, party, &identity);
        made.push((party, authority.issue(&name, &read_request(pem, &name)?, validity)?, None));
    }
    make_folder(output)?;
    let mut folders = Vec::new();
    for (party, certificate, key) in made {
        let folder = output.join(role_name(party));
        make_folder(&folder)?;
        if let Some(key) = key {
            write_secret(&folder.join(KEY), key.as_bytes())?;
        }
        write_public(&folder.join(CERTIFICATE), certificate.as_bytes())?;
        folders.push(folder);
    }
    Ok(folders)
}

/// Puts a new certificate and its key into the kit in this folder, if they are this party's and hold. What was there
/// before is kept beside them, with `.old` behind its name. Returns whose kit it is, and from when to when the
/// certificate is valid.
///
/// # Errors
/// If there is no kit, they do not belong to it, or cannot be written.
pub fn install_certificate(
    folder: &Path,
    certificate: &Path,
    key: &Path,
) -> Result<(Party, Validity), Error> {
    let kit = match Kit::read(folder) {
        Ok(kit) => kit,
        Err(error) => {
            if !put_back(folder)? {
                return Err(error);
            }
            Kit::read(folder)?
        }
    };
    let open = |path: &Path| crate::key_file::read(path);
    let (new, key_file) = (open(certificate)?.bytes, open(key)?);
    key_file.refuse_readable_by_others()?;
    let tls = TlsIdentity::from_pem(&read(folder, "authority.pem")?, &new, &key_file.bytes)?;
    let foreign = |reason: &str| KitError::Foreign { file: certificate.into(), reason: reason.into() };
    if tls.name() != kit.tls().name() {
        return Err(foreign("it names another party or task").into());
    }
    // a pair, made by the task's authority, and valid today
    tls.client()?;
    tls.check()?;
    let validity = tls.validity().ok_or_else(|| foreign("it does not say how long it is valid"))?;
    put(folder, OLD_CERTIFICATE, &read(folder, CERTIFICATE)?)?;
    put_secret(folder, OLD_KEY, &read_secret(folder, KEY)?)?;
    // should the machine stop between the two, the kit is refused until this is done again
    put_secret(folder, KEY, &key_file.bytes)?;
    put(folder, CERTIFICATE, &new)?;
    Ok((kit.party(), validity))
}

/// Undoes what was stopped between its two writes: the old key and certificate take the place of two that are no pair.
/// `false` if that is not what is wrong with this kit; then nothing is changed.
fn put_back(folder: &Path) -> Result<bool, Error> {
    let files = |certificate: &str, key: &str| {
        Ok::<_, KeyFileError>((read(folder, certificate)?, read_secret(folder, key)?))
    };
    // what cannot be read is another fault, and Kit::read has said so
    let (Ok(now), Ok(old), Ok(authority)) =
        (files(CERTIFICATE, KEY), files(OLD_CERTIFICATE, OLD_KEY), read(folder, "authority.pem"))
    else {
        return Ok(false);
    };
    let pair = |(certificate, key): &(Zeroizing<Vec<u8>>, Zeroizing<Vec<u8>>)| {
        TlsIdentity::from_pem(&authority, certificate, key).and_then(|tls| tls.client()).is_ok()
    };
    // a pair that is whole is never lost to an older one
    if pair(&now) || !pair(&old) {
        return Ok(false);
    }
    put(folder, CERTIFICATE, &old.0)?;
    put_secret(folder, KEY, &old.1)?;
    Ok(true)
}

fn put(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), KeyFileError> {
    let path = folder.join(name);
    replace(&path, bytes).map_err(|source| KeyFileError::Write { path, source })
}

fn put_secret(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), KeyFileError> {
    let path = folder.join(name);
    replace_private(&path, bytes).map_err(|source| KeyFileError::Write { path, source })
}
