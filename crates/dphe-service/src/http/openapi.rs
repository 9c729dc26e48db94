//! The OpenAPI descriptions, which the services serve at `/openapi.json`.

use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get};

/// The path of the description.
pub const PATH: &str = "/openapi.json";

// The files are links to docs/openapi, so that a published crate contains them.
/// The description of the aggregator.
pub const AGGREGATOR: &str = include_str!("openapi/aggregator.json");
/// The description of the key generator.
pub const KEY_GENERATOR: &str = include_str!("openapi/key-generator.json");

/// Returns the handler of a description. Any party that can connect may read it.
pub(crate) fn route<S: Clone + Send + Sync + 'static>(description: &'static str) -> MethodRouter<S> {
    get(move || async move { answer(description) })
}

fn answer(description: &'static str) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], description).into_response()
}
