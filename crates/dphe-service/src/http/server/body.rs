//! Bodies of requests and responses.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use super::timeout_for;
use crate::http::problem::{HttpErrorCode, Problem};

/// Reads the body of a request. A body that is longer than `max` is refused before it is read.
///
/// # Errors
/// A problem with code `request`, `size` or `timeout`.
pub async fn read_body(request: Request<Body>, max: u64, base_timeout: Duration) -> Result<Bytes, Problem> {
    let length = content_length(&request)?;
    if length > max {
        return Err(HttpErrorCode::Size
            .because(format!("the body has {length} bytes; at most {max} are allowed here")));
    }
    // memory grows with the bytes that arrive, up to twice as many, and never beyond the announced length
    let (mut bytes, length) = (Vec::new(), length as usize);
    let mut body = request.into_body();
    let truncated = || HttpErrorCode::Timeout.because("the body ended before its announced length");
    let read = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| truncated())?;
            if let Ok(data) = frame.into_data() {
                let needed = bytes.len() + data.len();
                if needed > length {
                    return Err(HttpErrorCode::Size.because("the body is longer than its announced length"));
                }
                if needed > bytes.capacity() {
                    bytes.reserve_exact(needed.max(2 * bytes.capacity()).min(length) - bytes.len());
                }
                bytes.extend_from_slice(&data);
            }
        }
        Ok(())
    };
    match timeout(timeout_for(length as u64, base_timeout), read).await {
        Ok(Ok(())) if bytes.len() == length => Ok(bytes.into()),
        Ok(Ok(())) => Err(truncated()),
        Ok(Err(problem)) => Err(problem),
        Err(_) => Err(HttpErrorCode::Timeout.because("the body arrived too slowly")),
    }
}

/// Returns the length of a body as its sender announces it.
///
/// # Errors
/// A problem with code `request` if there is none.
pub fn content_length(request: &Request<Body>) -> Result<u64, Problem> {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()).and_then(|length| length.parse().ok());
    length.ok_or_else(|| HttpErrorCode::Request.because("the request has no valid Content-Length"))
}

/// Returns a response with a JSON body.
pub fn json(value: &impl serde::Serialize) -> Response {
    let body = serde_json::to_vec(value).unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
