//! `dphe data split`: the splits of the paper.

use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dphe_features::{FeatureTable, TableLabels, write_npz};
use dphe_learn::dataset::{shares, split_per_class};
use dphe_learn::{Labels, Seed};

use super::Input;
use crate::args::TableFormat;
use crate::cli::CliError;

/// With duplicated data, each user gets one part in this many by default. The paper has five users.
const PART: usize = 5;
/// The largest share of test samples without `--train-per-class`.
const HELD_OUT: f64 = 0.3;

#[derive(Args)]
pub(crate) struct Split {
    #[command(flatten)]
    input: Input,
    /// The number of users
    #[arg(long)]
    users: NonZeroUsize,
    /// Public samples per class, for the initial model (with attributes: per attribute, at random)
    #[arg(long, value_name = "SAMPLES", default_value_t = 3)]
    initial_per_class: usize,
    /// The maximum number of test samples per class; no user gets them. Without --train-per-class, at most three in ten
    /// samples are test samples
    #[arg(long, value_name = "SAMPLES", default_value_t = 50)]
    test_per_class: usize,
    /// Training samples per class, including initial ones [default: all that are not test samples]
    #[arg(long, value_name = "SAMPLES")]
    train_per_class: Option<usize>,
    /// How samples are distributed to users
    #[arg(long, value_enum, default_value_t = SplitName::Disjoint)]
    split: SplitName,
    /// Samples per user, with --split duplicated or duplicated-by-class [default: a fifth of all]
    #[arg(long, value_name = "SAMPLES")]
    per_user: Option<usize>,
    /// The random seed; the same seed gives the same files
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The directory for initial.npz, test.npz, user-1.npz and so on
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// The output format
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    format: TableFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SplitName {
    /// Equal shares at random
    Disjoint,
    /// Users draw samples independently, so a sample may go to several
    Duplicated,
    /// Each user has few classes
    ByClass,
    /// Users draw samples of few classes independently
    DuplicatedByClass,
}

impl SplitName {
    /// Returns whether users have samples of few classes.
    fn is_by_class(self) -> bool {
        matches!(self, Self::ByClass | Self::DuplicatedByClass)
    }
}

/// Returns how many of a class's samples at most become test samples, as `dphe simulate` holds them out.
fn held_out(samples: usize) -> usize {
    (HELD_OUT * samples as f64) as usize
}

impl Split {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let table = self.input.read()?;
        let parts = self.parts(&table)?;
        fs::create_dir_all(&self.output).map_err(|error| CliError::Data {
            what: format!("{} cannot be created: {error}", self.output.display()),
            hint: "Choose another directory with `-o`.".into(),
        })?;
        self.refuse_other_splits(&parts)?;
        let mut written = Vec::new();
        for (name, samples) in parts.iter().filter(|(_, samples)| !samples.is_empty()) {
            let path = self.output.join(format!("{name}.npz"));
            write_npz(&path, &table.select(samples)?)?;
            written.push((path, samples.len()));
        }
        if self.format == TableFormat::Json {
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

    /// Fails if the directory has a share that this split would not replace: shares of two splits may have samples in
    /// common.
    fn refuse_other_splits(&self, parts: &[(String, Vec<usize>)]) -> Result<(), CliError> {
        let output = |source| CliError::Output { path: self.output.clone(), source };
        for entry in fs::read_dir(&self.output).map_err(output)? {
            let name = entry.map_err(output)?.file_name().to_string_lossy().into_owned();
            let Some(part) = name.strip_suffix(".npz") else { continue };
            let share = part.strip_prefix("user-").is_some_and(|user| user.parse::<u32>().is_ok());
            if share && !parts.iter().any(|(written, _)| written == part) {
                return Err(CliError::Data {
                    what: format!("{} has {name} of another split", self.output.display()),
                    hint: "Delete it, or choose another directory with `-o`.".into(),
                });
            }
        }
        Ok(())
    }

    /// Returns the name and the samples of each file.
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
        let most_tests = per_class(self.test_per_class);
        for samples in rest {
            let (for_users, from) = match self.train_per_class.map(per_class) {
                Some(train) if initial + samples.len() < train || train < initial => {
                    return Err(CliError::Data {
                        what: format!(
                            "a class has {} samples ({initial} of them initial), but `--train-per-class` asks for {train}",
                            initial + samples.len()
                        ),
                        hint: "Choose another `--train-per-class`, or leave it out.".into(),
                    });
                }
                Some(train) => (0..train - initial, train - initial),
                None => (most_tests.min(held_out(samples.len()))..samples.len(), 0),
            };
            let until = match self.train_per_class {
                Some(_) => samples.len().min(from + most_tests),
                None => for_users.start,
            };
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

    /// Returns the class of each sample. All samples with attributes are in one class.
    fn strata(&self, table: &FeatureTable) -> Result<(usize, Vec<usize>), CliError> {
        match table.labels() {
            None => Err(CliError::Data {
                what: format!("{} has no labels to split by", self.input.path.display()),
                hint: "Name them with `--labels` or `--label-column`.".into(),
            }),
            Some(TableLabels::Attributes(_)) if self.split.is_by_class() => Err(CliError::Data {
                what: "samples with attributes cannot be split by class".into(),
                hint: "Use `--split disjoint` or `--split duplicated`.".into(),
            }),
            Some(TableLabels::Attributes(_)) => Ok((1, vec![0; table.samples()])),
            Some(TableLabels::Classes(labels)) => Ok((table.classes().len(), labels.clone())),
        }
    }

    /// Distributes the samples of each class to the users.
    fn users(&self, members: Vec<Vec<usize>>, seed: &Seed) -> Result<Vec<Vec<usize>>, CliError> {
        let users = self.users.get();
        let total = members.concat().len();
        // all samples grouped by class, the classes in random order
        let sorted = |seed: &Seed| -> Result<Vec<usize>, CliError> {
            let order: Vec<usize> = (0..members.len()).collect();
            let order = shares(&order, 1, seed)?.concat();
            Ok(order.into_iter().flat_map(|class| members[class].iter().copied()).collect())
        };
        match self.split {
            SplitName::Disjoint | SplitName::ByClass if self.per_user.is_some() => Err(CliError::Data {
                what: "with disjoint data all users get equal shares".into(),
                hint: "Use `--per-user` together with `--split duplicated`.".into(),
            }),
            SplitName::Disjoint => Ok(shares(&members.concat(), users, seed)?),
            SplitName::ByClass => {
                let sorted = sorted(&seed.derive("classes", 0))?;
                // sizes differ by at most one, as in `shares`
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
            SplitName::Duplicated | SplitName::DuplicatedByClass => {
                let size = self.per_user.unwrap_or(total.div_ceil(PART));
                if size == 0 || size > total {
                    return Err(CliError::Data {
                        what: format!(
                            "{size} samples per user were asked for, but there are {total} samples"
                        ),
                        hint: "Choose another `--per-user`.".into(),
                    });
                }
                (0..users as u64)
                    .map(|user| {
                        let seed = seed.derive("user", user);
                        let mut order = match self.split.is_by_class() {
                            false => shares(&members.concat(), 1, &seed)?.concat(),
                            true => sorted(&seed)?,
                        };
                        order.truncate(size);
                        Ok(order)
                    })
                    .collect()
            }
        }
    }
}
