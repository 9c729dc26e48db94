//! Clients that disturb the uploads of a load: idle connections, and uploads of a few bytes per second that never
//! end. They use the keys of users that do nothing else, and reconnect when a service closes the connection.
//! The module also runs users that keep polling, as all real users do.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use dphe::wire::max_upload_bytes;
use dphe::wire::{Kind, RoundTicket, Signed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::LoadUsers;
use dphe_service::Error;
use dphe_service::hex;
use dphe_service::http::client::{Backoff, Client, ClientError};
use dphe_service::service::user::aggregator_client::{MAX_RETRY_DELAY, POLL_SECONDS, REQUEST_TIMEOUT};
use dphe_service::tls::{ClientStream, ClientTls};

/// The number of idle connections per user. A service accepts sixteen.
const IDLE_PER_USER: usize = 8;
/// The bytes that a slow upload sends at a time, and the interval.
const CHUNK: &[u8] = &[0; 4];
const CHUNK_INTERVAL: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Running abusive clients. They stop when this is dropped.
pub(crate) struct AbusiveClients {
    _tasks: JoinSet<()>,
    shared: Arc<Shared>,
    wanted: AbusiveClientPlan,
}

#[derive(Default)]
struct Shared {
    round: AtomicU64,
    /// The hash of the round's ticket.
    seen: Mutex<String>,
    idle: AtomicUsize,
    slow: AtomicUsize,
    idle_closed: AtomicUsize,
    slow_ended: AtomicUsize,
    waiting: AtomicUsize,
    heard: AtomicUsize,
}

/// The state of the abusive clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct AbusiveClientCounts {
    /// Open idle connections.
    pub(crate) idle: usize,
    /// Running slow uploads.
    pub(crate) slow: usize,
    /// Idle connections that a service has closed.
    pub(crate) idle_closed: usize,
    /// Slow uploads that a service has ended.
    pub(crate) slow_ended: usize,
    /// Users that are polling.
    pub(crate) waiting: usize,
    /// Answers that these users have received.
    pub(crate) heard: usize,
}

/// The number of clients to start, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AbusiveClientPlan {
    /// Idle connections.
    pub(crate) idle: usize,
    /// Slow uploads.
    pub(crate) slow: usize,
    /// Users that poll.
    pub(crate) waiting: usize,
}

impl AbusiveClientPlan {
    /// Returns the number of users that are needed besides those that upload.
    pub(crate) fn users(self) -> usize {
        self.idle.div_ceil(IDLE_PER_USER).max(self.slow)
    }
}

impl AbusiveClients {
    /// Starts the clients, distributed over these addresses. The polling users are the first ones that upload.
    ///
    /// # Errors
    /// Fails if the load has too few users.
    pub(crate) fn start(
        load_users: &LoadUsers,
        addresses: &[String],
        ticket: &Signed<RoundTicket>,
        wanted: AbusiveClientPlan,
    ) -> Result<Self, Error> {
        if load_users.others() < wanted.users() || load_users.honest() < wanted.waiting {
            return Err(Error::Unexpected { what: "the load has too few users for its abusive clients" });
        }
        let shared = Arc::new(Shared::default());
        shared.begin(ticket);
        let mut tasks = JoinSet::new();
        let bytes = max_upload_bytes(load_users.roster().task());
        let address = |at: usize| addresses[at % addresses.len()].clone();
        let connector = |at: usize, member: usize| -> Result<Connector, Error> {
            Ok(Connector { address: address(at), tls: load_users.tls(member)? })
        };
        for at in 0..wanted.idle {
            tasks.spawn(connector(at, load_users.honest() + at / IDLE_PER_USER)?.stay_idle(shared.clone()));
        }
        for at in 0..wanted.slow {
            let member = load_users.honest() + at;
            tasks.spawn(connector(at, member)?.upload_slowly(
                load_users.user(member).get(),
                bytes,
                shared.clone(),
            ));
        }
        for at in 0..wanted.waiting {
            tasks.spawn(poll(load_users.client(at, &address(at))?, shared.clone()));
        }
        Ok(Self { _tasks: tasks, shared, wanted })
    }

    /// Waits until all clients are connected, or until the timeout.
    pub(crate) async fn wait_until_connected(&self, timeout_after: Duration) {
        let all = async {
            loop {
                let AbusiveClientCounts { idle, slow, waiting, .. } = self.counts();
                let wanted = self.wanted;
                if (idle, slow, waiting) == (wanted.idle, wanted.slow, wanted.waiting) {
                    return;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = timeout(timeout_after, all).await;
    }

    /// Tells the clients which round is running.
    pub(crate) fn begin(&self, ticket: &Signed<RoundTicket>) {
        self.shared.begin(ticket);
    }

    /// Returns the state of the clients.
    pub(crate) fn counts(&self) -> AbusiveClientCounts {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        AbusiveClientCounts {
            idle: of(&self.shared.idle),
            slow: of(&self.shared.slow),
            idle_closed: of(&self.shared.idle_closed),
            slow_ended: of(&self.shared.slow_ended),
            waiting: of(&self.shared.waiting),
            heard: of(&self.shared.heard),
        }
    }
}

impl Shared {
    fn begin(&self, ticket: &Signed<RoundTicket>) {
        if let Ok(mut seen) = self.seen.lock() {
            *seen = hex::encode(ticket.hash().as_bytes());
        }
        self.round.store(ticket.round().get(), Ordering::Relaxed);
    }
}

struct Connector {
    address: String,
    tls: ClientTls,
}

impl Connector {
    async fn open(&self) -> Option<ClientStream<TcpStream>> {
        let opened = timeout(CONNECT_TIMEOUT, async {
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            self.tls.connect(stream).await
        });
        opened.await.ok()?.ok()
    }

    async fn stay_idle(self, shared: Arc<Shared>) {
        loop {
            if let Some(mut stream) = self.open().await {
                shared.idle.fetch_add(1, Ordering::Relaxed);
                // the service sends nothing, so this returns when it closes the connection
                let _ = stream.read(&mut [0; 16]).await;
                shared.idle.fetch_sub(1, Ordering::Relaxed);
                shared.idle_closed.fetch_add(1, Ordering::Relaxed);
            }
            sleep(CHUNK_INTERVAL).await;
        }
    }

    async fn upload_slowly(self, user: u32, bytes: u64, shared: Arc<Shared>) {
        loop {
            if let Some(mut stream) = self.open().await {
                let round = shared.round.load(Ordering::Relaxed);
                let head = format!(
                    "PUT /v1/rounds/{round}/uploads/{user}?offset=0&total={bytes} HTTP/1.1\r\nhost: dphe\r\n\
                     content-type: {}\r\ncontent-length: {bytes}\r\n\r\n",
                    Kind::Upload.media_type()
                );
                shared.slow.fetch_add(1, Ordering::Relaxed);
                let _ = trickle(&mut stream, head.as_bytes(), bytes).await;
                shared.slow.fetch_sub(1, Ordering::Relaxed);
                shared.slow_ended.fetch_add(1, Ordering::Relaxed);
            }
            sleep(CHUNK_INTERVAL).await;
        }
    }
}

/// Polls for the end of the round, and then of the next one, as a user does that has uploaded.
async fn poll(mut client: Client, shared: Arc<Shared>) {
    let mut backoff = Backoff::new(MAX_RETRY_DELAY);
    let mut heard = 0;
    loop {
        if client.connect().await.is_ok() {
            shared.waiting.fetch_add(1, Ordering::Relaxed);
            loop {
                let round = shared.round.load(Ordering::Relaxed);
                let seen = shared.seen.lock().map(|seen| seen.clone()).unwrap_or_default();
                let path =
                    format!("/v1/rounds/next?after={round}&heard={heard}&wait={POLL_SECONDS}&seen={seen}");
                match client.send(Method::GET, &path, None, Bytes::new(), REQUEST_TIMEOUT).await {
                    Ok(answer) if answer.body.is_empty() => backoff.reset(),
                    Ok(_) => {
                        shared.heard.fetch_add(1, Ordering::Relaxed);
                        heard = round;
                        // the answer may be a ticket that `shared` does not have yet
                        sleep(backoff.wait()).await;
                    }
                    // for example because all rounds are over
                    Err(ClientError::Problem(_)) => sleep(MAX_RETRY_DELAY).await,
                    Err(ClientError::Transport { .. }) => break,
                }
            }
            shared.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        sleep(backoff.wait()).await;
    }
}

/// Sends a request head and then a few bytes per interval, until there is an answer. The last byte is never sent.
async fn trickle(stream: &mut ClientStream<TcpStream>, head: &[u8], bytes: u64) -> std::io::Result<()> {
    stream.write_all(head).await?;
    stream.flush().await?;
    let mut left = bytes;
    loop {
        if left > CHUNK.len() as u64 {
            stream.write_all(CHUNK).await?;
            stream.flush().await?;
            left -= CHUNK.len() as u64;
        }
        // any answer is a refusal
        if let Ok(answered) = timeout(CHUNK_INTERVAL, stream.read(&mut [0; 16])).await {
            return answered.map(drop);
        }
    }
}
