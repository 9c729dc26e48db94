//! The header of an `.npy` file: a Python dictionary with `descr`, `fortran_order` and `shape`.

use std::io::{self, Read, Write};

use crate::Error;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The longest header. NumPy's headers of plain arrays have at most a few hundred bytes.
const LONGEST: usize = 1 << 16;
/// The largest number of axes that is parsed. The arrays used here have at most two.
const MOST_AXES: usize = 8;

/// The type of an element with its size in bytes, or in characters for Unicode strings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    Float(usize),
    Signed(usize),
    Unsigned(usize),
    Bool,
    Unicode(usize),
    Bytes(usize),
}

pub(super) struct Header {
    pub(super) element: Element,
    pub(super) big_endian: bool,
    pub(super) fortran: bool,
    pub(super) shape: Vec<usize>,
}

impl Header {
    /// Reads a header and returns it with its length in bytes.
    pub(super) fn read(reader: &mut impl Read) -> Result<(Self, u64), Error> {
        let mut start = [0; 8];
        reader.read_exact(&mut start).map_err(|_| not_an_array())?;
        if &start[..6] != MAGIC {
            return Err(not_an_array());
        }
        let mut length = [0; 4];
        let size_bytes = match start[6] {
            1 => 2,
            2 | 3 => 4,
            version => return Err(bad(format!("version {version} of the format is not supported"))),
        };
        reader.read_exact(&mut length[..size_bytes]).map_err(|_| not_an_array())?;
        let length = u32::from_le_bytes(length) as usize;
        if length > LONGEST {
            return Err(bad(format!("a header of {length} bytes is too long for a plain array")));
        }
        let mut text = vec![0; length];
        reader.read_exact(&mut text).map_err(|_| bad("the header is truncated"))?;
        let text = core::str::from_utf8(&text).map_err(|_| bad("the header is not UTF-8 text"))?;
        Ok((Parser { rest: text }.header()?, (8 + size_bytes + length) as u64))
    }

    pub(super) fn item_bytes(&self) -> usize {
        match self.element {
            Element::Float(bytes)
            | Element::Signed(bytes)
            | Element::Unsigned(bytes)
            | Element::Bytes(bytes) => bytes,
            Element::Bool => 1,
            Element::Unicode(characters) => characters.saturating_mul(4),
        }
    }

    /// Returns the number of elements.
    pub(super) fn count(&self) -> Result<usize, Error> {
        let count = self.shape.iter().try_fold(1usize, |count, &axis| count.checked_mul(axis));
        // the number of bytes must not overflow either
        count
            .filter(|count| count.checked_mul(self.item_bytes().max(1)).is_some())
            .ok_or_else(|| bad(format!("the shape {:?} is too large", self.shape)))
    }
}

/// Writes a header padded to a multiple of 64 bytes, as NumPy does.
pub(super) fn write(out: &mut impl Write, kind: &str, shape: &[usize]) -> io::Result<()> {
    let axes: String = shape.iter().map(|axis| format!("{axis},")).collect();
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({axes}), }}");
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    out.write_all(MAGIC)?;
    out.write_all(&[1, 0])?;
    let length = u16::try_from(header.len()).map_err(|_| io::Error::other("the header is too long"))?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(header.as_bytes())
}

/// A parser for the subset of Python's syntax that NumPy writes.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn header(mut self) -> Result<Header, Error> {
        let (mut kind, mut fortran, mut shape) = (None, None, None);
        self.expect("{")?;
        while !self.take("}") {
            let key = self.string()?;
            self.expect(":")?;
            match key {
                "descr" if self.take("[") => {
                    return Err(bad("records with named fields are not supported"));
                }
                "descr" => kind = Some(self.string()?),
                "fortran_order" => fortran = Some(self.boolean()?),
                "shape" => shape = Some(self.shape()?),
                other => return Err(bad(format!("the header has an unknown entry {other:?}"))),
            }
            self.take(",");
        }
        let (Some(kind), Some(fortran), Some(shape)) = (kind, fortran, shape) else {
            return Err(bad("the header lacks descr, fortran_order or shape"));
        };
        let (element, big_endian) = element(kind)?;
        Ok(Header { element, big_endian, fortran, shape })
    }

    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start();
        let after = rest.strip_prefix(token);
        self.rest = after.unwrap_or(rest);
        after.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), Error> {
        if self.take(token) { Ok(()) } else { Err(bad(format!("the header lacks a {token:?}"))) }
    }

    fn string(&mut self) -> Result<&'a str, Error> {
        let quote = if self.take("'") { '\'' } else { self.expect("\"").map(|()| '"')? };
        let (string, after) = self.rest.split_once(quote).ok_or_else(|| bad("the header is truncated"))?;
        self.rest = after;
        Ok(string)
    }

    fn boolean(&mut self) -> Result<bool, Error> {
        if self.take("True") { Ok(true) } else { self.expect("False").map(|()| false) }
    }

    fn shape(&mut self) -> Result<Vec<usize>, Error> {
        self.expect("(")?;
        let mut shape = Vec::new();
        while !self.take(")") {
            let rest = self.rest.trim_start();
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let axis =
                rest[..digits].parse().map_err(|_| bad("the shape in the header is not a list of sizes"))?;
            self.rest = &rest[digits..];
            shape.push(axis);
            if shape.len() > MOST_AXES {
                return Err(bad("the array has too many axes for features or labels"));
            }
            self.take(",");
        }
        Ok(shape)
    }
}

/// Parses a NumPy type such as `<f4`, and returns whether it is big-endian.
fn element(kind: &str) -> Result<(Element, bool), Error> {
    let (order, rest) = match kind.chars().next() {
        Some(order @ ('<' | '>' | '|' | '=')) => (order, &kind[1..]),
        _ => ('|', kind),
    };
    let unknown = || {
        Error::table(
            format!("elements of type {kind} are not supported"),
            "Use an array of float16, float32, float64, integers or strings.",
        )
    };
    let code = rest.chars().next().ok_or_else(unknown)?;
    if code == 'O' {
        return Err(Error::table(
            "the array holds Python objects, which are not read because unpickling can run arbitrary code",
            "Convert names with numpy.asarray(..., dtype=str) and numbers with dtype=float, then save again.",
        ));
    }
    let bytes: usize = rest[code.len_utf8()..].parse().map_err(|_| unknown())?;
    let element = match (code, bytes) {
        ('f', 2 | 4 | 8) => Element::Float(bytes),
        ('i', 1 | 2 | 4 | 8) => Element::Signed(bytes),
        ('u', 1 | 2 | 4 | 8) => Element::Unsigned(bytes),
        ('b', 1) => Element::Bool,
        // strings of length zero are refused: the file's size would not bound their number
        ('U', 1..) => Element::Unicode(bytes),
        ('S' | 'a', 1..) => Element::Bytes(bytes),
        _ => return Err(unknown()),
    };
    Ok((element, order == '>'))
}

fn not_an_array() -> Error {
    bad("this is not a NumPy array")
}

fn bad(what: impl Into<String>) -> Error {
    Error::table(what, super::AGAIN)
}
