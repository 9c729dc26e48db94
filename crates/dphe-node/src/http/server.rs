//! Connections: TLS first, then HTTP, with a bound on how many there are, how long they may dawdle, and how they end.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse as _;
use bytes::Bytes;
use dphe::Party;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::gate::{Gate, Rates, pass};
use super::problem::{HttpCode, Problem};
use crate::certificates::party_in;
use crate::telemetry::Metrics;

/// How a service treats connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once, those in their handshake included.
    pub connections: usize,
    /// Connections of one party at once.
    pub connections_of_one: usize,
    /// Requests of one party a second, in the long run. Whole pieces of uploads that are taken do not count.
    pub requests_per_second: u32,
    /// Requests of one party that may come at once.
    pub requests_at_once: u32,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How long the head of a request may take, and a connection may be idle.
    pub head: Duration,
    /// How long the body of one request may take, beside what its length takes at [`SLOWEST`]; and how long a client may
    /// leave unread what it asked for.
    pub body: Duration,
    /// How long requests may go on after the service is told to stop.
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_of_one: 16,
            requests_per_second: 50,
            requests_at_once: 200,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(60),
            body: Duration::from_secs(30),
            linger: Duration::from_secs(10),
        }
    }
}

/// Bytes a second: slower lines are not waited for.
pub const SLOWEST: u64 = 64 << 10;

/// How long `length` bytes may take, beside a first patience.
pub fn patience_for(length: u64, first: Duration) -> Duration {
    first + Duration::from_secs(length / SLOWEST)
}

/// So many at once for each party.
#[derive(Clone, Debug)]
pub struct Places {
    most: usize,
    taken: Arc<Mutex<HashMap<Party, usize>>>,
}

/// One of a party's places, given back when this goes.
#[derive(Debug)]
pub struct PlaceOfParty {
    places: Places,
    party: Party,
}

impl Places {
    /// So many for each.
    pub fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// A place, unless the party has all of its own.
    pub fn take(&self, party: Party) -> Option<PlaceOfParty> {
        let mut taken = self.taken.lock().ok()?;
        let count = taken.entry(party).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(PlaceOfParty { places: self.clone(), party })
    }
}

impl Drop for PlaceOfParty {
    fn drop(&mut self) {
        if let Ok(mut taken) = self.places.taken.lock()
            && let Some(count) = taken.get_mut(&self.party)
        {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.party);
            }
        }
    }
}

/// Told when to stop. Everybody holds a copy.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// Says when to stop.
#[derive(Debug)]
pub struct ShutdownSwitch(watch::Sender<bool>);

/// A switch, and what listens to it.
pub fn shutdown() -> (ShutdownSwitch, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (ShutdownSwitch(sender), Shutdown(receiver))
}

impl ShutdownSwitch {
    /// Stop.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Waits until it is time, or for ever. A switch that is gone means stop, too.
    pub async fn wait(&mut self) {
        let _ = self.0.wait_for(|&stop| stop).await;
    }

    /// Whether it is time.
    pub fn is_stopping(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

/// The party at the other end of a connection, from its certificate.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub Party);

/// Serves a router over TLS until told to stop; then requests under way may end.
pub async fn serve_tls(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    router: Router,
    limits: Limits,
    metrics: Arc<Metrics>,
    mut shutdown: Shutdown,
) {
    let acceptor = TlsAcceptor::from(tls);
    let room = Arc::new(Semaphore::new(limits.connections));
    let places = Places::new(limits.connections_of_one);
    // one for all connections: a copy for each costs more than all else that it keeps
    let gate = Gate { rates: Rates::new(&limits), metrics: metrics.clone() };
    let router = router.layer(from_fn_with_state(gate, pass));
    let strangers = Strangers::default();
    loop {
        let accepted = tokio::select! {
            () = shutdown.wait() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, address)) = accepted else {
            // no file handles left, say: others will be given back
            strangers.send_oldest_away();
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let permit = match room.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                strangers.send_oldest_away();
                let permit = tokio::select! {
                    () = shutdown.wait() => break,
                    permit = room.clone().acquire_owned() => permit,
                };
                let Ok(permit) = permit else { break };
                permit
            }
        };
        let (acceptor, router, metrics) = (acceptor.clone(), router.clone(), metrics.clone());
        let (shutdown, places) = (shutdown.clone(), places.clone());
        let stranger = strangers.welcome();
        tokio::spawn(async move {
            metrics.connections.add(1);
            let tls = handshake(stream, address, acceptor, limits, &metrics, stranger).await;
            if let Some(stream) = tls {
                connection(stream, address, router, limits, &metrics, places, shutdown).await;
            }
            metrics.connections.sub(1);
            drop(permit);
        });
    }
    drop(listener);
    // all permits back: all connections ended
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let _ = timeout(limits.linger, room.acquire_many(all)).await;
}

/// Connections that have shown no certificate yet. When there is no room for one more, the oldest of them has to go: who
/// keeps silent must not keep others out.
#[derive(Clone, Default)]
struct Strangers(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    count: u64,
    /// In the order they came. One that is dropped tells its connection to go.
    present: BTreeMap<u64, oneshot::Sender<()>>,
}

struct Stranger {
    number: u64,
    strangers: Strangers,
    sent_away: oneshot::Receiver<()>,
}

impl Strangers {
    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn welcome(&self) -> Stranger {
        let (stay, sent_away) = oneshot::channel();
        let mut waiting = self.waiting();
        let number = waiting.count;
        waiting.count += 1;
        waiting.present.insert(number, stay);
        Stranger { number, strangers: self.clone(), sent_away }
    }

    fn send_oldest_away(&self) {
        self.waiting().present.pop_first();
    }
}

impl Stranger {
    /// It is none any more, unless it was told to go.
    fn is_known(&self) -> bool {
        self.strangers.waiting().present.remove(&self.number).is_some()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.strangers.waiting().present.remove(&self.number);
    }
}

type Line = TlsStream<Pin<Box<TimeoutStream<TcpStream>>>>;

/// TLS, unless it fails, takes too long, or somebody else needs the room.
async fn handshake(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    limits: Limits,
    metrics: &Metrics,
    mut stranger: Stranger,
) -> Option<Line> {
    let _ = stream.set_nodelay(true);
    let stream = unread(stream, limits);
    let shaken = tokio::select! {
        shaken = timeout(limits.handshake, acceptor.accept(stream)) => shaken,
        _ = &mut stranger.sent_away => {
            metrics.refused_handshakes.add(1);
            tracing::debug!(%address, "sent away in its handshake: others need the room");
            return None;
        }
    };
    match shaken {
        Ok(Ok(stream)) => stranger.is_known().then_some(stream),
        Ok(Err(error)) => {
            metrics.refused_handshakes.add(1);
            tracing::debug!(%address, %error, "handshake refused");
            None
        }
        Err(_) => {
            metrics.refused_handshakes.add(1);
            tracing::debug!(%address, "handshake took too long");
            None
        }
    }
}

async fn connection(
    stream: Line,
    address: SocketAddr,
    router: Router,
    limits: Limits,
    metrics: &Metrics,
    places: Places,
    shutdown: Shutdown,
) {
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let Some(party) = certificate.and_then(party_in) else { return };
    let Some(_place) = places.take(party) else {
        metrics.refused("busy");
        tracing::warn!(%address, ?party, "too many connections of one party");
        return;
    };
    let service = OfParty { service: TowerToHyperService::new(router), peer: Peer(party) };
    serve_http(TokioIo::new(stream), service, BUFFER, limits, shutdown).await;
}

/// Every request of a connection is its party's.
struct OfParty {
    service: TowerToHyperService<Router>,
    peer: Peer,
}

impl Service<Request<Incoming>> for OfParty {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        self.service.call(request)
    }
}

/// A stream that ends when nobody reads what is written to it.
fn unread(stream: TcpStream, limits: Limits) -> Pin<Box<TimeoutStream<TcpStream>>> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.body));
    Box::pin(stream)
}

/// Plain connections at once.
const PLAIN: usize = 64;

/// Serves a router over plain HTTP, for figures on the own machine.
pub async fn serve_plain(listener: TcpListener, router: Router, limits: Limits, mut shutdown: Shutdown) {
    let room = Arc::new(Semaphore::new(PLAIN));
    loop {
        let permit = tokio::select! {
            () = shutdown.wait() => break,
            permit = room.clone().acquire_owned() => permit,
        };
        let Ok(permit) = permit else { break };
        let accepted = tokio::select! {
            () = shutdown.wait() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (router, shutdown) = (router.clone(), shutdown.clone());
        tokio::spawn(async move {
            let service = TowerToHyperService::new(router);
            serve_http(TokioIo::new(unread(stream, limits)), service, PLAIN_BUFFER, limits, shutdown).await;
            drop(permit);
        });
    }
}

/// What a connection of a party reads ahead, and the longest head of its requests: what ten thousand of them may cost
/// counts for more than fewer, larger reads.
const BUFFER: usize = 8 << 10;
/// Browsers send all cookies of a machine.
const PLAIN_BUFFER: usize = 64 << 10;

async fn serve_http<S, H>(io: TokioIo<S>, service: H, buffer: usize, limits: Limits, mut shutdown: Shutdown)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    H: Service<Request<Incoming>, Response = axum::response::Response, Error = Infallible>,
    H::Future: Send + 'static,
{
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(buffer)
        .serve_connection(io, service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = shutdown.wait() => connection.as_mut().graceful_shutdown(),
    }
    let _ = timeout(limits.linger, connection).await;
}

/// The body of a request: not longer than `most`, not shorter than it said, and not slower than allowed. What is too
/// long is refused before it is read.
///
/// # Errors
/// A problem with code `request`, `size` or `timeout`.
pub async fn read_body(request: Request<Body>, most: u64, patience: Duration) -> Result<Bytes, Problem> {
    let length = request.headers().get(axum::http::header::CONTENT_LENGTH);
    let length: u64 =
        length
            .and_then(|length| length.to_str().ok())
            .and_then(|length| length.parse().ok())
            .ok_or_else(|| HttpCode::Request.because("the request does not say how long its body is"))?;
    if length > most {
        return Err(HttpCode::Size.because(format!("a body of {length} bytes, and {most} are allowed here")));
    }
    // no more than twice what came is set aside, and no more than was said, which is bounded
    let (mut bytes, length) = (Vec::new(), length as usize);
    let mut body = request.into_body();
    let read = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| HttpCode::Timeout.because("the body ended before its length"))?;
            if let Ok(data) = frame.into_data() {
                let needed = bytes.len() + data.len();
                if needed > length {
                    return Err(HttpCode::Size.because("the body is longer than it said"));
                }
                if needed > bytes.capacity() {
                    bytes.reserve_exact(needed.max(2 * bytes.capacity()).min(length) - bytes.len());
                }
                bytes.extend_from_slice(&data);
            }
        }
        Ok(())
    };
    match timeout(patience_for(length as u64, patience), read).await {
        Ok(Ok(())) if bytes.len() == length => Ok(bytes.into()),
        Ok(Ok(())) => Err(HttpCode::Timeout.because("the body ended before its length")),
        Ok(Err(problem)) => Err(problem),
        Err(_) => Err(HttpCode::Timeout.because("the body came too slowly")),
    }
}

/// An answer in JSON.
pub fn json(value: &impl serde::Serialize) -> axum::response::Response {
    let body = serde_json::to_vec(value).unwrap_or_default();
    ([(axum::http::header::CONTENT_TYPE, "application/json")], body).into_response()
}
