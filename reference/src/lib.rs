//! The protocol of `docs/protocol.md` and the paper's Algorithm 1, written to be read and not to be fast, and the
//! test vectors made with them.
//!
//! Nothing here is shared with the other crates: what both agree on has been thought about twice. Nothing here
//! is fit for real data either: it is slow, it is not constant-time, and its randomness is a fixed stream.
//!
//! * [`algorithm1`]: the algorithm as printed, with matrices, `Enc0`, `Y` and `Z`, on textbook Paillier.
//! * [`wire`]: the protocol's bytes, one module for each part of the specification.
//! * [`vectors`]: what is written into `vectors/`.

#![allow(clippy::expect_used, reason = "a generator that meets what it does not expect should stop")]

pub mod algorithm1;
pub mod rng;
pub mod vectors;
pub mod wire;
