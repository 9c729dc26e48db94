//! Table 2: what sparsity costs in accuracy and what it saves in encryption.

pub(super) mod timing;

use dphe::Profile;

use super::grid::{Grid, GridCell, GridSpec, Method};
use super::results::{Results, Show};
use super::settings::{boxed, notes};
use super::{Encryption, Settings, Source};
use crate::methods::dphe::{DpheVariant, Recipe};
use crate::{Cell, Claim, Findings, ValueUnit};

/// The fractions of L1 in the penalty. The paper varies "the relative strength of L1".
const RATIOS: [f64; 8] = [0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0];
/// The two ways to learn sparse classifiers.
const LEARNERS: [DpheVariant; 2] = [DpheVariant::SolvedWeights, DpheVariant::SparseWeights];
/// The paper's rows: sparsity in per cent, accuracy, seconds.
const PRINTED: [[f64; 3]; 3] = [[0.01, 89.7, 620.0], [79.1, 89.6, 186.0], [95.6, 88.2, 62.0]];

/// The shares of the weights in messages of a fixed size. The blocks carry as much as the paper's rows have nonzeros,
/// in the paper's order.
const SHARES: [(DpheVariant, f64); 8] = [
    (DpheVariant::LargestBlocks, 1.0),
    (DpheVariant::LargestBlocks, 0.209),
    (DpheVariant::LargestBlocks, 0.044),
    (DpheVariant::Rotating, 0.1),
    (DpheVariant::LargestWeights, 1.0),
    (DpheVariant::LargestWeights, 0.209),
    (DpheVariant::LargestWeights, 0.1),
    (DpheVariant::LargestWeights, 0.044),
];
/// The points that the largest weights may lose at the paper's largest sparsity: the paper's fall and half a point.
const HARD_FALL: f64 = 2.0;
/// The paper's sparsity leaves a smaller classifier, such as one of the bundled digits, with almost no weights.
const LEAST_WEIGHTS: usize = 10_000;

/// Makes the experiment for one data set. `phe` is the time in seconds that python-paillier takes for one encryption
/// under 1024 bits.
pub fn table2(source: Source, settings: Settings, phe: Option<f64>) -> Grid {
    let dimension = source.data.features().width() * source.data.labels().class_count();
    let recipe = |variant| settings.recipe(variant, source.sparsity);
    let times = timing::BITS.map(|bits| {
        let method = Method::EncryptionTime(bits);
        GridCell::new(method.name(), 0, method, &settings)
    });
    let sparse = LEARNERS.into_iter().flat_map(|variant| RATIOS.map(|ratio| (variant, ratio))).map(
        |(variant, l1_ratio)| {
            // the paper's capacity for every sparsity
            let own = Recipe { l1_ratio, share: 0.1, ..recipe(variant) };
            GridCell { strength_from: Some(recipe(variant)), ..cell(own, l1_ratio, &settings) }
        },
    );
    let packed = SHARES.into_iter().enumerate().map(|(row, (variant, share))| {
        let printed = PRINTED.get(row).filter(|_| dimension == timing::PRINTED_FOR);
        let own = Recipe { share, ..recipe(variant) };
        GridCell { printed: printed.map_or(&[], |row| row), ..cell(own, share, &settings) }
    });
    let own = [
        "The paper's times are for whole shards of a tenth of all weights, at 3 ms per ciphertext. The same numbers of \
         ciphertexts are used here."
            .to_owned(),
        format!(
            "Times are extrapolated from {} encryptions with all threads, the fastest of {} measurements.",
            timing::SAMPLE,
            timing::TIMES
        ),
        "In packed rows, ciphertexts and times are for a key of 1024 bits, as in the other rows.".to_owned(),
        "A controller finds the strength of the penalty with half L1. The other rows keep it and change the fraction \
         of L1."
            .to_owned(),
    ];
    // python-paillier's time is not a setting, because it varies and does not change what is measured here
    Grid::new(GridSpec {
        notes: notes([&source], own),
        cells: times.into_iter().chain(sparse).chain(packed).collect(),
        summarize: Box::new(move |results| findings(results, dimension, phe)),
        ..GridSpec::new("table2", "Table 2: sparsity, accuracy and time", settings, boxed(vec![source]))
    })
}

fn cell(recipe: Recipe, number: f64, settings: &Settings) -> GridCell {
    let mut cell = GridCell::new(name(recipe.variant, number), 0, Method::Dphe(recipe), settings);
    recipe.variant.name().clone_into(&mut cell.label);
    if recipe.variant.profile() == Profile::Paper {
        // one number per ciphertext takes minutes, and other experiments check that the sums are equal
        cell.encryption = Encryption::Nothing;
    }
    cell
}

fn name(variant: DpheVariant, number: f64) -> String {
    format!("{}/{number}", variant.name())
}

/// The number of weights in a shard: a tenth of all.
fn capacity(dimension: usize) -> f64 {
    (0.1 * dimension as f64).ceil()
}

/// The number of ciphertexts with one number each, in whole shards, as the paper counts them.
fn padded(dimension: usize, sparsity: f64) -> f64 {
    let nonzeros = (1.0 - sparsity) * dimension as f64;
    (nonzeros / capacity(dimension)).ceil().max(1.0) * capacity(dimension)
}

/// The number of ciphertexts under 1024 bits that a share of the weights takes, packed.
fn packed(results: &Results<'_>, dimension: usize, share: f64) -> Option<f64> {
    let slots = results.mean(&timing::name(1024), "slots")?;
    Some((share * dimension as f64 / slots).ceil())
}

fn findings(results: &Results<'_>, dimension: usize, phe: Option<f64>) -> Findings {
    use ValueUnit::{Count, Percent, Plain, Seconds, Text};
    let ratio = |cell: &GridCell| match cell.method {
        Method::Dphe(recipe) => cell.strength_from.map(|_| recipe.l1_ratio),
        _ => None,
    };
    let ciphertexts = |cell: &GridCell| match cell.method {
        Method::Dphe(recipe) if recipe.variant == DpheVariant::LargestWeights => {
            Some((recipe.share * dimension as f64).ceil())
        }
        Method::Dphe(recipe) if cell.strength_from.is_none() => packed(results, dimension, recipe.share),
        _ => results.mean(&cell.what, "shards").map(|shards| shards * capacity(dimension)),
    };
    let seconds = |cell: &GridCell, each: Option<f64>| {
        Cell::from(each.zip(ciphertexts(cell)).map(|(each, count)| each * count))
    };
    let each = results.mean(&timing::name(1024), "secure_s");
    // python-paillier does not pack
    let unpacked = |cell: &GridCell| seconds(cell, phe.filter(|_| ratio(cell).is_some()));
    let accuracies = results.table(
        format!("Sparsity and accuracy on {}", results.spec.sources[0].name()),
        &[
            ("learner", "payload", Text, Show::Label),
            ("l1_ratio", "fraction of L1", Plain, Show::Value(&|cell| ratio(cell).into())),
            ("sparsity", "zeros, %", Percent, Show::Mean("sparsity")),
            ("mean", "accuracy, %", Percent, Show::Mean("accuracy")),
            ("std", "±", Percent, Show::Deviation("accuracy")),
            ("runs", "runs", Count, Show::Runs("accuracy")),
            ("shards", "shards", Plain, Show::Mean("shards")),
            ("ciphertexts", "ciphertexts", Count, Show::Value(&|cell| ciphertexts(cell).into())),
            ("seconds", "encryption at 1024 bits, s", Seconds, Show::Value(&|cell| seconds(cell, each))),
            ("phe", "python-paillier, s", Seconds, Show::Value(&unpacked)),
            ("paper_sparsity", "paper: zeros, %", Percent, Show::Printed(0)),
            ("paper", "paper: accuracy, %", Percent, Show::Printed(1)),
            ("paper_seconds", "paper: s", Seconds, Show::Printed(2)),
        ],
    );
    let tables = vec![accuracies, timing::table(results, dimension, phe)];
    Findings { tables, claims: claims(results, dimension), ..Findings::default() }
}

fn claims(results: &Results<'_>, dimension: usize) -> Vec<Claim> {
    let mut claims = Vec::new();
    for variant in LEARNERS {
        let found: Vec<(f64, f64)> = RATIOS
            .iter()
            .filter_map(|&ratio| {
                let mean = |key: &str| results.mean(&name(variant, ratio), key);
                Some((mean("sparsity")?, mean("accuracy")?))
            })
            .collect();
        let Some(&(_, dense)) = found.first() else { continue };
        let within = |limit: f64| found.iter().rfind(|(sparsity, _)| *sparsity <= limit);
        for (limit, points) in [(85.0, 1.5), (97.0, 3.0)] {
            let Some(&(sparsity, accuracy)) = within(limit) else { continue };
            let text = format!("{}: up to {limit} % of zeros cost at most {points} points", variant.name());
            let seen = format!("{dense:.1} dense, {accuracy:.1} at {sparsity:.1} % zeros");
            claims.push(Claim::new(text, accuracy >= dense - points, seen));
        }
    }
    let (dense, sparse) = (padded(dimension, 0.0001), padded(dimension, 0.956));
    let text = "Encrypting a classifier with 95.6 % zeros takes a tenth of the time";
    let seen = format!("{dense} ciphertexts against {sparse}");
    claims.push(Claim::new(text, (dense / sparse - 10.0).abs() < 0.5, seen));
    let hard = |share: f64| results.mean(&name(DpheVariant::LargestWeights, share), "accuracy");
    if let (Some(dense), Some(found)) = (hard(1.0), hard(0.044))
        && dimension >= LEAST_WEIGHTS
    {
        let text = format!("w-topk: 95.6 % of zeros cost at most {HARD_FALL} points");
        let seen = format!("{dense:.1} dense, {found:.1}");
        claims.push(Claim::new(text, found >= dense - HARD_FALL, seen));
    }
    claims.extend(claims_of_blocks(results, dimension));
    claims.extend(timing::claims(results, dimension));
    claims
}

/// Compares packed blocks with the paper's rows of the same sparsity.
fn claims_of_blocks(results: &Results<'_>, dimension: usize) -> Vec<Claim> {
    let accuracy = |share: f64| results.mean(&name(DpheVariant::LargestBlocks, share), "accuracy");
    let each = results.mean(&timing::name(1024), "secure_s");
    let mut claims = Vec::new();
    for ((_, share), [sparsity, printed, seconds]) in SHARES.into_iter().zip(PRINTED) {
        if let (Some(dense), Some(found)) = (accuracy(SHARES[0].1), accuracy(share)) {
            let fall = PRINTED[0][1] - printed;
            let text = format!("d-block: {sparsity} % of zeros cost at most the paper's {fall:.1} points");
            claims.push(Claim::new(text, found >= dense - fall, format!("{dense:.1} dense, {found:.1}")));
        }
        if let (Some(each), Some(count)) = (each, packed(results, dimension, share))
            && dimension == timing::PRINTED_FOR
        {
            let own = each * count;
            let text = format!("d-block: {sparsity} % of zeros are encrypted 200 times faster than printed");
            let seen = format!("{own:.3} s, printed {seconds} s, {:.0} times", seconds / own);
            claims.push(Claim::new(text, 200.0 * own <= seconds, seen));
        }
    }
    claims
}
