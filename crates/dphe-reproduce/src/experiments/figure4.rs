//! Figure 4: the number of users grows, and either each user has a constant number of samples, or all users together
//! share the same samples.

use dphe::Profile;
use dphe_federate::Scenario;
use dphe_learn::dataset::Dealing;

use super::grid::{Grid, GridCell, GridSpec, Method};
use super::results::{Results, Show};
use super::settings::{Split, boxed, notes};
use super::{Encryption, Settings, Source};
use crate::methods::accuracy;
use crate::methods::dphe::{DpheVariant, Recipe};
use crate::{Claim, Findings, Measurement, Plot, ValueUnit};

/// The paper's numbers of users.
pub const FIGURE4_USERS: [usize; 5] = [5, 10, 25, 50, 100];

/// With more users, sums are only made in the clear.
const MOST_ENCRYPTED: usize = 25;
/// The number of users among whom the samples are dealt once.
const SHARES: usize = 5;
/// The mean of many small differences is small. A larger server step makes up for it, and this one does not.
const PLAIN_STEP: f64 = 1.0;

/// Makes the experiment for one data set. The numbers of users are multiples of 5 in ascending order.
pub fn figure4(source: Source, settings: Settings, users: &[usize]) -> Grid {
    let recipe = |variant| settings.recipe(variant, source.sparsity);
    let ours = recipe(settings.variant());
    let lines = [recipe(DpheVariant::SparseWeights), ours, Recipe { server_step: Some(PLAIN_STEP), ..ours }];
    let numbers: Vec<String> = users.iter().map(ToString::to_string).collect();
    let mut cells = Vec::new();
    for duplicated in [true, false] {
        for &users in users {
            cells.extend(lines.iter().filter_map(|&line| cell(duplicated, users, line, &settings)));
        }
    }
    let own = [
        format!(
            "Up to {MOST_ENCRYPTED} users, runs are encrypted if the settings say so and compared with sums in the \
             clear. With more users, sums are only made in the clear."
        ),
        "The paper plots its values without printing them. It says that accuracy hardly changes on the left and falls \
         on the right."
            .to_owned(),
    ];
    let users = users.to_vec();
    Grid::new(GridSpec {
        notes: notes([&source], own),
        own_settings: vec![("numbers of users", numbers.join(", "))],
        cells,
        judge: Box::new(|weights, data, scenario, threads| {
            let found = accuracy(weights, data, threads)?;
            let per_user = samples_per_user(scenario);
            Ok(Measurement::from([("accuracy".to_owned(), found), ("samples".to_owned(), per_user)]))
        }),
        summarize: Box::new(move |results| findings(results, &users, &lines.map(Method::Dphe))),
        ..GridSpec::new("figure4", "Figure 4: the number of users", settings, boxed(vec![source]))
    })
}

/// A point of the figure. The server step is 1 for users with many samples and does not matter in the paper's profile.
fn cell(duplicated: bool, users: usize, recipe: Recipe, settings: &Settings) -> Option<GridCell> {
    let small_shares = !duplicated && users >= MOST_ENCRYPTED;
    if recipe.server_step.is_some() && (!small_shares || recipe.variant.profile() == Profile::Paper) {
        return None;
    }
    let method = Method::Dphe(recipe);
    let copies = (users / SHARES).max(1);
    let dealing = if duplicated { Dealing::Duplicated { copies } } else { Dealing::Disjoint };
    let cell = GridCell::new(name(duplicated, users, method), 0, method, settings);
    let encryption = if users > MOST_ENCRYPTED { Encryption::Nothing } else { cell.encryption };
    Some(GridCell { split: Split { users, dealing }, encryption, ..cell })
}

fn samples_per_user(scenario: &Scenario) -> f64 {
    scenario.users.iter().map(|user| user.len()).sum::<usize>() as f64 / scenario.users.len() as f64
}

fn side(duplicated: bool) -> &'static str {
    if duplicated { "duplicated" } else { "disjoint" }
}

fn name(duplicated: bool, users: usize, line: Method) -> String {
    format!("{}/{users}/{}", side(duplicated), line.name())
}

/// The mean accuracy of a line at each number of users that has been measured.
fn points(results: &Results<'_>, users: &[usize], duplicated: bool, line: Method) -> Vec<(f64, f64)> {
    let at = |&users: &usize| Some((users as f64, results.mean(&name(duplicated, users, line), "accuracy")?));
    users.iter().filter_map(at).collect()
}

fn findings(results: &Results<'_>, users: &[usize], lines: &[Method]) -> Findings {
    use ValueUnit::{Count, Percent, Text};
    let encrypted = |cell: &GridCell| {
        results.of(&cell.what, "equal").0.iter().filter(|&&equal| equal == 1.0).count() as f64
    };
    let side = |cell: &GridCell| side(matches!(cell.split.dealing, Dealing::Duplicated { .. }));
    let table = results.table(
        format!("Accuracy on {}", results.spec.sources[0].name()),
        &[
            ("side", "samples", Text, Show::Value(&|cell| side(cell).into())),
            ("users", "users", Count, Show::Value(&|cell| (cell.split.users as f64).into())),
            ("method", "method", Text, Show::Label),
            ("mean", "accuracy, %", Percent, Show::Mean("accuracy")),
            ("std", "±", Percent, Show::Deviation("accuracy")),
            ("runs", "runs", Count, Show::Runs("accuracy")),
            ("samples", "samples per user", Count, Show::Mean("samples")),
            ("sparsity", "zeros per message, %", Percent, Show::Mean("sparsity")),
            ("ciphertexts", "ciphertexts per message", Count, Show::Mean("ciphertexts")),
            (
                "encrypted",
                "encrypted runs with equal weights",
                Count,
                Show::Value(&|cell| encrypted(cell).into()),
            ),
        ],
    );
    let plot = |duplicated: bool, title: &str| Plot {
        title: title.to_owned(),
        x: "users".to_owned(),
        logarithmic: true,
        y: "accuracy, %".to_owned(),
        unit: Percent,
        series: lines
            .iter()
            .map(|&line| (line.name(), points(results, users, duplicated, line)))
            .filter(|(_, points)| !points.is_empty())
            .collect(),
    };
    let plots = vec![
        plot(true, "Each user has as many samples, some of them duplicated"),
        plot(false, "More users share the same samples"),
    ];
    let claims = claims(results, users, &lines[..2]);
    Findings { tables: vec![table], plots, claims, ..Findings::default() }
}

fn claims(results: &Results<'_>, users: &[usize], lines: &[Method]) -> Vec<Claim> {
    let list = |values: &[f64]| values.iter().map(|v| format!("{v:.1}")).collect::<Vec<_>>().join(", ");
    let mut claims = Vec::new();
    for &line in lines {
        let [left, right] = [true, false].map(|duplicated| -> Vec<f64> {
            points(results, users, duplicated, line).into_iter().map(|(_, accuracy)| accuracy).collect()
        });
        if left.len() < 2 || right.len() < 2 {
            continue;
        }
        let (least, most) = left.iter().fold((f64::MAX, f64::MIN), |(l, m), &v| (l.min(v), m.max(v)));
        let text = format!(
            "{}: more users with as many samples each change the accuracy by at most 3 points",
            line.name()
        );
        claims.push(Claim::new(text, most - least <= 3.0, list(&left)));
        let text = format!("{}: more users with fewer samples lose accuracy", line.name());
        claims.push(Claim::new(text, right.last() < right.first(), list(&right)));
    }
    claims
}
