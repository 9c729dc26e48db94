//! A learner that the crates do not have, in encrypted rounds: softmax regression by gradient descent with momentum.

use dphe::simple::os_rng;
use dphe::{Profile, TaskId, TaskParams, Threads};
use dphe_examples::digits;
use dphe_federate::{
    DpheAverage, Scenario, ScenarioParams, Simulation, SimulationParams, Stopwatch, Weighting, propose,
};
use dphe_learn::update::{FitLocal, Learner, LocalTrainer, Payload, RoundInput};
use dphe_learn::{Dataset, Error, Real, Seed, Weights};

/// Gradient descent on all samples of a user at once.
#[derive(Debug)]
struct Softmax {
    steps: usize,
    step_size: f64,
    momentum: f64,
}

impl FitLocal for Softmax {
    fn fit_local<T: Real>(
        &self,
        round: RoundInput<'_>,
        data: &Dataset<T>,
        _seed: &Seed,
    ) -> Result<Weights, Error> {
        let (features, classes) = (round.global.features(), round.global.classes());
        let labels = data.labels().as_classes("softmax regression")?;
        // The weights in feature-major order, and behind them the intercepts, as if a last feature were always 1.
        let mut weights = [round.global.flat(), round.global.intercepts()].concat();
        let mut speed = vec![0.0; weights.len()];
        for _ in 0..self.steps {
            let mut gradient = vec![0.0; weights.len()];
            for (row, &label) in data.features().rows().zip(labels) {
                let inputs = || row.iter().map(|x| x.to_f64()).chain([1.0]);
                let mut scores = vec![0.0; classes];
                for (x, block) in inputs().zip(weights.chunks(classes)) {
                    scores.iter_mut().zip(block).for_each(|(score, w)| *score += x * w);
                }
                let most = scores.iter().fold(f64::NEG_INFINITY, |most, &score| most.max(score));
                let powers: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
                let total: f64 = powers.iter().sum();
                for (x, block) in inputs().zip(gradient.chunks_mut(classes)) {
                    for (class, (g, power)) in block.iter_mut().zip(&powers).enumerate() {
                        *g += x * (power / total - f64::from(u8::from(class == label as usize)));
                    }
                }
            }
            for ((w, v), g) in weights.iter_mut().zip(&mut speed).zip(&gradient) {
                *v = self.momentum * *v - self.step_size * g / data.len() as f64;
                *w += *v;
            }
        }
        let intercepts = weights.split_off(features * classes);
        Weights::new(features, weights, intercepts)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seed = Seed::new(1);
    let scenario = Scenario::new(&digits()?, &ScenarioParams::default(), &seed)?;
    let learner = Learner::custom(Softmax { steps: 20, step_size: 0.2, momentum: 0.9 });
    let initial = Weights::zeros(64, 10)?;

    // Each user sends the quarter of the features whose weights changed most. Nobody else sees which features.
    let payload = Payload::LargestBlocks { width: 10, blocks: 16, feedback: 0.9 };
    let mut config = propose(Profile::Sparse, payload, &initial, 5, Weighting::Equal)?;
    config.key_bits = 2048;
    let task = TaskParams::new(TaskId::from_bytes([2; 16]), config)?;
    let average = DpheAverage::new(task, Weighting::Equal, 5, os_rng()?, Threads::all())?;

    let trainer = LocalTrainer::new(learner, payload)?;
    let mut simulation =
        Simulation::new(scenario.users, initial, trainer, average, SimulationParams::default(), seed)?
            .with_held_out_data(scenario.held_out)?;
    let reports = simulation.run(6, &mut Stopwatch::none())?;
    for report in &reports {
        let accuracy = 100.0 * report.accuracy.unwrap_or_default();
        println!("round {}: {accuracy:.1} %, {} ciphertexts", report.round, report.cost.ciphertexts);
    }
    let accuracy = reports.last().and_then(|report| report.accuracy).unwrap_or_default();
    assert!(accuracy > 0.85, "{accuracy}");
    println!("a learner of our own reached {:.1} % in {} encrypted rounds", 100.0 * accuracy, reports.len());
    Ok(())
}
