//! A reader of the part of `tf.train.Example` that video records use: a map from names to lists of bytes, floats or
//! integers.
//!
//! The encoding is that of protocol buffers. Every field starts with a varint that holds its number and wire type,
//! followed by a varint, 8 bytes, 4 bytes, or a length and that many bytes. The nesting is fixed, so the reader does
//! not recurse.

/// A video of YouTube-8M.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Video {
    /// The identifier, or empty.
    pub id: Vec<u8>,
    /// The numbers of its attributes.
    pub labels: Vec<u32>,
    /// The mean of the features of its frames.
    pub mean_rgb: Vec<f32>,
    /// The mean of the features of its audio, or empty.
    pub mean_audio: Vec<f32>,
}

/// A bound that no vocabulary exceeds.
const LARGEST_LABEL: u64 = 1 << 20;

/// Reads a video from a record.
///
/// # Errors
/// Returns a description of the first malformed field.
pub fn parse_video(record: &[u8]) -> Result<Video, &'static str> {
    let mut video = Video::default();
    for field in Fields(record) {
        // Example.features, then Features.feature, a map whose entries are messages with a key and a value
        let (1, Value::Bytes(features)) = field? else { continue };
        for field in Fields(features) {
            let (1, Value::Bytes(entry)) = field? else { continue };
            let (mut key, mut feature): (&[u8], &[u8]) = (&[], &[]);
            for field in Fields(entry) {
                match field? {
                    (1, Value::Bytes(bytes)) => key = bytes,
                    (2, Value::Bytes(bytes)) => feature = bytes,
                    _ => {}
                }
            }
            match key {
                b"id" | b"video_id" => video.id = bytes(feature)?,
                b"labels" => video.labels = integers(feature)?,
                b"mean_rgb" => video.mean_rgb = floats(feature)?,
                b"mean_audio" => video.mean_audio = floats(feature)?,
                _ => {}
            }
        }
    }
    Ok(video)
}

/// Returns the list in a feature, which is its field `kind` (1 for bytes, 2 for floats, 3 for integers).
fn list(feature: &[u8], kind: u64) -> Result<&[u8], &'static str> {
    let mut found: &[u8] = &[];
    for field in Fields(feature) {
        match field? {
            (number, Value::Bytes(bytes)) if number == kind => found = bytes,
            (1..=3, _) => return Err("a feature has a list of the wrong kind"),
            _ => {}
        }
    }
    Ok(found)
}

/// Returns the first element of a list of bytes.
fn bytes(feature: &[u8]) -> Result<Vec<u8>, &'static str> {
    for field in Fields(list(feature, 1)?) {
        if let (1, Value::Bytes(bytes)) = field? {
            return Ok(bytes.to_vec());
        }
    }
    Ok(Vec::new())
}

fn floats(feature: &[u8]) -> Result<Vec<f32>, &'static str> {
    let mut floats = Vec::new();
    for field in Fields(list(feature, 2)?) {
        match field? {
            (1, Value::Bytes(packed)) => {
                let (all, rest) = packed.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err("a list of floats is not a multiple of 4 bytes");
                }
                floats.extend(all.iter().map(|&float| f32::from_le_bytes(float)));
            }
            (1, Value::Fixed(bits)) => floats.push(f32::from_bits(bits)),
            (1, _) => return Err("a list of floats has an element of another type"),
            _ => {}
        }
    }
    Ok(floats)
}

fn integers(feature: &[u8]) -> Result<Vec<u32>, &'static str> {
    let mut integers = Vec::new();
    let mut push = |number: u64| {
        if number > LARGEST_LABEL {
            return Err("a label is negative or larger than any vocabulary");
        }
        integers.push(number as u32);
        Ok(())
    };
    for field in Fields(list(feature, 3)?) {
        match field? {
            (1, Value::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    push(varint(&mut packed)?)?;
                }
            }
            (1, Value::Varint(number)) => push(number)?,
            (1, _) => return Err("a list of integers has an element of another type"),
            _ => {}
        }
    }
    Ok(integers)
}

enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed(u32),
    /// Eight bytes. No field that is read here has this type.
    Long,
}

/// An iterator over the fields of a message. It ends after the first malformed field.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn read(&mut self) -> Result<(u64, Value<'a>), &'static str> {
        let key = varint(&mut self.0)?;
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut self.0)?),
            1 => self.take(8).map(|_| Value::Long)?,
            2 => {
                let length = varint(&mut self.0)?;
                Value::Bytes(self.take(length)?)
            }
            5 => {
                let bytes = self.take(4)?;
                Value::Fixed(bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte)))
            }
            _ => return Err("a field has an unknown wire type"),
        };
        Ok((key >> 3, value))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], &'static str> {
        let split = usize::try_from(length).ok().and_then(|length| self.0.split_at_checked(length));
        let (taken, rest) = split.ok_or("a field is longer than its message")?;
        self.0 = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// Reads a varint: seven bits per byte, the lowest first, at most ten bytes.
fn varint(input: &mut &[u8]) -> Result<u64, &'static str> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first().ok_or("a number is truncated")?;
        *input = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err("a number has more than 64 bits");
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number has more than 64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        let mut length = bytes.len();
        while length >= 0x80 {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend_from_slice(bytes);
        out
    }

    fn example(features: &[(&str, u8, Vec<u8>)]) -> Vec<u8> {
        let entries = features.iter().flat_map(|(key, kind, list)| {
            field(1, &[field(1, key.as_bytes()), field(2, &field(*kind, list))].concat())
        });
        field(1, &entries.collect::<Vec<_>>())
    }

    #[test]
    fn packed_and_unpacked_lists_are_equivalent() {
        let floats: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let unpacked: Vec<u8> = floats.chunks(4).flat_map(|x| [&[1 << 3 | 5], x].concat()).collect();
        let expected = Video {
            id: b"abcd".to_vec(),
            labels: vec![3, 300],
            mean_rgb: vec![1.5, -2.0],
            mean_audio: vec![-2.0, 1.5, -2.0],
        };
        let audio: Vec<u8> = [-2.0f32, 1.5, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        for (rgb, labels) in
            [(field(1, &floats), field(1, &[3, 0xac, 0x02])), (unpacked, vec![1 << 3, 3, 1 << 3, 0xac, 0x02])]
        {
            let record = example(&[
                ("id", 1, field(1, b"abcd")),
                ("other", 1, field(1, b"x")),
                ("labels", 3, labels),
                ("mean_rgb", 2, rgb),
                ("mean_audio", 2, field(1, &audio)),
            ]);
            assert_eq!(parse_video(&record).unwrap(), expected);
        }
        assert_eq!(parse_video(&[]).unwrap(), Video::default());
    }

    #[test]
    fn errors_describe_the_malformed_field() {
        for (record, wrong) in [
            (vec![0x0a, 5, 1], "longer than its message"),
            (vec![0x0b], "unknown wire type"),
            (vec![0x80], "truncated"),
            (vec![0xff; 11], "64 bits"),
            (example(&[("mean_rgb", 2, field(1, &[0; 5]))]), "multiple of 4"),
            (example(&[("mean_rgb", 3, field(1, &[0; 4]))]), "wrong kind"),
            // -1 takes ten bytes
            (
                example(&[("labels", 3, field(1, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]))]),
                "negative",
            ),
            (example(&[("mean_rgb", 2, vec![1 << 3, 1])]), "another type"),
        ] {
            let error = parse_video(&record).unwrap_err();
            assert!(error.contains(wrong), "{error} {wrong}");
        }
    }
}
