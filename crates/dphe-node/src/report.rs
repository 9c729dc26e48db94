//! What a person looks at afterwards: pages that need nothing but a browser, and the plots on them.

mod chart;
mod page;

pub use chart::{Chart, PointPlot, Series, Unit};
pub use page::{Page, Picture, Tile};
pub(crate) use page::{STYLE, escaped, table};
