//! The findings about the leaks.

use super::super::measure::{BATCHES, CLOSE, PICTURES};
use super::super::picture::pair;
use super::{LEAKS, Leak, Leaks};
use crate::ValueUnit::{Count, Percent, Plain, Text};
use crate::{Cell, Claim, Findings, GreyImage, Measured, Measurement, Plot, RunId, Table};

/// The measurements of one leak on all splits.
struct Splits<'a>(Vec<&'a Measurement>);

impl<'a> Splits<'a> {
    fn new(leaks: &Leaks, measured: &'a Measured, leak: Leak) -> Self {
        let run = |seed| RunId { what: leaks.run_name(leak), seed };
        Self((0..leaks.seeds).filter_map(|seed| measured.get(&run(seed))).collect())
    }

    fn all(&self, name: &str) -> impl Iterator<Item = f64> {
        self.0.iter().filter_map(move |measurement| measurement.get(name).copied())
    }

    fn mean(&self, name: &str) -> Option<f64> {
        let count = self.all(name).count();
        (count > 0).then(|| self.all(name).sum::<f64>() / count as f64)
    }

    fn sum(&self, name: &str) -> f64 {
        self.all(name).sum()
    }

    /// Returns the number of samples of which the leak reveals something.
    fn exposed(&self) -> f64 {
        self.all("samples").zip(self.all("exposed")).map(|(samples, share)| (samples * share).round()).sum()
    }

    fn most(&self, name: &str) -> Option<f64> {
        self.all(name).max_by(f64::total_cmp)
    }

    fn percent(&self, name: &str) -> Option<f64> {
        self.mean(name).map(|share| share * 100.0)
    }
}

pub(super) fn of(leaks: &Leaks, measured: &Measured) -> Findings {
    let of = |leak| Splits::new(leaks, measured, leak);
    let mut notes = vec![
        "The aggregator knows the public weights, the weights that one user sends in the clear, and the size and \
         strength of the step, which follow from published numbers here. Single steps are taken by the learner that \
         users run, steps of full-batch gradient descent by the experiment."
            .to_owned(),
    ];
    if leaks.pixels.is_none() {
        notes.push(
            "Features are not pixels, so no images are shown. The paper also inverts features to images; this \
             experiment does not."
                .to_owned(),
        );
    }
    Findings {
        title: format!("What one plain update gives away: {}", leaks.name),
        notes,
        tables: vec![steps(of), averages(&of(Leak::Average))]
            .into_iter()
            .filter(|t| !t.rows.is_empty())
            .collect(),
        plots: plots(&of(Leak::Average)),
        pictures: pictures(leaks, measured),
        claims: claims(of),
    }
}

fn steps<'a>(of: impl Fn(Leak) -> Splits<'a>) -> Table {
    let rows = LEAKS
        .iter()
        .filter(|(leak, _)| !matches!(leak, Leak::Average | Leak::Sealed))
        .map(|(leak, title)| (of(*leak), title))
        .filter(|(of, _)| !of.0.is_empty())
        .map(|(of, title)| {
            vec![
                Cell::from(*title),
                of.sum("samples").into(),
                of.percent("exposed").into(),
                of.percent("recovered").into(),
                of.most("worst_error").into(),
                of.percent("two_roots").into(),
                of.percent("right_of_two").into(),
                of.percent("share_of_norm").into(),
            ]
        });
    Table::new(
        "One step from one sample",
        &[
            ("step", "step", Text),
            ("samples", "samples", Count),
            ("exposed", "exposed, %", Percent),
            ("recovered", "of these recovered to 1e-6, %", Percent),
            ("worst", "worst relative error", Plain),
            ("two", "with two candidates, %", Percent),
            ("right", "of these the length picks the right one, %", Percent),
            ("norm", "squared length recovered, %", Percent),
        ],
        rows.collect(),
    )
}

fn averages(average: &Splits<'_>) -> Table {
    let mut rows = Vec::new();
    for loss in ["hinge", "logistic"] {
        for batch in BATCHES {
            let name = |key: &str| format!("{loss}_{batch:02}_{key}");
            if average.mean(&name("samples")).is_none() {
                continue;
            }
            rows.push(vec![
                Cell::from(loss),
                Cell::Number(batch as f64),
                average.sum(&name("samples")).into(),
                average.percent(&name("exposed")).into(),
                average.most(&name("worst_error")).into(),
                average.percent(&name("first_by_cosine")).into(),
                average.most(&name("first_round_error")).into(),
            ]);
        }
    }
    Table::new(
        "Gradient descent by users without samples of the class",
        &[
            ("loss", "loss", Text),
            ("batch", "samples per user", Count),
            ("users", "users", Count),
            ("exposed", "users exposed, %", Percent),
            ("worst", "worst relative error of the leaked average", Plain),
            ("first", "identifies one of its samples, %", Percent),
            ("first_round", "worst relative error from zero weights", Plain),
        ],
        rows,
    )
}

fn plots(average: &Splits<'_>) -> Vec<Plot> {
    let series = ["hinge", "logistic"].map(|loss| {
        let point = |&batch: &usize| {
            let share = average.percent(&format!("{loss}_{batch:02}_first_by_cosine"))?;
            Some((batch as f64, share))
        };
        (loss.to_owned(), BATCHES.iter().filter_map(point).collect::<Vec<_>>())
    });
    let series: Vec<_> = series.into_iter().filter(|(_, points)| !points.is_empty()).collect();
    if series.is_empty() {
        return Vec::new();
    }
    vec![Plot {
        title: "The average of a user's samples identifies one of them".to_owned(),
        x: "samples per user".to_owned(),
        logarithmic: true,
        y: "users, %".to_owned(),
        unit: Percent,
        series,
    }]
}

fn pictures(leaks: &Leaks, measured: &Measured) -> Vec<GreyImage> {
    let Some((width, white)) = leaks.pixels else { return Vec::new() };
    let mut pictures = Vec::new();
    for (leak, title) in LEAKS {
        let right = match leak {
            // one of the models under logistic loss is enough
            Leak::Logistic(epochs) if epochs != 5 => continue,
            Leak::Average => "left: the mean of five samples; right: computed from the weights",
            Leak::Sealed => "left: the sample; right: bytes of its ciphertexts, in the order of the pixels",
            Leak::Hinge | Leak::Logistic(_) | Leak::Intercept | Leak::ElasticNet => {
                "left: the sample; right: computed from the weights"
            }
        };
        let Some(measurement) = measured.get(&RunId { what: leaks.run_name(leak), seed: 0 }) else {
            continue;
        };
        let lines = || vec![title.to_owned(), right.to_owned()];
        pictures.extend((0..PICTURES).filter_map(|n| pair(measurement, n, width, white, lines())));
    }
    pictures
}

fn claims<'a>(of: impl Fn(Leak) -> Splits<'a>) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (leak, text) in [
        (Leak::Hinge, "Hinge: every sample that violates the margin is recovered from one step"),
        (Leak::Logistic(5), "Logistic: one of at most two candidates is the sample"),
        (Leak::Intercept, "With an intercept, the sample and its label are recovered under either loss"),
        (Leak::ElasticNet, "L1 hides only features whose weights become zero; all others are recovered"),
    ] {
        let of = of(leak);
        let (Some(recovered), Some(worst)) = (of.percent("recovered"), of.most("worst_error")) else {
            continue;
        };
        let labels = of.mean("right_labels").unwrap_or(1.0);
        let norm = of.percent("share_of_norm");
        let norm = norm.map_or(String::new(), |norm| format!("; {norm:.1} % of the squared length"));
        claims.push(Claim {
            text: format!("{text}, to 1e-6."),
            holds: recovered == 100.0 && worst < CLOSE && labels == 1.0,
            seen: format!(
                "{recovered:.2} % of {} exposed samples, worst error {worst:.1e}{norm}",
                of.exposed()
            ),
        });
    }
    let share = |epochs| Some((epochs, of(Leak::Logistic(epochs)).percent("right_of_two")?));
    let roots: Vec<(usize, f64)> = [1, 5, 25].into_iter().filter_map(share).collect();
    if !roots.is_empty() {
        let seen: Vec<_> =
            roots.iter().map(|(epochs, share)| format!("{share:.1} % after {epochs}")).collect();
        claims.push(Claim {
            text:
                "Of two candidates, the expected length of samples picks the right one in four of five cases."
                    .to_owned(),
            holds: roots.iter().all(|&(_, share)| share >= 80.0),
            seen: format!("{} epochs", seen.join(", ")),
        });
    }
    let average = of(Leak::Average);
    if let Some(single) = average.percent("hinge_01_first_by_cosine") {
        let worst = BATCHES.iter().filter_map(|b| average.most(&format!("hinge_{b:02}_worst_error")));
        let worst = worst.fold(0.0, f64::max);
        let both = average.percent("hinge_02_first_by_cosine").unwrap_or(0.0);
        claims.push(Claim {
            text: "Gradient descent leaks the exact average of the misclassified samples. If there is one sample, it \
                   leaks that sample."
                .to_owned(),
            holds: single == 100.0 && worst < CLOSE,
            seen: format!("rank 1 for {single:.1} % of single samples, {both:.1} % of pairs; worst error {worst:.1e}"),
        });
    }
    let sealed = of(Leak::Sealed);
    if let (Some(place), Some(plain)) = (sealed.mean("mean_place"), sealed.percent("plain_first")) {
        let samples = sealed.sum("samples").max(1.0);
        // the standard deviation of the mean of uniform places
        let deviation = (1.0 / (12.0 * samples)).sqrt();
        let common = sealed.sum("common_ciphertexts");
        claims.push(Claim {
            text: "Sealed, the same step reveals nothing: an aggregator with both permutations, but without the key, \
                   ranks the sample no better than chance."
                .to_owned(),
            holds: (place - 0.5).abs() < 4.0 * deviation
                && common == 0.0
                && sealed.all("sizes").all(|sizes| sizes == 1.0),
            seen: format!(
                "mean place {place:.2} of 1 (chance .50, deviation {deviation:.2}) over {samples} samples, {plain:.0} \
                 % first in the clear; {common} of {} ciphertexts repeat in a second sealing",
                sealed.sum("ciphertexts")
            ),
        });
    }
    claims
}
