//! A writer of readable JSON: fields in the order of their explanation, short lists on one line.

use std::fmt::Write as _;

/// A value.
#[derive(Clone, Debug)]
pub enum Json {
    /// A number, or true and false.
    Plain(String),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// An object, in this order.
    Object(Vec<(String, Json)>),
}

/// An object under construction.
pub fn object() -> Json {
    Json::Object(Vec::new())
}

/// A string.
pub fn text(text: impl Into<String>) -> Json {
    Json::Text(text.into())
}

/// Makes a string of bytes in hexadecimal.
pub fn hex(bytes: impl AsRef<[u8]>) -> Json {
    let mut digits = String::new();
    for byte in bytes.as_ref() {
        let _ = write!(digits, "{byte:02x}");
    }
    Json::Text(digits)
}

/// A number, or true and false.
pub fn number(number: impl ToString) -> Json {
    Json::Plain(number.to_string())
}

/// Makes a list of numbers.
pub fn numbers<T: ToString>(items: impl IntoIterator<Item = T>) -> Json {
    list(items.into_iter().map(number))
}

/// A list.
pub fn list(items: impl IntoIterator<Item = Json>) -> Json {
    Json::List(items.into_iter().collect())
}

/// Makes a list of floats, as the hexadecimal digits of their 64 bits.
pub fn float_bits(items: &[f64]) -> Json {
    list(items.iter().map(|w| text(format!("{:016x}", w.to_bits()))))
}

/// Makes a list of floats, in the shortest decimal form that reads back as the same number.
pub fn floats(items: &[f64]) -> Json {
    list(items.iter().map(|w| text(format!("{w:?}"))))
}

impl Json {
    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &str, value: Json) -> Self {
        if let Self::Object(fields) = &mut self {
            fields.push((name.to_owned(), value));
        }
        self
    }

    /// Returns the text of a file.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out.push('\n');
        out
    }

    fn write(&self, out: &mut String, depth: usize) {
        match self {
            Self::Plain(plain) => out.push_str(plain),
            Self::Text(text) => write_text(out, text),
            Self::List(items) => {
                // lists of scalars are written on one line
                let flat = items.iter().all(|item| matches!(item, Self::Plain(_) | Self::Text(_)));
                let lines = if flat { None } else { Some(depth + 1) };
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push_str(if flat { ", " } else { "," });
                    }
                    if let Some(depth) = lines {
                        new_line(out, depth);
                    }
                    item.write(out, depth + 1);
                }
                if lines.is_some() {
                    new_line(out, depth);
                }
                out.push(']');
            }
            Self::Object(fields) => {
                out.push('{');
                for (i, (name, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    new_line(out, depth + 1);
                    write_text(out, name);
                    out.push_str(": ");
                    value.write(out, depth + 1);
                }
                new_line(out, depth);
                out.push('}');
            }
        }
    }
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.push_str(&" ".repeat(depth));
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
