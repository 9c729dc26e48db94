//! Five users train a classifier of handwritten digits in encrypted rounds, and compare it with a classifier that was
//! trained on all data in one place.

use std::time::Instant;

use dphe::simple::os_rng;
use dphe::{Profile, TaskId, TaskParams, Threads};
use dphe_examples::digits;
use dphe_federate::{
    DpheAverage, Scenario, ScenarioParams, Simulation, SimulationParams, Stopwatch, Weighting, propose,
};
use dphe_learn::linear::{Schedule, SgdParams, Stable};
use dphe_learn::update::{LocalTrainer, Payload};
use dphe_learn::{Seed, all_cores};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Each of five users has a fifth of the digits. Three digits per class are public.
    let seed = Seed::new(1);
    let scenario = Scenario::new(&digits()?, &ScenarioParams::default(), &seed)?;
    let steps = Stable::for_features(scenario.initial.features());
    let learner = SgdParams::new(Schedule::Stable(steps)).check()?;
    let initial = learner.fit(&scenario.initial, &seed)?;
    let pooled = learner.fit(&scenario.pooled, &seed)?.accuracy(&scenario.held_out, all_cores())?;

    // In each round, an update carries a tenth of the features, the same for every user.
    let mut config = propose(Profile::Full, Payload::Rotating, &initial, 5, Weighting::Equal)?;
    config.key_bits = 2048;
    let task = TaskParams::new(TaskId::from_bytes([1; 16]), config)?;
    let average = DpheAverage::new(task, Weighting::Equal, 5, os_rng()?, Threads::all())?;

    let trainer = LocalTrainer::new(learner, Payload::Rotating)?;
    let mut simulation =
        Simulation::new(scenario.users, initial, trainer, average, SimulationParams::default(), seed)?
            .with_held_out_data(scenario.held_out)?;
    let begin = Instant::now();
    let reports = simulation.run_watched(20, &mut Stopwatch::none(), |report| {
        let accuracy = 100.0 * report.accuracy.unwrap_or_default();
        println!("round {:>2}: {accuracy:.1} %, {} bytes per update", report.round, report.cost.bytes);
    })?;
    let accuracy = reports.last().and_then(|report| report.accuracy).unwrap_or_default();
    println!("{} encrypted rounds took {:.1?}", reports.len(), begin.elapsed());
    println!("{:.1} % in rounds, {:.1} % with all data in one place", 100.0 * accuracy, 100.0 * pooled);
    assert!(accuracy > 0.85 && accuracy > pooled - 0.05, "{accuracy} against {pooled}");
    Ok(())
}
