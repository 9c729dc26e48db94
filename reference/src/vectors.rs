//! The generated files in `vectors/`, one module per file.

pub mod bad;
pub mod corners;
pub mod derivation;
pub mod json;
pub mod keys;
pub mod messages;
pub mod rounds;
pub mod transcript;

/// Returns the name and the text of every generated file in `vectors/`.
pub fn all() -> Vec<(&'static str, String)> {
    let transcripts = messages::transcripts();
    vec![
        ("derivation.json", derivation::file().text()),
        ("rounds.json", rounds::file().text()),
        ("messages.json", messages::file(&transcripts).text()),
        ("bad.json", bad::file(&transcripts).text()),
    ]
}
