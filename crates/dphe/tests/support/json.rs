//! Reads the files in `vectors/`.

#![allow(dead_code, reason = "each test uses some of it")]

use serde_json::Value;

pub(crate) fn load(name: &str) -> Value {
    let path = format!("{}/../../vectors/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap()
}

pub(crate) fn list<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    let list = value[name].as_array().unwrap_or_else(|| panic!("no list {name}"));
    assert!(!list.is_empty());
    list
}

pub(crate) fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap_or_else(|| panic!("not a string: {value}"));
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

pub(crate) fn array<const N: usize>(value: &Value) -> [u8; N] {
    hex(value).try_into().unwrap()
}

pub(crate) fn number<T: TryFrom<i64>>(value: &Value) -> T {
    let number = value.as_i64().unwrap_or_else(|| panic!("not a number: {value}"));
    T::try_from(number).ok().unwrap()
}

pub(crate) fn table(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(number).collect()
}

/// Reads floats from the hexadecimal digits of their bits.
pub(crate) fn floats(value: &Value) -> Vec<f64> {
    let bits = |bits: &Value| u64::from_str_radix(bits.as_str().unwrap(), 16).unwrap();
    value.as_array().unwrap().iter().map(|value| f64::from_bits(bits(value))).collect()
}
