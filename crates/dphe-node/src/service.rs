//! The parties at work. Each is one task that owns its state machine and its store and does one thing after the other
//! (an actor); steps run on threads for blocking work, and nothing is sent before what stands before it is on disk.

pub mod aggregator;
mod courier;
pub mod key_generator;
mod observe;
mod uploads;
pub mod user;
mod watch;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use dphe::party::{AggregatorParty, KeyGeneratorParty, Time, UserParty};
use dphe_paillier::Threads;
use tokio::net::TcpListener;

use crate::Error;
use crate::http::server::{Limits, Shutdown, serve_plain};
use crate::telemetry::Metrics;
use crate::tensorboard::EventFile;

/// How a party runs.
pub struct ServiceOptions {
    /// Threads that a step may use.
    pub threads: Threads,
    /// How connections are treated.
    pub limits: Limits,
    /// Where `/healthz`, `/readyz` and `/metrics` are, without TLS: for the own machine.
    pub observe: Option<TcpListener>,
    /// The figures.
    pub metrics: Arc<Metrics>,
    /// Where the aggregator writes figures of rounds for TensorBoard.
    pub events: Option<EventFile>,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self {
            threads: Threads::all(),
            limits: Limits::default(),
            observe: None,
            metrics: Arc::new(Metrics::default()),
            events: None,
        }
    }
}

/// Milliseconds since the party started, by a clock that never goes back: setting the time of day changes nothing.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn new() -> Self {
        Self(Instant::now())
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Waits until this time; for ever, without one.
    async fn wait_until(&self, time: Option<Time>) {
        let Some(Time(at)) = time else { return std::future::pending().await };
        let wait = at.saturating_sub(self.now().0);
        tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
    }
}

/// Where a party's round stands, in a word.
trait Phased {
    fn phase(&self) -> &'static str;
}

impl Phased for AggregatorParty {
    fn phase(&self) -> &'static str {
        Self::phase(self)
    }
}

impl<R> Phased for (KeyGeneratorParty, R) {
    fn phase(&self) -> &'static str {
        self.0.phase()
    }
}

impl<R> Phased for (UserParty, R) {
    fn phase(&self) -> &'static str {
        self.0.phase()
    }
}

/// A state machine that computes off the asynchronous threads.
struct Machine<P> {
    party: Option<Box<P>>,
    metrics: Arc<Metrics>,
}

impl<P: Phased + Send + 'static> Machine<P> {
    fn new(party: P, metrics: Arc<Metrics>) -> Self {
        metrics.stands(party.phase());
        Self { party: Some(Box::new(party)), metrics }
    }

    async fn run<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut P) -> R + Send + 'static,
    ) -> Result<R, Error> {
        const GONE: Error = Error::Unexpected { what: "a step that never ended" };
        let mut party = self.party.take().ok_or(GONE)?;
        let begin = Instant::now();
        let stepped = tokio::task::spawn_blocking(move || {
            let result = work(&mut party);
            (party, result)
        });
        let (party, result) = stepped.await.map_err(|_| GONE)?;
        self.metrics.step_milliseconds.add(i64::try_from(begin.elapsed().as_millis()).unwrap_or(i64::MAX));
        self.metrics.stands(party.phase());
        self.party = Some(party);
        Ok(result)
    }

    fn party(&self) -> Result<&P, Error> {
        self.party.as_deref().ok_or(Error::Unexpected { what: "a step that never ended" })
    }
}

/// Starts the plain listener, if there is one, with a page where a party has one.
fn start_observing(options: &mut ServiceOptions, page: Option<Router>, shutdown: &Shutdown) {
    if let Some(listener) = options.observe.take() {
        let mut router = observe::router(options.metrics.clone());
        let loopback = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        match page {
            Some(page) if loopback => router = router.merge(page),
            // its token would cross the network for all to read
            Some(_) => tracing::info!("no page here: it is shown on addresses of the own machine only"),
            None => {}
        }
        tokio::spawn(serve_plain(listener, router, options.limits, shutdown.clone()));
    }
}

/// A generator seeded by the operating system.
fn os_rng() -> Result<chacha20::ChaCha20Rng, Error> {
    rand_core::SeedableRng::try_from_rng(&mut getrandom::SysRng).map_err(Error::Randomness)
}
