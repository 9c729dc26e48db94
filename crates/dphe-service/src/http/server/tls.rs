//! The TLS listener: accepts connections, authenticates their parties, and serves them.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use dphe::PartyId;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::unauthenticated::{UnauthenticatedConnection, UnauthenticatedConnections};
use super::{Limits, PARTY_BUFFER, PartyPermits, Shutdown, serve_http, with_write_timeout};
use crate::http::middleware::{MiddlewareState, RateLimiter, identify_and_limit};
use crate::http::problem::HttpErrorCode;
use crate::reminder::OncePerMinute;
use crate::telemetry::Metrics;
use crate::tls::{HandshakeProblem, ServerTls};

/// The party at the other end of a connection, according to its key.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub PartyId);

type TlsConnection = TlsStream<Pin<Box<TimeoutStream<TcpStream>>>>;

/// Serves a router over TLS until `shutdown`. Running requests then have [`Limits::linger`] to finish.
pub async fn serve_tls(
    listener: TcpListener,
    tls: ServerTls,
    router: Router,
    limits: Limits,
    metrics: Arc<Metrics>,
    mut shutdown: Shutdown,
) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let unauthenticated = UnauthenticatedConnections::default();
    // all connections share one router: a clone of its layers per connection would cost most of a connection's memory
    let state = MiddlewareState { rate_limiter: RateLimiter::new(&limits), metrics: metrics.clone() };
    let server = TlsServer {
        acceptor: TlsAcceptor::from(tls.config.clone()),
        tls,
        router: router.layer(from_fn_with_state(state, identify_and_limit)),
        limits,
        metrics,
        party_permits: PartyPermits::new(limits.connections_of_one),
        shutdown: shutdown.clone(),
        reminders: Arc::default(),
    };
    loop {
        let accepted = tokio::select! {
            () = shutdown.wait() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, address)) = accepted else {
            // the process may be out of file descriptors until other connections close
            unauthenticated.evict_oldest();
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let permit = match permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                unauthenticated.evict_oldest();
                let permit = tokio::select! {
                    () = shutdown.wait() => break,
                    permit = permits.clone().acquire_owned() => permit,
                };
                let Ok(permit) = permit else { break };
                permit
            }
        };
        let (server, pending) = (server.clone(), unauthenticated.register());
        tokio::spawn(async move {
            server.metrics.connections.add(1);
            if let Some(stream) = server.handshake(stream, address, pending).await {
                server.serve(stream, address).await;
            }
            server.metrics.connections.sub(1);
            drop(permit);
        });
    }
    drop(listener);
    // every permit is back when every connection has ended
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let _ = timeout(limits.linger, permits.acquire_many(all)).await;
}

#[derive(Clone)]
struct TlsServer {
    acceptor: TlsAcceptor,
    tls: ServerTls,
    router: Router,
    limits: Limits,
    metrics: Arc<Metrics>,
    party_permits: PartyPermits,
    shutdown: Shutdown,
    reminders: Arc<Mutex<OncePerMinute<HandshakeProblem>>>,
}

impl TlsServer {
    /// Returns the TLS stream, or `None` if the handshake fails, times out, or is evicted.
    async fn handshake(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        mut pending: UnauthenticatedConnection,
    ) -> Option<TlsConnection> {
        let _ = stream.set_nodelay(true);
        let accept = self.acceptor.accept(with_write_timeout(stream, self.limits));
        let result = tokio::select! {
            result = timeout(self.limits.handshake, accept) => result,
            _ = &mut pending.evicted => {
                self.metrics.refused_handshakes.add(1);
                tracing::debug!(%address, "evicted during its handshake: the service is full");
                return None;
            }
        };
        match result {
            Ok(Ok(stream)) => return pending.authenticate().then_some(stream),
            Ok(Err(error)) => self.log_refused(address, &error),
            Err(_) => tracing::debug!(%address, "handshake timed out"),
        }
        self.metrics.refused_handshakes.add(1);
        None
    }

    /// Warns about a handshake that failed, at most once per minute and kind: anybody can connect.
    fn log_refused(&self, address: SocketAddr, error: &std::io::Error) {
        let kind = HandshakeProblem::of(error);
        let due = self.reminders.lock().is_ok_and(|mut due| due.is_due(kind, Instant::now()));
        match kind.text() {
            Some((reason, hint)) if due => {
                tracing::warn!(%address, reason, hint, "a connection was refused");
            }
            _ => tracing::debug!(%address, %error, "handshake refused"),
        }
    }

    async fn serve(&self, stream: TlsConnection, address: SocketAddr) {
        let key = stream.get_ref().1.peer_certificates().and_then(|keys| keys.first());
        let Some(party) = key.and_then(|key| self.tls.party(key)) else { return };
        let Some(_permit) = self.party_permits.take(party) else {
            self.metrics.refused(HttpErrorCode::Busy);
            tracing::warn!(%address, ?party, "too many connections from one party");
            return;
        };
        let service =
            PartyService { service: TowerToHyperService::new(self.router.clone()), peer: Peer(party) };
        serve_http(TokioIo::new(stream), service, PARTY_BUFFER, self.limits, self.shutdown.clone()).await;
    }
}

/// Adds the authenticated party to every request of a connection.
struct PartyService {
    service: TowerToHyperService<Router>,
    peer: Peer,
}

impl Service<Request<Incoming>> for PartyService {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        self.service.call(request)
    }
}
