//! Refusals as `application/problem+json` (RFC 9457), with codes that other programs can rely on.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dphe::ErrorCode;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::remote_text::clean;

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
    pub code: ProblemCode,
    /// A description for people.
    pub detail: String,
    /// The user who caused the problem, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub culprit: Option<u32>,
    /// The identifier of the refused request in logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The `Retry-After` header in seconds. It is not part of the body.
    #[serde(skip)]
    pub retry_after: Option<u32>,
}

/// The stable code of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemCode {
    /// The request was refused before it reached the protocol.
    Http(HttpErrorCode),
    /// The protocol refused the message (docs/protocol.md, section 10).
    Protocol(ErrorCode),
    /// A code that this version does not know. Services never send it.
    Unknown,
}

/// The error codes that HTTP adds to those of the protocol (docs/api.md). They are not HTTP status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpErrorCode {
    /// The resource does not exist.
    NotFound,
    /// The resource does not support the method.
    Method,
    /// The party of the connection may not do this.
    Forbidden,
    /// The media type does not fit the body or the resource.
    MediaType,
    /// The request has no length, or a parameter is missing or invalid.
    Request,
    /// The body is too long, or the offset and the total length do not fit each other.
    Size,
    /// The body arrived too slowly or was truncated.
    Timeout,
    /// An upload chunk does not start where the stored part of the upload ends.
    Offset,
    /// The party sent too many requests in a short time.
    Rate,
    /// The service is at its limit.
    Busy,
    /// The service is stopping.
    Shutdown,
    /// Data could not be stored or read.
    Storage,
    /// All rounds of the task are over.
    TaskOver,
    /// The round asks other users for uploads.
    NotAsked,
}

impl HttpErrorCode {
    /// All codes.
    pub const ALL: [Self; 14] = [
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
        Self::NotAsked,
    ];

    /// Returns the stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Method => "method",
            Self::Forbidden => "forbidden",
            Self::MediaType => "media_type",
            Self::Request => "request",
            Self::Size => "size",
            Self::Timeout => "timeout",
            Self::Offset => "offset",
            Self::Rate => "rate",
            Self::Busy => "busy",
            Self::Shutdown => "shutdown",
            Self::Storage => "storage",
            Self::TaskOver => "task_over",
            Self::NotAsked => "not_asked",
        }
    }

    /// Returns the HTTP status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Forbidden | Self::NotAsked => StatusCode::FORBIDDEN,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Request => StatusCode::BAD_REQUEST,
            Self::Size => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::Offset => StatusCode::CONFLICT,
            Self::Rate => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy | Self::Shutdown | Self::Storage => StatusCode::SERVICE_UNAVAILABLE,
            Self::TaskOver => StatusCode::GONE,
        }
    }

    /// Returns a problem with this code.
    pub fn because(self, detail: impl Into<String>) -> Problem {
        Problem::new(self.into(), detail.into(), None)
    }
}

/// Returns the HTTP status of a code of the protocol.
pub fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::Signature | ErrorCode::UnknownUser => StatusCode::FORBIDDEN,
        ErrorCode::Stale | ErrorCode::Late => StatusCode::GONE,
        ErrorCode::Future
        | ErrorCode::Order
        | ErrorCode::Conflict
        | ErrorCode::Committed
        | ErrorCode::Attempts
        | ErrorCode::Early
        | ErrorCode::Ending
        | ErrorCode::Ticket => StatusCode::CONFLICT,
        ErrorCode::Size => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::Storage => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Encoding | ErrorCode::Version => StatusCode::BAD_REQUEST,
        ErrorCode::Body
        | ErrorCode::Capacity
        | ErrorCode::Check
        | ErrorCode::CiphertextRange
        | ErrorCode::CiphertextTrivial
        | ErrorCode::CiphertextUnit
        | ErrorCode::Count
        | ErrorCode::Dimension
        | ErrorCode::Equation
        | ErrorCode::Failures
        | ErrorCode::History
        | ErrorCode::IndexOrder
        | ErrorCode::IndexRange
        | ErrorCode::Key
        | ErrorCode::KeyId
        | ErrorCode::Lineage
        | ErrorCode::Model
        | ErrorCode::NonceReuse
        | ErrorCode::NotMine
        | ErrorCode::Task
        | ErrorCode::Policy
        | ErrorCode::Profile
        | ErrorCode::Proof
        | ErrorCode::Range
        | ErrorCode::Rollback
        | ErrorCode::Roster
        | ErrorCode::RoundFailed
        | ErrorCode::Rounds
        | ErrorCode::SetDifference
        | ErrorCode::SetOrder
        | ErrorCode::SetSmall
        | ErrorCode::SetUnknown
        | ErrorCode::Support
        | ErrorCode::Value => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

impl ProblemCode {
    /// Returns the stable name. Unknown codes share the name `other`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http(code) => code.as_str(),
            Self::Protocol(code) => code.as_str(),
            Self::Unknown => "other",
        }
    }

    /// Returns the code with this name.
    pub fn parse(name: &str) -> Self {
        let http = HttpErrorCode::ALL.into_iter().find(|code| code.as_str() == name);
        let protocol = || ErrorCode::from_str(name).ok();
        http.map(Self::Http).or_else(|| protocol().map(Self::Protocol)).unwrap_or(Self::Unknown)
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Http(code) => code.status(),
            Self::Protocol(code) => status_of(code),
            Self::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<HttpErrorCode> for ProblemCode {
    fn from(code: HttpErrorCode) -> Self {
        Self::Http(code)
    }
}

impl From<ErrorCode> for ProblemCode {
    fn from(code: ErrorCode) -> Self {
        Self::Protocol(code)
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for ProblemCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ProblemCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::parse(&String::deserialize(deserializer)?))
    }
}

impl Problem {
    fn new(code: ProblemCode, detail: String, culprit: Option<u32>) -> Self {
        let status = code.status();
        let retry_after = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(1);
        let kind = format!("urn:dphe:error:{code}");
        Self { kind, status: status.as_u16(), code, detail, culprit, request: None, retry_after }
    }

    /// Returns the problem with a `Retry-After` header.
    #[must_use]
    pub(super) fn after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait.as_secs_f64().ceil().max(1.0) as u32), ..self }
    }

    /// Reads the refusal of a peer. Its texts are cleaned, because they are logged, shown and stored.
    pub(super) fn of_peer(json: &[u8]) -> Option<Self> {
        let problem: Self = serde_json::from_slice(json).ok()?;
        let request = problem.request.as_deref().map(clean);
        Some(Self { kind: clean(&problem.kind), detail: clean(&problem.detail), request, ..problem })
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.code,
            ProblemCode::Http(
                HttpErrorCode::Busy
                    | HttpErrorCode::Rate
                    | HttpErrorCode::Shutdown
                    | HttpErrorCode::Storage
                    | HttpErrorCode::Timeout
            ) | ProblemCode::Protocol(ErrorCode::Storage)
        )
    }

    /// Returns whether the connection closes after the response, because the rest of the body is not read.
    fn closes_connection(&self) -> bool {
        matches!(
            self.code,
            ProblemCode::Http(
                HttpErrorCode::Size | HttpErrorCode::Timeout | HttpErrorCode::Busy | HttpErrorCode::Shutdown
            ) | ProblemCode::Protocol(ErrorCode::Size)
        )
    }
}

impl From<&dphe::Error> for Problem {
    fn from(error: &dphe::Error) -> Self {
        Self::new(error.code().into(), error.to_string(), error.culprit().map(dphe::UserId::get))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.to_json()));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.closes_connection() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        // the middleware adds the identifier of the request to it
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_peer_are_cleaned_and_unknown_codes_are_not_kept() {
        let evil = "x\n2026-11-18T00:00:00Z INFO acknowledged\u{1b}[2J";
        let long = "x".repeat(1 << 20);
        for detail in [evil, &long] {
            let json = serde_json::json!({
                "type": detail, "status": 409, "code": detail, "detail": detail, "culprit": 1, "request": detail,
            });
            let problem = Problem::of_peer(&serde_json::to_vec(&json).unwrap()).unwrap();
            assert_eq!((problem.code.as_str(), problem.culprit), ("other", Some(1)));
            for text in [&problem.kind, &problem.detail, &problem.request.clone().unwrap()] {
                assert!(text.chars().count() <= 201 && text.chars().all(|c| !c.is_control()), "{text:?}");
            }
        }
    }

    #[test]
    fn every_code_is_read_back_by_its_name() {
        let http = HttpErrorCode::ALL.map(ProblemCode::from);
        for code in http.into_iter().chain(ErrorCode::ALL.iter().map(|&code| code.into())) {
            assert_eq!(ProblemCode::parse(code.as_str()).as_str(), code.as_str());
            let json = serde_json::to_string(&code).unwrap();
            assert_eq!(serde_json::from_str::<ProblemCode>(&json).unwrap().as_str(), code.as_str());
        }
        assert_eq!(ProblemCode::parse("of a later version"), ProblemCode::Unknown);
    }
}
