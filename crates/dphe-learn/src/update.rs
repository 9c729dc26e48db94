//! A user's part of a round: learn on from the public weights, and say what is to be summed.
//!
//! Only the *difference* to the public weights or the weights themselves leave this module, restricted to what the
//! message may carry. What is left out stays with the user as a [`Residual`] and is sent later.

mod message;
mod residual;
mod select;
mod sum;

pub use message::{Message, Overflow};
pub use residual::Residual;
pub use sum::UpdateSum;

use crate::linear::{Fista, Penalty, Problem, Schedule, Sgd};
use crate::{Dataset, Error, Real, Seed, Weights};

/// The learner of a round.
#[derive(Clone, Debug, PartialEq)]
pub enum Learner {
    /// Sample by sample.
    Sgd(Sgd),
    /// All samples at once; not for [`Message::SparseDifferences`] and [`Message::Rotating`].
    Fista(Fista),
}

impl From<Sgd> for Learner {
    fn from(sgd: Sgd) -> Self {
        Self::Sgd(sgd)
    }
}

impl From<Fista> for Learner {
    fn from(fista: Fista) -> Self {
        Self::Fista(fista)
    }
}

const NEEDS_SGD: Error =
    Error::Unsuited { what: "this message", needed: "the stochastic learner", found: "the full-batch one" };

/// What is public about a round.
#[derive(Clone, Copy, Debug)]
pub struct RoundInput<'a> {
    /// The weights that everybody starts from.
    pub global: &'a Weights,
    /// The features that everybody trains; only [`Message::Rotating`] looks at them.
    pub features: &'a [usize],
}

/// A learner and the message it fills. Checked once.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalTrainer {
    learner: Learner,
    message: Message,
}

impl LocalTrainer {
    /// Puts a learner and a message together.
    ///
    /// # Errors
    /// A message that holds nothing, feedback outside 0 to 1, or a learner that cannot fill the message.
    pub fn new(learner: impl Into<Learner>, message: Message) -> Result<Self, Error> {
        let learner = learner.into();
        let positive = |name, value: usize| match value {
            0 => Err(Error::Parameter { name, value: 0.0, remedy: "use at least 1" }),
            _ => Ok(()),
        };
        let share = |value: f64| match (0.0..=1.0).contains(&value) {
            true => Ok(()),
            false => Err(Error::Parameter {
                name: "feedback",
                value,
                remedy: "use a number from 0 (forget) to 1 (keep all), normally 0.9",
            }),
        };
        match message {
            Message::SparseWeights { capacity, .. }
            | Message::LargestWeights { capacity }
            | Message::SparseDifferences { capacity, .. } => positive("capacity", capacity)?,
            Message::LargestDifferences { capacity, feedback } => {
                positive("capacity", capacity)?;
                share(feedback)?;
            }
            Message::LargestBlocks { width, capacity, feedback } => {
                positive("width", width)?;
                positive("capacity", capacity)?;
                share(feedback)?;
            }
            Message::Rotating | Message::Full => {}
        }
        let only_sgd = matches!(message, Message::SparseDifferences { .. } | Message::Rotating);
        if only_sgd && matches!(learner, Learner::Fista(_)) {
            return Err(NEEDS_SGD);
        }
        Ok(Self { learner, message })
    }

    /// The message.
    pub fn message(&self) -> Message {
        self.message
    }

    /// The learner.
    pub fn learner(&self) -> &Learner {
        &self.learner
    }

    /// The same with another strength of the penalty, as a controller wants it.
    ///
    /// # Errors
    /// If the strength is negative or not finite.
    pub fn with_strength(&self, strength: f64) -> Result<Self, Error> {
        let learner = match &self.learner {
            Learner::Sgd(sgd) => {
                let mut params = sgd.params().clone();
                params.penalty = params.penalty.with_strength(strength)?;
                Learner::Sgd(params.check()?)
            }
            Learner::Fista(fista) => {
                let mut params = *fista.params();
                params.penalty = params.penalty.with_strength(strength)?;
                Learner::Fista(params.check()?)
            }
        };
        Ok(Self { learner, message: self.message })
    }

    /// The penalty of the learner.
    pub fn penalty(&self) -> Penalty {
        match &self.learner {
            Learner::Sgd(sgd) => sgd.params().penalty,
            Learner::Fista(fista) => fista.params().penalty,
        }
    }

    /// One user's part of a round. `residual` is what this user's earlier messages left out; it is the user's
    /// secret, outlives rounds that the user misses, and starts anew with a new model.
    ///
    /// # Errors
    /// If shapes differ, the weights diverge, or a message that may not overflow does.
    pub fn update<T: Real>(
        &self,
        round: RoundInput<'_>,
        data: &Dataset<T>,
        residual: &mut Residual,
        seed: &Seed,
    ) -> Result<LocalUpdate, Error> {
        if self.message == Message::Rotating {
            return self.update_features(round, data, seed);
        }
        let global = round.global;
        let anchored = matches!(self.message, Message::SparseDifferences { .. });
        let trained = match &self.learner {
            Learner::Sgd(sgd) => {
                global.check_shape(data.features().width(), data.labels().class_count())?;
                sgd.solve(global, &Problem { anchored, ..Problem::new(data) }, seed)?
            }
            Learner::Fista(fista) => fista.fit_from(global, data)?,
        };
        let intercepts = difference(trained.intercepts(), global.intercepts());
        let changes = || difference(trained.flat(), global.flat());
        let mut cut = 0;
        let (support, values) = match self.message {
            Message::SparseWeights { capacity, overflow } => {
                let sent = limited(trained.flat(), capacity, overflow)?;
                cut = trained.nonzeros() - sent.1.len();
                sent
            }
            Message::LargestWeights { capacity } => limited(trained.flat(), capacity, Overflow::Truncate)?,
            Message::SparseDifferences { capacity, overflow } => {
                let changes = changes();
                let sent = limited(&changes, capacity, overflow)?;
                cut = changes.iter().filter(|&&v| v != 0.0).count() - sent.1.len();
                sent
            }
            Message::LargestDifferences { capacity, feedback } => {
                let mut changes = changes();
                residual.add_to(&mut changes)?;
                let chosen = select::largest(&changes, capacity);
                let values = chosen.iter().map(|&i| changes[i]).collect();
                chosen.iter().for_each(|&i| changes[i] = 0.0);
                residual.keep(changes, feedback);
                (Support::Weights(chosen), values)
            }
            Message::LargestBlocks { width, capacity, feedback } => {
                let mut changes = changes();
                residual.add_to(&mut changes)?;
                let blocks = select::largest_blocks(&changes, width, capacity);
                let mut values = Vec::new();
                for &block in &blocks {
                    let end = changes.len().min((block + 1) * width);
                    let weights = &mut changes[block * width..end];
                    values.extend_from_slice(weights);
                    weights.fill(0.0);
                }
                residual.keep(changes, feedback);
                (Support::Blocks { width, blocks }, values)
            }
            Message::Rotating | Message::Full => (Support::All, changes()),
        };
        Ok(LocalUpdate { kind: self.message.kind(), support, values, intercepts, cut })
    }

    /// Trains some features only. The others keep their public weights, so what they add to a score is fixed.
    fn update_features<T: Real>(
        &self,
        round: RoundInput<'_>,
        data: &Dataset<T>,
        seed: &Seed,
    ) -> Result<LocalUpdate, Error> {
        let RoundInput { global, features } = round;
        let Learner::Sgd(sgd) = &self.learner else {
            return Err(NEEDS_SGD);
        };
        let start = global.select_features(features)?;
        global.check_shape(data.features().width(), data.labels().class_count())?;
        let mut fixed = global.flat().to_vec();
        for &feature in features {
            let block = &mut fixed[feature * global.classes()..][..global.classes()];
            block.fill(0.0);
        }
        let fixed = Weights::new(global.features(), fixed, vec![0.0; global.classes()])?;
        let offsets = fixed.scores(data.features(), sgd.params().threads)?;
        let part = data.features().select_features(features)?;
        let mut params = sgd.params().clone();
        if let Schedule::Stable(stable) = params.schedule {
            params.schedule =
                Schedule::Stable(stable.for_share(features.len() as f64 / global.features() as f64));
        }
        let problem = Problem {
            features: &part,
            labels: data.labels(),
            offsets: Some(offsets.values()),
            anchored: false,
        };
        let trained = params.check()?.solve(&start, &problem, seed)?;
        Ok(LocalUpdate {
            kind: UpdateKind::Difference,
            support: Support::Blocks { width: global.classes(), blocks: features.to_vec() },
            values: difference(trained.flat(), start.flat()),
            intercepts: difference(trained.intercepts(), global.intercepts()),
            cut: 0,
        })
    }
}

/// Whether a sum replaces the public weights or is added to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateKind {
    /// Whole classifiers: their mean is the next public one.
    Weights,
    /// Differences: their mean is added to the public weights.
    Difference,
}

/// Which weights an update speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// Single weights, by flat index, in order.
    Weights(Vec<usize>),
    /// Blocks of `width` consecutive flat weights; the last of all may be shorter. A block of
    /// [`Message::Rotating`] is a feature.
    Blocks {
        /// Weights in a block.
        width: usize,
        /// The blocks, by number.
        blocks: Vec<usize>,
    },
    /// All weights.
    All,
}

/// What a user wants summed. Secret: it is to be sealed, not sent.
#[derive(Clone, PartialEq)]
pub struct LocalUpdate {
    kind: UpdateKind,
    support: Support,
    values: Vec<f64>,
    intercepts: Vec<f64>,
    /// Non-zeros that L1 left and the message had no room for.
    cut: usize,
}

impl LocalUpdate {
    /// Whether these are weights or differences.
    pub fn kind(&self) -> UpdateKind {
        self.kind
    }

    /// Which weights these are.
    pub fn support(&self) -> &Support {
        &self.support
    }

    /// The numbers, in the order of the support.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The differences of all intercepts: they always travel, and always as differences.
    pub fn intercepts(&self) -> &[f64] {
        &self.intercepts
    }

    /// Numbers that are not exactly zero.
    pub fn nonzeros(&self) -> usize {
        self.values.iter().filter(|&&v| v != 0.0).count()
    }

    /// Non-zeros that L1 left, those included that the message had no room for: what a [`StrengthController`] wants
    /// to know the mean of.
    ///
    /// [`StrengthController`]: crate::StrengthController
    pub fn learnt_nonzeros(&self) -> usize {
        self.nonzeros() + self.cut
    }

    /// Flat index and number, for all that is sent.
    pub fn entries(&self) -> Box<dyn Iterator<Item = (usize, f64)> + '_> {
        let values = self.values.iter().copied();
        match &self.support {
            Support::Weights(indices) => Box::new(indices.iter().copied().zip(values)),
            Support::Blocks { width, blocks } => {
                // only the block at the very end can be shorter, and then nothing follows it in its place
                Box::new(blocks.iter().zip(self.values.chunks(*width)).flat_map(move |(block, values)| {
                    values.iter().enumerate().map(move |(i, &v)| (block * width + i, v))
                }))
            }
            Support::All => Box::new(values.enumerate()),
        }
    }
}

impl core::fmt::Debug for LocalUpdate {
    /// Nothing that tells a value or a position.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LocalUpdate").field("kind", &self.kind).finish_non_exhaustive()
    }
}

fn difference(new: &[f64], old: &[f64]) -> Vec<f64> {
    new.iter().zip(old).map(|(new, old)| new - old).collect()
}

/// The non-zeros, at most `capacity` of them if that is the rule.
fn limited(values: &[f64], capacity: usize, overflow: Overflow) -> Result<(Support, Vec<f64>), Error> {
    let nonzeros = values.iter().filter(|&&v| v != 0.0).count();
    let chosen = match overflow {
        Overflow::Refuse if nonzeros > capacity => return Err(Error::Capacity { nonzeros, capacity }),
        Overflow::Truncate => select::largest(values, capacity),
        Overflow::Shard | Overflow::Refuse => select::largest(values, nonzeros),
    };
    let sent = chosen.iter().map(|&i| values[i]).collect();
    Ok((Support::Weights(chosen), sent))
}
