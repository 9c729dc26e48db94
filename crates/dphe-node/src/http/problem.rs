//! What is refused, as `application/problem+json` with a code that other machines can rely on.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

/// The media type of a problem.
pub const PROBLEM: &str = "application/problem+json";

/// A refusal (RFC 9457).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// `urn:dphe:error:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code.
    pub code: String,
    /// What happened, for people.
    pub detail: String,
    /// The user to blame, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub culprit: Option<u32>,
    /// What the refused request is called in logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Seconds after which to come back, if the answer says so: its header, not its body.
    #[serde(skip)]
    pub retry_after: Option<u32>,
}

/// The codes of HTTP itself; the others are the protocol's (docs/protocol.md, section 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpCode {
    /// Nothing is there.
    NotFound,
    /// It is there, for other methods.
    Method,
    /// The certificate's owner may not do this.
    Forbidden,
    /// Another media type than the body's.
    MediaType,
    /// The request has no length, or a parameter is missing or wrong.
    Request,
    /// Longer than allowed.
    Size,
    /// The body came too slowly, or ended before its length.
    Timeout,
    /// A piece of an upload that does not follow from what is there.
    Offset,
    /// Too many requests of one party in a short time; try again.
    Rate,
    /// Too much at once; try again.
    Busy,
    /// The service is going down.
    Shutdown,
    /// The disk says no; the service stops.
    Storage,
    /// All rounds are over.
    TaskOver,
}

impl HttpCode {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::NotFound,
        Self::Method,
        Self::Forbidden,
        Self::MediaType,
        Self::Request,
        Self::Size,
        Self::Timeout,
        Self::Offset,
        Self::Rate,
        Self::Busy,
        Self::Shutdown,
        Self::Storage,
        Self::TaskOver,
    ];

    /// The stable code, and its status.
    pub fn parts(self) -> (&'static str, StatusCode) {
        match self {
            Self::NotFound => ("not_found", StatusCode::NOT_FOUND),
            Self::Method => ("method", StatusCode::METHOD_NOT_ALLOWED),
            Self::Forbidden => ("forbidden", StatusCode::FORBIDDEN),
            Self::MediaType => ("media_type", StatusCode::UNSUPPORTED_MEDIA_TYPE),
            Self::Request => ("request", StatusCode::BAD_REQUEST),
            Self::Size => ("size", StatusCode::PAYLOAD_TOO_LARGE),
            Self::Timeout => ("timeout", StatusCode::REQUEST_TIMEOUT),
            Self::Offset => ("offset", StatusCode::CONFLICT),
            Self::Rate => ("rate", StatusCode::TOO_MANY_REQUESTS),
            Self::Busy => ("busy", StatusCode::SERVICE_UNAVAILABLE),
            Self::Shutdown => ("shutdown", StatusCode::SERVICE_UNAVAILABLE),
            Self::Storage => ("storage", StatusCode::SERVICE_UNAVAILABLE),
            Self::TaskOver => ("task_over", StatusCode::GONE),
        }
    }

    /// A problem with this code.
    pub fn because(self, detail: impl Into<String>) -> Problem {
        let (code, status) = self.parts();
        Problem::new(code, status, detail.into(), None)
    }
}

impl Problem {
    fn new(code: &str, status: StatusCode, detail: String, culprit: Option<u32>) -> Self {
        let kind = format!("urn:dphe:error:{code}");
        let retry_after = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(1);
        Self {
            kind,
            status: status.as_u16(),
            code: code.to_owned(),
            detail,
            culprit,
            request: None,
            retry_after,
        }
    }

    /// The same, with a time after which to come back.
    #[must_use]
    pub(super) fn after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait.as_secs_f64().ceil().max(1.0) as u32), ..self }
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Whether the same request may be taken later.
    pub fn is_passing(&self) -> bool {
        matches!(self.code.as_str(), "busy" | "rate" | "shutdown" | "storage" | "timeout")
    }
}

/// The status of a code of the protocol.
pub fn status_of(code: &str) -> StatusCode {
    match code {
        "signature" | "unknown_user" => StatusCode::FORBIDDEN,
        "stale" | "late" => StatusCode::GONE,
        "future" | "order" | "conflict" | "committed" | "attempts" | "ticket" => StatusCode::CONFLICT,
        "size" => StatusCode::PAYLOAD_TOO_LARGE,
        "storage" => StatusCode::SERVICE_UNAVAILABLE,
        "encoding" | "version" => StatusCode::BAD_REQUEST,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

impl From<&dphe::Error> for Problem {
    fn from(error: &dphe::Error) -> Self {
        let code = error.code();
        Self::new(code, status_of(code), error.to_string(), error.culprit().map(dphe::UserId::get))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = Response::new(Body::from(self.to_json()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        // the rest of a body that is not wanted is not waited for
        if matches!(self.code.as_str(), "size" | "timeout" | "busy" | "shutdown") {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        // whoever passes the answer on may add to it
        response.extensions_mut().insert(self);
        response
    }
}
