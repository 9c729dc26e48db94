//! The HTTP server of the services.
//!
//! | module | content |
//! | --- | --- |
//! | `limits` | [`Limits`] and the timeouts of transfers |
//! | `tls` | [`serve_tls`]: accepts, authenticates and serves parties |
//! | `unauthenticated` | evicts connections that have not proved an identity yet |
//! | `permits` | [`PartyPermits`]: a semaphore per party |
//! | `shutdown` | [`Shutdown`]: the stop signal |
//! | `body` | [`read_body`] and [`json`] |
//! | `body_memory` | [`BodyMemory`]: how many bytes of messages are in memory |

mod body;
mod body_memory;
mod limits;
mod permits;
mod shutdown;
mod tls;
mod unauthenticated;

pub use body::{content_length, json, read_body};
pub use body_memory::{BodyMemory, BodyPermit};
pub use limits::{Limits, MIN_BYTES_PER_SECOND, timeout_for};
pub use permits::{PartyPermit, PartyPermits};
pub use shutdown::{Shutdown, ShutdownSwitch, shutdown};
pub use tls::{Peer, serve_tls};

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;

/// The largest number of plain connections.
const MAX_PLAIN_CONNECTIONS: usize = 64;
/// The read buffer of a party's connection, and the longest head of its requests. It is small because there may be ten
/// thousand connections.
const PARTY_BUFFER: usize = 8 << 10;
/// The read buffer of a plain connection. Browsers send all cookies of a host.
const PLAIN_BUFFER: usize = 64 << 10;

/// Serves a router over plain HTTP, for metrics and the dashboard on the local machine.
pub async fn serve_plain(listener: TcpListener, router: Router, limits: Limits, mut shutdown: Shutdown) {
    let permits = Arc::new(Semaphore::new(MAX_PLAIN_CONNECTIONS));
    loop {
        let permit = tokio::select! {
            () = shutdown.wait() => break,
            permit = permits.clone().acquire_owned() => permit,
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
            let io = TokioIo::new(with_write_timeout(stream, limits));
            serve_http(io, TowerToHyperService::new(router), PLAIN_BUFFER, limits, shutdown).await;
            drop(permit);
        });
    }
}

/// Returns a stream that fails when the peer does not read what is written to it.
fn with_write_timeout(stream: TcpStream, limits: Limits) -> Pin<Box<TimeoutStream<TcpStream>>> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.body));
    Box::pin(stream)
}

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
