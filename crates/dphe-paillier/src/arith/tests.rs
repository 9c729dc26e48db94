//! The kernels against each other and against a naive big-integer reference.

use num_bigint::BigUint;

use super::backend::Backend;
use super::modulus::Modulus;
use super::nat::{self, Nat};

/// Every back end that runs here, and the emulated kernel.
fn backends() -> impl Iterator<Item = Backend> {
    Backend::all().chain([Backend::Emulated]).filter(|backend| backend.available())
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
    nat::from_be_bytes(&x.to_bytes_be())
}

/// Operands where carries and comparisons go wrong: the ends, all-ones digits of each radix, sparse ones.
fn edges(n: &BigUint, random: &mut Random) -> Vec<BigUint> {
    let one = BigUint::from(1u8);
    let mut edges = vec![BigUint::ZERO, one.clone(), n - &one, n - 2u8, n >> 1, (n >> 1) + &one];
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

        let half = x.len() / 2;
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
