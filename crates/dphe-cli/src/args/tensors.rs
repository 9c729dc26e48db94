//! The options of a task of named tensors.

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct TensorArgs {
    /// The initial model of a task whose users train named tensors with their own programs: a safetensors file, copied
    /// to initial.safetensors next to the task file
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["public", "model", "loss", "strength", "epochs"]
    )]
    pub(crate) tensors: Option<PathBuf>,
    /// A floating-point tensor that is not trained; may be repeated
    #[arg(long, value_name = "NAME", requires = "tensors")]
    pub(crate) keep: Vec<String>,
    /// The number of values per position [default: depends on the payload]
    #[arg(long, value_name = "COUNT", requires = "tensors", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) block: Option<u32>,
    /// The fractional bits of a value [default: 20]
    #[arg(long, value_name = "BITS", requires = "tensors", value_parser = clap::value_parser!(u8).range(0..=48))]
    pub(crate) scale_bits: Option<u8>,
    /// The largest difference that an update carries, a power of two; the rest stays for the next update [default: 1]
    #[arg(long, value_name = "VALUE", requires = "tensors", value_parser = exponent)]
    pub(crate) clip: Option<i8>,
}

/// Parses a power of two, and returns its exponent.
fn exponent(text: &str) -> Result<i8, String> {
    let exponents = -60..=30;
    let found = text.parse::<f64>().ok().and_then(|value| exponents.clone().find(|&e| 2f64.powi(e) == value));
    found
        .and_then(|e| i8::try_from(e).ok())
        .ok_or_else(|| "it must be a power of two, such as 0.25 or 1".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_powers_of_two_are_limits() {
        let of = |text| exponent(text).ok();
        assert_eq!([of("1"), of("0.25"), of("4.0")], [Some(0), Some(-2), Some(2)]);
        assert_eq!([of("0"), of("0.3"), of("-1"), of("nan"), of("1e300"), of("x")], [None; 6]);
    }
}
