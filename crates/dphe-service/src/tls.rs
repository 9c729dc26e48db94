//! TLS by the roster: both sides of a connection prove that they hold an identity key of the roster. There are no
//! certificates. The keys travel as raw public keys (RFC 7250).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use dphe::{Identity, IdentityKey, PartyId, Roster};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime, alg_id::ED25519};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, Signer, SigningKey, public_key_to_spki};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName,
    PeerIncompatible, ServerConfig, SignatureAlgorithm, SignatureScheme,
};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::Error;

/// A party's side of TLS: its identity key, and the roster that it accepts peers from.
#[derive(Clone)]
pub struct TlsIdentity {
    key: Arc<CertifiedKey>,
    roster: Arc<Roster>,
}

impl TlsIdentity {
    /// Uses this identity key with this roster.
    pub fn new(key: IdentityKey, roster: Arc<Roster>) -> Self {
        let public = public_key(&key.identity());
        let certificate = CertificateDer::from(public.as_ref().to_vec());
        let key = CertifiedKey::new(vec![certificate], Arc::new(IdentitySigningKey(Arc::new(key))));
        Self { key: Arc::new(key), roster }
    }

    /// Returns the TLS configuration of a service that accepts only the parties for which `allowed` is true.
    ///
    /// # Errors
    /// Fails if the TLS library does not support what the services need.
    pub fn server(&self, allowed: fn(PartyId) -> bool) -> Result<ServerTls, Error> {
        let verifier = Arc::new(PartyVerifier { roster: self.roster.clone(), allowed, provider: provider() });
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Error::Tls)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(self.key.clone())));
        // no resumption, so that every connection proves its identity
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(ServerTls { config: Arc::new(config), roster: self.roster.clone() })
    }

    /// Returns the TLS configuration of a client that connects to this party and to no other.
    ///
    /// # Errors
    /// Fails if the party is not in the roster.
    pub fn client(&self, server: PartyId) -> Result<ClientTls, Error> {
        let verifier = ServerVerifier { server: self.roster.identity(server)?, provider: provider() };
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Error::Tls)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(self.key.clone())));
        config.enable_sni = false;
        config.resumption = rustls::client::Resumption::disabled();
        Ok(ClientTls { config: Arc::new(config) })
    }
}

impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TlsIdentity({:?})", self.roster.hash())
    }
}

/// The TLS configuration of a service.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// The configuration, for an acceptor.
    pub config: Arc<ServerConfig>,
    roster: Arc<Roster>,
}

impl ServerTls {
    /// Returns the party whose key a handshake has accepted.
    pub fn party(&self, peer: &CertificateDer<'_>) -> Option<PartyId> {
        party_of_key(&self.roster, peer)
    }
}

/// A client's connection after the handshake.
pub use tokio_rustls::client::TlsStream as ClientStream;

/// The TLS configuration of a client of one service.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
}

impl ClientTls {
    /// Completes the handshake with the party at the other end.
    ///
    /// # Errors
    /// Fails if it does not prove the identity that the roster has for it.
    pub async fn connect<S>(&self, stream: S) -> std::io::Result<ClientStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        // the TLS library wants a name; it is not sent, because the server's key says who it is
        let name = ServerName::from(IpAddr::from(Ipv4Addr::UNSPECIFIED));
        TlsConnector::from(self.config.clone()).connect(name, stream).await
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Returns whether a connection failed because one side does not accept the identity of the other.
pub(crate) fn refuses_identity(error: &std::io::Error) -> bool {
    let error = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    error.is_some_and(|error| *error == NOT_ALLOWED || is_refusal_of_peer(error))
}

/// Why a handshake with a client failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HandshakeProblem {
    /// The client's identity is not in the roster, or its role may not connect here.
    UnknownIdentity,
    /// The client does not accept this service's identity.
    RefusesUs,
    /// The client does not speak TLS as the parties do.
    OtherProgram,
    /// The connection ended during the handshake.
    Closed,
}

impl HandshakeProblem {
    pub(crate) fn of(error: &std::io::Error) -> Self {
        match error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
            Some(error) if *error == NOT_ALLOWED => Self::UnknownIdentity,
            Some(error) if is_refusal_of_peer(error) => Self::RefusesUs,
            Some(_) => Self::OtherProgram,
            None => Self::Closed,
        }
    }

    /// Returns the reason and a hint for the operator, unless the problem is not worth a warning.
    pub(crate) fn text(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::UnknownIdentity => Some((
                "the identity of the peer is not in this roster",
                "If it is a party of this task, its kit is from another run of `dphe keygen`, or one of the kits \
                 lacks a roster change. Compare the hash of the roster that `dphe doctor` prints.",
            )),
            Self::RefusesUs => Some((
                "the peer does not accept the identity of this service",
                "If it is a party of this task, its kit is from another run of `dphe keygen`. Compare the hash of the \
                 roster that `dphe doctor` prints.",
            )),
            Self::OtherProgram => Some((
                "the peer is not a party of this task",
                "Browsers, curl and version 0.1.0 cannot connect. Use the address of `--observe` to monitor a service.",
            )),
            Self::Closed => None,
        }
    }
}

/// Returns whether the peer said that it does not accept this party's identity. The TLS library sends this alert when a
/// verifier refuses a key.
fn is_refusal_of_peer(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::AlertReceived(AlertDescription::AccessDenied))
}

/// Returns an identity as TLS sends it.
fn public_key(identity: &Identity) -> SubjectPublicKeyInfoDer<'static> {
    public_key_to_spki(&ED25519, identity.to_bytes())
}

/// Returns the party of the roster with this key.
fn party_of_key(roster: &Roster, key: &CertificateDer<'_>) -> Option<PartyId> {
    // the encoding of an Ed25519 key ends with its 32 bytes; comparing the whole encoding rules out other algorithms
    let identity = Identity::from_bytes(key.last_chunk()?).ok()?;
    (public_key(&identity).as_ref() == key.as_ref()).then(|| roster.party(&identity))?
}

/// Signs handshakes with the party's identity.
#[derive(Debug)]
struct IdentitySigningKey(Arc<IdentityKey>);

impl SigningKey for IdentitySigningKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let offered = offered.contains(&SignatureScheme::ED25519);
        offered.then(|| Box::new(IdentitySigner(self.0.clone())) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(public_key(&self.0.identity()))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

#[derive(Debug)]
struct IdentitySigner(Arc<IdentityKey>);

impl Signer for IdentitySigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let refused = || rustls::Error::General("the message is not a TLS 1.3 handshake".into());
        self.0.sign_handshake(message).map(|signature| signature.to_vec()).ok_or_else(refused)
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

/// Accepts the keys of allowed parties in the roster. This happens in the TLS handshake, before anything else is read
/// from a client.
#[derive(Debug)]
struct PartyVerifier {
    roster: Arc<Roster>,
    allowed: fn(PartyId) -> bool,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for PartyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match party_of_key(&self.roster, key).filter(|&party| (self.allowed)(party)) {
            Some(_) if more.is_empty() => Ok(ClientCertVerified::assertion()),
            _ => Err(NOT_ALLOWED),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(ONLY_TLS13)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_signature(&self.provider, message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Accepts the key of one party.
#[derive(Debug)]
struct ServerVerifier {
    server: Identity,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if public_key(&self.server).as_ref() == key.as_ref() && more.is_empty() {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(NOT_ALLOWED)
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(ONLY_TLS13)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_signature(&self.provider, message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// The answer to every key that is not accepted.
const NOT_ALLOWED: rustls::Error =
    rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
const ONLY_TLS13: rustls::Error = rustls::Error::PeerIncompatible(PeerIncompatible::Tls12NotOfferedOrEnabled);

fn verify_signature(
    provider: &CryptoProvider,
    message: &[u8],
    key: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let key = SubjectPublicKeyInfoDer::from(key.as_ref());
    verify_tls13_signature_with_raw_key(message, &key, signature, &provider.signature_verification_algorithms)
}
