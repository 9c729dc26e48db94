//! What is there beside the uploads: connections that never speak, and uploads of a few bytes a second that never end.
//! Both belong to enrolled users who do nothing else; what a service closes is opened again. And users who wait for
//! news, as all real ones do.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use dphe::message::{RoundTicket, Signed};
use dphe::{Party, max_body_bytes};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Crowd;
use crate::Error;
use crate::certificates::server_name;
use crate::http::client::{Backoff, Client, ClientError};
use crate::kit::hex;
use crate::service::user::line::{LONGEST_WAIT, PATIENCE, WAIT};

/// Silent connections of one user: a service takes sixteen.
const IDLE_OF_ONE: usize = 8;
/// What a slow upload sends at a time, and how often.
const DROP: &[u8] = &[0; 4];
const PAUSE: Duration = Duration::from_secs(1);
const CONNECT: Duration = Duration::from_secs(30);

/// Slow and silent connections, until this goes.
pub struct Nuisances {
    /// They end with this.
    _tasks: JoinSet<()>,
    shared: Arc<Shared>,
    wanted: Beside,
}

#[derive(Default)]
struct Shared {
    round: AtomicU64,
    /// The hash of its ticket.
    seen: Mutex<String>,
    idle: AtomicUsize,
    slow: AtomicUsize,
    idle_closed: AtomicUsize,
    slow_ended: AtomicUsize,
    waiting: AtomicUsize,
    heard: AtomicUsize,
}

/// How they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct NuisanceCounts {
    /// Silent connections that are open now.
    pub idle: usize,
    /// Slow uploads under way now.
    pub slow: usize,
    /// Silent connections that a service has closed so far.
    pub idle_closed: usize,
    /// Slow uploads that a service has ended so far.
    pub slow_ended: usize,
    /// Users that wait for news now.
    pub waiting: usize,
    /// Lists of news that they were told so far.
    pub heard: usize,
}

/// How many of each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside {
    /// Connections that never speak.
    pub idle: usize,
    /// Uploads that never end.
    pub slow: usize,
    /// Users who wait for news.
    pub waiting: usize,
}

impl Beside {
    /// How many users it takes beside those who upload.
    pub fn users(self) -> usize {
        self.idle.div_ceil(IDLE_OF_ONE).max(self.slow)
    }
}

impl Nuisances {
    /// Starts them, spread over these addresses in turn. Those who wait are the first of those who upload.
    ///
    /// # Errors
    /// If the crowd has too few users for it.
    pub fn start(
        crowd: &Crowd,
        addresses: &[String],
        ticket: &Signed<RoundTicket>,
        wanted: Beside,
    ) -> Result<Self, Error> {
        if crowd.others() < wanted.users() || crowd.honest() < wanted.waiting {
            return Err(Error::Unexpected { what: "too few users to get in the way" });
        }
        let shared = Arc::new(Shared::default());
        shared.begin(ticket);
        let mut tasks = JoinSet::new();
        let name = server_name(crowd.roster(), Party::Aggregator)?;
        let bytes = max_body_bytes(crowd.roster().task());
        let address = |at: usize| addresses[at % addresses.len()].clone();
        let line = |at: usize, member: usize| -> Result<Line, Error> {
            Ok(Line { address: address(at), name: name.clone(), tls: crowd.tls(member)? })
        };
        for at in 0..wanted.idle {
            tasks.spawn(line(at, crowd.honest() + at / IDLE_OF_ONE)?.be_silent(shared.clone()));
        }
        for at in 0..wanted.slow {
            let member = crowd.honest() + at;
            tasks.spawn(line(at, member)?.be_slow(crowd.user(member).get(), bytes, shared.clone()));
        }
        for at in 0..wanted.waiting {
            tasks.spawn(wait_for_news(crowd.client(at, &address(at))?, shared.clone()));
        }
        Ok(Self { _tasks: tasks, shared, wanted })
    }

    /// Waits until all are there, for so long at most.
    pub async fn settle(&self, patience: Duration) {
        let all = async {
            loop {
                let NuisanceCounts { idle, slow, waiting, .. } = self.counts();
                let Beside { idle: silent, slow: dawdling, waiting: listening } = self.wanted;
                if (idle, slow, waiting) == (silent, dawdling, listening) {
                    return;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = timeout(patience, all).await;
    }

    /// The round that everybody is in from now on.
    pub fn begin(&self, ticket: &Signed<RoundTicket>) {
        self.shared.begin(ticket);
    }

    /// How they stand.
    pub fn counts(&self) -> NuisanceCounts {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        NuisanceCounts {
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
            *seen = hex(ticket.hash().as_bytes());
        }
        self.round.store(ticket.round().get(), Ordering::Relaxed);
    }
}

struct Line {
    address: String,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
}

impl Line {
    async fn open(&self) -> Option<TlsStream<TcpStream>> {
        let opened = timeout(CONNECT, async {
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            TlsConnector::from(self.tls.clone()).connect(self.name.clone(), stream).await
        });
        opened.await.ok()?.ok()
    }

    async fn be_silent(self, shared: Arc<Shared>) {
        loop {
            if let Some(mut stream) = self.open().await {
                shared.idle.fetch_add(1, Ordering::Relaxed);
                // nothing comes: this ends when the service hangs up
                let _ = stream.read(&mut [0; 16]).await;
                shared.idle.fetch_sub(1, Ordering::Relaxed);
                shared.idle_closed.fetch_add(1, Ordering::Relaxed);
            }
            sleep(PAUSE).await;
        }
    }

    async fn be_slow(self, user: u32, bytes: u64, shared: Arc<Shared>) {
        loop {
            if let Some(mut stream) = self.open().await {
                let round = shared.round.load(Ordering::Relaxed);
                let head = format!(
                    "PUT /v1/rounds/{round}/uploads/{user}?offset=0&total={bytes} HTTP/1.1\r\nhost: dphe\r\n\
                     content-type: application/vnd.dphe.v1.upload\r\ncontent-length: {bytes}\r\n\r\n"
                );
                shared.slow.fetch_add(1, Ordering::Relaxed);
                let _ = trickle(&mut stream, head.as_bytes(), bytes).await;
                shared.slow.fetch_sub(1, Ordering::Relaxed);
                shared.slow_ended.fetch_add(1, Ordering::Relaxed);
            }
            sleep(PAUSE).await;
        }
    }
}

/// Asks for the end of the round, and then of the next, as a user does who has uploaded.
async fn wait_for_news(mut client: Client, shared: Arc<Shared>) {
    let mut backoff = Backoff::new(LONGEST_WAIT);
    let mut heard = 0;
    loop {
        if client.connect().await.is_ok() {
            shared.waiting.fetch_add(1, Ordering::Relaxed);
            loop {
                let round = shared.round.load(Ordering::Relaxed);
                let seen = shared.seen.lock().map(|seen| seen.clone()).unwrap_or_default();
                let path = format!("/v1/rounds/next?after={round}&heard={heard}&wait={WAIT}&seen={seen}");
                match client.send(Method::GET, &path, None, Bytes::new(), PATIENCE).await {
                    Ok(answer) if answer.body.is_empty() => backoff.reset(),
                    Ok(_) => {
                        shared.heard.fetch_add(1, Ordering::Relaxed);
                        heard = round;
                        // a ticket may be told that the others of the crowd do not have yet
                        sleep(backoff.wait()).await;
                    }
                    // all rounds are over, say
                    Err(ClientError::Problem(_)) => sleep(LONGEST_WAIT).await,
                    Err(ClientError::Line { .. }) => break,
                }
            }
            shared.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        sleep(backoff.wait()).await;
    }
}

/// Sends a head, then a few bytes now and then, until there is an answer. The last byte is never sent.
async fn trickle(stream: &mut TlsStream<TcpStream>, head: &[u8], bytes: u64) -> std::io::Result<()> {
    stream.write_all(head).await?;
    stream.flush().await?;
    let mut left = bytes;
    loop {
        if left > DROP.len() as u64 {
            stream.write_all(DROP).await?;
            stream.flush().await?;
            left -= DROP.len() as u64;
        }
        // any answer is a refusal
        if let Ok(answered) = timeout(PAUSE, stream.read(&mut [0; 16])).await {
            return answered.map(drop);
        }
    }
}
