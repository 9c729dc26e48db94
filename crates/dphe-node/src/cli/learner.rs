//! What users learn and what they send: the arguments, and the learners they make.

use clap::{Args, ValueEnum};
use dphe::Profile;
use dphe_learn::linear::{Loss, Penalty, Schedule, Sgd, SgdParams, Stable};
use dphe_learn::update::{Message, Overflow};
use dphe_learn::{Dataset, Error, Seed, Sparsity, StrengthController, Threads, Weights, find_strength};

/// Epochs that the first weights are learnt for, on the few initial samples.
const INITIAL_EPOCHS: usize = 20;
/// What is left out of a message is kept for later, but for a tenth.
const FEEDBACK: f64 = 0.9;
/// The part of L1 in an elastic net.
const L1_RATIO: f64 = 0.5;

#[derive(Args, Debug)]
pub(crate) struct LearnerArgs {
    /// What a user sends
    #[arg(long, value_enum, default_value_t = MessageName::Rotate)]
    pub(crate) message: MessageName,
    /// The share of the weights that a message carries
    #[arg(long, default_value_t = 0.1, value_parser = share)]
    pub(crate) share: f64,
    /// What is hidden, and how; follows the message if not given
    #[arg(long, value_enum)]
    profile: Option<ProfileName>,
    /// What is made small
    #[arg(long, value_enum, default_value_t = LossName::Hinge)]
    loss: LossName,
    /// How strongly weights are kept small; found by itself for w-l1 and d-l1
    #[arg(long, default_value_t = 1e-3)]
    strength: f64,
    /// Passes over a user's samples in a round
    #[arg(long, default_value_t = 5, value_parser = at_most(10_000))]
    epochs: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MessageName {
    /// Differences of the features whose turn it is, the same for everybody
    Rotate,
    /// The blocks of largest differences
    DBlock,
    /// The largest differences
    DTopk,
    /// Differences made sparse by L1
    #[value(name = "d-l1")]
    DL1,
    /// The largest weights
    WTopk,
    /// Weights made sparse by L1: the paper's message
    #[value(name = "w-l1")]
    WL1,
    /// All differences
    All,
}

impl MessageName {
    /// As it is typed.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileName {
    /// The paper's scheme, hardened: hidden positions
    Sparse,
    /// Public positions, the same for everybody
    Full,
    /// The paper's scheme to the letter, for reproduction
    Paper,
}

impl From<ProfileName> for Profile {
    fn from(name: ProfileName) -> Self {
        match name {
            ProfileName::Sparse => Self::Sparse,
            ProfileName::Full => Self::Full,
            ProfileName::Paper => Self::Paper,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LossName {
    Hinge,
    SquaredHinge,
    Logistic,
    Multinomial,
}

impl From<LossName> for Loss {
    fn from(name: LossName) -> Self {
        match name {
            LossName::Hinge => Self::Hinge,
            LossName::SquaredHinge => Self::SquaredHinge,
            LossName::Logistic => Self::Logistic,
            LossName::Multinomial => Self::Multinomial,
        }
    }
}

/// A count that no memory or patience is wasted on.
pub(crate) fn at_most(most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text| match text.parse::<usize>() {
        Ok(count) if count <= most => Ok(count),
        _ => Err(format!("a whole number up to {most}")),
    }
}

pub(crate) fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("a share is above 0 and at most 1, such as 0.1".into()),
    }
}

/// Everything that the initial data, which are public, decide.
pub(crate) struct Start {
    pub(crate) weights: Weights,
    /// The learner of the rounds.
    pub(crate) learner: Sgd,
    /// Steers the strength from round to round, where L1 decides how much is sent.
    pub(crate) controller: Option<StrengthController>,
}

impl LearnerArgs {
    pub(crate) fn profile(&self) -> Profile {
        self.profile.map_or_else(
            || match self.message {
                MessageName::Rotate | MessageName::All => Profile::Full,
                _ => Profile::Sparse,
            },
            Into::into,
        )
    }

    /// The learner of this many epochs and this penalty, with steps measured on the initial data.
    fn sgd(&self, initial: &Dataset, penalty: Penalty, epochs: usize, threads: Threads) -> SgdParams {
        let schedule = Schedule::Stable(Stable::for_features(initial.features()));
        SgdParams { loss: self.loss.into(), penalty, epochs, threads, ..SgdParams::new(schedule) }
    }

    /// The first weights, the learner of the rounds, and who steers it.
    pub(crate) fn start(&self, initial: &Dataset, seed: &Seed, threads: Threads) -> Result<Start, Error> {
        let learner = |penalty, epochs| self.sgd(initial, penalty, epochs, threads).check();
        let by_l1 = matches!(self.message, MessageName::DL1 | MessageName::WL1);
        if !by_l1 {
            let penalty = Penalty::l2(self.strength)?;
            let weights = learner(penalty, INITIAL_EPOCHS)?.fit(initial, seed)?;
            return Ok(Start { weights, learner: learner(penalty, self.epochs)?, controller: None });
        }
        let target = Sparsity::new(1.0 - self.share)?;
        let fitted =
            |strength| learner(Penalty::elastic_net(strength, L1_RATIO)?, INITIAL_EPOCHS)?.fit(initial, seed);
        let strength = find_strength(target, |strength| Ok(fitted(strength)?.sparsity()))?;
        let weights = match self.message {
            // only differences are to be sparse: the first weights need not be
            MessageName::DL1 => learner(Penalty::l2(self.strength)?, INITIAL_EPOCHS)?.fit(initial, seed)?,
            _ => fitted(strength)?,
        };
        let learner = learner(Penalty::elastic_net(strength, L1_RATIO)?, self.epochs)?;
        Ok(Start { weights, learner, controller: Some(StrengthController::new(strength, target)?) })
    }

    /// Learns on all data in one place, or on one user's: what rounds are compared with.
    pub(crate) fn alone(
        &self,
        initial: &Dataset,
        from: Option<&Weights>,
        data: &Dataset,
        seed: &Seed,
        threads: Threads,
    ) -> Result<Weights, Error> {
        let sgd = self.sgd(initial, Penalty::l2(self.strength)?, 2 * self.epochs, threads).check()?;
        match from {
            Some(weights) => sgd.fit_from(weights, data, seed),
            None => sgd.fit(data, seed),
        }
    }

    /// The message for a model of this size, where a ciphertext holds this many numbers.
    pub(crate) fn message_for(&self, weights: &Weights, slots: usize) -> Message {
        let of = |count: usize| ((count as f64 * self.share).ceil() as usize).max(1);
        let capacity = of(weights.dimension());
        let overflow = if self.profile() == Profile::Paper { Overflow::Shard } else { Overflow::Truncate };
        match self.message {
            MessageName::Rotate => Message::Rotating,
            MessageName::All => Message::Full,
            MessageName::DBlock => {
                // the classes of a feature, or as even a cut of them as fits a ciphertext
                let width = weights.classes().div_ceil(weights.classes().div_ceil(slots.max(1)));
                let capacity = of(weights.dimension().div_ceil(width));
                Message::LargestBlocks { width, capacity, feedback: FEEDBACK }
            }
            MessageName::DTopk => Message::LargestDifferences { capacity, feedback: FEEDBACK },
            MessageName::WTopk => Message::LargestWeights { capacity },
            MessageName::DL1 => Message::SparseDifferences { capacity, overflow },
            MessageName::WL1 => Message::SparseWeights { capacity, overflow },
        }
    }
}
