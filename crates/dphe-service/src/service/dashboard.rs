//! The dashboard: a live page that shows the rounds of a task, their participants and the accuracy of their models. It
//! is read-only, and needs the token of the aggregator's kit.

mod view;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::channel::Channel;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::view::View;
use super::aggregator::Snapshot;
use crate::Error;
use crate::http::problem::HttpErrorCode;
use crate::http::server::{Limits, Shutdown, read_body};
use crate::kit::Kit;
use crate::telemetry::Metrics;

/// The largest number of open event streams.
const MAX_VIEWERS: usize = 32;
/// The shortest time between two events of a stream.
const MIN_REDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// How often the metrics are read, which change between rounds too.
const METRICS_INTERVAL: Duration = Duration::from_secs(2);
/// How often an idle stream sends a comment, so that proxies do not close the connection.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// How long a login is valid.
const SESSION_TIME: Duration = Duration::from_secs(12 * 3_600);
/// The largest number of logins. A further one ends the oldest.
const MAX_SESSIONS: usize = 64;
/// The length of the longest login form in bytes.
const MAX_FORM_BYTES: u64 = 1024;

const SCRIPT: &str = include_str!("dashboard/dashboard.js");

/// Allows resources of this server only, and no framing.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The dashboard of a task, and who may see it.
#[derive(Clone)]
pub(super) struct Dashboard {
    auth: Arc<SessionAuth>,
    view: Arc<View>,
}

impl Dashboard {
    /// Returns the dashboard of a task, or `None` if its kit has no token.
    pub(super) fn new(kit: &Kit, metrics: Arc<Metrics>) -> Result<Option<Self>, Error> {
        let Some(token) = kit.dashboard_token()? else { return Ok(None) };
        let auth = Arc::new(SessionAuth::new(&token, &kit.roster().task().id().to_string()));
        Ok(Some(Self { auth, view: Arc::new(View::new(kit, metrics)) }))
    }
}

/// The state of the dashboard's handlers.
#[derive(Clone)]
pub(super) struct DashboardServer {
    dashboard: Dashboard,
    snapshot: watch::Receiver<Arc<Snapshot>>,
    limits: Limits,
    shutdown: Shutdown,
    permits: Arc<Semaphore>,
}

impl DashboardServer {
    pub(super) fn new(
        dashboard: Dashboard,
        snapshot: watch::Receiver<Arc<Snapshot>>,
        limits: Limits,
        shutdown: Shutdown,
    ) -> Self {
        Self { dashboard, snapshot, limits, shutdown, permits: Arc::new(Semaphore::new(MAX_VIEWERS)) }
    }

    pub(super) fn router(self) -> Router {
        let asset = |kind: &'static str, text: String| {
            get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
        };
        Router::new()
            .route("/", get(page))
            .route("/login", post(login))
            .route("/logout", post(logout))
            .route("/events", get(events))
            .route("/dashboard.js", asset("text/javascript; charset=utf-8", SCRIPT.to_owned()))
            .route("/dashboard.css", asset("text/css; charset=utf-8", view::style()))
            .layer(axum::middleware::map_response(add_security_headers))
            .layer(axum::middleware::from_fn(only_local))
            .with_state(self)
    }
}

/// Session authentication. A login with the token sets a random cookie, which is valid for a limited time, until the
/// user logs out, or until the aggregator restarts.
struct SessionAuth {
    token: [u8; 32],
    /// When each session ends, by the digest of its cookie.
    sessions: Mutex<BTreeMap<[u8; 32], Instant>>,
    /// The name of the cookie. It contains the task, because cookies are shared by all ports of a host.
    cookie: String,
}

impl SessionAuth {
    fn new(token: &str, task: &str) -> Self {
        Self {
            token: Sha256::digest(token).into(),
            sessions: Mutex::default(),
            cookie: format!("dphe-dashboard-{}", task.get(..8).unwrap_or(task)),
        }
    }

    /// Compares digests, so that the time of the comparison does not reveal the token.
    fn accepts_token(&self, token: &str) -> bool {
        <[u8; 32]>::from(Sha256::digest(token)) == self.token
    }

    fn accepts_session(&self, headers: &HeaderMap, now: Instant) -> bool {
        self.session(headers).is_some_and(|session| self.is_valid(&session, now))
    }

    /// Returns whether a session has neither ended nor expired.
    fn is_valid(&self, session: &[u8; 32], now: Instant) -> bool {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(session).is_some_and(|end| now < *end)
    }

    /// Returns the digest of the cookie of a request. Sessions are found by it, so that the time of the search does not
    /// reveal cookies.
    fn session(&self, headers: &HeaderMap) -> Option<[u8; 32]> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|c| c.trim().split_once('='));
        let (_, value) = pairs.find(|(name, _)| *name == self.cookie)?;
        Some(Sha256::digest(value).into())
    }

    /// Starts a session and returns its cookie.
    fn log_in(&self, now: Instant) -> Result<String, Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(Error::Randomness)?;
        let secret = crate::hex::encode(&secret);
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, end| now < *end);
        if sessions.len() >= MAX_SESSIONS {
            let oldest = sessions.iter().min_by_key(|(_, end)| **end).map(|(session, _)| *session);
            oldest.map(|session| sessions.remove(&session));
        }
        sessions.insert(Sha256::digest(&secret).into(), now + SESSION_TIME);
        Ok(self.set_cookie(&secret, SESSION_TIME))
    }

    /// Ends the session of a request, and returns the cookie that replaces its own.
    fn log_out(&self, headers: &HeaderMap) -> String {
        if let Some(session) = self.session(headers) {
            self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        }
        self.set_cookie("", Duration::ZERO)
    }

    fn set_cookie(&self, value: &str, valid: Duration) -> String {
        let (cookie, valid) = (&self.cookie, valid.as_secs());
        format!("{cookie}={value}; Path=/; Max-Age={valid}; HttpOnly; SameSite=Strict")
    }
}

/// Refuses requests for other host names, which may be DNS rebinding, and forms of other sites.
async fn only_local(request: Request<Body>, next: Next) -> Response {
    if !is_local(request.method(), request.headers()) {
        return HttpErrorCode::Forbidden
            .because("use a loopback address to reach the dashboard")
            .into_response();
    }
    next.run(request).await
}

fn is_local(method: &Method, headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    let name = name.trim_matches(['[', ']']);
    let local = name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let foreign = text(HeaderName::from_static("sec-fetch-site")) == Some("cross-site");
    local && (*method == Method::GET || !foreign)
}

async fn add_security_headers(mut response: Response) -> Response {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn html(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

async fn page(State(server): State<DashboardServer>, headers: HeaderMap) -> Response {
    if !server.dashboard.auth.accepts_session(&headers, Instant::now()) {
        return html(StatusCode::OK, server.dashboard.view.login(false));
    }
    let (snapshot, view) = (server.snapshot.borrow().clone(), server.dashboard.view.clone());
    match tokio::task::spawn_blocking(move || view.page(&snapshot)).await {
        Ok(page) => html(StatusCode::OK, page),
        Err(_) => HttpErrorCode::Busy.because("the page could not be rendered").into_response(),
    }
}

async fn login(State(server): State<DashboardServer>, request: Request<Body>) -> Response {
    let body = match read_body(request, MAX_FORM_BYTES, server.limits.body).await {
        Ok(body) => body,
        Err(problem) => return problem.into_response(),
    };
    // a token consists of letters and digits, which form encoding does not change
    let form = core::str::from_utf8(&body).unwrap_or_default();
    let token = form.split('&').find_map(|field| field.strip_prefix("token=")).unwrap_or_default();
    if !server.dashboard.auth.accepts_token(token.trim_matches('+')) {
        tracing::warn!("a dashboard login used a wrong token");
        return html(StatusCode::UNAUTHORIZED, server.dashboard.view.login(true));
    }
    match server.dashboard.auth.log_in(Instant::now()) {
        Ok(cookie) => to_start(cookie),
        Err(_) => HttpErrorCode::Busy.because("the session could not be created").into_response(),
    }
}

async fn logout(State(server): State<DashboardServer>, headers: HeaderMap) -> Response {
    to_start(server.dashboard.auth.log_out(&headers))
}

/// Sets a cookie and sends the browser to the page.
fn to_start(cookie: String) -> Response {
    let headers: [(HeaderName, String); 2] =
        [(header::SET_COOKIE, cookie), (header::LOCATION, "/".to_owned())];
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// Streams the parts of the page that change, until the client disconnects or the service stops.
async fn events(State(server): State<DashboardServer>, headers: HeaderMap) -> Response {
    let session = server.dashboard.auth.session(&headers);
    let Some(session) = session.filter(|session| server.dashboard.auth.is_valid(session, Instant::now()))
    else {
        return HttpErrorCode::Forbidden
            .because("log in with the token of the aggregator's kit first")
            .into_response();
    };
    let Ok(permit) = server.permits.clone().try_acquire_owned() else {
        return HttpErrorCode::Busy.because("too many dashboards are open").into_response();
    };
    let (sender, body) = Channel::<Bytes>::new(1);
    tokio::spawn(stream_events(server, sender, session, permit));
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (HeaderName::from_static("x-accel-buffering"), "no")];
    (headers, Body::new(body)).into_response()
}

async fn stream_events(
    mut server: DashboardServer,
    mut sender: http_body_util::channel::Sender<Bytes>,
    session: [u8; 32],
    _permit: OwnedSemaphorePermit,
) {
    let (mut last, mut sent_at) = (String::new(), Instant::now());
    // the stream ends with the session
    while server.dashboard.auth.is_valid(&session, Instant::now()) {
        let snapshot = server.snapshot.borrow_and_update().clone();
        let view = server.dashboard.view.clone();
        // rendering takes milliseconds, too long for an asynchronous thread
        let Ok(parts) = tokio::task::spawn_blocking(move || view.parts(&snapshot)).await else { return };
        let event = if parts != last {
            format!("data: {parts}\n\n")
        } else if sent_at.elapsed() >= KEEP_ALIVE_INTERVAL {
            ":\n\n".to_owned()
        } else {
            String::new()
        };
        if !event.is_empty() {
            (last, sent_at) = (parts, Instant::now());
            // a client that does not read loses its stream
            match timeout(server.limits.body, sender.send_data(event.into())).await {
                Ok(Ok(())) => {}
                _ => return,
            }
        }
        let look = Instant::now() + METRICS_INTERVAL;
        tokio::select! {
            () = sleep(MIN_REDRAW_INTERVAL) => {}
            () = server.shutdown.wait() => return,
        }
        tokio::select! {
            changed = server.snapshot.changed() => if changed.is_err() { return },
            () = sleep_until(look) => {}
            () = server.shutdown.wait() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_cookie(cookie: &str) -> HeaderMap {
        [(header::COOKIE, HeaderValue::from_str(cookie).unwrap())].into_iter().collect()
    }

    #[test]
    fn foreign_host_names_and_cross_site_forms_are_refused() {
        let asked = |method: Method, host: &str, site: &str| {
            let headers = [(header::HOST, host), (HeaderName::from_static("sec-fetch-site"), site)];
            let headers = headers.map(|(name, value)| (name, HeaderValue::from_str(value).unwrap()));
            is_local(&method, &headers.into_iter().collect())
        };
        for host in ["localhost", "localhost:9100", "127.0.0.1:9100", "[::1]:9100", "127.8.0.1"] {
            assert!(asked(Method::POST, host, "same-origin"), "{host}");
        }
        for host in [
            "",
            "evil.example.org",
            "evil.example.org:9100",
            "localhost.evil.example.org",
            "10.0.0.1:80",
            "::2",
        ] {
            assert!(!asked(Method::GET, host, "none"), "{host}");
        }
        // a link from another site is accepted, a form is not
        assert!(
            asked(Method::GET, "localhost", "cross-site") && !asked(Method::POST, "localhost", "cross-site")
        );
    }

    #[test]
    fn session_cookie_is_accepted_only_for_its_token() {
        let auth = SessionAuth::new("0123456789abcdef", "7c1de0aa00000000");
        assert!(
            auth.accepts_token("0123456789abcdef")
                && !auth.accepts_token("0123456789abcdee")
                && !auth.accepts_token("")
        );
        let now = Instant::now();
        let cookie = auth.log_in(now).unwrap();
        let pair = cookie.split(';').next().unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        assert!(!cookie.contains("0123456789abcdef"), "the cookie must not contain the token");
        assert!(auth.accepts_session(&with_cookie(pair), now));
        assert!(auth.accepts_session(&with_cookie(&format!("a=b; {pair}; c=d")), now));
        assert!(!auth.accepts_session(&HeaderMap::new(), now));
        assert!(!auth.accepts_session(&with_cookie(&format!("{pair}0")), now));
        let other = SessionAuth::new("another token", "7c1de0aa00000000");
        assert!(!other.accepts_session(&with_cookie(pair), now));
    }

    #[test]
    fn session_is_random_and_ends_after_twelve_hours_or_with_a_logout() {
        let (auth, now) = (SessionAuth::new("0123456789abcdef", "7c1de0aa00000000"), Instant::now());
        let log_in = |now| with_cookie(auth.log_in(now).unwrap().split(';').next().unwrap());
        let (first, second) = (log_in(now), log_in(now));
        assert_ne!(first, second, "two logins with one token");
        let again = SessionAuth::new("0123456789abcdef", "7c1de0aa00000000");
        assert!(!again.accepts_session(&first, now), "it does not follow from the token");

        let expired = auth.log_out(&first);
        assert!(expired.contains("=; ") && expired.contains("Max-Age=0"), "{expired}");
        assert!(!auth.accepts_session(&first, now) && auth.accepts_session(&second, now));
        auth.log_out(&HeaderMap::new());
        assert!(auth.accepts_session(&second, now + SESSION_TIME - Duration::from_secs(1)));
        let later = now + SESSION_TIME;
        assert!(!auth.accepts_session(&second, later));
        // a login forgets expired sessions, and the oldest ones if there are too many
        let all: Vec<HeaderMap> = (0..=MAX_SESSIONS).map(|_| log_in(later)).collect();
        assert_eq!(auth.sessions.lock().unwrap().len(), MAX_SESSIONS);
        assert!(auth.accepts_session(&all[MAX_SESSIONS], later));
    }
}
