//! What the services offer, as OpenAPI: each shows its own description at `/openapi.json`.

use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get};

/// Where the description is.
pub const PATH: &str = "/openapi.json";

/// The aggregator's.
pub const AGGREGATOR: &str = include_str!("../../../../docs/openapi/aggregator.json");
/// The key generator's.
pub const KEY_GENERATOR: &str = include_str!("../../../../docs/openapi/key-generator.json");

/// Shows a description to any party that may connect.
pub(crate) fn show<S: Clone + Send + Sync + 'static>(description: &'static str) -> MethodRouter<S> {
    get(move || async move { answer(description) })
}

fn answer(description: &'static str) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], description).into_response()
}
