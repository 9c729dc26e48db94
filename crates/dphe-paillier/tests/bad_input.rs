//! Bad input from outside: every case has its error, nothing panics, and nothing is lost.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::LazyLock;

use dphe_paillier::{
    DecryptionKey, EncryptionKey, Error, KeyBits, KeyKind, NoiseMode, PassphraseCost, Plaintext, RunningSums,
    SlotLayout, Threads, WireCiphertexts, hazmat,
};
use num_bigint::BigUint;
use rand_core::SeedableRng;

fn rng(seed: u64) -> chacha20::ChaCha20Rng {
    chacha20::ChaCha20Rng::seed_from_u64(seed)
}

fn generate(seed: u64) -> DecryptionKey {
    let bits = hazmat::insecure_key_bits(512).unwrap();
    DecryptionKey::generate(bits, NoiseMode::Secure, &mut rng(seed), Threads::new(2)).unwrap()
}

static KEY: LazyLock<DecryptionKey> = LazyLock::new(|| generate(1));
static OTHER: LazyLock<DecryptionKey> = LazyLock::new(|| generate(2));

fn modulus() -> BigUint {
    BigUint::from_bytes_be(&KEY.encryption_key().modulus_be_bytes())
}

/// Returns the first number from `start` up, in steps of two, that has no small factor and satisfies `ok`.
fn without_small_factors(start: BigUint, ok: impl Fn(&BigUint) -> bool) -> BigUint {
    (0u32..).map(|i| &start + 2 * i).find(|n| (3u32..2000).all(|q| n % q != BigUint::ZERO) && ok(n)).unwrap()
}

#[test]
fn bad_moduli_are_refused_with_the_reason() {
    let key = |n: &BigUint| EncryptionKey::from_modulus(&n.to_bytes_be(), NoiseMode::Secure).map(|_| ());
    let one = BigUint::from(1u8);
    let top = &one << 2047u32;
    assert_eq!(key(&BigUint::ZERO), Err(Error::KeySize { bits: 0 }));
    assert_eq!(key(&(&one << 1023u32)), Err(Error::KeySize { bits: 1024 }));
    assert_eq!(key(&(&top - 1u8)), Err(Error::KeySize { bits: 2047 }));
    assert_eq!(key(&(&one << 2048u32)), Err(Error::KeySize { bits: 2049 }));
    assert_eq!(key(&top), Err(Error::KeyEven));
    let n = &top + 1u8;
    let small = (3u32..).find(|q| &n % q == BigUint::ZERO && (2..*q).all(|d| q % d != 0)).unwrap();
    assert_eq!(key(&n), Err(Error::KeySmallFactor { factor: small }));
    // the largest prime that trial division must find
    let n = (&top / 1_048_573u32 + 1u8) | &one;
    let n =
        (0u32..).map(|i| (&n + 2 * i) * 1_048_573u32).find(|n| (2u32..2000).all(|q| n % q != BigUint::ZERO));
    assert!(matches!(key(&n.unwrap()), Err(Error::KeySmallFactor { .. })));
    // 2^2048 - 1942289 is the largest prime below 2^2048
    let prime = (&one << 2048u32) - 1_942_289u32;
    assert_eq!(key(&prime), Err(Error::KeyPrime));
    // perfect powers
    let root = without_small_factors((&one << 1023u32) + (&one << 1022u32) + 1u8, |_| true);
    let square = &root * &root;
    match key(&square) {
        Err(Error::KeyPerfectPower | Error::KeySmallFactor { .. }) => {}
        other => panic!("a square was answered {other:?}"),
    }
    let p = BigUint::from_bytes_be(&safe_prime_1024());
    assert_eq!(key(&(&p * &p)), Err(Error::KeyPerfectPower));
    // a cube of 2048 bits
    let root = without_small_factors((&one << 682u32) + (&one << 681u32) + 1u8, |root| {
        (2000u32..20_000).all(|q| root % q != BigUint::ZERO) && root.pow(3).bits() == 2048
    });
    assert!(matches!(key(&root.pow(3)), Err(Error::KeyPerfectPower | Error::KeySmallFactor { .. })));
    let p512 = (&one << 512u32) - 569u32;
    assert_eq!(key(&p512.pow(4)), Err(Error::KeyPerfectPower));
    // a number that is far too long is refused before it is parsed
    assert!(matches!(
        EncryptionKey::from_modulus(&vec![1; 1 << 20], NoiseMode::Secure),
        Err(Error::KeySize { .. })
    ));
}

/// A 1024-bit prime with its two top bits set: 2^1024 - 105 is the largest prime below 2^1024.
fn safe_prime_1024() -> Vec<u8> {
    ((BigUint::from(1u8) << 1024u32) - 105u32).to_bytes_be()
}

#[test]
fn bad_factors_are_refused() {
    let p = safe_prime_1024();
    let make = |p: &[u8], q: &[u8]| hazmat::decryption_key(p, q, NoiseMode::Secure).map(|_| ());
    assert_eq!(make(&p, &p), Err(Error::KeyFactors));
    assert_eq!(make(&p, &[3]), Err(Error::KeyFactors));
    assert!(make(&[], &[]).is_err());
    assert_eq!(make(&vec![255; 1 << 20], &p), Err(Error::KeyFactors));
    // 2^1024 - 105 and the next odd number below are too close to each other
    let close = ((BigUint::from(1u8) << 1024u32) - 107u32).to_bytes_be();
    assert_eq!(make(&p, &close), Err(Error::KeyFactors));
    let even = ((BigUint::from(1u8) << 1024u32) - (BigUint::from(1u8) << 1000u32)).to_bytes_be();
    assert_eq!(make(&p, &even), Err(Error::KeyFactors));
    assert!(matches!(KeyBits::new(1024), Err(Error::KeySize { bits: 1024 })));
    assert!(matches!(hazmat::insecure_key_bits(1000), Err(Error::KeySize { bits: 1000 })));
}

#[test]
fn bad_ciphertexts_are_refused_with_their_index() {
    let key = KEY.encryption_key();
    let n = modulus();
    let n_squared = &n * &n;
    let good = &BigUint::from(2u8);
    let read = |integers: &[&BigUint]| {
        let bytes: Vec<Vec<u8>> = integers.iter().map(|i| i.to_bytes_be()).collect();
        key.from_integers(&bytes.iter().map(|b| &b[..]).collect::<Vec<_>>(), Threads::ONE).map(|_| ())
    };
    assert_eq!(read(&[good]), Ok(()));
    assert_eq!(read(&[good, &BigUint::ZERO]), Err(Error::CiphertextRange { index: 1 }));
    assert_eq!(read(&[&n_squared]), Err(Error::CiphertextRange { index: 0 }));
    assert_eq!(read(&[good, good, &(&n_squared + 2u8)]), Err(Error::CiphertextRange { index: 2 }));
    assert_eq!(read(&[&(&n_squared << 64u32)]), Err(Error::CiphertextRange { index: 0 }));
    assert_eq!(read(&[good, &n]), Err(Error::CiphertextUnit { index: 1 }));
    assert_eq!(read(&[&(&n * 77u32)]), Err(Error::CiphertextUnit { index: 0 }));
    assert_eq!(read(&[&(&n_squared - &n)]), Err(Error::CiphertextUnit { index: 0 }));

    let width = key.ciphertext_bytes();
    let decode = |bytes: &[u8]| {
        let decoded = key.decode(bytes, Threads::ONE).map(|all| all.len());
        for threads in 1..4 {
            assert_eq!(key.read_wire(bytes, Threads::new(threads)).map(|all| all.len()), decoded);
        }
        decoded
    };
    assert_eq!(decode(&[]), Ok(0));
    assert_eq!(decode(&[1]), Err(Error::CiphertextLength { expected: width, found: 1 }));
    assert_eq!(
        decode(&vec![1; width + 1]),
        Err(Error::CiphertextLength { expected: width, found: width + 1 })
    );
    assert_eq!(decode(&vec![0; width]), Err(Error::CiphertextRange { index: 0 }));
    assert_eq!(decode(&vec![255; width]), Err(Error::CiphertextRange { index: 0 }));
    // a lower half of n is not canonical, though the number is below n^2
    let mut bytes = vec![0; width];
    bytes[width / 2..].copy_from_slice(&n.to_bytes_be());
    assert_eq!(decode(&bytes), Err(Error::CiphertextRange { index: 0 }));
    // 0 + 1 n is a multiple of n
    let mut bytes = vec![0; width];
    bytes[width / 2 - 1] = 1;
    assert_eq!(decode(&bytes), Err(Error::CiphertextUnit { index: 0 }));
    // the index is that of the first bad one, whatever is wrong with it
    let good: Vec<u8> = (0..width).map(|i| u8::from(i == width - 1)).collect();
    let many = |bad: &[(usize, &[u8])]| {
        let mut all = good.repeat(40);
        bad.iter().for_each(|(i, bytes)| all[i * width..(i + 1) * width].copy_from_slice(bytes));
        decode(&all)
    };
    let over = vec![255; width];
    assert_eq!(many(&[]), Ok(40));
    assert_eq!(many(&[(39, &over), (21, &over)]), Err(Error::CiphertextRange { index: 21 }));
    assert_eq!(many(&[(12, &bytes), (21, &over)]), Err(Error::CiphertextUnit { index: 12 }));
    assert_eq!(many(&[(12, &over), (11, &vec![0; width])]), Err(Error::CiphertextRange { index: 11 }));
}

#[test]
fn refused_folds_leave_running_sums_unchanged() {
    let (key, other) = (KEY.encryption_key(), OTHER.encryption_key());
    let batch = |key: &EncryptionKey, count: usize| {
        let ms: Vec<_> = (0..count).map(|_| Plaintext::new(key, 1).unwrap()).collect();
        let x = key.encrypt_all(&ms, &mut rng(1), Threads::ONE).unwrap();
        key.read_wire(&key.encode(&x, Threads::ONE).unwrap(), Threads::ONE).unwrap()
    };
    let mut sums = RunningSums::new(key, 10);
    sums.fold(&[2, 4, 9], &batch(key, 3), Threads::ONE).unwrap();
    let before = sums.encode(Threads::ONE);
    let mut fold = |positions: &[u32], batch: &WireCiphertexts| {
        sums.fold(positions, batch, Threads::new(2)).unwrap_err()
    };
    let wrong = |position| Error::Position { position, positions: 10 };
    assert_eq!(fold(&[0, 1], &batch(other, 2)), Error::KeyMismatch);
    assert_eq!(fold(&[0], &batch(key, 2)), Error::Length { expected: 2, found: 1 });
    assert_eq!(fold(&[], &batch(key, 1)), Error::Length { expected: 1, found: 0 });
    assert_eq!(fold(&[4, 4], &batch(key, 2)), wrong(4));
    assert_eq!(fold(&[4, 2, 4], &batch(key, 3)), wrong(4));
    assert_eq!(fold(&[4, 10], &batch(key, 2)), wrong(10));
    assert_eq!(fold(&[u32::MAX], &batch(key, 1)), wrong(u32::MAX));
    assert_eq!(sums.merge(RunningSums::new(other, 10), Threads::ONE).unwrap_err(), Error::KeyMismatch);
    let longer = sums.merge(RunningSums::new(key, 11), Threads::ONE);
    assert_eq!(longer.unwrap_err(), Error::Length { expected: 10, found: 11 });
    sums.fold(&[], &batch(key, 0), Threads::ONE).unwrap();
    assert_eq!((sums.encode(Threads::ONE), sums.occupied()), (before, vec![2, 4, 9]));
    assert_eq!((sums.terms(2), sums.terms(3), sums.terms(10)), (1, 0, 0));
}

#[test]
fn decrypt_small_of_large_numbers_gives_no_details() {
    let (key, other) = (KEY.encryption_key(), OTHER.encryption_key());
    let layout = SlotLayout::new(key, 8, 4).unwrap();
    let read = |key: &EncryptionKey, values: &[i128]| {
        let ms: Vec<_> = values.iter().map(|&m| Plaintext::new(key, m).unwrap()).collect();
        let x = key.encrypt_all(&ms, &mut rng(1), Threads::ONE).unwrap();
        key.read_wire(&key.encode(&x, Threads::ONE).unwrap(), Threads::ONE).unwrap()
    };
    let open = |values: &[i128]| KEY.decrypt_small(&read(key, values), &layout, &mut rng(2), Threads::ONE);
    assert_eq!(open(&[508, -508]), Ok(vec![508, -508]));
    // too large for four terms, though it fits the slot; reaching the next slot; beyond all slots
    for bad in [509, 512, -513, 1 << 10, -(1 << 20), i128::MAX, i128::MIN] {
        assert_eq!(open(&[1, bad, 1]).unwrap_err(), Error::Decryption, "{bad}");
        assert_eq!(open(&[bad]).unwrap_err(), Error::Decryption, "{bad}");
        let last: Vec<i128> =
            (0..layout.slots()).map(|i| if i + 1 == layout.slots() { bad } else { 0 }).collect();
        assert_eq!(open(&last).unwrap_err(), Error::Decryption, "{bad}");
    }
    let foreign = read(other, &[1]);
    let opened = KEY.decrypt_small(&foreign, &layout, &mut rng(2), Threads::ONE);
    assert_eq!(opened.unwrap_err(), Error::KeyMismatch);
    assert_eq!(KEY.decrypt_wire(&foreign, &mut rng(2), Threads::ONE).unwrap_err(), Error::KeyMismatch);
    let short = DecryptionKey::generate(
        hazmat::insecure_key_bits(256).unwrap(),
        NoiseMode::Secure,
        &mut rng(1),
        Threads::ONE,
    );
    let layout = SlotLayout::new(short.unwrap().encryption_key(), 8, 4).unwrap();
    let opened = KEY.decrypt_small(&read(key, &[1]), &layout, &mut rng(2), Threads::ONE);
    assert_eq!(opened.unwrap_err(), Error::KeyMismatch);
}

#[test]
fn multiples_of_a_factor_are_not_units() {
    // a key whose factors the test knows
    let p = (BigUint::from(1u8) << 128u32) - 159u32;
    let q = (BigUint::from(1u8) << 127u32) + (BigUint::from(1u8) << 126u32) + 7u32;
    let secret = hazmat::decryption_key(&p.to_bytes_be(), &q.to_bytes_be(), NoiseMode::Secure).unwrap();
    let key = secret.encryption_key();
    for factor in [&p, &q] {
        let bad = (factor * 12_345u32).to_bytes_be();
        let read = key.from_integers(&[&[2], &bad], Threads::ONE);
        assert_eq!(read.unwrap_err(), Error::CiphertextUnit { index: 1 });
        // the same in wire form
        let mut bytes = vec![0; key.ciphertext_bytes()];
        let end = bytes.len();
        bytes[end - bad.len()..].copy_from_slice(&bad);
        assert_eq!(key.decode(&bytes, Threads::ONE).unwrap_err(), Error::CiphertextUnit { index: 0 });
    }
}

#[test]
fn operands_of_different_keys_are_refused() {
    let (key, other) = (KEY.encryption_key(), OTHER.encryption_key());
    let m = Plaintext::new(other, 1).unwrap();
    let x = other.encrypt(&m, &mut rng(1)).unwrap();
    assert_eq!(key.encrypt(&m, &mut rng(1)).unwrap_err(), Error::KeyMismatch);
    assert_eq!(KEY.decrypt(&x, &mut rng(9)).unwrap_err(), Error::KeyMismatch);
    let own = key.encrypt(&Plaintext::new(key, 1).unwrap(), &mut rng(1)).unwrap();
    let added = key.add(std::slice::from_ref(&own), std::slice::from_ref(&x), Threads::ONE);
    assert_eq!(added.unwrap_err(), Error::KeyMismatch);
    assert_eq!(key.encode(&[x], Threads::ONE).unwrap_err(), Error::KeyMismatch);
    let foreign = other.blindings(1, &mut rng(2), Threads::ONE);
    let m = Plaintext::new(key, 1).unwrap();
    let encrypted = key.encrypt_with(std::slice::from_ref(&m), foreign, Threads::ONE);
    assert_eq!(encrypted.unwrap_err(), Error::KeyMismatch);
    let mut pool = dphe_paillier::BlindingPool::new(other);
    pool.refill(2, &mut rng(3), Threads::ONE);
    assert_eq!(key.encrypt_from_pool(&[m], &mut pool, Threads::ONE).unwrap_err(), Error::KeyMismatch);
    assert_eq!(pool.len(), 2, "a failed call takes nothing");
    assert_eq!(key.add(&[own], &[], Threads::ONE).unwrap_err(), Error::Length { expected: 1, found: 0 });
}

#[test]
fn values_that_do_not_fit_their_slots_are_refused() {
    let key = KEY.encryption_key();
    let layout = SlotLayout::new(key, 8, 4).unwrap();
    assert_eq!((layout.slot_bits(), layout.slots(), layout.bound()), (10, 51, 128));
    assert_eq!(
        layout.pack(key, &[127, -127, 128]).unwrap_err(),
        Error::SlotOverflow { index: 2, bound: 128 }
    );
    assert_eq!(layout.pack(key, &[-128]).unwrap_err(), Error::SlotOverflow { index: 0, bound: 128 });
    assert_eq!(layout.pack(key, &[i64::MIN]).unwrap_err(), Error::SlotOverflow { index: 0, bound: 128 });
    for (bits, terms) in [(0, 1), (1, 1), (8, 0), (64, 2), (60, 32), (u32::MAX, u64::MAX)] {
        assert!(matches!(SlotLayout::new(key, bits, terms), Err(Error::SlotLayout { .. })), "{bits} {terms}");
    }
    let widest = SlotLayout::new(key, 64, 1).unwrap();
    let extremes = [i64::MAX - 1, -(i64::MAX - 1), 0, -1, 1, -(i64::MAX - 1), i64::MAX - 1];
    let packed = widest.pack(key, &extremes).unwrap();
    assert_eq!(widest.unpack(&packed, extremes.len()).unwrap(), extremes);
    // a layout is valid for one key length
    let other = DecryptionKey::generate(
        hazmat::insecure_key_bits(256).unwrap(),
        NoiseMode::Secure,
        &mut rng(1),
        Threads::ONE,
    );
    let other = other.unwrap();
    assert_eq!(layout.pack(other.encryption_key(), &[1]).unwrap_err(), Error::KeyMismatch);
    let foreign = Plaintext::new(other.encryption_key(), 1).unwrap();
    assert_eq!(layout.unpack(&[foreign], 1).unwrap_err(), Error::KeyMismatch);
    // more ciphertexts than slots
    let x = key.encrypt(&Plaintext::new(key, 1).unwrap(), &mut rng(1)).unwrap();
    let tall = vec![x; 52];
    let packed = key.pack(&[&tall], &layout, Threads::ONE);
    assert_eq!(packed.unwrap_err(), Error::Length { expected: 51, found: 52 });
    // a sum that is too large for four terms below 128, though it fits the slot
    let sum = Plaintext::new(key, 509).unwrap();
    assert_eq!(layout.unpack(&[sum], 51).unwrap_err(), Error::SlotResidue);
    // something above the slots
    assert_eq!(
        Plaintext::from_sign_and_magnitude(key, false, &vec![1; 1 << 20]).unwrap_err(),
        Error::PlaintextRange
    );
    let huge = Plaintext::from_sign_and_magnitude(key, false, &(modulus() >> 1u32).to_bytes_be()).unwrap();
    assert_eq!(layout.unpack(&[huge], 51).unwrap_err(), Error::SlotResidue);
    assert_eq!(layout.unpack(&[], 1).unwrap_err(), Error::Length { expected: 1, found: 0 });
}

#[test]
fn encrypted_keys_need_all_bytes_and_the_passphrase() {
    let encrypted = KEY.to_encrypted_bytes(b"correct horse", PassphraseCost::TEST, &mut rng(4)).unwrap();
    let secret = hazmat::read_secret_key(&encrypted, b"correct horse").unwrap();
    let key = secret.encryption_key();
    assert_eq!(key, KEY.encryption_key());
    let x = key.encrypt(&Plaintext::new(key, -5).unwrap(), &mut rng(6)).unwrap();
    assert_eq!(secret.decrypt(&x, &mut rng(9)).unwrap().to_i64(), Some(-5));

    assert_eq!(hazmat::read_secret_key(&encrypted, b"wrong horse").unwrap_err(), Error::KeyEncrypted);
    // a short key is refused outside hazmat
    assert_eq!(
        DecryptionKey::from_encrypted_bytes(&encrypted, b"correct horse").unwrap_err(),
        Error::KeySize { bits: 512 }
    );
    for length in 0..encrypted.len() {
        assert!(hazmat::read_secret_key(&encrypted[..length], b"correct horse").is_err(), "cut to {length}");
    }
    let longer: Vec<u8> = encrypted.iter().copied().chain([0]).collect();
    assert!(hazmat::read_secret_key(&longer, b"correct horse").is_err());
    for bit in 0..8 * encrypted.len() {
        let mut flipped = encrypted.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(hazmat::read_secret_key(&flipped, b"correct horse").is_err(), "bit {bit}");
    }
    let public = KEY.encryption_key().to_bytes();
    assert!(matches!(
        DecryptionKey::from_encrypted_bytes(&public, b""),
        Err(Error::KeyKind { found: KeyKind::Public })
    ));
    assert!(matches!(EncryptionKey::from_bytes(&encrypted), Err(Error::KeyKind { found: KeyKind::Secret })));
    assert_eq!(hazmat::read_public_key(&public).unwrap(), *KEY.encryption_key());
    assert_eq!(EncryptionKey::from_bytes(&public).unwrap_err(), Error::KeySize { bits: 512 });
    for length in 0..public.len() {
        assert!(hazmat::read_public_key(&public[..length]).is_err());
    }
}

#[test]
fn secrets_print_nothing() {
    let key = KEY.encryption_key();
    let m = Plaintext::new(key, 123_456_789).unwrap();
    let blinding = key.blindings(1, &mut rng(1), Threads::ONE);
    let shown = format!("{:?} {:?} {:?} {:?}", *KEY, m, blinding, key);
    assert!(shown.contains("<redacted>") && !shown.contains("123456789"), "{shown}");
}
