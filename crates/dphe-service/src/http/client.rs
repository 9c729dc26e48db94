//! An HTTP client of a service with one connection, which is re-established when it is lost. [`Backoff`] paces retries.

use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use bytes::{Bytes, BytesMut};
use dphe::PartyId;
use http_body_util::BodyExt as _;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rand_core::Rng as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::problem::{HttpErrorCode, PROBLEM, Problem, ProblemCode};
use super::request_id::{REQUEST_ID, RequestId};
use crate::party::party_name;
use crate::tls::{ClientTls, refuses_identity};

/// Why a request was not answered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The service refused the request.
    #[error("refused as `{}`: {}{}", .0.code, .0.detail, request_suffix(.0.request.as_deref()))]
    Problem(Box<Problem>),
    /// The service could not be reached, or its answer was invalid. A later attempt may succeed.
    #[error("{what}")]
    Transport {
        /// What kind of problem it is.
        fault: Fault,
        /// What went wrong.
        what: String,
    },
}

/// What kept a request from being answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No connection can be made: nothing listens, the address is wrong, or a firewall is in between.
    Unreachable,
    /// The peer does not prove the identity that the roster has for it.
    Identity,
    /// The connection or the answer broke.
    Broken,
}

impl Fault {
    /// Returns what the operator can do. `peer` is the party that does not answer.
    pub fn hint(self, peer: PartyId) -> String {
        let peer = party_name(peer);
        match self {
            Self::Unreachable => {
                format!("Start the {peer}, and check its address in task.toml and the firewalls in between.")
            }
            Self::Identity => {
                "Compare the hash of the roster that `dphe doctor` prints on both machines. If it differs, one kit is \
                 from another run of `dphe keygen`, or lacks a roster change. If it is the same, another program \
                 listens at this address."
                    .to_owned()
            }
            Self::Broken => format!("Look at the log output of the {peer}."),
        }
    }
}

fn request_suffix(request: Option<&str>) -> String {
    request.map(|id| format!(" (request {id})")).unwrap_or_default()
}

impl ClientError {
    /// Returns the wait that a rate limiter asks for. A request before that would be refused again.
    fn requested_wait(&self) -> Option<Duration> {
        match self {
            Self::Problem(problem) if problem.code == ProblemCode::Http(HttpErrorCode::Rate) => {
                problem.retry_after.map(|seconds| Duration::from_secs(seconds.min(MAX_REQUESTED_WAIT).into()))
            }
            _ => None,
        }
    }

    /// Adds the identifier of the request.
    fn with_request(self, id: &RequestId) -> Self {
        match self {
            Self::Transport { fault, what } => {
                Self::Transport { fault, what: what + &request_suffix(Some(&id.to_string())) }
            }
            Self::Problem(mut problem) => {
                // our own identifier, whatever the response says
                problem.request = Some(id.to_string());
                Self::Problem(problem)
            }
        }
    }

    /// Creates the error of a connection or an answer that broke.
    pub fn broken(what: impl Into<String>) -> Self {
        Self::Transport { fault: Fault::Broken, what: what.into() }
    }

    fn transport(what: &str, error: impl std::fmt::Display) -> Self {
        Self::broken(format!("{what}: {error}"))
    }

    /// Returns what kind of problem it is, unless the service answered.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Problem(_) => None,
            Self::Transport { fault, .. } => Some(*fault),
        }
    }

    /// Returns whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.is_transient(),
            Self::Transport { .. } => true,
        }
    }
}

/// A successful response.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status, which is a success.
    pub status: StatusCode,
    /// The body.
    pub body: Bytes,
    /// The number of bytes of an upload that the service has, if it says so.
    pub upload_offset: Option<u64>,
    /// The clock of the service.
    pub date: Option<SystemTime>,
}

/// A client of one service.
pub struct Client {
    address: String,
    tls: ClientTls,
    /// The length of the longest response in bytes.
    max_response: u64,
    connection: Option<SendRequest<Body>>,
}

/// The longest wait that a service can ask for, in seconds.
const MAX_REQUESTED_WAIT: u32 = 60;
/// The time to connect, including the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Client {
    /// Creates a client of the service at `address`.
    pub fn new(address: String, tls: ClientTls, max_response: u64) -> Self {
        Self { address, tls, max_response, connection: None }
    }

    /// Returns the length of the longest response in bytes.
    pub fn max_response(&self) -> u64 {
        self.max_response
    }

    /// Creates a client of the same service with a connection of its own.
    #[must_use]
    pub fn new_connection(&self) -> Self {
        Self::new(self.address.clone(), self.tls.clone(), self.max_response)
    }

    /// Connects and completes the TLS handshake without sending a request.
    ///
    /// # Errors
    /// [`ClientError::Transport`].
    pub async fn connect(&mut self) -> Result<(), ClientError> {
        let stream = timeout(CONNECT_TIMEOUT, async {
            let stream = TcpStream::connect(&self.address).await.map_err(|error| {
                let what = format!("{} cannot be reached: {error}", self.address);
                ClientError::Transport { fault: Fault::Unreachable, what }
            })?;
            let _ = stream.set_nodelay(true);
            self.tls.connect(stream).await.map_err(|error| {
                let fault = if refuses_identity(&error) { Fault::Identity } else { Fault::Broken };
                let what = match fault {
                    Fault::Identity => format!("{} has another identity than the roster says", self.address),
                    Fault::Unreachable | Fault::Broken => {
                        format!("{} failed to authenticate: {error}", self.address)
                    }
                };
                ClientError::Transport { fault, what }
            })
        })
        .await
        .map_err(|_| {
            let what = format!("{} does not answer", self.address);
            ClientError::Transport { fault: Fault::Unreachable, what }
        })??;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| ClientError::transport("the connection failed", error))?;
        tokio::spawn(async move {
            // an error also reaches the request that waits for its response
            let _ = connection.await;
        });
        self.connection = Some(sender);
        Ok(())
    }

    /// Sends a request and waits for its response.
    ///
    /// # Errors
    /// [`ClientError`]. After [`ClientError::Transport`] it is unknown whether the service handled the request.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        media: Option<&str>,
        body: Bytes,
        time_limit: Duration,
    ) -> Result<Answer, ClientError> {
        let id = RequestId::fresh();
        let exchange = async {
            self.ensure_connected().await?;
            self.exchange(method, path, media, body, &id).await.map_err(|error| error.with_request(&id))
        };
        let result = timeout(time_limit, exchange).await.unwrap_or_else(|_| {
            Err(ClientError::broken(format!("{} took too long to answer", self.address)).with_request(&id))
        });
        if matches!(result, Err(ClientError::Transport { .. })) {
            self.connection = None;
        }
        result
    }

    async fn ensure_connected(&mut self) -> Result<(), ClientError> {
        let ready = match &mut self.connection {
            Some(connection) => connection.ready().await.is_ok(),
            None => false,
        };
        if ready { Ok(()) } else { self.connect().await }
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        media: Option<&str>,
        body: Bytes,
        id: &RequestId,
    ) -> Result<Answer, ClientError> {
        let Some(connection) = &mut self.connection else {
            return Err(ClientError::broken("there is no connection"));
        };
        let request = Request::builder().method(method).uri(path).header(header::HOST, "dphe");
        let mut request = request.header(REQUEST_ID, id.to_header());
        if let Some(media) = media {
            request = request.header(header::CONTENT_TYPE, media);
        }
        let request = request
            .body(Body::from(body))
            .map_err(|error| ClientError::transport("the request is invalid", error))?;
        let response = connection.send_request(request).await.map_err(|error| {
            // a server refuses a client's identity after the client has finished its handshake
            let source = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref());
            if source.is_some_and(refuses_identity) {
                let what = format!("{} does not accept this party's identity", self.address);
                return ClientError::Transport { fault: Fault::Identity, what };
            }
            ClientError::transport(&format!("{} closed the connection", self.address), error)
        })?;
        let (head, mut body) = response.into_parts();
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| ClientError::transport("the response was truncated", error))?;
            if let Ok(data) = frame.into_data() {
                if bytes.len() as u64 + data.len() as u64 > self.max_response {
                    return Err(ClientError::broken("the response is longer than the task allows"));
                }
                bytes.extend_from_slice(&data);
            }
        }
        let bytes = bytes.freeze();
        if head.status.is_success() {
            let offset = head.headers.get(super::UPLOAD_OFFSET);
            let upload_offset =
                offset.and_then(|offset| offset.to_str().ok()).and_then(|text| text.parse().ok());
            let date = head.headers.get(header::DATE).and_then(|date| date.to_str().ok());
            let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
            return Ok(Answer { status: head.status, body: bytes, upload_offset, date });
        }
        let is_problem = head.headers.get(header::CONTENT_TYPE).is_some_and(|media| media == PROBLEM);
        match Problem::of_peer(&bytes) {
            Some(mut problem) if is_problem => {
                let seconds = head.headers.get(header::RETRY_AFTER).and_then(|seconds| seconds.to_str().ok());
                problem.retry_after = seconds.and_then(|seconds| seconds.parse().ok());
                Err(ClientError::Problem(Box::new(problem)))
            }
            _ => Err(ClientError::broken(format!("{} answered {}", self.address, head.status))),
        }
    }
}

/// The delays between retries. They double up to a bound and are random, so that clients do not return all at once.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    max_delay: Duration,
    rng: chacha20::ChaCha8Rng,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);

    /// Creates delays of at most `max_delay`.
    pub fn new(max_delay: Duration) -> Self {
        let mut seed = [0; 8];
        // without randomness all clients use the same delays, which loads the server more but is not wrong
        let _ = getrandom::fill(&mut seed);
        let rng = rand_core::SeedableRng::seed_from_u64(u64::from_be_bytes(seed));
        Self { next: Self::FIRST, max_delay, rng }
    }

    /// Starts again with the shortest delay, after a success.
    pub fn reset(&mut self) {
        self.next = Self::FIRST;
    }

    /// Returns the next delay after an error. It is longer if the service asks for it.
    pub fn wait_after(&mut self, error: &ClientError) -> Duration {
        let wait = self.wait();
        // the random part keeps clients apart
        error.requested_wait().map_or(wait, |requested| requested + wait)
    }

    /// Returns the next delay: a random time between half and all of a bound that doubles.
    pub fn wait(&mut self) -> Duration {
        let wait = self.next.mul_f64(0.5 + (self.rng.next_u32() >> 8) as f64 / f64::from(1 << 25));
        self.next = (self.next * 2).min(self.max_delay);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_delays_double_up_to_a_bound_and_are_random() {
        let most = Duration::from_secs(2);
        let mut backoff = Backoff::new(most);
        let waits: Vec<Duration> = (0..12).map(|_| backoff.wait()).collect();
        assert!(waits[0] >= Backoff::FIRST / 2 && waits[0] <= Backoff::FIRST);
        assert!(waits[8..].iter().all(|wait| *wait >= most / 2 && *wait <= most), "{waits:?}");
        assert!(waits[8] != waits[9] || waits[9] != waits[10], "they are random");
        backoff.reset();
        assert!(backoff.wait() <= Backoff::FIRST);
    }

    #[test]
    fn backoff_respects_retry_after_of_the_rate_limiter() {
        let mut backoff = Backoff::new(Duration::from_millis(200));
        let mut refused = |code: HttpErrorCode, seconds| {
            let problem = Problem { retry_after: seconds, ..code.because("") };
            let error =
                ClientError::Problem(Box::new(problem)).with_request(&RequestId::parse("a-b").unwrap());
            assert!(error.is_transient() && error.to_string().ends_with("(request a-b)"), "{error}");
            backoff.wait_after(&error)
        };
        assert!(refused(HttpErrorCode::Rate, Some(3)) > Duration::from_secs(3));
        assert!(refused(HttpErrorCode::Rate, None) < Duration::from_secs(1));
        assert!(
            refused(HttpErrorCode::Rate, Some(u32::MAX))
                < Duration::from_secs(u64::from(MAX_REQUESTED_WAIT) + 1)
        );
        assert!(
            refused(HttpErrorCode::Busy, Some(1)) < Duration::from_secs(1),
            "other problems may pass sooner"
        );
    }
}
