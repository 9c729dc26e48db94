//! The paper's tables and figures, each over data that the caller brings.

pub mod attributes;
pub mod clustering;
pub mod figure4;
pub mod recognition;
mod settings;
mod shared;
pub mod table1;
pub mod table2;

pub use attributes::{AttributeSource, AttributeSplit};
pub use clustering::Clustering;
pub use figure4::Figure4;
pub use recognition::{Recognition, Task};
pub use settings::{Encryption, Settings, Source};
pub use table1::Table1;
pub use table2::Table2;
