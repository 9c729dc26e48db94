//! The middleware of every request of a party: it gives the request an identifier and limits the party's rate.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use dphe::PartyId;
use tracing::Instrument as _;

use super::MAX_CHUNK;
use super::problem::{HttpErrorCode, Problem};
use super::request_id::{REQUEST_ID, RequestId};
use super::server::{Limits, Peer};
use crate::party::party_name;
use crate::telemetry::Metrics;

/// A rate limiter with a token bucket per party. Only parties of the roster can connect, so the number of buckets is
/// bounded.
#[derive(Clone, Debug)]
pub(super) struct RateLimiter {
    per_second: f64,
    burst: f64,
    buckets: Arc<Mutex<HashMap<PartyId, Bucket>>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl RateLimiter {
    pub(super) fn new(limits: &Limits) -> Self {
        let (per_second, burst) = (limits.requests_per_second.max(1), limits.requests_at_once.max(1));
        Self { per_second: per_second.into(), burst: burst.into(), buckets: Arc::default() }
    }

    /// Counts a request of a party. Returns the time to wait if its bucket is empty.
    fn take(&self, party: PartyId, now: Instant) -> Result<(), Duration> {
        // a panic in another thread must not block all parties
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

    /// Undoes the last `take` of a party.
    fn refund(&self, party: PartyId) {
        let mut buckets = self.buckets.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(bucket) = buckets.get_mut(&party) {
            bucket.tokens = (bucket.tokens + 1.0).min(self.burst);
        }
    }
}

/// The state of the middleware.
#[derive(Clone)]
pub(super) struct MiddlewareState {
    pub(super) rate_limiter: RateLimiter,
    pub(super) metrics: Arc<Metrics>,
}

/// Identifies a request, applies the rate limit and runs the handler. The response carries the identifier.
pub(super) async fn identify_and_limit(
    State(state): State<MiddlewareState>,
    Extension(Peer(party)): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let id = RequestId::of(request.headers().get(REQUEST_ID));
    let span = tracing::info_span!("request", id = %id, by = party_name(party));
    let answer = async {
        let method = request.method().clone();
        let path: String = request.uri().path().chars().take(100).collect();
        let full_chunk = method == Method::PUT && is_full_chunk(&request);
        let mut response = match state.rate_limiter.take(party, Instant::now()) {
            Ok(()) => next.run(request).await,
            Err(wait) => {
                state.metrics.refused(HttpErrorCode::Rate);
                let problem = HttpErrorCode::Rate.because("the party sent too many requests in a short time");
                problem.after(wait).into_response()
            }
        };
        // the bandwidth limits full chunks already, so a long upload is not slowed down for having many
        if full_chunk && response.status().is_success() {
            state.rate_limiter.refund(party);
        }
        add_request_id(&mut response, &id);
        tracing::debug!(%method, path, status = response.status().as_u16(), "answered");
        response
    };
    answer.instrument(span).await
}

/// Returns whether the body has at least the length of a full upload chunk.
fn is_full_chunk(request: &Request) -> bool {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).is_some_and(|length: u64| length >= MAX_CHUNK as u64)
}

/// Adds the identifier to a response, and to the body of a problem.
fn add_request_id(response: &mut Response, id: &RequestId) {
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
    fn rate_limit_is_per_party_and_refills_over_time() {
        let limits = Limits { requests_per_second: 10, requests_at_once: 3, ..Limits::default() };
        let limiter = RateLimiter::new(&limits);
        let user = |n| PartyId::User(dphe::UserId::new(n).unwrap());
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(limiter.take(user(1), start), Ok(()));
        }
        let wait = limiter.take(user(1), start).unwrap_err();
        assert!(wait > Duration::from_millis(99) && wait < Duration::from_millis(101), "{wait:?}");
        assert_eq!(limiter.take(user(2), start), Ok(()), "each party has its own bucket");
        // refused requests cost no tokens, and a bucket never exceeds its burst
        assert_eq!(limiter.take(user(1), start + 2 * wait), Ok(()));
        let later = start + Duration::from_secs(1000);
        let taken = (0..10).filter(|_| limiter.take(user(1), later).is_ok()).count();
        assert_eq!(taken, 3);
        limiter.refund(user(1));
        assert_eq!(limiter.take(user(1), later), Ok(()));
        assert!(limiter.take(user(1), later).is_err());
        // a clock that goes back does not panic
        assert!(limiter.take(user(1), start).is_err());
        assert_eq!(limiter.buckets.lock().unwrap().len(), 2);
    }
}
