//! Rounds of a vector that any program trains: what an update carries, and the next vector.

use dphe::{ClipRule, Profile, PublicSupport, Receipts, Round, TaskConfig, TaskParams, Update, WeightSum};
use dphe_learn::select;
use dphe_learn::update::Residual;
use serde::Deserialize;

use super::Codec;
use crate::spec::check_server_step;
use crate::{
    DEFAULT_OUTSIZE, EncryptionSpec, Error, LearnerSpec, PayloadName, PayloadSize, RoundResidual, ValueSum,
    Weighting,
};

/// What the updates of a vector carry: the section `[update]` of a task file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorSpec {
    /// What an update carries: `rotate`, `all`, `d-topk` or `d-block`.
    pub payload: PayloadName,
    /// The share of the vector that an update carries; a tenth if absent. `all` has none.
    pub share: Option<f64>,
    /// The number of values per position, chosen by [`VectorSpec::propose`] if absent.
    pub block: Option<u32>,
    /// The share of what an update leaves out that is added to the next one.
    #[serde(default = "LearnerSpec::default_feedback")]
    pub feedback: f64,
    /// The factor applied to the average of differences before it is added to the vector.
    #[serde(default = "one")]
    pub server_step: f64,
}

fn one() -> f64 {
    1.0
}

/// With more public positions than this, drawing them takes longer than encrypting.
const MOST_PUBLIC_POSITIONS: u32 = 1 << 16;
/// The values of a block in `d-block`, if a plaintext holds as many.
const PRIVATE_BLOCK: u32 = 64;
/// The fractional bits of a difference. Differences of networks are much smaller than those of linear models.
const SCALE_BITS: u8 = 20;

impl VectorSpec {
    /// Creates a specification with a tenth of the vector, the usual feedback and a server step of 1.
    pub fn new(payload: PayloadName) -> Self {
        let (share, block) = (None, None);
        Self { payload, share, block, feedback: LearnerSpec::default_feedback(), server_step: 1.0 }
    }

    /// Fails on a payload that vectors do not have, and on numbers out of range.
    ///
    /// # Errors
    /// [`Error::VectorPayload`] or [`Error::Parameter`].
    pub fn check(&self) -> Result<(), Error> {
        let parameter = |name, value, remedy| Err(Error::Parameter { name, value, remedy });
        match self.payload {
            PayloadName::Rotate | PayloadName::All | PayloadName::DTopk | PayloadName::DBlock => {}
            PayloadName::DL1 | PayloadName::WTopk | PayloadName::WL1 => {
                return Err(Error::VectorPayload { payload: self.payload });
            }
        }
        match self.share {
            Some(share) if self.payload == PayloadName::All => {
                return parameter(
                    "share",
                    share,
                    "leave it out, because the payload `all` carries everything",
                );
            }
            Some(share) if !(share > 0.0 && share <= 1.0) => {
                return parameter("share", share, "use a number above 0 and up to 1, such as 0.1");
            }
            _ => {}
        }
        if !(0.0..=1.0).contains(&self.feedback) {
            let remedy = "use a number from 0 (forget) to 1 (keep all), normally 0.9";
            return parameter("feedback", self.feedback, remedy);
        }
        check_server_step(self.server_step)
    }

    /// Returns the share of a vector that an update carries.
    pub fn share(&self) -> f64 {
        match self.payload {
            PayloadName::All => 1.0,
            _ => self.share.unwrap_or(PayloadSize::DEFAULT_SHARE),
        }
    }

    /// Proposes the task for a vector of this length. `users` is the smallest and the largest number of users in a sum.
    ///
    /// Differences have 20 fractional bits and a range of one, unless `encryption` says otherwise. What exceeds the
    /// range is kept in the residual. A position holds one value for `d-topk`, up to 64 for `d-block`, and otherwise
    /// as many as leave at most 65,536 positions.
    ///
    /// # Errors
    /// If the payload does not fit the profile, or a number is out of range.
    pub fn propose(
        &self,
        encryption: &EncryptionSpec,
        dimension: u32,
        users: core::ops::RangeInclusive<u32>,
    ) -> Result<TaskConfig, Error> {
        self.check()?;
        let profile = encryption.profile;
        if profile == Profile::Full && !self.has_public_positions() {
            return Err(
                self.unsuited(profile, "its positions are private, so use `sparse`, `rotate` or `all`")
            );
        }
        if profile != Profile::Full && self.has_public_positions() {
            return Err(
                self.unsuited(profile, "its positions are public, so use `full`, `d-topk` or `d-block`")
            );
        }
        let mut config = TaskConfig::new(profile, 1, dimension, *users.end());
        config.min_users = *users.start();
        config.min_percent = encryption.min_percent;
        config.key_bits = encryption.key_bits;
        config.noise = encryption.noise;
        config.outsize = DEFAULT_OUTSIZE;
        config.clip_rule = ClipRule::Clip;
        // as double numbers, with a header; a task file with a model says its exact length
        config.max_model_bytes = u32::try_from(u64::from(dimension) * 8 + 64 * 1024).unwrap_or(u32::MAX);
        config.scale_bits = encryption.scale_bits.unwrap_or(SCALE_BITS);
        config.clip_exponent = encryption.clip_exponent.unwrap_or(0);
        if !encryption.bind_sums {
            config.receipts = Receipts::None;
        }
        config.block = match (self.block, self.payload) {
            (Some(block), PayloadName::DTopk) if block != 1 => {
                return Err(
                    self.unsuited(profile, "it chooses single values, so set `block` to 1 or use `d-block`")
                );
            }
            (Some(block), _) => block,
            (None, PayloadName::DTopk) => 1,
            (None, PayloadName::DBlock) => PRIVATE_BLOCK.min(config.slots()).min(dimension),
            (None, _) => dimension.div_ceil(MOST_PUBLIC_POSITIONS),
        }
        .max(1);
        let positions = config.positions();
        let capacity = PayloadSize::Share(self.share()).of(positions as usize);
        config.capacity = u32::try_from(capacity).unwrap_or(u32::MAX).min(positions);
        Ok(config)
    }

    fn has_public_positions(&self) -> bool {
        matches!(self.payload, PayloadName::Rotate | PayloadName::All)
    }

    fn unsuited(&self, profile: Profile, remedy: &'static str) -> Error {
        Error::Unsuited { payload: self.payload, profile, remedy }
    }
}

/// How the rounds of a vector are computed. All parties know it.
#[derive(Clone, Debug)]
pub struct VectorRules {
    task: TaskParams,
    codec: Codec,
    spec: VectorSpec,
}

/// A user's update, and how many of its values were outside the task's range. Secret.
#[derive(Clone, Debug)]
pub struct VectorUpdate {
    /// The update, ready to be sealed.
    pub update: Update,
    /// The number of values whose excess stays in the residual.
    pub clipped: usize,
}

impl VectorRules {
    /// Creates the rules of a task in which users count equally.
    ///
    /// # Errors
    /// If a number is out of range, or the payload does not fit the task.
    pub fn new(task: TaskParams, spec: VectorSpec) -> Result<Self, Error> {
        spec.check()?;
        let profile = task.profile();
        if task.has_private_support() == spec.has_public_positions() {
            return Err(spec
                .unsuited(profile, "use `rotate` or `all` in `full`, and `d-topk` or `d-block` elsewhere"));
        }
        let is_part = task.capacity() < task.positions() as usize;
        if spec.payload == PayloadName::All && is_part {
            return Err(
                spec.unsuited(profile, "the task's updates carry a share of the vector, so use `rotate`")
            );
        }
        let codec = Codec::new(&task, Weighting::Equal)?;
        Ok(Self { task, codec, spec })
    }

    /// Returns the task.
    pub fn task(&self) -> &TaskParams {
        &self.task
    }

    /// Makes a user's update from what it has learnt: the differences to the public vector. What the update leaves out
    /// is added to `residual` once the update is known to be in the sum.
    ///
    /// # Errors
    /// If the differences do not have the length of the task, or one of them is not finite.
    pub fn update(
        &self,
        round: Round,
        support: &PublicSupport,
        mut differences: Vec<f64>,
        residual: &mut RoundResidual,
    ) -> Result<VectorUpdate, Error> {
        let (what, task, model) = ("weights", self.task.dimension(), differences.len());
        if task != model {
            return Err(Error::Shape { what, task, model });
        }
        residual.settled().add_to(&mut differences)?;
        if let Some(index) = differences.iter().position(|value| !value.is_finite()) {
            return Err(dphe_learn::Error::NotFinite { what: "difference", index }.into());
        }
        // the largest number of the fixed point, so that the residual holds exactly what is not sealed
        let config = self.task.config();
        let limit = 2f64.powi(config.clip_exponent.into()) - 2f64.powi(-i32::from(config.scale_bits));
        let mut clipped = 0;
        let mut entries = Vec::new();
        for index in self.chosen(support, &differences) {
            let value = differences[index].clamp(-limit, limit);
            clipped += usize::from(value != differences[index]);
            differences[index] -= value;
            entries.push((index, value));
        }
        let update = self.codec.encode(entries, &[], &[], 1)?;
        let mut next = Residual::new();
        next.keep(differences, self.spec.feedback);
        residual.await_end(round, next);
        Ok(VectorUpdate { update, clipped })
    }

    /// Returns the indices that the update carries, ascending.
    fn chosen(&self, support: &PublicSupport, differences: &[f64]) -> Vec<usize> {
        let positions = self.task.capacity() * self.task.config().shards as usize;
        match self.spec.payload {
            PayloadName::DTopk => select::largest(differences, positions),
            PayloadName::DBlock => {
                let width = self.task.block();
                let blocks = select::largest_blocks(differences, width, positions);
                let of = |block: usize| block * width..differences.len().min((block + 1) * width);
                blocks.into_iter().flat_map(of).collect()
            }
            // the others are refused by `new`
            _ => support.indices().collect(),
        }
    }

    /// Returns what the opened sum of a round adds to the public vector: the average of differences, times the server
    /// step.
    ///
    /// # Errors
    /// If the sum is of another task.
    pub fn step(&self, sum: &WeightSum) -> Result<Vec<f64>, Error> {
        self.step_of(&ValueSum::of(&self.task, sum))
    }

    /// As [`VectorRules::step`], for a sum in floating point.
    ///
    /// # Errors
    /// As [`VectorRules::step`].
    pub fn step_of(&self, sum: &ValueSum) -> Result<Vec<f64>, Error> {
        let (mut mean, _) = self.codec.decode(sum)?.mean()?;
        mean.iter_mut().for_each(|value| *value *= self.spec.server_step);
        Ok(mean)
    }
}

#[cfg(test)]
mod tests {
    use dphe::{NoiseMode, TaskId};

    use super::*;

    fn spec(payload: PayloadName, share: Option<f64>) -> VectorSpec {
        VectorSpec { share, feedback: 0.5, ..VectorSpec::new(payload) }
    }

    fn config(spec: &VectorSpec, profile: Profile, dimension: u32) -> Result<TaskConfig, Error> {
        spec.propose(&EncryptionSpec::new(profile, 2048, NoiseMode::Fast), dimension, 3..=8)
    }

    fn rules(spec: VectorSpec, profile: Profile, dimension: u32) -> VectorRules {
        let config = config(&spec, profile, dimension).unwrap();
        VectorRules::new(TaskParams::new(TaskId::from_bytes([1; 16]), config).unwrap(), spec).unwrap()
    }

    fn round(number: u64) -> Round {
        Round::new(number).unwrap()
    }

    fn entries(update: &VectorUpdate) -> Vec<(u32, f64)> {
        let weights = update.update.weights();
        weights.indices().iter().copied().zip(weights.values().iter().copied()).collect()
    }

    #[test]
    fn what_an_update_leaves_out_or_clips_is_in_the_next_one_if_it_was_included() {
        let rules = rules(spec(PayloadName::DTopk, Some(0.5)), Profile::Sparse, 4);
        let mut residual = RoundResidual::default();
        let mut update = |number, values: [f64; 4], included| {
            let support = PublicSupport::of(rules.task(), round(number));
            let made = rules.update(round(number), &support, values.to_vec(), &mut residual).unwrap();
            residual.finish(round(number), included);
            (entries(&made), made.clipped)
        };
        // the range is 1 without the last fractional bit; half of what exceeds it or was not chosen stays
        let limit = 1.0 - 2f64.powi(-20);
        assert_eq!(update(1, [0.25, -1.5, 0.5, 0.0], true), (vec![(1, -limit), (2, 0.5)], 1));
        let rest = (limit - 1.5) / 2.0;
        // a round that does not count leaves the residual as it was: 0.125, the rest, 0, 0
        assert_eq!(update(2, [0.5, 0.0, 0.0, 0.25], false), (vec![(0, 0.625), (1, rest)], 0));
        assert_eq!(update(3, [0.0, 0.0, 0.0, 0.0], true), (vec![(0, 0.125), (1, rest)], 0));
        assert_eq!(update(4, [0.0, 0.0, 0.0, 0.0], true), (vec![], 0));
    }

    #[test]
    fn rotating_updates_carry_the_public_positions_and_blocks_the_longest_ones() {
        let rotate = rules(spec(PayloadName::Rotate, Some(0.25)), Profile::Full, 8);
        let support = PublicSupport::of(rotate.task(), round(2));
        let expected: Vec<u32> = support.indices().map(|index| index as u32).collect();
        let mut residual = RoundResidual::default();
        let made = rotate.update(round(2), &support, vec![0.125; 8], &mut residual).unwrap();
        assert_eq!(entries(&made).iter().map(|(index, _)| *index).collect::<Vec<_>>(), expected);
        assert_eq!(expected.len(), 2);

        let blocks = VectorSpec { block: Some(3), ..spec(PayloadName::DBlock, Some(0.3)) };
        let blocks = rules(blocks, Profile::Sparse, 7);
        let support = PublicSupport::of(blocks.task(), round(1));
        let values = vec![0.5, 0.0, 0.0, 0.25, 0.25, 0.0, 0.75];
        let made = blocks.update(round(1), &support, values, &mut RoundResidual::default()).unwrap();
        assert_eq!(entries(&made), [(6, 0.75)]);
    }

    #[test]
    fn the_average_times_the_server_step_is_added() {
        let all = VectorSpec { server_step: 2.0, ..spec(PayloadName::All, None) };
        let rules = rules(all, Profile::Full, 2);
        let sum = ValueSum { users: 4, weights: vec![1.0, -2.0], dense: Vec::new() };
        assert_eq!(rules.step_of(&sum).unwrap(), [0.5, -1.0]);
        let other = ValueSum { users: 4, weights: vec![1.0], dense: Vec::new() };
        assert!(rules.step_of(&other).is_err());
    }

    #[test]
    fn positions_follow_payload_and_length() {
        let of = |payload, profile, dimension| {
            let config = config(&VectorSpec::new(payload), profile, dimension).unwrap();
            (config.block, config.capacity)
        };
        assert_eq!(of(PayloadName::Rotate, Profile::Full, 1_000), (1, 100));
        assert_eq!(of(PayloadName::Rotate, Profile::Full, 10_000_000), (153, 6536));
        assert_eq!(of(PayloadName::All, Profile::Full, 1_000), (1, 1_000));
        assert_eq!(of(PayloadName::DTopk, Profile::Sparse, 1_000), (1, 100));
        assert_eq!(of(PayloadName::DBlock, Profile::Sparse, 6_400), (64, 10));
        assert_eq!(of(PayloadName::DBlock, Profile::Sparse, 10), (10, 1));
    }

    #[test]
    fn pairs_and_numbers_that_do_not_fit_are_refused() {
        let with = |payload| VectorSpec::new(payload);
        assert!(config(&with(PayloadName::Rotate), Profile::Sparse, 10).is_err());
        assert!(config(&with(PayloadName::DTopk), Profile::Full, 10).is_err());
        let error = config(&with(PayloadName::WL1), Profile::Sparse, 10).unwrap_err();
        assert_eq!(error, Error::VectorPayload { payload: PayloadName::WL1 });
        for bad in [
            VectorSpec { share: Some(0.0), ..with(PayloadName::Rotate) },
            VectorSpec { share: Some(0.5), ..with(PayloadName::All) },
            VectorSpec { feedback: 1.5, ..with(PayloadName::Rotate) },
            VectorSpec { server_step: f64::INFINITY, ..with(PayloadName::Rotate) },
        ] {
            assert!(matches!(config(&bad, Profile::Full, 10), Err(Error::Parameter { .. })), "{bad:?}");
        }
        let wide = VectorSpec { block: Some(2), ..with(PayloadName::DTopk) };
        assert!(config(&wide, Profile::Sparse, 10).is_err());

        let rotate = rules(with(PayloadName::Rotate), Profile::Full, 20);
        assert!(VectorRules::new(rotate.task().clone(), with(PayloadName::All)).is_err());
        assert!(VectorRules::new(rotate.task().clone(), with(PayloadName::DTopk)).is_err());
        let support = PublicSupport::of(rotate.task(), Round::FIRST);
        let mut residual = RoundResidual::default();
        assert!(rotate.update(Round::FIRST, &support, vec![0.0; 19], &mut residual).is_err());
        assert!(rotate.update(Round::FIRST, &support, vec![f64::NAN; 20], &mut residual).is_err());
        assert_eq!(residual, RoundResidual::default());
    }
}
