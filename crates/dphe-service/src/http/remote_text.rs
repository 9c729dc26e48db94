//! Text that a peer wrote. It is cleaned before it is logged, shown or stored.

/// The length of the longest text that is kept, in characters.
pub const MAX_CHARS: usize = 200;

/// Returns the beginning of a text, on one line and without characters that control terminals or reorder text.
pub fn clean(text: &str) -> String {
    let shown = text.char_indices().nth(MAX_CHARS).map_or(text, |(end, _)| &text[..end]);
    let mut clean: String = shown.chars().map(|c| if is_harmless(c) { c } else { '\u{fffd}' }).collect();
    if shown.len() < text.len() {
        clean.push('…');
    }
    clean
}

fn is_harmless(c: char) -> bool {
    // separators of lines and paragraphs, and marks that change the direction of text
    let moves = matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !moves
}

/// Cleans all texts of a JSON value, names of fields included.
pub fn clean_json(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::String(text) => Value::String(clean(&text)),
        Value::Array(values) => Value::Array(values.into_iter().map(clean_json).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (clean(&name), clean_json(value))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_escape_sequences_and_long_texts_are_cleaned() {
        assert_eq!(clean("the round is over: 3 < 4, naïve"), "the round is over: 3 < 4, naïve");
        let forged = "x\n2026-11-18T00:00:00Z  INFO acknowledged\r\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}1m";
        let text = clean(forged);
        assert!(text.chars().all(|c| !c.is_control()), "{text:?}");
        assert!(text.starts_with("x\u{fffd}2026-11-18T00:00:00Z  INFO acknowledged\u{fffd}\u{fffd}]0;owned"));
        assert_eq!(clean("a\u{202e}b\u{2028}c\u{2066}d"), "a\u{fffd}b\u{fffd}c\u{fffd}d");
        for long in ["x".repeat(1 << 20), "€".repeat(1 << 20)] {
            assert_eq!(clean(&long).chars().count(), MAX_CHARS + 1);
        }
        assert_eq!(clean(&"x".repeat(MAX_CHARS)), "x".repeat(MAX_CHARS));
    }

    #[test]
    fn all_texts_of_a_json_value_are_cleaned() {
        let value =
            serde_json::json!({ "a\u{1b}": ["\n", { "b": "\u{1b}[2J" }], "n": 1, "t": true, "0": null });
        let text = clean_json(value).to_string();
        assert_eq!(
            text,
            "{\"0\":null,\"a\u{fffd}\":[\"\u{fffd}\",{\"b\":\"\u{fffd}[2J\"}],\"n\":1,\"t\":true}"
        );
    }
}
