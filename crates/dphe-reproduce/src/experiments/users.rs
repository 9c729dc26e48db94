//! Many users, and users who differ: every payload with equal shares, with shares of few classes, and with shares of
//! different sizes.

use dphe_learn::dataset::Dealing;

use super::grid::{Grid, GridCell, GridSpec, Method};
use super::results::{Results, Show};
use super::settings::{Split, boxed, notes};
use super::{Encryption, Settings, Source};
use crate::methods::dphe::{DpheVariant, Recipe};
use crate::{Claim, Findings, Plot, ValueUnit};

/// The numbers of users.
pub const USERS: [usize; 3] = [5, 50, 100];

/// With more users, sums are only made in the clear.
const MOST_ENCRYPTED: usize = 25;
/// The number of rounds of payloads that carry differences.
const ROUNDS: usize = 20;
const VARIANTS: [DpheVariant; 5] = [
    DpheVariant::Rotating,
    DpheVariant::LargestBlocks,
    DpheVariant::LargestDifferences,
    DpheVariant::LargestWeights,
    DpheVariant::SolvedWeights,
];

/// How users differ, and how many points less than five users with equal shares the differences of many users may
/// reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    None,
    Dirichlet,
    Class,
    Amount,
}

impl Difference {
    const ALL: [Self; 4] = [Self::None, Self::Dirichlet, Self::Class, Self::Amount];

    fn name(self) -> &'static str {
        match self {
            Self::None => "equal shares",
            Self::Dirichlet => "Dirichlet 0.5",
            Self::Class => "by class",
            Self::Amount => "by amount, 1 to 100",
        }
    }

    fn dealing(self, users: usize, classes: usize) -> Dealing {
        match self {
            Self::None => Dealing::Disjoint,
            Self::Dirichlet => Dealing::Dirichlet { alpha: 0.5 },
            Self::Class if users <= classes => Dealing::WholeClasses,
            Self::Class => Dealing::ByClass { pieces: 1 },
            Self::Amount => Dealing::ByAmount { ratio: 100.0 },
        }
    }

    /// Returns how many points may be lost after a number of rounds. Many users and users who differ start more slowly.
    fn allowed(self, rounds: usize) -> f64 {
        match self {
            _ if rounds < ROUNDS => 4.0,
            Self::None | Self::Dirichlet | Self::Amount => 1.0,
            Self::Class => 1.5,
        }
    }
}

/// Makes the experiment for one data set.
pub fn users(source: Source, settings: Settings, users: &[usize]) -> Grid {
    let classes = source.data.labels().class_count();
    let lines = VARIANTS.map(|variant| {
        let own = settings.recipe(variant, source.sparsity);
        let longer = Recipe { rounds: settings.rounds.unwrap_or(ROUNDS), ..own };
        Method::Dphe(if carries_weights(variant) { own } else { longer })
    });
    let mut cells = Vec::new();
    for difference in Difference::ALL {
        for &users in users {
            let split = Split { users, dealing: difference.dealing(users, classes) };
            cells.extend(lines.map(|line| {
                let cell = GridCell::new(name(difference, users, line), 0, line, &settings);
                let encryption = if users > MOST_ENCRYPTED { Encryption::Nothing } else { cell.encryption };
                GridCell { split, encryption, ..cell }
            }));
        }
    }
    let own = [
        "The server step follows from the numbers of users, samples per user and classes per user.".to_owned(),
        "By class, every class is at one user. If there are more users than classes, every user has a piece of the \
         samples sorted by class."
            .to_owned(),
    ];
    let numbers: Vec<String> = users.iter().map(ToString::to_string).collect();
    let users = users.to_vec();
    Grid::new(GridSpec {
        notes: notes([&source], own),
        own_settings: vec![("numbers of users", numbers.join(", "))],
        cells,
        summarize: Box::new(move |results| findings(results, &users, &lines)),
        ..GridSpec::new("users", "Many users, and users who differ", settings, boxed(vec![source]))
    })
}

fn carries_weights(variant: DpheVariant) -> bool {
    matches!(variant, DpheVariant::SparseWeights | DpheVariant::SolvedWeights | DpheVariant::LargestWeights)
}

fn name(difference: Difference, users: usize, line: Method) -> String {
    format!("{}/{users}/{}", difference.name(), line.name())
}

fn findings(results: &Results<'_>, users: &[usize], lines: &[Method]) -> Findings {
    use ValueUnit::{Count, Percent, Plain, Text};
    let difference = |cell: &GridCell| cell.what.split('/').next().unwrap_or_default().into();
    let table = results.table(
        format!("Accuracy on {}", results.spec.sources[0].name()),
        &[
            ("shares", "samples of users", Text, Show::Value(&difference)),
            ("users", "users", Count, Show::Value(&|cell| (cell.split.users as f64).into())),
            ("method", "method", Text, Show::Label),
            ("mean", "accuracy, %", Percent, Show::Mean("accuracy")),
            ("std", "±", Percent, Show::Deviation("accuracy")),
            ("runs", "runs", Count, Show::Runs("accuracy")),
            ("server_step", "server step", Plain, Show::Mean("server_step")),
            ("ciphertexts", "ciphertexts per message", Count, Show::Mean("ciphertexts")),
        ],
    );
    let plots = Difference::ALL.map(|difference| Plot {
        title: format!("Samples of users: {}", difference.name()),
        x: "users".to_owned(),
        logarithmic: true,
        y: "accuracy, %".to_owned(),
        unit: Percent,
        series: lines
            .iter()
            .map(|&line| (line.name(), points(results, difference, users, line)))
            .filter(|(_, points)| !points.is_empty())
            .collect(),
    });
    let claims = claims(results, users, lines);
    Findings { tables: vec![table], plots: plots.to_vec(), claims, ..Findings::default() }
}

fn points(results: &Results<'_>, difference: Difference, users: &[usize], line: Method) -> Vec<(f64, f64)> {
    let at = |&users: &usize| Some((users as f64, results.mean(&name(difference, users, line), "accuracy")?));
    users.iter().filter_map(at).collect()
}

/// Compares many users with the fewest users with equal shares.
fn claims(results: &Results<'_>, users: &[usize], lines: &[Method]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for &line in lines {
        let Method::Dphe(recipe) = line else { continue };
        if carries_weights(recipe.variant) {
            continue;
        }
        let Some(&(_, few)) = points(results, Difference::None, users, line).first() else { continue };
        for difference in Difference::ALL {
            let found = points(results, difference, users, line);
            let Some(least) = found.iter().map(|&(_, accuracy)| accuracy).reduce(f64::min) else { continue };
            let allowed = difference.allowed(recipe.rounds);
            let text = format!(
                "{}, {}, {} rounds: any number of users loses at most {allowed} points against few with equal shares",
                line.name(),
                difference.name(),
                recipe.rounds
            );
            let seen = found.iter().map(|(users, accuracy)| format!("{users}: {accuracy:.1}"));
            let seen = seen.collect::<Vec<_>>().join(", ");
            claims.push(Claim::new(text, least >= few - allowed, seen));
        }
    }
    claims
}
