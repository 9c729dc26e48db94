//! What one plain update gives away: the supplement's derivations as functions, and an experiment that runs them
//! against the learner users have.
//!
//! Whoever receives a user's new weights knows the public ones they started from. The difference is a gradient, and
//! the gradient of a linear classifier is a sample times a number.

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
pub use logistic::{Candidate, LogisticLeak, logistic, margins, nearest_norm};
pub use step::{Intercepts, Recovered, SeenStep, hinge, labelled, with_intercept};
