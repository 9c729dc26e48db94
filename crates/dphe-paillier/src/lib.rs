//! wip
mod arith;
pub use arith::backend::Backend;
