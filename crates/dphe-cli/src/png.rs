//! Small greyscale pictures as PNG files in the addresses of a page. They are not compressed.

/// The bytes of a PNG file's signature.
const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
/// A stored block of a deflate stream has at most this many bytes.
const LONGEST_BLOCK: usize = u16::MAX as usize;

/// Returns a greyscale picture as a `data:` address. Pixels are in rows, and 0 is black.
pub(crate) fn address(width: usize, grey: &[u8]) -> String {
    format!("data:image/png;base64,{}", base64(&encoded(width.max(1), grey)))
}

fn encoded(width: usize, grey: &[u8]) -> Vec<u8> {
    let mut rows = Vec::new();
    for row in grey.chunks_exact(width) {
        rows.push(0); // no filter
        rows.extend_from_slice(row);
    }
    let mut out = SIGNATURE.to_vec();
    let mut header = Vec::new();
    // the sizes of pictures on pages are small
    header.extend((width as u32).to_be_bytes());
    header.extend(((grey.len() / width) as u32).to_be_bytes());
    // eight bits per pixel, greyscale, and the only methods of compression, filters and order
    header.extend([8, 0, 0, 0, 0]);
    chunk(&mut out, b"IHDR", &header);
    chunk(&mut out, b"IDAT", &stored(&rows));
    chunk(&mut out, b"IEND", &[]);
    out
}

fn chunk(out: &mut Vec<u8>, name: &[u8; 4], content: &[u8]) {
    out.extend((content.len() as u32).to_be_bytes());
    let start = out.len();
    out.extend(name);
    out.extend(content);
    let sum = crc(&out[start..]);
    out.extend(sum.to_be_bytes());
}

/// Returns a zlib stream of blocks that are not compressed.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x78, 0x01];
    let mut blocks = bytes.chunks(LONGEST_BLOCK).peekable();
    while let Some(block) = blocks.next() {
        out.push(u8::from(blocks.peek().is_none()));
        let length = block.len() as u16;
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(block);
    }
    let (mut a, mut b) = (1u32, 0u32);
    for &byte in bytes {
        a = (a + u32::from(byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    out.extend((b << 16 | a).to_be_bytes());
    out
}

/// Returns the checksum of a chunk (CRC-32).
fn crc(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { 0xEDB8_8320 ^ (sum >> 1) } else { sum >> 1 };
    !bytes.iter().fold(u32::MAX, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), step))
}

/// Encodes bytes as text.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |word, i| word << 8 | u32::from(three.get(i).copied().unwrap_or(0)));
        for i in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= three.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_and_checksums_equal_published_values() {
        for (text, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
        assert_eq!(crc(b"123456789"), 0xCBF4_3926);
        // the Adler-32 checksum of RFC 1950
        assert!(stored(b"Wikipedia").ends_with(&0x11E6_0398u32.to_be_bytes()));
    }

    #[test]
    fn pictures_have_their_size_and_all_rows() {
        let file = encoded(3, &[0, 128, 255, 1, 2, 3]);
        assert!(file.starts_with(&SIGNATURE));
        assert_eq!(&file[16..24], &[0, 0, 0, 3, 0, 0, 0, 2]);
        let rows = [0, 0, 128, 255, 0, 1, 2, 3];
        assert!(file.windows(rows.len()).any(|window| window == rows));
    }
}
