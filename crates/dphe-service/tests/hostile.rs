//! Hostile clients and servers: wrong identities, no TLS, wrong lengths, slow senders, replays. Each is refused with
//! its code, early, and without disturbing others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{Method, StatusCode};
use axum::routing::put as put_route;
use bytes::Bytes;
use dphe::party::{Action, Party as _, PartyContext, Time, UserEvent, UserParty};
use dphe::wire::{Header, Kind, decode_list};
use dphe::{ErrorCode, IdentityKey, PartyId, Round, UserId};
use dphe_paillier::Threads;
use dphe_service::hex;
use dphe_service::http::MAX_CHUNK;
use dphe_service::http::client::{Client, ClientError};
use dphe_service::http::open_files::raise_open_files;
use dphe_service::http::problem::{HttpErrorCode, ProblemCode};
use dphe_service::http::request_id::RequestId;
use dphe_service::http::server::{Limits, ShutdownSwitch, serve_tls, shutdown};
use dphe_service::learning::{LinearModelMaker, LinearTrainer, Trainer as _};
use dphe_service::service::aggregator::AggregatorService;
use dphe_service::service::{ServiceOptions, key_generator};
use dphe_service::store::SqliteStore;
use dphe_service::telemetry::Metrics;
use dphe_service::tls::{ClientStream, TlsIdentity};
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};
use support::{Plan, Town, rng, samples};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// An aggregator and a key generator, without users.
struct Services {
    town: Town,
    metrics: Arc<Metrics>,
    generator: Arc<Metrics>,
    _switch: ShutdownSwitch,
}

const LIMITS: Limits = Limits {
    connections: 64,
    connections_of_one: 8,
    handshake: Duration::from_millis(1_500),
    head: Duration::from_millis(1_500),
    body: Duration::from_millis(1_500),
    linger: Duration::from_secs(1),
    requests_per_second: 50,
    requests_at_once: 200,
};

async fn services() -> Services {
    services_with(Plan { time: ("60s", "120s"), ..Plan::default() }, LIMITS).await
}

async fn services_with(plan: Plan, limits: Limits) -> Services {
    let a = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let g = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let town = Town::new(plan, a.local_addr().unwrap(), g.local_addr().unwrap());
    let (switch, stop) = shutdown();
    let options = || ServiceOptions { limits, ..ServiceOptions::default() };
    let (kit, until) = (town.kit("key-generator"), stop.clone());
    let store = SqliteStore::open(&town.data("key-generator")).await.unwrap();
    let mine = options();
    let generator = mine.metrics.clone();
    tokio::spawn(async move { key_generator::run(&kit, b"", store, g, mine, until).await.unwrap() });
    let kit = town.kit("aggregator");
    let store = SqliteStore::open(&town.data("aggregator")).await.unwrap();
    let maker = LinearModelMaker::new(kit.task_file(), kit.roster().task().clone()).unwrap();
    let mine = options();
    let metrics = mine.metrics.clone();
    let service = AggregatorService::start(&kit, store, &town.data("aggregator"), maker, mine).await.unwrap();
    tokio::spawn(async move { service.run(a, stop).await.unwrap() });
    Services { town, metrics, generator, _switch: switch }
}

impl Services {
    fn client(&self, tls: &TlsIdentity, to: PartyId) -> Client {
        let address = if to == PartyId::Aggregator { self.town.aggregator } else { self.town.key_generator };
        Client::new(address.to_string(), tls.client(to).unwrap(), 1 << 24)
    }

    fn user(&self, name: &str) -> Client {
        self.client(self.town.kit(name).tls(), PartyId::Aggregator)
    }
}

const SOON: Duration = Duration::from_secs(20);

async fn get(client: &mut Client, path: &str) -> Result<Bytes, ClientError> {
    client.send(Method::GET, path, None, Bytes::new(), SOON).await.map(|answer| answer.body)
}

async fn put(client: &mut Client, path: &str, body: Bytes) -> Result<Bytes, ClientError> {
    let media = Some(Kind::Upload.media_type());
    client.send(Method::PUT, path, media, body, SOON).await.map(|answer| answer.body)
}

fn code(result: Result<Bytes, ClientError>) -> String {
    match result {
        Err(ClientError::Problem(problem)) => problem.code.to_string(),
        Err(ClientError::Transport { what, .. }) => panic!("no answer: {what}"),
        Ok(_) => panic!("the request was accepted"),
    }
}

/// Signs handshakes with one identity and presents the public key of another.
#[derive(Debug)]
struct Impostor(Arc<IdentityKey>);

impl SigningKey for Impostor {
    fn choose_scheme(&self, _: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(Self(self.0.clone())))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for Impostor {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Ok(self.0.sign_handshake(message).unwrap().to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

/// Accepts every server, for clients whose own key is wrong.
#[derive(Debug)]
struct AnyServer;

impl rustls::client::danger::ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Asks for the status with an own TLS configuration, and returns what came back.
async fn status_with(address: std::net::SocketAddr, config: rustls::ClientConfig) -> Vec<u8> {
    let stream = TcpStream::connect(address).await.unwrap();
    let name = rustls::pki_types::ServerName::try_from("dphe.internal").unwrap();
    let mut answer = Vec::new();
    // in TLS 1.3 the client notices at its first read
    if let Ok(mut stream) = TlsConnector::from(Arc::new(config)).connect(name, stream).await {
        let _ = stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: dphe\r\nconnection: close\r\n\r\n").await;
        let _ = stream.read_to_end(&mut answer).await;
    }
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identities_outside_the_roster_are_refused_in_the_handshake() {
    let services = services().await;
    let town = &services.town;
    let kit = town.kit("user-1");
    let unknown = TlsIdentity::new(IdentityKey::generate(&mut rng(3)), kit.roster().clone());
    let cases = [
        ("an identity outside the roster", unknown, PartyId::Aggregator),
        // users may not connect to the key generator
        ("a user at G", kit.tls().clone(), PartyId::KeyGenerator),
    ];
    // the same request with the right identity is accepted, so the cases fail for their own reasons
    get(&mut services.user("user-1"), "/v1/status").await.unwrap();
    let aggregator = town.kit("aggregator");
    get(&mut services.client(aggregator.tls(), PartyId::KeyGenerator), "/v1/status").await.unwrap();
    for (case, tls, to) in cases {
        let metrics = if to == PartyId::Aggregator { &services.metrics } else { &services.generator };
        let before = metrics.refused_handshakes.get();
        let result =
            put(&mut services.client(&tls, to), "/v1/rounds/1/uploads/1?offset=0&total=9", vec![0; 9].into())
                .await;
        assert!(matches!(result, Err(ClientError::Transport { .. })), "{case}: {result:?}");
        refused_handshakes(metrics, before + 1, case).await;
    }

    let builder = || {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap()
    };
    let any = || builder().dangerous().with_custom_certificate_verifier(Arc::new(AnyServer));
    let with_key = |public: PartyId, secret: &str| {
        let identity = kit.roster().identity(public).unwrap().to_bytes();
        let public = rustls::sign::public_key_to_spki(&rustls::pki_types::alg_id::ED25519, identity);
        let key = Impostor(Arc::new(town.kit(secret).identity().unwrap()));
        let key = CertifiedKey::new(vec![CertificateDer::from(public.as_ref().to_vec())], Arc::new(key));
        let key = rustls::client::AlwaysResolvesClientRawPublicKeys::new(Arc::new(key));
        any().with_client_cert_resolver(Arc::new(key))
    };
    let user = |n| PartyId::User(UserId::new(n).unwrap());
    let answer = status_with(town.aggregator, with_key(user(1), "user-1")).await;
    assert!(answer.starts_with(b"HTTP/1.1 200"), "the control: {}", String::from_utf8_lossy(&answer));
    let configurations = [
        ("another user's public key", with_key(user(2), "user-1")),
        ("the aggregator's public key", with_key(PartyId::Aggregator, "user-1")),
        ("no key", any().with_no_client_auth()),
        // a client that expects X.509 certificates
        ("X.509", builder().with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()),
    ];
    for (case, config) in configurations {
        let before = services.metrics.refused_handshakes.get();
        assert!(status_with(town.aggregator, config).await.is_empty(), "{case}");
        refused_handshakes(&services.metrics, before + 1, case).await;
    }
}

/// The key generator hands out the aggregator's address. It must not be able to stand in the aggregator's place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_generator_in_the_place_of_the_aggregator_is_noticed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let town = Town::new(Plan::default(), address, address);
    let (kit, (_switch, stop)) = (town.kit("key-generator"), shutdown());
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    let router = Router::new().fallback(async move || {
        count.fetch_add(1, Ordering::Relaxed);
        StatusCode::OK
    });
    let tls = kit.tls().server(|_| true).unwrap();
    tokio::spawn(serve_tls(listener, tls, router, LIMITS, Arc::new(Metrics::default()), stop));
    let user = town.kit("user-1");
    let mut client =
        Client::new(address.to_string(), user.tls().client(PartyId::Aggregator).unwrap(), 1 << 20);
    let result = put(&mut client, "/v1/rounds/1/uploads/1?offset=0&total=9", vec![0; 9].into()).await;
    let Err(ClientError::Transport { what, .. }) = &result else { panic!("{result:?}") };
    assert!(what.contains("has another identity"), "{what}");
    assert_eq!(seen.load(Ordering::Relaxed), 0, "nothing was sent");
    // to a client that looks for the key generator it answers
    let mut client =
        Client::new(address.to_string(), user.tls().client(PartyId::KeyGenerator).unwrap(), 1 << 20);
    get(&mut client, "/").await.unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

/// A service whose refusals have line breaks, escape sequences and a megabyte of text in them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_of_a_refusal_cannot_forge_log_lines_or_control_a_terminal() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let town = Town::new(Plan::default(), address, address);
    let (kit, (_switch, stop)) = (town.kit("aggregator"), shutdown());
    let forged = "x\n2026-11-18T00:00:00Z  INFO acknowledged round=1\r\u{1b}]0;owned\u{7}\u{1b}[2J";
    let detail = forged.to_owned() + &"y".repeat(1 << 20);
    let refusal = serde_json::json!({ "type": detail, "status": 422, "code": forged, "detail": detail });
    let status = serde_json::json!({ "party": "aggregator", "phase": forged }).to_string();
    let router = Router::new().route("/v1/status", axum::routing::get(async move || status)).fallback(
        async move || {
            let media = [(axum::http::header::CONTENT_TYPE, "application/problem+json")];
            (StatusCode::UNPROCESSABLE_ENTITY, media, refusal.to_string())
        },
    );
    let tls = kit.tls().server(|_| true).unwrap();
    tokio::spawn(serve_tls(listener, tls, router, LIMITS, Arc::new(Metrics::default()), stop));
    let user = town.kit("user-1");
    let mut client =
        Client::new(address.to_string(), user.tls().client(PartyId::Aggregator).unwrap(), 1 << 24);
    let error = get(&mut client, "/v1/models/00").await.unwrap_err();
    let Err(ClientError::Problem(problem)) = &Err::<(), _>(error.clone()) else { panic!("{error}") };
    assert_eq!(problem.code, ProblemCode::Unknown);
    let logged = Logged::default();
    let writer = logged.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(log, || tracing::warn!(%error, detail = problem.detail, "refused"));
    let text = String::from_utf8(logged.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("acknowledged round=1"), "{text}");
    assert_eq!(text.lines().count(), 1, "one event is one line: {text:?}");
    assert!(text.trim_end().chars().all(|c| !c.is_control()) && text.len() < 1_500, "{text:?}");
}

/// An observer of the network learns neither the task nor the role of a party from the beginning of a connection.
#[tokio::test]
async fn client_sends_no_server_name() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let town = Town::new(Plan::default(), address, address);
    let (user, task) = (town.kit("user-1"), town.kit("user-1").roster().task().id().to_string());
    let mut client =
        Client::new(address.to_string(), user.tls().client(PartyId::Aggregator).unwrap(), 1 << 20);
    let connecting = tokio::spawn(async move { client.connect().await });
    let mut stream = listener.accept().await.unwrap().0;
    let (mut hello, mut acceptor) = (Vec::new(), rustls::server::Acceptor::default());
    let accepted = loop {
        let mut part = [0; 4096];
        let length = stream.read(&mut part).await.unwrap();
        assert!(length > 0, "the client closed the connection");
        hello.extend_from_slice(&part[..length]);
        acceptor.read_tls(&mut &part[..length]).unwrap();
        if let Ok(Some(accepted)) = acceptor.accept() {
            break accepted;
        }
    };
    assert_eq!(accepted.client_hello().server_name(), None);
    let text = String::from_utf8_lossy(&hello);
    for secret in [&*task, "user", "aggregator", "dphe"] {
        assert!(!text.contains(secret), "{secret}");
    }
    let identity = user.identity().unwrap().identity().to_bytes();
    assert!(!hello.windows(8).any(|bytes| bytes == &identity[..8]), "the identity is encrypted");
    connecting.abort();
}

/// Waits for the counter, which the service increments after it has closed the connection.
async fn refused_handshakes(metrics: &Metrics, expected: i64, case: &str) {
    let until = Instant::now() + SOON;
    while metrics.refused_handshakes.get() < expected && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(metrics.refused_handshakes.get(), expected, "{case} was refused in the handshake");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_tls_are_closed_and_do_not_disturb_others() {
    let services = services().await;
    let address = services.town.aggregator;
    // plain HTTP
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET /v1/status HTTP/1.1\r\nhost: dphe\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(SOON, plain.read_to_end(&mut answer)).await.expect("it is closed");
    assert!(!answer.starts_with(b"HTTP"), "plain HTTP must not be answered");
    // garbage
    let mut garbage = TcpStream::connect(address).await.unwrap();
    let _ = garbage.write_all(&[0x16; 4096]).await;
    let _ = timeout(SOON, garbage.read_to_end(&mut Vec::new())).await.expect("it is closed");
    // half-open connections use most permits until they time out
    let mut idle = Vec::new();
    for _ in 0..50 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    let begin = Instant::now();
    get(&mut services.user("user-2"), "/v1/status").await.unwrap();
    println!("with 50 half-open connections an answer takes {:.0?}", begin.elapsed());
    for stream in &mut idle {
        let _ = timeout(SOON, stream.read_to_end(&mut Vec::new())).await.expect("it is closed");
    }
    // the service counts after it has closed the connection
    let until = Instant::now() + SOON;
    while services.metrics.refused_handshakes.get() < 52 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(services.metrics.refused_handshakes.get() >= 52);
    get(&mut services.user("user-2"), "/v1/status").await.unwrap();
}

/// Opens a TLS connection of a party, for arbitrary bytes.
async fn line(services: &Services, by: &str, to: PartyId) -> ClientStream<TcpStream> {
    let kit = services.town.kit(by);
    let address =
        if to == PartyId::Aggregator { services.town.aggregator } else { services.town.key_generator };
    let stream = TcpStream::connect(address).await.unwrap();
    kit.tls().client(to).unwrap().connect(stream).await.unwrap()
}

/// Sends raw bytes as user 1, for requests that no client would send.
async fn raw(services: &Services, request: &[u8]) -> String {
    raw_by(services, "user-1", PartyId::Aggregator, request).await
}

async fn raw_by(services: &Services, by: &str, to: PartyId, request: &[u8]) -> String {
    let mut stream = line(services, by, to).await;
    // the service may close the connection before all bytes are written
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    // reads until the connection closes or a response is complete
    loop {
        match timeout(SOON, stream.read(&mut buffer)).await.expect("an answer or an end") {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
        }
        if answer.windows(4).any(|window| window == b"}\r\n0") || answer.ends_with(b"}") {
            break;
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_per_party_are_limited() {
    let services = services().await;
    let (kit, other) = (services.town.kit("user-1"), services.town.kit("user-2"));
    let client = |kit: &dphe_service::kit::Kit| {
        let tls = kit.tls().client(PartyId::Aggregator).unwrap();
        Client::new(services.town.aggregator.to_string(), tls, 1 << 20)
    };
    // all of these connections belong to one user
    let mut held = Vec::new();
    for _ in 0..LIMITS.connections_of_one {
        let mut client = client(&kit);
        get(&mut client, "/v1/status").await.unwrap();
        held.push(client);
    }
    let mut one_more = client(&kit);
    assert!(get(&mut one_more, "/v1/status").await.is_err(), "one more connection must be closed");
    assert_eq!(services.metrics.refusals(HttpErrorCode::Busy), 1);
    get(&mut client(&other), "/v1/status").await.expect("another user has its own permits");
    held.pop();
    let begin = Instant::now();
    while get(&mut one_more, "/v1/status").await.is_err() {
        assert!(begin.elapsed() < Duration::from_secs(5), "a returned permit must be available again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_lengths_and_slow_bodies_are_refused() {
    let services = services().await;
    let head = |query: &str, rest: &str| {
        format!(
            "PUT /v1/rounds/1/uploads/1?{query} HTTP/1.1\r\nhost: dphe\r\ncontent-type: application/vnd.dphe.v2.upload\r\n{rest}\r\n\r\n"
        )
    };
    // announced lengths beyond the limit are refused before the body is read
    let begin = Instant::now();
    let answer =
        raw(&services, head("offset=0&total=99999999999", "content-length: 1048576").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("\"code\":\"size\""), "{answer}");
    let answer = raw(&services, head("offset=0&total=100", "content-length: 101").as_bytes()).await;
    assert!(answer.contains("\"code\":\"size\""), "{answer}");
    let answer = raw(&services, head("offset=0&total=100", "content-length: 9999999999999").as_bytes()).await;
    assert!(answer.contains("\"code\":\"size\""), "{answer}");
    assert!(begin.elapsed() < LIMITS.body, "the body must not be waited for");
    // chunked encoding without a length
    let answer = raw(&services, head("offset=0&total=100", "transfer-encoding: chunked").as_bytes()).await;
    assert!(answer.contains("\"code\":\"request\""), "{answer}");
    // a body that stops halfway
    let mut request = head("offset=0&total=100", "content-length: 100").into_bytes();
    request.extend([7; 50]);
    let begin = Instant::now();
    let answer = raw(&services, &request).await;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("\"code\":\"timeout\""), "{answer}");
    assert!(begin.elapsed() >= LIMITS.body && begin.elapsed() < 8 * LIMITS.body, "{:?}", begin.elapsed());
    // a head that never ends
    let answer = raw(&services, b"GET /v1/status HTTP/1.1\r\nhost: d").await;
    assert!(!answer.contains("200 OK"), "{answer}");
    // a long head, one that is too long, and one that is far too long
    for (length, expected) in [(8_000, "HTTP/1.1 200 "), (8_200, "HTTP/1.1 431 "), (200_000, "")] {
        let head = format!("GET /v1/status HTTP/1.1\r\nhost: dphe\r\nx: {}\r\n\r\n", "y".repeat(length));
        let answer = raw(&services, head.as_bytes()).await;
        assert!(answer.starts_with(expected), "{length}: {answer}");
        assert!(length < 8_192 || !answer.contains("200 OK"), "{answer}");
    }
    // nothing is stored, and others were not disturbed
    let mut one = services.user("user-1");
    let here = one.send(Method::HEAD, "/v1/rounds/1/uploads/1", None, Bytes::new(), SOON).await.unwrap();
    assert_eq!(here.upload_offset, Some(0));
}

/// Creates the upload of a user for the current round.
async fn make_upload(services: &Services, name: &str, seed: u64) -> Bytes {
    let kit = services.town.kit(name);
    let mut client = services.user(name);
    let list = get(&mut client, "/v1/rounds/next?after=1&wait=20").await.unwrap();
    let ticket = decode_list(&list).unwrap()[0].to_vec();
    assert_eq!(Header::peek(&ticket).unwrap().kind, Kind::RoundTicket);
    let model = services.town.kit("aggregator").initial_model().unwrap();
    let fetched =
        get(&mut client, &format!("/v1/models/{}", hex::encode(dphe::Digest::of_model(&model).as_bytes())))
            .await;
    assert_eq!(fetched.unwrap(), model);
    let keys = kit.user_keys().unwrap();
    let roster = (**kit.roster()).clone();
    let context = PartyContext {
        identity: kit.identity().unwrap().into(),
        rosters: roster.into(),
        log: &[],
        threads: Threads::ONE,
    };
    let (mut party, _) = UserParty::start(keys, context, Time(0)).unwrap();
    let mut rng = rng(seed);
    party.step(UserEvent::Begin { ticket, model: model.clone() }, Time(0), &mut rng).unwrap();
    let task = kit.roster().task().clone();
    let seed = dphe_learn::Seed::new(1);
    let mut trainer = LinearTrainer::new(kit.task_file(), task.clone(), samples(0), seed).unwrap();
    let support = dphe::PublicSupport::of(&task, Round::FIRST);
    let update = trainer.make_update(Round::FIRST, &support, &model).unwrap();
    let actions = party.step(UserEvent::Update { round: Round::FIRST, update }, Time(0), &mut rng).unwrap();
    let upload = actions.into_iter().find_map(|action| match action {
        Action::Send { message, .. } => Some(message),
        _ => None,
    });
    upload.unwrap().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_are_resumed_repeated_and_refused_with_their_codes() {
    let services = services().await;
    let upload = make_upload(&services, "user-1", 1).await;
    let two = make_upload(&services, "user-2", 2).await;
    let total = upload.len();
    let place = |offset: usize, total: usize| format!("/v1/rounds/1/uploads/1?offset={offset}&total={total}");
    let mut one = services.user("user-1");

    // other users, rounds, methods and media types
    assert_eq!(code(put(&mut services.user("user-2"), &place(0, total), upload.clone()).await), "forbidden");
    assert_eq!(
        code(put(&mut one, "/v1/rounds/0/uploads/1?offset=0&total=9", upload.slice(..9)).await),
        "not_found"
    );
    let future = format!("/v1/rounds/2/uploads/1?offset=0&total={total}");
    assert_eq!(code(put(&mut one, &future, upload.clone()).await), "future");
    assert_eq!(code(put(&mut one, "/v1/rounds/1/uploads/1", upload.clone()).await), "request");
    assert_eq!(code(get(&mut one, "/v1/nowhere").await), "not_found");
    assert_eq!(code(get(&mut one, "/v1/rounds/next?after=0").await), "request");
    assert_eq!(code(get(&mut one, &format!("/v1/models/{}", "0".repeat(64))).await), "not_found");
    let deleted = one.send(Method::DELETE, "/v1/status", None, Bytes::new(), SOON).await.map(|a| a.body);
    assert_eq!(code(deleted), "method");
    let typed = one.send(Method::PUT, &place(0, total), Some("text/plain"), upload.clone(), SOON).await;
    assert_eq!(code(typed.map(|answer| answer.body)), "media_type");
    // an upload of another user
    assert_eq!(code(put(&mut one, &place(0, two.len()), two.clone()).await), "forbidden");
    // truncated, modified and empty uploads
    assert_eq!(code(put(&mut one, &place(0, 40), upload.slice(..40)).await), "encoding");
    let mut wrong = upload.to_vec();
    wrong[total - 1] ^= 1;
    assert_eq!(code(put(&mut one, &place(0, total), wrong.into()).await), "encoding");
    let mut forged = upload.to_vec();
    forged[40] ^= 1;
    assert_eq!(code(put(&mut one, &place(0, total), forged.into()).await), "signature");
    assert_eq!(code(put(&mut one, &place(0, total), Bytes::new()).await), "request");

    // in chunks, with a lost response and a restart of the client in between
    let half = total / 2;
    put(&mut one, &place(0, total), upload.slice(..half)).await.unwrap();
    assert_eq!(code(put(&mut one, &place(0, total), upload.slice(..half)).await), "offset");
    assert_eq!(code(put(&mut one, &place(half + 1, total), upload.slice(half + 1..)).await), "offset");
    let mut again = services.user("user-1");
    let here = again.send(Method::HEAD, "/v1/rounds/1/uploads/1", None, Bytes::new(), SOON).await.unwrap();
    assert_eq!(here.upload_offset, Some(half as u64));
    let ack = put(&mut again, &place(half, total), upload.slice(half..)).await.unwrap();
    // a repeated upload gets the same response, byte for byte
    let repeated = put(&mut again, &place(0, total), upload.clone()).await.unwrap();
    assert_eq!(ack, repeated);
    assert_eq!(services.metrics.uploads.get(), 1, "a repeated upload is counted once");
    // a different upload of the same user
    let other = make_upload(&services, "user-1", 7).await;
    assert_ne!(other, upload);
    assert_eq!(code(put(&mut again, &place(0, other.len()), other).await), "conflict");

    // the third upload completes the round; later ones are late or stale
    let three = make_upload(&services, "user-3", 3).await;
    let at = |user: u32, length: usize| format!("/v1/rounds/1/uploads/{user}?offset=0&total={length}");
    put(&mut services.user("user-2"), &at(2, two.len()), two).await.unwrap();
    put(&mut services.user("user-3"), &at(3, three.len()), three.clone()).await.unwrap();
    let news = timeout(SOON, get(&mut again, "/v1/rounds/next?after=1&heard=0&wait=20")).await;
    let news = news.unwrap().unwrap();
    assert!(!decode_list(&news).unwrap().is_empty());
    let deadline = Instant::now() + SOON;
    loop {
        match put(&mut again, &place(0, total), upload.clone()).await {
            // until the round ends, a repeated upload gets the stored response
            Ok(answer) => assert_eq!(answer, ack),
            Err(ClientError::Problem(problem)) => {
                assert_eq!(problem.code, ProblemCode::Protocol(ErrorCode::Stale));
                assert_eq!(problem.status, 410);
                break;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < deadline, "the round never ended");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(total.div_ceil(MAX_CHUNK), 1, "the upload fits into one chunk, so the test divides it itself");
    assert!(services.metrics.refusals(HttpErrorCode::Forbidden) >= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_generator_refuses_messages_of_other_kinds_and_parties() {
    let services = services().await;
    let aggregator = services.town.kit("aggregator");
    let mut client = services.client(aggregator.tls(), PartyId::KeyGenerator);
    let mut post = async |media: &str, body: Vec<u8>| {
        let path = "/v1/messages";
        client.send(Method::POST, path, Some(media), body.into(), SOON).await.map(|answer| answer.body)
    };
    let media = |name: &str| format!("application/vnd.dphe.v2.{name}");
    assert_eq!(code(post("text/plain", vec![0; 10]).await), "media_type");
    assert_eq!(code(post(&media("upload"), vec![0; 10]).await), "media_type");
    assert_eq!(code(post(&media("freeze"), vec![0; 10]).await), "encoding");
    // short enough to be written before the response arrives
    assert_eq!(code(post(&media("freeze"), vec![0; 8 << 10]).await), "size");
    assert_eq!(code(post(&media("close"), vec![0; 60]).await), "version");
    // the key generator itself may read the status but not send messages
    let own = services.town.kit("key-generator");
    let mut own = services.client(own.tls(), PartyId::KeyGenerator);
    let sent = own.send(Method::POST, "/v1/messages", Some(&media("close")), vec![0; 60].into(), SOON).await;
    assert_eq!(code(sent.map(|answer| answer.body)), "forbidden");
    get(&mut own, "/v1/status").await.unwrap();
}

/// Returns the request identifier of a response, which a problem repeats in its body.
fn request_id_of(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").expect(answer);
    let header = head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).expect(answer);
    if head.contains("application/problem+json") && !body.is_empty() {
        assert!(body.contains(&format!("\"request\":\"{header}\"")), "{answer}");
    }
    assert!(RequestId::parse(header).is_some(), "{answer}");
    header.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_response_carries_its_request_id() {
    let services = services().await;
    let put = "PUT /v1/rounds/1/uploads/1?offset=0&total=9";
    let cases = [
        ("GET /v1/status", "content-length: 0", "200"),
        ("GET /openapi.json", "content-length: 0", "200"),
        ("GET /v1/nowhere", "content-length: 0", "404"),
        ("GET /v1/models/%ff", "content-length: 0", "404"),
        ("DELETE /v1/status", "content-length: 0", "405"),
        ("OPTIONS *", "content-length: 0", "404"),
        ("GET /v1/rounds/next?after=0", "content-length: 0", "400"),
        ("GET /v1/rounds/next?after=1&seen=00", "content-length: 0", "400"),
        ("GET /v1/rounds/1/uploads/2", "content-length: 0", "403"),
        (put, "content-length: 99999999", "415"),
        (put, "content-type: application/vnd.dphe.v2.upload\r\ncontent-length: 99999999", "413"),
        (put, "content-type: application/vnd.dphe.v2.upload\r\ncontent-length: 9", "408"),
    ];
    for (first, rest, status) in cases {
        for (sent, kept) in [("a.B_9-z", true), ("no spaces", false), ("", false), (&*"x".repeat(65), false)]
        {
            if status == "408" && !kept {
                continue;
            }
            let request = format!("{first} HTTP/1.1\r\nhost: dphe\r\nx-request-id: {sent}\r\n{rest}\r\n\r\n");
            let answer = raw(&services, request.as_bytes()).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{first}: {answer}");
            let name = request_id_of(&answer);
            assert_eq!(name == sent, kept, "{answer}");
            assert!(kept || name.len() == 16, "{answer}");
            if status == "405" {
                assert!(answer.contains("\r\nallow: GET,HEAD\r\n"), "{answer}");
            }
        }
    }
    let bare = raw(&services, b"GET /v1/nowhere HTTP/1.1\r\nhost: dphe\r\n\r\n").await;
    assert_eq!(request_id_of(&bare).len(), 16);
    let other = raw(&services, b"GET /v1/nowhere HTTP/1.1\r\nhost: dphe\r\n\r\n").await;
    assert_ne!(request_id_of(&bare), request_id_of(&other), "{other}");
    // the same holds for the key generator
    let request = b"GET /v1/status HTTP/1.1\r\nhost: dphe\r\nx-request-id: kg-1\r\n\r\n";
    let answer = raw_by(&services, "aggregator", PartyId::KeyGenerator, request).await;
    assert_eq!(request_id_of(&answer), "kg-1");
    // the client's error names the request
    let error = get(&mut services.user("user-1"), "/v1/nowhere").await.unwrap_err();
    let ClientError::Problem(problem) = &error else { panic!("{error}") };
    let id = problem.request.clone().unwrap();
    assert!(id.len() == 16 && error.to_string().ends_with(&format!("(request {id})")), "{error}");
}

/// Collects log lines.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_id_is_in_all_log_lines_of_a_request() {
    let logged = Logged::default();
    let writer = logged.clone();
    let log = tracing_subscriber::fmt()
        .with_max_level(tracing::level_filters::LevelFilter::DEBUG)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    // the log contains lines of other tests too
    tracing::subscriber::set_global_default(log).unwrap();
    let services = services().await;
    let answer =
        raw(&services, b"GET /v1/nowhere HTTP/1.1\r\nhost: dphe\r\nx-request-id: find-me-1\r\n\r\n").await;
    assert_eq!(request_id_of(&answer), "find-me-1");
    let request = "POST /v1/messages HTTP/1.1\r\nhost: dphe\r\nx-request-id: find-me-2\r\ncontent-length: 60\r\n\
                   content-type: application/vnd.dphe.v2.close\r\n\r\n";
    let request = format!("{request}{}", "z".repeat(60));
    let answer = raw_by(&services, "aggregator", PartyId::KeyGenerator, request.as_bytes()).await;
    assert_eq!(request_id_of(&answer), "find-me-2");
    let text = String::from_utf8(logged.0.lock().unwrap().clone()).unwrap();
    let lines = |id: &str| text.lines().filter(|line| line.contains(id)).collect::<Vec<_>>();
    let (one, two) = (lines("find-me-1"), lines("find-me-2"));
    assert!(one.iter().any(|line| line.contains("user-1") && line.contains("404")), "{text}");
    // one line is from the middleware, one from the actor
    assert!(two.iter().any(|line| line.contains("answered") && line.contains("400")), "{text}");
    assert!(two.iter().any(|line| line.contains("refused") && line.contains("version")), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rate_limit_refuses_one_party_and_not_others() {
    let limits = Limits { requests_per_second: 1, requests_at_once: 20, ..LIMITS };
    let services = services_with(Plan::default(), limits).await;
    let (mut one, mut two) = (services.user("user-1"), services.user("user-2"));
    let (mut taken, mut refused) = (0, 0);
    for n in 0..100 {
        match get(&mut one, "/v1/status").await {
            Ok(_) => taken += 1,
            Err(ClientError::Problem(problem)) => {
                assert_eq!((problem.code, problem.status), (HttpErrorCode::Rate.into(), 429));
                assert!(problem.is_transient() && problem.retry_after == Some(1), "{problem:?}");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
        if n % 10 == 9 {
            get(&mut two, "/v1/status").await.expect("another user has its own limit");
        }
    }
    assert!(taken >= 20 && refused > 0, "{taken} requests were accepted, {refused} refused");
    assert_eq!(services.metrics.refusals(HttpErrorCode::Rate), refused);
    // the limit holds across connections
    assert_eq!(code(get(&mut services.user("user-1"), "/v1/status").await), "rate");
    let begin = Instant::now();
    while get(&mut one, "/v1/status").await.is_err() {
        assert!(begin.elapsed() < SOON, "requests must be accepted again after a wait");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_full_chunks_do_not_count_against_the_rate_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let town = Town::new(Plan::default(), address, address);
    let (kit, (_switch, stop)) = (town.kit("aggregator"), shutdown());
    let router = Router::new().route("/", put_route(async |_: Bytes| StatusCode::ACCEPTED));
    let limits = Limits { requests_per_second: 1, requests_at_once: 5, ..LIMITS };
    let tls = kit.tls().server(|_| true).unwrap();
    tokio::spawn(serve_tls(listener, tls, router, limits, Arc::new(Metrics::default()), stop));
    let tls = town.kit("user-1").tls().client(PartyId::Aggregator).unwrap();
    let mut client = Client::new(address.to_string(), tls, 1 << 20);
    let chunk = Bytes::from(vec![7; MAX_CHUNK]);
    for n in 0..40 {
        put(&mut client, "/", chunk.clone()).await.unwrap_or_else(|error| panic!("chunk {n}: {error}"));
    }
    let begin = Instant::now();
    let small = async || put(&mut client.new_connection(), "/", chunk.slice(..100)).await;
    while small().await.is_ok() {
        assert!(begin.elapsed() < SOON, "short chunks must count");
    }
}

/// A process that opens silent connections. It is a process of its own because of the limit of open files.
struct Silence(Child);

impl Silence {
    fn new(address: std::net::SocketAddr, count: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "keeps_silent", "--ignored", "--nocapture"])
            .env("DPHE_KEEP_SILENT", format!("{address} {count}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let silence = Self(child);
        assert!(
            lines.map_while(Result::ok).any(|line| line.ends_with("silent now")),
            "the process could not connect"
        );
        silence
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // the process ends with its input
        drop(self.0.stdin.take());
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "started by the test below, in a process of its own"]
fn keeps_silent() {
    let Ok(told) = std::env::var("DPHE_KEEP_SILENT") else { return };
    let (address, count) = told.split_once(' ').unwrap();
    let address: std::net::SocketAddr = address.parse().unwrap();
    raise_open_files();
    let streams: Vec<_> = (0..count.parse::<usize>().unwrap())
        .map(|_| std::net::TcpStream::connect(address).expect("a connection"))
        .collect();
    println!("{} are silent now", streams.len());
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Ten users with ten connections each send a byte now and then, and silent connections use all remaining permits.
/// `DPHE_SILENT_CONNECTIONS` sets their number (default 1,000).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_and_slow_connections_do_not_block_an_upload() {
    let silent = std::env::var("DPHE_SILENT_CONNECTIONS").ok().and_then(|count| count.parse().ok());
    let silent: usize = silent.unwrap_or(1_000);
    let (limit, wanted) = (raise_open_files(), silent as u64 + 500);
    if limit.is_some_and(|limit| limit < wanted) {
        println!("SKIPPED: needs {wanted} open files, and {} are allowed (ulimit -Hn)", limit.unwrap_or(0));
        return;
    }
    // timeouts are long, so that the test shows eviction and not timeouts
    let long = Duration::from_secs(600);
    let limits = Limits {
        connections: silent,
        connections_of_one: 16,
        handshake: long,
        head: long,
        body: long,
        ..LIMITS
    };
    let services = services_with(Plan { users: 12, time: ("1h", "2h"), ..Plan::default() }, limits).await;
    let upload = make_upload(&services, "user-12", 12).await;
    let trickled = Arc::new(AtomicUsize::new(0));
    let mut slow = tokio::task::JoinSet::new();
    for user in 1..=10 {
        for n in 0..10 {
            let mut stream = line(&services, &format!("user-{user}"), PartyId::Aggregator).await;
            // two slow bodies, and heads that do not end
            let head = if n < 2 {
                format!(
                    "PUT /v1/rounds/1/uploads/{user}?offset=0&total={0} HTTP/1.1\r\nhost: dphe\r\n\
                     content-type: application/vnd.dphe.v2.upload\r\ncontent-length: {0}\r\n\r\n",
                    upload.len()
                )
            } else {
                "GET /v1/status HTTP/1.1\r\nhost: dphe\r\nx: ".to_owned()
            };
            let trickled = trickled.clone();
            slow.spawn(async move {
                stream.write_all(head.as_bytes()).await.unwrap();
                loop {
                    stream.write_all(b"y").await.expect("who is slow, and not too slow, is not cut off");
                    stream.flush().await.unwrap();
                    trickled.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            });
        }
    }
    let address = services.town.aggregator;
    let _silence = tokio::task::spawn_blocking(move || Silence::new(address, silent)).await.unwrap();
    let begin = Instant::now();
    let mut honest = services.user("user-12");
    let place = format!("/v1/rounds/1/uploads/12?offset=0&total={}", upload.len());
    put(&mut honest, &place, upload).await.expect("an honest user's upload is taken");
    println!("with 100 slow and {silent} silent connections an upload takes {:.0?}", begin.elapsed());
    assert_eq!(services.metrics.uploads.get(), 1);
    for name in ["user-11", "user-12", "user-1"] {
        get(&mut services.user(name), "/v1/status").await.unwrap();
    }
    // the slow connections were open all the time, and silent ones were evicted
    let before = trickled.load(Ordering::Relaxed);
    let until = Instant::now() + SOON;
    while trickled.load(Ordering::Relaxed) < before + 100 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(trickled.load(Ordering::Relaxed) >= before + 100 && slow.len() == 100);
    assert!(slow.try_join_next().is_none(), "all slow connections must still be open");
    assert!(services.metrics.connections.get() <= silent as i64);
    assert!(
        services.metrics.refused_handshakes.get() >= 100,
        "some silent connections must have been evicted"
    );
}

#[test]
fn every_http_code_is_documented() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    for http in HttpErrorCode::ALL {
        let (code, status) = (http.as_str(), http.status());
        let line = docs.lines().find(|line| line.starts_with(&format!("| `{code}` |")));
        let line = line.unwrap_or_else(|| panic!("`{code}` is not documented"));
        assert!(line.contains(&status.as_u16().to_string()), "{line}");
    }
}
