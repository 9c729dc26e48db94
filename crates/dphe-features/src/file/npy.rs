//! NumPy's `.npy` format: a header in Python syntax, then the elements. Arrays of pickled objects are refused.

mod header;

use std::io::{self, Read, Write};

use crate::Error;
use header::{Element, Header};

const AGAIN: &str = "Write the array again with numpy.save or numpy.savez.";
/// The number of bytes converted at a time, a multiple of every element size.
const CHUNK: usize = 1 << 16;

/// An array whose header has been read and checked against the file's size. The elements are read later.
pub(super) struct Npy<R> {
    header: Header,
    reader: R,
}

impl<R: Read> Npy<R> {
    /// Reads the header of an array of `length` bytes, header included, with at most `max_values` elements.
    pub(super) fn open(mut reader: R, length: u64, max_values: usize) -> Result<Self, Error> {
        let (header, used) = Header::read(&mut reader)?;
        let count = header.count()?;
        if count > max_values {
            return Err(too_large(count, max_values));
        }
        let needed = (count as u64).checked_mul(header.item_bytes() as u64);
        let present = length.saturating_sub(used);
        if needed != Some(present) {
            return Err(Error::table(
                format!(
                    "the header declares {count} elements of {} bytes, but {present} bytes follow",
                    header.item_bytes()
                ),
                AGAIN,
            ));
        }
        Ok(Self { header, reader })
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.header.shape
    }

    /// Returns whether the elements are strings.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.header.element, Element::Unicode(_) | Element::Bytes(_))
    }

    /// Reads the elements as single-precision numbers, row after row.
    pub(super) fn floats(self) -> Result<Vec<f32>, Error> {
        // branch on the type once, not per element: files can have gigabytes
        match self.header.element {
            Element::Float(2) => self.numbers(|b: [u8; 2]| half(u16::from_le_bytes(b))),
            Element::Float(4) => self.numbers(f32::from_le_bytes),
            Element::Float(_) => self.numbers(|b| f64::from_le_bytes(b) as f32),
            Element::Signed(1) => self.numbers(|b| f32::from(i8::from_le_bytes(b))),
            Element::Signed(2) => self.numbers(|b| f32::from(i16::from_le_bytes(b))),
            Element::Signed(4) => self.numbers(|b| i32::from_le_bytes(b) as f32),
            Element::Signed(_) => self.numbers(|b| i64::from_le_bytes(b) as f32),
            Element::Unsigned(1) | Element::Bool => self.numbers(|b| f32::from(u8::from_le_bytes(b))),
            Element::Unsigned(2) => self.numbers(|b| f32::from(u16::from_le_bytes(b))),
            Element::Unsigned(4) => self.numbers(|b| u32::from_le_bytes(b) as f32),
            Element::Unsigned(_) => self.numbers(|b| u64::from_le_bytes(b) as f32),
            Element::Unicode(_) | Element::Bytes(_) => Err(Error::table(
                "the array holds text instead of numbers",
                "Store numbers here, and names in `classes`.",
            )),
        }
    }

    /// Reads the elements as whole numbers, row after row.
    pub(super) fn integers(self) -> Result<Vec<i64>, Error> {
        let values: Vec<Option<i64>> = match self.header.element {
            Element::Float(2) => self.numbers(|b: [u8; 2]| whole(half(u16::from_le_bytes(b)).into())),
            Element::Float(4) => self.numbers(|b| whole(f32::from_le_bytes(b).into())),
            Element::Float(_) => self.numbers(|b| whole(f64::from_le_bytes(b))),
            Element::Signed(1) => self.numbers(|b| Some(i8::from_le_bytes(b).into())),
            Element::Signed(2) => self.numbers(|b| Some(i16::from_le_bytes(b).into())),
            Element::Signed(4) => self.numbers(|b| Some(i32::from_le_bytes(b).into())),
            Element::Signed(_) => self.numbers(|b| Some(i64::from_le_bytes(b))),
            Element::Unsigned(1) | Element::Bool => self.numbers(|b| Some(u8::from_le_bytes(b).into())),
            Element::Unsigned(2) => self.numbers(|b| Some(u16::from_le_bytes(b).into())),
            Element::Unsigned(4) => self.numbers(|b| Some(u32::from_le_bytes(b).into())),
            Element::Unsigned(_) => self.numbers(|b| i64::try_from(u64::from_le_bytes(b)).ok()),
            Element::Unicode(_) | Element::Bytes(_) => {
                Err(Error::table("the array holds text instead of whole numbers", "Store labels as numbers."))
            }
        }?;
        let position = values.iter().position(Option::is_none);
        values.into_iter().collect::<Option<_>>().ok_or_else(|| {
            Error::table(
                format!("label {} is not a whole number", position.unwrap_or_default()),
                "Store labels as whole numbers from 0.",
            )
        })
    }

    /// Reads the elements as strings.
    pub(super) fn texts(mut self) -> Result<Vec<String>, Error> {
        let wide = match self.header.element {
            Element::Unicode(_) => true,
            Element::Bytes(_) => false,
            _ => {
                return Err(Error::table(
                    "the array holds numbers instead of names",
                    "Store an array of strings.",
                ));
            }
        };
        let (count, bytes) = (self.header.count()?, self.header.item_bytes());
        let mut texts = reserve(count)?;
        let mut item = reserve(bytes)?;
        item.resize(bytes, 0);
        for number in 0..count {
            self.reader.read_exact(&mut item).map_err(cut_short)?;
            let text = if wide {
                let chars = item.as_chunks::<4>().0.iter().map(|&b| {
                    char::from_u32(if self.header.big_endian {
                        u32::from_be_bytes(b)
                    } else {
                        u32::from_le_bytes(b)
                    })
                });
                chars.collect::<Option<String>>()
            } else {
                core::str::from_utf8(&item).ok().map(str::to_owned)
            };
            let text = text.ok_or_else(|| {
                Error::table(format!("string {number} is not valid Unicode"), "Store names in UTF-8.")
            })?;
            texts.push(text.trim_end_matches('\0').to_owned());
        }
        Ok(texts)
    }

    /// Converts elements of `N` bytes and puts them into row order.
    fn numbers<const N: usize, T: Copy + Default>(
        mut self,
        convert: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, Error> {
        let count = self.header.count()?;
        // in column order, element `i` belongs to row `i % rows`; a single row or column is the same in both orders
        let rows = match self.header.shape[..] {
            [rows, columns] if self.header.fortran && rows > 1 && columns > 1 => Some((rows, columns)),
            _ => None,
        };
        let mut values = reserve(count)?;
        if rows.is_some() {
            values.resize(count, T::default());
        }
        let mut chunk = vec![0; CHUNK];
        let mut done = 0;
        while done < count {
            let bytes = &mut chunk[..((count - done) * N).min(CHUNK)];
            self.reader.read_exact(bytes).map_err(cut_short)?;
            for item in bytes.as_chunks_mut::<N>().0 {
                if self.header.big_endian {
                    item.reverse();
                }
                match rows {
                    Some((rows, columns)) => values[done % rows * columns + done / rows] = convert(*item),
                    None => values.push(convert(*item)),
                }
                done += 1;
            }
        }
        Ok(values)
    }
}

/// Reserves memory for `count` elements, and returns an error instead of aborting.
pub(super) fn reserve<T>(count: usize) -> Result<Vec<T>, Error> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| {
        Error::table(format!("{count} elements do not fit into memory"), "Use a smaller file.")
    })?;
    Ok(values)
}

pub(super) fn too_large(count: usize, max_values: usize) -> Error {
    Error::table(
        format!("the file has {count} values, and at most {max_values} are read"),
        "Split the file into smaller ones.",
    )
}

fn cut_short(error: io::Error) -> Error {
    Error::table(format!("the elements of an array could not be read: {error}"), AGAIN)
}

fn whole(value: f64) -> Option<i64> {
    // beyond 2^53, f64 cannot represent every whole number
    (value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0).then_some(value as i64)
}

/// Converts IEEE 754 half precision.
pub(super) fn half(bits: u16) -> f32 {
    let (exponent, fraction) = (i32::from((bits >> 10) & 31), f32::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// Writes an array with this NumPy type and shape, from the bytes of its elements.
pub(super) fn write(
    out: &mut impl Write,
    kind: &str,
    shape: &[usize],
    elements: impl Iterator<Item = io::Result<impl AsRef<[u8]>>>,
) -> io::Result<()> {
    header::write(out, kind, shape)?;
    for element in elements {
        out.write_all(element?.as_ref())?;
    }
    Ok(())
}

/// Writes strings in UTF-32, padded to the longest, as NumPy does. `shape` is empty for a single string.
pub(super) fn write_texts(out: &mut impl Write, shape: &[usize], texts: &[&str]) -> io::Result<()> {
    let longest = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0).max(1);
    let item = |text: &str| {
        let mut item: Vec<u8> = text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
        item.resize(longest * 4, 0);
        item
    };
    write(out, &format!("<U{longest}"), shape, texts.iter().map(|text| Ok(item(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(kind: &str, fortran: &str, shape: &str, body: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(body);
        bytes
    }

    fn open(bytes: &[u8]) -> Result<Npy<&[u8]>, Error> {
        Npy::open(bytes, bytes.len() as u64, 1000)
    }

    #[test]
    fn every_kind_of_number_is_read() {
        let cases: [(&str, Vec<u8>); 12] = [
            ("<f2", [0x3c00u16, 0xc000].iter().flat_map(|v| v.to_le_bytes()).collect()),
            (">f2", [0x3c00u16, 0xc000].iter().flat_map(|v| v.to_be_bytes()).collect()),
            ("<f4", [1f32, -2.0].iter().flat_map(|v| v.to_le_bytes()).collect()),
            (">f4", [1f32, -2.0].iter().flat_map(|v| v.to_be_bytes()).collect()),
            ("<f8", [1f64, -2.0].iter().flat_map(|v| v.to_le_bytes()).collect()),
            (">f8", [1f64, -2.0].iter().flat_map(|v| v.to_be_bytes()).collect()),
            ("|i1", vec![1, 254]),
            ("<i2", [1i16, -2].iter().flat_map(|v| v.to_le_bytes()).collect()),
            ("<i4", [1i32, -2].iter().flat_map(|v| v.to_le_bytes()).collect()),
            (">i4", [1i32, -2].iter().flat_map(|v| v.to_be_bytes()).collect()),
            ("<i8", [1i64, -2].iter().flat_map(|v| v.to_le_bytes()).collect()),
            (">i8", [1i64, -2].iter().flat_map(|v| v.to_be_bytes()).collect()),
        ];
        for (kind, body) in cases {
            let bytes = array(kind, "False", "(2,)", &body);
            assert_eq!(open(&bytes).unwrap().floats().unwrap(), [1.0, -2.0], "{kind}");
            assert_eq!(open(&bytes).unwrap().integers().unwrap(), [1, -2], "{kind}");
        }
        for (kind, width) in [("|u1", 1), ("<u2", 2), ("<u4", 4), ("<u8", 8), ("|b1", 1)] {
            let mut body = vec![0; 2 * width];
            body[0] = 1;
            let bytes = array(kind, "False", "(2,)", &body);
            assert_eq!(open(&bytes).unwrap().floats().unwrap(), [1.0, 0.0], "{kind}");
            assert_eq!(open(&bytes).unwrap().integers().unwrap(), [1, 0], "{kind}");
        }
        let halves: [(u16, f32); 5] = [
            (0x7bff, 65504.0),
            (1, 5.960_464_5e-8),
            (0x7c00, f32::INFINITY),
            (0x8000, -0.0),
            (0x3555, 0.333_251_95),
        ];
        assert!(halves.iter().all(|&(bits, value)| half(bits).to_bits() == value.to_bits()));
        assert!(half(0x7e00).is_nan());
    }

    #[test]
    fn column_order_becomes_row_order() {
        let bytes = array("|u1", "True", "(2, 3)", &[1, 4, 2, 5, 3, 6]);
        assert_eq!(open(&bytes).unwrap().floats().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn strings_are_written_and_read_back() {
        let texts = ["a", "häßlich", "鳥"];
        let mut bytes = Vec::new();
        write_texts(&mut bytes, &[3], &texts).unwrap();
        assert_eq!(
            bytes.len() % 64,
            3 * 7 * 4 % 64,
            "the elements start at a multiple of 64, as NumPy has it"
        );
        assert_eq!(open(&bytes).unwrap().texts().unwrap(), texts);
        let bytes = array("|S3", "False", "(2,)", b"abcd\0\0");
        assert_eq!(open(&bytes).unwrap().texts().unwrap(), ["abc", "d"]);
        assert!(open(&array("|S1", "False", "(1,)", b"\xff")).unwrap().texts().is_err());
    }

    #[test]
    fn invalid_arrays_are_refused_with_a_reason() {
        let refused = |bytes: &[u8]| open(bytes).map(|_| ()).unwrap_err().to_string();
        assert!(refused(b"PK").contains("not a NumPy array"));
        assert!(refused(&array("|O", "False", "(2,)", &[0; 16])).contains("Python objects"));
        assert!(refused(&array("<c8", "False", "(2,)", &[0; 16])).contains("<c8"));
        assert!(refused(&array("<f4", "False", "(2, 3)", &[0; 20])).contains("20 bytes follow"));
        assert!(refused(&array("<f4", "False", "(2,)", &[0; 9])).contains("9 bytes follow"));
        assert!(refused(&array("<f4", "False", "(1001,)", &[0; 9])).contains("at most"));
        let huge = refused(&array("<f4", "False", "(4294967296, 4294967296, 4294967296)", &[]));
        assert!(huge.contains("too large"), "{huge}");
        let fraction = array("<f4", "False", "(1,)", &0.5f32.to_le_bytes());
        assert!(open(&fraction).unwrap().integers().is_err());
        assert!(open(&array("<u8", "False", "(1,)", &[255; 8])).unwrap().integers().is_err());
    }
}
