//! What follows from the attacks.

use dphe::Profile;

use super::super::notes::predicted_rounds;
use super::super::oracle::ATTEMPTS;
use super::super::permutation::LEVELS;
use super::super::singles::{USERS as CROWDS, expected_singles};
use super::{Attacks, Part, Sent, USERS};
use crate::{Cell, Claim, Column, Findings, Measured, Measurement, Plot, Run, Table, Unit};

/// Means over repetitions of one part.
struct Of<'a> {
    part: Part,
    name: String,
    all: Vec<&'a Measurement>,
}

impl Of<'_> {
    fn values(&self, name: &str) -> Vec<f64> {
        self.all.iter().filter_map(|measurement| measurement.get(name).copied()).collect()
    }

    fn mean(&self, name: &str) -> Option<f64> {
        let values = self.values(name);
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    fn percent(&self, name: &str) -> Option<f64> {
        self.mean(name).map(|share| share * 100.0)
    }

    fn sum(&self, name: &str) -> f64 {
        self.values(name).iter().sum()
    }

    /// The mean number of rounds until this share was known, if every repetition got there.
    fn reached(&self, level: usize) -> Option<f64> {
        let name = format!("rounds_{level}");
        self.mean(&name).filter(|_| self.values(&name).len() == self.all.len())
    }
}

fn union(density: f64) -> f64 {
    1.0 - (1.0 - density).powi(USERS as i32)
}

pub(super) fn of(attacks: &Attacks, measured: &Measured) -> Findings {
    let of = |(part, name): (Part, String)| {
        let run = |seed| Run { what: name.clone(), seed };
        let all = (0..attacks.seeds).filter_map(|seed| measured.get(&run(seed))).collect();
        Of { part, name, all }
    };
    let parts: Vec<Of<'_>> =
        attacks.parts().into_iter().map(of).filter(|of: &Of<'_>| !of.all.is_empty()).collect();
    let mut notes = vec![
        format!(
            "{USERS} users, {} indices. The permutations are those that dphe derives: in `paper` one is kept, in \
             `sparse` each round has its own. The attack looks at which positions were sent and which published \
             sums are not zero; it needs no key, so nothing is encrypted.",
            attacks.dimension()
        ),
        "The attempts on the key generator are made with its own code and toy keys. One of them succeeds today: \
         nothing binds a frozen sum to the uploads yet (docs/leakage.md, section 3)."
            .to_owned(),
    ];
    if attacks.data.is_some() {
        notes.push(
            "Singles by value under `rotate` are at features that are blank in the public samples and that one \
             user's samples alone moved: their position is everybody's, their value is that user's."
                .to_owned(),
        );
    } else {
        notes.push("No data were given, so there are no sums of learnt updates.".to_owned());
    }
    let tables = [permutations(attacks, &parts), singles(&parts), attempts(&parts)];
    let mut claims = claims_of_permutations(attacks, &parts);
    claims.extend(claims_of_singles(&parts));
    claims.extend(claims_of_attempts(&parts));
    Findings {
        title: "Attacks on permutations, sums and the key generator".to_owned(),
        notes,
        tables: tables.into_iter().filter(|table| !table.rows.is_empty()).collect(),
        plots: plots(&parts),
        pictures: Vec::new(),
        claims,
    }
}

fn permutations(attacks: &Attacks, parts: &[Of<'_>]) -> Table {
    let mut columns = vec![Column::new("permutation", "permutation, density", Unit::Text)];
    for level in LEVELS {
        columns.push(Column::new(&format!("rounds_{level}"), &format!("{level} %, rounds"), Unit::Plain));
        columns.push(Column::new(&format!("predicted_{level}"), "by the formula", Unit::Count));
    }
    columns.push(Column::new("claimed", "pairs claimed", Unit::Count));
    columns.push(Column::new("right", "right", Unit::Count));
    let rows = parts.iter().filter_map(|of| {
        let Part::Permutation(profile, density) = of.part else { return None };
        let mut row = vec![Cell::from(of.name.replace('/', ", "))];
        for level in LEVELS {
            row.push(of.reached(level).into());
            let predicted = predicted_rounds(attacks.dimension(), union(density), level as f64 / 100.0);
            row.push(if profile == Profile::Paper { (predicted as f64).into() } else { Cell::EMPTY });
        }
        row.push(of.sum("claimed").into());
        row.push(of.sum("right").into());
        Some(row)
    });
    Table {
        title: "Rounds until a share of the permutation is known".to_owned(),
        columns,
        rows: rows.collect(),
    }
}

fn singles(parts: &[Of<'_>]) -> Table {
    let mut rows = Vec::new();
    for of in parts {
        let row = |name: String, users: usize, prefix: &str, expected: Option<f64>| {
            vec![
                Cell::from(name),
                Cell::Number(users as f64),
                of.percent(&format!("{prefix}singles")).into(),
                expected.map(|share| share * 100.0).into(),
                of.percent(&format!("{prefix}exposed")).into(),
                of.percent(&format!("{prefix}zeros")).into(),
            ]
        };
        match of.part {
            Part::Independent(density) => rows.extend(CROWDS.map(|users| {
                let name = format!("independent, density {density:.2}");
                row(name, users, &format!("users_{users:02}_"), Some(expected_singles(users, density)))
            })),
            Part::Learned(_) => {
                rows.push(row(of.name.replace("singles/", "").replace('/', ", "), USERS, "", None))
            }
            _ => {}
        }
    }
    Table {
        title: "Entries of the published sum that are one user's".to_owned(),
        columns: vec![
            Column::new("supports", "supports", Unit::Text),
            Column::new("users", "users", Unit::Count),
            Column::new("singles", "singles of the non-zeros", Unit::Percent),
            Column::new("formula", "by the formula", Unit::Percent),
            Column::new("exposed", "a user's non-zeros that are singles", Unit::Percent),
            Column::new("zeros", "zero for everybody", Unit::Percent),
        ],
        rows,
    }
}

fn attempts(parts: &[Of<'_>]) -> Table {
    let oracle = parts.iter().find(|of| of.part == Part::Oracle);
    let rows = oracle.into_iter().flat_map(|of| {
        ATTEMPTS.iter().filter_map(|(name, text, refused)| {
            let done = of.mean(name)?;
            let outcome = if done == 0.0 { "refused" } else { "done" };
            let expected = if *refused { "refused" } else { "done" };
            Some(vec![Cell::from(*text), Cell::from(outcome), Cell::from(expected)])
        })
    });
    Table {
        title: "What the aggregator may ask for".to_owned(),
        columns: vec![
            Column::new("request", "request", Unit::Text),
            Column::new("outcome", "outcome", Unit::Text),
            Column::new("expected", "expected", Unit::Text),
        ],
        rows: rows.collect(),
    }
}

fn plots(parts: &[Of<'_>]) -> Vec<Plot> {
    let shares = parts.iter().filter(|of| matches!(of.part, Part::Permutation(..))).filter_map(|of| {
        // one repetition: they stop at different rounds
        let measurement = of.all.first()?;
        let points: Vec<(f64, f64)> = (1..=super::MOST_ROUNDS)
            .filter_map(|t| Some((t as f64, measurement.get(&format!("share_{t:02}"))? * 100.0)))
            .collect();
        Some((of.name.replace('/', ", density "), points))
    });
    let crowds = parts.iter().filter_map(|of| {
        let Part::Independent(density) = of.part else { return None };
        let point = |&users: &usize| Some((users as f64, of.percent(&format!("users_{users:02}_singles"))?));
        Some((format!("density {density:.2}"), CROWDS.iter().filter_map(point).collect()))
    });
    let plots = [
        Plot {
            title: "A kept permutation falls, fresh ones do not".to_owned(),
            x: "rounds".to_owned(),
            logarithmic: false,
            y: "share of the permutation known, %".to_owned(),
            unit: Unit::Percent,
            series: shares.collect(),
        },
        Plot {
            title: "Singles become rare with many users".to_owned(),
            x: "users".to_owned(),
            logarithmic: true,
            y: "singles of the sum's non-zeros, %".to_owned(),
            unit: Unit::Percent,
            series: crowds.collect(),
        },
    ];
    plots.into_iter().filter(|plot| !plot.series.is_empty()).collect()
}

fn claims_of_permutations(attacks: &Attacks, parts: &[Of<'_>]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for of in parts {
        let Part::Permutation(profile, density) = of.part else { continue };
        let density_text = format!("{density:.2}").replace("0.", ".");
        if profile == Profile::Paper {
            let predicted = predicted_rounds(attacks.dimension(), union(density), 0.99);
            let found = of.values("rounds_99");
            let rounds: Vec<String> = LEVELS
                .iter()
                .map(|level| match of.reached(*level) {
                    Some(rounds) => format!("{level} % after {rounds:.1}"),
                    None => format!("{level} % not in every repetition"),
                })
                .collect();
            // a single round to either side is luck
            let near = |&rounds: &f64| (rounds - predicted as f64).abs() <= 1.0;
            claims.push(Claim {
                text: format!(
                    "A kept permutation of {} positions is known to 99 % after {predicted} rounds, give or take one, at \
                     density {density_text}.",
                    attacks.dimension()
                ),
                holds: found.len() == of.all.len() && found.iter().all(near),
                seen: format!("{} rounds", rounds.join(", ")),
            });
        } else {
            let (claimed, right, chance) = (of.sum("claimed"), of.sum("right"), of.sum("by_chance"));
            claims.push(Claim {
                text: format!(
                    "With a fresh permutation each round the same attack finds nothing beyond chance, at density \
                     {density_text}."
                ),
                // the attack did claim something, and was right as often as blind guesses are
                holds: claimed > 0.0 && right <= 1.0 + chance + 5.0 * chance.sqrt(),
                seen: format!("{right} of {claimed} claimed pairs right, {chance:.1} expected by chance"),
            });
        }
    }
    claims
}

fn claims_of_singles(parts: &[Of<'_>]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for of in parts {
        match of.part {
            Part::Independent(density) => {
                let miss = |users: usize| {
                    let found = of.mean(&format!("users_{users:02}_singles"))?;
                    Some((found - expected_singles(users, density)).abs())
                };
                let worst = CROWDS.into_iter().filter_map(miss).fold(0.0, f64::max);
                let five = of.percent(&format!("users_{USERS:02}_singles")).unwrap_or(0.0);
                claims.push(Claim {
                    text: format!(
                        "Most entries of a sum of {USERS} users are one user's exact value, as the formula says, at \
                         density {density:.2}."
                    ),
                    holds: five > 50.0 && worst < 0.03,
                    seen: format!("{five:.1} %; off by {:.1} points at most", worst * 100.0),
                });
            }
            Part::Learned(sent) => {
                let Some(singles) = of.percent("singles") else { continue };
                let Some(alone) = of.percent("sent_alone") else { continue };
                let accuracy = of.percent("accuracy").unwrap_or(0.0);
                let seen =
                    format!("{singles:.1} % by value, {alone:.1} % by position (accuracy {accuracy:.1} %)");
                let (text, holds) = if sent == Sent::Rotating {
                    (
                        "Where everybody sends the same public features, no position is one user's: ",
                        alone == 0.0,
                    )
                } else {
                    ("Sums of learnt sparse updates are full of singles: ", singles > 20.0)
                };
                claims.push(Claim { text: format!("{text}{}.", sent.name()), holds, seen });
            }
            _ => {}
        }
    }
    claims
}

fn claims_of_attempts(parts: &[Of<'_>]) -> Vec<Claim> {
    let Some(oracle) = parts.iter().find(|of| of.part == Part::Oracle) else { return Vec::new() };
    let all = |wanted: bool| ATTEMPTS.iter().filter(move |(.., refused)| *refused == wanted);
    let refused = all(true).filter(|(name, ..)| oracle.mean(name) == Some(0.0)).count();
    let gap = oracle.mean("own_zeros") == Some(1.0);
    vec![
        Claim {
            text: "The key generator opens one sum a round, of enough distinct users; shards are not users.".to_owned(),
            holds: refused == all(true).count() && oracle.mean("honest_sum") == Some(1.0),
            seen: format!("{refused} of {} such requests refused, the honest one opened", all(true).count()),
        },
        Claim {
            text: "Known gap: a sum that the aggregator makes up from one upload and its own zeros is opened, once \
                   a round."
                .to_owned(),
            holds: gap,
            seen: if gap { "opened" } else { "refused: docs/leakage.md, section 3, is out of date" }.to_owned(),
        },
    ]
}
