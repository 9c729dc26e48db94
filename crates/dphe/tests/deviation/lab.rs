//! A round in the hands of a dishonest aggregator. It has its own keys, all uploads and its part of their masks, adds
//! up what it likes, and names whom it likes. Masks and checks are computed here by docs/protocol.md, section 6.

use std::collections::BTreeMap;
use std::sync::Arc;

use chacha20::ChaCha20Rng;
use dphe::scheme::{RoundParams, UncheckedSum};
use dphe::wire::{DecodeWith as _, Encode as _, SumContext, SumParams};
use dphe::{
    Digest, Error, KeyGenerator, OpenedSum, Profile, Receipts, Round, SealedSum, SparseVector, TaskConfig,
    TaskParams, Update, User, UserId, WeightSum, hazmat,
};
use dphe_paillier::{Ciphertext, EncryptionKey, Plaintext, ResidueSum, SlotLayout};
use rand_core::{Rng as _, SeedableRng as _};

use crate::support::forge::hash;
use crate::support::{ONE, below, choose, config, key, rng, task, user_id};

/// Five honest users, and an accomplice of the aggregator.
pub(crate) const USERS: usize = 6;
pub(crate) const VICTIM: usize = 0;
pub(crate) const ACCOMPLICE: usize = 5;

/// The bytes of a residue, and of a mask before it is reduced.
const RESIDUE: usize = 32;
const WIDE: usize = RESIDUE + 16;

pub(crate) struct Lab {
    pub(crate) task: TaskParams,
    pub(crate) key: EncryptionKey,
    pub(crate) layout: SlotLayout,
    pub(crate) users: Vec<User>,
    pub(crate) rng: ChaCha20Rng,
    key_generator: KeyGenerator,
    us: [u8; 32],
    ua: Vec<[u8; 32]>,
    masks: Vec<[u8; 32]>,
}

/// Sealed numbers: those of a private support by position, after the user-shared permutation, and the packed ones.
#[derive(Clone)]
pub(crate) struct Sealed {
    pub(crate) positions: BTreeMap<u32, Ciphertext>,
    pub(crate) packed: Vec<Ciphertext>,
}

/// An upload as the aggregator has it.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) user: UserId,
    pub(crate) salt: [u8; 16],
    pub(crate) ticket: Digest,
    /// The aggregator's part of the masks, if there are masks.
    pub(crate) blind: Option<[u8; 32]>,
    pub(crate) sealed: Sealed,
}

/// Ten packed ciphertexts of twelve numbers each, or 40 positions of which each user sends ten.
fn lab_config(profile: Profile, receipts: Receipts) -> TaskConfig {
    let full = profile == Profile::Full;
    let (dimension, capacity) = if full { (118, 118) } else { (40, 10) };
    TaskConfig { dimension, capacity, receipts, block: 1, shards: 1, dense: 2, ..config(profile) }
}

impl Lab {
    pub(crate) fn new(profile: Profile, receipts: Receipts, seed: u64) -> Self {
        let mut rng = rng(seed);
        let task = task(lab_config(profile, receipts));
        let mut key_generator =
            KeyGenerator::with_key(task.clone(), key(256, task.config().noise), &mut rng).unwrap();
        let mut draw = || {
            let mut seed = [0; 32];
            rng.fill_bytes(&mut seed);
            seed
        };
        let us = draw();
        let (ua, masks): (Vec<_>, Vec<_>) = (0..USERS).map(|_| (draw(), draw())).unzip();
        let ids = (1..).map(user_id);
        let seeds: Vec<_> = ids.zip(&ua).zip(&masks).map(|((id, &ua), &mask)| (id, ua, mask)).collect();
        hazmat::set_seeds(&mut key_generator, us, seeds);
        let ids = (1..=USERS as u32).map(user_id);
        let users = ids.map(|id| User::new(key_generator.enroll(id, &mut rng)).unwrap()).collect();
        let key = key_generator.encryption_key().clone();
        let bits = u32::from(task.config().scale_bits) + 1;
        let layout = SlotLayout::new(&key, bits, task.config().max_users.into()).unwrap();
        Self { task, key, layout, users, rng, key_generator, us, ua, masks }
    }

    /// Random numbers that are not zero: all of a public support, or ten at random positions.
    pub(crate) fn numbers(&mut self) -> Vec<i64> {
        let dimension = self.task.dimension();
        let mut numbers = vec![0; dimension];
        for index in choose(&mut self.rng, self.task.capacity(), dimension) {
            let magnitude = 1 + below(&mut self.rng, 60_000) as i64;
            numbers[index] = if below(&mut self.rng, 2) == 0 { magnitude } else { -magnitude };
        }
        numbers
    }

    /// A user seals numbers for a round without a ticket, as it does in a program that runs all parties.
    pub(crate) fn seal(&mut self, user: usize, round: Round, numbers: &[i64]) -> Sent {
        let weights: Vec<f64> = numbers.iter().map(|&number| number as f64 / 65_536.0).collect();
        let update = Update::new(SparseVector::from_dense(&weights).unwrap()).with_dense(vec![0.5, -0.25]);
        let sealed = self.users[user].seal(round, &update, &mut self.rng, ONE).unwrap();
        let (bytes, capacity) = (sealed.to_bytes(), self.task.capacity());
        let (blind, mut rest) = match self.task.receipts() {
            Receipts::Masked => (bytes.first_chunk().copied(), &bytes[32..]),
            Receipts::None | Receipts::Checked => (None, &bytes[..]),
        };
        let mut positions = BTreeMap::new();
        if self.task.has_private_support() {
            let (indices, values) = rest[..capacity * (4 + 2 * RESIDUE)].split_at(4 * capacity);
            let table =
                hazmat::user_aggregator_table(&self.task, self.ua[user], round, sealed.user()).unwrap();
            let indices = indices.as_chunks().0.iter().map(|bytes| u32::from_be_bytes(*bytes));
            let undone = indices.map(|index| table.iter().position(|&to| to == index).unwrap() as u32);
            positions = undone.zip(self.key.decode(values, ONE).unwrap()).collect();
            rest = &rest[capacity * (4 + 2 * RESIDUE)..];
        }
        let packed = self.key.decode(rest, ONE).unwrap();
        let (user, salt) = (sealed.user(), sealed.salt());
        Sent { user, salt, ticket: Digest::ZERO, blind, sealed: Sealed { positions, packed } }
    }

    /// The same by hand, for a public support and any ticket.
    pub(crate) fn seal_by_hand(&mut self, user: usize, params: &RoundParams, numbers: &[i64]) -> Sent {
        let all = [numbers, &[1 << 15, -1 << 14]].concat();
        let mut plain = self.layout.pack(&self.key, &all).unwrap();
        let (id, mut salt, mut blind) = (self.users[user].id(), [0; 16], [0; 32]);
        self.rng.fill_bytes(&mut salt);
        self.rng.fill_bytes(&mut blind);
        let masked = self.task.receipts() == Receipts::Masked;
        if masked {
            let (rho, kappa) = self.check_key(params);
            plain.push(self.check_value(&rho, &kappa, 1, &plain));
            let masks = self.masks_of_key_generator(user, params, &salt);
            plain = self.add(&plain, &masks);
            plain = self.add(&plain, &self.masks_of_aggregator(&blind, params.ticket(), id));
        }
        let packed = self.key.encrypt_all(&plain, &mut self.rng, ONE).unwrap();
        let (ticket, blind) = (params.ticket(), masked.then_some(blind));
        Sent { user: id, salt, ticket, blind, sealed: Sealed { positions: BTreeMap::new(), packed } }
    }

    /// The key generator opens a sum for these users with these salts.
    pub(crate) fn open(
        &mut self,
        params: &Arc<RoundParams>,
        sum: &Sealed,
        listed: &[&Sent],
    ) -> Result<OpenedSum, Error> {
        let (users, salts) = listed.iter().map(|sent| (sent.user, sent.salt)).unzip();
        let mut bytes = Vec::new();
        if self.task.has_private_support() {
            bytes = vec![0; self.task.positions().div_ceil(8) as usize];
            sum.positions.keys().for_each(|&p| bytes[p as usize / 8] |= 0x80 >> (p % 8));
        }
        let ciphertexts: Vec<Ciphertext> = sum.positions.values().chain(&sum.packed).cloned().collect();
        bytes.extend(self.key.encode(&ciphertexts, ONE).unwrap());
        let occupied = sum.positions.len() as u32;
        let params = SumParams { params: params.clone(), users, salts, occupied };
        let sum = SealedSum::from_bytes(&bytes, &params).unwrap();
        self.key_generator.open(sum, &mut self.rng, ONE)
    }

    /// Removes the aggregator's part of the masks of these uploads.
    pub(crate) fn unmask(&self, residues: &[Plaintext], uploads: &[&Sent]) -> Vec<Plaintext> {
        uploads.iter().fold(residues.to_vec(), |residues, sent| {
            let masks = self.masks_of_aggregator(&sent.blind.unwrap(), sent.ticket, sent.user);
            residues.iter().zip(&masks).map(|(residue, mask)| residue.minus(mask).unwrap()).collect()
        })
    }

    /// What a user makes of published residues.
    pub(crate) fn check(
        &self,
        params: &Arc<RoundParams>,
        residues: &[Plaintext],
        users: usize,
        user: usize,
    ) -> Result<WeightSum, Error> {
        let bytes: Vec<u8> =
            residues.iter().flat_map(|residue| residue.to_residue_bytes().to_vec()).collect();
        let context = SumContext { params, users, key: &self.key };
        UncheckedSum::from_bytes(&bytes, &context)?.check(&self.users[user])
    }

    /// Reads the slots of residues without any check, all but those of the check itself and of the dense values.
    pub(crate) fn slots(&self, residues: &[Plaintext]) -> Vec<i64> {
        let mut all: Vec<i64> =
            residues.split_last().unwrap().1.iter().flat_map(|residue| self.slots_of(residue)).collect();
        all.truncate(self.task.dimension());
        all
    }

    fn slots_of(&self, residue: &Plaintext) -> Vec<i64> {
        let (negative, magnitude) = residue.sign_and_magnitude();
        // two's complement, least significant bit first
        let mut bits: Vec<bool> =
            magnitude.iter().rev().flat_map(|byte| (0..8).map(move |i| byte >> i & 1 == 1)).collect();
        if negative {
            let lowest = bits.iter().position(|&bit| bit).unwrap_or(bits.len());
            bits.iter_mut().skip(lowest + 1).for_each(|bit| *bit = !*bit);
        }
        let width = self.layout.slot_bits() as usize;
        let mut borrow = 0;
        let slot = |bits: &[bool]| {
            let digit = bits.iter().rev().fold(0i64, |x, &bit| x << 1 | i64::from(bit)) + borrow;
            let value = if digit >= 1 << (width - 1) { digit - (1 << width) } else { digit };
            borrow = i64::from(value < 0);
            value
        };
        bits.chunks_exact(width).take(self.layout.slots()).map(slot).collect()
    }

    /// Reads the residues of a masked answer.
    pub(crate) fn residues(&self, opened: &OpenedSum) -> Vec<Plaintext> {
        let read = |bytes: &[u8]| Plaintext::from_residue_bytes(&self.key, bytes).unwrap();
        opened.to_bytes().chunks_exact(RESIDUE).map(read).collect()
    }

    fn key_of_round(&self, seed: [u8; 32], round: Round) -> [u8; 32] {
        (1..round.get()).fold(seed, |key, _| hash("dphe/v2/ratchet", &[&key]))
    }

    fn count(&self) -> usize {
        (self.task.dimension() + self.task.dense()).div_ceil(self.layout.slots()) + 1
    }

    /// `Mask(K)`: one number for each packed plaintext, and one for the check.
    fn expand(&self, secret: [u8; 32]) -> Vec<Plaintext> {
        let mut words = vec![0; WIDE * self.count()];
        ChaCha20Rng::from_seed(secret).fill_bytes(&mut words);
        words.chunks_exact(WIDE).map(|word| self.reduced(word)).collect()
    }

    fn reduced(&self, word: &[u8]) -> Plaintext {
        let mut sum = ResidueSum::new(&self.key);
        sum.add_bytes(word).unwrap();
        sum.reduce()
    }

    fn masks_of_key_generator(&self, user: usize, params: &RoundParams, salt: &[u8; 16]) -> Vec<Plaintext> {
        let (id, t) = (self.users[user].id().get().to_be_bytes(), params.round());
        let (seed, ticket) = (self.key_of_round(self.masks[user], t), params.ticket());
        let (task, t) = (self.task.id(), t.get().to_be_bytes());
        let parts: [&[u8]; 6] = [&seed, task.as_bytes(), &t, ticket.as_bytes(), &id, salt];
        self.expand(hash("dphe/v2/mask-key-generator", &parts))
    }

    fn masks_of_aggregator(&self, blind: &[u8; 32], ticket: Digest, user: UserId) -> Vec<Plaintext> {
        let parts: [&[u8]; 3] = [blind, ticket.as_bytes(), &user.get().to_be_bytes()];
        self.expand(hash("dphe/v2/mask-aggregator", &parts))
    }

    /// The secrets of the check: `rho` and `kappa`.
    pub(crate) fn check_key(&self, params: &RoundParams) -> (Vec<u128>, Plaintext) {
        let seed = self.key_of_round(self.us, params.round());
        let (task, t, ticket) = (self.task.id(), params.round().get().to_be_bytes(), params.ticket());
        let secret = hash("dphe/v2/check", &[&seed, task.as_bytes(), &t, ticket.as_bytes()]);
        let mut words = vec![0; 16 * self.count()];
        ChaCha20Rng::from_seed(secret).fill_bytes(&mut words);
        let rho = words.as_chunks().0.iter().map(|word| u128::from_be_bytes(*word)).collect();
        let mut word = [0; WIDE];
        ChaCha20Rng::from_seed(hash("dphe/v2/check-group", &[&secret, &[0; 4]])).fill_bytes(&mut word);
        (rho, self.reduced(&word))
    }

    /// `users kappa + sum_i rho_i m_i`.
    pub(crate) fn check_value(
        &self,
        rho: &[u128],
        kappa: &Plaintext,
        users: u128,
        plain: &[Plaintext],
    ) -> Plaintext {
        let mut sum = ResidueSum::new(&self.key);
        sum.add_product(users, kappa).unwrap();
        plain.iter().zip(rho).for_each(|(m, &rho)| sum.add_product(rho, m).unwrap());
        sum.reduce()
    }

    pub(crate) fn add(&self, xs: &[Plaintext], ys: &[Plaintext]) -> Vec<Plaintext> {
        let add = |(x, y): (&Plaintext, &Plaintext)| {
            let mut sum = ResidueSum::new(&self.key);
            sum.add(x).unwrap();
            sum.add(y).unwrap();
            sum.reduce()
        };
        xs.iter().zip(ys).map(add).collect()
    }

    /// Multiplies residues by a small number.
    pub(crate) fn scale(&self, xs: &[Plaintext], factor: i32) -> Vec<Plaintext> {
        let zero = Plaintext::new(&self.key, 0).unwrap();
        let scale = |x: &Plaintext| {
            let mut sum = ResidueSum::new(&self.key);
            sum.add_product(factor.unsigned_abs().into(), x).unwrap();
            if factor < 0 { zero.minus(&sum.reduce()).unwrap() } else { sum.reduce() }
        };
        xs.iter().map(scale).collect()
    }

    pub(crate) fn small(&self, number: i128) -> Plaintext {
        Plaintext::new(&self.key, number).unwrap()
    }

    /// Adds up sealed numbers, each this many times.
    pub(crate) fn sum<'a>(&mut self, terms: impl IntoIterator<Item = (&'a Sealed, i64)>) -> Sealed {
        let mut sum: Option<Sealed> = None;
        for (term, times) in terms {
            let multiple =
                |xs: &[Ciphertext]| self.key.mul_small_vartime(xs, &vec![times; xs.len()], ONE).unwrap();
            let values: Vec<Ciphertext> = term.positions.values().cloned().collect();
            let positions = term.positions.keys().copied().zip(multiple(&values));
            let packed = multiple(&term.packed);
            let Some(sum) = &mut sum else {
                sum = Some(Sealed { positions: positions.collect(), packed });
                continue;
            };
            for (position, value) in positions {
                let neutral = Ciphertext::neutral(&self.key);
                let old = sum.positions.entry(position).or_insert(neutral);
                *old = self.key.sum(&[old.clone(), value], ONE).unwrap();
            }
            self.key.add_assign(&mut sum.packed, &packed, ONE).unwrap();
        }
        sum.unwrap()
    }

    /// Adds a number to one of the ciphertexts.
    pub(crate) fn shift(&self, ciphertext: &mut Ciphertext, number: &Plaintext) {
        let shifted = self.key.add_plain(std::slice::from_ref(ciphertext), std::slice::from_ref(number), ONE);
        *ciphertext = shifted.unwrap().remove(0);
    }

    pub(crate) fn encrypt(&mut self, number: &Plaintext) -> Ciphertext {
        self.key.encrypt(number, &mut self.rng).unwrap()
    }

    /// Multiplies a ciphertext by -1 modulo `n²`.
    pub(crate) fn negated(&self, ciphertext: &Ciphertext) -> Ciphertext {
        let n = self.key.modulus_be_bytes();
        // c = c1 n + c0, so -c = (n - 1 - c1) n + (n - c0)
        let bytes = self.key.encode(core::slice::from_ref(ciphertext), ONE).unwrap();
        let (c1, c0) = bytes.split_at(RESIDUE);
        let mut below = n.clone();
        // n is odd
        below[RESIDUE - 1] -= 1;
        self.key.decode(&[minus(&below, c1), minus(&n, c0)].concat(), ONE).unwrap().remove(0)
    }
}

/// The difference of two big-endian numbers of the same length, of which the second is not larger.
fn minus(x: &[u8], y: &[u8]) -> Vec<u8> {
    let mut difference = x.to_vec();
    let mut borrow = 0;
    for (d, y) in difference.iter_mut().zip(y).rev() {
        let value = i16::from(*d) - i16::from(*y) - borrow;
        borrow = i16::from(value < 0);
        *d = value as u8;
    }
    difference
}
