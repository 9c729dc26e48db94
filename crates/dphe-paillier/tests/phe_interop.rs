//! Both ways with python-paillier: it decrypts what we encrypt and add, we decrypt what it does.
//!
//! Needs a Python with `phe`; its name is in `DPHE_TEST_PYTHON` (`scripts/test` sees to that). Without it
//! the test says so and checks nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::Write;
use std::process::{Command, Stdio};

use dphe_paillier::{NoiseMode, Plaintext, Threads, hazmat};
use num_bigint::{BigInt, BigUint, Sign};
use rand_core::{Rng, SeedableRng};

const VALUES: usize = 1000;

/// The next prime after `top 2^480`, by trial with small bases: plenty for a test key.
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
fn python_paillier_and_we_read_each_other() {
    let Ok(python) = std::env::var("DPHE_TEST_PYTHON") else {
        println!("SKIPPED: set DPHE_TEST_PYTHON to a Python that has `phe` (scripts/test does)");
        return;
    };
    let (p, q) = (prime_from(0xc0de_2017), prime_from(0xfeed_1024));
    let secret = hazmat::decryption_key(&p.to_bytes_be(), &q.to_bytes_be(), NoiseMode::Secure).unwrap();
    let key = secret.encryption_key();
    let n = BigInt::from(&p * &q);

    // random values of all lengths, both signs, and the ends of phe's range (a third of n)
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
    let opened = secret.decrypt_all(&theirs, Threads::all()).unwrap();
    let signed = |m: &Plaintext| {
        let (negative, magnitude) = m.sign_and_magnitude();
        BigInt::from_bytes_be(if negative { Sign::Minus } else { Sign::Plus }, &magnitude)
    };
    for (value, m) in values.iter().zip(&opened) {
        assert_eq!(&signed(m), value);
    }
    // the first two values are the range's two ends: their sum is zero
    assert_eq!(signed(&opened[VALUES]), &values[0] + &values[1]);
    println!("{VALUES} values each way, {} bits, back end {}", key.bits().get(), key.backend());
}
