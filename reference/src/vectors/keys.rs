//! Toy keys: safe primes found once and written down.

use num_bigint::BigUint;

use super::json::{Json, hex, number, object, text};
use crate::algorithm1::Key;
use crate::wire::task::key_id;

/// A number from its hexadecimal digits.
pub fn from_hex(digits: &str) -> BigUint {
    BigUint::parse_bytes(digits.as_bytes(), 16).expect("written down below")
}

/// The key of this many bits.
pub fn toy_key(bits: u32) -> Key {
    let (p, q) = match bits {
        128 => ("ccc30a244a07aa83", "e4366a6686d6ac57"),
        256 => ("bf7811986f68a94ec6a3bbc285b9cb3b", "ee98fbf0941c7f032be1900223994807"),
        512 => (
            "bc7126a7ed5229d494f8eb51c7b7795342505ccf8fb32206915133bda965e72b",
            "e75754376bded2916c753a0340caaa7d951897c4ef689720ddf549f86afc12a7",
        ),
        _ => unreachable!("no other lengths are used"),
    };
    let key = Key::new(from_hex(p), from_hex(q));
    assert_eq!(key.n.bits(), u64::from(bits));
    key
}

/// Another key of 256 bits, for what belongs to somebody else.
pub fn other_key() -> Key {
    Key::new(from_hex("c06a8676757e75aa63535f6c5d8647e7"), from_hex("fac15ebec5eafd3e76942c228dd4689b"))
}

/// A key as it stands in the files.
pub fn json(key: &Key) -> Json {
    object()
        .with("bits", number(key.n.bits()))
        .with("noise", text("secure"))
        .with("p", hex(key.p.to_bytes_be()))
        .with("q", hex(key.q.to_bytes_be()))
        .with("n", hex(key.n.to_bytes_be()))
        .with("key_id", hex(key_id(key)))
}
