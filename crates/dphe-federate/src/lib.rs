#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | content |
//! | --- | --- |
//! | [`spec`] | learners, payloads and tasks by the names that people write |
//! | `model` | [`GlobalWeights`] and [`LocalWeights`] |
//! | `round` | one round: [`LocalRound`] for users, [`RoundRules::apply`] for aggregators |
//! | [`average`] | sums of updates, encrypted or not, and the scale of their values |
//! | [`vector`] | vectors of any kind as updates, and sums as averages |
//! | `task` | [`propose`] a task for a model |
//! | `simulate` | a [`Simulation`] of many rounds in one process |
//! | `scenario` | who holds which samples |
//! | `report` | what a simulated round was like and what it cost |
//! | `stopwatch` | [`Stopwatch`]: the caller's clock |
//! | `error` | [`Error`] |

pub mod average;
mod error;
mod model;
mod report;
mod round;
mod scenario;
mod simulate;
pub mod spec;
mod stopwatch;
mod task;
pub mod vector;

pub use average::{
    Average, Averaged, DpheAverage, PlainAverage, UserUpdate, ValueSum, Weighting, intercept_scale,
};
pub use error::Error;
pub use model::{GlobalWeights, LocalWeights};
pub use report::{Cost, RoundReport, Seconds};
pub use round::{Applied, LocalRound, RoundResidual, RoundRules};
pub use scenario::{Scenario, ScenarioParams};
pub use simulate::{Participation, Simulation, SimulationParams};
pub use spec::{DEFAULT_OUTSIZE, EncryptionSpec, LearnerSpec, Named, PayloadName, PayloadSize, UnknownName};
pub use stopwatch::Stopwatch;
pub use task::{ModelSize, propose};
