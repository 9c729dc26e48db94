//! Interoperation with python-paillier in both directions: each side decrypts what the other encrypts and
//! adds.
//!
//! The environment variable `DPHE_TEST_PYTHON` names a Python that has `phe`. `scripts/setup` installs it and
//! `scripts/test` sets the variable. Without it, the test prints that it is skipped and checks nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::Write;
use std::process::{Command, Stdio};

use dphe_paillier::{NoiseMode, Plaintext, Threads, hazmat};
use num_bigint::{BigInt, BigUint, Sign};
use rand_core::{Rng, SeedableRng};

const VALUES: usize = 1000;

/// Returns the first probable prime after `top 2^480`, by Fermat tests with small bases, which suffice for a
/// test key.
fn prime_from(top: u32) -> BigUint {
    let start = (BigUint::from(top) << 480u32) + 1u8;
    let one = BigUint::from(1u8);
    (0u32..)
        .map(|i| &start + 2 * i)
        .find(|n| [2u32, 3, 5, 7].iter().all(|&a| BigUint::from(a).modpow(&(n - &one), n) == one))
        .unwrap()
}

fn hex(bytes: &[u8]) -> String {
    BigUint::from_bytes_be(bytes).to_str_radix(16)
}

#[test]
fn python_paillier_interoperates_in_both_directions() {
    let Ok(python) = std::env::var("DPHE_TEST_PYTHON") else {
        println!("SKIPPED: DPHE_TEST_PYTHON names no Python that has `phe`; run scripts/setup python");
        return;
    };
    let (p, q) = (prime_from(0xc0de_2017), prime_from(0xfeed_1024));
    let secret = hazmat::decryption_key(&p.to_bytes_be(), &q.to_bytes_be(), NoiseMode::Secure).unwrap();
    let key = secret.encryption_key();
    let n = BigInt::from(&p * &q);

    // random values of all lengths and both signs, and the ends of phe's range, which is a third of n
    let mut rng = chacha20::ChaCha20Rng::seed_from_u64(2017);
    let end: BigInt = &n / 3 - 1;
    let mut values = vec![end.clone(), -end.clone(), BigInt::ZERO, BigInt::from(1), BigInt::from(-1)];
    while values.len() < VALUES {
        let bits = rng.next_u32() as usize % 1000;
        let mut bytes = vec![0; bits.div_ceil(8)];
        rng.fill_bytes(&mut bytes);
        let sign = if rng.next_u32().is_multiple_of(2) { Sign::Plus } else { Sign::Minus };
        values.push(BigInt::from_bytes_be(sign, &bytes) % &end);
    }
    let plaintexts: Vec<Plaintext> = values
        .iter()
        .map(|v| {
            let (sign, magnitude) = v.to_bytes_be();
            Plaintext::from_sign_and_magnitude(key, sign == Sign::Minus, &magnitude).unwrap()
        })
        .collect();
    let ours = key.encrypt_all(&plaintexts, &mut rng, Threads::all()).unwrap();
    let total = key.sum(&ours, Threads::all()).unwrap();

    let mut input = format!("{} {} {:x}\n", p.to_str_radix(16), q.to_str_radix(16), VALUES);
    for (value, integer) in values.iter().zip(key.to_integers(&ours, Threads::all()).unwrap()) {
        input += &format!("{} {}\n", value.to_str_radix(16), hex(&integer));
    }
    input += &hex(&key.to_integers(&[total], Threads::ONE).unwrap()[0]);

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/phe_interop.py");
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the Python of DPHE_TEST_PYTHON starts");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "phe did not agree: see its message above");

    let answer = String::from_utf8(output.stdout).unwrap();
    let integers: Vec<Vec<u8>> = answer
        .split_whitespace()
        .map(|l| BigUint::parse_bytes(l.as_bytes(), 16).unwrap().to_bytes_be())
        .collect();
    assert_eq!(integers.len(), VALUES + 1);
    let theirs =
        key.from_integers(&integers.iter().map(|i| &i[..]).collect::<Vec<_>>(), Threads::all()).unwrap();
    let opened = secret.decrypt_all(&theirs, &mut rng, Threads::all()).unwrap();
    let signed = |m: &Plaintext| {
        let (negative, magnitude) = m.sign_and_magnitude();
        BigInt::from_bytes_be(if negative { Sign::Minus } else { Sign::Plus }, &magnitude)
    };
    for (value, m) in values.iter().zip(&opened) {
        assert_eq!(&signed(m), value);
    }
    // The first two values are the two ends of the range, so their sum is zero.
    assert_eq!(signed(&opened[VALUES]), &values[0] + &values[1]);
    println!("{VALUES} values each way, {} bits, back end {}", key.bits().get(), key.backend());
}
