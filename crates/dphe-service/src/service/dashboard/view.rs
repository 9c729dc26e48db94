//! The HTML of the dashboard. Everything that comes from outside is escaped where it is written.

use core::fmt::Write as _;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use dphe::party::AggregatorPhase;
use dphe::wire::Ending;
use dphe::{Profile, UserId};

use crate::chart::{Chart, Series, Unit};
use crate::html::{STYLE, escaped, table};
use crate::kit::Kit;
use crate::party::list_of_users;
use crate::service::aggregator::{AggregatorStatus, RoundRecord, Snapshot, phase_label};
use crate::task_file::Trained;
use crate::telemetry::Metrics;

/// The styles that reports do not have.
const MORE_STYLE: &str = "
header { align-items: baseline; display: flex; flex-wrap: wrap; gap: .25rem 1rem; } header h1 { margin: 0; }
#live { border: 1px solid currentColor; border-radius: 1rem; font-size: .85rem; padding: 0 .6rem; }
#live.on { color: var(--line-3); } #live.off { color: var(--line-2); }
.skip { left: -100rem; position: absolute; } .skip:focus { left: 1rem; top: .25rem; }
:focus-visible { outline: 3px solid var(--line-1); outline-offset: 2px; }
.cards { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); margin: 0; }
.cards div { background: var(--card); border-radius: 8px; padding: .6rem .75rem; }
.cards dt { color: var(--soft); font-size: .85rem; } .cards dd { font-size: 1.35rem; font-weight: 600; margin: 0; }
.steps { display: flex; flex-wrap: wrap; gap: .4rem; list-style: none; margin: 1rem 0 0; padding: 0; }
.steps li { border: 1px solid var(--grid); border-radius: 1rem; color: var(--soft); padding: .1rem .8rem; }
.steps [aria-current] { background: var(--line-1); border-color: var(--line-1); color: var(--back); font-weight: 600; }
.people { display: grid; gap: .5rem; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); list-style: none;
  margin: 0; padding: 0; }
.people li { background: var(--card); border-left: 4px solid var(--grid); border-radius: 6px; padding: .35rem .6rem; }
.people .in { border-left-color: var(--line-3); } .people span { color: var(--soft); display: block; font-size: .85rem; }
.bad { color: var(--line-2); font-weight: 600; } meter { height: 1.1rem; max-width: 24rem; width: 100%; }
#problems td:first-child { max-width: 32rem; min-width: 12rem; white-space: normal; }
#logout { display: block; margin-left: auto; }
#logout button { background: none; color: inherit; font-size: .85rem; font-weight: 400; padding: 0 .6rem; }
form { display: grid; gap: .75rem; max-width: 26rem; } label { font-weight: 600; }
input, button { border: 1px solid var(--soft); border-radius: 6px; font: inherit; padding: .5rem .75rem; }
button { background: var(--line-1); border-color: var(--line-1); color: var(--back); font-weight: 600; }
";

pub(super) fn style() -> String {
    format!("{STYLE}{MORE_STYLE}")
}

/// The number of rounds in the table. All records are in the data directory.
const ROUNDS: usize = 100;
/// The number of rounds in a chart.
const POINTS: usize = 400;

/// A part of the page that changes.
#[derive(Clone, Copy)]
enum Part {
    Now,
    Plots,
    People,
    Privacy,
    Rounds,
    Problems,
}

/// The parts in the order of the page, each with its identifier and heading.
const PARTS: [(Part, &str, &str); 6] = [
    (Part::Now, "now", "Now"),
    (Part::Plots, "plots", "Progress"),
    (Part::People, "people", "Users"),
    (Part::Privacy, "privacy", "What the sums reveal"),
    (Part::Rounds, "rounds", "Rounds"),
    (Part::Problems, "problems", "Problems"),
];

pub(super) struct View {
    name: String,
    about: String,
    profile: Profile,
    users: Vec<u32>,
    floor: usize,
    metrics: Arc<Metrics>,
}

impl View {
    pub(super) fn new(kit: &Kit, metrics: Arc<Metrics>) -> Self {
        let (roster, file) = (kit.roster(), kit.task_file());
        let task = roster.task();
        let profile = task.profile();
        let size = match &file.trained {
            Trained::Linear(linear) => {
                format!("{} classes, {} features", linear.model.classes, linear.model.features)
            }
            Trained::Tensors(sections) => format!("{} trained values", sections.tensors.dimension),
        };
        Self {
            name: file.task.name.clone(),
            about: format!(
                "Task {}, profile {}, keys of {} bits, {size}. A sum has at least {} of {} users.",
                task.id(),
                profile.as_str(),
                task.key_bits().get(),
                roster.floor(),
                file.task.users
            ),
            profile,
            users: roster.users().map(|user| user.get()).collect(),
            floor: roster.floor(),
            metrics,
        }
    }

    pub(super) fn login(&self, wrong: bool) -> String {
        let wrong = if wrong {
            "<p class=\"bad\" role=\"alert\">This is not the token of this task.</p>"
        } else {
            ""
        };
        self.document(&format!(
            "<main><h1>{}</h1>{wrong}<form id=\"login\" method=\"post\" action=\"/login\">\
             <label for=\"token\">Token</label>\
             <input id=\"token\" name=\"token\" type=\"password\" autocomplete=\"current-password\" required autofocus>\
             <button>Log in</button></form>\
             <p class=\"soft\">The token is in the file <code>dashboard.token</code> of the aggregator's kit.</p></main>",
            escaped(&self.name)
        ))
    }

    pub(super) fn page(&self, snapshot: &Snapshot) -> String {
        let mut body = format!(
            "<a class=\"skip\" href=\"#rounds\">Skip to the rounds</a>\n\
             <header><h1>{}</h1><span id=\"live\" role=\"status\">loading</span>\
             <form id=\"logout\" method=\"post\" action=\"/logout\"><button>Log out</button></form></header>\n\
             <p class=\"soft\">{}</p>\n<main>\n",
            escaped(&self.name),
            escaped(&self.about)
        );
        for (part, name, heading) in PARTS {
            // wide tables can be scrolled with the keyboard
            let scroll = match part {
                Part::Rounds | Part::Problems => " class=\"scroll\" tabindex=\"0\" role=\"region\"",
                Part::Plots => " class=\"plots\"",
                Part::Now | Part::People | Part::Privacy => "",
            };
            let part = self.part(part, snapshot);
            // writing to a string does not fail
            let _ = writeln!(
                body,
                "<section><h2>{heading}</h2><div id=\"{name}\" aria-label=\"{heading}\"{scroll}>{part}</div></section>"
            );
        }
        body.push_str("</main>\n");
        self.document(&body)
    }

    /// Returns the parts that change as a JSON object of HTML.
    pub(super) fn parts(&self, snapshot: &Snapshot) -> String {
        let parts = PARTS.iter().map(|&(part, name, _)| (name.to_owned(), self.part(part, snapshot).into()));
        serde_json::Value::Object(parts.collect()).to_string()
    }

    fn document(&self, body: &str) -> String {
        let name = escaped(&self.name);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{name} - dphe</title>\n\
             <link rel=\"icon\" href=\"data:,\">\n<link rel=\"stylesheet\" href=\"dashboard.css\">\n\
             <script src=\"dashboard.js\" defer></script>\n</head>\n<body>\n{body}</body>\n</html>\n"
        )
    }

    fn part(&self, part: Part, snapshot: &Snapshot) -> String {
        let records = &snapshot.records;
        let records = &records[records.len().saturating_sub(POINTS)..];
        match part {
            Part::Now => self.now(snapshot),
            Part::Plots => plots(records),
            Part::People => self.people(snapshot),
            Part::Privacy => self.privacy(records),
            Part::Rounds => rounds(records),
            Part::Problems => self.problems(&snapshot.status, records),
        }
    }

    fn now(&self, snapshot: &Snapshot) -> String {
        let (status, last) = (&snapshot.status, snapshot.records.iter().rev().find(|r| is_published(r)));
        let mut out = String::from("<dl class=\"cards\">");
        let mut card = |name: &str, value: String| {
            let _ = write!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escaped(&value));
        };
        let counted = status.round.saturating_sub(status.aborted);
        card("round", format!("{} of {}", counted.min(status.rounds), status.rounds));
        if status.aborted > 0 {
            card("aborted rounds", status.aborted.to_string());
        }
        card("updates in this round", format!("{} of {}", status.collected.len(), status.users));
        let missing = status.missing_of(self.users.iter().copied().filter_map(UserId::new));
        if !missing.is_empty() {
            card("missing updates", format!("user {}", list_of_users(&missing)));
        }
        let percent = |value: Option<f64>| value.map_or("unknown".into(), |value| Unit::Percent.write(value));
        if let Some(last) = last {
            if last.accuracy.is_some() {
                card("accuracy", percent(last.accuracy));
            }
            card("zeros in the last sum", percent(last.sparsity));
            let seconds = last.seconds.map_or("unknown".into(), |seconds| Unit::Seconds.write(seconds));
            card("duration of the last round", seconds);
            card("uploaded in the last round", Unit::Bytes.write(last.upload_bytes as f64));
        }
        out.push_str("</dl><ol class=\"steps\">");
        for &phase in AggregatorPhase::ALL {
            let text = phase_label(phase);
            let (here, text) = match (status.phase == Some(phase), status.over) {
                (true, true) => (" aria-current=\"step\"", "all rounds are over"),
                (true, false) => (" aria-current=\"step\"", text),
                (false, _) => ("", text),
            };
            let _ = write!(out, "<li{here}>{text}</li>");
        }
        out.push_str("</ol>");
        out
    }

    fn people(&self, snapshot: &Snapshot) -> String {
        let mut out = String::from("<ul class=\"people\">");
        let set = |users: &[u32]| users.iter().copied().collect::<HashSet<u32>>();
        let status = &snapshot.status;
        let (collected, suspects) = (set(&status.collected), set(&status.suspects));
        let asked = status.asked.as_deref().map(set);
        let published = || snapshot.records.iter().filter(|r| is_published(r));
        // one pass over the records, not one per user
        let mut counts: HashMap<u32, usize> = HashMap::new();
        published().flat_map(|r| &r.participants).for_each(|&user| *counts.entry(user).or_default() += 1);
        let sums = published().count();
        for user in &self.users {
            let count = counts.get(user).copied().unwrap_or(0);
            let now = match () {
                () if status.over => "the task is over",
                () if status.phase == Some(AggregatorPhase::Idle) => "between rounds",
                () if collected.contains(user) => "update received",
                () if asked.as_ref().is_some_and(|asked| !asked.contains(user)) => "not asked in this round",
                () => "no update yet",
            };
            let class = if collected.contains(user) { " class=\"in\"" } else { "" };
            let suspect = if suspects.contains(user) { "<span class=\"bad\">suspected</span>" } else { "" };
            let taken = match sums {
                0 => "no sum yet".to_owned(),
                1 => format!("in {count} of 1 sum"),
                _ => format!("in {count} of the last {sums} sums"),
            };
            let _ = write!(out, "<li{class}>user {user}{suspect}<span>{now}</span><span>{taken}</span></li>");
        }
        out.push_str("</ul>");
        out
    }

    /// Describes what sums reveal, with the share of positions that a single user occupies.
    fn privacy(&self, records: &[RoundRecord]) -> String {
        let mut out = String::new();
        let last = records.iter().rev().find(|r| is_published(r));
        match (self.profile, last.and_then(|r| r.singles)) {
            (Profile::Full, _) => out.push_str(
                "<p>Positions are public and the same for all users, so they reveal nothing. Visible are the sum itself, \
                 who takes part, when, and how long messages are. Where all other users send zero, the sum is the \
                 value of a single user. Aggregator and key generator together can read every update.</p>",
            ),
            (Profile::Paper, singles) => {
                out.push_str(
                    "<p class=\"bad\">This task uses the paper's own parameters, for reproduction only: its keys are \
                     short, and its permutations are kept over rounds and can be recovered within a few dozen of them. \
                     Do not use it for private data.</p>",
                );
                if let Some(singles) = singles {
                    let singles = Unit::Percent.write(singles);
                    let _ = write!(out, "<p>A single user occupies {singles} of the last sum's positions.</p>");
                }
            }
            (Profile::Sparse, Some(singles)) => {
                let _ = write!(
                    out,
                    "<p><label>Share of the last sum's positions that a single user occupies: <b>{}</b><br>\
                     <meter min=\"0\" max=\"1\" low=\"0.2\" high=\"0.5\" optimum=\"0\" value=\"{singles:.4}\">\
                     </meter></label></p><p>At these positions the sum shows the values of single users, without their \
                     names. In each round, positions are hidden from an aggregator that follows the protocol and \
                     colludes with no user. More users, larger payloads or the profile <code>full</code> reduce the \
                     share. Aggregator and key generator together can read every update.</p>",
                    Unit::Percent.write(singles)
                );
            }
            (Profile::Sparse, None) => out.push_str("<p class=\"soft\">No sum has been opened yet.</p>"),
        }
        if let Some(users) = last.and_then(|r| r.users) {
            let _ = write!(
                out,
                "<p class=\"soft\">The last sum has {users} users; the floor is {}.</p>",
                self.floor
            );
        }
        out
    }

    fn problems(&self, status: &AggregatorStatus, records: &[RoundRecord]) -> String {
        let mut rows: Vec<Vec<String>> = Vec::new();
        if let Some(what) = suspicion(status) {
            rows.push(vec![what, String::new(), status.suspects.len().to_string()]);
        }
        for record in records.iter().rev().filter(|r| !is_published(r)).take(20) {
            let reason = record.reason.clone().unwrap_or_else(|| "see the log".into());
            let what = format!("round {} {}: {reason}", record.round, record.ending);
            rows.push(vec![what, date(record.ended_at), "1".into()]);
        }
        for (code, count, last) in self.metrics.incidents() {
            rows.push(vec![format!("refused: {code}"), date(seconds(last)), count.to_string()]);
        }
        let handshakes = self.metrics.refused_handshakes.get();
        if handshakes > 0 {
            rows.push(vec![
                "refused handshakes, such as connections without a key of the roster".into(),
                String::new(),
                handshakes.to_string(),
            ]);
        }
        if rows.is_empty() {
            return "<p>None.</p>".into();
        }
        table(&["problem", "last", "count"], &rows)
    }
}

/// Describes the users who are suspected of spoiling rounds.
fn suspicion(status: &AggregatorStatus) -> Option<String> {
    const SHOWN: usize = 20;
    let count = status.suspects.len();
    if count == 0 {
        return None;
    }
    let users: Vec<String> = status.suspects.iter().take(SHOWN).map(u32::to_string).collect();
    let more = if count > SHOWN { format!(" and {} more", count - SHOWN) } else { String::new() };
    let state =
        if status.searching { "The search goes on." } else { "Rounds go on without them if possible." };
    Some(format!("suspected of spoiling rounds: user {}{more}. {state}", users.join(", ")))
}

fn is_published(record: &RoundRecord) -> bool {
    record.ending == Ending::Published
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

/// Returns the date and time in UTC.
fn date(seconds: u64) -> String {
    let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    httpdate::fmt_http_date(time)
}

fn plots(records: &[RoundRecord]) -> String {
    let of = |value: fn(&RoundRecord) -> Option<f64>| -> Vec<f64> {
        records.iter().map(|record| value(record).unwrap_or(f64::NAN)).collect()
    };
    let plots = [
        ("Accuracy", Unit::Percent, false, vec![Series::new("held-out", of(|r| r.accuracy))]),
        (
            "Sparsity and singles",
            Unit::Percent,
            true,
            vec![
                Series::new("zeros in the sum", of(|r| r.sparsity)),
                Series::new("singles", of(|r| r.singles)),
            ],
        ),
        (
            "Seconds per step",
            Unit::Seconds,
            true,
            vec![
                Series::new("collect", of(|r| r.collect_seconds)),
                Series::new("open", of(|r| r.open_seconds)),
                Series::new("publish", of(|r| r.publish_seconds)),
            ],
        ),
        (
            "Bytes uploaded",
            Unit::Bytes,
            true,
            vec![Series::new("all users", of(|r| Some(r.upload_bytes as f64)))],
        ),
    ];
    let first = records.first().map_or(1, |record| record.round);
    let mut out = String::new();
    for (title, unit, from_zero, series) in plots {
        let series: Vec<Series> =
            series.into_iter().filter(|series| series.values.iter().any(|value| value.is_finite())).collect();
        if let Some(svg) = (Chart { title, unit, series: &series, from_zero, first }).svg() {
            let _ = write!(out, "<figure><figcaption>{title}</figcaption>{svg}</figure>");
        }
    }
    if out.is_empty() {
        return "<p class=\"soft\">Charts start with the end of the first round.</p>".into();
    }
    out
}

fn rounds(records: &[RoundRecord]) -> String {
    if records.is_empty() {
        return "<p class=\"soft\">No round has ended yet.</p>".into();
    }
    let write = |unit: Unit, value: Option<f64>| value.map_or(String::new(), |value| unit.write(value));
    let rows: Vec<Vec<String>> = records
        .iter()
        .rev()
        .take(ROUNDS)
        .map(|r| {
            vec![
                r.round.to_string(),
                r.ending.as_str().into(),
                r.users.map_or(String::new(), |users| users.to_string()),
                write(Unit::Percent, r.accuracy),
                write(Unit::Percent, r.sparsity),
                write(Unit::Percent, r.singles),
                Unit::Bytes.write(r.upload_bytes as f64),
                write(Unit::Seconds, r.collect_seconds),
                write(Unit::Seconds, r.open_seconds),
                write(Unit::Seconds, r.publish_seconds),
            ]
        })
        .collect();
    let head = [
        "round", "ending", "users", "accuracy", "zeros", "singles", "uploaded", "collect", "open", "publish",
    ];
    table(&head, &rows)
}
