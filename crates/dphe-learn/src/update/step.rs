//! The server step: the factor of the average of differences. It follows from public numbers only, so that every party
//! computes the same model.

/// What is known to everybody about the users of a task, as the task states it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UserNumbers {
    /// How many users there are.
    pub users: usize,
    /// Classes of the task.
    pub classes: usize,
    /// Samples of a typical user.
    pub samples_per_user: f64,
    /// Classes of which a typical user has a sample. Without it, users are expected to have as many as samples drawn
    /// at random would have.
    pub classes_per_user: Option<f64>,
}

impl UserNumbers {
    /// Proposes a server step. It is 1 for few users, unless they state that they have few of the classes.
    ///
    /// The steps of users with few samples, and of users with different classes, are small and partly cancel out in
    /// the average. The proposal grows with the square root of how few samples of a class a user has, at most with the
    /// square root of the number of users, and with the square root of how many of the expected classes a user lacks.
    /// It is one of a few round numbers up to 16.
    pub fn server_step(&self) -> f64 {
        let classes = self.classes.max(1) as f64;
        let samples = self.samples_per_user.max(1.0);
        let per_class = samples / classes;
        let scarcity = (ENOUGH_PER_CLASS / per_class).min(self.users as f64 / FEW_USERS).max(1.0);
        let expected = classes * (1.0 - (1.0 - 1.0 / classes).powf(samples));
        let held = self.classes_per_user.unwrap_or(expected).clamp(1.0, classes);
        let wanted = (scarcity * (expected / held).max(1.0)).sqrt();
        let distance = |step: f64| (step / wanted).ln().abs();
        STEPS.into_iter().min_by(|&a, &b| distance(a).total_cmp(&distance(b))).unwrap_or(1.0)
    }
}

/// With so many samples of each class per user, the average is not diluted.
const ENOUGH_PER_CLASS: f64 = 4.0;
/// So few users do not dilute each other.
const FEW_USERS: f64 = 5.0;
/// The steps that are proposed.
const STEPS: [f64; 9] = [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0];

/// Shortens a server step above 1 that would change the weights too much, which is how rounds diverge. `relative` is
/// the length of the average difference relative to that of the global weights. A shortened step changes the weights
/// by at most [`LONGEST_CHANGE`] of their length, divided by the square root of the round, which counts from 1. The
/// result is never below 1, so an average that is too long by itself is applied as it is. A step that is not a number
/// stays one, for the caller to refuse.
pub fn guarded_step(step: f64, round: u64, relative: f64) -> f64 {
    if step.is_nan() || step <= 1.0 {
        return step;
    }
    let most = LONGEST_CHANGE / (round.max(1) as f64).sqrt();
    if relative.is_nan() { 1.0 } else { (most / relative).clamp(1.0, step) }
}

/// How much a server step above 1 may change the weights in the first round, relative to their length. Rounds that
/// converge stay below it with the steps that are proposed.
pub const LONGEST_CHANGE: f64 = 0.75;

#[cfg(test)]
mod tests {
    use super::*;

    fn step(users: usize, classes: usize, samples: f64, held: Option<f64>) -> f64 {
        UserNumbers { users, classes, samples_per_user: samples, classes_per_user: held }.server_step()
    }

    #[test]
    fn few_users_with_equal_shares_take_plain_steps() {
        for users in 1..=7 {
            for classes in [1, 2, 10, 101, 1000] {
                for samples in [1.0, 20.0, 545.0, 1e6] {
                    assert_eq!(step(users, classes, samples, None), 1.0, "{users} {classes} {samples}");
                }
            }
        }
        // Many users with enough samples each, as where all of them have copies of the same ones.
        assert_eq!(step(100, 101, 545.0, Some(100.2)), 1.0);
    }

    #[test]
    fn steps_grow_with_users_who_have_few_samples_or_few_classes() {
        // 2,727 samples of 101 classes.
        assert_eq!(step(5, 101, 545.0, Some(20.2)), 2.0);
        assert_eq!(step(25, 101, 109.0, None), 2.0);
        assert_eq!(step(50, 101, 54.5, None), 3.0);
        assert_eq!(step(100, 101, 27.3, None), 4.0);
        assert_eq!(step(50, 101, 54.5, Some(2.0)), 12.0);
        assert_eq!(step(101, 101, 27.0, Some(1.0)), 16.0);
        let mut last = 0.0;
        for users in [1, 5, 10, 20, 50, 100, 1000] {
            let now = step(users, 101, 2727.0 / users as f64, None);
            assert!(now >= last, "{users}");
            last = now;
        }
    }

    #[test]
    fn extreme_numbers_give_a_step_between_1_and_16() {
        for users in [0, 1, usize::MAX] {
            for classes in [0, 1, usize::MAX] {
                for samples in [f64::NEG_INFINITY, 0.0, 1e300, f64::INFINITY, f64::NAN] {
                    for held in [None, Some(0.0), Some(1e300), Some(f64::NAN)] {
                        let step = step(users, classes, samples, held);
                        assert!((1.0..=16.0).contains(&step), "{users} {classes} {samples} {held:?}: {step}");
                    }
                }
            }
        }
    }

    #[test]
    fn long_steps_are_shortened_and_plain_ones_are_not() {
        assert_eq!(guarded_step(1.0, 1, 100.0), 1.0);
        assert_eq!(guarded_step(0.5, 1, 100.0), 0.5);
        assert_eq!(guarded_step(4.0, 1, 0.1), 4.0);
        assert_eq!(guarded_step(10.0, 1, 0.25), 3.0);
        assert_eq!(guarded_step(10.0, 4, 0.125), 3.0);
        assert_eq!(guarded_step(10.0, 1, 2.0), 1.0);
        // A model of zeros, with and without a difference.
        assert_eq!(guarded_step(10.0, 1, f64::INFINITY), 1.0);
        assert_eq!(guarded_step(10.0, 1, f64::NAN), 1.0);
        assert_eq!(guarded_step(10.0, u64::MAX, 0.0), 10.0);
        assert!(guarded_step(f64::NAN, 1, 0.1).is_nan());
    }
}
