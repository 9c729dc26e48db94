//! Table 2: what sparsity costs in accuracy, and what it saves in encryption.

mod timing;

use dphe::Profile;
use dphe_federate::{Scenario, Stopwatch};
use dphe_learn::dataset::Dealing;

use super::shared::{Memo, Repeated, equality, measure_dphe, recipe, runs};
use super::{Settings, Source};
use crate::methods::accuracy;
use crate::methods::dphe::{Form, Keys, Recipe};
use crate::{Cell, Claim, Column, Error, Experiment, Findings, Measured, Measurement, Run, Table, Unit};

/// The experiment.
#[derive(Debug)]
pub struct Table2 {
    source: Source,
    settings: Settings,
    phe: Option<f64>,
    scenario: Memo<u64, Scenario>,
    strength: Memo<(Form, u64), f64>,
    keys: Keys,
}

/// The shares of L1 that are tried: the paper changes "the relative strength of L1".
const RATIOS: [f64; 8] = [0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0];
/// Both ways to learn sparse classifiers.
const LEARNERS: [Form; 2] = [Form::SolvedWeights, Form::SparseWeights];
/// What the paper printed: sparsity in per cent, accuracy, seconds.
const PRINTED: [(f64, f64, f64); 3] = [(0.01, 89.7, 620.0), (79.1, 89.6, 186.0), (95.6, 88.2, 62.0)];

/// The shares of all weights that packed messages hold: as much as the printed rows leave, in their order, and what is
/// usual.
const SHARES: [(Form, f64); 4] = [
    (Form::LargestBlocks, 1.0),
    (Form::LargestBlocks, 0.209),
    (Form::LargestBlocks, 0.044),
    (Form::Rotating, 0.1),
];

/// A row: sparse classifiers with a share of L1, or a share of the differences, packed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Row {
    Sparse(Form, f64),
    Packed(Form, f64),
}

impl Row {
    fn name(self) -> String {
        match self {
            Self::Sparse(form, ratio) => format!("{}/{ratio}", form.name()),
            Self::Packed(form, share) => format!("{}/{share}", form.name()),
        }
    }
}

fn rows() -> impl Iterator<Item = Row> {
    let sparse = LEARNERS.into_iter().flat_map(|form| RATIOS.map(|ratio| Row::Sparse(form, ratio)));
    sparse.chain(SHARES.map(|(form, share)| Row::Packed(form, share)))
}

impl Table2 {
    /// On this data set.
    pub fn new(source: Source, settings: Settings) -> Self {
        Self {
            source,
            settings,
            phe: None,
            scenario: Memo::default(),
            strength: Memo::default(),
            keys: Keys::default(),
        }
    }

    /// With the seconds that python-paillier takes for one encryption under 1024 bits.
    #[must_use]
    pub fn with_phe(self, seconds: Option<f64>) -> Self {
        Self { phe: seconds, ..self }
    }

    /// The strength that makes classifiers as sparse as wanted at half L1, as the controller finds it.
    fn strength(&self, scenario: &Scenario, form: Form, seed: u64) -> Result<f64, Error> {
        let found = self.strength.get((form, seed), || {
            let recipe = recipe(form, &self.settings, self.source.sparsity);
            let clear = Settings { encryption: super::Encryption::Nothing, ..self.settings };
            let (_, measurement) =
                measure_dphe(scenario, recipe, &clear, seed, &self.keys, &mut Stopwatch::none())?;
            Ok(measurement.get("strength").copied().unwrap_or(0.0))
        })?;
        Ok(*found)
    }

    /// Ciphertexts of one number each, as the paper counts them: whole shards of a tenth of all weights.
    fn padded(&self, sparsity: f64) -> f64 {
        let nonzeros = (1.0 - sparsity) * self.dimension() as f64;
        (nonzeros / self.capacity()).ceil().max(1.0) * self.capacity()
    }

    /// Numbers in a shard.
    fn capacity(&self) -> f64 {
        (0.1 * self.dimension() as f64).ceil()
    }

    /// Ciphertexts under 1024 bits of a share of the weights, packed.
    fn packed(&self, measured: &Measured, share: f64) -> Option<f64> {
        let slots = Repeated::of(measured, &timing::name(1024), "slots").mean()?;
        Some((share * self.dimension() as f64 / slots).ceil())
    }

    fn dimension(&self) -> usize {
        self.source.data.features().width() * self.source.data.labels().class_count()
    }

    fn accuracies(&self, measured: &Measured) -> Table {
        let per_ciphertext = Repeated::of(measured, &timing::name(1024), "secure_s").mean();
        let columns = [
            ("learner", "messages", Unit::Text),
            ("l1_ratio", "share of L1", Unit::Plain),
            ("sparsity", "zeros, %", Unit::Percent),
            ("mean", "accuracy, %", Unit::Percent),
            ("std", "±", Unit::Percent),
            ("runs", "runs", Unit::Count),
            ("shards", "shards", Unit::Plain),
            ("ciphertexts", "ciphertexts", Unit::Count),
            ("seconds", "encryption at 1024 bits, s", Unit::Seconds),
            ("phe", "python-paillier, s", Unit::Seconds),
            ("paper_sparsity", "paper: zeros, %", Unit::Percent),
            ("paper", "paper: accuracy, %", Unit::Percent),
            ("paper_seconds", "paper: s", Unit::Seconds),
        ];
        let mut table = Vec::new();
        for row in rows() {
            let of = |name: &str| Repeated::of(measured, &row.name(), name);
            let found = of("accuracy");
            let (Some(sparsity), Some(mean)) = (of("sparsity").mean(), found.mean()) else { continue };
            let (form, ratio) = match row {
                Row::Sparse(form, ratio) => (form, Some(ratio)),
                Row::Packed(form, _) => (form, None),
            };
            let ciphertexts = match row {
                Row::Sparse(..) => of("shards").mean().map(|shards| shards * self.capacity()),
                Row::Packed(_, share) => self.packed(measured, share),
            };
            let seconds = |each: Option<f64>| each.zip(ciphertexts).map(|(e, c)| e * c);
            // beside the rows that leave as many zeros
            let printed = SHARES.iter().position(|&(form, share)| row == Row::Packed(form, share));
            let printed = printed.and_then(|at| PRINTED.get(at).copied());
            let printed = printed.filter(|_| self.dimension() == timing::PRINTED_FOR);
            // python-paillier packs nothing
            let other = self.phe.filter(|_| ratio.is_some());
            table.push(vec![
                Cell::from(form.name()),
                ratio.into(),
                sparsity.into(),
                mean.into(),
                found.deviation().into(),
                found.count(),
                of("shards").mean().into(),
                ciphertexts.into(),
                seconds(per_ciphertext).into(),
                seconds(other).into(),
                printed.map(|(sparsity, _, _)| sparsity).into(),
                printed.map(|(_, accuracy, _)| accuracy).into(),
                printed.map(|(_, _, seconds)| seconds).into(),
            ]);
        }
        let columns = columns.map(|(key, title, unit)| Column::new(key, title, unit)).to_vec();
        Table { title: format!("Sparsity and accuracy on {}", self.source.name), columns, rows: table }
    }

    fn claims(&self, measured: &Measured) -> Vec<Claim> {
        let mut claims = Vec::new();
        for form in LEARNERS {
            let found: Vec<(f64, f64)> = RATIOS
                .iter()
                .filter_map(|&ratio| {
                    let name = Row::Sparse(form, ratio).name();
                    let mean = |key: &str| Repeated::of(measured, &name, key).mean();
                    Some((mean("sparsity")?, mean("accuracy")?))
                })
                .collect();
            let Some(&(_, dense)) = found.first() else { continue };
            let within = |limit: f64| found.iter().rfind(|(sparsity, _)| *sparsity <= limit);
            for (limit, points) in [(85.0, 1.5), (97.0, 3.0)] {
                let Some(&(sparsity, accuracy)) = within(limit) else { continue };
                claims.push(Claim {
                    text: format!("{}: up to {limit} % of zeros cost at most {points} points", form.name()),
                    holds: accuracy >= dense - points,
                    seen: format!("{dense:.1} dense, {accuracy:.1} at {sparsity:.1} % zeros"),
                });
            }
        }
        let (dense, sparse) = (self.padded(0.0001), self.padded(0.956));
        claims.push(Claim {
            text: "Encrypting a classifier with 95.6 % zeros takes a tenth of the time".to_owned(),
            holds: (dense / sparse - 10.0).abs() < 0.5,
            seen: format!("{dense} ciphertexts against {sparse}"),
        });
        claims.extend(self.claims_of_blocks(measured));
        claims.extend(timing::claims(measured, self.dimension()));
        claims.extend(equality(measured));
        claims
    }
}

impl Table2 {
    /// The printed rows with what is sent today: differences in blocks, packed.
    fn claims_of_blocks(&self, measured: &Measured) -> Vec<Claim> {
        let blocks: Vec<f64> =
            SHARES.iter().filter(|(form, _)| *form == Form::LargestBlocks).map(|(_, share)| *share).collect();
        let accuracy = |share: f64| {
            Repeated::of(measured, &Row::Packed(Form::LargestBlocks, share).name(), "accuracy").mean()
        };
        let each = Repeated::of(measured, &timing::name(1024), "secure_s").mean();
        let mut claims = Vec::new();
        for (&share, (sparsity, printed, seconds)) in blocks.iter().zip(PRINTED) {
            if let (Some(dense), Some(found)) = (accuracy(blocks[0]), accuracy(share)) {
                let fall = PRINTED[0].1 - printed;
                claims.push(Claim {
                    text: format!("d-block: {sparsity} % of zeros cost at most the paper's {fall:.1} points"),
                    holds: found >= dense - fall,
                    seen: format!("{dense:.1} dense, {found:.1}"),
                });
            }
            if let (Some(each), Some(count)) = (each, self.packed(measured, share))
                && self.dimension() == timing::PRINTED_FOR
            {
                claims.push(Claim {
                    text: format!(
                        "d-block: {sparsity} % of zeros are encrypted 200 times faster than printed"
                    ),
                    holds: 200.0 * each * count <= seconds,
                    seen: format!(
                        "{:.3} s, printed {seconds} s, {:.0} times",
                        each * count,
                        seconds / (each * count)
                    ),
                });
            }
        }
        claims
    }
}

impl Experiment for Table2 {
    fn name(&self) -> &'static str {
        "table2"
    }

    fn settings(&self) -> Vec<(String, String)> {
        // not python-paillier's time: it stands beside what is measured here, and is another each time
        self.settings.lines([self.source.described()])
    }

    fn runs(&self) -> Vec<Run> {
        let seed = self.settings.seed;
        let times = timing::BITS.into_iter().map(|bits| Run { what: timing::name(bits), seed });
        let names: Vec<String> = rows().map(Row::name).collect();
        times.chain(runs(&self.settings, &names)).collect()
    }

    fn weight(&self, run: &Run) -> f64 {
        if run.what.starts_with(Form::SolvedWeights.name()) { 5.0 } else { 1.0 }
    }

    fn measure(&self, run: &Run, stopwatch: &mut Stopwatch) -> Result<Measurement, Error> {
        if let Some(bits) = timing::BITS.into_iter().find(|&bits| timing::name(bits) == run.what) {
            return timing::measure(bits, self.settings.threads, stopwatch);
        }
        let row = rows().find(|row| row.name() == run.what);
        let row = row.ok_or_else(|| Error::UnknownRun(run.what.clone()))?;
        let Settings { users, threads, .. } = self.settings;
        let scenario = self
            .scenario
            .get(run.seed, || self.source.scenario(&self.settings, users, Dealing::Disjoint, run.seed))?;
        let recipe = match row {
            Row::Packed(form, share) => {
                Recipe { share, ..recipe(form, &self.settings, self.source.sparsity) }
            }
            Row::Sparse(form, l1_ratio) => {
                let strength = Some(self.strength(&scenario, form, run.seed)?);
                // the paper's capacity, whatever the sparsity
                let recipe = recipe(form, &self.settings, self.source.sparsity);
                Recipe { l1_ratio, strength, share: 0.1, ..recipe }
            }
        };
        // one number a ciphertext takes minutes; that sums are the same is checked elsewhere
        let mut settings = self.settings;
        if recipe.form.profile() == Profile::Paper {
            settings.encryption = super::Encryption::Nothing;
        }
        let (weights, mut measurement) =
            measure_dphe(&scenario, recipe, &settings, run.seed, &self.keys, stopwatch)?;
        measurement.insert("accuracy".to_owned(), accuracy(&weights, &scenario.held_out, threads)?);
        Ok(measurement)
    }

    fn findings(&self, measured: &Measured) -> Findings {
        Findings {
            title: "Table 2: sparsity, accuracy and time".to_owned(),
            notes: Source::stand_in_note([&self.source]).into_iter().chain([
                "The paper's times are those of whole shards: as many times a tenth of all weights as are needed, \
                 3 ms each. The same counts are used here."
                    .to_owned(),
                format!(
                    "Times are those of {} encryptions with all threads, the shortest of {}, multiplied to the count.",
                    timing::SAMPLE,
                    timing::TIMES
                ),
                "Packed rows: ciphertexts and times are those of a key of 1024 bits, as in the other rows.".to_owned(),
                "The penalty's strength is the one that a controller finds at half L1; then only the share of L1 \
                 changes."
                    .to_owned(),
            ]).collect(),
            tables: vec![
                self.accuracies(measured),
                timing::table(measured, self.dimension(), self.phe),
            ],
            plots: Vec::new(),
            pictures: Vec::new(),
            claims: self.claims(measured),
        }
    }
}
