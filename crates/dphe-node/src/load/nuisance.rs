//! What gets in the way: connections that never speak, and uploads of a few bytes a second that never end. Both belong
//! to enrolled users, who do nothing else; what a service closes is opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use dphe::{Party, Round, max_body_bytes};
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

/// Silent connections of one user: a service takes sixteen.
const IDLE_OF_ONE: usize = 8;
/// What a slow upload sends at a time, and how often.
const DROP: &[u8] = &[0; 4];
const PAUSE: Duration = Duration::from_secs(1);
const CONNECT: Duration = Duration::from_secs(30);

/// Slow and silent connections, until this goes.
pub struct Nuisances {
    tasks: JoinSet<()>,
    shared: Arc<Shared>,
    wanted: (usize, usize),
}

#[derive(Default)]
struct Shared {
    round: AtomicU64,
    idle: AtomicUsize,
    slow: AtomicUsize,
    idle_closed: AtomicUsize,
    slow_ended: AtomicUsize,
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
}

impl Nuisances {
    /// How many enrolled users it takes.
    pub fn users(idle: usize, slow: usize) -> usize {
        idle.div_ceil(IDLE_OF_ONE).max(slow)
    }

    /// Starts them, spread over these addresses in turn.
    ///
    /// # Errors
    /// If the crowd has too few users for it.
    pub fn start(crowd: &Crowd, addresses: &[String], idle: usize, slow: usize) -> Result<Self, Error> {
        if crowd.others() < Self::users(idle, slow) {
            return Err(Error::Unexpected { what: "too few users to get in the way" });
        }
        let shared = Arc::new(Shared::default());
        shared.round.store(1, Ordering::Relaxed);
        let mut tasks = JoinSet::new();
        let name = server_name(crowd.roster(), Party::Aggregator)?;
        let bytes = max_body_bytes(crowd.roster().task());
        for at in 0..idle.max(slow) {
            let address = addresses[at % addresses.len()].clone();
            if at < idle {
                let line = Line {
                    address: address.clone(),
                    name: name.clone(),
                    tls: crowd.tls(crowd.honest() + at / IDLE_OF_ONE)?,
                };
                tasks.spawn(line.be_silent(shared.clone()));
            }
            if at < slow {
                let member = crowd.honest() + at;
                let line = Line { address, name: name.clone(), tls: crowd.tls(member)? };
                tasks.spawn(line.be_slow(crowd.user(member).get(), bytes, shared.clone()));
            }
        }
        Ok(Self { tasks, shared, wanted: (idle, slow) })
    }

    /// Waits until all are there, for so long at most.
    pub async fn settle(&self, patience: Duration) {
        let all = async {
            loop {
                let NuisanceCounts { idle, slow, .. } = self.counts();
                if (idle, slow) == self.wanted {
                    return;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = timeout(patience, all).await;
    }

    /// The round that slow uploads are of, from now on.
    pub fn set_round(&self, round: Round) {
        self.shared.round.store(round.get(), Ordering::Relaxed);
    }

    /// How they stand.
    pub fn counts(&self) -> NuisanceCounts {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        NuisanceCounts {
            idle: of(&self.shared.idle),
            slow: of(&self.shared.slow),
            idle_closed: of(&self.shared.idle_closed),
            slow_ended: of(&self.shared.slow_ended),
        }
    }

    /// How many connections are kept up.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
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
