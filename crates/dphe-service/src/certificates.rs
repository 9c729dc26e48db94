//! The certificates of a task. Each task has its own certificate authority (CA). A party's certificate names its
//! role, the task and its identity in the roster.

use std::sync::Arc;

use dphe::{Identity, PartyId, Roster, TaskId, UserId};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName as RawName, RootCertStore,
    ServerConfig, SignatureScheme,
};
use time::{Duration, OffsetDateTime};
use zeroize::Zeroizing;

use crate::Error;

/// The suffix of names in certificates. It is reserved and never resolves on the Internet.
const DOMAIN: &str = "dphe.internal";

/// Returns the name of a party as in directory names, such as `user-3`.
pub fn party_name(party: PartyId) -> String {
    match party {
        PartyId::Aggregator => "aggregator".into(),
        PartyId::KeyGenerator => "key-generator".into(),
        PartyId::User(user) => format!("user-{user}"),
    }
}

/// Returns the party with this name.
pub fn party_of(name: &str) -> Option<PartyId> {
    match name {
        "aggregator" => Some(PartyId::Aggregator),
        "key-generator" => Some(PartyId::KeyGenerator),
        _ => {
            let user = name.strip_prefix("user-")?.parse().ok().and_then(UserId::new)?;
            // each party has one name: no leading zeros or signs
            (party_name(PartyId::User(user)) == name).then_some(PartyId::User(user))
        }
    }
}

/// Returns the name in a party's certificate: the party, the task, and the beginning of the identity in the roster.
pub fn certificate_name(task: TaskId, party: PartyId, identity: &Identity) -> String {
    let identity = crate::hex::encode(&identity.to_bytes()[..16]);
    format!("{}.{task}.{identity}.{DOMAIN}", party_name(party))
}

/// The validity period of a certificate.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    /// The first moment.
    pub from: OffsetDateTime,
    /// The last moment.
    pub to: OffsetDateTime,
}

impl Validity {
    /// Returns a period of this many days from now. It starts one day earlier, because clocks differ.
    pub fn days(days: u32) -> Self {
        let now = OffsetDateTime::now_utc();
        Self { from: now - Duration::days(1), to: now + Duration::days(days.into()) }
    }
}

/// The CA of one task. A person who has its key can impersonate any party in TLS, but cannot
/// sign protocol messages.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    /// Creates a CA with a new key.
    ///
    /// # Errors
    /// Fails if the operating system has no randomness.
    pub fn new(task: TaskId, validity: Validity) -> Result<Self, Error> {
        let key = KeyPair::generate().map_err(certificate_error)?;
        let mut params = params(&format!("dphe task {task}"), validity);
        // the CA certifies parties, never another CA
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(certificate_error)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate })
    }

    /// Reads a stored CA.
    ///
    /// # Errors
    /// Fails if the certificate or the key is damaged.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, Error> {
        let key = KeyPair::from_pem(key).map_err(certificate_error)?;
        let issuer = Issuer::from_ca_cert_pem(certificate, key).map_err(certificate_error)?;
        Ok(Self { issuer, certificate: certificate.to_owned() })
    }

    /// Returns the CA certificate, which every kit contains.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    /// Returns the CA's private key, for the key generator's kit.
    pub fn key_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.issuer.key().serialize_pem())
    }

    /// Issues a certificate of this name for a public key.
    ///
    /// # Errors
    /// Fails if the name is not allowed in a certificate.
    pub fn issue(&self, name: &str, key: &impl PublicKeyData, validity: Validity) -> Result<String, Error> {
        let mut params = party_params(name, validity)?;
        params.use_authority_key_identifier_extension = true;
        params.signed_by(key, &self.issuer).map(|certificate| certificate.pem()).map_err(certificate_error)
    }
}

/// Creates a TLS key.
///
/// # Errors
/// Fails if the operating system has no randomness.
pub fn new_key() -> Result<KeyPair, Error> {
    KeyPair::generate().map_err(certificate_error)
}

/// Creates a certificate signing request for this name.
///
/// # Errors
/// Fails if the name is not allowed in a certificate.
pub fn request(name: &str, key: &KeyPair) -> Result<String, Error> {
    let params = party_params(name, Validity::days(1))?;
    let request = params.serialize_request(key).map_err(certificate_error)?;
    request.pem().map_err(certificate_error)
}

/// Returns the public key of a certificate signing request for this name.
///
/// # Errors
/// Fails if the request is for another name, or if its signature is invalid.
pub fn read_request(pem: &str, name: &str) -> Result<impl PublicKeyData + use<>, Error> {
    let request = CertificateSigningRequestParams::from_pem(pem).map_err(certificate_error)?;
    let wanted = party_params(name, Validity::days(1))?.subject_alt_names;
    if request.params.subject_alt_names != wanted {
        return Err(Error::Certificate { reason: "the name in the request is not that of the party".into() });
    }
    Ok(request.public_key)
}

fn params(common_name: &str, validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    (params.not_before, params.not_after) = (validity.from, validity.to);
    params
}

fn party_params(name: &str, validity: Validity) -> Result<CertificateParams, Error> {
    let role = name.split('.').next().unwrap_or_default();
    let mut params = params(&format!("dphe {role}"), validity);
    params.subject_alt_names =
        CertificateParams::new(vec![name.to_owned()]).map_err(certificate_error)?.subject_alt_names;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn certificate_error(error: rcgen::Error) -> Error {
    Error::Certificate { reason: error.to_string() }
}

/// A party's certificate and key, and the CA that it trusts.
pub struct TlsIdentity {
    roots: RootCertStore,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl TlsIdentity {
    /// Reads the files of a kit.
    ///
    /// # Errors
    /// Fails if one of the files is damaged.
    pub fn from_pem(authority: &[u8], certificate: &[u8], key: &[u8]) -> Result<Self, Error> {
        let damaged = |what: &'static str| {
            move |error: rustls::pki_types::pem::Error| Error::Certificate {
                reason: format!("{what}: {error}"),
            }
        };
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(authority).map_err(damaged("the CA certificate"))?;
        roots.add(authority).map_err(Error::Tls)?;
        let chain = vec![CertificateDer::from_pem_slice(certificate).map_err(damaged("the certificate"))?];
        let key = PrivateKeyDer::from_pem_slice(key).map_err(damaged("the TLS key"))?;
        Ok(Self { roots, chain, key })
    }

    /// Returns the name in the certificate.
    pub fn name(&self) -> Option<String> {
        self.chain.first().and_then(name_in)
    }

    /// Returns the certificate's validity period.
    pub fn validity(&self) -> Option<Validity> {
        let (_, certificate) = x509_parser::parse_x509_certificate(self.chain.first()?).ok()?;
        let validity = certificate.validity();
        Some(Validity { from: validity.not_before.to_datetime(), to: validity.not_after.to_datetime() })
    }

    /// Fails unless the certificate was issued by the task's CA and is valid now. Neither this function nor TLS
    /// checks the validity period of the CA certificate: it is pinned and lasts as long as the task.
    ///
    /// # Errors
    /// Returns the reason why the certificate is not valid.
    pub fn check(&self) -> Result<(), Error> {
        let roots = Arc::new(self.roots.clone());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
        let verifier = verifier.map_err(|error| Error::Certificate { reason: error.to_string() })?;
        let missing = || Error::Certificate { reason: "there is no certificate".into() };
        let certificate = self.chain.first().ok_or_else(missing)?;
        verifier.verify_client_cert(certificate, &[], UnixTime::now()).map(drop).map_err(Error::Tls)
    }

    /// Returns the TLS configuration of a service that accepts only the parties for which `allowed` is true.
    ///
    /// # Errors
    /// Fails if key and certificate are not a pair.
    pub fn server(
        &self,
        roster: Arc<Roster>,
        allowed: fn(PartyId) -> bool,
    ) -> Result<Arc<ServerConfig>, Error> {
        let provider = provider();
        let inner =
            WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots.clone()), provider.clone())
                .build()
                .map_err(|error| Error::Certificate { reason: error.to_string() })?;
        let verifier = Arc::new(PartyVerifier { inner, roster, allowed });
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Error::Tls)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(Error::Tls)?;
        // no resumption, so that every connection presents its certificate
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// Returns the TLS configuration of a client of the task's services.
    ///
    /// # Errors
    /// Fails if key and certificate are not a pair.
    pub fn client(&self) -> Result<Arc<ClientConfig>, Error> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Error::Tls)?
            .with_root_certificates(self.roots.clone())
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
            .map_err(Error::Tls)?;
        Ok(Arc::new(config))
    }
}

/// Returns the name that a party's certificate must have.
///
/// # Errors
/// Fails if the party is not in the roster.
pub fn server_name(roster: &Roster, party: PartyId) -> Result<ServerName<'static>, Error> {
    let name = certificate_name(roster.task().id(), party, &roster.identity(party)?);
    ServerName::try_from(name).map_err(|error| Error::Certificate { reason: error.to_string() })
}

/// Returns the party of a certificate that a handshake has accepted.
pub fn party_in(certificate: &CertificateDer<'_>) -> Option<PartyId> {
    party_of(name_in(certificate)?.split('.').next()?)
}

fn name_in(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    certificate.valid_dns_names().next().map(str::to_owned)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Accepts certificates of the task's CA whose name is that of an allowed party in the roster. This happens in the TLS
/// handshake, before anything else is read from a client.
#[derive(Debug)]
struct PartyVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    roster: Arc<Roster>,
    allowed: fn(PartyId) -> bool,
}

impl PartyVerifier {
    fn check(&self, certificate: &CertificateDer<'_>) -> Option<()> {
        let name = name_in(certificate)?;
        let party = party_in(certificate).filter(|&party| (self.allowed)(party))?;
        let identity = self.roster.identity(party).ok()?;
        (name == certificate_name(self.roster.task().id(), party, &identity)).then_some(())
    }
}

impl ClientCertVerifier for PartyVerifier {
    fn root_hint_subjects(&self) -> &[RawName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.inner.verify_client_cert(certificate, intermediates, now)?;
        match self.check(certificate) {
            Some(()) => Ok(verified),
            None => Err(rustls::Error::InvalidCertificate(CertificateError::NotValidForName)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn party_names_have_one_form() {
        let parties = [PartyId::Aggregator, PartyId::KeyGenerator, PartyId::User(UserId::new(12).unwrap())];
        for party in parties {
            assert_eq!(party_of(&party_name(party)), Some(party));
        }
        for wrong in ["user-0", "user-012", "user-+1", "user-", "User-1", "aggregator ", "user-4294967296"] {
            assert_eq!(party_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn expired_certificate_is_refused_and_expired_ca_is_not() {
        let task = TaskId::from_bytes([1; 16]);
        let now = OffsetDateTime::now_utc();
        let past = Validity { from: now - Duration::days(30), to: now - Duration::days(10) };
        let (made, key) = (Authority::new(task, past).unwrap(), new_key().unwrap());
        // read back from a kit, long after the CA certificate has expired
        let authority = Authority::from_pem(made.certificate_pem(), &made.key_pem()).unwrap();
        let name = "user-1.a.b.dphe.internal";
        let identity = |authority: &Authority, validity| {
            let certificate = authority.issue(name, &key, validity).unwrap();
            let (pem, key) = (made.certificate_pem().as_bytes(), key.serialize_pem());
            TlsIdentity::from_pem(pem, certificate.as_bytes(), key.as_bytes()).unwrap()
        };
        identity(&authority, Validity::days(5)).check().unwrap();
        let error = identity(&authority, past).check().unwrap_err().to_string();
        assert!(error.contains("expired"), "{error}");
        let other = Authority::new(task, Validity::days(5)).unwrap();
        assert!(identity(&other, Validity::days(5)).check().is_err(), "issued by another CA");
    }

    #[test]
    fn certificate_request_for_another_name_is_refused() {
        let key = new_key().unwrap();
        let pem = request("user-1.a.b.dphe.internal", &key).unwrap();
        assert!(read_request(&pem, "user-1.a.b.dphe.internal").is_ok());
        assert!(read_request(&pem, "user-2.a.b.dphe.internal").is_err());
        assert!(read_request("no request", "user-1.a.b.dphe.internal").is_err());
    }
}
