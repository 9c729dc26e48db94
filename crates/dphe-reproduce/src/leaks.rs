//! Leaks of plain updates: the derivations of the paper's supplement as functions, and an experiment that applies them
//! to the steps of the learner that users run.
//!
//! An aggregator that receives a user's new weights knows the public weights that the user started from. The
//! difference is a gradient, and the gradient of a linear classifier is a sample times a number.

mod average;
mod elastic;
mod experiment;
mod logistic;
mod measure;
mod picture;
mod sealed;
mod step;
mod victim;

pub use average::{LeakedAverage, average, rank_by_cosine};
pub use elastic::{elastic_net, share_of_norm};
pub use experiment::Leaks;
pub use logistic::{LogisticCandidate, LogisticLeak, logistic, margins, nearest_norm};
pub use step::{Intercepts, RecoveredSample, SeenStep, hinge, labelled, with_intercept};
