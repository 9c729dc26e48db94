#![doc = include_str!("../README.md")]

mod arith;
mod blinding;
mod ciphertext;
mod codec;
mod decrypt;
mod error;
mod key;
mod packing;
mod parallel;
mod plaintext;
mod running;
mod seal;
mod wire;

#[cfg(feature = "hazmat")]
pub mod hazmat;

pub use arith::backend::{BACKEND_VARIABLE, Backend};
pub use arith::measure::{KernelRate, kernel_rate};
pub use arith::prime::Progress;
pub use blinding::{Blinding, BlindingPool};
pub use ciphertext::Ciphertext;
pub use error::Error;
pub use key::{DecryptionKey, EncryptionKey, KeyBits, KeyId, NoiseMode};
pub use packing::SlotLayout;
pub use parallel::Threads;
pub use plaintext::Plaintext;
pub use running::RunningSums;
pub use seal::PassphraseCost;
pub use wire::WireCiphertexts;
