//! What is written into `vectors/`: one module for each file.

pub mod bad;
pub mod corners;
pub mod derivation;
pub mod json;
pub mod keys;
pub mod messages;
pub mod rounds;
pub mod transcript;

/// Every file under `vectors/` that is generated: its name and its text.
pub fn all() -> Vec<(&'static str, String)> {
    let transcripts = messages::transcripts();
    vec![
        ("derivation.json", derivation::file().text()),
        ("rounds.json", rounds::file().text()),
        ("messages.json", messages::file(&transcripts).text()),
        ("bad.json", bad::file(&transcripts).text()),
    ]
}
