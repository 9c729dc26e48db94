//! Toy keys from hard-coded safe primes.

use num_bigint::BigUint;

use super::json::{Json, hex, number, object, text};
use crate::algorithm1::Key;
use crate::wire::task::key_id;

/// Reads a number from its hexadecimal digits.
pub fn from_hex(digits: &str) -> BigUint {
    BigUint::parse_bytes(digits.as_bytes(), 16).expect("written down below")
}

/// Returns the key of this many bits.
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

/// Returns another key of 256 bits, for another task.
pub fn other_key() -> Key {
    Key::new(from_hex("c06a8676757e75aa63535f6c5d8647e7"), from_hex("fac15ebec5eafd3e76942c228dd4689b"))
}

/// Returns a prime of this many bits, for invalid keys.
pub fn prime(bits: u32) -> BigUint {
    let prime = from_hex(match bits {
        128 => "f3d62ab7f104543f4ca9791972da615d",
        256 => "dce267823fd1bf20f53e797bcacbe94ea49c7f81731d9aa4d8db5113f9376fbd",
        1024 => PRIME_1024,
        2048 => PRIME_2048,
        _ => unreachable!("no other lengths are used"),
    });
    assert_eq!(prime.bits(), u64::from(bits));
    prime
}

/// Returns a key as JSON.
pub fn json(key: &Key) -> Json {
    object()
        .with("bits", number(key.n.bits()))
        .with("noise", text("secure"))
        .with("p", hex(key.p.to_bytes_be()))
        .with("q", hex(key.q.to_bytes_be()))
        .with("n", hex(key.n.to_bytes_be()))
        .with("key_id", hex(key_id(key)))
}

const PRIME_1024: &str = "\
    c97e7bd43d64e456e62a68c322bf3af2e798cb7840f4488e43aed1f6c4bbaacbcb03786a8f8449771d076b151b30480b\
    bd3e622355d52635941644d6c6ba72676fb67e3002c497c5db04a02683bb2bdf653487bebf85a254cf60cad7343c3dea\
    d0afa0fbb8aaea945605e26edeb2a7e5d7aafda152d75ebad9cb2bd5f3b1ea27";

const PRIME_2048: &str = "\
    f347fe22ef589192bbe3b31458dda0c9b47ef8cc7280df92bc97a3b91c0f067ca071dc45efc601d76c6af762f9efb671\
    0550b8c19de71066a2d64525d56dac5adc05d25350a168d9f5311b82ce5b06a3bd76c642107e213ba860e7a08132cd90\
    9066074203994d9a724ce34c0f8891551c587cc2bc0724d05ba7b93763987865e8f9d4436bcc17158fe3f2167535d157\
    d4b04cb49c94e991de3612285f2b12e111f5d33361b70e8719444b1b6ec476a705c216f4a0368b878d21531f9e6764b2\
    0179b544b425733571d80f6501307deeff8c2a43f280ca345cebfdcc14d8930260fa26200bf44b3e8662b7b9e9052ae5\
    c5bb25f00abbd80c3396719da03fe4ff";
