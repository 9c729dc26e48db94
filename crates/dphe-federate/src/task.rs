//! Proposals of a task for a model and a payload.

use dphe::{ClipRule, Profile, TaskConfig};
use dphe_learn::update::{Overflow, Payload, UpdateKind};
use dphe_learn::{Dataset, Real, Weights};

use crate::{Error, PayloadName, Weighting};

/// The size of a model: what a proposal needs to know about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelSize {
    /// Features per sample.
    pub features: usize,
    /// Classes.
    pub classes: usize,
    /// The largest absolute value of an initial weight; 0 if nothing is known.
    pub largest_weight: f64,
}

impl ModelSize {
    /// Returns the size of a model.
    pub fn of(model: &Weights) -> Self {
        let largest_weight = model.flat().iter().fold(0.0f64, |most, weight| most.max(weight.abs()));
        Self { features: model.features(), classes: model.classes(), largest_weight }
    }

    /// Fails unless the data have the shape of the model.
    ///
    /// # Errors
    /// [`dphe_learn::Error::Shape`].
    pub fn check_data<T: Real>(self, data: &Dataset<T>) -> Result<(), dphe_learn::Error> {
        for (what, expected, found) in [
            ("features", self.features, data.features().width()),
            ("classes", self.classes, data.labels().class_count()),
        ] {
            if expected != found {
                return Err(dphe_learn::Error::Shape { what, expected, found });
            }
        }
        Ok(())
    }

    /// Returns the number of weights.
    pub fn dimension(self) -> usize {
        self.features.saturating_mul(self.classes)
    }
}

/// Proposes a task in which updates with this payload are summed for this model. Key length, noise, minimum numbers of
/// users and, for `rotate`, the capacity (a tenth of the features) are those of [`TaskConfig::new`]; change them as
/// needed.
///
/// The range is eight times the largest initial weight, and at least eight for whole classifiers, with 16 fractional
/// bits or as many as leave 14 below the range. *Differences* outside the range are clipped and counted; the next round
/// learns what is missing. Whole classifiers outside the range are refused. Intercepts have their own range, see
/// [`intercept_scale`](crate::intercept_scale). Tasks for `w-l1` and `d-l1` have one more dense value, the share of
/// weights that L1 left, for the controller of the strength.
///
/// # Errors
/// If the payload does not fit the profile, or the model is too large for any task.
pub fn propose(
    profile: Profile,
    payload: Payload,
    initial: &Weights,
    max_users: u32,
    weighting: Weighting,
) -> Result<TaskConfig, Error> {
    propose_for(profile, payload, ModelSize::of(initial), max_users, weighting)
}

pub(crate) fn propose_for(
    profile: Profile,
    payload: Payload,
    model: ModelSize,
    max_users: u32,
    weighting: Weighting,
) -> Result<TaskConfig, Error> {
    weighting.check()?;
    check_pair(profile, payload)?;
    let size = |what, count: usize| {
        u32::try_from(count).map_err(|_| Error::Shape { what, task: u32::MAX as usize, model: count })
    };
    let classes = size("classes", model.classes)?;
    size("weights", model.dimension())?;
    let mut config = TaskConfig::new(profile, classes, size("features", model.features)?, max_users);
    config.dense = classes + weighting.values() as u32 + u32::from(payload.is_sparse_by_l1());
    config.clip_exponent = clip_exponent(payload.kind(), model.largest_weight);
    if payload.kind() == UpdateKind::Difference {
        config.clip_rule = ClipRule::Clip;
    }
    let below_range = (BITS_BELOW_RANGE - i16::from(config.clip_exponent)).clamp(0, u8::MAX.into()) as u8;
    // Weighted values are smaller, so they need as many more fractional bits.
    config.scale_bits = config.scale_bits.max(below_range) + weighting.bits();

    let (block, capacity) = match payload {
        // A position is a feature, and a round has a tenth of them.
        Payload::Rotating => (config.block, config.capacity as usize),
        // All weights are sent, so the layout matters only for packing.
        Payload::All => (config.block, usize::MAX),
        _ if profile == Profile::Full => (config.block, usize::MAX),
        Payload::LargestBlocks { width, blocks: capacity, .. } if profile == Profile::Sparse => {
            (size("weights of a block", width)?, capacity)
        }
        Payload::LargestBlocks { width, blocks: capacity, .. } => (1, capacity.saturating_mul(width)),
        Payload::SparseWeights { weights: capacity, .. }
        | Payload::SparseDifferences { weights: capacity, .. }
        | Payload::LargestWeights { weights: capacity }
        | Payload::LargestDifferences { weights: capacity, .. } => (1, capacity),
    };
    config.block = block;
    config.capacity = u32::try_from(capacity).unwrap_or(u32::MAX).min(config.positions());
    if overflows_into_shards(payload) && profile == Profile::Paper {
        config.shards = config.positions().div_ceil(config.capacity.max(1));
    }
    Ok(config)
}

/// Fails unless the payload fits the profile.
pub(crate) fn check_pair(profile: Profile, payload: Payload) -> Result<(), Error> {
    let unsuited = |remedy| Err(Error::Unsuited { payload: PayloadName::of(payload), profile, remedy });
    match (payload, profile) {
        (Payload::Rotating, Profile::Sparse | Profile::Paper) => {
            unsuited("its features are public, so use `full`, or a payload that chooses weights privately")
        }
        (_, Profile::Sparse) if overflows_into_shards(payload) => {
            unsuited("all users must send the same number of shards, so truncate updates or use `paper`")
        }
        _ => Ok(()),
    }
}

fn overflows_into_shards(payload: Payload) -> bool {
    matches!(
        payload,
        Payload::SparseWeights { overflow: Overflow::Shard, .. }
            | Payload::SparseDifferences { overflow: Overflow::Shard, .. }
    )
}

/// Rounding to this many bits below the range has no measurable influence on accuracy.
const BITS_BELOW_RANGE: i16 = 14;

/// Returns the exponent of a range of eight times the largest initial weight, because weights grow over rounds. On real
/// features, the largest difference of a round is 1 to 3 times that weight, and 8.5 times in the first round of
/// `rotate`, where a tenth of the features learns what all could. A model of zeros gives no information except that
/// steps change margins by 1.
fn clip_exponent(kind: UpdateKind, largest: f64) -> i8 {
    let largest = match kind {
        UpdateKind::Weights => largest.max(1.0),
        UpdateKind::Difference if largest == 0.0 => 1.0 / 8.0,
        UpdateKind::Difference => largest,
    };
    // A range that does not fit a slot is refused with the task.
    (8.0 * largest).log2().ceil().clamp(f64::from(SMALLEST_RANGE), f64::from(i8::MAX)) as i8
}

/// The exponent of the smallest range. A smaller one needs more fractional bits than a task may have.
const SMALLEST_RANGE: i8 = -16;

#[cfg(test)]
mod tests {
    use dphe::{TaskId, TaskParams};

    use super::*;

    fn model(weight: f64) -> Weights {
        Weights::new(20, vec![weight; 100], vec![0.5; 5]).unwrap()
    }

    #[test]
    fn positions_follow_the_payload() {
        let of = |profile, payload| {
            let config = propose(profile, payload, &model(0.1), 8, Weighting::Equal).unwrap();
            (config.block, config.capacity, config.shards)
        };
        assert_eq!(of(Profile::Full, Payload::Rotating), (5, 2, 1));
        assert_eq!(of(Profile::Full, Payload::All), (5, 20, 1));
        let blocks = Payload::LargestBlocks { width: 5, blocks: 3, feedback: 0.9 };
        assert_eq!(of(Profile::Sparse, blocks), (5, 3, 1));
        assert_eq!(of(Profile::Paper, blocks), (1, 15, 1));
        let largest = Payload::LargestDifferences { weights: 1000, feedback: 0.9 };
        assert_eq!(of(Profile::Sparse, largest), (1, 100, 1));
        let paper = Payload::SparseWeights { weights: 30, overflow: Overflow::Shard };
        assert_eq!(of(Profile::Paper, paper), (1, 30, 4));
        let refused = propose(Profile::Sparse, paper, &model(0.1), 8, Weighting::Equal);
        assert!(matches!(refused, Err(Error::Unsuited { payload: PayloadName::WL1, .. })));
        let refused = propose(Profile::Sparse, Payload::Rotating, &model(0.1), 8, Weighting::Equal);
        assert!(matches!(refused, Err(Error::Unsuited { payload: PayloadName::Rotate, .. })));
    }

    #[test]
    fn the_range_follows_the_initial_model_and_counts_widen_the_scale() {
        let of = |payload, weight, weighting| {
            let profile = if payload == Payload::Rotating { Profile::Full } else { Profile::Sparse };
            let config = propose(profile, payload, &model(weight), 8, weighting).unwrap();
            (config.clip_exponent, config.scale_bits, config.dense, config.clip_rule)
        };
        let (rotate, equal) = (Payload::Rotating, Weighting::Equal);
        assert_eq!(of(rotate, 0.1, equal), (0, 16, 5, ClipRule::Clip));
        assert_eq!(of(rotate, 0.03, equal), (-2, 16, 5, ClipRule::Clip));
        assert_eq!(of(rotate, 1.1, equal), (4, 16, 5, ClipRule::Clip));
        assert_eq!(of(rotate, 1e200, equal).0, 127);
        // A model of zeros, and weights so small that they need more fractional bits.
        assert_eq!(of(rotate, 0.0, equal), (0, 16, 5, ClipRule::Clip));
        assert_eq!(of(rotate, 1e-4, equal), (-10, 24, 5, ClipRule::Clip));
        assert_eq!(of(rotate, 1e-300, equal), (-16, 30, 5, ClipRule::Clip));
        let samples = Weighting::Samples { most: 4096 };
        assert_eq!(of(rotate, 0.1, samples), (0, 28, 6, ClipRule::Clip));
        // Whole classifiers are not clipped, and tasks for L1 have one more dense value.
        let weights = Payload::SparseWeights { weights: 30, overflow: Overflow::Truncate };
        assert_eq!(of(weights, 0.03, equal), (3, 16, 6, ClipRule::Refuse));
        assert_eq!(of(weights, 1.1, samples), (4, 28, 7, ClipRule::Refuse));
        let odd = Weighting::Samples { most: 1000 };
        assert!(propose(Profile::Full, Payload::Rotating, &model(0.1), 8, odd).is_err());
    }

    #[test]
    fn a_tenth_of_two_thousand_features_of_a_hundred_classes_takes_185_ciphertexts_of_2048_bits() {
        let initial = Weights::new(2048, vec![0.026; 2048 * 101], vec![2.0; 101]).unwrap();
        let mut config = propose(Profile::Full, Payload::Rotating, &initial, 8, Weighting::Equal).unwrap();
        config.key_bits = 2048;
        let task = TaskParams::new(TaskId::from_bytes([0; 16]), config).unwrap();
        assert_eq!((task.slot_bits(), task.slots()), (18, 113));
        assert_eq!((task.capacity() * task.block() + task.dense()).div_ceil(task.slots()), 185);
    }
}
