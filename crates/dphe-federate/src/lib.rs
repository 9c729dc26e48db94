#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | content |
//! | --- | --- |
//! | [`spec`] | settings of learners, payloads and tasks, as task files and the command line name them |
//! | `model` | [`GlobalWeights`] and [`LocalWeights`] |
//! | `round` | one round: [`LocalRound`] for users, [`RoundRules::apply`] for users and aggregators |
//! | [`average`] | sums of updates, encrypted or not, and the scale of their values |
//! | [`vector`] | vectors of any kind as updates, and sums as averages; rounds of a vector that any program trains |
//! | `task` | [`propose`] a task for a model |
//! | `moments` | [`Standardization`]: means and deviations of features from sums over users, without their samples |
//! | `start` | the [`StartingPoint`] of a simulation: initial weights, learner and task |
//! | `simulate` | a [`Simulation`] of many rounds in one process |
//! | `cluster` | a [`Clustering`] of many rounds in one process |
//! | `scenario` | who holds which samples |
//! | `report` | what a simulated round was like and what it cost |
//! | `stopwatch` | [`Stopwatch`]: the caller's clock |
//! | `error` | [`Error`] |

pub mod average;
mod cluster;
mod error;
mod model;
mod moments;
mod report;
mod round;
mod scenario;
mod simulate;
pub mod spec;
mod start;
mod stopwatch;
mod task;
pub mod vector;

pub use average::{
    Average, Averaged, DpheAverage, PlainAverage, UserUpdate, ValueSum, Weighting, intercept_scale,
};
pub use cluster::{Clustering, ClusteringParams, ClusteringReport};
pub use error::Error;
pub use model::{GlobalWeights, LocalWeights};
pub use moments::Standardization;
pub use report::{Cost, RoundReport, Seconds};
pub use round::{Applied, LocalRound, RoundResidual, RoundRules};
pub use scenario::{Scenario, ScenarioParams, Split};
pub use simulate::{Participation, Simulation, SimulationParams};
pub use spec::{DEFAULT_OUTSIZE, EncryptionSpec, LearnerSpec, Named, PayloadName, PayloadSize, UnknownName};
pub use start::StartingPoint;
pub use stopwatch::Stopwatch;
pub use task::{ModelSize, propose};
