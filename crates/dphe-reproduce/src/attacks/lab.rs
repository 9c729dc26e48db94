//! A task in the hands of a dishonest aggregator. It has its own keys, all uploads and its part of their masks. It
//! submits the ciphertexts that it likes and lists the users that it likes, and the real key generator answers.

use std::sync::Arc;

use chacha20::ChaCha20Rng;
use dphe::scheme::{RoundParams, UncheckedSum};
use dphe::wire::{DecodeWith as _, Encode as _, SumContext, SumParams};
use dphe::{
    Digest, KeyGenerator, NoiseMode, OpenedSum, Profile, Receipts, Round, SealedSum, SparseVector,
    TaskConfig, TaskId, TaskParams, Threads, Update, User, UserId, WeightSum, hazmat,
};
use dphe_learn::Seed;
use dphe_paillier::{Ciphertext, EncryptionKey, Plaintext, ResidueSum, SlotLayout};
use rand_core::{Rng as _, SeedableRng as _};

use crate::Error;

/// Five honest users, and an accomplice of the aggregator.
pub(super) const USERS: usize = 6;
pub(super) const VICTIM: usize = 0;
pub(super) const ACCOMPLICE: usize = 5;

const ONE: Threads = Threads::ONE;

/// The sealed numbers of a user, or a sum of them.
pub(super) type Sealed = Vec<Ciphertext>;

/// The parties of a task with an insecure key and a public support.
pub(super) struct Lab {
    pub(super) key: EncryptionKey,
    pub(super) layout: SlotLayout,
    /// What each user sends in every round. Users have the same data and start from the same model.
    pub(super) numbers: Vec<Vec<i64>>,
    /// Their sum, which was published in the first round.
    pub(super) honest: Vec<i64>,
    /// The uploads of the first round, in which the aggregator was honest.
    pub(super) old: Vec<Sent>,
    task: TaskParams,
    key_generator: KeyGenerator,
    users: Vec<User>,
    rng: ChaCha20Rng,
    round: Round,
}

/// An upload as the aggregator has it.
#[derive(Clone)]
pub(super) struct Sent {
    pub(super) user: UserId,
    pub(super) salt: [u8; 16],
    pub(super) sealed: Sealed,
    pub(super) ticket: Digest,
    /// The aggregator's part of the masks, if there are masks.
    pub(super) blind: Option<[u8; 32]>,
}

/// A round with all its uploads, before the aggregator submits a sum.
pub(super) struct Open {
    pub(super) params: Arc<RoundParams>,
    pub(super) sent: Vec<Sent>,
}

/// What came of a submitted sum.
pub(super) struct Answer {
    /// The numbers that the aggregator reads, for each way in which it may remove its masks.
    pub(super) readings: Vec<Vec<i64>>,
    /// The sum that honest users accept, if it publishes one of them.
    pub(super) accepted: Option<Vec<i64>>,
    /// The residues that it can publish. Without masks, the key generator signs the sum itself.
    pub(super) residues: Vec<Plaintext>,
}

impl Lab {
    pub(super) fn new(receipts: Receipts, bits: u32, weights: usize, seed: &Seed) -> Result<Self, Error> {
        let mut rng = ChaCha20Rng::from_seed(seed.derive("lab", 0).to_bytes());
        let proposed = TaskConfig::new(Profile::Full, 1, u32::try_from(weights).unwrap_or(u32::MAX), 8);
        let config = TaskConfig {
            noise: NoiseMode::Fast,
            receipts,
            key_bits: bits,
            block: 1,
            capacity: proposed.dimension,
            ..proposed
        };
        let task = hazmat::task_params(TaskId::from_bytes([7; 16]), config)?;
        let mut key_generator = KeyGenerator::new(task.clone(), &mut rng, ONE)?;
        let users = (1..=USERS as u32)
            .filter_map(UserId::new)
            .map(|id| User::new(key_generator.enroll(id, &mut rng)))
            .collect::<Result<Vec<_>, _>>()?;
        let key = key_generator.encryption_key().clone();
        let value_bits = u32::from(task.config().scale_bits) + 1;
        let layout = SlotLayout::new(&key, value_bits, task.config().max_users.into())?;
        let mut number = || {
            let magnitude = 1 + i64::from(rng.next_u32() % 60_000);
            if rng.next_u32().is_multiple_of(2) { magnitude } else { -magnitude }
        };
        let numbers: Vec<Vec<i64>> = (0..USERS).map(|_| (0..weights).map(|_| number()).collect()).collect();
        let honest = (0..weights).map(|i| numbers.iter().map(|numbers| numbers[i]).sum()).collect();
        let round = Round::FIRST;
        let mut lab =
            Self { key, layout, numbers, honest, old: Vec::new(), task, key_generator, users, rng, round };
        let first = lab.open_round()?;
        let sum = lab.sum_of(&first.sent)?;
        let all: Vec<&Sent> = first.sent.iter().collect();
        let answer = lab.submit(&first, &sum, &all, &all)?;
        // the controls of all attacks rely on an honest round that works
        if answer.accepted.as_ref() != Some(&lab.honest) {
            return Err(dphe::Error::Check.into());
        }
        lab.old = first.sent;
        Ok(lab)
    }

    /// Starts the next round: all users upload.
    pub(super) fn open_round(&mut self) -> Result<Open, Error> {
        let ticket = self.ticket();
        self.open_with_tickets(|_| ticket)
    }

    /// The same with tickets of which each user may have another.
    pub(super) fn open_with_tickets(&mut self, of: impl Fn(usize) -> Digest) -> Result<Open, Error> {
        let params = RoundParams::new(&self.task, self.round);
        self.round = self.round.next();
        let sent = (0..USERS)
            .map(|user| self.seal(user, &params.with_ticket(of(user))))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Open { params: Arc::new(params.with_ticket(of(USERS))), sent })
    }

    /// Draws the hash of a ticket.
    pub(super) fn ticket(&mut self) -> Digest {
        let mut ticket = [0; 32];
        self.rng.fill_bytes(&mut ticket);
        Digest::from_bytes(ticket)
    }

    fn seal(&mut self, user: usize, params: &RoundParams) -> Result<Sent, Error> {
        let scale = f64::from(self.task.config().scale_bits).exp2();
        let weights: Vec<f64> = self.numbers[user].iter().map(|&number| number as f64 / scale).collect();
        let update = Update::new(SparseVector::from_dense(&weights)?);
        let sealed = self.users[user].seal_in(params, &update, &mut self.rng, ONE)?;
        let bytes = sealed.to_bytes();
        let masked = self.task.receipts() == Receipts::Masked;
        let (blind, rest) = bytes.split_at(if masked { 32 } else { 0 });
        Ok(Sent {
            user: sealed.user(),
            salt: sealed.salt(),
            sealed: self.key.decode(rest, ONE)?,
            ticket: params.ticket(),
            blind: blind.try_into().ok(),
        })
    }

    /// The aggregator submits a sum and lists these uploads. From the answer, it removes its part of the masks of
    /// those that are in the sum, of those that are listed, or of none, and publishes each of the results.
    pub(super) fn submit(
        &mut self,
        round: &Open,
        sum: &Sealed,
        listed: &[&Sent],
        included: &[&Sent],
    ) -> Result<Answer, Error> {
        let bytes = self.key.encode(sum, ONE)?;
        let (users, salts) = listed.iter().map(|sent| (sent.user, sent.salt)).unzip();
        let params = SumParams { params: round.params.clone(), users, salts, occupied: 0 };
        let sealed = SealedSum::from_bytes(&bytes, &params)?;
        let opened = match self.key_generator.open(sealed, &mut self.rng, ONE) {
            Ok(opened) => opened,
            Err(dphe::Error::RoundFailed) => {
                return Ok(Answer { readings: Vec::new(), accepted: None, residues: Vec::new() });
            }
            Err(error) => return Err(error.into()),
        };
        let bytes = match opened {
            OpenedSum::Masked(_) => opened.to_bytes(),
            OpenedSum::Clear(sum) => {
                let sum = sum.weights().to_vec();
                return Ok(Answer { readings: vec![sum.clone()], accepted: Some(sum), residues: Vec::new() });
            }
        };
        let masked: Vec<Plaintext> = bytes
            .chunks_exact(self.key.modulus_bytes())
            .map(|residue| Plaintext::from_residue_bytes(&self.key, residue))
            .collect::<Result<_, _>>()?;
        let ways = [self.unmask(&masked, included)?, self.unmask(&masked, listed)?, masked];
        let accepted = ways.iter().find_map(|residues| self.accepted(round, residues, listed.len()));
        let readings = ways.iter().map(|residues| self.slots(residues)).collect();
        let [residues, ..] = ways;
        Ok(Answer { readings, accepted, residues })
    }

    fn unmask(&self, residues: &[Plaintext], uploads: &[&Sent]) -> Result<Vec<Plaintext>, Error> {
        let mut residues = residues.to_vec();
        for sent in uploads {
            let blind = sent.blind.unwrap_or_default();
            let masks = hazmat::aggregator_masks(&self.key, blind, sent.ticket, sent.user, residues.len())?;
            for (residue, mask) in residues.iter_mut().zip(&masks) {
                *residue = residue.minus(mask)?;
            }
        }
        Ok(residues)
    }

    /// Returns the sum that some honest user makes of published residues.
    pub(super) fn accepted(&self, round: &Open, residues: &[Plaintext], users: usize) -> Option<Vec<i64>> {
        let bytes: Vec<u8> =
            residues.iter().flat_map(|residue| residue.to_residue_bytes().to_vec()).collect();
        let context = SumContext { params: &round.params, users, key: &self.key };
        let check = |user: &User| -> Result<WeightSum, dphe::Error> {
            UncheckedSum::from_bytes(&bytes, &context)?.check(user)
        };
        self.users[..ACCOMPLICE].iter().find_map(|user| Some(check(user).ok()?.weights().to_vec()))
    }

    /// Reads the numbers of residues without any check, all but those of the check itself.
    fn slots(&self, residues: &[Plaintext]) -> Vec<i64> {
        let packed = residues.split_last().map_or(residues, |(_, packed)| packed);
        let mut all: Vec<i64> = packed.iter().flat_map(|residue| self.slots_of(residue)).collect();
        all.truncate(self.task.dimension());
        all
    }

    fn slots_of(&self, residue: &Plaintext) -> Vec<i64> {
        let (negative, magnitude) = residue.sign_and_magnitude();
        let bit = |at: usize| {
            let byte = magnitude.len().checked_sub(1 + at / 8).map_or(0, |byte| magnitude[byte]);
            i64::from(byte >> (at % 8) & 1)
        };
        let width = self.layout.slot_bits() as usize;
        let mut carry = 0;
        let slot = |slot: usize| {
            let digit = (0..width).fold(0, |digit, i| digit | bit(slot * width + i) << i) + carry;
            carry = i64::from(digit >= 1 << (width - 1));
            let value = digit - (carry << width);
            if negative { -value } else { value }
        };
        (0..self.layout.slots()).map(slot).collect()
    }

    /// Adds up sealed numbers, each this many times.
    pub(super) fn sum<'a>(
        &self,
        terms: impl IntoIterator<Item = (&'a Sealed, i64)>,
    ) -> Result<Sealed, Error> {
        let mut sum: Option<Sealed> = None;
        for (term, times) in terms {
            let multiple = self.key.mul_small_vartime(term, &vec![times; term.len()], ONE)?;
            sum = Some(match sum {
                None => multiple,
                Some(sum) => self.key.add(&sum, &multiple, ONE)?,
            });
        }
        Ok(sum.unwrap_or_default())
    }

    /// Adds up uploads.
    pub(super) fn sum_of(&self, sent: &[Sent]) -> Result<Sealed, Error> {
        self.sum(sent.iter().map(|sent| (&sent.sealed, 1)))
    }

    /// Adds up the uploads of all users but the victim.
    pub(super) fn without_victim(&self, sent: &[Sent]) -> Result<Sealed, Error> {
        self.sum_of(&sent[VICTIM + 1..])
    }

    /// Gives ciphertexts new noise, so that they cannot be recognised.
    pub(super) fn rerandomize(&mut self, sealed: &mut Sealed) -> Result<(), Error> {
        Ok(self.key.rerandomize(sealed, &mut self.rng, ONE)?)
    }

    pub(super) fn small(&self, number: i128) -> Result<Plaintext, Error> {
        Ok(Plaintext::new(&self.key, number)?)
    }

    pub(super) fn encrypt(&mut self, plaintext: &Plaintext) -> Result<Ciphertext, Error> {
        Ok(self.key.encrypt(plaintext, &mut self.rng)?)
    }

    /// Multiplies residues by a small number.
    pub(super) fn scale(&self, residues: &[Plaintext], factor: i32) -> Result<Vec<Plaintext>, Error> {
        let zero = self.small(0)?;
        let scale = |residue: &Plaintext| -> Result<Plaintext, Error> {
            let mut sum = ResidueSum::new(&self.key);
            sum.add_product(factor.unsigned_abs().into(), residue)?;
            Ok(if factor < 0 { zero.minus(&sum.reduce())? } else { sum.reduce() })
        };
        residues.iter().map(scale).collect()
    }

    /// Multiplies a ciphertext by -1 modulo `n²`.
    pub(super) fn negated(&self, ciphertext: &Ciphertext) -> Result<Ciphertext, Error> {
        let bytes = self.key.encode(core::slice::from_ref(ciphertext), ONE)?;
        // c = c1 n + c0, so -c = (n - 1 - c1) n + (n - c0)
        let (c1, c0) = bytes.split_at(self.key.modulus_bytes());
        let n = self.key.modulus_be_bytes();
        let mut below = n.clone();
        // n is odd
        below.iter_mut().next_back().into_iter().for_each(|last| *last -= 1);
        let negated = self.key.decode(&[difference(&below, c1), difference(&n, c0)].concat(), ONE)?;
        negated.into_iter().next().ok_or(Error::Protocol(dphe::Error::RoundFailed))
    }
}

/// The difference of two big-endian numbers of the same length, of which the second is not larger.
fn difference(x: &[u8], y: &[u8]) -> Vec<u8> {
    let mut difference = x.to_vec();
    let mut borrow = false;
    for (d, &y) in difference.iter_mut().zip(y).rev() {
        let (less, under) = d.overflowing_sub(y);
        let (less, under_borrow) = less.overflowing_sub(u8::from(borrow));
        (*d, borrow) = (less, under | under_borrow);
    }
    difference
}
