//! Properties that hold for all values: decryption undoes encryption, sums of ciphertexts decrypt to sums,
//! and bytes decode to what was encoded. The keys are short for speed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::LazyLock;

use dphe_paillier::{
    BlindingPool, Ciphertext, DecryptionKey, EncryptionKey, Error, NoiseMode, Plaintext, RunningSums,
    SlotLayout, Threads, WireCiphertexts, hazmat,
};
use proptest::prelude::*;
use rand_core::SeedableRng;

type Rng = chacha20::ChaCha20Rng;

fn rng(seed: u64) -> Rng {
    Rng::seed_from_u64(seed)
}

fn generate(bits: u32, mode: NoiseMode) -> DecryptionKey {
    let bits = hazmat::insecure_key_bits(bits).unwrap();
    DecryptionKey::generate(bits, mode, &mut rng(u64::from(bits.get())), Threads::new(2)).unwrap()
}

static KEY: LazyLock<DecryptionKey> = LazyLock::new(|| generate(512, NoiseMode::Secure));
static FAST: LazyLock<DecryptionKey> = LazyLock::new(|| generate(640, NoiseMode::Fast));

fn plaintexts(key: &EncryptionKey, values: &[i128]) -> Vec<Plaintext> {
    values.iter().map(|&m| Plaintext::new(key, m).unwrap()).collect()
}

fn encrypt(key: &EncryptionKey, values: &[i128], seed: u64) -> Vec<Ciphertext> {
    key.encrypt_all(&plaintexts(key, values), &mut rng(seed), Threads::ONE).unwrap()
}

fn decrypt(secret: &DecryptionKey, ciphertexts: &[Ciphertext]) -> Vec<i128> {
    let all = secret.decrypt_all(ciphertexts, &mut rng(9), Threads::ONE).unwrap();
    all.iter().map(|m| m.to_i128().unwrap()).collect()
}

/// Encodes ciphertexts and reads them again.
fn wire(key: &EncryptionKey, ciphertexts: &[Ciphertext]) -> WireCiphertexts {
    key.read_wire(&key.encode(ciphertexts, Threads::ONE).unwrap(), Threads::ONE).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn decryption_undoes_encryption(values in prop::collection::vec(any::<i128>(), 1..20), seed: u64) {
        for secret in [&*KEY, &*FAST] {
            let ciphertexts = encrypt(secret.encryption_key(), &values, seed);
            prop_assert_eq!(&decrypt(secret, &ciphertexts), &values);
        }
    }

    #[test]
    fn sums_of_ciphertexts_decrypt_to_sums(
        values in prop::collection::vec((any::<i64>(), any::<i64>(), -1000i64..1000), 1..20),
        seed: u64,
    ) {
        let key = KEY.encryption_key();
        let (a, b): (Vec<i128>, Vec<i128>) = values.iter().map(|v| (i128::from(v.0), i128::from(v.1))).unzip();
        let scalars: Vec<i64> = values.iter().map(|v| v.2).collect();
        let (x, y) = (encrypt(key, &a, seed), encrypt(key, &b, !seed));
        let sums: Vec<i128> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        prop_assert_eq!(&decrypt(&KEY, &key.add(&x, &y, Threads::new(2)).unwrap()), &sums);
        prop_assert_eq!(&decrypt(&KEY, &[&x[0] + &y[0]]), &sums[..1]);
        let mut running = x.clone();
        key.add_assign(&mut running, &y, Threads::new(3)).unwrap();
        prop_assert_eq!(&running, &key.add(&x, &y, Threads::ONE).unwrap());
        prop_assert_eq!(&decrypt(&KEY, &key.add_plain(&x, &plaintexts(key, &b), Threads::ONE).unwrap()), &sums);
        let total = key.sum(&x, Threads::new(2)).unwrap();
        prop_assert_eq!(decrypt(&KEY, &[total]), vec![a.iter().sum::<i128>()]);
        let products: Vec<i128> = a.iter().zip(&scalars).map(|(a, &k)| a * i128::from(k)).collect();
        prop_assert_eq!(&decrypt(&KEY, &key.mul_small_vartime(&x, &scalars, Threads::ONE).unwrap()), &products);
    }

    #[test]
    fn bytes_and_integers_round_trip(values in prop::collection::vec(any::<i64>(), 0..10), seed: u64) {
        let key = KEY.encryption_key();
        let values: Vec<i128> = values.into_iter().map(i128::from).collect();
        let x = encrypt(key, &values, seed);
        let bytes = key.encode(&x, Threads::ONE).unwrap();
        prop_assert_eq!(bytes.len(), x.len() * key.ciphertext_bytes());
        prop_assert_eq!(&key.decode(&bytes, Threads::new(2)).unwrap(), &x);
        let wire = key.read_wire(&bytes, Threads::new(3)).unwrap();
        prop_assert_eq!((wire.len(), wire.is_empty(), wire.key()), (x.len(), x.is_empty(), key));
        prop_assert_eq!(&wire.to_ciphertexts(Threads::new(2)), &x);
        prop_assert_eq!(&key.encode(&x, Threads::new(3)).unwrap(), &bytes);
        for (i, bytes) in bytes.chunks(key.ciphertext_bytes()).enumerate() {
            // The last bytes of the wire form are the low bytes of c modulo n.
            prop_assert_eq!(&bytes[bytes.len() - 16..], &wire.fingerprint(i).to_be_bytes());
            prop_assert!(!wire.is_trivial(i));
        }
        let integers = key.to_integers(&x, Threads::ONE).unwrap();
        let integers: Vec<&[u8]> = integers.iter().map(|i| &i[..]).collect();
        prop_assert_eq!(&key.from_integers(&integers, Threads::ONE).unwrap(), &x);
    }

    #[test]
    fn packing_commutes_with_addition(
        values in prop::collection::vec(prop::collection::vec(-32767i64..=32767, 100), 1..8),
        seed: u64,
    ) {
        let key = KEY.encryption_key();
        let layout = SlotLayout::new(key, 16, values.len() as u64).unwrap();
        let mut sum: Option<Vec<Ciphertext>> = None;
        for (i, values) in values.iter().enumerate() {
            let packed = layout.pack(key, values).unwrap();
            prop_assert_eq!(&layout.unpack(&packed, 100).unwrap(), values);
            let x = key.encrypt_all(&packed, &mut rng(seed ^ i as u64), Threads::ONE).unwrap();
            sum = Some(match sum {
                None => x,
                Some(sum) => key.add(&sum, &x, Threads::ONE).unwrap(),
            });
        }
        let opened = KEY.decrypt_all(&sum.unwrap(), &mut rng(9), Threads::ONE).unwrap();
        let expected: Vec<i64> = (0..100).map(|i| values.iter().map(|v| v[i]).sum()).collect();
        prop_assert_eq!(layout.unpack(&opened, 100).unwrap(), expected);
    }

    #[test]
    fn packed_ciphertexts_decrypt_to_packed_plaintexts(values in prop::collection::vec(-32767i64..=32767, 1..60), seed: u64) {
        let key = KEY.encryption_key();
        let layout = SlotLayout::new(key, 16, 4).unwrap();
        let x = encrypt(key, &values.iter().map(|&v| i128::from(v)).collect::<Vec<_>>(), seed);
        let columns: Vec<&[Ciphertext]> = x.chunks(layout.slots()).collect();
        let packed = key.pack(&columns, &layout, Threads::new(2)).unwrap();
        let opened = KEY.decrypt_all(&packed, &mut rng(9), Threads::ONE).unwrap();
        prop_assert_eq!(layout.unpack(&opened, values.len()).unwrap(), values);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn running_sums_equal_sums_of_ciphertexts(
        batches in prop::collection::vec((any::<[bool; 13]>(), 0usize..2, 1usize..4), 1..7),
        seed: u64,
    ) {
        let key = KEY.encryption_key();
        let mut expected: Vec<Option<Ciphertext>> = vec![None; 13];
        let mut terms = [0; 13];
        let mut replicas = [RunningSums::new(key, 13), RunningSums::new(key, 13)];
        let mut alone = RunningSums::new(key, 13);
        let mut folds = Vec::new();
        for (i, &(sent, replica, threads)) in batches.iter().enumerate() {
            let mut positions: Vec<u32> = (0..13).filter(|&p| sent[p as usize]).collect();
            if i % 2 == 1 {
                positions.reverse();
            }
            let x = encrypt(key, &vec![i as i128; positions.len()], seed ^ i as u64);
            for (&p, x) in positions.iter().zip(&x) {
                let sum = &mut expected[p as usize];
                *sum = Some(sum.as_ref().map_or(x.clone(), |sum| sum + x));
                terms[p as usize] += 1;
            }
            let batch = wire(key, &x);
            replicas[replica].fold(&positions, &batch, Threads::new(threads)).unwrap();
            folds.push((positions, batch));
        }
        for (positions, batch) in folds.iter().rev() {
            alone.fold(positions, batch, Threads::ONE).unwrap();
        }
        let [mut merged, other] = replicas;
        merged.merge(other, Threads::new(2)).unwrap();
        let occupied: Vec<u32> = (0..13).filter(|&p| expected[p as usize].is_some()).collect();
        let expected: Vec<Ciphertext> = expected.into_iter().flatten().collect();
        for sums in [&alone, &merged] {
            prop_assert_eq!(sums.positions(), 13);
            prop_assert_eq!(&sums.occupied(), &occupied);
            prop_assert_eq!(&(0..13).map(|p| sums.terms(p)).collect::<Vec<_>>(), &terms.to_vec());
            prop_assert_eq!(&sums.to_ciphertexts(Threads::new(2)), &expected);
            prop_assert_eq!(sums.encode(Threads::new(3)), key.encode(&expected, Threads::ONE).unwrap());
        }
    }

    #[test]
    fn decrypt_small_agrees_with_decryption_one_by_one(
        values in prop::collection::vec(-32767i64..=32767, 0..150),
        seed: u64,
    ) {
        for secret in [&*KEY, &*FAST] {
            let key = secret.encryption_key();
            let layout = SlotLayout::new(key, 16, 4).unwrap();
            let x = encrypt(key, &values.iter().map(|&v| i128::from(v)).collect::<Vec<_>>(), seed);
            let batch = wire(key, &x);
            let opened = secret.decrypt_small(&batch, &layout, &mut rng(!seed), Threads::new(2)).unwrap();
            prop_assert_eq!(&opened, &values);
            let one_by_one = secret.decrypt_unblinded(&x, Threads::ONE).unwrap();
            prop_assert_eq!(&secret.decrypt_wire(&batch, &mut rng(!seed), Threads::new(2)).unwrap(), &one_by_one);
        }
    }
}

#[test]
fn decrypt_small_at_full_and_partial_packs() {
    let key = KEY.encryption_key();
    for (value_bits, terms) in [(8, 4), (17, 8), (2, 1), (60, 16)] {
        let layout = SlotLayout::new(key, value_bits, terms).unwrap();
        let most = i128::from(layout.bound() - 1) * i128::from(terms);
        let slots = layout.slots();
        for count in [0, 1, slots - 1, slots, slots + 1, 5 * slots + 2] {
            let values: Vec<i128> = (0..count).map(|i| [most, -most, 0, -1, 1][i * 3 % 5]).collect();
            let batch = wire(key, &encrypt(key, &values, 3));
            let opened = KEY.decrypt_small(&batch, &layout, &mut rng(4), Threads::new(3)).unwrap();
            assert_eq!(opened.into_iter().map(i128::from).collect::<Vec<_>>(), values, "{count}");
        }
    }
}

#[test]
fn sums_of_many_terms_are_correct() {
    // more terms than lanes, windows or table entries
    let key = KEY.encryption_key();
    let x = encrypt(key, &[1, -1, 5], 1);
    let batch = wire(key, &x);
    let mut sums = RunningSums::new(key, 3);
    for _ in 0..300 {
        sums.fold(&[0, 1, 2], &batch, Threads::ONE).unwrap();
    }
    sums.fold(&[1], &wire(key, &x[1..2]), Threads::ONE).unwrap();
    assert_eq!((sums.terms(0), sums.terms(1), sums.terms(3)), (300, 301, 0));
    assert_eq!(decrypt(&KEY, &sums.to_ciphertexts(Threads::ONE)), [300, -301, 1500]);
    assert_eq!(
        decrypt(&KEY, &key.decode(&sums.encode(Threads::ONE), Threads::ONE).unwrap()),
        [300, -301, 1500]
    );
    let none = RunningSums::new(key, 0);
    assert!(none.occupied().is_empty() && none.encode(Threads::ONE).is_empty());
}

#[test]
fn plaintexts_at_the_ends_of_the_range_round_trip() {
    let key = KEY.encryption_key();
    let n = num_bigint::BigUint::from_bytes_be(&key.modulus_be_bytes());
    let half = (&n >> 1u32).to_bytes_be();
    let over = ((&n >> 1u32) + 1u32).to_bytes_be();
    for negative in [false, true] {
        let end = Plaintext::from_sign_and_magnitude(key, negative, &half).unwrap();
        let x = key.encrypt(&end, &mut rng(1)).unwrap();
        let back = KEY.decrypt(&x, &mut rng(9)).unwrap();
        assert_eq!(back, end);
        assert_eq!(back.sign_and_magnitude().0, negative);
        assert_eq!(
            Plaintext::from_sign_and_magnitude(key, negative, &over).unwrap_err(),
            Error::PlaintextRange
        );
        assert_eq!(
            Plaintext::from_sign_and_magnitude(key, negative, &[255; 1000]).unwrap_err(),
            Error::PlaintextRange
        );
    }
    let zero = Plaintext::from_sign_and_magnitude(key, true, &[]).unwrap();
    assert_eq!(zero, Plaintext::new(key, 0).unwrap());
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let key = KEY.encryption_key();
    let values: Vec<i128> = (-40..41).collect();
    let encrypt =
        |threads| key.encrypt_all(&plaintexts(key, &values), &mut rng(5), Threads::new(threads)).unwrap();
    assert_eq!(encrypt(1), encrypt(3));
    let generate = |threads| {
        let bits = hazmat::insecure_key_bits(256).unwrap();
        DecryptionKey::generate(bits, NoiseMode::Secure, &mut rng(9), Threads::new(threads)).unwrap()
    };
    assert_eq!(generate(1).encryption_key(), generate(4).encryption_key());
}

#[test]
fn keys_from_bytes_and_from_modulus_are_equal() {
    let key = KEY.encryption_key();
    let reread = hazmat::read_public_key(&key.to_bytes()).unwrap();
    let padded: Vec<u8> = [0; 9].into_iter().chain(key.modulus_be_bytes()).collect();
    let padded = hazmat::encryption_key(&padded, NoiseMode::Secure).unwrap();
    for other in [&reread, &padded] {
        assert_eq!(other, key);
        // The noise base is the same, so equal randomness gives equal ciphertexts.
        assert_eq!(encrypt(other, &[5, -5], 1), encrypt(key, &[5, -5], 1));
    }
}

#[test]
fn factors_of_a_new_key_are_far_apart() {
    // Fermat's method finds factors that are close to the square root of the modulus.
    for seed in 0..20 {
        let bits = hazmat::insecure_key_bits(512).unwrap();
        let secret = DecryptionKey::generate(bits, NoiseMode::Secure, &mut rng(seed), Threads::ONE).unwrap();
        let n = num_bigint::BigUint::from_bytes_be(&secret.encryption_key().modulus_be_bytes());
        let root = n.sqrt();
        for step in 1u32..500 {
            let a = &root + step;
            let rest = &a * &a - &n;
            let b = rest.sqrt();
            assert!(&b * &b != rest, "seed {seed}: factored in {step} steps");
        }
    }
}

#[test]
fn trivial_ciphertexts_are_recognised() {
    let key = KEY.encryption_key();
    let neutral = Ciphertext::neutral(key);
    let bare = key.add_plain(std::slice::from_ref(&neutral), &plaintexts(key, &[7]), Threads::ONE).unwrap();
    assert!(neutral.is_trivial() && bare[0].is_trivial());
    assert!(encrypt(key, &[0, 7], 1).iter().all(|x| !x.is_trivial()));
    let batch = wire(key, &[neutral, bare[0].clone()]);
    assert!(batch.is_trivial(0) && batch.is_trivial(1));
    assert_eq!((batch.fingerprint(0), batch.fingerprint(1)), (1, 1));
}

#[test]
fn empty_blinding_pool_is_an_error_and_takes_nothing() {
    let key = KEY.encryption_key();
    let mut pool = BlindingPool::new(key);
    pool.refill(5, &mut rng(3), Threads::new(2));
    let ms = plaintexts(key, &[1, 2, 3]);
    let x = key.encrypt_from_pool(&ms, &mut pool, Threads::ONE).unwrap();
    assert_eq!(decrypt(&KEY, &x), [1, 2, 3]);
    let dry = key.encrypt_from_pool(&ms, &mut pool, Threads::ONE).unwrap_err();
    assert_eq!(dry, Error::PoolEmpty { wanted: 3, available: 2 });
    assert_eq!(pool.len(), 2, "a failed call takes nothing");
}

#[test]
fn rerandomized_ciphertexts_differ_and_decrypt_to_the_same() {
    let key = KEY.encryption_key();
    let old = encrypt(key, &[7, -7, 0], 4);
    let mut new = old.clone();
    key.rerandomize(&mut new, &mut rng(8), Threads::ONE).unwrap();
    assert!(old.iter().zip(&new).all(|(a, b)| a != b));
    assert_eq!(decrypt(&KEY, &new), [7, -7, 0]);
}

#[test]
fn textbook_ciphertexts_decrypt() {
    let key = KEY.encryption_key();
    let m = Plaintext::new(key, -12_345).unwrap();
    let x = hazmat::encrypt_with_nonce(key, &m, &[3, 141, 59]).unwrap();
    assert_eq!(KEY.decrypt(&x, &mut rng(9)).unwrap().to_i64(), Some(-12_345));
    // the textbook formula (1 + m n) r^n mod n^2
    let n = num_bigint::BigUint::from_bytes_be(&key.modulus_be_bytes());
    let n_squared = &n * &n;
    let r = num_bigint::BigUint::from_bytes_be(&[3, 141, 59]);
    let expected = (1u32 + (&n - 12_345u32) * &n) * r.modpow(&n, &n_squared) % &n_squared;
    let integer = key.to_integers(&[x], Threads::ONE).unwrap();
    assert_eq!(num_bigint::BigUint::from_bytes_be(&integer[0]), expected);
}

#[test]
fn textbook_noise_decrypts_and_is_fresh() {
    let [p, q] = hazmat::factors(&KEY);
    let secret = hazmat::decryption_key(&p, &q, NoiseMode::Textbook).unwrap();
    let key = secret.encryption_key();
    assert_ne!(key.id(), KEY.encryption_key().id());
    assert_eq!(key.prepare(), 0);
    let values: Vec<i128> = (0..11).map(|i| i * i * i - 99).collect();
    let one = encrypt(key, &values, 5);
    assert_eq!(decrypt(&secret, &one), values);
    let other = encrypt(key, &values, 6);
    assert!(one.iter().zip(&other).all(|(a, b)| a != b && !a.is_trivial()));
    let in_threads = key.encrypt_all(&plaintexts(key, &values), &mut rng(5), Threads::new(3)).unwrap();
    assert_eq!(in_threads, one);
    // Noise is an n-th power: multiplied by the totient and reduced modulo n^2, an encryption of 0 is 1.
    let zero = key.to_integers(&encrypt(key, &[0], 7), Threads::ONE).unwrap();
    let [p, q] = [&p, &q].map(|x| num_bigint::BigUint::from_bytes_be(x));
    let n = &p * &q;
    let zero = num_bigint::BigUint::from_bytes_be(&zero[0]);
    assert_eq!(zero.modpow(&((p - 1u32) * (q - 1u32)), &(&n * &n)), 1u32.into());
    let reread = hazmat::read_public_key(&key.to_bytes()).unwrap();
    assert_eq!((reread.mode(), &reread), (NoiseMode::Textbook, key));
}

#[test]
fn products_with_large_integers_decrypt_to_products() {
    let key = KEY.encryption_key();
    let n = num_bigint::BigInt::from_bytes_be(num_bigint::Sign::Plus, &key.modulus_be_bytes());
    let values: Vec<i128> = vec![1, -1, 7, -12_345, 0, 1 << 100, 3];
    let mut factors: Vec<num_bigint::BigInt> =
        [1i64, 0, -3, 1 << 62].into_iter().map(num_bigint::BigInt::from).collect();
    factors.extend([&n / 2u32, -(&n / 3u32), &n - 1u32]);
    let bytes: Vec<_> = factors.iter().map(num_bigint::BigInt::to_bytes_be).collect();
    let ks: Vec<_> =
        bytes.iter().map(|(sign, bytes)| (*sign == num_bigint::Sign::Minus, &bytes[..])).collect();
    let products = key.mul_vartime(&encrypt(key, &values, 1), &ks, Threads::new(2)).unwrap();
    let products = KEY.decrypt_all(&products, &mut rng(9), Threads::ONE).unwrap();
    for ((product, value), factor) in products.iter().zip(&values).zip(&factors) {
        let residue = num_bigint::BigInt::from_bytes_be(num_bigint::Sign::Plus, &product.to_residue_bytes());
        assert_eq!(residue, ((value * factor) % &n + &n) % &n, "{value} * {factor}");
    }
    let long = vec![1; key.modulus_bytes() + 1];
    let refused = key.mul_vartime(&encrypt(key, &[1], 1), &[(false, &long)], Threads::ONE);
    assert_eq!(refused.unwrap_err(), Error::PlaintextRange);
    let refused = key.mul_vartime(&encrypt(key, &[1], 1), &[], Threads::ONE);
    assert_eq!(refused.unwrap_err(), Error::Length { expected: 1, found: 0 });
}

#[test]
fn negated_ciphertexts_decrypt_to_negated_plaintexts() {
    let key = KEY.encryption_key();
    let values: Vec<i128> = (-9..9).collect();
    let negated = key.negate_vartime(&encrypt(key, &values, 1), Threads::new(3)).unwrap();
    assert_eq!(decrypt(&KEY, &negated), values.iter().map(|v| -v).collect::<Vec<_>>());
}

#[test]
fn a_search_for_primes_can_be_cancelled() {
    let calls = std::sync::atomic::AtomicU32::new(0);
    let cancelled = DecryptionKey::generate_with_progress(
        dphe_paillier::KeyBits::B4096,
        NoiseMode::Secure,
        &mut rng(1),
        Threads::new(2),
        &|_| {
            let before = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if before < 3 { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) }
        },
    );
    assert_eq!(cancelled.unwrap_err(), Error::Cancelled);
    // Each thread asks at most once more.
    assert!(calls.into_inner() <= 8);
}

#[test]
fn pools_take_blindings_of_their_key_only() {
    let mut pool = BlindingPool::new(KEY.encryption_key());
    pool.put(KEY.encryption_key().blindings(3, &mut rng(1), Threads::ONE)).unwrap();
    let foreign = FAST.encryption_key().blindings(1, &mut rng(1), Threads::ONE);
    assert_eq!(pool.put(foreign).unwrap_err(), Error::KeyMismatch);
    assert_eq!(pool.len(), 3);
}
