//! A task for a model and a message: a proposal to start from.

use dphe::{ClipRule, Profile, TaskConfig};
use dphe_learn::Weights;
use dphe_learn::update::{Message, Overflow, UpdateKind};

use crate::{Error, Weighting};

/// Proposes a task for a message about this model. Key length, noise, shares of users and, for `rotate`, the capacity
/// (a tenth of the features) are those of [`TaskConfig::new`], to be changed as wanted.
///
/// The range is eight times the largest initial weight, at least eight for whole classifiers, with 16 fractional
/// bits, or so many that 14 are below the range. *Differences* beyond it are cut to it, which costs little (what is
/// missing is learnt again in the next round) and is counted; whole classifiers beyond it are refused. Intercepts
/// have a range of their own, see [`intercept_scale`](crate::average::intercept_scale). For `w-l1` and `d-l1` there
/// is one more dense value, the share of weights that L1 left, for the controller of the strength.
///
/// # Errors
/// If the message does not go with the profile, or the model is too large for any task.
pub fn propose(
    profile: Profile,
    message: Message,
    initial: &Weights,
    max_users: u32,
    weighting: Weighting,
) -> Result<TaskConfig, Error> {
    weighting.check()?;
    check_pair(profile, message)?;
    let size = |what, count: usize| {
        u32::try_from(count).map_err(|_| Error::Shape { what, task: u32::MAX as usize, model: count })
    };
    let classes = size("classes", initial.classes())?;
    size("weights", initial.dimension())?;
    let mut config = TaskConfig::new(profile, classes, size("features", initial.features())?, max_users);
    config.dense = classes + weighting.values() as u32 + u32::from(message.is_sparse_by_l1());
    config.clip_exponent = clip_exponent(message.kind(), initial);
    if message.kind() == UpdateKind::Difference {
        config.clip_rule = ClipRule::Clip;
    }
    let below_range = (BITS_BELOW_RANGE - i16::from(config.clip_exponent)).clamp(0, u8::MAX.into()) as u8;
    // counts make numbers smaller, so they need as many more fractional bits
    config.scale_bits = config.scale_bits.max(below_range) + weighting.bits();

    let (block, capacity) = match message {
        // a feature is a position, a tenth of them a round
        Message::Rotating => (config.block, config.capacity as usize),
        // everything travels: the layout matters only where blocks are packed
        Message::Full => (config.block, usize::MAX),
        _ if profile == Profile::Full => (config.block, usize::MAX),
        Message::LargestBlocks { width, capacity, .. } if profile == Profile::Sparse => {
            (size("weights of a block", width)?, capacity)
        }
        Message::LargestBlocks { width, capacity, .. } => (1, capacity.saturating_mul(width)),
        Message::SparseWeights { capacity, .. }
        | Message::SparseDifferences { capacity, .. }
        | Message::LargestWeights { capacity }
        | Message::LargestDifferences { capacity, .. } => (1, capacity),
    };
    config.block = block;
    config.capacity = u32::try_from(capacity).unwrap_or(u32::MAX).min(config.positions());
    if overflows_into_shards(message) && profile == Profile::Paper {
        config.shards = config.positions().div_ceil(config.capacity.max(1));
    }
    Ok(config)
}

/// Whether a message makes sense in a profile.
pub(crate) fn check_pair(profile: Profile, message: Message) -> Result<(), Error> {
    let unsuited = |remedy| Err(Error::Unsuited { message: name(message), profile, remedy });
    match (message, profile) {
        (Message::Rotating, Profile::Sparse | Profile::Paper) => {
            unsuited("its features are public, so take `full`, or a message with a private choice")
        }
        (_, Profile::Sparse) if overflows_into_shards(message) => {
            unsuited("there everybody sends equally many shards: truncate, or take `paper`")
        }
        _ => Ok(()),
    }
}

fn overflows_into_shards(message: Message) -> bool {
    matches!(
        message,
        Message::SparseWeights { overflow: Overflow::Shard, .. }
            | Message::SparseDifferences { overflow: Overflow::Shard, .. }
    )
}

/// The short names of the documentation.
pub(crate) fn name(message: Message) -> &'static str {
    match message {
        Message::SparseWeights { .. } => "w-l1",
        Message::LargestWeights { .. } => "w-topk",
        Message::SparseDifferences { .. } => "d-l1",
        Message::LargestDifferences { .. } => "d-topk",
        Message::LargestBlocks { .. } => "d-block",
        Message::Rotating => "rotate",
        Message::Full => "full",
    }
}

/// Rounds to a four-thousandth of the largest initial weight are far below what accuracy shows.
const BITS_BELOW_RANGE: i16 = 14;

/// Weights grow from round to round: eight times the largest of the initial model. Measured on real features, the
/// largest difference of a round is 1 to 3 times that weight, 8.5 times in the first round of `rotate`, where a tenth
/// of the features learns what all could. Of a model of zeros nothing is known but that steps are made to change
/// margins by 1.
fn clip_exponent(kind: UpdateKind, initial: &Weights) -> i8 {
    let largest = initial.flat().iter().fold(0.0f64, |m, w| m.max(w.abs()));
    let largest = match kind {
        UpdateKind::Weights => largest.max(1.0),
        UpdateKind::Difference if largest == 0.0 => 1.0 / 8.0,
        UpdateKind::Difference => largest,
    };
    // whatever does not fit a slot is refused with the task
    (8.0 * largest).log2().ceil().clamp(f64::from(SMALLEST_RANGE), f64::from(i8::MAX)) as i8
}

/// Smaller numbers would need more fractional bits than a task may have.
const SMALLEST_RANGE: i8 = -16;

#[cfg(test)]
mod tests {
    use dphe::{TaskId, TaskParams};

    use super::*;

    fn model(weight: f64) -> Weights {
        Weights::new(20, vec![weight; 100], vec![0.5; 5]).unwrap()
    }

    #[test]
    fn positions_follow_the_message() {
        let of = |profile, message| {
            let config = propose(profile, message, &model(0.1), 8, Weighting::Equal).unwrap();
            (config.block, config.capacity, config.shards)
        };
        assert_eq!(of(Profile::Full, Message::Rotating), (5, 2, 1));
        assert_eq!(of(Profile::Full, Message::Full), (5, 20, 1));
        let blocks = Message::LargestBlocks { width: 5, capacity: 3, feedback: 0.9 };
        assert_eq!(of(Profile::Sparse, blocks), (5, 3, 1));
        assert_eq!(of(Profile::Paper, blocks), (1, 15, 1));
        let largest = Message::LargestDifferences { capacity: 1000, feedback: 0.9 };
        assert_eq!(of(Profile::Sparse, largest), (1, 100, 1));
        let paper = Message::SparseWeights { capacity: 30, overflow: Overflow::Shard };
        assert_eq!(of(Profile::Paper, paper), (1, 30, 4));
        let refused = propose(Profile::Sparse, paper, &model(0.1), 8, Weighting::Equal);
        assert!(matches!(refused, Err(Error::Unsuited { message: "w-l1", .. })));
        let refused = propose(Profile::Sparse, Message::Rotating, &model(0.1), 8, Weighting::Equal);
        assert!(matches!(refused, Err(Error::Unsuited { message: "rotate", .. })));
    }

    #[test]
    fn the_range_follows_the_initial_model_and_counts_widen_the_scale() {
        let of = |message, weight, weighting| {
            let profile = if message == Message::Rotating { Profile::Full } else { Profile::Sparse };
            let config = propose(profile, message, &model(weight), 8, weighting).unwrap();
            (config.clip_exponent, config.scale_bits, config.dense, config.clip_rule)
        };
        let (rotate, equal) = (Message::Rotating, Weighting::Equal);
        assert_eq!(of(rotate, 0.1, equal), (0, 16, 5, ClipRule::Clip));
        assert_eq!(of(rotate, 0.03, equal), (-2, 16, 5, ClipRule::Clip));
        assert_eq!(of(rotate, 1.1, equal), (4, 16, 5, ClipRule::Clip));
        assert_eq!(of(rotate, 1e200, equal).0, 127);
        // nothing known, and weights so small that they need more fractional bits
        assert_eq!(of(rotate, 0.0, equal), (0, 16, 5, ClipRule::Clip));
        assert_eq!(of(rotate, 1e-4, equal), (-10, 24, 5, ClipRule::Clip));
        assert_eq!(of(rotate, 1e-300, equal), (-16, 30, 5, ClipRule::Clip));
        let samples = Weighting::Samples { most: 4096 };
        assert_eq!(of(rotate, 0.1, samples), (0, 28, 6, ClipRule::Clip));
        // whole classifiers are not cut, and L1 tells how much it left
        let weights = Message::SparseWeights { capacity: 30, overflow: Overflow::Truncate };
        assert_eq!(of(weights, 0.03, equal), (3, 16, 6, ClipRule::Refuse));
        assert_eq!(of(weights, 1.1, samples), (4, 28, 7, ClipRule::Refuse));
        let odd = Weighting::Samples { most: 1000 };
        assert!(propose(Profile::Full, Message::Rotating, &model(0.1), 8, odd).is_err());
    }

    #[test]
    fn a_tenth_of_two_thousand_features_of_a_hundred_classes_takes_185_ciphertexts_of_2048_bits() {
        let initial = Weights::new(2048, vec![0.026; 2048 * 101], vec![2.0; 101]).unwrap();
        let mut config = propose(Profile::Full, Message::Rotating, &initial, 8, Weighting::Equal).unwrap();
        config.key_bits = 2048;
        let task = TaskParams::new(TaskId::from_bytes([0; 16]), config).unwrap();
        assert_eq!((task.slot_bits(), task.slots()), (18, 113));
        assert_eq!((task.capacity() * task.block() + task.dense()).div_ceil(task.slots()), 185);
    }
}
