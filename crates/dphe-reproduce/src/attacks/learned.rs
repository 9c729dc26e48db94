//! Singles in sums of updates that were really learnt.

use dphe::{Profile, Round, TaskId, TaskParams};
use dphe_federate::{
    Average, Averaged, Contribution, PlainAverage, Scenario, ScenarioParams, Seconds, Simulation,
    SimulationParams, Stopwatch, Weighting, propose,
};
use dphe_learn::linear::{Penalty, Schedule, Sgd, SgdParams, Stable};
use dphe_learn::update::{LocalTrainer, Message, Overflow};
use dphe_learn::{Dataset, Seed, Sparsity, StrengthController, Weights, find_strength};

use super::singles::{Singles, Totals};
use crate::{Error, Measurement};

/// What is sent, by its short name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// Whole classifiers, nine tenths of them zeros by L1: the paper's message.
    Weights,
    /// The largest tenth of the differences.
    Differences,
    /// A tenth of the features, which are public and rotate.
    Rotating,
}

impl Sent {
    pub(super) const ALL: [Self; 3] = [Self::Weights, Self::Differences, Self::Rotating];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Weights => "w-l1",
            Self::Differences => "d-topk",
            Self::Rotating => "rotate",
        }
    }

    fn profile(self) -> Profile {
        match self {
            Self::Weights => Profile::Paper,
            Self::Differences => Profile::Sparse,
            Self::Rotating => Profile::Full,
        }
    }

    fn message(self, dimension: usize) -> Message {
        let capacity = dimension.div_ceil(10);
        match self {
            Self::Weights => Message::SparseWeights { capacity, overflow: Overflow::Shard },
            Self::Differences => Message::LargestDifferences { capacity, feedback: 0.9 },
            Self::Rotating => Message::Rotating,
        }
    }
}

/// An average that looks at what it averages.
struct Watched {
    inner: PlainAverage,
    totals: Totals,
    /// Positions that somebody sent, and those that one user alone did, whatever the value.
    sent: usize,
    sent_alone: usize,
}

impl Average for Watched {
    fn task(&self) -> &TaskParams {
        self.inner.task()
    }

    fn weighting(&self) -> Weighting {
        self.inner.weighting()
    }

    fn average(
        &mut self,
        round: Round,
        global: &Weights,
        contributions: &[Contribution],
        stopwatch: &mut Stopwatch,
        seconds: &mut Seconds,
    ) -> Result<Averaged, dphe_federate::Error> {
        let (mut values, mut places) = (Singles::new(global.dimension()), Singles::new(global.dimension()));
        for contribution in contributions {
            values.add(contribution.update.entries());
            places.add(contribution.update.entries().map(|(index, _)| (index, 1.0)));
        }
        self.totals.add(&values);
        self.sent += places.nonzeros();
        self.sent_alone += places.singles();
        self.inner.average(round, global, contributions, stopwatch, seconds)
    }
}

/// Rounds of five users who learn from these data.
pub(super) fn learned(
    data: &Dataset,
    sent: Sent,
    rounds: usize,
    seed: &Seed,
    stopwatch: &mut Stopwatch,
) -> Result<Measurement, Error> {
    let scenario = Scenario::new(data, &ScenarioParams::default(), seed)?;
    let stable = Schedule::Stable(Stable::for_features(scenario.initial.features()));
    let learner = |penalty: Penalty, epochs: usize| -> Result<Sgd, dphe_learn::Error> {
        SgdParams { penalty, epochs, ..SgdParams::new(stable) }.check()
    };
    let (mut penalty, mut controller) = (Penalty::DEFAULT, None);
    if sent == Sent::Weights {
        let target = Sparsity::new(0.9)?;
        let found = find_strength(target, |strength| {
            Ok(learner(Penalty::elastic_net(strength, 0.5)?, 20)?.fit(&scenario.initial, seed)?.sparsity())
        })?;
        penalty = Penalty::elastic_net(found, 0.5)?;
        controller = Some(StrengthController::new(found, target)?);
    }
    let initial = learner(penalty, 20)?.fit(&scenario.initial, seed)?;
    let message = sent.message(initial.dimension());
    let users = scenario.users.len();
    let config = propose(sent.profile(), message, &initial, users as u32, Weighting::Equal)?;
    let task = TaskParams::new(TaskId::from_bytes([0; 16]), config)?;
    let inner = PlainAverage::new(task, Weighting::Equal, users)?;
    let watched = Watched { inner, totals: Totals::default(), sent: 0, sent_alone: 0 };
    let trainer = LocalTrainer::new(learner(penalty, 5)?, message)?;
    let params = SimulationParams::default();
    let mut simulation = Simulation::new(scenario.users, initial, trainer, watched, params, *seed)?
        .with_held_out_data(scenario.held_out)?;
    if let Some(controller) = controller {
        simulation = simulation.with_controller(controller)?;
    }
    let mut accuracy = 0.0;
    for _ in 0..rounds {
        accuracy = simulation.round(stopwatch)?.accuracy.unwrap_or(0.0);
    }
    let watched = simulation.average();
    let mut measurement = Measurement::new();
    watched.totals.write("", &mut measurement);
    let alone = watched.sent_alone as f64 / watched.sent.max(1) as f64;
    measurement.insert("sent_alone".to_owned(), alone);
    measurement.insert("accuracy".to_owned(), accuracy);
    Ok(measurement)
}
