//! Renews certificates of a running task. The CA, the roster and all protocol keys stay the same.

use std::path::{Path, PathBuf};

use dphe::{KeyLengths, PartyId};
use zeroize::Zeroizing;

use super::{Kit, KitError, Request, make::make_folder, read, read_secret};
use crate::Error;
use crate::certificates::{
    Authority, TlsIdentity, Validity, certificate_name, new_key, party_name, read_request,
};
use crate::files::{replace, replace_private};
use crate::key_file::{KeyFileError, write_public, write_secret};

const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "tls.key";
/// The files that the last installation replaced.
const OLD_CERTIFICATE: &str = "certificate.pem.old";
const OLD_KEY: &str = "tls.key.old";

/// Creates a new TLS key for a party in a new directory, and a signed request without secrets for the key generator.
///
/// # Errors
/// Fails if the directory already exists or cannot be written.
pub fn request_certificate(kit: &Kit, folder: &Path) -> Result<(), Error> {
    let (task, identity, key) = (kit.roster().task().id(), kit.identity()?, new_key()?);
    let request = Request::new(task, kit.party(), &identity.identity(), &key)?.signed(task, &identity);
    make_folder(folder)?;
    request.write(folder, &key)
}

/// Issues new certificates with the CA of the key generator's kit. Each of `parties` also gets a new key; a party that
/// sent a request keeps its own. Returns one directory per party.
///
/// # Errors
/// Fails if this is not the key generator's kit, a party is not in the roster, a request is not signed by the party
/// that it names, or a directory already exists.
pub fn issue_certificates(
    kit: &Kit,
    parties: &[PartyId],
    requests: &[Request],
    days: u32,
    output: &Path,
) -> Result<Vec<PathBuf>, Error> {
    if kit.party() != PartyId::KeyGenerator {
        return Err(kit.role("the key generator").into());
    }
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map(Zeroizing::new);
    let damaged = |_| Error::Certificate { reason: "the CA certificate or key is not text".into() };
    let certificate = text(&read(kit.folder(), "authority.pem")?).map_err(damaged)?;
    let key = text(&read_secret(kit.folder(), "authority.key")?).map_err(damaged)?;
    let authority = Authority::from_pem(&certificate, &key)?;
    let (task, validity) = (kit.roster().task().id(), Validity::days(days));
    // check everything before writing anything
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
        let refuse = |reason: &str| KitError::Request { party: party_name(party), reason: reason.into() };
        if kit.roster().identity(party)? != identity {
            return Err(refuse("the roster has another identity for this party").into());
        }
        request.check_signature(task, &identity)?;
        if made.iter().any(|(known, ..)| *known == party) {
            return Err(refuse("two certificates were asked for this party").into());
        }
        let name = certificate_name(task, party, &identity);
        made.push((party, authority.issue(&name, &read_request(pem, &name)?, validity)?, None));
    }
    make_folder(output)?;
    let mut folders = Vec::new();
    for (party, certificate, key) in made {
        let folder = output.join(party_name(party));
        make_folder(&folder)?;
        if let Some(key) = key {
            write_secret(&folder.join(KEY), key.as_bytes())?;
        }
        write_public(&folder.join(CERTIFICATE), certificate.as_bytes())?;
        folders.push(folder);
    }
    Ok(folders)
}

/// Installs a new certificate and its key in a kit, after checking that they are valid and belong to its party. The
/// previous files are kept with the suffix `.old`. Returns the kit's party and the validity of the certificate.
///
/// # Errors
/// Fails if `folder` is not a kit, the certificate does not belong to it, or a file cannot be written.
pub fn install_certificate(
    folder: &Path,
    certificate: &Path,
    key: &Path,
    key_lengths: KeyLengths,
) -> Result<(PartyId, Validity), Error> {
    let kit = match Kit::read_with(folder, key_lengths) {
        Ok(kit) => kit,
        Err(error) => {
            if !put_back(folder)? {
                return Err(error);
            }
            Kit::read_with(folder, key_lengths)?
        }
    };
    let open = |path: &Path| crate::key_file::read(path);
    let (new, key_file) = (open(certificate)?.bytes, open(key)?);
    key_file.refuse_readable_by_others()?;
    let tls = TlsIdentity::from_pem(&read(folder, "authority.pem")?, &new, &key_file.bytes)?;
    let foreign = |reason: &str| KitError::Foreign { file: certificate.into(), reason: reason.into() };
    if tls.name() != kit.tls().name() {
        return Err(foreign("the certificate names another party or task").into());
    }
    // key and certificate must be a pair, issued by the task's CA, and valid today
    tls.client()?;
    tls.check()?;
    let validity = tls.validity().ok_or_else(|| foreign("the certificate has no validity period"))?;
    put(folder, OLD_CERTIFICATE, &read(folder, CERTIFICATE)?)?;
    put_secret(folder, OLD_KEY, &read_secret(folder, KEY)?)?;
    // after a crash between these two writes the kit is refused until this function is called again
    put_secret(folder, KEY, &key_file.bytes)?;
    put(folder, CERTIFICATE, &new)?;
    Ok((kit.party(), validity))
}

/// Undoes an installation that crashed between its two writes, by restoring the previous key and certificate. Returns
/// false, and changes nothing, if the kit is broken for another reason.
fn put_back(folder: &Path) -> Result<bool, Error> {
    let files = |certificate: &str, key: &str| {
        Ok::<_, KeyFileError>((read(folder, certificate)?, read_secret(folder, key)?))
    };
    // a file that cannot be read is another fault, which Kit::read has reported
    let (Ok(now), Ok(old), Ok(authority)) =
        (files(CERTIFICATE, KEY), files(OLD_CERTIFICATE, OLD_KEY), read(folder, "authority.pem"))
    else {
        return Ok(false);
    };
    let pair = |(certificate, key): &(Zeroizing<Vec<u8>>, Zeroizing<Vec<u8>>)| {
        TlsIdentity::from_pem(&authority, certificate, key).and_then(|tls| tls.client()).is_ok()
    };
    // never replace a valid pair by an older one
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
