//! Invalid ciphertexts at the limits of the range.

use num_bigint::BigUint;

use crate::algorithm1::Key;
use crate::rng::Rng;
use crate::wire::seal::fixed_width;
use crate::wire::task::Policy;

/// Bytes in place of a ciphertext.
pub struct Corner {
    /// The name.
    pub name: &'static str,
    /// The description.
    pub comment: &'static str,
    /// The bytes, `c1 || c0`.
    pub bytes: Vec<u8>,
    /// The expected error code.
    pub expected: &'static str,
}

/// Returns all of them. Each is a number `c = c0 + c1 n`, or a pair that is not canonical.
pub fn ciphertexts(policy: &Policy, key: &Key) -> Vec<Corner> {
    let mut rng = Rng::new("corners");
    let n = &key.n;
    let half = policy.ciphertext_bytes() / 2;
    let ones = BigUint::from_bytes_be(&vec![0xff; half]);
    let [zero, one, two] = [0u8, 1, 2].map(BigUint::from);
    // arbitrary numbers
    let (k, u) = (rng.nonce(n), rng.nonce(n));
    let corner = |name, expected, c1: &BigUint, c0: &BigUint, comment| {
        let bytes = [fixed_width(c1, half), fixed_width(c0, half)].concat();
        Corner { name, comment, bytes, expected }
    };
    vec![
        corner("zero", "ct_range", &zero, &zero, "c = 0"),
        corner("n_squared", "ct_range", n, &zero, "c = n^2"),
        corner("n_squared_plus", "ct_range", n, &u, "c = n^2 + u"),
        corner("twice_n_squared", "ct_range", &(n + 5u8), &u, "c1 above n"),
        corner("c0_is_n", "ct_range", &k, n, "c0 = n: another way to write (k + 1) n"),
        corner("c0_above_n", "ct_range", &k, &(n + 1u8), "c0 = n + 1: another way to write 1 + (k + 1) n"),
        corner("c0_ones", "ct_range", &k, &ones, "c0 all ones"),
        corner("c1_ones", "ct_range", &ones, &u, "c1 all ones"),
        corner("ones", "ct_range", &ones, &ones, "all ones"),
        corner("n", "ct_unit", &one, &zero, "c = n"),
        corner("k_n", "ct_unit", &k, &zero, "c = k n"),
        corner("n_squared_minus_n", "ct_unit", &(n - 1u8), &zero, "c = n^2 - n"),
        corner("p", "ct_unit", &zero, &key.p, "c = p"),
        corner("q", "ct_unit", &zero, &key.q, "c = q"),
        corner("two_p", "ct_unit", &k, &(&key.p * &two), "c0 = 2 p"),
        corner("p_multiple", "ct_unit", &k, &(&key.p * (&u % &key.q)), "a multiple of p"),
        corner("one", "ct_trivial", &zero, &one, "c = 1: an encryption of 0 without noise"),
        corner("one_plus_n", "ct_trivial", &one, &one, "c = 1 + n: an encryption of 1 without noise"),
        corner("one_plus_k_n", "ct_trivial", &k, &one, "c = 1 + k n: an encryption of k without noise"),
        corner("one_minus_n", "ct_trivial", &(n - 1u8), &one, "c = 1 + (n - 1) n: of -1, without noise"),
    ]
}
