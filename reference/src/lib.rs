//! A reference implementation of the protocol in `docs/protocol.md` and of the paper's Algorithm 1, and the generator
//! of the test vectors. It is written for readability and not for speed.
//!
//! It shares no code with the other crates, so agreement with them is an independent check. It is not fit for real
//! data: it is slow and not constant-time, and its randomness is a fixed stream.
//!
//! * [`algorithm1`]: the algorithm as printed, with matrices, `Enc0`, `Y` and `Z`, on textbook Paillier.
//! * [`wire`]: the bytes of the protocol, one module per part of the specification.
//! * [`vectors`]: the generated files in `vectors/`.
//! * [`rng`]: the fixed stream of randomness.

#![allow(clippy::expect_used, reason = "the generator stops at unexpected values")]

pub mod algorithm1;
pub mod rng;
pub mod vectors;
pub mod wire;
