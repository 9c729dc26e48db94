//! The findings of an experiment as data. A program writes them as text, Markdown, JSON or HTML.

use serde::Serialize;

/// The findings of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Findings {
    /// The title, such as `Table 1: visual object recognition`.
    pub title: String,
    /// Remarks that a reader needs first, such as which data replace those of the paper.
    pub notes: Vec<String>,
    /// The tables, the main one first.
    pub tables: Vec<Table>,
    /// The plots, which are drawn side by side.
    pub plots: Vec<Plot>,
    /// The images, which are drawn side by side.
    pub pictures: Vec<GreyImage>,
    /// The claims of the paper and of this project, and whether they hold.
    pub claims: Vec<Claim>,
}

/// Rows of cells under named columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// The heading of the table.
    pub title: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows, each with one cell per column.
    pub rows: Vec<Vec<Cell>>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// The name in JSON, such as `std`.
    pub key: String,
    /// The heading, such as `standard deviation`.
    pub title: String,
    /// The unit of its numbers.
    pub unit: ValueUnit,
}

/// The unit of a number, which decides how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueUnit {
    /// Per cent, with two decimal places. The number 89.3 means 89.3 %.
    Percent,
    /// A whole number.
    Count,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Any other number, with four decimal places.
    Plain,
    /// Text instead of a number.
    Text,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number in the column's unit.
    Number(f64),
    /// A text.
    Text(String),
    /// Not measured, or not printed in the paper.
    Empty(Option<()>),
}

/// A line plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plot {
    /// The heading of the plot.
    pub title: String,
    /// The label of the horizontal axis.
    pub x: String,
    /// Whether the horizontal axis is logarithmic.
    pub logarithmic: bool,
    /// The label of the vertical axis.
    pub y: String,
    /// The unit of the values.
    pub unit: ValueUnit,
    /// At most six lines: their names and points, with increasing x.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

/// A greyscale image with a caption.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GreyImage {
    /// The lines of the caption, the first one bold.
    pub lines: Vec<String>,
    /// The number of pixels per row.
    pub width: usize,
    /// The pixels in row-major order, 0 is black.
    pub grey: Vec<u8>,
}

/// A claim that should hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// The claim.
    pub text: String,
    /// Whether the measurements support it.
    pub holds: bool,
    /// The numbers that decide it.
    pub seen: String,
}

impl Column {
    /// Makes a column.
    pub fn new(key: &str, title: &str, unit: ValueUnit) -> Self {
        Self { key: key.to_owned(), title: title.to_owned(), unit }
    }
}

impl Table {
    /// Makes a table. Columns are given by key, title and unit.
    pub fn new(title: &str, columns: &[(&str, &str, ValueUnit)], rows: Vec<Vec<Cell>>) -> Self {
        let columns = columns.iter().map(|(key, title, unit)| Column::new(key, title, *unit)).collect();
        Self { title: title.to_owned(), columns, rows }
    }
}

impl Claim {
    /// Makes a claim.
    pub fn new(text: impl Into<String>, holds: bool, seen: impl Into<String>) -> Self {
        Self { text: text.into(), holds, seen: seen.into() }
    }
}

impl Cell {
    /// An empty cell.
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
