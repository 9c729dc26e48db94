//! `dphe data split`: the paper's splits.

use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dphe_features::{FeatureTable, TableLabels, write_npz};
use dphe_learn::dataset::{shares, split_per_class};
use dphe_learn::{Labels, Seed};

use super::Input;
use crate::cli::CliError;
use crate::cli::extract::Format;

/// Without a number, each user of duplicated data has this part of it: the paper's five users.
const PART: usize = 5;

#[derive(Args)]
pub(crate) struct Split {
    #[command(flatten)]
    input: Input,
    /// How many users
    #[arg(long)]
    users: NonZeroUsize,
    /// Samples of each class that are public and fix the first weights; of attributes: for each attribute, by chance
    #[arg(long, value_name = "SAMPLES")]
    initial_per_class: usize,
    /// Samples of each class to test on, at most; they are nobody's
    #[arg(long, value_name = "SAMPLES", default_value_t = 50)]
    test_per_class: usize,
    /// Samples of each class to learn from, initial ones included; without it, all that are not for testing
    #[arg(long, value_name = "SAMPLES")]
    train_per_class: Option<usize>,
    /// Whether a sample belongs to one user, or users draw theirs independently and may share some
    #[arg(long, value_enum, default_value_t = Rule::Disjoint)]
    rule: Rule,
    /// Whether users have samples of all classes, or of few
    #[arg(long, value_enum, default_value_t = Skew::Iid)]
    skew: Skew,
    /// Samples of each user with --rule duplicated; without it, a fifth
    #[arg(long, value_name = "SAMPLES")]
    per_user: Option<usize>,
    /// What chance depends on: the same number gives the same files
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The folder that gets initial.npz, test.npz, user-1.npz and so on
    #[arg(short, long, value_name = "FOLDER")]
    out: PathBuf,
    /// A table to read, or JSON
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rule {
    Disjoint,
    Duplicated,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Skew {
    Iid,
    ByClass,
}

impl Split {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let table = self.input.read()?;
        let parts = self.parts(&table)?;
        fs::create_dir_all(&self.out).map_err(|error| CliError::Data {
            what: format!("{} could not be made: {error}", self.out.display()),
            hint: "another folder with -o".into(),
        })?;
        let mut written = Vec::new();
        for (name, samples) in parts.iter().filter(|(_, samples)| !samples.is_empty()) {
            let path = self.out.join(format!("{name}.npz"));
            write_npz(&path, &table.select(samples)?)?;
            written.push((path, samples.len()));
        }
        if self.format == Format::Json {
            let files: Vec<_> = written
                .iter()
                .map(|(path, samples)| {
                    serde_json::json!({ "file": path.display().to_string(), "samples": samples })
                })
                .collect();
            println!("{}", serde_json::to_string_pretty(&files)?);
        } else {
            for (path, samples) in written {
                println!("{samples:>8} samples   {}", path.display());
            }
        }
        Ok(())
    }

    /// The samples of each file.
    fn parts(&self, table: &FeatureTable) -> Result<Vec<(String, Vec<usize>)>, CliError> {
        let seed = Seed::new(self.seed);
        let (classes, labels) = self.strata(table)?;
        let per_class = |wanted: usize| match table.labels() {
            Some(TableLabels::Attributes(_)) => wanted.saturating_mul(table.classes().len()),
            _ => wanted,
        };
        let initial = per_class(self.initial_per_class);
        let numbered = Labels::classes(classes, labels.iter().map(|&label| label as u32).collect())?;
        let split = split_per_class(&numbered, initial, labels.len(), &seed)?;
        let mut rest = vec![Vec::new(); classes];
        for sample in split.test {
            rest[labels[sample]].push(sample);
        }

        let (mut test, mut members) = (Vec::new(), Vec::new());
        for samples in rest {
            let (for_users, from) = match self.train_per_class.map(per_class) {
                Some(train) if initial + samples.len() < train || train < initial => {
                    return Err(CliError::Data {
                        what: format!(
                            "a class has {} samples, {initial} of them initial, and {train} are to be learnt from",
                            initial + samples.len()
                        ),
                        hint: "another --train-per-class, or none".into(),
                    });
                }
                Some(train) => (0..train - initial, train - initial),
                None => (per_class(self.test_per_class).min(samples.len())..samples.len(), 0),
            };
            let until = samples.len().min(from + per_class(self.test_per_class));
            test.extend_from_slice(&samples[from..until]);
            members.push(samples[for_users].to_vec());
        }
        let users = self.users(members, &seed)?;
        let mut parts = vec![("initial".to_owned(), split.train), ("test".to_owned(), test)];
        parts.extend(
            users.into_iter().enumerate().map(|(user, samples)| (format!("user-{}", user + 1), samples)),
        );
        Ok(parts)
    }

    /// The class of each sample; samples with attributes are all alike.
    fn strata(&self, table: &FeatureTable) -> Result<(usize, Vec<usize>), CliError> {
        match table.labels() {
            None => Err(CliError::Data {
                what: format!("{} has no labels to split by", self.input.file.display()),
                hint: "say where they are with --labels or --label-column".into(),
            }),
            Some(TableLabels::Attributes(_)) if self.skew == Skew::ByClass => Err(CliError::Data {
                what: "samples with attributes have no one class to split by".into(),
                hint: "--skew iid".into(),
            }),
            Some(TableLabels::Attributes(_)) => Ok((1, vec![0; table.samples()])),
            Some(TableLabels::Classes(labels)) => Ok((table.classes().len(), labels.clone())),
        }
    }

    /// Deals the samples of each class to the users.
    fn users(&self, members: Vec<Vec<usize>>, seed: &Seed) -> Result<Vec<Vec<usize>>, CliError> {
        let users = self.users.get();
        let total = members.concat().len();
        // all samples, those of a class together, classes in an order of chance
        let sorted = |seed: &Seed| -> Result<Vec<usize>, CliError> {
            let order: Vec<usize> = (0..members.len()).collect();
            let order = shares(&order, 1, seed)?.concat();
            Ok(order.into_iter().flat_map(|class| members[class].iter().copied()).collect())
        };
        match (self.rule, self.skew) {
            (Rule::Disjoint, _) if self.per_user.is_some() => Err(CliError::Data {
                what: "with disjoint data everybody gets an equal share".into(),
                hint: "--per-user goes with --rule duplicated".into(),
            }),
            (Rule::Disjoint, Skew::Iid) => Ok(shares(&members.concat(), users, seed)?),
            (Rule::Disjoint, Skew::ByClass) => {
                let sorted = sorted(&seed.derive("classes", 0))?;
                // sizes as in `shares`: they differ by at most one
                let sizes = shares(&sorted, users, seed)?;
                let mut from = 0;
                Ok(sizes
                    .iter()
                    .map(|share| {
                        from += share.len();
                        sorted[from - share.len()..from].to_vec()
                    })
                    .collect())
            }
            (Rule::Duplicated, skew) => {
                let size = self.per_user.unwrap_or(total.div_ceil(PART));
                if size == 0 || size > total {
                    return Err(CliError::Data {
                        what: format!("{size} samples a user are not possible: there are {total}"),
                        hint: "another --per-user".into(),
                    });
                }
                (0..users as u64)
                    .map(|user| {
                        let seed = seed.derive("user", user);
                        let mut order = match skew {
                            Skew::Iid => shares(&members.concat(), 1, &seed)?.concat(),
                            Skew::ByClass => sorted(&seed)?,
                        };
                        order.truncate(size);
                        Ok(order)
                    })
                    .collect()
            }
        }
    }
}
