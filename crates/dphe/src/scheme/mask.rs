//! Masks and the check, which bind a sum to its participants (docs/protocol.md, section 6).
//!
//! A user adds one-time masks to its plaintexts. The key generator knows one of them and subtracts it for exactly the
//! listed users, so that any other sum comes out random. The aggregator knows the other one, so that the key generator
//! sees random numbers only. One more plaintext, the check, is a secret random combination of the others.

use core::fmt;

use chacha20::ChaCha20Rng;
use dphe_paillier::{EncryptionKey, Plaintext, ResidueSum};
use rand_core::{CryptoRng, Rng as _, SeedableRng as _};
use zeroize::Zeroizing;

use super::permutation::{MaskSeed, UserSharedSeed};
use super::round_params::RoundParams;
use crate::hash::derive;
use crate::wire::domains;
use crate::{Digest, Error, UserId};

/// The random bytes that make the masks of every sealed update different. Public.
pub(crate) type Salt = [u8; 16];

/// `a(u)`: what the aggregator needs to remove its masks from the sum. A user sends it in its update, and the key
/// generator never sees it.
#[derive(Clone)]
pub(crate) struct Blind(Zeroizing<[u8; 32]>);

impl Blind {
    pub(crate) const BYTES: usize = 32;

    pub(crate) fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut bytes[..]);
        Self(bytes)
    }

    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn mask(&self, ticket: Digest, user: UserId) -> MaskKey {
        let user = user.get().to_be_bytes();
        MaskKey(derive(domains::MASK_AGGREGATOR, &[&self.0[..], ticket.as_bytes(), &user]))
    }
}

impl fmt::Debug for Blind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blind(<redacted>)")
    }
}

/// The key of one user's masks in one round.
pub(crate) struct MaskKey(Zeroizing<[u8; 32]>);

impl MaskKey {
    /// Derives the key of the masks that a user and the key generator share.
    pub(crate) fn of_key_generator(
        seed: &MaskSeed,
        params: &RoundParams,
        user: UserId,
        salt: &Salt,
    ) -> Result<Self, Error> {
        let (task, round) = (params.task(), params.round());
        let (key, number) = seed.key(task, round)?;
        let (number, user) = (number.to_be_bytes(), user.get().to_be_bytes());
        let (id, ticket) = (task.id(), params.ticket());
        let parts: [&[u8]; 6] = [&key[..], id.as_bytes(), &number, ticket.as_bytes(), &user, salt];
        Ok(Self(derive(domains::MASK_KEY_GENERATOR, &parts)))
    }

    /// Returns its masks, in order.
    pub(crate) fn stream(&self, key: &EncryptionKey) -> MaskStream {
        MaskStream { words: ChaCha20Rng::from_seed(*self.0), mask: Zeroizing::new(vec![0; mask_bytes(key)]) }
    }
}

/// The masks of a key, one after the other. All of them at once would take as long to wipe as to make.
pub(crate) struct MaskStream {
    words: ChaCha20Rng,
    mask: Zeroizing<Vec<u8>>,
}

impl MaskStream {
    /// Adds the next mask to a sum.
    pub(crate) fn add_to(&mut self, sum: &mut ResidueSum) -> Result<(), Error> {
        self.words.fill_bytes(&mut self.mask);
        sum.add_bytes(&self.mask).map_err(Error::Key)
    }
}

fn mask_bytes(key: &EncryptionKey) -> usize {
    key.modulus_bytes() + ResidueSum::EXTRA_BYTES
}

/// The sums of the masks of several users: one per packed ciphertext.
pub(crate) struct MaskSum {
    key: EncryptionKey,
    sums: Vec<ResidueSum>,
}

impl MaskSum {
    pub(crate) fn new(key: &EncryptionKey, count: usize) -> Self {
        Self { key: key.clone(), sums: vec![ResidueSum::new(key); count] }
    }

    pub(crate) fn add(&mut self, key: &MaskKey) -> Result<(), Error> {
        let mut masks = key.stream(&self.key);
        self.sums.iter_mut().try_for_each(|sum| masks.add_to(sum))
    }

    /// Returns the sums.
    #[cfg(feature = "hazmat")]
    pub(crate) fn reduce(&self) -> Vec<Plaintext> {
        self.sums.iter().map(ResidueSum::reduce).collect()
    }

    /// Subtracts the masks from plaintexts.
    pub(crate) fn remove(&self, plaintexts: &[Plaintext]) -> Result<Vec<Plaintext>, Error> {
        let pairs = plaintexts.iter().zip(&self.sums);
        pairs.map(|(plaintext, sum)| plaintext.minus(&sum.reduce()).map_err(Error::Key)).collect()
    }
}

/// The secrets of a round's check. Users and the key generator know them.
pub(crate) struct CheckKey {
    key: EncryptionKey,
    rho: Vec<u128>,
    kappa: Plaintext,
}

impl CheckKey {
    /// Derives the secrets for this many plaintexts.
    pub(crate) fn new(
        seed: &UserSharedSeed,
        params: &RoundParams,
        key: &EncryptionKey,
        count: usize,
    ) -> Result<Self, Error> {
        let (task, round) = (params.task(), params.round());
        let (secret, number) = seed.key(task, round)?;
        let number = number.to_be_bytes();
        let check =
            derive(domains::CHECK, &[&secret[..], task.id().as_bytes(), &number, params.ticket().as_bytes()]);
        let mut words = Zeroizing::new(vec![0; 16 * count]);
        ChaCha20Rng::from_seed(*check).fill_bytes(&mut words);
        let rho = words.as_chunks().0.iter().map(|word| u128::from_be_bytes(*word)).collect();
        let group = derive(domains::CHECK_GROUP, &[&check[..], &0u32.to_be_bytes()]);
        let mut kappa = Zeroizing::new(vec![0; mask_bytes(key)]);
        ChaCha20Rng::from_seed(*group).fill_bytes(&mut kappa);
        let mut sum = ResidueSum::new(key);
        sum.add_bytes(&kappa).map_err(Error::Key)?;
        Ok(Self { key: key.clone(), rho, kappa: sum.reduce() })
    }

    /// Returns the check of `users` updates whose plaintexts, each with its place, add up to these.
    pub(crate) fn value<'a>(
        &self,
        users: usize,
        plaintexts: impl IntoIterator<Item = (usize, &'a Plaintext)>,
    ) -> Result<Plaintext, Error> {
        let mut sum = self.begin(users)?;
        plaintexts.into_iter().try_for_each(|(place, plaintext)| self.add(&mut sum, place, plaintext))?;
        Ok(sum.reduce())
    }

    /// Begins the check of `users` updates, to which [`CheckKey::add`] adds their plaintexts.
    pub(crate) fn begin(&self, users: usize) -> Result<ResidueSum, Error> {
        let mut sum = ResidueSum::new(&self.key);
        sum.add_product(users as u128, &self.kappa).map_err(Error::Key)?;
        Ok(sum)
    }

    /// Adds the plaintext of a place to a check.
    pub(crate) fn add(&self, sum: &mut ResidueSum, place: usize, plaintext: &Plaintext) -> Result<(), Error> {
        let rho = self.rho.get(place).ok_or(Error::Check)?;
        sum.add_product(*rho, plaintext).map_err(Error::Key)
    }
}

impl Drop for CheckKey {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.rho);
    }
}

#[cfg(all(test, feature = "hazmat"))]
mod tests {
    use chacha20::ChaCha20Rng;
    use dphe_paillier::NoiseMode;

    use super::*;
    use crate::hazmat::task_params;
    use crate::{Profile, Round, TaskConfig, TaskId};

    /// Two safe primes of 128 bits, multiplied.
    const N: [u8; 32] = [
        0xc0, 0x72, 0x9f, 0xea, 0xb9, 0x54, 0x03, 0x86, 0xd2, 0xad, 0x83, 0x39, 0x07, 0xb4, 0xcf, 0x38, 0x03,
        0xc3, 0xd4, 0x89, 0x92, 0xff, 0x8e, 0x14, 0x58, 0xbb, 0xf1, 0x7c, 0xce, 0xe1, 0x3a, 0xe5,
    ];

    /// How many of 3,000 shifted sums pass a check of which each secret coefficient has this many bits. An aggregator
    /// that does not know the coefficient guesses it, and shifts the check accordingly.
    #[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    fn passing(bits: u32, key: &EncryptionKey, rng: &mut ChaCha20Rng) -> u32 {
        let proposed = TaskConfig::new(Profile::Full, 4, 10, 8);
        let config = TaskConfig { noise: NoiseMode::Fast, key_bits: 256, ..proposed };
        let task = task_params(TaskId::from_bytes([7; 16]), config).unwrap();
        let number = |rng: &mut ChaCha20Rng| Plaintext::new(key, i128::from(rng.next_u64())).unwrap();
        let mut passed = 0;
        for _ in 0..3_000 {
            let mut ticket = [0; 32];
            rng.fill_bytes(&mut ticket);
            let params = RoundParams::new(&task, Round::FIRST).with_ticket(Digest::from_bytes(ticket));
            let seed = UserSharedSeed::from_parts(Round::FIRST, [5; 32]);
            let mut check = CheckKey::new(&seed, &params, key, 3).unwrap();
            check.rho.iter_mut().for_each(|rho| *rho &= u128::MAX >> (128 - bits));
            let honest = [number(rng), number(rng), number(rng)];
            let right = check.value(5, honest.iter().enumerate()).unwrap();
            assert!(check.value(5, honest.iter().enumerate()).unwrap() == right);
            let add = |x: &Plaintext, y: &Plaintext, times: u128| {
                let mut sum = ResidueSum::new(key);
                sum.add(x).unwrap();
                sum.add_product(times, y).unwrap();
                sum.reduce()
            };
            let (at, shift) = (rng.next_u32() as usize % 3, number(rng));
            let guess = (u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())) >> (128 - bits);
            let mut wrong = honest.clone();
            wrong[at] = add(&honest[at], &shift, 1);
            let claimed = add(&right, &shift, guess);
            passed += u32::from(check.value(5, wrong.iter().enumerate()).unwrap() == claimed);
        }
        passed
    }

    #[test]
    fn shifted_sum_passes_a_check_of_b_bits_with_probability_one_in_two_to_the_b() {
        let key = dphe_paillier::hazmat::encryption_key(&N, NoiseMode::Fast).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(31);
        for bits in 1..=8 {
            let p = f64::from(bits).exp2().recip();
            let (expected, deviation) = (3_000.0 * p, (3_000.0 * p * (1.0 - p)).sqrt());
            let passed = f64::from(passing(bits, &key, &mut rng));
            println!("{bits} bits: {:.4} of the shifted sums pass", passed / 3_000.0);
            assert!((passed - expected).abs() <= 5.0 * deviation, "{bits} bits: {passed} pass");
        }
        assert_eq!(passing(128, &key, &mut rng), 0);
    }
}
