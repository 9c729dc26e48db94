//! The kernels against each other and against a naive big-integer reference.

use core::ops::ControlFlow;

use num_bigint::BigUint;

use super::backend::{BACKEND_VARIABLE, Backend};
use super::lanes::Lanes;
use super::modulus::Modulus;
use super::nat::{self, Nat};
use super::units::{
    Buffer, Canonical, Counted, Group, Loose, Mod, ModSquared, Mont, Number, Plain, Public, Value, WideGroup,
};

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

/// A group of pairs whose powers of `R` the test keeps count of.
type Pairs = Group<ModSquared<Public>, Counted, Loose, Lanes>;

/// Reads any digits as one integer.
fn number<L, R, F, S>(modulus: &Modulus<Public>, x: &Value<L, R, F, S, impl Buffer>) -> BigUint {
    let limbs = nat::from_digits(x.digits(), modulus.backend().digit_bits(), modulus.limbs() + 2);
    BigUint::from_bytes_le(&limbs.iter().flat_map(|l| l.to_le_bytes()).collect::<Vec<_>>())
}

/// Reads a canonical pair, checking that it is one.
fn pair<F>(modulus: &Modulus<Public>, x: &Number<ModSquared<Public>, F, Canonical, Lanes>) -> BigUint {
    let n = BigUint::from_bytes_be(&nat::to_be_bytes(modulus.nat(), modulus.bits().div_ceil(8) as usize));
    let [low, high] = x.view().halves().map(|half| number(modulus, &half));
    assert!(low < n && high < n, "{}: not canonical", modulus.backend());
    low + high * n
}

/// The first `count` pairs of a loose group.
fn pairs(modulus: &Modulus<Public>, group: &mut Pairs, count: usize) -> Vec<BigUint> {
    let canonical = modulus.canonical(group, &mut modulus.scratch());
    modulus.take_apart(&canonical, count).iter().map(|x| pair(modulus, x)).collect()
}

/// The first `count` residues of a loose group.
fn residues<F>(
    modulus: &Modulus<Public>,
    group: &mut Group<Mod<Public>, F, Loose, Lanes>,
    count: usize,
) -> Vec<BigUint> {
    let canonical = modulus.canonical(group, &mut modulus.scratch());
    let all: Vec<Number<_, _, _, Lanes>> = modulus.take_apart(&canonical, count);
    all.iter().map(|x| number(modulus, x)).collect()
}

/// A group of pairs.
fn group(modulus: &Modulus<Public>, values: &[BigUint]) -> Pairs {
    let values: Vec<_> = values.iter().map(|x| modulus.pair(&to_nat(x)).counted()).collect();
    let mut group = modulus.pairs();
    modulus.gather(&mut group, &values.iter().map(Value::view).collect::<Vec<_>>(), modulus.one().counted());
    group
}

/// A group of double-length numbers.
fn wide(modulus: &Modulus<Public>, values: &[BigUint]) -> WideGroup<Mod<Public>, Plain, Lanes> {
    let mut group = modulus.wide();
    for (lane, x) in values.iter().enumerate() {
        let digits = nat::to_digits(&x.to_u64_digits(), modulus.backend().digit_bits(), modulus.pair_words());
        for (row, &digit) in group.digits_mut().chunks_exact_mut(modulus.lanes()).zip(digits.iter()) {
            row[lane] = digit;
        }
    }
    group
}

/// Checks products, squares and both reductions of all lanes for one modulus.
fn check_modulus(n: &BigUint, backend: Backend, operands: &[(BigUint, BigUint)]) {
    let modulus = &Modulus::<Public>::new(&to_nat(n), backend);
    let n_squared = n * n;
    let mut scratch = modulus.scratch();
    let r = BigUint::from(1u8) << (backend.digit_bits() * backend.digits(modulus.bits()) as u32);
    for chunk in operands.chunks(modulus.lanes()) {
        let count = chunk.len();
        let (xs, ys): (Vec<_>, Vec<_>) = chunk.iter().cloned().unzip();
        let (x, y) = (group(modulus, &xs), group(modulus, &ys));
        let mut z = modulus.pairs();

        modulus.mul(&mut z, &x, &y, &mut scratch);
        for (z, (x, y)) in pairs(modulus, &mut z, count).iter().zip(chunk) {
            assert_eq!(z * &r % &n_squared, x * y % &n_squared, "{backend}: {x} * {y} mod {n}^2");
        }
        modulus.square(&mut z, &x, &mut scratch);
        // loose operands must do as well as canonical ones
        let mut w = modulus.pairs();
        modulus.mul(&mut w, &z, &z, &mut scratch);
        let squares = pairs(modulus, &mut z, count);
        for ((z, w), (x, _)) in squares.iter().zip(pairs(modulus, &mut w, count)).zip(chunk) {
            assert_eq!(z * &r % &n_squared, x * x % &n_squared, "{backend}: {x}^2 mod {n}^2");
            assert_eq!(w * &r % &n_squared, z * z % &n_squared, "{backend}: loose {x}");
        }

        // times a residue; the factor is loose
        let ([x0, x1], [y0, y1]) = (x.view().halves(), y.view().halves());
        modulus.square(&mut w, &x, &mut scratch);
        modulus.scale(&mut z, &w, &y0, &mut scratch);
        for (z, (x, y)) in pairs(modulus, &mut z, count).iter().zip(chunk) {
            let expected = x * x * (y % n) % &n_squared;
            assert_eq!(z * &r * &r % &n_squared, expected, "{backend}: {x}^2 * ({y} mod {n})");
        }

        let mut z = modulus.residues();
        modulus.mul(&mut z, &x0, &y1, &mut scratch);
        for (z, (x, y)) in residues(modulus, &mut z, count).iter().zip(chunk) {
            assert!(z < n);
            assert_eq!(z * &r % n, (x % n) * (y / n % n) % n, "{backend}: mod {n}");
        }
        modulus.square(&mut z, &x1, &mut scratch);
        for (z, (x, _)) in residues(modulus, &mut z, count).iter().zip(chunk) {
            assert_eq!(z * &r % n, (x / n % n).modpow(&BigUint::from(2u8), n), "{backend}: square");
        }

        // (t0 + t1 n) / R for operands twice as long as the modulus
        let (mut t0, mut t1) = (wide(modulus, &xs), wide(modulus, &ys));
        let mut z = modulus.residues();
        modulus.reduce_wide(&mut z, &t0, &mut scratch);
        for (z, (x, _)) in residues(modulus, &mut z, count).iter().zip(chunk) {
            assert_eq!(z * &r % n, x % n, "{backend}: reduction to a residue");
        }
        // sums of residues that are reduced only once
        let mut sum = modulus.wide();
        (0..300).for_each(|_| modulus.add_wide(&mut sum, &x0.claim_form::<Plain>()));
        modulus.reduce_wide(&mut z, &sum, &mut scratch);
        for (z, (x, _)) in residues(modulus, &mut z, count).iter().zip(chunk) {
            assert_eq!(z * &r % n, x * 300u32 % n, "{backend}: reduction of a sum");
        }
        let mut z = modulus.pairs();
        modulus.reduce_pair(&mut z, &mut t0, &mut t1, &mut scratch);
        for (z, (x, y)) in pairs(modulus, &mut z.counted(), count).iter().zip(chunk) {
            assert_eq!(z * &r % &n_squared, (x + y * n) % &n_squared, "{backend}: reduction");
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
        let moduli: Vec<Modulus<Public>> = backends.iter().map(|&b| Modulus::new(&to_nat(&n), b)).collect();
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
    modulus: &Modulus<Public>,
    n: &BigUint,
    operands: &[(BigUint, BigUint)],
    expected: &[BigUint],
) -> u64 {
    let mut scratch = modulus.scratch();
    let mut checked = 0;
    for (operands, expected) in operands.chunks(modulus.lanes()).zip(expected.chunks(modulus.lanes())) {
        let (xs, ys): (Vec<_>, Vec<_>) = operands.iter().cloned().unzip();
        let (x, y) = (group(modulus, &xs), group(modulus, &ys));
        let (mut z, mut t) = (modulus.pairs(), modulus.pairs());
        // (x y / R) R^2 / R = x y
        modulus.mul(&mut t, &x, &y, &mut scratch);
        modulus.mul(&mut z, &t, &modulus.r_squared().counted(), &mut scratch);
        for ((z, expected), (x, y)) in
            pairs(modulus, &mut z, operands.len()).iter().zip(expected).zip(operands)
        {
            assert_eq!(z, expected, "{}: {x} * {y} mod {n}^2", modulus.backend());
        }
        // a squaring is a multiplication by itself
        modulus.mul(&mut t, &x, &x, &mut scratch);
        modulus.square(&mut z, &x, &mut scratch);
        let square = modulus.canonical(&mut z, &mut scratch);
        let same = modulus.canonical(&mut t, &mut scratch) == square;
        assert!(same, "{}: squares mod {n}^2", modulus.backend());
        checked += 2 * operands.len() as u64;
    }
    checked
}

#[test]
fn every_lane_fetches_its_own_entry() {
    // a prime: every base is a unit
    let n = (BigUint::from(1u8) << 300u32) - 153u8;
    for backend in backends() {
        let modulus = Modulus::<Public>::new(&to_nat(&n), backend);
        let mut random = Random(99);
        let base = modulus.pair(&to_nat(&random.below(&(&n * &n)))).claim_form();
        let table = super::fixed_base::FixedBase::new(&modulus, &base, 64);
        let exponents: Vec<nat::Limbs> = [0u64, 1, 2, 127, 128, u64::MAX, 1 << 63, 0x8040_2010_0804_0201]
            .into_iter()
            .chain((0..300).map(|_| random.next()))
            .map(|e| zeroize::Zeroizing::new(vec![e]))
            .collect();
        let mut results: Vec<Number<_, _, _, Lanes>> = exponents.iter().map(|_| modulus.number()).collect();
        let pow = |bits, exponents: &[nat::Limbs], results: &mut [Number<_, _, _, Lanes>]| {
            let mut results: Vec<_> = results.iter_mut().map(Value::view_mut).collect();
            table.pow(&modulus, exponents, bits, &mut results);
        };
        pow(64, &exponents, &mut results);
        // Short exponents need the lower windows only.
        let mut short = vec![modulus.number()];
        pow(8, &exponents[3..4], &mut short);
        assert!(short[0] == results[3], "{backend}: a short exponent");
        for (exponent, result) in exponents.iter().zip(&results) {
            let mut scratch = modulus.scratch();
            let group = modulus.broadcast(&base);
            let mut expected = super::pow::pow_small_vartime(&modulus, &group, &[exponent[0]], &mut scratch);
            let expected = modulus.lane(&modulus.canonical(&mut expected, &mut scratch), 0);
            assert!(*result == expected, "{backend}: exponent {:#x}", exponent[0]);
        }
    }
}

#[test]
fn products_of_powers_agree_with_powers() {
    let n = (BigUint::from(1u8) << 256u32) - 189u8;
    let n_squared = &n * &n;
    for backend in backends() {
        let modulus = Modulus::<Public>::new(&to_nat(&n), backend);
        let r = BigUint::from(1u8) << (backend.digit_bits() * backend.digits(modulus.bits()) as u32);
        let in_mont = |x: &BigUint| modulus.pair(&to_nat(&(x * &r % &n_squared))).claim_form::<Mont>();
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
            let digits: Vec<_> = bases.iter().map(in_mont).collect();
            let sources: Vec<_> = digits.iter().map(|d| d.view().loose()).collect();
            let product = super::multi_pow::multi_pow_vartime(&modulus, &sources, &exponents, bits);
            let expected = bases.iter().zip(&exponents).fold(BigUint::from(1u8), |p, (b, &e)| {
                p * b.modpow(&BigUint::from(e), &n_squared) % &n_squared
            });
            assert!(product == in_mont(&expected), "{backend}: {count} bases");
        }
    }
}

/// Entering and leaving Montgomery form changes nothing, and one is one in both forms.
#[test]
fn enter_and_leave_are_inverse() {
    let n = (BigUint::from(1u8) << 200u32) - 75u8;
    let mut random = Random(11);
    for backend in backends() {
        let modulus = Modulus::<Public>::new(&to_nat(&n), backend);
        let mut scratch = modulus.scratch();
        let (mut mont, mut plain) = (modulus.pairs(), modulus.pairs());
        modulus.enter(&mut mont, &modulus.broadcast(&modulus.plain_one()), &mut scratch);
        assert!(modulus.lane(&modulus.canonical(&mut mont, &mut scratch), 0) == modulus.one(), "{backend}");
        for _ in 0..20 {
            let x = modulus.pair(&to_nat(&random.below(&(&n * &n))));
            modulus.enter(&mut mont, &modulus.broadcast(&x), &mut scratch);
            modulus.leave(&mut plain, &mont, &mut scratch);
            assert!(modulus.lane(&modulus.canonical(&mut plain, &mut scratch), 0) == x, "{backend}");
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
        let (p, q) =
            super::prime::two_safe_primes(96, &[7; 32], backend, 2, &|_| ControlFlow::Continue(())).unwrap();
        for prime in [&p, &q] {
            assert_eq!(prime.bits(), 96);
            let prime = BigUint::from_bytes_be(&nat::to_be_bytes(prime, 12));
            assert!(passes(&prime) && passes(&(&prime >> 1u32)), "{backend}: {prime}");
        }
        assert_ne!(nat::to_be_bytes(&p, 12), nat::to_be_bytes(&q, 12));
        assert_eq!(nat::mul(&p, &q).bits(), 192);
    }
}

/// Between multiplications, the vector kernels let both halves of a pair grow to `2N`, and a residue that is
/// squared to `4N`. This tests the ends of these ranges for moduli that leave exactly four spare bits.
#[test]
fn loose_operands_at_the_ends_of_their_range() {
    let one = BigUint::from(1u8);
    for backend in backends().filter(|&backend| backend != Backend::Portable) {
        let sizes: &[u32] =
            if backend == Backend::Avx2 { &[136, 276, 1536, 3072, 3496] } else { &[516, 1036, 2076, 3072] };
        for n in sizes.iter().flat_map(|&bits| [(&one << bits) - &one, (&one << (bits - 1)) + &one]) {
            let modulus = &Modulus::<Public>::new(&to_nat(&n), backend);
            let n_squared = &n * &n;
            let r = &one << (backend.digit_bits() * modulus.residue_words() as u32);
            let mut scratch = modulus.scratch();
            let digits = |x: &BigUint| modulus.residue_of_limbs(&x.to_u64_digits()).counted().loose();
            let ends = [&n * 2u8 - &one, &n * 2u8 - 2u8, &n + &one, n.clone(), &n - &one, BigUint::ZERO];
            for (x0, x1) in ends.iter().flat_map(|x0| ends.iter().map(move |x1| (x0, x1))) {
                let group = |x0: &BigUint, x1: &BigUint| {
                    let halves = [digits(x0).digits(), digits(x1).digits()].concat();
                    modulus.broadcast(&Number::<ModSquared<Public>, Counted, Loose, _>::claim(halves))
                };
                let (x, y) = (group(x0, x1), group(&ends[0], x0));
                let (x_value, y_value) = (x0 + x1 * &n, &ends[0] + x0 * &n);
                for (other, other_value) in [(Some(&y), &y_value), (None, &x_value)] {
                    let mut z = modulus.pairs();
                    match other {
                        Some(y) => modulus.mul(&mut z, &x, y, &mut scratch),
                        None => modulus.square(&mut z, &x, &mut scratch),
                    }
                    let loose = modulus.lane(&z, 0);
                    assert!(loose.view().halves().iter().all(|half| number(modulus, half) < &n * 2u8));
                    let product = pairs(modulus, &mut z, 1).remove(0) * &r % &n_squared;
                    assert_eq!(product, &x_value * other_value % &n_squared, "{backend}: mod {n}^2");
                }
            }
            for x in [&n * 4u8 - &one, &n * 4u8 - 2u8, &n * 3u8] {
                let mut z = modulus.residues();
                modulus.square(&mut z, &modulus.broadcast(&digits(&x)), &mut scratch);
                let z = number(modulus, &modulus.lane(&z, 0));
                assert!(z < &n * 2u8, "{backend}: loose");
                assert_eq!(z * &r % &n, &x * &x % &n, "{backend}: square mod {n}");
            }
        }
    }
}
