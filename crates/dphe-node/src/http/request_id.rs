//! What a request is called, on both sides of the line and in both logs.

use std::fmt;

use axum::http::HeaderValue;

/// The header with the name of a request, both ways.
pub const REQUEST_ID: &str = "x-request-id";

/// The name of a request: the client's own if it is 1 to 64 letters, digits, dots, underscores and hyphens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    const LONGEST: usize = 64;

    /// A new one: 16 hexadecimal digits at random.
    pub fn fresh() -> Self {
        let mut bytes = [0; 8];
        // without randomness all are called alike, which only makes logs harder to read
        let _ = getrandom::fill(&mut bytes);
        Self(format!("{:016x}", u64::from_be_bytes(bytes)))
    }

    /// This one, if it may be one: it goes into logs and headers as it is.
    pub fn parse(text: &str) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let fits = (1..=Self::LONGEST).contains(&text.len()) && text.bytes().all(allowed);
        fits.then(|| Self(text.to_owned()))
    }

    /// The one that the client chose, or a new one.
    pub(super) fn of(header: Option<&HeaderValue>) -> Self {
        header.and_then(|id| id.to_str().ok()).and_then(Self::parse).unwrap_or_else(Self::fresh)
    }

    /// As the value of a header.
    pub(super) fn to_header(&self) -> HeaderValue {
        // its characters are all allowed there
        HeaderValue::from_str(&self.0).unwrap_or_else(|_| HeaderValue::from_static("none"))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_into_logs_is_harmless_and_short() {
        let longest = "x".repeat(64);
        for good in ["a", "A-b_c.9", &longest] {
            assert_eq!(RequestId::parse(good).unwrap().to_string(), good);
        }
        for bad in ["", "a b", "a\"b", "a\nb", "ä", "{}", &"x".repeat(65)] {
            assert_eq!(RequestId::parse(bad), None, "{bad}");
        }
        let fresh = RequestId::fresh();
        assert_eq!(fresh.to_string().len(), 16);
        assert_ne!(fresh, RequestId::fresh());
        assert_eq!(RequestId::parse(&fresh.to_string()), Some(fresh));
    }
}
