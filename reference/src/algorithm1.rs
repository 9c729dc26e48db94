//! Algorithm 1 of the paper, "Averaging Classifiers Securely with DPHE", as printed. This is not what a deployment
//! runs; see docs/paper-map.md, section 3.
//!
//! The code follows section 2 of the paper. It uses real matrices with all their zeros, so it is only for small D.
//! Numbers in brackets refer to the paper's equations:
//!
//! | here | paper |
//! | --- | --- |
//! | [`decompose`] | `w = K v` (3) |
//! | [`doubly_permute`] | `Phi(K) = phi(n) phi K` (7) |
//! | [`reorder_partially`] | `phi K = phi(n)^T Phi(K)` (8) |
//! | [`permuted_ciphertexts`] | `phi Enc(w) = Y + Enc0 Z` (5), with `Y` and `Z` of (6) |
//! | [`multiply_all`] | `phi Enc(w_sum)` (4), and with `phi = 1` equation (2) |
//! | [`open`] | line 6 |
//!
//! Encryption is Paillier's with `g = n + 1` and nonces chosen by the caller.

use num_bigint::{BigInt, BigUint};

/// A binary matrix in row-major order.
pub type Matrix = Vec<Vec<u8>>;

/// The key pair. `T` in the paper's footnote is `n` here.
#[derive(Clone, Debug)]
pub struct Key {
    /// One factor.
    pub p: BigUint,
    /// The other factor.
    pub q: BigUint,
    /// The modulus `n = p q`.
    pub n: BigUint,
}

impl Key {
    /// Line 1: makes the key of these primes.
    pub fn new(p: BigUint, q: BigUint) -> Self {
        Self { n: &p * &q, p, q }
    }

    /// Returns `n^2`.
    pub fn n_squared(&self) -> BigUint {
        &self.n * &self.n
    }

    /// Encrypts: `Enc(m) = g^m r^n mod n^2`, where `g^m = 1 + m n` because `g = n + 1`.
    pub fn encrypt(&self, m: &BigInt, r: &BigUint) -> BigUint {
        let g_m = BigUint::from(1u8) + self.residue(m) * &self.n;
        g_m * r.modpow(&self.n, &self.n_squared()) % self.n_squared()
    }

    /// Decrypts: `m = L(c^lambda mod n^2) / lambda mod n` with `L(x) = (x - 1) / n`, read as a number in `(-n/2, n/2)`.
    pub fn decrypt(&self, c: &BigUint) -> BigInt {
        let one = BigUint::from(1u8);
        let lambda = (&self.p - &one) * (&self.q - &one);
        let l = (c.modpow(&lambda, &self.n_squared()) - &one) / &self.n;
        let inverse = lambda.modinv(&self.n).expect("primes of equal length: lambda is prime to n");
        let m = l * inverse % &self.n;
        if &m + &m > self.n { BigInt::from(m) - BigInt::from(self.n.clone()) } else { BigInt::from(m) }
    }

    fn residue(&self, m: &BigInt) -> BigUint {
        let n = BigInt::from(self.n.clone());
        let m = ((m % &n) + &n) % &n;
        m.to_biguint().expect("made positive in the line above")
    }
}

/// Returns the permutation matrix that moves row `r` to row `p[r]`.
pub fn permutation_matrix(p: &[u32]) -> Matrix {
    let mut phi = zeros(p.len(), p.len());
    for (r, &to) in p.iter().enumerate() {
        phi[to as usize][r] = 1;
    }
    phi
}

/// Line 3: `w = K v` (3). Column `m` of `K` has its one in row `rows[m]`. `rows` contains all nonzeros of `w` and
/// enough other rows to make `M`: "users can arbitrarily choose one of them".
pub fn decompose(w: &[BigInt], rows: &[u32]) -> (Vec<BigInt>, Matrix) {
    let mut k = zeros(w.len(), rows.len());
    let mut v = Vec::new();
    for (m, &row) in rows.iter().enumerate() {
        k[row as usize][m] = 1;
        v.push(w[row as usize].clone());
    }
    (v, k)
}

/// Line 4: `Phi(K) = phi(n) phi K` (7).
pub fn doubly_permute(phi: &Matrix, phi_n: &Matrix, k: &Matrix) -> Matrix {
    product(phi_n, &product(phi, k))
}

/// Line 5: `phi K = phi(n)^T Phi(K)` (8).
pub fn reorder_partially(phi_n: &Matrix, doubly_permuted: &Matrix) -> Matrix {
    product(&transposed(phi_n), doubly_permuted)
}

/// Line 5: `phi Enc(w) = Y + Enc0 Z` (5), where `Y = phi K Enc(v)` and `Z = 1_D - phi K 1_M` (6).
pub fn permuted_ciphertexts(phi_k: &Matrix, enc_v: &[BigUint], enc0: &BigUint) -> Vec<BigUint> {
    let mut sum = Vec::new();
    for row in phi_k {
        let y: BigUint = row.iter().zip(enc_v).map(|(&bit, c)| BigUint::from(bit) * c).sum();
        let z: u8 = 1 - row.iter().sum::<u8>();
        sum.push(y + enc0 * z);
    }
    sum
}

/// Line 5: computes the element-wise product of all users' vectors (4). Shards arrive "as if they are individual data".
pub fn multiply_all(key: &Key, vectors: &[Vec<BigUint>]) -> Vec<BigUint> {
    let length = vectors.first().map_or(0, Vec::len);
    let product = |d: usize| vectors.iter().fold(BigUint::from(1u8), |all, v| all * &v[d] % key.n_squared());
    (0..length).map(product).collect()
}

/// Line 6: decrypts and reorders, `w_sum = phi^T Dec(phi Enc(w_sum))`.
pub fn open(key: &Key, phi: &Matrix, permuted_sum: &[BigUint]) -> Vec<BigInt> {
    let decrypted: Vec<BigInt> = permuted_sum.iter().map(|c| key.decrypt(c)).collect();
    let row = |row: &Vec<u8>| row.iter().zip(&decrypted).map(|(&bit, m)| BigInt::from(bit) * m).sum();
    transposed(phi).iter().map(row).collect()
}

/// The data that one user, or one of its shards, sends in line 4.
pub struct Sent {
    /// `Enc(v)`, M ciphertexts.
    pub enc_v: Vec<BigUint>,
    /// `Phi(K)`, D rows of M.
    pub doubly_permuted: Matrix,
    /// The user-aggregator permutation matrix, which the aggregator also holds.
    pub phi_n: Matrix,
}

/// Lines 5 and 6: computes the sum of everything that was sent. The average is this sum divided by the number of users,
/// not of shards.
pub fn aggregate(key: &Key, phi: &Matrix, sent: &[Sent], enc0: &BigUint) -> Vec<BigInt> {
    let vectors: Vec<Vec<BigUint>> = sent
        .iter()
        .map(|Sent { enc_v, doubly_permuted, phi_n }| {
            permuted_ciphertexts(&reorder_partially(phi_n, doubly_permuted), enc_v, enc0)
        })
        .collect();
    open(key, phi, &multiply_all(key, &vectors))
}

fn zeros(rows: usize, columns: usize) -> Matrix {
    vec![vec![0; columns]; rows]
}

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let columns = b.first().map_or(0, Vec::len);
    let entry = |row: &Vec<u8>, j: usize| row.iter().zip(b).map(|(&x, b_row)| x * b_row[j]).sum();
    a.iter().map(|row| (0..columns).map(|j| entry(row, j)).collect()).collect()
}

fn transposed(a: &Matrix) -> Matrix {
    let columns = a.first().map_or(0, Vec::len);
    (0..columns).map(|j| a.iter().map(|row| row[j]).collect()).collect()
}
