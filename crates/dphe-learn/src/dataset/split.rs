//! Seeded splits of samples: by class into training and test data, and into the shares of users.

use super::Labels;
use crate::{Error, Seed};

/// The sample numbers of a split into training and test data, by class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerClassSplit {
    /// The training samples, class after class.
    pub train: Vec<usize>,
    /// The test samples, class after class.
    pub test: Vec<usize>,
}

/// Shuffles the samples of every class and takes `train` of them for training and at most `test` others for testing.
///
/// # Errors
/// If the labels are attributes, or a class has fewer than `train` samples.
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
        split.test.extend_from_slice(&samples[train..samples.len().min(train.saturating_add(test))]);
    }
    Ok(split)
}

/// Deals `samples` to `users` at random. The sizes of the shares differ by at most one, and larger shares come first.
///
/// # Errors
/// If there are no users or fewer samples than users.
pub fn shares(samples: &[usize], users: usize, seed: &Seed) -> Result<Vec<Vec<usize>>, Error> {
    if users == 0 {
        return Err(Error::Empty { what: "users" });
    }
    if samples.len() < users {
        return Err(Error::TooFewSamples { what: "one share per user", needed: users, found: samples.len() });
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

/// The rule by which samples are dealt to users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dealing {
    /// Every user gets an equal share at random, and no sample is dealt twice.
    #[default]
    Disjoint,
    /// The samples are dealt `copies` times, each time to another group of users, so that `copies` users hold each
    /// sample.
    Duplicated {
        /// The number of users that hold each sample. It must divide the number of users.
        copies: usize,
    },
    /// The samples are sorted by class and cut into pieces, and every user gets `pieces` of them, so that users see
    /// few classes.
    ByClass {
        /// The number of pieces per user. Fewer pieces make users more different.
        pieces: usize,
    },
}

/// Deals samples to users by a rule.
///
/// # Errors
/// If there are too few samples, `copies` does not divide the number of users, or the rule needs classes and the
/// labels are attributes.
pub fn deal(
    labels: &Labels,
    samples: &[usize],
    users: usize,
    rule: Dealing,
    seed: &Seed,
) -> Result<Vec<Vec<usize>>, Error> {
    match rule {
        Dealing::Disjoint => shares(samples, users, seed),
        Dealing::Duplicated { copies } => {
            if copies == 0 || !users.is_multiple_of(copies) {
                return Err(Error::Parameter {
                    name: "copies",
                    value: copies as f64,
                    remedy: "use a number that divides the number of users",
                });
            }
            let mut all = Vec::new();
            for copy in 0..copies {
                all.extend(shares(samples, users / copies, &seed.derive("copy", copy as u64))?);
            }
            Ok(all)
        }
        Dealing::ByClass { pieces } => {
            if pieces == 0 {
                return Err(Error::Parameter { name: "pieces", value: 0.0, remedy: "use at least 1" });
            }
            let classes = labels.as_classes("dealing by class")?;
            let mut sorted = samples.to_vec();
            for &sample in samples {
                super::check_index("sample", sample, classes.len())?;
            }
            seed.derive("by class", 0).stream().shuffle(&mut sorted);
            sorted.sort_by_key(|&sample| classes[sample]);
            let count = users.saturating_mul(pieces);
            if users == 0 || sorted.len() < count {
                let (needed, found) = (count.max(1), sorted.len());
                return Err(Error::TooFewSamples { what: "one sample per piece", needed, found });
            }
            let piece = |i: usize| &sorted[sorted.len() * i / count..sorted.len() * (i + 1) / count];
            let order: Vec<usize> = (0..count).collect();
            let dealt = shares(&order, users, &seed.derive("pieces", 0))?;
            Ok(dealt.iter().map(|mine| mine.iter().flat_map(|&i| piece(i)).copied().collect()).collect())
        }
    }
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
    fn shares_cover_every_sample_once() {
        let samples: Vec<usize> = (100..117).collect();
        let shares = shares(&samples, 5, &Seed::new(3)).unwrap();
        assert_eq!(shares.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 3, 3, 3]);
        let mut all = shares.concat();
        all.sort_unstable();
        assert_eq!(all, samples);
        assert!(super::shares(&samples, 0, &Seed::new(3)).is_err());
        assert!(super::shares(&samples, 18, &Seed::new(3)).is_err());
    }

    #[test]
    fn dealing_rules_give_disjoint_duplicated_or_skewed_shares() {
        let labels = Labels::classes(4, (0..40).map(|i| i % 4).collect()).unwrap();
        let samples: Vec<usize> = (0..40).collect();
        let deal = |rule| deal(&labels, &samples, 4, rule, &Seed::new(1));
        assert_eq!(deal(Dealing::Disjoint), shares(&samples, 4, &Seed::new(1)));

        let twice = deal(Dealing::Duplicated { copies: 2 }).unwrap();
        assert_eq!(twice.iter().map(Vec::len).collect::<Vec<_>>(), [20; 4]);
        assert!(
            samples.iter().all(|sample| twice.iter().filter(|share| share.contains(sample)).count() == 2)
        );
        assert_ne!(twice[0], twice[2]);
        assert!(deal(Dealing::Duplicated { copies: 3 }).is_err());

        let skewed = deal(Dealing::ByClass { pieces: 2 }).unwrap();
        let mut all = skewed.concat();
        all.sort_unstable();
        assert_eq!(all, samples);
        for share in &skewed {
            let mut classes: Vec<usize> = share.iter().map(|sample| sample % 4).collect();
            classes.sort_unstable();
            classes.dedup();
            assert!(classes.len() <= 2, "{classes:?}");
        }
        assert!(deal(Dealing::ByClass { pieces: 11 }).is_err());
        assert!(deal(Dealing::ByClass { pieces: 0 }).is_err());
    }
}
