//! Seeded splits: by class for training and testing, by chance for users.

use super::Labels;
use crate::{Error, Seed};

/// Sample numbers: so many of every class to train on, the next ones to test on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerClassSplit {
    /// Samples to train on, class after class.
    pub train: Vec<usize>,
    /// Samples to test on, class after class.
    pub test: Vec<usize>,
}

/// Takes the first `train` samples of every class in a random order and at most `test` of those that follow.
///
/// # Errors
/// If the labels are attributes, or a class has too few samples to train on.
pub fn split_per_class(
    labels: &Labels,
    train: usize,
    test: usize,
    seed: &Seed,
) -> Result<PerClassSplit, Error> {
    let classes = labels.as_classes("a split by class")?;
    let mut members = vec![Vec::new(); labels.class_count()];
    for (sample, &class) in classes.iter().enumerate() {
        members[class as usize].push(sample);
    }
    let mut split = PerClassSplit { train: Vec::new(), test: Vec::new() };
    for (class, mut samples) in members.into_iter().enumerate() {
        if samples.len() < train {
            return Err(Error::TooFewSamples {
                what: "a split by class",
                needed: train,
                found: samples.len(),
            });
        }
        seed.derive("split", class as u64).stream().shuffle(&mut samples);
        split.train.extend_from_slice(&samples[..train]);
        split.test.extend_from_slice(&samples[train..samples.len().min(train + test)]);
    }
    Ok(split)
}

/// Deals `samples` to `users` at random, in shares whose sizes differ by at most one, the larger ones first.
///
/// # Errors
/// If there are no users or fewer samples than users.
pub fn shares(samples: &[usize], users: usize, seed: &Seed) -> Result<Vec<Vec<usize>>, Error> {
    if users == 0 {
        return Err(Error::Empty { what: "users" });
    }
    if samples.len() < users {
        return Err(Error::TooFewSamples { what: "one share a user", needed: users, found: samples.len() });
    }
    let mut samples = samples.to_vec();
    seed.derive("shares", 0).stream().shuffle(&mut samples);
    let (size, larger) = (samples.len() / users, samples.len() % users);
    let mut rest = &samples[..];
    Ok((0..users)
        .map(|user| {
            let (share, after) = rest.split_at(size + usize::from(user < larger));
            rest = after;
            share.to_vec()
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_split_evenly_and_reproducibly() {
        let labels = Labels::classes(3, (0..30).map(|i| i % 3).collect()).unwrap();
        let split = split_per_class(&labels, 4, 5, &Seed::new(0)).unwrap();
        assert_eq!((split.train.len(), split.test.len()), (12, 15));
        assert!(split.train.iter().all(|i| !split.test.contains(i)));
        assert!(split.train[..4].iter().all(|i| i % 3 == 0));
        assert_eq!(split, split_per_class(&labels, 4, 5, &Seed::new(0)).unwrap());
        assert_ne!(split, split_per_class(&labels, 4, 5, &Seed::new(1)).unwrap());
        assert!(matches!(
            split_per_class(&labels, 11, 5, &Seed::new(0)),
            Err(Error::TooFewSamples { needed: 11, found: 10, .. })
        ));
    }

    #[test]
    fn shares_cover_everything_once() {
        let samples: Vec<usize> = (100..117).collect();
        let shares = shares(&samples, 5, &Seed::new(3)).unwrap();
        assert_eq!(shares.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 3, 3, 3]);
        let mut all = shares.concat();
        all.sort_unstable();
        assert_eq!(all, samples);
        assert!(super::shares(&samples, 0, &Seed::new(3)).is_err());
        assert!(super::shares(&samples, 18, &Seed::new(3)).is_err());
    }
}
