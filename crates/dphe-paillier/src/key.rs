//! Keys: the modulus that encrypts, and the factors that decrypt.

use core::fmt;
use std::sync::{Arc, OnceLock};

use rand_core::CryptoRng;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::arith::backend::Backend;
use crate::arith::fixed_base::FixedBase;
use crate::arith::modulus::{Modulus, Ring};
use crate::arith::nat::{self, Nat};
use crate::arith::pow::{self, Exponent};
use crate::arith::prime::{self, Progress};
use crate::decrypt::Half;
use crate::{Error, Threads};

/// Trial division of foreign moduli goes this far.
const SMALL_FACTOR_LIMIT: u32 = 1 << 20;

/// No modulus is longer than this, in bytes.
pub(crate) const MAX_MODULUS_BYTES: usize = 512;

/// The factors of a key of `b` bits differ by at least `2^(b/2 - 100)`, in the spirit of FIPS 186-5: close
/// ones are found from their product. (Keys for tests are too short for that.)
const FACTOR_DISTANCE: u32 = 100;

/// The length of a modulus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBits(u32);

impl KeyBits {
    /// 2048 bits: about 112-bit strength.
    pub const B2048: Self = Self(2048);
    /// 3072 bits, the default: about 128-bit strength.
    pub const B3072: Self = Self(3072);
    /// 4096 bits.
    pub const B4096: Self = Self(4096);

    /// A supported length.
    ///
    /// # Errors
    /// [`Error::KeySize`] for any other.
    pub fn new(bits: u32) -> Result<Self, Error> {
        match bits {
            2048 | 3072 | 4096 => Ok(Self(bits)),
            _ => Err(Error::KeySize { bits }),
        }
    }

    /// A length for reproducing the paper (1024) or for fast tests; see [`crate::hazmat`].
    #[cfg(feature = "hazmat")]
    pub(crate) fn insecure(bits: u32) -> Result<Self, Error> {
        match bits {
            128..2048 if bits.is_multiple_of(128) => Ok(Self(bits)),
            _ => Self::new(bits),
        }
    }

    /// The number of bits.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Whether it is one of the supported lengths, not one for reproduction and tests.
    pub fn is_secure(self) -> bool {
        self.0 >= 2048
    }
}

impl Default for KeyBits {
    fn default() -> Self {
        Self::B3072
    }
}

/// How the noise of a ciphertext is drawn: part of the key, and of every report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoiseMode {
    /// Exponents of half the modulus' length. Rests on the decisional composite residuosity assumption
    /// and on half-length exponents being indistinguishable from full ones.
    #[default]
    Secure,
    /// Exponents of 224 bits (2048-bit keys), 256 bits (3072) or 304 bits (4096). Several times faster;
    /// adds the assumption that short exponents in the group of an unknown safe-prime product are
    /// indistinguishable from long ones. Not secure under composite residuosity alone.
    Fast,
}

impl NoiseMode {
    /// The name used in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Secure => "secure",
            Self::Fast => "fast",
        }
    }

    pub(crate) fn tag(self) -> u8 {
        match self {
            Self::Secure => 1,
            Self::Fast => 2,
        }
    }

    pub(crate) fn from_tag(tag: u8) -> Option<Self> {
        [Self::Secure, Self::Fast].into_iter().find(|mode| mode.tag() == tag)
    }

    /// Bits of a noise exponent.
    fn exponent_bits(self, bits: u32) -> u32 {
        let short = match bits {
            0..=2048 => 224,
            2049..=3072 => 256,
            3073.. => 304,
        };
        match self {
            Self::Secure => bits / 2,
            Self::Fast => short.min(bits / 2),
        }
    }
}

impl fmt::Display for NoiseMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Names a key: a digest of its modulus and mode.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId([u8; 32]);

impl KeyId {
    /// The digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for KeyId {
    /// The first eight bytes in hexadecimal: enough for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// The public key: a modulus `n`, with `g = n + 1`. Cloning is cheap.
#[derive(Clone)]
pub struct EncryptionKey(Arc<Inner>);

struct Inner {
    bits: KeyBits,
    mode: NoiseMode,
    id: KeyId,
    modulus: Modulus,
    /// `h_s = (-x^2)^n` modulo `n^2`, where `x` is derived from `n`: the base of all noise.
    noise_base: Vec<u64>,
    /// The powers of the noise base, made when first needed.
    noise: OnceLock<FixedBase>,
}

impl EncryptionKey {
    /// The key with this modulus (big-endian), as it comes from somebody else: checked as far as a
    /// modulus can be checked from outside. That its factors are safe primes, on which the noise of either
    /// mode rests, is nothing that can be checked: trust whoever made it, or do not use it.
    ///
    /// # Errors
    /// One of the `Key...` errors, naming what is wrong.
    pub fn from_modulus(n: &[u8], mode: NoiseMode) -> Result<Self, Error> {
        let n = nat::from_be_bytes(n, MAX_MODULUS_BYTES).ok_or(Error::KeySize { bits: u32::MAX })?;
        Self::checked(&n, KeyBits::new(n.bits())?, mode)
    }

    pub(crate) fn checked(n: &Nat, bits: KeyBits, mode: NoiseMode) -> Result<Self, Error> {
        if !n.is_odd() {
            return Err(Error::KeyEven);
        }
        // Keys for tests are too small to be searched this far.
        let limit = SMALL_FACTOR_LIMIT.min(1 << (bits.get() / 16).min(30));
        if let Some(factor) = prime::small_primes(limit).into_iter().find(|&q| nat::rem_small(n, q) == 0) {
            return Err(Error::KeySmallFactor { factor });
        }
        if is_perfect_power(n, limit.ilog2()) {
            return Err(Error::KeyPerfectPower);
        }
        let key = Self::unchecked(n, bits, mode)?;
        // A number is prime, up to a negligible error, if it passes with bases nobody can choose.
        let mut rng = derived_rng(b"dphe/paillier/primality/v1", n);
        if prime::miller_rabin(n, 16, &mut rng, key.modulus().backend()) {
            return Err(Error::KeyPrime);
        }
        Ok(key)
    }

    /// The key of a modulus known to be good.
    pub(crate) fn unchecked(n: &Nat, bits: KeyBits, mode: NoiseMode) -> Result<Self, Error> {
        // one width for one number, whatever it was computed from
        let modulus = Modulus::new(&n.shortened(), Backend::for_key(bits.get()));
        let noise_base = noise_base(&modulus)?;
        let bytes = nat::to_be_bytes(n, bits.get().div_ceil(8) as usize);
        let mut hash = Sha256::new();
        hash.update(b"dphe/paillier/key-id/v1");
        hash.update([mode.tag()]);
        hash.update(&*bytes);
        let id = KeyId(hash.finalize().into());
        Ok(Self(Arc::new(Inner { bits, mode, id, modulus, noise_base, noise: OnceLock::new() })))
    }

    /// The length of the modulus.
    pub fn bits(&self) -> KeyBits {
        self.0.bits
    }

    /// How noise is drawn.
    pub fn mode(&self) -> NoiseMode {
        self.0.mode
    }

    /// The name of this key.
    pub fn id(&self) -> KeyId {
        self.0.id
    }

    /// The arithmetic that serves this key.
    pub fn backend(&self) -> Backend {
        self.0.modulus.backend()
    }

    /// The modulus, big-endian.
    pub fn modulus_be_bytes(&self) -> Vec<u8> {
        nat::to_be_bytes(self.modulus().nat(), self.modulus_bytes()).to_vec()
    }

    /// Bytes of the modulus, and of each half of a ciphertext.
    pub fn modulus_bytes(&self) -> usize {
        self.bits().get().div_ceil(8) as usize
    }

    /// Bytes of one ciphertext.
    pub fn ciphertext_bytes(&self) -> usize {
        2 * self.modulus_bytes()
    }

    /// Makes the table of noise powers now rather than at the first encryption; returns its bytes.
    pub fn prepare(&self) -> usize {
        self.noise().bytes()
    }

    pub(crate) fn modulus(&self) -> &Modulus {
        &self.0.modulus
    }

    /// The powers of the noise base.
    pub(crate) fn noise(&self) -> &FixedBase {
        self.0.noise.get_or_init(|| FixedBase::new(self.modulus(), &self.0.noise_base, self.exponent_bits()))
    }

    /// Bits of a noise exponent.
    pub(crate) fn exponent_bits(&self) -> u32 {
        self.mode().exponent_bits(self.bits().get())
    }
}

impl PartialEq for EncryptionKey {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.id() == other.id()
    }
}

impl Eq for EncryptionKey {}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncryptionKey")
            .field("id", &self.id())
            .field("bits", &self.bits().get())
            .field("mode", &self.mode())
            .finish_non_exhaustive()
    }
}

/// The secret key: the factors of the modulus, with everything precomputed for fast decryption.
///
/// It is wiped when dropped, prints nothing, cannot be cloned, and leaves memory only through
/// [`DecryptionKey::seal`].
pub struct DecryptionKey {
    encryption: EncryptionKey,
    pub(crate) p: Half,
    pub(crate) q: Half,
}

impl DecryptionKey {
    /// A new key. Every prime comes from a search seeded by `rng`; both depend on the seed only, not on
    /// the number of threads.
    ///
    /// # Errors
    /// None that a working random generator can bring about.
    pub fn generate(
        bits: KeyBits,
        mode: NoiseMode,
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<Self, Error> {
        Self::generate_with_progress(bits, mode, rng, threads, &|_| ())
    }

    /// As [`DecryptionKey::generate`], telling now and then how the search goes.
    ///
    /// # Errors
    /// None that a working random generator can bring about.
    pub fn generate_with_progress(
        bits: KeyBits,
        mode: NoiseMode,
        rng: &mut impl CryptoRng,
        threads: Threads,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Self, Error> {
        let mut seed = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut seed[..]);
        // the primes are half as long, and may be within reach of a faster back end than the modulus
        let backend = Backend::for_key(bits.get() / 2);
        let (p, q) = prime::two_safe_primes(bits.get() / 2, &seed, backend, threads.get(), progress);
        Self::from_factors(&p, &q, bits, mode)
    }

    /// The key with these factors, which are known to be safe primes.
    pub(crate) fn from_factors(p: &Nat, q: &Nat, bits: KeyBits, mode: NoiseMode) -> Result<Self, Error> {
        let n = nat::mul(p, q);
        let half = bits.get() / 2;
        let shape = [p, q].iter().all(|x| x.is_odd() && x.bits() == half) && n.bits() == bits.get();
        if !shape || nat::distance(p, q).bits() <= half.saturating_sub(FACTOR_DISTANCE) {
            return Err(Error::KeyFactors);
        }
        let encryption = EncryptionKey::unchecked(&n, bits, mode)?;
        let prepare = |p: &Nat, q: &Nat| Half::new(p, q, encryption.modulus()).ok_or(Error::KeyFactors);
        let (p, q) = (prepare(p, q)?, prepare(q, p)?);
        Ok(Self { encryption, p, q })
    }

    /// The public key.
    pub fn encryption_key(&self) -> &EncryptionKey {
        &self.encryption
    }
}

impl fmt::Debug for DecryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DecryptionKey({}, <redacted>)", self.encryption.id())
    }
}

/// `(-x^2)^n` modulo `n^2` in Montgomery form, with `x` derived from `n` by hashing: nobody chose it.
///
/// For a product of safe primes, `-x^2` generates a group with no small subgroups but that of order two.
fn noise_base(modulus: &Modulus) -> Result<Vec<u64>, Error> {
    let n = modulus.nat();
    let mut rng = derived_rng(b"dphe/paillier/noise-base/v1", n);
    // 128 bits more than the modulus: uniform up to 2^-128
    let limbs: Vec<u64> = (0..modulus.limbs() + 2).map(|_| rand_core::Rng::next_u64(&mut rng)).collect();
    let x = nat::rem(&nat::from_limbs(&limbs), n);
    nat::invert_vartime(&x, n).ok_or(Error::KeyDegenerate)?;
    let square = nat::rem(&nat::mul(&x, &x), n);
    let h = nat::sub(n, &square);
    let one = nat::small(1);
    if nat::cmp_vartime(&h, &one).is_eq() || nat::cmp_vartime(&square, &one).is_eq() {
        return Err(Error::KeyDegenerate);
    }
    let mut scratch = modulus.scratch();
    let mut base = modulus.pairs();
    modulus.mul_pair(
        &mut base,
        &modulus.broadcast(&modulus.pair_digits(&h)),
        &modulus.broadcast(modulus.r_squared()),
        &mut scratch,
    );
    let exponent = Exponent::new(n, modulus.bits());
    let mut power = pow::pow(modulus, Ring::ModNSquared, &base, &exponent, &mut scratch);
    modulus.canonical_pair(&mut power, &mut scratch);
    let mut digits = vec![0; modulus.pair_words()];
    modulus.scatter(&mut [&mut digits], &power);
    if digits == modulus.one() {
        return Err(Error::KeyDegenerate);
    }
    Ok(digits)
}

/// A generator that is a public function of a domain and a number.
fn derived_rng(domain: &[u8], n: &Nat) -> chacha20::ChaCha20Rng {
    let mut hash = Sha256::new();
    hash.update((domain.len() as u64).to_be_bytes());
    hash.update(domain);
    hash.update(&*nat::to_be_bytes(n, n.bits().div_ceil(8) as usize));
    rand_core::SeedableRng::from_seed(hash.finalize().into())
}

/// Whether `n` is `a^k` for some `k > 1`. `n` has no factor below `2^factor_bits`, which bounds `k`.
fn is_perfect_power(n: &Nat, factor_bits: u32) -> bool {
    let bits = n.bits();
    prime::small_primes(bits / factor_bits.max(1) + 2).into_iter().any(|k| is_power(n, k))
}

/// Whether `n` is a `k`-th power: the candidate root is found bit by bit.
fn is_power(n: &Nat, k: u32) -> bool {
    let root_bits = n.bits().div_ceil(k);
    let mut root = vec![0u64; root_bits as usize / 64 + 1];
    for bit in (0..root_bits).rev() {
        root[bit as usize / 64] |= 1 << (bit % 64);
        let order = power_order(&nat::from_limbs(&root), k, n);
        if order.is_eq() {
            return true;
        }
        if order.is_gt() {
            root[bit as usize / 64] &= !(1 << (bit % 64));
        }
    }
    false
}

/// How `root^k` compares to `n`, giving up as soon as it is larger.
fn power_order(root: &Nat, k: u32, n: &Nat) -> core::cmp::Ordering {
    let mut power = nat::small(1);
    for _ in 0..k {
        power = nat::mul(&power, root).shortened();
        if nat::cmp_vartime(&power, n).is_gt() {
            return core::cmp::Ordering::Greater;
        }
    }
    nat::cmp_vartime(&power, n)
}
