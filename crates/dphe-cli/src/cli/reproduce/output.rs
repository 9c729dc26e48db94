//! Findings of experiments as text, Markdown, JSON and a page.

use core::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dphe_paillier::Backend;
use dphe_reproduce::{Cell, Claim, Experiment, Findings, Plot, Table, ValueUnit};
use dphe_service::chart::PointPlot;
use serde_json::{Map, Value, json};

use crate::cli::CliError;
use crate::files;
use crate::page::{Figure, Page, Tile};
use crate::terminal::{Tone, WIDTH, coloured, print_columns, print_text, wrapped};

/// The width of the column of verdicts.
const VERDICT: usize = 15;

/// The number of pictures at the top of the page.
const MOST_PICTURES: usize = 12;

/// The findings of an experiment, and how it was run.
pub(super) struct ExperimentReport {
    name: &'static str,
    settings: Vec<(String, String)>,
    findings: Findings,
    time: Duration,
}

impl ExperimentReport {
    pub(super) fn new(experiment: &dyn Experiment, findings: Findings, time: Duration) -> Self {
        Self { name: experiment.name(), settings: experiment.settings(), findings, time }
    }

    pub(super) fn holds(&self) -> bool {
        self.findings.claims.iter().all(|claim| claim.holds)
    }

    /// Returns how many claims there are, and how many of them hold.
    pub(super) fn claims(&self) -> (usize, usize) {
        let claims = &self.findings.claims;
        (claims.len(), claims.iter().filter(|claim| claim.holds).count())
    }

    pub(super) fn print(&self) {
        println!("\n{}\n", self.findings.title);
        for note in &self.findings.notes {
            print_text(&format!("note: {note}"));
        }
        for table in &self.findings.tables {
            print_text(&format!("\n{}", table.title));
            print_columns(&heads(table), &rows(table), |i| is_text(table, i));
        }
        println!();
        for claim in &self.findings.claims {
            let tone = tone(claim);
            let lines = wrapped(&format!("{}: {}", claim.text, claim.seen), WIDTH - VERDICT);
            for (i, line) in lines.iter().enumerate() {
                match i {
                    0 => println!("{}{line}", coloured(&format!("{:<VERDICT$}", verdict(claim)), tone)),
                    _ => println!("{:<VERDICT$}{line}", ""),
                }
            }
        }
        println!("{:.1} s", self.time.as_secs_f64());
    }

    pub(super) fn markdown(&self) -> String {
        let Findings { title, notes, tables, claims, .. } = &self.findings;
        let mut out = format!("## {title}\n\n");
        notes.iter().for_each(|note| {
            let _ = writeln!(out, "- {note}");
        });
        for table in tables {
            let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
            let head: Vec<String> = heads(table).iter().map(|head| (*head).to_owned()).collect();
            let rule: Vec<String> = table
                .columns
                .iter()
                .map(|column| if column.unit == ValueUnit::Text { "---" } else { "---:" }.to_owned())
                .collect();
            let _ = write!(out, "\n**{}**\n\n{}{}", table.title, line(&head), line(&rule));
            rows(table).iter().for_each(|row| out.push_str(&line(row)));
        }
        out.push('\n');
        for claim in claims {
            let _ = writeln!(out, "- {}: {}: {}", verdict(claim), claim.text, claim.seen);
        }
        let settings: Vec<String> =
            self.settings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let _ = writeln!(out, "\nSettings: {}. {}", settings.join(", "), machine());
        out
    }

    fn json(&self) -> Value {
        let tables: Vec<Value> = self
            .findings
            .tables
            .iter()
            .map(|table| json!({ "title": table.title, "rows": objects(table) }))
            .collect();
        json!({
            "name": self.name,
            "title": self.findings.title,
            "notes": self.findings.notes,
            "settings": self.settings.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "machine": machine(),
            "seconds": self.time.as_secs_f64(),
            "tables": tables,
            "plots": self.findings.plots,
            "claims": self.findings.claims,
        })
    }

    /// Writes `NAME.md`, `NAME.json`, `NAME-1.svg` and so on.
    pub(super) fn write(&self, directory: &Path) -> Result<(), CliError> {
        let put = |name: String, text: &str| {
            let path = directory.join(name);
            files::replace(&path, text.as_bytes()).map_err(|source| CliError::Output { path, source })
        };
        put(format!("{}.md", self.name), &self.markdown())?;
        put(format!("{}.json", self.name), &serde_json::to_string_pretty(&self.json())?)?;
        for (i, plot) in self.findings.plots.iter().enumerate() {
            if let Some(svg) = drawn(plot).standalone_svg() {
                put(format!("{}-{}.svg", self.name, i + 1), &svg)?;
            }
        }
        Ok(())
    }

    fn draw(&self, page: &mut Page) {
        let Findings { title, notes, tables, plots, pictures, claims } = &self.findings;
        page.heading(title);
        let verdicts: Vec<(Tone, Vec<String>)> = claims
            .iter()
            .map(|claim| {
                (tone(claim), vec![verdict(claim).to_owned(), claim.text.clone(), claim.seen.clone()])
            })
            .collect();
        if !verdicts.is_empty() {
            page.verdict_table(&["verdict", "claim", "seen"], &verdicts, 0);
        }
        notes.iter().for_each(|note| {
            page.paragraph(note);
        });
        for table in tables {
            page.subheading(&table.title);
            if (0..table.columns.len()).all(|i| is_text(table, i)) {
                page.prose_table(&heads(table), &rows(table));
            } else {
                page.columns(&heads(table), &rows(table), |i| is_text(table, i));
            }
        }
        let drawn: Vec<(&str, Option<String>)> =
            plots.iter().map(|plot| (plot.title.as_str(), drawn(plot).svg())).collect();
        if !drawn.is_empty() {
            page.plots(&drawn);
        }
        let tiles: Vec<Tile<'_>> =
            pictures.iter().map(|picture| Tile::new(&picture.lines, picture.width, &picture.grey)).collect();
        if !tiles.is_empty() {
            page.tiles(&tiles);
        }
        let settings: Vec<String> =
            self.settings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        page.paragraph(&format!("Settings: {}. {:.1} s.", settings.join(", "), self.time.as_secs_f64()));
    }
}

/// Prints the main table as a list of objects. For several experiments, prints an object of lists.
pub(super) fn print_json(found: &[ExperimentReport], all: bool) -> Result<(), CliError> {
    let main =
        |found: &ExperimentReport| found.findings.tables.first().map_or(Value::Array(Vec::new()), objects);
    let value = match found {
        [one] if !all => main(one),
        many => Value::Object(many.iter().map(|found| (found.name.to_owned(), main(found))).collect()),
    };
    println!("{}", serde_json::to_string_pretty(&value)?);
    Ok(())
}

pub(super) fn write_page(
    directory: &Path,
    found: &[ExperimentReport],
    quick: bool,
) -> Result<PathBuf, CliError> {
    let mut page = Page::new("The paper's experiments, reproduced");
    page.lead(
        "Results of \"Privacy-Preserving Visual Learning Using Doubly Permuted Homomorphic Encryption\" (Yonetani, \
         Boddeti, Kitani, Sato; ICCV 2017), as printed in the paper and as measured here.",
    );
    let (claims, hold) =
        found.iter().map(ExperimentReport::claims).fold((0, 0), |(all, good), (n, m)| (all + n, good + m));
    let seconds: f64 = found.iter().map(|found| found.time.as_secs_f64()).sum();
    let tone = if hold == claims { Tone::Good } else { Tone::Bad };
    let how = if quick {
        "Few repetitions and rounds, so numbers are rough."
    } else {
        "All repetitions and rounds."
    };
    page.figures(&[
        Figure::new(
            "claims that hold",
            format!("{hold} of {claims}"),
            "They are listed with each experiment.",
        )
        .toned(tone),
        Figure::new("experiments", found.len().to_string(), how),
        Figure::new(
            "time",
            format!("{:.0} min {:.0} s", (seconds / 60.0).floor(), seconds % 60.0),
            &machine(),
        ),
    ]);
    for found in found.iter().filter(|found| !found.findings.pictures.is_empty()) {
        let pictures = found.findings.pictures.iter().take(MOST_PICTURES);
        let tiles: Vec<Tile<'_>> =
            pictures.map(|picture| Tile::new(&picture.lines, picture.width, &picture.grey)).collect();
        page.heading("What updates give away: plain, and sealed").tiles(&tiles);
    }
    found.iter().for_each(|found| found.draw(&mut page));
    let path = directory.join("report.html");
    files::replace(&path, page.html().as_bytes())
        .map_err(|source| CliError::Output { path: path.clone(), source })?;
    Ok(path)
}

/// Describes the machine.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let name = name.map_or(std::env::consts::ARCH, |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "dphe {}, {name}, {cores} cores, {} back end.",
        env!("CARGO_PKG_VERSION"),
        Backend::active().name()
    )
}

fn verdict(claim: &Claim) -> &'static str {
    if claim.holds { "holds" } else { "does not hold" }
}

fn tone(claim: &Claim) -> Tone {
    if claim.holds { Tone::Good } else { Tone::Bad }
}

fn is_text(table: &Table, column: usize) -> bool {
    table.columns.get(column).is_some_and(|column| column.unit == ValueUnit::Text)
}

fn heads(table: &Table) -> Vec<&str> {
    table.columns.iter().map(|column| column.title.as_str()).collect()
}

fn rows(table: &Table) -> Vec<Vec<String>> {
    let cells = |row: &Vec<Cell>| {
        row.iter().zip(&table.columns).map(|(cell, column)| text(cell, column.unit)).collect::<Vec<_>>()
    };
    table.rows.iter().map(cells).collect()
}

fn objects(table: &Table) -> Value {
    let object = |row: &Vec<Cell>| {
        let pairs = table.columns.iter().zip(row);
        let pairs = pairs.map(|(column, cell)| {
            let value = match cell {
                Cell::Number(number) if column.unit == ValueUnit::Count => json!(*number as i64),
                Cell::Number(number) => json!(number),
                Cell::Text(text) => json!(text),
                Cell::Empty(_) => Value::Null,
            };
            (column.key.clone(), value)
        });
        Value::Object(pairs.collect::<Map<_, _>>())
    };
    table.rows.iter().map(object).collect()
}

fn text(cell: &Cell, unit: ValueUnit) -> String {
    match cell {
        Cell::Number(number) => written(*number, unit),
        Cell::Text(text) => text.clone(),
        Cell::Empty(_) => "-".into(),
    }
}

fn written(number: f64, unit: ValueUnit) -> String {
    match unit {
        ValueUnit::Percent => format!("{number:.2}"),
        ValueUnit::Count => format!("{number:.0}"),
        ValueUnit::Seconds if number.abs() < 1e-3 && number != 0.0 => format!("{:.1} us", number * 1e6),
        ValueUnit::Seconds if number.abs() < 1.0 && number != 0.0 => format!("{:.1} ms", number * 1e3),
        ValueUnit::Seconds => format!("{number:.2} s"),
        ValueUnit::Bytes if number < 1e6 => format!("{:.1} kB", number / 1e3),
        ValueUnit::Bytes => format!("{:.1} MB", number / 1e6),
        ValueUnit::Plain | ValueUnit::Text
            if number != 0.0 && (number.abs() < 1e-3 || number.abs() >= 1e6) =>
        {
            format!("{number:.1e}")
        }
        ValueUnit::Plain | ValueUnit::Text => format!("{number:.4}"),
    }
}

fn drawn(plot: &Plot) -> PointPlot<'_> {
    PointPlot {
        title: &plot.title,
        x: &plot.x,
        logarithmic: plot.logarithmic,
        from_zero: false,
        write: match plot.unit {
            ValueUnit::Percent => |value| format!("{} %", (10.0 * value).round() / 10.0),
            ValueUnit::Count => |value| format!("{value:.0}"),
            ValueUnit::Seconds => |value| format!("{value:.2} s"),
            ValueUnit::Bytes => |value| format!("{:.1} MB", value / 1e6),
            ValueUnit::Plain | ValueUnit::Text => |value| format!("{value:.2}"),
        },
        series: &plot.series,
    }
}
