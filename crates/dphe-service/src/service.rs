//! The parties as services.
//!
//! Each party is an actor: one asynchronous task that owns the state machine and the store, and handles one event after
//! the other. A driver runs the steps on threads for blocking work and carries out their actions in order, so that
//! nothing is sent before what it depends on is durable.
//!
//! | module | content |
//! | --- | --- |
//! | [`aggregator`] | the aggregator, alone or as one of several replicas |
//! | [`key_generator`] | the key generator |
//! | [`user`] | the user's program, and its client of the aggregator |
//! | `driver` | runs a party and makes its log durable |
//! | `outbox` | sends the aggregator's messages until they are answered |
//! | `chunks` | stores incomplete uploads |
//! | `dashboard`, `observe` | the live page, health and metrics |

pub mod aggregator;
mod chunks;
mod dashboard;
mod driver;
pub mod key_generator;
mod observe;
mod outbox;
pub mod user;

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use dphe_paillier::Threads;
use tokio::net::TcpListener;

use crate::Error;
use crate::http::server::{Limits, Shutdown, serve_plain};
use crate::kit::RosterHash;
use crate::telemetry::Metrics;
use crate::tensorboard::EventFile;

/// A future whose code is in this crate. The code of any other future is compiled into each program that awaits it.
type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The options of a service.
pub struct ServiceOptions {
    /// The number of threads that a step of the protocol may use.
    pub threads: Threads,
    /// The limits of connections and requests.
    pub limits: Limits,
    /// The listener for `/healthz`, `/readyz`, `/metrics` and the dashboard. It uses no TLS and is meant for the local
    /// machine.
    pub observe: Option<TcpListener>,
    /// How many bytes of complete messages are in memory until they are answered. A message that is longer than this is
    /// handled alone.
    pub message_memory: u64,
    /// The metrics of the party.
    pub metrics: Arc<Metrics>,
    /// The hash of the roster, as a person has compared it with other parties. It is needed at the first start with a
    /// store, which then remembers it.
    pub roster: Option<RosterHash>,
    /// The file to which the aggregator writes round records for TensorBoard.
    pub events: Option<EventFile>,
    /// The number of rounds in a row in which training may fail before the user stops. `None` means any number.
    pub max_failed_trainings: Option<NonZeroU32>,
}

/// The memory for complete messages in bytes, unless the program chooses another number.
const MESSAGE_MEMORY: u64 = 1 << 30;

impl Default for ServiceOptions {
    fn default() -> Self {
        Self {
            threads: Threads::all(),
            limits: Limits::default(),
            observe: None,
            message_memory: MESSAGE_MEMORY,
            metrics: Arc::new(Metrics::default()),
            roster: None,
            events: None,
            max_failed_trainings: None,
        }
    }
}

/// Starts the plain listener if there is one, with the dashboard of a party that has one.
fn start_observing(options: &mut ServiceOptions, page: Option<Router>, shutdown: &Shutdown) {
    if let Some(listener) = options.observe.take() {
        let mut router = observe::router(options.metrics.clone());
        let loopback = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        match page {
            Some(page) if loopback => {
                if let Ok(address) = listener.local_addr() {
                    // the log output must not contain the token itself
                    let token = "in the file dashboard.token of the kit";
                    tracing::info!(
                        dashboard = format!("http://{address}/"),
                        token,
                        "the dashboard can be opened"
                    );
                }
                router = router.merge(page);
            }
            // the token would cross the network unencrypted
            Some(_) => tracing::info!("the dashboard is off: it needs a loopback address"),
            None => {}
        }
        tokio::spawn(serve_plain(listener, router, options.limits, shutdown.clone()));
    }
}

/// Creates a random number generator seeded by the operating system.
pub fn os_rng() -> Result<chacha20::ChaCha20Rng, Error> {
    rand_core::SeedableRng::try_from_rng(&mut getrandom::SysRng).map_err(Error::Randomness)
}
