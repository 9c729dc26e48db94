//! Sealing of the packed numbers of an update, chunk by chunk, so that a long vector needs little memory.

use core::fmt;

use dphe_paillier::{Plaintext, ResidueSum, Threads};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use super::mask::{Blind, CheckKey, MaskKey, MaskStream, Salt};
use super::round_params::RoundParams;
use super::sealed::{SealedShard, SealedUpdate, SealedValues};
use super::user::{User, first_packed_place};
use crate::{Error, Receipts};

/// How many plaintexts are encrypted at once.
pub(super) const SEALED_AT_ONCE: usize = 512;

/// An update that is being sealed, see [`User::begin_seal`]. What it holds is secret until
/// [`finish`](Sealing::finish).
pub struct Sealing<'a> {
    user: &'a User,
    params: &'a RoundParams,
    shards: Vec<SealedShard>,
    pub(super) packed: PackedPlaintexts<'a>,
    /// Numbers that do not fill a plaintext yet.
    rest: Zeroizing<Vec<i64>>,
    /// How many numbers were given.
    given: usize,
    wire: Vec<u8>,
    salt: Salt,
    blind: Option<Blind>,
    pub(super) clipped: usize,
}

impl<'a> Sealing<'a> {
    /// Draws the salt of the masks, and begins with sealed shards and their plaintexts.
    pub(super) fn new(
        user: &'a User,
        params: &'a RoundParams,
        shards: Vec<SealedShard>,
        sent: &[(usize, Plaintext)],
        rng: &mut impl CryptoRng,
    ) -> Result<Self, Error> {
        let mut salt = [0; 16];
        rng.fill_bytes(&mut salt);
        let blind = (params.task().receipts() == Receipts::Masked).then(|| Blind::generate(rng));
        let packed = PackedPlaintexts::new(user, params, sent, &salt, blind.as_ref())?;
        let (rest, wire) = (Zeroizing::new(Vec::new()), Vec::new());
        Ok(Self { user, params, shards, packed, rest, given: 0, wire, salt, blind, clipped: 0 })
    }

    /// Returns how many numbers are still missing.
    pub fn missing(&self) -> usize {
        self.params.packed_values() - self.given
    }

    /// Adds the next numbers.
    ///
    /// # Errors
    /// [`Error::Value`] for a number that cannot be encoded, [`Error::Dimension`] for too many. After an error, drop
    /// the value: the update cannot be finished.
    pub fn push(&mut self, numbers: &[f64], rng: &mut impl CryptoRng, threads: Threads) -> Result<(), Error> {
        let first = self.given;
        let (integers, clipped) =
            self.params.task().fixed_point().encode_all(numbers).map_err(|error| match error {
                Error::Value { index, reason } => Error::Value { index: self.name(first + index), reason },
                other => other,
            })?;
        self.clipped += clipped;
        self.push_integers(&integers, rng, threads)
    }

    /// Adds the next numbers in fixed point.
    pub(super) fn push_integers(
        &mut self,
        numbers: &[i64],
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<(), Error> {
        if numbers.len() > self.missing() {
            let (expected, found) = (self.params.packed_values(), self.given + numbers.len());
            return Err(Error::Dimension { what: "numbers", expected, found });
        }
        if self.wire.is_empty() {
            let width = 2 * self.user.keys().encryption.modulus_bytes();
            self.wire.reserve_exact(width * self.params.packed_ciphertexts());
        }
        self.given += numbers.len();
        let slots = self.params.task().slots();
        // first what completes a plaintext
        let (first, numbers) = numbers.split_at(numbers.len().min((slots - self.rest.len()) % slots));
        self.rest.extend_from_slice(first);
        if self.rest.len() == slots {
            let rest = core::mem::take(&mut self.rest);
            self.encrypt(&rest, rng, threads)?;
        }
        let (whole, rest) = numbers.split_at(numbers.len() - numbers.len() % slots);
        for chunk in whole.chunks(SEALED_AT_ONCE * slots) {
            self.encrypt(chunk, rng, threads)?;
        }
        self.rest.extend_from_slice(rest);
        Ok(())
    }

    /// Ends the update.
    ///
    /// # Errors
    /// [`Error::Dimension`] if numbers are missing.
    pub fn finish(mut self, rng: &mut impl CryptoRng, threads: Threads) -> Result<SealedUpdate, Error> {
        if self.missing() > 0 {
            let (expected, found) = (self.params.packed_values(), self.given);
            return Err(Error::Dimension { what: "numbers", expected, found });
        }
        let rest = core::mem::take(&mut self.rest);
        let mut last = self.packed.plaintexts(&rest)?;
        last.extend(self.packed.check()?);
        self.append(&last, rng, threads)?;
        let Self { user, params, shards, wire, salt, blind, clipped, .. } = self;
        let sealed = SealedUpdate {
            task: params.task().clone(),
            user: user.id(),
            round: params.round(),
            shards,
            packed: SealedValues::from_wire(wire),
            salt,
            blind,
            clipped,
        };
        user.check_noise(&sealed)?;
        Ok(sealed)
    }

    fn encrypt(&mut self, numbers: &[i64], rng: &mut impl CryptoRng, threads: Threads) -> Result<(), Error> {
        let plaintexts = self.packed.plaintexts(numbers)?;
        self.append(&plaintexts, rng, threads)
    }

    fn append(
        &mut self,
        plaintexts: &[Plaintext],
        rng: &mut impl CryptoRng,
        threads: Threads,
    ) -> Result<(), Error> {
        self.wire.extend_from_slice(self.user.encrypt(plaintexts, rng, threads)?.as_wire());
        Ok(())
    }

    /// Returns the index of a number among the weights, or among the dense values.
    fn name(&self, place: usize) -> usize {
        let dense = self.params.packed_values() - self.params.task().dense();
        if place >= dense {
            place - dense
        } else {
            self.params.support().indices().nth(place).unwrap_or(place)
        }
    }
}

impl fmt::Debug for Sealing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealing({:?}, {} numbers missing)", self.params.round(), self.missing())
    }
}

/// Packs numbers into plaintexts, in order, masks them, and computes their check.
pub(super) struct PackedPlaintexts<'a> {
    user: &'a User,
    check: Option<(CheckKey, ResidueSum)>,
    masks: Vec<MaskStream>,
    /// The place of the next plaintext in the check.
    place: usize,
}

impl<'a> PackedPlaintexts<'a> {
    fn new(
        user: &'a User,
        params: &RoundParams,
        sent: &[(usize, Plaintext)],
        salt: &Salt,
        blind: Option<&Blind>,
    ) -> Result<Self, Error> {
        let (place, key) = (first_packed_place(params), &user.keys().encryption);
        let mut this = Self { user, check: None, masks: Vec::new(), place };
        if params.task().receipts() == Receipts::None {
            return Ok(this);
        }
        let check = user.check_key(params)?;
        let mut sum = check.begin(1)?;
        sent.iter().try_for_each(|(place, plaintext)| check.add(&mut sum, *place, plaintext))?;
        this.check = Some((check, sum));
        let mask = MaskKey::of_key_generator(&user.keys().mask, params, user.id(), salt)?;
        this.masks.push(mask.stream(key));
        this.masks.extend(blind.map(|blind| blind.mask(params.ticket(), user.id()).stream(key)));
        Ok(this)
    }

    /// Returns the plaintexts of the next numbers, masked. All but the last call give whole plaintexts.
    pub(super) fn plaintexts(&mut self, numbers: &[i64]) -> Result<Vec<Plaintext>, Error> {
        let packed = self.user.layout().pack(&self.user.keys().encryption, numbers).map_err(Error::Key)?;
        if let Some((check, sum)) = &mut self.check {
            for (place, plaintext) in (self.place..).zip(&packed) {
                check.add(sum, place, plaintext)?;
            }
        }
        self.place += packed.len();
        packed.into_iter().map(|plaintext| self.mask(plaintext)).collect()
    }

    /// Returns the check of all plaintexts so far, masked, if the task has one.
    pub(super) fn check(&mut self) -> Result<Option<Plaintext>, Error> {
        let check = self.check.take().map(|(_, sum)| sum.reduce());
        check.map(|check| self.mask(check)).transpose()
    }

    fn mask(&mut self, plaintext: Plaintext) -> Result<Plaintext, Error> {
        if self.masks.is_empty() {
            return Ok(plaintext);
        }
        let mut sum = ResidueSum::new(&self.user.keys().encryption);
        sum.add(&plaintext).map_err(Error::Key)?;
        self.masks.iter_mut().try_for_each(|masks| masks.add_to(&mut sum))?;
        Ok(sum.reduce())
    }
}
