//! The findings of the attacks.

use dphe::{Profile, Receipts};
use dphe_federate::PayloadName;

use super::super::notes::predicted_rounds;
use super::super::oracle::ATTEMPTS;
use super::super::permutation::LEVELS;
use super::super::singles::{USERS as CROWDS, expected_singles};
use super::super::sums::{Goal, SUM_ATTACKS, SumAttack};
use super::{Attack, Attacks, USERS};
use crate::ValueUnit::{Count, Percent, Plain, Text};
use crate::{Cell, Claim, Column, Findings, Measured, Measurement, Plot, RunId, Table};

/// All repetitions of one attack.
struct Repetitions<'a> {
    attack: Attack,
    name: String,
    all: Vec<&'a Measurement>,
}

impl Repetitions<'_> {
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

    /// Returns the mean number of rounds until this fraction was recovered, if every repetition reached it.
    fn reached(&self, level: usize) -> Option<f64> {
        let name = format!("rounds_{level}");
        self.mean(&name).filter(|_| self.values(&name).len() == self.all.len())
    }
}

fn union(density: f64) -> f64 {
    1.0 - (1.0 - density).powi(USERS as i32)
}

pub(super) fn of(attacks: &Attacks, measured: &Measured) -> Findings {
    let of = |(attack, name): (Attack, String)| {
        let run = |seed| RunId { what: name.clone(), seed };
        let all = (0..attacks.seeds).filter_map(|seed| measured.get(&run(seed))).collect();
        Repetitions { attack, name, all }
    };
    let parts: Vec<Repetitions<'_>> =
        attacks.attacks().into_iter().map(of).filter(|of: &Repetitions<'_>| !of.all.is_empty()).collect();
    let mut notes = vec![
        format!(
            "{USERS} users, {} indices. The permutations are those that dphe derives: `paper` keeps one, `sparse` uses \
             a fresh one per round. The attack looks at which positions were sent and which published sums are not \
             zero. It needs no key, so nothing is encrypted.",
            attacks.dimension()
        ),
        "The requests to the key generator run against its real code, with toy keys. One succeeds, because nothing \
         binds a sum to the uploads in a task without receipts (docs/leakage.md, section 3)."
            .to_owned(),
    ];
    if parts.iter().any(|of| matches!(of.attack, Attack::Sums(_))) {
        notes.insert(
            0,
            format!(
                "The first table says what an aggregator can read if it does not follow the protocol. Each attack runs \
                 against the real code of the key generator and of users, on sums of {} weights of six users. The last \
                 user may help the aggregator. Masks are used in the profile `full` unless a task switches them off. A \
                 number counts as read if the aggregator has the exact value of the attacked user. Without masks, the \
                 key generator signs the sum, so users accept what it opened and nothing else. docs/proof.md says why \
                 masks work, and what they do not cover.",
                attacks.sum().0
            ),
        );
    }
    if attacks.data.is_some() {
        notes.push(
            "Under `rotate`, singles by value occur at features that are blank in the public samples and that only \
             one user's samples changed. Every user sends that position, but its value comes from one user."
                .to_owned(),
        );
    } else {
        notes.push("No data were given, so there are no sums of trained updates.".to_owned());
    }
    let tables = [sums(&parts), permutations(attacks, &parts), singles(&parts), attempts(&parts)];
    let mut claims = claims_of_sums(attacks, &parts);
    claims.extend(claims_of_permutations(attacks, &parts));
    claims.extend(claims_of_singles(&parts));
    claims.extend(claims_of_attempts(&parts));
    Findings {
        title: "Attacks on sums, permutations and the key generator".to_owned(),
        notes,
        tables: tables.into_iter().filter(|table| !table.rows.is_empty()).collect(),
        plots: plots(&parts),
        pictures: Vec::new(),
        claims,
    }
}

/// The repetitions of an attack, without masks and with them. Nothing if one of them was not measured.
fn pair<'a, 'b>(
    parts: &'b [Repetitions<'a>],
    attack: fn(Receipts) -> Attack,
) -> Option<[&'b Repetitions<'a>; 2]> {
    let of = |receipts| parts.iter().find(|of| of.attack == attack(receipts));
    Some([of(Receipts::None)?, of(Receipts::Masked)?])
}

/// What an attack on sums achieves, in words.
fn achieved(attack: &SumAttack, of: &Repetitions<'_>) -> Option<String> {
    let read = of.percent(&format!("{}_read", attack.name))?;
    let misled = of.mean(&format!("{}_misled", attack.name))? > 0.0;
    let users = if misled { "users accept a wrong sum" } else { "no user accepts a wrong sum" };
    Some(match attack.goal {
        Goal::Read => {
            let users = if misled { "accept" } else { "refuse" };
            format!("reads {read:.1} % of the user's numbers; users {users} the sum")
        }
        Goal::Confirm if read > 0.0 => "learns whether the guess is right".to_owned(),
        Goal::Confirm => "learns nothing".to_owned(),
        Goal::Mislead => users.to_owned(),
        Goal::Nothing if misled => "the sum is wrong".to_owned(),
        Goal::Nothing => "nothing changes: the sum stays right".to_owned(),
    })
}

/// The table for readers who decide whether to trust an aggregator.
fn sums(parts: &[Repetitions<'_>]) -> Table {
    let mut rows = Vec::new();
    if let Some([without, with]) = pair(parts, Attack::Sums) {
        rows.extend(SUM_ATTACKS.iter().filter_map(|attack| {
            let who = if attack.accomplice { "aggregator and one user" } else { "aggregator" };
            let (without, with) = (achieved(attack, without)?, achieved(attack, with)?);
            Some(vec![Cell::from(attack.text), Cell::from(who), without.into(), with.into()])
        }));
        if let Some(rules) = pair(parts, Attack::Rules) {
            let text = "It has honest sums of the users {1, 2, 3}, {3, 4, 5} and {1, 2, 4, 5} opened on one model, \
                        which give twice the update of user 3.";
            let outcome = |sums: &Repetitions<'_>, rules: &Repetitions<'_>| {
                let (read, refused) = (sums.percent("three_sets_read")?, rules.mean("third_set_refused")?);
                let refused = if refused == 1.0 { "refused" } else { "opened" };
                Some(format!("the third sum is {refused}; without that rule, {read:.1} % would be read"))
            };
            if let (Some(without), Some(with)) = (outcome(without, rules[0]), outcome(with, rules[1])) {
                rows.push(vec![Cell::from(text), "aggregator".into(), without.into(), with.into()]);
            }
        }
    }
    Table::new(
        "What an aggregator gets that does not follow the protocol",
        &[
            ("attack", "attack", Text),
            ("who", "who", Text),
            ("without_masks", "without masks", Text),
            ("with_masks", "with masks", Text),
        ],
        rows,
    )
}

fn permutations(attacks: &Attacks, parts: &[Repetitions<'_>]) -> Table {
    let mut columns = vec![Column::new("permutation", "permutation, density", Text)];
    for level in LEVELS {
        columns.push(Column::new(&format!("rounds_{level}"), &format!("{level} %, rounds"), Plain));
        columns.push(Column::new(&format!("predicted_{level}"), "by the formula", Count));
    }
    columns.push(Column::new("claimed", "pairs claimed", Count));
    columns.push(Column::new("right", "right", Count));
    let rows = parts.iter().filter_map(|of| {
        let Attack::Permutation(profile, density) = of.attack else { return None };
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
        title: "Rounds until a fraction of the permutation is recovered".to_owned(),
        columns,
        rows: rows.collect(),
    }
}

fn singles(parts: &[Repetitions<'_>]) -> Table {
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
        match of.attack {
            Attack::Independent(density) => rows.extend(CROWDS.map(|users| {
                let name = format!("independent, density {density:.2}");
                row(name, users, &format!("users_{users:02}_"), Some(expected_singles(users, density)))
            })),
            Attack::Learned(..) => {
                rows.push(row(of.name.replace("singles/", "").replace('/', ", "), USERS, "", None))
            }
            _ => {}
        }
    }
    Table::new(
        "Entries of the published sum that are the value of one user",
        &[
            ("supports", "supports", Text),
            ("users", "users", Count),
            ("singles", "singles among nonzeros, %", Percent),
            ("formula", "formula, %", Percent),
            ("exposed", "a user's nonzeros that are singles, %", Percent),
            ("zeros", "zero for all users, %", Percent),
        ],
        rows,
    )
}

fn attempts(parts: &[Repetitions<'_>]) -> Table {
    let oracle = parts.iter().find(|of| of.attack == Attack::Oracle);
    let rows = oracle.into_iter().flat_map(|of| {
        ATTEMPTS.iter().filter_map(|(name, text, refused)| {
            let done = of.mean(name)?;
            let outcome = if done == 0.0 { "refused" } else { "done" };
            let expected = if *refused { "refused" } else { "done" };
            Some(vec![Cell::from(*text), Cell::from(outcome), Cell::from(expected)])
        })
    });
    Table::new(
        "Requests to the key generator",
        &[("request", "request", Text), ("outcome", "outcome", Text), ("expected", "expected", Text)],
        rows.collect(),
    )
}

fn plots(parts: &[Repetitions<'_>]) -> Vec<Plot> {
    let shares = parts.iter().filter(|of| matches!(of.attack, Attack::Permutation(..))).filter_map(|of| {
        // one repetition, because repetitions stop at different rounds
        let measurement = of.all.first()?;
        let points: Vec<(f64, f64)> = (1..=super::MOST_ROUNDS)
            .filter_map(|t| Some((t as f64, measurement.get(&format!("share_{t:02}"))? * 100.0)))
            .collect();
        Some((of.name.replace('/', ", density "), points))
    });
    let crowds = parts.iter().filter_map(|of| {
        let Attack::Independent(density) = of.attack else { return None };
        let point = |&users: &usize| Some((users as f64, of.percent(&format!("users_{users:02}_singles"))?));
        Some((format!("density {density:.2}"), CROWDS.iter().filter_map(point).collect()))
    });
    let plots = [
        Plot {
            title: "A kept permutation is recovered, fresh ones are not".to_owned(),
            x: "rounds".to_owned(),
            logarithmic: false,
            y: "permutation recovered, %".to_owned(),
            unit: Percent,
            series: shares.collect(),
        },
        Plot {
            title: "Singles become rare with many users".to_owned(),
            x: "users".to_owned(),
            logarithmic: true,
            y: "singles among the sum's nonzeros, %".to_owned(),
            unit: Percent,
            series: crowds.collect(),
        },
    ];
    plots.into_iter().filter(|plot| !plot.series.is_empty()).collect()
}

fn claims_of_sums(attacks: &Attacks, parts: &[Repetitions<'_>]) -> Vec<Claim> {
    let mut claims = Vec::new();
    let reading = || SUM_ATTACKS.iter().filter(|attack| matches!(attack.goal, Goal::Read | Goal::Confirm));
    let count = reading().count();
    if let Some([without, with]) = pair(parts, Attack::Sums) {
        let read = |of: &Repetitions<'_>| -> Vec<f64> {
            reading().flat_map(|attack| of.values(&format!("{}_read", attack.name))).collect()
        };
        let least = read(without).into_iter().fold(f64::INFINITY, f64::min);
        claims.push(Claim::new(
            format!("Without masks, each of {count} attacks reads 92 % of a user's numbers or more, or confirms a guess."),
            least >= 0.92,
            format!("at least {:.1} %", least * 100.0),
        ));
        let most = read(with).into_iter().fold(0.0, f64::max);
        // each number is compared with three random ones of 20 bits
        let numbers = attacks.sum().0 as f64;
        let chance = 3.0 * numbers / f64::from(1 << 20);
        claims.push(Claim::new(
            format!("With masks, none of these {count} attacks is better than chance, or confirms a guess."),
            most * numbers <= chance + 5.0 * chance.sqrt() + 1.0,
            format!("at most {:.0} of {numbers} numbers, {chance:.2} expected by chance", most * numbers),
        ));
        let misled = |of: &Repetitions<'_>| {
            SUM_ATTACKS.iter().filter(|attack| of.sum(&format!("{}_misled", attack.name)) > 0.0).count()
        };
        claims.push(Claim::new(
            "With masks, no honest user accepts a sum that is not that of the listed users.",
            misled(with) == 0 && without.mean("shift_misled") == Some(1.0),
            format!(
                "{} of {} attacks with masks, {} without",
                misled(with),
                SUM_ATTACKS.len(),
                misled(without)
            ),
        ));
    }
    if let Some(rules) = pair(parts, Attack::Rules) {
        let all =
            |name: &str, wanted: f64| rules.iter().all(|of| of.values(name).iter().all(|&x| x == wanted));
        let opened = all("first_set_refused", 0.0) && all("second_set_refused", 0.0);
        let third = all("third_set_refused", 1.0);
        claims.push(Claim::new(
            "The key generator does not open a third set on one model, because one user's update would follow.",
            opened && third,
            format!("the first two sets {}, the third {}", verb(opened), verb(!third)),
        ));
        let refused = all("doubled_sum_refused", 1.0) && all("other_model_refused", 1.0);
        claims.push(Claim::new(
            "Users refuse a published multiple of the sum and a model that does not follow from the sum, with and \
             without masks.",
            refused && all("honest_publication_refused", 0.0),
            if refused { "refused; the honest publication is accepted" } else { "accepted" },
        ));
    }
    claims
}

fn verb(opened: bool) -> &'static str {
    if opened { "opened" } else { "refused" }
}

fn claims_of_permutations(attacks: &Attacks, parts: &[Repetitions<'_>]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for of in parts {
        let Attack::Permutation(profile, density) = of.attack else { continue };
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
            // one round more or less is chance
            let near = |&rounds: &f64| (rounds - predicted as f64).abs() <= 1.0;
            claims.push(Claim {
                text: format!(
                    "99 % of a kept permutation of {} positions is recovered after {predicted} rounds, give or take \
                     one, at density {density_text}.",
                    attacks.dimension()
                ),
                holds: found.len() == of.all.len() && found.iter().all(near),
                seen: format!("{} rounds", rounds.join(", ")),
            });
        } else {
            let (claimed, right, chance) = (of.sum("claimed"), of.sum("right"), of.sum("by_chance"));
            claims.push(Claim {
                text: format!(
                    "With a fresh permutation per round, the same attack is no better than chance, at density \
                     {density_text}."
                ),
                // the attack claimed pairs and was right as often as a guess
                holds: claimed > 0.0 && right <= 1.0 + chance + 5.0 * chance.sqrt(),
                seen: format!("{right} of {claimed} claimed pairs right, {chance:.1} expected by chance"),
            });
        }
    }
    claims
}

fn claims_of_singles(parts: &[Repetitions<'_>]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for of in parts {
        match of.attack {
            Attack::Independent(density) => {
                let miss = |users: usize| {
                    let found = of.mean(&format!("users_{users:02}_singles"))?;
                    Some((found - expected_singles(users, density)).abs())
                };
                let worst = CROWDS.into_iter().filter_map(miss).fold(0.0, f64::max);
                let five = of.percent(&format!("users_{USERS:02}_singles")).unwrap_or(0.0);
                claims.push(Claim {
                    text: format!(
                        "Most entries of a sum of {USERS} users are one user's exact value, as the formula predicts, \
                         at density {density:.2}."
                    ),
                    holds: five > 50.0 && worst < 0.03,
                    seen: format!("{five:.1} %; off by {:.1} points at most", worst * 100.0),
                });
            }
            Attack::Learned(payload, _) => {
                let Some(singles) = of.percent("singles") else { continue };
                let Some(alone) = of.percent("sent_alone") else { continue };
                let accuracy = of.percent("accuracy").unwrap_or(0.0);
                let seen =
                    format!("{singles:.1} % by value, {alone:.1} % by position (accuracy {accuracy:.1} %)");
                let (text, holds) = if payload == PayloadName::Rotate {
                    (
                        "If all users send the same public features, no position comes from one user only: ",
                        alone == 0.0,
                    )
                } else {
                    ("Sums of trained sparse updates contain many singles: ", singles > 20.0)
                };
                claims.push(Claim { text: format!("{text}{payload}."), holds, seen });
            }
            _ => {}
        }
    }
    claims
}

fn claims_of_attempts(parts: &[Repetitions<'_>]) -> Vec<Claim> {
    let Some(oracle) = parts.iter().find(|of| of.attack == Attack::Oracle) else { return Vec::new() };
    let all = |wanted: bool| ATTEMPTS.iter().filter(move |(.., refused)| *refused == wanted);
    let refused = all(true).filter(|(name, ..)| oracle.mean(name) == Some(0.0)).count();
    let gap = oracle.mean("own_zeros") == Some(1.0);
    vec![
        Claim {
            text: "The key generator opens one sum per round, of enough distinct users, and does not count shards as \
                   users."
                .to_owned(),
            holds: refused == all(true).count() && oracle.mean("honest_sum") == Some(1.0),
            seen: format!("{refused} of {} such requests refused, the honest one opened", all(true).count()),
        },
        Claim {
            text: "Documented limit: in a task without receipts, the key generator opens a sum that the aggregator \
                   made from one upload and its own zeros. In a task whose sums are checked, it does not."
                .to_owned(),
            holds: gap && oracle.mean("own_zeros_checked") == Some(0.0),
            seen: if gap { "opened without receipts" } else { "refused: docs/leakage.md, section 3, is out of date" }
                .to_owned(),
        },
    ]
}
