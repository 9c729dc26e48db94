//! Table 1: object recognition with and without privacy.

use super::grid::{Grid, GridCell, GridSpec, Method};
use super::results::{Results, Show};
use super::settings::{CALTECH101, CALTECH256, boxed, notes};
use super::{Settings, Source};
use crate::methods::baseline::PooledSteps;
use crate::methods::dphe::{DpheVariant, Recipe};
use crate::methods::noisy::{NoisyMethod, Norm, Privacy, STRENGTHS};
use crate::methods::prr10;
use crate::methods::ra12::{self, Ra12};
use crate::{Cell, Claim, Findings, Table, ValueUnit};

const OURS: Method = Method::Dphe(Recipe::new(DpheVariant::LargestDifferences));
const HARD: Method = Method::Dphe(Recipe::new(DpheVariant::LargestWeights));
const PAPERS: Method = Method::Dphe(Recipe::new(DpheVariant::SparseWeights));
const SOLVED: Method = Method::Dphe(Recipe::new(DpheVariant::SolvedWeights));
const RA12: Method = Method::Noisy(NoisyMethod::Ra12, Norm::None);
const PRR10: Method = Method::Noisy(NoisyMethod::Prr10, Norm::None);

/// The rows for one data set: method, how it protects samples, and the paper's mean and standard deviation on
/// Caltech101 and Caltech256. The recipes do not have the numbers of the settings yet.
const ROWS: [(Method, &str, &[f64], &[f64]); 14] = [
    (Method::Pooled(PooledSteps::Optimal), "none", &[], &[]),
    (Method::Pooled(PooledSteps::Stable), "none", &[], &[]),
    (PRR10, "noise, too little for these samples", &[41.6, 1.2], &[55.9, 0.5]),
    (Method::Noisy(NoisyMethod::Prr10, Norm::Unit), "noise", &[], &[]),
    (RA12, "noise, too little for these samples", &[83.8, 1.1], &[68.0, 0.3]),
    (Method::Noisy(NoisyMethod::Ra12, Norm::Unit), "noise", &[], &[]),
    (PAPERS, "encryption", &[89.3, 0.8], &[74.7, 0.4]),
    (SOLVED, "encryption", &[], &[]),
    (HARD, "encryption", &[], &[]),
    (OURS, "encryption", &[], &[]),
    (Method::Dphe(Recipe::new(DpheVariant::LargestBlocks)), "encryption", &[], &[]),
    (Method::Dphe(Recipe::new(DpheVariant::Rotating)), "encryption", &[], &[]),
    (Method::Initial, "nothing is sent", &[], &[]),
    (Method::Alone, "nothing is sent", &[], &[]),
];

/// Claims for each data set: the first method is better than the second, or at most this many points worse.
const COMPARISONS: [(&str, Method, Method, f64); 8] = [
    ("encrypted averages are better than RA12", OURS, RA12, 0.0),
    ("RA12 is better than PRR10", RA12, PRR10, 0.0),
    ("encrypted averages with the paper's payload, read literally, are better than RA12", PAPERS, RA12, 0.0),
    ("encrypted averages with the paper's payload, solved, are better than RA12", SOLVED, RA12, 0.0),
    (HARD_NEAR_POOLED, HARD, Method::Pooled(PooledSteps::Optimal), 1.0),
    (NEAR_POOLED, OURS, Method::Pooled(PooledSteps::Optimal), 1.0),
    (NEAR_POOLED, OURS, Method::Pooled(PooledSteps::Stable), 1.0),
    (UNIT_NORM, Method::Initial, Method::Noisy(NoisyMethod::Ra12, Norm::Unit), 0.0),
];
const HARD_NEAR_POOLED: &str =
    "encrypted averages of the largest weights are at most a point worse than all data in one place";
const NEAR_POOLED: &str = "encrypted averages are at most a point worse than all data in one place";
const UNIT_NORM: &str = "with samples of length 1, RA12 is worse than training on the public samples only";

/// Makes the experiment for these data sets.
pub fn table1(sources: Vec<Source>, settings: Settings) -> Grid {
    let classes: Vec<usize> = sources.iter().map(|source| source.data.labels().class_count()).collect();
    let mut cells = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        for (method, privacy, caltech101, caltech256) in ROWS {
            let printed = match source.name.as_str() {
                CALTECH101 => caltech101,
                CALTECH256 => caltech256,
                _ => &[],
            };
            let what = name(&source.name, method);
            let method = match method {
                Method::Dphe(recipe) => Method::Dphe(settings.recipe(recipe.variant, source.sparsity)),
                method => method,
            };
            cells.push(GridCell { printed, privacy, ..GridCell::new(what, index, method, &settings) });
        }
    }
    let Privacy { epsilon, delta } = Privacy::PAPER;
    let own = [
        "The paper uses features of ResNet-152, which these are not. Compare methods with each other, not with the \
         paper's numbers."
            .to_owned(),
        format!(
            "The noise is the paper's, with ε = {epsilon} and δ = {delta} for one classifier of one class. The total ε \
             is the sum over all classes and, in RA12, over {} iterations. It does not count that five strengths are \
             tried.",
            Ra12::ITERATIONS
        ),
        "The proofs of privacy are for samples of length 1. Standardised samples are about as long as the square root \
         of their number of features, and the published accuracies match those."
            .to_owned(),
        "The strength λ is the one whose noisy classifier is best on the public samples.".to_owned(),
    ];
    Grid::new(GridSpec {
        notes: notes(&sources, own),
        cells,
        reports_strengths: true,
        summarize: Box::new(move |results| findings(results, &classes)),
        ..GridSpec::new("table1", "Table 1: visual object recognition", settings, boxed(sources))
    })
}

fn name(source: &str, method: Method) -> String {
    format!("{source}/{}", method.name())
}

/// The privacy budget that all classifiers of a noisy method spend together.
fn epsilon(method: Method, classes: usize) -> Option<f64> {
    match method {
        Method::Noisy(NoisyMethod::Prr10, _) => Some(prr10::budget(Privacy::PAPER, classes).total_epsilon()),
        Method::Noisy(NoisyMethod::Ra12, _) => {
            Some(ra12::budget(Privacy::PAPER, classes, Ra12::ITERATIONS).total_epsilon())
        }
        _ => None,
    }
}

fn findings(results: &Results<'_>, classes: &[usize]) -> Findings {
    use ValueUnit::{Count, Percent, Plain, Seconds, Text};
    let epsilon = |cell: &GridCell| epsilon(cell.method, classes[cell.source]).into();
    let main = results.table(
        "Mean accuracy over classes",
        &[
            ("dataset", "data", Text, Show::Source),
            ("method", "method", Text, Show::Label),
            ("mean", "accuracy, %", Percent, Show::Mean("accuracy")),
            ("std", "±", Percent, Show::Deviation("accuracy")),
            ("runs", "runs", Count, Show::Runs("accuracy")),
            ("paper", "paper, %", Percent, Show::Printed(0)),
            ("paper_std", "paper ±", Percent, Show::Printed(1)),
            ("std1", "± of all splits", Percent, Show::SampleDeviation("accuracy")),
            ("sparsity", "zeros per message, %", Percent, Show::Mean("sparsity")),
            ("shards", "shards", Plain, Show::Mean("shards")),
            ("ciphertexts", "ciphertexts per message", Count, Show::Mean("ciphertexts")),
            ("seal_s", "sealing per message, s", Seconds, Show::Mean("seal_s")),
            ("epsilon", "total ε", Plain, Show::Value(&epsilon)),
            ("private", "privacy by", Text, Show::Privacy),
        ],
    );
    Findings { tables: vec![main, strengths(results)], claims: claims(results), ..Findings::default() }
}

fn strengths(results: &Results<'_>) -> Table {
    let columns = [
        ("dataset", "data", ValueUnit::Text),
        ("method", "method", ValueUnit::Text),
        ("strength", "λ", ValueUnit::Plain),
        ("mean", "accuracy, %", ValueUnit::Percent),
        ("quiet", "without noise, %", ValueUnit::Percent),
        ("public", "on public samples, %", ValueUnit::Percent),
        ("chosen", "times chosen", ValueUnit::Count),
    ];
    let mut rows = Vec::new();
    for cell in results.spec.cells.iter().filter(|cell| matches!(cell.method, Method::Noisy(..))) {
        let chosen = results.of(&cell.what, "strength").0;
        for strength in STRENGTHS {
            let of = |name: &str| results.mean(&cell.what, &format!("{name} at {strength}"));
            let Some(found) = of("accuracy") else { continue };
            rows.push(vec![
                results.spec.sources[cell.source].name().into(),
                cell.label.as_str().into(),
                Cell::from(strength),
                found.into(),
                of("quiet").into(),
                of("public").into(),
                (chosen.iter().filter(|&&c| c == strength).count() as f64).into(),
            ]);
        }
    }
    Table::new("Accuracy by strength of the penalty", &columns, rows)
}

fn claims(results: &Results<'_>) -> Vec<Claim> {
    let mut claims = Vec::new();
    for source in results.spec.sources.iter().map(|source| source.name()) {
        for (text, high, low, slack) in COMPARISONS {
            let mean = |method| results.mean(&name(source, method), "accuracy");
            let (Some(a), Some(b)) = (mean(high), mean(low)) else { continue };
            let seen = format!("{} {a:.1}, {} {b:.1}", high.name(), low.name());
            claims.push(Claim::new(format!("{source}: {text}"), a > b - slack, seen));
        }
    }
    claims
}
