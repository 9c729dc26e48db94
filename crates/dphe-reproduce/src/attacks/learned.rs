//! Singles in sums of trained updates.

use dphe::{Profile, Round, TaskId, TaskParams};
use dphe_federate::spec::payload;
use dphe_federate::{
    Average, Averaged, LearnerSpec, ModelSize, PayloadName, PayloadSize, PlainAverage, Scenario,
    ScenarioParams, Simulation, SimulationParams, Stopwatch, UserUpdate, Weighting, propose,
};
use dphe_learn::linear::{Penalty, Schedule, Sgd, SgdParams, Stable};
use dphe_learn::update::LocalTrainer;
use dphe_learn::{Dataset, Seed, Sparsity, StrengthController, find_strength};

use super::singles::{Singles, Totals};
use crate::{Error, Measurement};

/// The payloads that users send, and the profiles of their tasks. L1 makes the weights of `w-l1` 90 % sparse, the
/// others carry a tenth of the differences.
pub(super) const PAYLOADS: [(PayloadName, Profile); 3] = [
    (PayloadName::WL1, Profile::Paper),
    (PayloadName::DTopk, Profile::Sparse),
    (PayloadName::Rotate, Profile::Full),
];

/// An average that counts singles among the updates before it averages them.
struct CountingAverage {
    inner: PlainAverage,
    totals: Totals,
    /// The number of indices that at least one user sent, of any value.
    sent: usize,
    /// The number of indices that exactly one user sent, of any value.
    sent_alone: usize,
}

impl Average for CountingAverage {
    fn task(&self) -> &TaskParams {
        self.inner.task()
    }

    fn weighting(&self) -> Weighting {
        self.inner.weighting()
    }

    fn average(
        &mut self,
        round: Round,
        updates: &[UserUpdate],
        stopwatch: &mut Stopwatch,
    ) -> Result<Averaged, dphe_federate::Error> {
        let dimension = self.task().dimension();
        let (mut values, mut places) = (Singles::new(dimension), Singles::new(dimension));
        for update in updates {
            values.add(update.entries());
            places.add(update.entries().map(|(index, _)| (index, 1.0)));
        }
        self.totals.add(&values);
        self.sent += places.nonzeros();
        self.sent_alone += places.singles();
        self.inner.average(round, updates, stopwatch)
    }
}

/// Runs rounds of five users who train on these data, and counts singles.
pub(super) fn learned(
    data: &Dataset,
    (name, profile): (PayloadName, Profile),
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
    if name == PayloadName::WL1 {
        let target = Sparsity::new(0.9)?;
        let found = find_strength(target, |strength| {
            Ok(learner(Penalty::elastic_net(strength, 0.5)?, 20)?.fit(&scenario.initial, seed)?.sparsity())
        })?;
        penalty = Penalty::elastic_net(found, 0.5)?;
        controller = Some(StrengthController::new(found, target)?);
    }
    let initial = learner(penalty, 20)?.fit(&scenario.initial, seed)?;
    let (size, feedback) = (PayloadSize::DEFAULT, LearnerSpec::default_feedback());
    // no payload here has blocks, so the number of slots does not matter
    let payload = payload(name, size, feedback, profile, ModelSize::of(&initial), 1);
    let users = scenario.users.len();
    let config = propose(profile, payload, &initial, users as u32, Weighting::Equal)?;
    let task = TaskParams::new(TaskId::from_bytes([0; 16]), config)?;
    let inner = PlainAverage::new(task, Weighting::Equal, users)?;
    let average = CountingAverage { inner, totals: Totals::default(), sent: 0, sent_alone: 0 };
    let trainer = LocalTrainer::new(learner(penalty, 5)?, payload)?;
    let params = SimulationParams::default();
    let mut simulation = Simulation::new(scenario.users, initial, trainer, average, params, *seed)?
        .with_held_out_data(scenario.held_out)?;
    if let Some(controller) = controller {
        simulation = simulation.with_controller(controller)?;
    }
    let mut accuracy = 0.0;
    for _ in 0..rounds {
        accuracy = simulation.round(stopwatch)?.accuracy.unwrap_or(0.0);
    }
    let average = simulation.average();
    let mut measurement = Measurement::new();
    average.totals.write("", &mut measurement);
    let alone = average.sent_alone as f64 / average.sent.max(1) as f64;
    measurement.insert("sent_alone".to_owned(), alone);
    measurement.insert("accuracy".to_owned(), accuracy);
    Ok(measurement)
}
