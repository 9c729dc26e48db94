//! What is written into `vectors/`: one module for each file.

pub mod derivation;
pub mod json;
pub mod keys;
pub mod rounds;

/// Every file under `vectors/` that is generated: its name and its text.
pub fn all() -> Vec<(&'static str, String)> {
    vec![("derivation.json", derivation::file().text()), ("rounds.json", rounds::file().text())]
}
