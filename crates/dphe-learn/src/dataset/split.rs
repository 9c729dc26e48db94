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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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
    /// All samples of a class go to one user, and every user gets as many classes, give or take one.
    WholeClasses,
    /// The samples of each class are divided between users in proportions drawn from a symmetric Dirichlet
    /// distribution, so that users differ in classes and in numbers of samples. Every user has at least one sample.
    Dirichlet {
        /// The concentration. At 100 users are almost alike, and at 0.1 most users have few classes.
        alpha: f64,
    },
    /// The samples are dealt at random, and the numbers of samples grow from user to user by a constant factor.
    ByAmount {
        /// How many times as many samples the last user has as the first.
        ratio: f64,
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
        Dealing::WholeClasses => {
            let members = members(labels, samples, &seed.derive("whole classes", 0))?;
            let present: Vec<usize> =
                (0..members.len()).filter(|&class| !members[class].is_empty()).collect();
            if users > present.len() {
                return Err(Error::TooFewSamples {
                    what: "dealing whole classes, with a class per user",
                    needed: users,
                    found: present.len(),
                });
            }
            let dealt = shares(&present, users, &seed.derive("classes", 0))?;
            Ok(dealt.iter().map(|mine| mine.iter().flat_map(|&c| &members[c]).copied().collect()).collect())
        }
        Dealing::Dirichlet { alpha } => dirichlet(labels, samples, users, alpha, seed),
        Dealing::ByAmount { ratio } => by_amount(samples, users, ratio, seed),
    }
}

/// Returns the samples of every class in random order.
fn members(labels: &Labels, samples: &[usize], seed: &Seed) -> Result<Vec<Vec<usize>>, Error> {
    let classes = labels.as_classes("dealing by class")?;
    let mut members = vec![Vec::new(); labels.class_count()];
    for &sample in samples {
        super::check_index("sample", sample, classes.len())?;
        members[classes[sample] as usize].push(sample);
    }
    for (class, samples) in members.iter_mut().enumerate() {
        seed.derive("class", class as u64).stream().shuffle(samples);
    }
    Ok(members)
}

fn check_users(users: usize, samples: usize) -> Result<(), Error> {
    if users == 0 {
        return Err(Error::Empty { what: "users" });
    }
    if samples < users {
        return Err(Error::TooFewSamples { what: "one sample per user", needed: users, found: samples });
    }
    Ok(())
}

fn dirichlet(
    labels: &Labels,
    samples: &[usize],
    users: usize,
    alpha: f64,
    seed: &Seed,
) -> Result<Vec<Vec<usize>>, Error> {
    if !(0.01..=1e6).contains(&alpha) {
        let remedy = "use a number from 0.01 to 1,000,000, such as 0.5";
        return Err(Error::Parameter { name: "alpha", value: alpha, remedy });
    }
    check_users(users, samples.len())?;
    let seed = seed.derive("dirichlet", 0);
    let mut dealt = vec![Vec::new(); users];
    for (class, samples) in members(labels, samples, &seed)?.into_iter().enumerate() {
        let mut stream = seed.derive("proportions", class as u64).stream();
        let logarithms: Vec<f64> = (0..users).map(|_| stream.log_gamma_variate(alpha)).collect();
        // Small concentrations give numbers that vanish, so the largest of them is scaled to 1.
        let most = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let parts: Vec<f64> = logarithms.iter().map(|log| (log - most).exp()).collect();
        let total: f64 = parts.iter().sum();
        let (mut before, mut start) = (0.0, 0);
        for (user, part) in parts.iter().enumerate() {
            before += part;
            let last = user + 1 == users;
            let end = if last { samples.len() } else { (samples.len() as f64 * (before / total)) as usize };
            dealt[user].extend_from_slice(&samples[start..end]);
            start = end;
        }
    }
    // A user without samples gets one of the user who has most.
    while let Some(empty) = dealt.iter().position(Vec::is_empty) {
        let richest = (0..users).max_by_key(|&user| (dealt[user].len(), user)).unwrap_or(empty);
        let Some(sample) = dealt[richest].pop() else { break };
        dealt[empty].push(sample);
    }
    Ok(dealt)
}

fn by_amount(samples: &[usize], users: usize, ratio: f64, seed: &Seed) -> Result<Vec<Vec<usize>>, Error> {
    if !(1.0..=1e6).contains(&ratio) {
        let remedy = "use a number from 1 to 1,000,000, such as 100";
        return Err(Error::Parameter { name: "ratio", value: ratio, remedy });
    }
    check_users(users, samples.len())?;
    let mut samples = samples.to_vec();
    seed.derive("by amount", 0).stream().shuffle(&mut samples);
    let growth = ratio.ln() / (users.max(2) - 1) as f64;
    let parts: Vec<f64> = (0..users).map(|user| (growth * user as f64).exp()).collect();
    let total: f64 = parts.iter().sum();
    // Everybody gets one sample first, so that nobody has none.
    let spare = (samples.len() - users) as f64;
    let (mut before, mut start) = (0.0, 0);
    Ok(parts
        .iter()
        .enumerate()
        .map(|(user, part)| {
            before += part;
            let last = user + 1 == users;
            let end = if last { samples.len() } else { user + 1 + (spare * (before / total)) as usize };
            let share = samples[start..end].to_vec();
            start = end;
            share
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

    fn classes_of(share: &[usize], count: usize) -> usize {
        let mut classes: Vec<usize> = share.iter().map(|sample| sample % count).collect();
        classes.sort_unstable();
        classes.dedup();
        classes.len()
    }

    #[test]
    fn users_who_differ_share_all_samples_and_nobody_has_none() {
        let labels = Labels::classes(10, (0..400).map(|i| i % 10).collect()).unwrap();
        let samples: Vec<usize> = (0..400).collect();
        let deal = |users, rule| deal(&labels, &samples, users, rule, &Seed::new(3)).unwrap();
        for users in [1, 3, 7, 10, 200, 400] {
            for rule in [
                Dealing::WholeClasses,
                Dealing::Dirichlet { alpha: 0.01 },
                Dealing::Dirichlet { alpha: 0.5 },
                Dealing::Dirichlet { alpha: 1e6 },
                Dealing::ByAmount { ratio: 1.0 },
                Dealing::ByAmount { ratio: 1e6 },
            ] {
                if rule == Dealing::WholeClasses && users > 10 {
                    continue;
                }
                let dealt = deal(users, rule);
                assert_eq!(dealt.len(), users);
                assert!(dealt.iter().all(|share| !share.is_empty()), "{users} {rule:?}");
                let mut all = dealt.concat();
                all.sort_unstable();
                assert_eq!(all, samples, "{users} {rule:?}");
                assert_eq!(dealt, deal(users, rule));
            }
        }
    }

    #[test]
    fn users_differ_as_the_rule_says() {
        let labels = Labels::classes(10, (0..4000).map(|i| i % 10).collect()).unwrap();
        let samples: Vec<usize> = (0..4000).collect();
        let deal = |users, rule| deal(&labels, &samples, users, rule, &Seed::new(3)).unwrap();
        let whole = deal(4, Dealing::WholeClasses);
        assert_eq!(whole.iter().map(|share| classes_of(share, 10)).collect::<Vec<_>>(), [3, 3, 2, 2]);
        assert!(whole.iter().all(|share| share.len() == 400 * classes_of(share, 10)));

        // A mean of 40 samples per user and class, whose deviation is about 40 / sqrt(alpha) for many users.
        let spread = |alpha| {
            let dealt = deal(10, Dealing::Dirichlet { alpha });
            let counts = dealt.iter().flat_map(|share| {
                (0..10).map(|class| share.iter().filter(|&&sample| sample % 10 == class).count() as f64)
            });
            (counts.map(|count| (count - 40.0).powi(2)).sum::<f64>() / 100.0).sqrt()
        };
        assert!(spread(1e5) < 2.0, "{}", spread(1e5));
        // The deviation of a share is sqrt(0.09 / (10 alpha + 1)), of 400 samples per class.
        for alpha in [0.05f64, 0.5, 5.0] {
            let expected = 400.0 * (0.09 / (10.0 * alpha + 1.0)).sqrt();
            assert!((spread(alpha) / expected - 1.0).abs() < 0.3, "{alpha}: {} {expected}", spread(alpha));
        }

        let amounts: Vec<usize> = deal(5, Dealing::ByAmount { ratio: 100.0 }).iter().map(Vec::len).collect();
        assert!(amounts.windows(2).all(|pair| pair[0] < pair[1]), "{amounts:?}");
        let ratio = amounts[4] as f64 / amounts[0] as f64;
        assert!((90.0..110.0).contains(&ratio), "{amounts:?}");
        let alike = deal(5, Dealing::ByAmount { ratio: 1.0 });
        assert!(alike.iter().all(|share| share.len() == 800));
    }

    #[test]
    fn impossible_dealings_are_refused() {
        let labels = Labels::classes(4, (0..40).map(|i| i % 4).collect()).unwrap();
        let attributes = Labels::attributes(1, vec![true; 40]).unwrap();
        let samples: Vec<usize> = (0..40).collect();
        let deal = |labels, users, rule| deal(labels, &samples, users, rule, &Seed::new(1));
        for rule in [
            Dealing::Dirichlet { alpha: 0.0 },
            Dealing::Dirichlet { alpha: f64::NAN },
            Dealing::Dirichlet { alpha: f64::INFINITY },
            Dealing::ByAmount { ratio: 0.5 },
            Dealing::ByAmount { ratio: f64::NAN },
        ] {
            assert!(matches!(deal(&labels, 3, rule), Err(Error::Parameter { .. })), "{rule:?}");
        }
        for rule in
            [Dealing::WholeClasses, Dealing::Dirichlet { alpha: 1.0 }, Dealing::ByAmount { ratio: 2.0 }]
        {
            assert!(deal(&labels, 0, rule).is_err() && deal(&labels, 41, rule).is_err(), "{rule:?}");
        }
        assert!(deal(&labels, 5, Dealing::WholeClasses).is_err());
        assert!(deal(&attributes, 3, Dealing::WholeClasses).is_err());
        assert!(deal(&attributes, 3, Dealing::Dirichlet { alpha: 1.0 }).is_err());
    }
}
