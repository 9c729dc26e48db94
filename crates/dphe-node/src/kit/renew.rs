//! New certificates for a task that goes on. The authority, the roster and all keys of the protocol stay.

use std::path::{Path, PathBuf};

use dphe::Party;
use zeroize::Zeroizing;

use super::{FORMAT, Kit, KitError, Request, hex, make::make_folder, read, read_secret};
use crate::Error;
use crate::certificates::{
    Authority, TlsIdentity, Validity, certificate_name, new_key, read_request, request, role_name,
};
use crate::files::{replace, replace_private};
use crate::key_file::{KeyFileError, write_public, write_secret};

const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "tls.key";

/// Makes a new TLS key of a party in a new folder, and the request that goes to the key generator: nothing secret.
///
/// # Errors
/// If the folder is there already or cannot be written.
pub fn request_certificate(kit: &Kit, folder: &Path) -> Result<(), Error> {
    let (task, identity) = (kit.roster().task().id(), kit.roster().identity(kit.party())?);
    let key = new_key()?;
    let name = certificate_name(task, kit.party(), identity);
    let request = Request {
        format: FORMAT,
        party: role_name(kit.party()),
        task_id: task.to_string(),
        identity: hex(&identity.to_bytes()),
        request: request(&name, &key)?,
    };
    make_folder(folder)?;
    write_secret(&folder.join(KEY), Zeroizing::new(key.serialize_pem()).as_bytes())?;
    let text =
        toml::to_string(&request).map_err(|_| Error::Unexpected { what: "a request that is no TOML" })?;
    write_public(&folder.join("request.toml"), text.as_bytes())?;
    Ok(())
}

/// Makes new certificates, with the authority of the key generator's kit: with new keys for these parties, without for
/// those that sent a request. Returns a folder a party.
///
/// # Errors
/// If it is not the key generator's kit, a party is not of the task, or something is there already.
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
        let name = certificate_name(task, party, kit.roster().identity(party)?);
        let key = new_key()?;
        let pem = authority.issue(&name, &key, validity)?;
        made.push((party, pem, Some(Zeroizing::new(key.serialize_pem()))));
    }
    for request in requests {
        let party = request.party()?;
        let (identity, pem) = request.check(kit.task_file())?;
        let refuse = |reason: &str| KitError::Request { party: role_name(party), reason: reason.into() };
        if *kit.roster().identity(party)? != identity {
            return Err(refuse("the roster has another identity for this party").into());
        }
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

/// Puts a new certificate and its key into a kit, if they are this party's and hold. What was there before is kept beside
/// them, with `.old` behind its name. Returns from when to when the certificate is valid.
///
/// # Errors
/// If they do not belong to the kit, or cannot be written.
pub fn install_certificate(kit: &Kit, certificate: &Path, key: &Path) -> Result<Validity, Error> {
    let open = |path: &Path| crate::key_file::read(path);
    let (new, key_file) = (open(certificate)?.bytes, open(key)?);
    key_file.refuse_readable_by_others()?;
    let tls = TlsIdentity::from_pem(&read(kit.folder(), "authority.pem")?, &new, &key_file.bytes)?;
    let foreign = |reason: &str| KitError::Foreign { file: certificate.into(), reason: reason.into() };
    if tls.name() != kit.tls().name() {
        return Err(foreign("it names another party or task").into());
    }
    // a pair, made by the task's authority, and valid today
    tls.client()?;
    tls.check()?;
    let validity = tls.validity().ok_or_else(|| foreign("it does not say how long it is valid"))?;
    let put = |name: &str, bytes: &[u8], secret: bool| {
        let path = kit.folder().join(name);
        let write = if secret { replace_private } else { replace };
        write(&path, bytes).map_err(|source| KeyFileError::Write { path, source })
    };
    put("certificate.pem.old", &read(kit.folder(), CERTIFICATE)?, false)?;
    put("tls.key.old", &read_secret(kit.folder(), KEY)?, true)?;
    // should the machine stop between the two, the kit is refused until this is done again
    put(KEY, &key_file.bytes, true)?;
    put(CERTIFICATE, &new, false)?;
    Ok(validity)
}
