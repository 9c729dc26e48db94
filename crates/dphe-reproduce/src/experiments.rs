//! The paper's tables and figures. Each is data over one [`Grid`]: cells of (source, method, split), the paper's
//! numbers, columns and claims. The caller passes the data sets.

mod attributes;
mod clustering;
mod figure4;
mod grid;
mod recognition;
mod results;
mod settings;
mod table1;
mod table2;
mod users;

pub use attributes::{AttributeSource, AttributeSplit};
pub use clustering::clustering;
pub use figure4::{FIGURE4_USERS, figure4};
pub use grid::Grid;
pub use recognition::{AttributeTask, recognition};
pub use settings::{Encryption, Settings, Source};
pub use table1::table1;
pub use table2::table2;
pub use users::{USERS, users};
