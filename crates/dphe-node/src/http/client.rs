//! Talking to a service: one connection that is kept, made again when it is lost. Retries are in [`Backoff`].

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rand_core::Rng as _;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::problem::{PROBLEM, Problem};
use super::request_id::{REQUEST_ID, RequestId};

/// Why a request had no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The other side said no.
    #[error("refused as `{}`: {}{}", .0.code, .0.detail, named(.0.request.as_deref()))]
    Problem(Box<Problem>),
    /// Nobody answered, or not as agreed; it may be different later.
    #[error("{what}")]
    Line {
        /// What went wrong.
        what: String,
    },
}

fn named(request: Option<&str>) -> String {
    request.map(|id| format!(" (request {id})")).unwrap_or_default()
}

impl ClientError {
    /// How long the other side wants to be left alone, if it says so: who comes back earlier is refused again.
    fn pause(&self) -> Option<Duration> {
        match self {
            Self::Problem(problem) if problem.code == "rate" => {
                problem.retry_after.map(|seconds| Duration::from_secs(seconds.min(LONGEST_PAUSE).into()))
            }
            _ => None,
        }
    }

    /// The same, with the name of the request.
    fn of(self, id: &RequestId) -> Self {
        match self {
            Self::Line { what } => Self::Line { what: what + &named(Some(&id.to_string())) },
            Self::Problem(mut problem) => {
                // as it was asked, whatever the answer says
                problem.request = Some(id.to_string());
                Self::Problem(problem)
            }
        }
    }

    fn line(what: &str, error: impl std::fmt::Display) -> Self {
        Self::Line { what: format!("{what}: {error}") }
    }

    /// Whether the same request may be answered later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.is_passing(),
            Self::Line { .. } => true,
        }
    }
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status: a good one.
    pub status: StatusCode,
    /// The body.
    pub body: Bytes,
    /// How much of an upload has arrived, if it says so.
    pub upload_offset: Option<u64>,
    /// The time at the other end.
    pub date: Option<SystemTime>,
}

/// A service, as one of its clients sees it.
pub struct Client {
    address: String,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    /// No answer is longer.
    most: u64,
    connection: Option<SendRequest<Body>>,
}

/// Seconds that a service can make its clients wait.
const LONGEST_PAUSE: u32 = 60;
/// How long it may take to connect, handshake included.
const CONNECT: Duration = Duration::from_secs(10);

impl Client {
    /// The service at this address that shows a certificate of this name. No answer may be longer than `most`.
    pub fn new(address: String, name: ServerName<'static>, tls: Arc<ClientConfig>, most: u64) -> Self {
        Self { address, name, tls, most, connection: None }
    }

    /// No answer is longer.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Another connection to the same.
    #[must_use]
    pub fn again(&self) -> Self {
        Self::new(self.address.clone(), self.name.clone(), self.tls.clone(), self.most)
    }

    /// Connects and shakes hands, and nothing more.
    ///
    /// # Errors
    /// [`ClientError::Line`].
    pub async fn connect(&mut self) -> Result<(), ClientError> {
        let stream = timeout(CONNECT, async {
            let stream = TcpStream::connect(&self.address)
                .await
                .map_err(|error| ClientError::line(&format!("{} cannot be reached", self.address), error))?;
            let _ = stream.set_nodelay(true);
            TlsConnector::from(self.tls.clone()).connect(self.name.clone(), stream).await.map_err(|error| {
                ClientError::line(&format!("{} is not who it should be", self.address), error)
            })
        })
        .await
        .map_err(|_| ClientError::Line { what: format!("{} does not answer", self.address) })??;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| ClientError::line("the connection", error))?;
        tokio::spawn(async move {
            // how it ended is told to whoever waits for an answer
            let _ = connection.await;
        });
        self.connection = Some(sender);
        Ok(())
    }

    /// Sends a request and waits for its answer, for so long at most.
    ///
    /// # Errors
    /// [`ClientError`]; after [`ClientError::Line`] nobody knows whether the request was heard.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        media: Option<&str>,
        body: Bytes,
        patience: Duration,
    ) -> Result<Answer, ClientError> {
        let id = RequestId::fresh();
        let exchange = async {
            self.be_connected().await?;
            self.exchange(method, path, media, body, &id).await.map_err(|error| error.of(&id))
        };
        let result = timeout(patience, exchange).await.unwrap_or_else(|_| {
            Err(ClientError::Line { what: format!("{} took too long to answer", self.address) }.of(&id))
        });
        if matches!(result, Err(ClientError::Line { .. })) {
            self.connection = None;
        }
        result
    }

    async fn be_connected(&mut self) -> Result<(), ClientError> {
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
            return Err(ClientError::Line { what: "no connection".into() });
        };
        let request = Request::builder().method(method).uri(path).header(header::HOST, "dphe");
        let mut request = request.header(REQUEST_ID, id.to_header());
        if let Some(media) = media {
            request = request.header(header::CONTENT_TYPE, media);
        }
        let request =
            request.body(Body::from(body)).map_err(|error| ClientError::line("the request", error))?;
        let response = connection
            .send_request(request)
            .await
            .map_err(|error| ClientError::line(&format!("{} hung up", self.address), error))?;
        let (head, mut body) = response.into_parts();
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| ClientError::line("the answer was cut short", error))?;
            if let Ok(data) = frame.into_data() {
                if bytes.len() as u64 + data.len() as u64 > self.most {
                    return Err(ClientError::Line {
                        what: "the answer is longer than the task allows".into(),
                    });
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
        match serde_json::from_slice::<Problem>(&bytes) {
            Ok(mut problem) if is_problem => {
                let seconds = head.headers.get(header::RETRY_AFTER).and_then(|seconds| seconds.to_str().ok());
                problem.retry_after = seconds.and_then(|seconds| seconds.parse().ok());
                Err(ClientError::Problem(Box::new(problem)))
            }
            _ => Err(ClientError::Line { what: format!("{} answered {}", self.address, head.status) }),
        }
    }
}

/// How long to wait before the next try: twice as long each time, up to a bound, and at random, so that not everybody
/// comes back at once.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    most: Duration,
    rng: chacha20::ChaCha8Rng,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);

    /// Waits of at most this long.
    pub fn new(most: Duration) -> Self {
        let mut seed = [0; 8];
        // without randomness everybody waits alike, which is only less polite
        let _ = getrandom::fill(&mut seed);
        let rng = rand_core::SeedableRng::seed_from_u64(u64::from_be_bytes(seed));
        Self { next: Self::FIRST, most, rng }
    }

    /// It worked: the next wait is short again.
    pub fn reset(&mut self) {
        self.next = Self::FIRST;
    }

    /// The next wait after an error: longer if the other side asks for it.
    pub fn wait_after(&mut self, error: &ClientError) -> Duration {
        let wait = self.wait();
        // not all come back at the same moment
        error.pause().map_or(wait, |pause| pause + wait)
    }

    /// The next wait: between half and all of a time that doubles.
    pub fn wait(&mut self) -> Duration {
        let wait = self.next.mul_f64(0.5 + (self.rng.next_u32() >> 8) as f64 / f64::from(1 << 25));
        self.next = (self.next * 2).min(self.most);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::HttpCode;
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound_and_differ() {
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
    fn who_is_told_to_wait_waits() {
        let mut backoff = Backoff::new(Duration::from_millis(200));
        let mut refused = |code: HttpCode, seconds| {
            let problem = Problem { retry_after: seconds, ..code.because("") };
            let error = ClientError::Problem(Box::new(problem)).of(&RequestId::parse("a-b").unwrap());
            assert!(error.is_passing() && error.to_string().ends_with("(request a-b)"), "{error}");
            backoff.wait_after(&error)
        };
        assert!(refused(HttpCode::Rate, Some(3)) > Duration::from_secs(3));
        assert!(refused(HttpCode::Rate, None) < Duration::from_secs(1));
        assert!(refused(HttpCode::Rate, Some(u32::MAX)) < Duration::from_secs(u64::from(LONGEST_PAUSE) + 1));
        assert!(refused(HttpCode::Busy, Some(1)) < Duration::from_secs(1), "it may pass sooner");
    }
}
