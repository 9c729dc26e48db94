//! Face attributes (Table 3), sensitive places (Table 4) and videos (Table 5): samples with several labels, or with a
//! rare one.

use std::num::NonZeroUsize;

use dphe::Profile;
use dphe_federate::Scenario;
use dphe_learn::metrics::{area_under_roc, average_precision, mean_average_precision};
use dphe_learn::{Dataset, Weights};

use super::grid::{Grid, GridCell, GridSpec, Method};
use super::results::{ColumnSpec, Results, Show};
use super::settings::DIGITS;
use super::{AttributeSource, Settings};
use crate::methods::baseline::PooledSteps;
use crate::methods::dphe::{DpheVariant, Recipe};
use crate::methods::noisy::{NoisyMethod, Norm};
use crate::methods::{accuracy, balanced_accuracy};
use crate::{Claim, Error, Findings, Measurement, ValueUnit};

/// One of the paper's tasks with attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeTask {
    /// Forty face attributes, measured by mean accuracy.
    Faces,
    /// Detection of sensitive places, measured by average precision.
    Places,
    /// The most frequent attributes of videos, measured by mean average precision.
    Videos,
    /// Medical images of two kinds, measured by the area under the receiver operating characteristic. The paper has no
    /// such task.
    Medical,
}

/// The numbers of most frequent attributes over which the precision for videos is averaged.
const MOST_FREQUENT: [usize; 3] = [10, 50, 100];

/// The data of a task.
struct TaskData {
    name: &'static str,
    title: &'static str,
    /// The sparsity of the paper's classifiers.
    sparsity: f64,
    /// The measures by name, title and unit, the main one first.
    measures: &'static [(&'static str, &'static str, ValueUnit)],
    /// The paper's numbers for No-PP, PRR10, RA12 and DPHE, in the order of the measures.
    printed: [&'static [f64]; 4],
}

const FACES: TaskData = TaskData {
    name: "celeba",
    title: "Table 3: face attributes",
    sparsity: 0.75,
    measures: &[
        ("accuracy", "mean accuracy, %", ValueUnit::Percent),
        ("balanced", "balanced, %", ValueUnit::Percent),
    ],
    printed: [&[], &[78.0], &[64.0], &[84.0]],
};

const PLACES: TaskData = TaskData {
    name: "lifelog",
    title: "Table 4: sensitive places",
    sparsity: 0.95,
    measures: &[("ap", "average precision", ValueUnit::Plain)],
    printed: [&[], &[0.546], &[0.704], &[0.729]],
};

const VIDEOS: TaskData = TaskData {
    name: "youtube8m",
    title: "Supplement, Table 1: video attributes",
    sparsity: 0.65,
    measures: &[
        ("map10", "mAP of 10", ValueUnit::Plain),
        ("map50", "mAP of 50", ValueUnit::Plain),
        ("map100", "mAP of 100", ValueUnit::Plain),
    ],
    printed: [&[0.70, 0.55, 0.48], &[0.62, 0.45, 0.38], &[0.60, 0.45, 0.37], &[0.70, 0.53, 0.47]],
};

const MEDICAL: TaskData = TaskData {
    name: "medical",
    title: "Medical images: hospitals that do not share pictures",
    sparsity: 0.9,
    measures: &[("auc", "AUC", ValueUnit::Plain), ("ap", "average precision", ValueUnit::Plain)],
    printed: [&[], &[], &[], &[]],
};
/// How much worse than all data in one place the encrypted average may be.
const MEDICAL_SLACK: f64 = 0.01;

impl AttributeTask {
    fn data(self) -> &'static TaskData {
        match self {
            Self::Faces => &FACES,
            Self::Places => &PLACES,
            Self::Videos => &VIDEOS,
            Self::Medical => &MEDICAL,
        }
    }

    /// Measures how good a classifier is on some samples. The most frequent attributes are those of the training data.
    fn judge(
        self,
        weights: &Weights,
        data: &Dataset,
        scenario: &Scenario,
        threads: NonZeroUsize,
    ) -> Result<Measurement, Error> {
        let scores = weights.scores(data.features(), threads)?;
        let labels = data.labels();
        let mut measurement = Measurement::new();
        match self {
            Self::Faces => {
                measurement.insert("accuracy".to_owned(), accuracy(weights, data, threads)?);
                measurement.insert("balanced".to_owned(), balanced_accuracy(data, &scores.above_zero()));
            }
            Self::Places | Self::Medical => {
                let positive: Vec<bool> = (0..data.len()).map(|i| labels.is_positive(i, 0)).collect();
                let scores: Vec<f64> = scores.class(0).map(f64::from).collect();
                measurement.insert("ap".to_owned(), average_precision(&positive, &scores)?.unwrap_or(0.0));
                if self == Self::Medical {
                    let area = area_under_roc(&positive, &scores)?;
                    measurement.insert("auc".to_owned(), area.unwrap_or(0.5));
                }
            }
            Self::Videos => {
                let counts = scenario.pooled.labels().counts();
                let mut order: Vec<usize> = (0..counts.len()).collect();
                // the sort is stable, so equally frequent attributes stay in their order
                order.sort_by_key(|&attribute| core::cmp::Reverse(counts[attribute]));
                for most in MOST_FREQUENT {
                    let found = mean_average_precision(labels, &scores, &order[..most.min(order.len())])?;
                    measurement.insert(format!("map{most}"), found.mean);
                }
            }
        }
        Ok(measurement)
    }
}

/// Makes the experiment of a task on data with attributes.
pub fn recognition(task: AttributeTask, source: AttributeSource, settings: Settings) -> Grid {
    let data = task.data();
    // the paper's capacity for every sparsity
    let share = if source.name == DIGITS { 0.4 } else { 0.1 };
    let dphe = |variant, sparsity| Method::Dphe(Recipe { share, ..settings.recipe(variant, sparsity) });
    let ours = settings.variant();
    let sparsity = if ours.profile() == Profile::Paper { data.sparsity } else { 0.9 };
    let [pooled, prr10, ra12, papers] = data.printed;
    let rows: [(Method, &[f64]); 9] = [
        (Method::Constant, &[]),
        (Method::Pooled(PooledSteps::Stable), pooled),
        (Method::Noisy(NoisyMethod::Prr10, Norm::None), prr10),
        (Method::Noisy(NoisyMethod::Prr10, Norm::Unit), &[]),
        (Method::Noisy(NoisyMethod::Ra12, Norm::None), ra12),
        (Method::Noisy(NoisyMethod::Ra12, Norm::Unit), &[]),
        (dphe(DpheVariant::SparseWeights, data.sparsity), papers),
        (dphe(ours, sparsity), &[]),
        (Method::Initial, &[]),
    ];
    let cell = |(method, printed): (Method, _)| {
        // only one No-PP is compared here, so its name does not mention its steps
        let label = if let Method::Pooled(_) = method { "No-PP".to_owned() } else { method.name() };
        GridCell { label: label.clone(), printed, ..GridCell::new(label, 0, method, &settings) }
    };
    let alone = (task == AttributeTask::Medical).then(|| cell((Method::Alone, &[])));
    let warning = source.is_stand_in().then(|| {
        format!(
            "The paper's data are missing, so these are attributes of the classes of {}. The paper's numbers are for \
             other data.",
            source.name
        )
    });
    let own = [
        format!("Messages of `w-l1` aim at {:.0} % zeros, as in the paper.", 100.0 * data.sparsity),
        "Every method should beat the constant answer, which is always the same.".to_owned(),
    ];
    let kind = if source.is_stand_in() { "derived from classes" } else { "given" };
    Grid::new(GridSpec {
        notes: warning.into_iter().chain(own).collect(),
        own_settings: vec![("attributes", kind.to_owned())],
        cells: rows.map(cell).into_iter().chain(alone).collect(),
        main: data.measures[0].0,
        judge: Box::new(move |weights, on, scenario, threads| task.judge(weights, on, scenario, threads)),
        summarize: Box::new(move |results| findings(results, data.measures)),
        ..GridSpec::new(data.name, data.title, settings, vec![Box::new(source)])
    })
}

fn findings(results: &Results<'_>, measures: &[(&str, &str, ValueUnit)]) -> Findings {
    let (main, title, unit) = measures[0];
    let best = format!("best {main}");
    let mut columns: Vec<ColumnSpec<'_>> = vec![
        ("dataset", "data", ValueUnit::Text, Show::Source),
        ("method", "method", ValueUnit::Text, Show::Label),
        ("mean", title, unit, Show::Mean(main)),
        ("std", "±", unit, Show::Deviation(main)),
        ("runs", "runs", ValueUnit::Count, Show::Runs(main)),
        ("paper", "paper", unit, Show::Printed(0)),
    ];
    let paper_keys: Vec<String> = measures.iter().map(|(name, ..)| format!("paper_{name}")).collect();
    for (index, (&(name, title, unit), key)) in measures.iter().zip(&paper_keys).enumerate().skip(1) {
        columns.push((name, title, unit, Show::Mean(name)));
        columns.push((key, "paper", unit, Show::Printed(index)));
    }
    if results.spec.cells.iter().any(|cell| cell.method == Method::Alone) {
        columns.push(("best", "best user", unit, Show::Mean(&best)));
    }
    columns.push(("sparsity", "zeros per message, %", ValueUnit::Percent, Show::Mean("sparsity")));
    columns.push(("ciphertexts", "ciphertexts per message", ValueUnit::Count, Show::Mean("ciphertexts")));
    let table = results.table(results.spec.sources[0].name(), &columns);
    Findings { tables: vec![table], claims: claims(results), ..Findings::default() }
}

fn claims(results: &Results<'_>) -> Vec<Claim> {
    let mean = |method: Method| results.mean(&method.name(), results.spec.main);
    let own = DpheVariant::of_profile(results.spec.settings.profile);
    let mut variants = vec![DpheVariant::SparseWeights, own];
    variants.dedup();
    let mut claims = Vec::new();
    for ours in variants.into_iter().map(|variant| Method::Dphe(Recipe::new(variant))) {
        for other in
            [Method::Noisy(NoisyMethod::Prr10, Norm::None), Method::Noisy(NoisyMethod::Ra12, Norm::None)]
        {
            let (Some(a), Some(b)) = (mean(ours), mean(other)) else { continue };
            let text = format!("{} is better than {}", ours.name(), other.name());
            claims.push(Claim::new(text, a > b, format!("{a:.3} against {b:.3}")));
        }
    }
    if results.spec.name == MEDICAL.name {
        claims.extend(medical_claims(results, own));
    }
    claims
}

fn medical_claims(results: &Results<'_>, variant: DpheVariant) -> Vec<Claim> {
    let ours = Method::Dphe(Recipe::new(variant)).name();
    let mut claims = Vec::new();
    for &(measure, title, _) in MEDICAL.measures {
        let Some(found) = results.mean(&ours, measure) else { continue };
        if let Some(pooled) = results.mean("No-PP", measure) {
            let text = format!("{ours}: {title} within {MEDICAL_SLACK} of all data in one place");
            claims.push(Claim::new(
                text,
                found >= pooled - MEDICAL_SLACK,
                format!("{found:.3}, {pooled:.3}"),
            ));
        }
        if let Some(best) = results.mean(&Method::Alone.name(), &format!("best {measure}")) {
            let text = format!("{ours}: {title} above every user alone");
            claims.push(Claim::new(text, found > best, format!("{found:.3}, best user {best:.3}")));
        }
    }
    claims
}
