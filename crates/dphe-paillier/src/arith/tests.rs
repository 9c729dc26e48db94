//! The kernels against each other and against a naive big-integer reference.

use num_bigint::BigUint;

use super::backend::{BACKEND_VARIABLE, Backend};
use super::modulus::Modulus;
use super::nat::{self, Nat};

/// Every back end that runs here, and the emulated kernel; or only the one named by [`BACKEND_VARIABLE`].
fn backends() -> impl Iterator<Item = Backend> {
    let wanted = std::env::var(BACKEND_VARIABLE).ok();
    let all = Backend::all().chain([Backend::Emulated]).filter(|backend| backend.available());
    let chosen: Vec<_> =
        all.filter(|backend| wanted.as_deref().is_none_or(|name| name == backend.name())).collect();
    assert!(!chosen.is_empty(), "{wanted:?} names no back end that runs here");
    chosen.into_iter()
}

/// xorshift: reproducible operands, nothing secret about them.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn bits(&mut self, bits: u32) -> BigUint {
        let limbs: Vec<u32> = (0..bits.div_ceil(32)).map(|_| self.next() as u32).collect();
        BigUint::new(limbs) >> (bits.div_ceil(32) * 32 - bits)
    }
    fn below(&mut self, n: &BigUint) -> BigUint {
        self.bits(n.bits() as u32 + 64) % n
    }
}

fn to_nat(x: &BigUint) -> Nat {
    nat::from_be_bytes(&x.to_bytes_be(), usize::MAX).unwrap()
}

/// Operands where carries and comparisons go wrong: the ends, all-ones digits of each radix, sparse ones.
fn edges(n: &BigUint, random: &mut Random) -> Vec<BigUint> {
    let one = BigUint::from(1u8);
    let mut edges = vec![BigUint::ZERO, one.clone(), n - &one, n - 2u8, n >> 1, (n >> 1) + &one];
    // n is a square: its root, and both neighbours
    let root = n.sqrt();
    edges.extend([&root - &one, root.clone(), &root + &one, n - &root]);
    let ones = |bits: u64| (&one << bits) - &one;
    for bits in [28, 52, 56, 64, 104, 128, n.bits() / 2, n.bits() - 1] {
        edges.push(ones(bits) % n);
        edges.push((n - (ones(bits) % n)) % n);
        edges.push((&one << bits) % n);
    }
    for bits in [28u64, 52, 64] {
        // alternating all-ones and zero digits
        let digit = ones(bits);
        let step = (0..n.bits() / (2 * bits)).fold(BigUint::ZERO, |x, i| x + (&digit << (2 * bits * i)));
        edges.push(&step % n);
        edges.push((step << bits) % n);
    }
    edges.extend((0..8).map(|_| random.below(n)));
    edges
}

/// Checks products, squares and both reductions of all lanes for one modulus.
fn check_modulus(n: &BigUint, backend: Backend, operands: &[(BigUint, BigUint)]) {
    let modulus = Modulus::new(&to_nat(n), backend);
    let n_squared = n * n;
    let mut scratch = modulus.scratch();
    let r = BigUint::from(1u8) << (backend.digit_bits() * backend.digits(modulus.bits()) as u32);
    for chunk in operands.chunks(modulus.lanes()) {
        let digits = |x: &BigUint| modulus.pair_digits(&to_nat(x));
        let (xs, ys): (Vec<_>, Vec<_>) = chunk.iter().map(|(x, y)| (digits(x), digits(y))).unzip();
        let gather = |values: &[super::lanes::Lanes]| {
            let mut group = modulus.pairs();
            modulus.gather(&mut group, &values.iter().map(|v| &**v).collect::<Vec<_>>(), modulus.one());
            group
        };
        let (x, y) = (gather(&xs), gather(&ys));
        let mut z = modulus.pairs();
        let read = |group: &[u64], rows: usize| -> Vec<Vec<u64>> {
            let mut out = vec![vec![0; rows]; chunk.len()];
            modulus.scatter(&mut out.iter_mut().map(|v| &mut v[..]).collect::<Vec<_>>(), group);
            out
        };
        let number = |digits: &[u64]| {
            BigUint::from_bytes_le(
                &modulus.limbs_of(digits).iter().flat_map(|l| l.to_le_bytes()).collect::<Vec<_>>(),
            )
        };
        let pair = |digits: &[u64]| {
            let (low, high) = digits.split_at(digits.len() / 2);
            let (low, high) = (number(low), number(high));
            assert!(low < *n && high < *n, "{backend}: not canonical");
            low + high * n
        };

        modulus.mul_pair(&mut z, &x, &y, &mut scratch);
        modulus.canonical_pair(&mut z, &mut scratch);
        for (z, (x, y)) in read(&z, modulus.pair_words()).iter().zip(chunk) {
            assert_eq!(pair(z) * &r % &n_squared, x * y % &n_squared, "{backend}: {x} * {y} mod {n}^2");
        }
        modulus.square_pair(&mut z, &x, &mut scratch);
        // loose operands must do as well as canonical ones
        let mut w = modulus.pairs();
        modulus.mul_pair(&mut w, &z, &z, &mut scratch);
        modulus.canonical_pair(&mut w, &mut scratch);
        modulus.canonical_pair(&mut z, &mut scratch);
        let squares = read(&z, modulus.pair_words());
        for ((z, w), (x, _)) in squares.iter().zip(read(&w, modulus.pair_words())).zip(chunk) {
            assert_eq!(pair(z) * &r % &n_squared, x * x % &n_squared, "{backend}: {x}^2 mod {n}^2");
            assert_eq!(pair(&w) * &r % &n_squared, pair(z) * pair(z) % &n_squared, "{backend}: loose {x}");
        }

        // times a residue; the factor is loose
        let half = x.len() / 2;
        modulus.square_pair(&mut w, &x, &mut scratch);
        modulus.scale_pair(&mut z, &w, &y[..half], &mut scratch);
        modulus.canonical_pair(&mut z, &mut scratch);
        for (z, (x, y)) in read(&z, modulus.pair_words()).iter().zip(chunk) {
            let expected = x * x * (y % n) % &n_squared;
            assert_eq!(pair(z) * &r * &r % &n_squared, expected, "{backend}: {x}^2 * ({y} mod {n})");
        }

        let mut z = modulus.residues();
        modulus.mul(&mut z, &x[..half], &y[half..], &mut scratch);
        modulus.canonical(&mut z, &mut scratch);
        for (z, (x, y)) in read(&z, modulus.residue_words()).iter().zip(chunk) {
            assert!(number(z) < *n);
            assert_eq!(number(z) * &r % n, (x % n) * (y / n % n) % n, "{backend}: mod {n}");
        }
        modulus.square(&mut z, &x[half..], &mut scratch);
        modulus.canonical(&mut z, &mut scratch);
        for (z, (x, _)) in read(&z, modulus.residue_words()).iter().zip(chunk) {
            assert_eq!(number(z) * &r % n, (x / n % n).modpow(&BigUint::from(2u8), n), "{backend}: square");
        }

        // (t0 + t1 n) / R for operands twice as long as the modulus
        let wide = |f: &dyn Fn(&(BigUint, BigUint)) -> BigUint| {
            let all: Vec<_> = chunk
                .iter()
                .map(|c| {
                    let limbs: Vec<u64> = f(c).to_u64_digits();
                    modulus.digits_of(&limbs, modulus.pair_words())
                })
                .collect();
            gather(&all)
        };
        let (mut t0, mut t1) = (wide(&|c| c.0.clone()), wide(&|c| c.1.clone()));
        let mut z = modulus.residues();
        modulus.reduce_wide(&mut z, &t0, &mut scratch);
        modulus.canonical(&mut z, &mut scratch);
        for (z, (x, _)) in read(&z, modulus.residue_words()).iter().zip(chunk) {
            assert_eq!(number(z) * &r % n, x % n, "{backend}: reduction to a residue");
        }
        // sums of residues that are reduced only once
        let mut sum = wide(&|_| BigUint::ZERO);
        (0..300).for_each(|_| modulus.add_wide(&mut sum, &x[..half]));
        modulus.reduce_wide(&mut z, &sum, &mut scratch);
        modulus.canonical(&mut z, &mut scratch);
        for (z, (x, _)) in read(&z, modulus.residue_words()).iter().zip(chunk) {
            assert_eq!(number(z) * &r % n, x * 300u32 % n, "{backend}: reduction of a sum");
        }
        let mut z = modulus.pairs();
        modulus.reduce_pair(&mut z, &mut t0, &mut t1, &mut scratch);
        modulus.canonical_pair(&mut z, &mut scratch);
        for (z, (x, y)) in read(&z, modulus.pair_words()).iter().zip(chunk) {
            assert_eq!(pair(z) * &r % &n_squared, (x + y * n) % &n_squared, "{backend}: reduction");
        }
    }
}

#[test]
fn kernels_agree_with_the_reference_on_edge_operands() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let one = BigUint::from(1u8);
    for bits in [64u32, 127, 256, 512, 1024, 1536, 2048] {
        let mut moduli = vec![(&one << bits) - &one, (&one << (bits - 1)) + &one];
        moduli.push(random.bits(bits) | &one | (&one << (bits - 1)));
        for n in moduli {
            let n_squared = &n * &n;
            let edges = edges(&n_squared, &mut random);
            let operands: Vec<_> =
                edges.iter().flat_map(|x| edges.iter().map(|y| (x.clone(), y.clone()))).collect();
            let step = if bits > 1024 { 7 } else { 1 };
            let operands: Vec<_> = operands.into_iter().step_by(step).collect();
            for backend in backends() {
                check_modulus(&n, backend, &operands);
            }
        }
    }
}

#[test]
fn kernels_agree_with_the_reference_on_random_operands() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let one = BigUint::from(1u8);
    for bits in [160u32, 512, 1024, 1536, 2048, 3072] {
        let n = random.bits(bits) | &one | (&one << (bits - 1));
        let n_squared = &n * &n;
        let operands: Vec<_> =
            (0..160).map(|_| (random.below(&n_squared), random.below(&n_squared))).collect();
        for backend in backends() {
            check_modulus(&n, backend, &operands);
        }
    }
}

/// A number whose digits are each zero, all ones, one, top bit only, or random: carries run far.
fn patterned(bits: u32, random: &mut Random) -> BigUint {
    let limbs: Vec<u32> = (0..bits.div_ceil(32))
        .map(|_| match random.next() % 6 {
            0 => 0,
            1 | 2 => u32::MAX,
            3 => 1,
            4 => 1 << 31,
            _ => random.next() as u32,
        })
        .collect();
    BigUint::new(limbs) >> (bits.div_ceil(32) * 32 - bits)
}

/// Products of many operands, all back ends against the reference: a million in an everyday run,
/// `DPHE_KERNEL_CASES` in a long one.
#[test]
fn kernels_agree_over_many_cases() {
    let cases = std::env::var("DPHE_KERNEL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000u64);
    let mut random = Random(0xfeed_5eed_1234_0001);
    let backends: Vec<Backend> = backends().collect();
    let mut done = 0;
    while done < cases {
        let bits = [128u32, 192, 260, 333, 512][(random.next() % 5) as usize];
        let n = patterned(bits, &mut random) | BigUint::from(1u8) | (BigUint::from(1u8) << (bits - 1));
        let n_squared = &n * &n;
        let moduli: Vec<Modulus> = backends.iter().map(|&b| Modulus::new(&to_nat(&n), b)).collect();
        for _ in 0..64 {
            let operands: Vec<(BigUint, BigUint)> = (0..8)
                .map(|_| {
                    let mut one = || patterned(2 * bits, &mut random) % &n_squared;
                    (one(), one())
                })
                .collect();
            let expected: Vec<BigUint> = operands.iter().map(|(x, y)| x * y % &n_squared).collect();
            for modulus in &moduli {
                done += check_products(modulus, &n, &operands, &expected);
            }
        }
    }
    println!("{done} products checked on {backends:?}");
}

/// Checks `x y` and `x^2` for eight pairs of operands; returns how many products that were.
fn check_products(
    modulus: &Modulus,
    n: &BigUint,
    operands: &[(BigUint, BigUint)],
    expected: &[BigUint],
) -> u64 {
    let mut scratch = modulus.scratch();
    let digits = |x: &BigUint| {
        let (high, low) = (x / n, x % n);
        let mut pair = modulus.digits_of(&low.to_u64_digits(), modulus.residue_words()).to_vec();
        pair.extend_from_slice(&modulus.digits_of(&high.to_u64_digits(), modulus.residue_words()));
        pair
    };
    let mut checked = 0;
    for (operands, expected) in operands.chunks(modulus.lanes()).zip(expected.chunks(modulus.lanes())) {
        let (xs, ys): (Vec<_>, Vec<_>) = operands.iter().map(|(x, y)| (digits(x), digits(y))).unzip();
        let (mut x, mut y) = (modulus.pairs(), modulus.pairs());
        modulus.gather(&mut x, &xs.iter().map(|v| &v[..]).collect::<Vec<_>>(), modulus.one());
        modulus.gather(&mut y, &ys.iter().map(|v| &v[..]).collect::<Vec<_>>(), modulus.one());
        let r_squared = modulus.broadcast(modulus.r_squared());
        let (mut z, mut t) = (modulus.pairs(), modulus.pairs());
        // (x y / R) R^2 / R = x y
        modulus.mul_pair(&mut t, &x, &y, &mut scratch);
        modulus.mul_pair(&mut z, &t, &r_squared, &mut scratch);
        modulus.canonical_pair(&mut z, &mut scratch);
        let mut out = vec![vec![0; modulus.pair_words()]; operands.len()];
        modulus.scatter(&mut out.iter_mut().map(|v| &mut v[..]).collect::<Vec<_>>(), &z);
        for ((out, expected), (x, y)) in out.iter().zip(expected).zip(operands) {
            assert_eq!(out, &digits(expected), "{}: {x} * {y} mod {n}^2", modulus.backend());
        }
        // a squaring is a multiplication by itself
        modulus.mul_pair(&mut t, &x, &x, &mut scratch);
        modulus.square_pair(&mut z, &x, &mut scratch);
        modulus.canonical_pair(&mut t, &mut scratch);
        modulus.canonical_pair(&mut z, &mut scratch);
        assert_eq!(&t[..], &z[..], "{}: squares mod {n}^2", modulus.backend());
        checked += 2 * operands.len() as u64;
    }
    checked
}

#[test]
fn every_lane_fetches_its_own_entry() {
    // a prime: every base is a unit
    let n = (BigUint::from(1u8) << 300u32) - 153u8;
    for backend in backends() {
        let modulus = Modulus::new(&to_nat(&n), backend);
        let mut random = Random(99);
        let base = modulus.pair_digits(&to_nat(&random.below(&(&n * &n))));
        let table = super::fixed_base::FixedBase::new(&modulus, &base, 64);
        let exponents: Vec<nat::Limbs> = [0u64, 1, 2, 127, 128, u64::MAX, 1 << 63, 0x8040_2010_0804_0201]
            .into_iter()
            .chain((0..300).map(|_| random.next()))
            .map(|e| zeroize::Zeroizing::new(vec![e]))
            .collect();
        let mut results = vec![vec![0; modulus.pair_words()]; exponents.len()];
        table.pow(&modulus, &exponents, &mut results.iter_mut().map(|r| &mut r[..]).collect::<Vec<_>>());
        for (exponent, result) in exponents.iter().zip(&results) {
            let mut scratch = modulus.scratch();
            let group = modulus.broadcast(&base);
            let mut expected = super::pow::pow_small_vartime(&modulus, &group, &[exponent[0]], &mut scratch);
            modulus.canonical_pair(&mut expected, &mut scratch);
            let mut one = vec![0; modulus.pair_words()];
            modulus.scatter(&mut [&mut one], &expected);
            assert_eq!(result, &one, "{backend}: exponent {:#x}", exponent[0]);
        }
    }
}

#[test]
fn products_of_powers_agree_with_powers() {
    let n = (BigUint::from(1u8) << 256u32) - 189u8;
    let n_squared = &n * &n;
    for backend in backends() {
        let modulus = Modulus::new(&to_nat(&n), backend);
        let r = BigUint::from(1u8) << (backend.digit_bits() * backend.digits(modulus.bits()) as u32);
        let mut random = Random(5);
        for (count, bits) in
            [(0usize, 64), (1, 64), (3, 64), (17, 64), (31, 32), (33, 32), (300, 64), (5000, 32)]
        {
            let bases: Vec<BigUint> = (0..count).map(|_| random.below(&n_squared)).collect();
            let exponents: Vec<u64> = (0..count)
                .map(|i| match i {
                    0 => u64::MAX >> (64 - bits),
                    1 => 0,
                    _ => random.next() >> (64 - bits),
                })
                .collect();
            // in Montgomery form
            let digits: Vec<_> =
                bases.iter().map(|b| modulus.pair_digits(&to_nat(&(b * &r % &n_squared)))).collect();
            let sources: Vec<&[u64]> = digits.iter().map(|d| &**d).collect();
            let product = super::multi_pow::multi_pow_vartime(&modulus, &sources, &exponents, bits);
            let expected = bases.iter().zip(&exponents).fold(BigUint::from(1u8), |p, (b, &e)| {
                p * b.modpow(&BigUint::from(e), &n_squared) % &n_squared
            });
            let expected = modulus.pair_digits(&to_nat(&(expected * &r % &n_squared)));
            assert_eq!(&product[..], &expected[..], "{backend}: {count} bases");
        }
    }
}

#[test]
fn primes_and_only_primes_pass() {
    use rand_core::SeedableRng;
    let mut rng = chacha20::ChaCha20Rng::seed_from_u64(1);
    let one = BigUint::from(1u8);
    for backend in backends() {
        let mut passes = |n: &BigUint| super::prime::miller_rabin(&to_nat(n), 16, &mut rng, backend);
        assert!(passes(&((&one << 127u32) - &one)));
        assert!(passes(&((&one << 521u32) - &one)));
        assert!(!passes(&((&one << 257u32) - &one)));
        // a Carmichael number and a product of two primes
        assert!(!passes(&BigUint::from(1_590_231_231_043_178_376_951_698_401u128)));
        assert!(!passes(&(((&one << 127u32) - &one) * ((&one << 89u32) - &one))));
        // the kept primes are safe primes of the length asked for, and two different ones
        let (p, q) = super::prime::two_safe_primes(96, &[7; 32], backend, 2, &|_| ());
        for prime in [&p, &q] {
            assert_eq!(prime.bits(), 96);
            let prime = BigUint::from_bytes_be(&nat::to_be_bytes(prime, 12));
            assert!(passes(&prime) && passes(&(&prime >> 1u32)), "{backend}: {prime}");
        }
        assert_ne!(nat::to_be_bytes(&p, 12), nat::to_be_bytes(&q, 12));
        assert_eq!(nat::mul(&p, &q).bits(), 192);
    }
}

/// Between multiplications the vector kernels let both halves of a pair grow to `2N`, and a residue to be
/// squared to `4N`. The ends of those ranges, for moduli that leave exactly the four bits to spare.
#[test]
fn loose_operands_at_their_ends() {
    let one = BigUint::from(1u8);
    for backend in backends().filter(|&backend| backend != Backend::Portable) {
        let sizes: &[u32] =
            if backend == Backend::Avx2 { &[136, 276, 1536, 3072, 3496] } else { &[516, 1036, 2076, 3072] };
        for n in sizes.iter().flat_map(|&bits| [(&one << bits) - &one, (&one << (bits - 1)) + &one]) {
            let modulus = Modulus::new(&to_nat(&n), backend);
            let n_squared = &n * &n;
            let r = &one << (backend.digit_bits() * modulus.residue_words() as u32);
            let mut scratch = modulus.scratch();
            let digits = |x: &BigUint| modulus.digits_of(&x.to_u64_digits(), modulus.residue_words());
            let number = |digits: &[u64]| {
                let limbs = nat::from_digits(digits, backend.digit_bits(), modulus.limbs() + 2);
                BigUint::from_bytes_le(&limbs.iter().flat_map(|l| l.to_le_bytes()).collect::<Vec<_>>())
            };
            let first = |group: &[u64], words: usize| {
                let mut out = vec![0; words];
                modulus.scatter(&mut [&mut out], group);
                out
            };
            let ends = [&n * 2u8 - &one, &n * 2u8 - 2u8, &n + &one, n.clone(), &n - &one, BigUint::ZERO];
            for (x0, x1) in ends.iter().flat_map(|x0| ends.iter().map(move |x1| (x0, x1))) {
                let group = |x0: &BigUint, x1: &BigUint| {
                    let mut pair = digits(x0).to_vec();
                    pair.extend_from_slice(&digits(x1));
                    modulus.broadcast(&pair)
                };
                let (x, y) = (group(x0, x1), group(&ends[0], x0));
                let (x_value, y_value) = (x0 + x1 * &n, &ends[0] + x0 * &n);
                for (other, other_value) in [(Some(&y), &y_value), (None, &x_value)] {
                    let mut z = modulus.pairs();
                    match other {
                        Some(y) => modulus.mul_pair(&mut z, &x, y, &mut scratch),
                        None => modulus.square_pair(&mut z, &x, &mut scratch),
                    }
                    let loose = first(&z, modulus.pair_words());
                    assert!(loose.chunks(modulus.residue_words()).all(|half| number(half) < &n * 2u8));
                    modulus.canonical_pair(&mut z, &mut scratch);
                    let exact = first(&z, modulus.pair_words());
                    let (low, high) = exact.split_at(modulus.residue_words());
                    let (low, high) = (number(low), number(high));
                    assert!(low < n && high < n, "{backend}: canonical");
                    let product = (low + high * &n) * &r % &n_squared;
                    assert_eq!(product, &x_value * other_value % &n_squared, "{backend}: mod {n}^2");
                }
            }
            for x in [&n * 4u8 - &one, &n * 4u8 - 2u8, &n * 3u8] {
                let mut z = modulus.residues();
                modulus.square(&mut z, &modulus.broadcast(&digits(&x)), &mut scratch);
                let z = number(&first(&z, modulus.residue_words()));
                assert!(z < &n * 2u8, "{backend}: loose");
                assert_eq!(z * &r % &n, &x * &x % &n, "{backend}: square mod {n}");
            }
        }
    }
}
