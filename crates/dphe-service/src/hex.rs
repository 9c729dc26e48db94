//! Hexadecimal text: lower case, two digits per byte.

/// Writes bytes as hexadecimal digits.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads exactly `N` bytes. Returns `None` for any other text, including upper-case digits.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    decode_all(text)?.try_into().ok()
}

/// Reads any number of bytes. Returns `None` for text that is not pairs of lower-case digits.
pub fn decode_all(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let pair = |digits: &[u8]| u8::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok();
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_decode_to_the_bytes_they_were_encoded_from() {
        assert_eq!(encode(&[0, 0x1f, 0xff]), "001fff");
        assert_eq!(decode("001fff"), Some([0, 0x1f, 0xff]));
        for wrong in ["", "001ff", "001fff0", "001fFF", "001fg0", "+01fff", "é1fff"] {
            assert_eq!(decode::<3>(wrong), None, "{wrong}");
        }
    }
}
