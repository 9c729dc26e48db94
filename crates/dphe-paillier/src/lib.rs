#![doc = include_str!("../README.md")]

// Montgomery arithmetic on lanes of digits. Types tell moduli and forms (Montgomery, plain) apart.
#[cfg(not(feature = "hazmat"))]
mod arith;
#[cfg(feature = "hazmat")]
#[doc(hidden)]
pub mod arith;
// Noise: h_s^r for a fresh secret r.
mod blinding;
// c = c0 + c1 n as bytes and as integers; checks that c is in range and invertible modulo n.
mod bytes;
// Enc(m) = (1 + m n) h_s^r modulo n^2; sums as products, multiples as powers.
mod ciphertext;
// c^(p-1) modulo p^2 and c^(q-1) modulo q^2, joined by the Chinese remainder theorem.
mod decrypt;
// Errors.
mod error;
// n = p q for safe primes p and q; the noise base h_s = (-x^2)^n.
mod key;
// Keys as bytes: Argon2id and XChaCha20-Poly1305 protect the secret one.
mod key_file;
// sum_k v_k 2^(b k): many small numbers in one plaintext.
mod packing;
// Division of work among threads.
mod parallel;
// Integers m with |m| < n / 2.
mod plaintext;
// Integers modulo n: sums for masks and checks.
mod residue;
// Products c_1 ... c_k R^-(k-1) that grow by one factor at a time.
mod sums;

// Short keys, chosen factors and chosen randomness, behind a feature.
#[cfg(feature = "hazmat")]
pub mod hazmat;

// Encrypted vectors in a few lines, behind a default feature.
#[cfg(feature = "simple")]
pub mod simple;

pub use arith::backend::{BACKEND_VARIABLE, Backend};
pub use arith::measure::{KernelRate, kernel_rate};
pub use arith::prime::Progress;
pub use blinding::{Blinding, BlindingPool};
pub use bytes::WireCiphertexts;
pub use ciphertext::Ciphertext;
pub use error::{Error, KeyKind};
pub use key::{DecryptionKey, EncryptionKey, KeyBits, KeyId, NoiseMode};
pub use key_file::PassphraseCost;
pub use packing::SlotLayout;
pub use parallel::Threads;
pub use plaintext::Plaintext;
pub use residue::ResidueSum;
pub use sums::RunningSums;
