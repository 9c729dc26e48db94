//! An aggregator that does not follow the protocol: a real aggregator process, and a server in front of it that has the
//! aggregator's identity and changes what users are told.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, Method, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use bytes::Bytes;
use dphe::wire::{Header, Kind, Message, Signed, decode_list, encode_list};
use dphe::{PartyId, Round};
use dphe_service::http::UPLOAD_OFFSET;
use dphe_service::http::client::{Client, ClientError};
use dphe_service::http::problem::{HttpErrorCode, Problem};
use dphe_service::http::server::{Limits, Peer, ShutdownSwitch, serve_tls, shutdown};
use dphe_service::kit::Kit;
use dphe_service::telemetry::Metrics;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::process::{Process, users_with};
use super::{Plan, Town};

/// Changes the messages that a user is told.
pub type Tamper = Box<dyn Fn(&Messages, u32, Vec<Vec<u8>>) -> Vec<Vec<u8>> + Send + Sync>;

/// Reads messages of a task, and signs them as the aggregator.
pub struct Messages {
    kit: Arc<Kit>,
}

impl Messages {
    pub fn new(town: &Town) -> Self {
        Self { kit: town.kit("aggregator") }
    }

    pub fn kit(&self) -> &Kit {
        &self.kit
    }

    /// Reads a message if it is of this kind.
    pub fn read<M: Message>(&self, message: &[u8]) -> Option<Signed<M>> {
        let is_kind = Header::peek(message).is_ok_and(|header| header.kind == M::KIND);
        is_kind.then(|| Signed::decode(message, self.kit.roster()).unwrap())
    }

    pub fn sign<M: Message>(&self, round: Round, message: M, body: Vec<u8>) -> Vec<u8> {
        let (identity, task) = (self.kit.identity().unwrap(), self.kit.roster().task().id());
        dphe::hazmat::sign(&identity, task, PartyId::Aggregator, round, message, body)
    }
}

/// The server between users and the aggregator process.
pub struct Middle {
    _switch: ShutdownSwitch,
    _runtime: Runtime,
    /// The uploads that passed, with the bytes of the whole request body.
    pub uploads: Arc<Mutex<Vec<Bytes>>>,
}

#[derive(Clone)]
struct Between {
    town: Arc<Town>,
    real: SocketAddr,
    tamper: Arc<Tamper>,
    refuse: Option<Problem>,
    uploads: Arc<Mutex<Vec<Bytes>>>,
}

/// A task whose users talk to the server in the middle.
pub struct Deceived {
    pub town: Arc<Town>,
    pub middle: Middle,
    /// The aggregator, the key generator, and the users.
    pub all: Vec<Process>,
}

/// What a dishonest aggregator does.
pub struct Deceit {
    pub plan: Plan,
    /// Changes the messages to users.
    pub tamper: Tamper,
    /// Refuses every upload in this way.
    pub refuse: Option<Problem>,
}

impl Deceit {
    pub fn new(
        plan: Plan,
        tamper: impl Fn(&Messages, u32, Vec<Vec<u8>>) -> Vec<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        Self { plan, tamper: Box::new(tamper), refuse: None }
    }

    /// Starts all processes.
    pub fn start(self) -> Deceived {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (real, generator) = (free(), free());
        let town = Arc::new(Town::new(self.plan, listener.local_addr().unwrap(), generator));
        let uploads = Arc::new(Mutex::new(Vec::new()));
        let (switch, stop) = shutdown();
        let tls = town.kit("aggregator").tls().server(|_| true).unwrap();
        let tamper = Arc::new(self.tamper);
        let between =
            Between { town: town.clone(), real, tamper, refuse: self.refuse, uploads: uploads.clone() };
        let router = Router::new().fallback(forward).with_state(between);
        let metrics = Arc::new(Metrics::default());
        runtime.spawn(serve_tls(listener, tls, router, Limits::default(), metrics, stop));
        let path = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
        let mut all = Vec::new();
        for (name, listen) in [("aggregator", real), ("key-generator", generator)] {
            let (kit, data) = (path(town.kit_directory(name)), path(town.data(name)));
            let listen = listen.to_string();
            let args = ["serve", name, "--kit", &kit, "--data", &data, "--listen", &listen];
            all.push(Process::new(&town, name, &args));
        }
        all.extend(users_with(&town, &[]));
        let middle = Middle { _switch: switch, _runtime: runtime, uploads };
        Deceived { town, middle, all }
    }
}

async fn forward(
    State(between): State<Between>,
    Extension(Peer(peer)): Extension<Peer>,
    request: Request<Body>,
) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 26).await.unwrap();
    if head.method == Method::PUT {
        between.uploads.lock().unwrap().push(body.clone());
        if let Some(problem) = &between.refuse {
            return problem.clone().into_response();
        }
    }
    let PartyId::User(user) = peer else { return HttpErrorCode::Forbidden.because("").into_response() };
    let tls = between.town.kit(&format!("user-{user}")).tls().client(PartyId::Aggregator).unwrap();
    let mut client = Client::new(between.real.to_string(), tls, 1 << 26);
    let path = head.uri.path_and_query().unwrap().as_str();
    let media = head.headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    let answer = client.send(head.method.clone(), path, media, body, Duration::from_secs(60)).await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(ClientError::Problem(problem)) => return problem.into_response(),
        Err(ClientError::Transport { .. }) => return HttpErrorCode::Busy.because("").into_response(),
    };
    let told = head.method == Method::GET && path.starts_with("/v1/rounds/") && !path.contains("uploads");
    let body = if told && !answer.body.is_empty() {
        let messages = decode_list(&answer.body).unwrap().into_iter().map(<[u8]>::to_vec).collect();
        let told = (between.tamper)(&Messages::new(&between.town), user.get(), messages);
        encode_list(&told).into()
    } else {
        answer.body
    };
    let offset =
        answer.upload_offset.map(|offset| (HeaderName::from_static(UPLOAD_OFFSET), offset.to_string()));
    let mut response = (answer.status, body).into_response();
    if let Some((name, value)) = offset {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

/// Returns the kind of a message.
pub fn kind_of(message: &[u8]) -> Kind {
    Header::peek(message).unwrap().kind
}
