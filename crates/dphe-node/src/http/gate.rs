//! What every request of a party passes first: it gets a name, and it is counted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use dphe::Party;
use tracing::Instrument as _;

use super::MAX_CHUNK;
use super::problem::{HttpCode, Problem};
use super::request_id::{REQUEST_ID, RequestId};
use super::server::{Limits, Peer};
use crate::certificates::role_name;
use crate::telemetry::Metrics;

/// How many requests each party may make: a bucket of tokens that fills up again. Parties are those of the roster, so
/// there are not more buckets than that.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    per_second: f64,
    burst: f64,
    buckets: Arc<Mutex<HashMap<Party, Bucket>>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Rates {
    pub(super) fn new(limits: &Limits) -> Self {
        let (per_second, burst) = (limits.requests_per_second.max(1), limits.requests_at_once.max(1));
        Self { per_second: per_second.into(), burst: burst.into(), buckets: Arc::default() }
    }

    /// One more request of a party, or how long it has to wait.
    fn take(&self, party: Party, now: Instant) -> Result<(), Duration> {
        // a thread that panicked must not lock everybody out
        let mut buckets = self.buckets.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let bucket = buckets.entry(party).or_insert(Bucket { tokens: self.burst, at: now });
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        *bucket = Bucket { tokens: (bucket.tokens + passed * self.per_second).min(self.burst), at: now };
        if bucket.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.tokens) / self.per_second));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }

    /// That request does not count.
    fn give_back(&self, party: Party) {
        let mut buckets = self.buckets.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(bucket) = buckets.get_mut(&party) {
            bucket.tokens = (bucket.tokens + 1.0).min(self.burst);
        }
    }
}

/// The gate of a service.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) rates: Rates,
    pub(super) metrics: Arc<Metrics>,
}

/// Names the request, counts it, and has it answered. The answer says the name.
pub(super) async fn pass(
    State(gate): State<Gate>,
    Extension(Peer(party)): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let id = RequestId::of(request.headers().get(REQUEST_ID));
    let span = tracing::info_span!("request", id = %id, by = role_name(party));
    let answer = async {
        let method = request.method().clone();
        let path: String = request.uri().path().chars().take(100).collect();
        let large = method == Method::PUT && is_large(&request);
        let mut response = match gate.rates.take(party, Instant::now()) {
            Ok(()) => next.run(request).await,
            Err(wait) => {
                gate.metrics.refused("rate");
                let problem = HttpCode::Rate.because("too many requests of one party in a short time");
                problem.after(wait).into_response()
            }
        };
        // its bytes are bound by the line; an upload must not wait because it has many pieces
        if large && response.status().is_success() {
            gate.rates.give_back(party);
        }
        name(&mut response, &id);
        tracing::debug!(%method, path, status = response.status().as_u16(), "answered");
        response
    };
    answer.instrument(span).await
}

/// Whether the body is a whole piece of an upload, or longer.
fn is_large(request: &Request) -> bool {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).is_some_and(|length: u64| length >= MAX_CHUNK as u64)
}

/// Puts the name of the request into its answer, and into the problem if it is one.
fn name(response: &mut Response, id: &RequestId) {
    response.headers_mut().insert(REQUEST_ID, id.to_header());
    if let Some(mut problem) = response.extensions_mut().remove::<Problem>() {
        problem.request = Some(id.to_string());
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = Body::from(problem.to_json());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_fill_again_and_are_ones_own() {
        let limits = Limits { requests_per_second: 10, requests_at_once: 3, ..Limits::default() };
        let rates = Rates::new(&limits);
        let user = |n| Party::User(dphe::UserId::new(n).unwrap());
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(rates.take(user(1), start), Ok(()));
        }
        let wait = rates.take(user(1), start).unwrap_err();
        assert!(wait > Duration::from_millis(99) && wait < Duration::from_millis(101), "{wait:?}");
        assert_eq!(rates.take(user(2), start), Ok(()), "another's are another's");
        // refused ones cost nothing, and time brings back no more than there were
        assert_eq!(rates.take(user(1), start + 2 * wait), Ok(()));
        let later = start + Duration::from_secs(1000);
        let taken = (0..10).filter(|_| rates.take(user(1), later).is_ok()).count();
        assert_eq!(taken, 3);
        rates.give_back(user(1));
        assert_eq!(rates.take(user(1), later), Ok(()));
        assert!(rates.take(user(1), later).is_err());
        // a clock that stands still or goes back is no reason to stop
        assert!(rates.take(user(1), start).is_err());
        assert_eq!(rates.buckets.lock().unwrap().len(), 2);
    }
}
