//! What an experiment found, as data: a program draws it as text, Markdown, JSON or a page.

use serde::Serialize;

/// All that an experiment found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Findings {
    /// What it is: `Table 1: visual object recognition`.
    pub title: String,
    /// What a reader must know first; where the paper's data are not there, what took their place.
    pub notes: Vec<String>,
    /// The main table first.
    pub tables: Vec<Table>,
    /// Drawn beside each other.
    pub plots: Vec<Plot>,
    /// Drawn beside each other.
    pub pictures: Vec<Picture>,
    /// What the paper says, or we do, and whether it was seen.
    pub claims: Vec<Claim>,
}

/// Rows of cells under named columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// What stands above it.
    pub title: String,
    /// What the cells mean.
    pub columns: Vec<Column>,
    /// As many cells as there are columns in each.
    pub rows: Vec<Vec<Cell>>,
}

/// What the cells of a column mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Its name in JSON: `std`.
    pub key: String,
    /// What stands above it: `standard deviation`.
    pub title: String,
    /// How its numbers are written.
    pub unit: Unit,
}

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Already in per cent: 89.3 is written `89.3`. Two digits.
    Percent,
    /// A whole number.
    Count,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Any other, with four digits.
    Plain,
    /// Not a number.
    Text,
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number in the column's unit.
    Number(f64),
    /// Words.
    Text(String),
    /// Not measured, or not printed in the paper.
    Empty(Option<()>),
}

/// A plot of lines through points.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plot {
    /// What stands above it.
    pub title: String,
    /// Below the horizontal axis.
    pub x: String,
    /// Whether the horizontal axis is logarithmic.
    pub logarithmic: bool,
    /// Beside the vertical axis.
    pub y: String,
    /// How values are written.
    pub unit: Unit,
    /// At most six: names and points by increasing x.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

/// A grey picture, and what is said of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Picture {
    /// What is said of it, the first line strong.
    pub lines: Vec<String>,
    /// Pixels in a row.
    pub width: usize,
    /// Row after row, 0 is black.
    pub grey: Vec<u8>,
}

/// Something that should hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// What is claimed.
    pub text: String,
    /// Whether it was seen to hold.
    pub holds: bool,
    /// The numbers that say so.
    pub seen: String,
}

impl Column {
    /// A column.
    pub fn new(key: &str, title: &str, unit: Unit) -> Self {
        Self { key: key.to_owned(), title: title.to_owned(), unit }
    }
}

impl Cell {
    /// A cell of which nothing is known.
    pub const EMPTY: Self = Self::Empty(None);
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Self::EMPTY, Self::Number)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}
