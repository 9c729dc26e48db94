//! Identifiers of requests, which appear in the logs of client and service.

use std::fmt;

use axum::http::HeaderValue;

/// The header with the identifier, in requests and responses.
pub const REQUEST_ID: &str = "x-request-id";

/// The identifier of a request: 1 to 64 letters, digits, dots, underscores and hyphens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    const MAX_LENGTH: usize = 64;

    /// Creates an identifier of 16 random hexadecimal digits.
    pub fn fresh() -> Self {
        let mut bytes = [0; 8];
        // without randomness all identifiers are equal, which only makes logs harder to read
        let _ = getrandom::fill(&mut bytes);
        Self(format!("{:016x}", u64::from_be_bytes(bytes)))
    }

    /// Reads an identifier. Its characters are safe in logs and headers.
    pub fn parse(text: &str) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let fits = (1..=Self::MAX_LENGTH).contains(&text.len()) && text.bytes().all(allowed);
        fits.then(|| Self(text.to_owned()))
    }

    /// Returns the identifier that the client chose, or a new one.
    pub(super) fn of(header: Option<&HeaderValue>) -> Self {
        header.and_then(|id| id.to_str().ok()).and_then(Self::parse).unwrap_or_else(Self::fresh)
    }

    /// Returns the identifier as a header value.
    pub(super) fn to_header(&self) -> HeaderValue {
        // all characters of an identifier are valid in headers
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
    fn identifiers_with_unsafe_characters_are_refused() {
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
