//! What a person looks at afterwards: pages that need nothing but a browser, and the plots on them.

mod chart;
mod page;

pub(crate) use chart::{Chart, Series, Unit};
pub(crate) use page::{Page, Picture};
