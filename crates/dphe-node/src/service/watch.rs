//! The page to watch a task on: who knows the token sees the rounds as they happen, who takes part in them, and how good
//! their models are. It changes nothing.

mod view;

use std::net::IpAddr;
use std::sync::Arc;
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
use zeroize::Zeroizing;

use self::view::View;
use super::aggregator::Board;
use crate::Error;
use crate::http::problem::HttpCode;
use crate::http::server::{Limits, Shutdown, read_body};
use crate::kit::{Kit, hex};
use crate::telemetry::Metrics;

/// People who watch at once.
const WATCHERS: usize = 32;
/// No faster than this is anything drawn anew.
const PACE: Duration = Duration::from_millis(200);
/// Figures that do not wait for a round are looked at this often.
const LOOK: Duration = Duration::from_secs(2);
/// A sign of life, so that whatever lies between does not close the connection.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// A form with a token in it is shorter.
const MAX_FORM: u64 = 1024;

const SCRIPT: &str = include_str!("watch/watch.js");

/// Everything from here, nothing from elsewhere, and no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What is shown, and to whom.
#[derive(Clone)]
pub(super) struct WatchPage {
    door: Arc<Door>,
    view: Arc<View>,
}

impl WatchPage {
    /// The page of a task, if its kit has a token.
    pub(super) fn new(kit: &Kit, metrics: Arc<Metrics>) -> Result<Option<Self>, Error> {
        let Some(token) = kit.watch_token()? else { return Ok(None) };
        let door = Arc::new(Door::new(&token, &kit.roster().task().id().to_string()));
        Ok(Some(Self { door, view: Arc::new(View::new(kit, metrics)) }))
    }
}

/// The page at work.
#[derive(Clone)]
pub(super) struct Watch {
    page: WatchPage,
    board: watch::Receiver<Arc<Board>>,
    limits: Limits,
    shutdown: Shutdown,
    room: Arc<Semaphore>,
}

impl Watch {
    pub(super) fn new(
        page: WatchPage,
        board: watch::Receiver<Arc<Board>>,
        limits: Limits,
        shutdown: Shutdown,
    ) -> Self {
        Self { page, board, limits, shutdown, room: Arc::new(Semaphore::new(WATCHERS)) }
    }

    pub(super) fn router(self) -> Router {
        let asset = |kind: &'static str, text: String| {
            get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
        };
        Router::new()
            .route("/", get(page))
            .route("/login", post(login))
            .route("/events", get(events))
            .route("/watch.js", asset("text/javascript; charset=utf-8", SCRIPT.to_owned()))
            .route("/watch.css", asset("text/css; charset=utf-8", view::style()))
            .layer(axum::middleware::map_response(careful))
            .layer(axum::middleware::from_fn(from_here))
            .with_state(self)
    }
}

/// Who knows the token gets a cookie; the cookie does not tell the token.
struct Door {
    token: [u8; 32],
    session: Zeroizing<String>,
    /// Tasks on one machine have one cookie each.
    cookie: String,
}

impl Door {
    fn new(token: &str, task: &str) -> Self {
        let session = Sha256::new().chain_update("dphe watch session\0").chain_update(token).finalize();
        Self {
            token: Sha256::digest(token).into(),
            session: Zeroizing::new(hex(&session)),
            cookie: format!("dphe-watch-{}", task.get(..8).unwrap_or(task)),
        }
    }

    /// Digests are compared: how far two of them agree says nothing about what they are of.
    fn knows(&self, token: &str) -> bool {
        <[u8; 32]>::from(Sha256::digest(token)) == self.token
    }

    fn is_open_for(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|c| c.trim().split_once('='));
        let given = pairs.find(|(name, _)| *name == self.cookie).map(|(_, value)| value);
        given.is_some_and(|given| Sha256::digest(given) == Sha256::digest(self.session.as_bytes()))
    }

    fn set_cookie(&self) -> String {
        format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie, *self.session)
    }
}

/// Names of other machines may be made to point here, and other pages may send forms: neither gets an answer.
async fn from_here(request: Request<Body>, next: Next) -> Response {
    if !is_from_here(request.method(), request.headers()) {
        return HttpCode::Forbidden.because("ask for it by an address of this machine").into_response();
    }
    next.run(request).await
}

fn is_from_here(method: &Method, headers: &HeaderMap) -> bool {
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

async fn careful(mut response: Response) -> Response {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
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

async fn page(State(watch): State<Watch>, headers: HeaderMap) -> Response {
    if !watch.page.door.is_open_for(&headers) {
        return html(StatusCode::OK, watch.page.view.login(false));
    }
    let (board, view) = (watch.board.borrow().clone(), watch.page.view.clone());
    match tokio::task::spawn_blocking(move || view.page(&board)).await {
        Ok(page) => html(StatusCode::OK, page),
        Err(_) => HttpCode::Busy.because("the page could not be drawn").into_response(),
    }
}

async fn login(State(watch): State<Watch>, request: Request<Body>) -> Response {
    let body = match read_body(request, MAX_FORM, watch.limits.body).await {
        Ok(body) => body,
        Err(problem) => return problem.into_response(),
    };
    // a token is letters and digits, which forms leave as they are
    let form = core::str::from_utf8(&body).unwrap_or_default();
    let token = form.split('&').find_map(|field| field.strip_prefix("token=")).unwrap_or_default();
    if !watch.page.door.knows(token.trim_matches('+')) {
        tracing::warn!("somebody tried to watch with a wrong token");
        return html(StatusCode::UNAUTHORIZED, watch.page.view.login(true));
    }
    let headers: [(HeaderName, String); 2] =
        [(header::SET_COOKIE, watch.page.door.set_cookie()), (header::LOCATION, "/".to_owned())];
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// What has changed, as often as something does, until either side has enough.
async fn events(State(watch): State<Watch>, headers: HeaderMap) -> Response {
    if !watch.page.door.is_open_for(&headers) {
        return HttpCode::Forbidden.because("log in first, with the token of the kit").into_response();
    }
    let Ok(place) = watch.room.clone().try_acquire_owned() else {
        return HttpCode::Busy.because("too many people watch already").into_response();
    };
    let (sender, body) = Channel::<Bytes>::new(1);
    tokio::spawn(tell(watch, sender, place));
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (HeaderName::from_static("x-accel-buffering"), "no")];
    (headers, Body::new(body)).into_response()
}

async fn tell(
    mut watch: Watch,
    mut sender: http_body_util::channel::Sender<Bytes>,
    _place: OwnedSemaphorePermit,
) {
    let (mut last, mut sent_at) = (String::new(), Instant::now());
    loop {
        let board = watch.board.borrow_and_update().clone();
        let view = watch.page.view.clone();
        // drawing takes milliseconds, which others should not wait for
        let Ok(parts) = tokio::task::spawn_blocking(move || view.parts(&board)).await else { return };
        let event = if parts != last {
            format!("data: {parts}\n\n")
        } else if sent_at.elapsed() >= SIGN_OF_LIFE {
            ":\n\n".to_owned()
        } else {
            String::new()
        };
        if !event.is_empty() {
            (last, sent_at) = (parts, Instant::now());
            // a seat is not for somebody who has gone
            match timeout(watch.limits.body, sender.send_data(event.into())).await {
                Ok(Ok(())) => {}
                _ => return,
            }
        }
        let look = Instant::now() + LOOK;
        tokio::select! {
            () = sleep(PACE) => {}
            () = watch.shutdown.wait() => return,
        }
        tokio::select! {
            changed = watch.board.changed() => if changed.is_err() { return },
            () = sleep_until(look) => {}
            () = watch.shutdown.wait() => return,
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
    fn other_names_and_other_sites_are_refused() {
        let asked = |method: Method, host: &str, site: &str| {
            let headers = [(header::HOST, host), (HeaderName::from_static("sec-fetch-site"), site)];
            let headers = headers.map(|(name, value)| (name, HeaderValue::from_str(value).unwrap()));
            is_from_here(&method, &headers.into_iter().collect())
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
        // a link from elsewhere is fine, a form is not
        assert!(
            asked(Method::GET, "localhost", "cross-site") && !asked(Method::POST, "localhost", "cross-site")
        );
    }

    #[test]
    fn the_door_opens_for_the_cookie_of_its_token_alone() {
        let door = Door::new("0123456789abcdef", "7c1de0aa00000000");
        assert!(door.knows("0123456789abcdef") && !door.knows("0123456789abcdee") && !door.knows(""));
        let cookie = door.set_cookie();
        let pair = cookie.split(';').next().unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        assert!(!cookie.contains("0123456789abcdef"), "the cookie does not tell the token");
        assert!(door.is_open_for(&with_cookie(pair)));
        assert!(door.is_open_for(&with_cookie(&format!("a=b; {pair}; c=d"))));
        assert!(!door.is_open_for(&HeaderMap::new()));
        assert!(!door.is_open_for(&with_cookie(&format!("{pair}0"))));
        let other = Door::new("another token", "7c1de0aa00000000");
        assert!(!other.is_open_for(&with_cookie(pair)));
    }
}
