//! A task for a model and a message: a proposal to start from.

use dphe::{Profile, TaskConfig};
use dphe_learn::Weights;
use dphe_learn::update::{Message, Overflow};

use crate::{Error, Weighting};

/// Proposes a task for a message about this model, with 16 fractional bits and a range eight times that of the
/// initial model. Key length, noise, shares of users and, for `rotate`, the capacity (a tenth of the features) are
/// those of [`TaskConfig::new`], to be changed as wanted.
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
    config.dense = classes + u32::from(weighting != Weighting::Equal);
    config.clip_exponent = clip_exponent(initial);
    // counts make numbers smaller, so they need as many more fractional bits
    config.scale_bits += weighting.bits();

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

/// Weights grow from round to round, and slots have no room to spare: eight times the largest of the initial model,
/// or eight.
fn clip_exponent(initial: &Weights) -> i8 {
    let largest = initial.flat().iter().chain(initial.intercepts()).fold(1.0f64, |m, w| m.max(w.abs()));
    // whatever does not fit a slot is refused with the task
    (8.0 * largest).log2().ceil().min(f64::from(i8::MAX)) as i8
}

#[cfg(test)]
mod tests {
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
        let of = |weight, weighting| {
            let config = propose(Profile::Full, Message::Rotating, &model(weight), 8, weighting).unwrap();
            (config.clip_exponent, config.scale_bits, config.dense)
        };
        assert_eq!(of(0.1, Weighting::Equal), (3, 16, 5));
        assert_eq!(of(1.1, Weighting::Equal), (4, 16, 5));
        assert_eq!(of(1e200, Weighting::Equal).0, 127);
        assert_eq!(of(0.1, Weighting::Samples { most: 4096 }), (3, 28, 6));
        let odd = Weighting::Samples { most: 1000 };
        assert!(propose(Profile::Full, Message::Rotating, &model(0.1), 8, odd).is_err());
    }
}
