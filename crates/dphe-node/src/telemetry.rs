//! Logs and figures. Logged are rounds, parties, sizes, codes, digests and times; never keys, seeds, weights, updates,
//! sums, models or the bodies of messages: types that hold such things do not print them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use tracing::level_filters::LevelFilter;

/// How much is logged, and how.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// The least important that is logged.
    pub level: LevelFilter,
    /// One JSON object a line.
    pub json: bool,
}

impl LogOptions {
    /// `-q` and `-v`, as often as given.
    pub fn new(quiet: bool, verbose: u8, json: bool) -> Self {
        let level = match (quiet, verbose) {
            (true, _) => LevelFilter::ERROR,
            (false, 0) => LevelFilter::INFO,
            (false, 1) => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        Self { level, json }
    }
}

/// Starts logging to standard error. A second call changes nothing.
pub fn start_logging(options: LogOptions) {
    let builder = tracing_subscriber::fmt().with_max_level(options.level).with_writer(std::io::stderr);
    let _ = if options.json {
        builder.json().flatten_event(true).with_target(false).try_init()
    } else {
        builder.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init()
    };
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// More.
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Less.
    pub fn sub(&self, n: i64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    /// Exactly.
    pub fn set(&self, n: i64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Now.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The figures of a party.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Connections now.
    pub connections: Gauge,
    /// Handshakes that were refused or not finished.
    pub refused_handshakes: Gauge,
    /// The round at hand.
    pub round: Gauge,
    /// Uploads that were stored.
    pub uploads: Gauge,
    /// Bytes of them.
    pub upload_bytes: Gauge,
    /// Bytes written to the log.
    pub log_bytes: Gauge,
    /// Milliseconds spent in steps of the party.
    pub step_milliseconds: Gauge,
    /// Whether this one leads, of several aggregators.
    pub leads: Gauge,
    /// Whether the party is up.
    pub ready: Gauge,
    refusals: Mutex<BTreeMap<String, (u64, SystemTime)>>,
    rounds: Mutex<BTreeMap<&'static str, u64>>,
}

impl Metrics {
    /// Something was refused with this code.
    pub fn refused(&self, code: &str) {
        // ours come from a fixed list; a stranger's are counted together, so this does not grow
        let known = code.len() <= 40 && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let code = if known { code } else { "other" };
        if let Ok(mut refusals) = self.refusals.lock() {
            let code = if refusals.len() < 200 || refusals.contains_key(code) { code } else { "other" };
            let entry = refusals.entry(code.to_owned()).or_insert((0, SystemTime::UNIX_EPOCH));
            *entry = (entry.0 + 1, SystemTime::now());
        }
    }

    /// How often something was refused with this code.
    pub fn refusals(&self, code: &str) -> u64 {
        self.refusals.lock().ok().and_then(|refusals| refusals.get(code).map(|entry| entry.0)).unwrap_or(0)
    }

    /// What was refused: code, how often, when last.
    pub fn incidents(&self) -> Vec<(String, u64, SystemTime)> {
        let refusals = self.refusals.lock().map(|map| map.clone()).unwrap_or_default();
        refusals.into_iter().map(|(code, (count, last))| (code, count, last)).collect()
    }

    /// A round ended so.
    pub fn ended(&self, ending: &'static str) {
        if let Ok(mut rounds) = self.rounds.lock() {
            *rounds.entry(ending).or_default() += 1;
        }
    }

    /// The text that Prometheus reads.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for (name, kind, help, value) in [
            ("dphe_connections", "gauge", "Open connections.", &self.connections),
            ("dphe_refused_handshakes_total", "counter", "TLS handshakes refused.", &self.refused_handshakes),
            ("dphe_round", "gauge", "The round at hand.", &self.round),
            ("dphe_uploads_total", "counter", "Uploads stored.", &self.uploads),
            ("dphe_upload_bytes_total", "counter", "Bytes of uploads stored.", &self.upload_bytes),
            ("dphe_log_bytes_total", "counter", "Bytes written to the log.", &self.log_bytes),
            (
                "dphe_step_milliseconds_total",
                "counter",
                "Time in steps of the protocol.",
                &self.step_milliseconds,
            ),
            ("dphe_leads", "gauge", "1 if this replica leads, of several aggregators.", &self.leads),
            ("dphe_ready", "gauge", "1 if the party takes requests.", &self.ready),
        ] {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {}", value.get());
        }
        let mut table = |name: &str, label: &str, help: &str, rows: Vec<(String, u64)>| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
            for (value, count) in rows {
                let _ = writeln!(out, "{name}{{{label}=\"{value}\"}} {count}");
            }
        };
        let refusals = self.incidents().into_iter().map(|(code, count, _)| (code, count)).collect();
        table("dphe_refusals_total", "code", "Requests refused.", refusals);
        let rounds = self.rounds.lock().map(|map| map.clone()).unwrap_or_default();
        let rounds = rounds.into_iter().map(|(ending, count)| (ending.to_owned(), count)).collect();
        table("dphe_rounds_total", "ending", "Rounds that ended.", rounds);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_in_the_text_format() {
        let metrics = Metrics::default();
        metrics.round.set(7);
        metrics.refused("late");
        metrics.refused("late");
        metrics.ended("published");
        let text = metrics.render();
        assert!(text.contains("\ndphe_round 7\n"), "{text}");
        assert!(text.contains("dphe_refusals_total{code=\"late\"} 2\n"), "{text}");
        assert!(text.contains("dphe_rounds_total{ending=\"published\"} 1\n"), "{text}");
        // every line is a comment or a name and a number
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.split(' ').nth(1).unwrap().parse::<i64>().is_ok(), "{line}");
        }
    }
}
