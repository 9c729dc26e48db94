#![doc = include_str!("../README.md")]

pub mod average;
mod error;
mod report;
mod scenario;
mod simulate;
mod stopwatch;
mod task;

pub use average::{
    Average, Averaged, Codec, Contribution, DpheAverage, PlainAverage, Weighting, intercept_scale,
    trainer_of_round,
};
pub use error::Error;
pub use report::{Cost, RoundReport, Seconds};
pub use scenario::{Scenario, ScenarioParams};
pub use simulate::{Participation, Simulation, SimulationParams};
pub use stopwatch::Stopwatch;
pub use task::propose;
