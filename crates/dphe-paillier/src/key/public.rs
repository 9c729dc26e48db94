//! The public key, and the base of its noise.

use core::fmt;
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};

use super::{KeyBits, KeyId, MAX_MODULUS_BYTES, NoiseMode, check};
use crate::Error;
use crate::arith::backend::Backend;
use crate::arith::fixed_base::FixedBase;
use crate::arith::lanes::Lanes;
use crate::arith::modulus::Modulus;
use crate::arith::nat::{self, Nat};
use crate::arith::pow::{self, Exponent};
use crate::arith::units::{Canonical, Mont, N2, Number, Public};
use crate::residue::Reduction;

type NoiseBase = Number<N2, Mont, Canonical, Lanes>;

/// A public key: a modulus `n`, with `g = n + 1`. Cloning is cheap.
#[derive(Clone)]
pub struct EncryptionKey(Arc<Inner>);

struct Inner {
    bits: KeyBits,
    mode: NoiseMode,
    id: KeyId,
    modulus: Modulus<Public>,
    noise: Noise,
    /// Computed when first needed.
    reduction: OnceLock<Reduction>,
}

/// Where the noise of a key comes from.
enum Noise {
    /// Powers of `h_s = (-x^2)^n` modulo `n^2`, where `x` is derived from `n`.
    Powers {
        base: NoiseBase,
        /// Computed when first needed.
        table: OnceLock<FixedBase>,
    },
    /// The `n`-th powers of random numbers. This is the exponent.
    Textbook(Exponent),
}

impl EncryptionKey {
    /// Creates the key with this modulus (big-endian) and checks it as far as possible.
    ///
    /// The modes [`NoiseMode::Secure`] and [`NoiseMode::Fast`] require the factors to be safe primes. This cannot be
    /// verified from the modulus, so use these modes only for keys whose generator you trust. For keys that other
    /// programs made, use [`NoiseMode::Textbook`], which assumes nothing about the factors.
    ///
    /// # Errors
    /// One of the `Key...` errors.
    pub fn from_modulus(n: &[u8], mode: NoiseMode) -> Result<Self, Error> {
        let n = nat::from_be_bytes(n, MAX_MODULUS_BYTES).ok_or(Error::KeySize { bits: u32::MAX })?;
        Self::checked(&n, KeyBits::new(n.bits())?, mode)
    }

    pub(crate) fn checked(n: &Nat, bits: KeyBits, mode: NoiseMode) -> Result<Self, Error> {
        check::modulus(n, bits)?;
        Self::unchecked(n, bits, mode)
    }

    /// Creates the key of a modulus that is known to be good.
    pub(crate) fn unchecked(n: &Nat, bits: KeyBits, mode: NoiseMode) -> Result<Self, Error> {
        // Equal numbers get equal widths, whatever they were computed from.
        let modulus = Modulus::new(&n.shortened(), Backend::for_key(bits.get()));
        let noise = match mode {
            NoiseMode::Secure | NoiseMode::Fast => {
                Noise::Powers { base: noise_base(&modulus)?, table: OnceLock::new() }
            }
            NoiseMode::Textbook => Noise::Textbook(Exponent::new(n, modulus.bits())),
        };
        let bytes = nat::to_be_bytes(n, bits.get().div_ceil(8) as usize);
        let mut hash = Sha256::new();
        hash.update(b"dphe/paillier/key-id/v1");
        hash.update([mode.tag()]);
        hash.update(&*bytes);
        let id = KeyId(hash.finalize().into());
        Ok(Self(Arc::new(Inner { bits, mode, id, modulus, noise, reduction: OnceLock::new() })))
    }

    /// Returns the length of the modulus.
    pub fn bits(&self) -> KeyBits {
        self.0.bits
    }

    /// Returns how noise is drawn.
    pub fn mode(&self) -> NoiseMode {
        self.0.mode
    }

    /// Returns the identifier of this key.
    pub fn id(&self) -> KeyId {
        self.0.id
    }

    /// Returns the back end that computes with this key.
    pub fn backend(&self) -> Backend {
        self.0.modulus.backend()
    }

    /// Returns the modulus, big-endian.
    pub fn modulus_be_bytes(&self) -> Vec<u8> {
        nat::to_be_bytes(self.modulus().nat(), self.modulus_bytes()).to_vec()
    }

    /// Returns the bytes of the modulus, and of each half of a ciphertext.
    pub fn modulus_bytes(&self) -> usize {
        self.bits().get().div_ceil(8) as usize
    }

    /// Returns the bytes of one ciphertext.
    pub fn ciphertext_bytes(&self) -> usize {
        2 * self.modulus_bytes()
    }

    /// Computes the table of noise powers now rather than at the first encryption, and returns its size in
    /// bytes. [`NoiseMode::Textbook`] has no table.
    pub fn prepare(&self) -> usize {
        self.noise().map_or(0, |noise| noise.bytes())
    }

    pub(crate) fn modulus(&self) -> &Modulus<Public> {
        &self.0.modulus
    }

    pub(crate) fn reduction(&self) -> &Reduction {
        self.0.reduction.get_or_init(|| Reduction::new(self.modulus().nat(), self.modulus().limbs()))
    }

    /// Returns the powers of the noise base, or the exponent of textbook noise.
    pub(crate) fn noise(&self) -> Result<&FixedBase, &Exponent> {
        match &self.0.noise {
            Noise::Powers { base, table } => {
                Ok(table.get_or_init(|| FixedBase::new(self.modulus(), base, self.exponent_bits())))
            }
            Noise::Textbook(exponent) => Err(exponent),
        }
    }

    /// Returns the bits of a noise exponent.
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

/// Returns `(-x^2)^n` modulo `n^2`, where `x` is derived from `n` by hashing, so that nobody chooses it.
///
/// For a product of safe primes, `-x^2` generates a group whose only small subgroup has order two.
fn noise_base(modulus: &Modulus<Public>) -> Result<NoiseBase, Error> {
    let n = modulus.nat();
    let mut rng = check::derived_rng(b"dphe/paillier/noise-base/v1", n);
    // With 128 bits more than the modulus, x is uniform up to 2^-128.
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
    modulus.enter(&mut base, &modulus.broadcast(&modulus.pair(&h)), &mut scratch);
    let exponent = Exponent::new(n, modulus.bits());
    let mut power = pow::pow(modulus, &base, &exponent, &mut scratch);
    let base = modulus.lane(&modulus.canonical(&mut power, &mut scratch), 0);
    if base == modulus.one() { Err(Error::KeyDegenerate) } else { Ok(base) }
}
