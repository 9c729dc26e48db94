//! Logs and figures. Logged are rounds, parties, sizes, codes, digests and times; never keys, seeds, weights, updates,
//! sums, models or the bodies of messages: types that hold such things do not print them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

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
#[derive(Debug)]
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
    /// When its certificate ends, in seconds since 1970; 0 if that is not known.
    pub certificate_end: Gauge,
    refusals: Mutex<BTreeMap<String, (u64, SystemTime)>>,
    rounds: Mutex<Rounds>,
    phase: Mutex<&'static str>,
    started: SystemTime,
}

/// Rounds that ended, and when the last one did.
#[derive(Debug)]
struct Rounds {
    endings: BTreeMap<&'static str, u64>,
    /// When the last one ended; before that, when the party started.
    since: Instant,
    last: Option<(SystemTime, f64)>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            connections: Gauge::default(),
            refused_handshakes: Gauge::default(),
            round: Gauge::default(),
            uploads: Gauge::default(),
            upload_bytes: Gauge::default(),
            log_bytes: Gauge::default(),
            step_milliseconds: Gauge::default(),
            leads: Gauge::default(),
            ready: Gauge::default(),
            certificate_end: Gauge::default(),
            refusals: Mutex::default(),
            rounds: Mutex::new(Rounds { endings: BTreeMap::new(), since: Instant::now(), last: None }),
            phase: Mutex::new(""),
            started: SystemTime::now(),
        }
    }
}

/// All phases of all parties, so that a phase that is over shows as 0 and not as a line that is gone.
const PHASES: [&str; 11] = [
    "idle",
    "opened",
    "collecting",
    "frozen",
    "requested",
    "received",
    "ticketed",
    "committed",
    "answered",
    "prepared",
    "uploaded",
];

impl Metrics {
    /// The round at hand stands so.
    pub fn stands(&self, phase: &'static str) {
        if let Ok(mut now) = self.phase.lock() {
            *now = phase;
        }
    }

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
            *rounds.endings.entry(ending).or_default() += 1;
            let now = Instant::now();
            rounds.last = Some((SystemTime::now(), (now - rounds.since).as_secs_f64()));
            rounds.since = now;
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
            ("dphe_leads", "gauge", "1 if this aggregator leads: alone, or of several.", &self.leads),
            ("dphe_ready", "gauge", "1 if the party takes requests.", &self.ready),
        ] {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {}", value.get());
        }
        let mut table = |name: &str, kind: &str, label: &str, help: &str, rows: Vec<(String, u64)>| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (value, count) in rows {
                let _ = writeln!(out, "{name}{{{label}=\"{value}\"}} {count}");
            }
        };
        let refusals = self.incidents().into_iter().map(|(code, count, _)| (code, count)).collect();
        table("dphe_refusals_total", "counter", "code", "Requests refused.", refusals);
        let (endings, last) =
            self.rounds.lock().map(|rounds| (rounds.endings.clone(), rounds.last)).unwrap_or_default();
        let endings = endings.into_iter().map(|(ending, count)| (ending.to_owned(), count)).collect();
        table("dphe_rounds_total", "counter", "ending", "Rounds that ended.", endings);
        let phase = self.phase.lock().map_or("", |phase| *phase);
        let phases = PHASES.iter().map(|&one| (one.to_owned(), u64::from(one == phase))).collect();
        table("dphe_phase", "gauge", "phase", "1 for the phase of the round at hand.", phases);
        let version = vec![(env!("CARGO_PKG_VERSION").to_owned(), 1)];
        table("dphe_build_info", "gauge", "version", "The version of the program.", version);
        if let Some((end, seconds)) = last {
            let name = "dphe_last_round_end_timestamp_seconds";
            plain(&mut out, name, "gauge", "When the last round ended.", since_epoch(end));
            let help = "From the end of the round before, or the start, to the end of the last one.";
            plain(&mut out, "dphe_last_round_seconds", "gauge", help, seconds);
        }
        if self.certificate_end.get() > 0 {
            let name = "dphe_certificate_end_timestamp_seconds";
            let end = self.certificate_end.get() as f64;
            plain(&mut out, name, "gauge", "When the certificate ends.", end);
        }
        let start = since_epoch(self.started);
        plain(&mut out, "process_start_time_seconds", "gauge", "When the party started.", start);
        for (name, kind, help, value) in own_process() {
            plain(&mut out, name, kind, help, value);
        }
        out
    }
}

fn plain(out: &mut String, name: &str, kind: &str, help: &str, value: f64) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
}

fn since_epoch(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |passed| passed.as_millis() as f64 / 1_000.0)
}

/// What Linux says of this process, by the names that Prometheus has for it; nothing elsewhere.
fn own_process() -> Vec<(&'static str, &'static str, &'static str, f64)> {
    let mut found = Vec::new();
    let resident = std::fs::read_to_string("/proc/self/status").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    });
    if let Some(kilobytes) = resident {
        found.push(("process_resident_memory_bytes", "gauge", "Memory in use.", kilobytes * 1_024.0));
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        found.push(("process_open_fds", "gauge", "Open files and connections.", files.count() as f64));
    }
    found
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
        metrics.stands("collecting");
        let text = metrics.render();
        assert!(text.contains("\ndphe_round 7\n"), "{text}");
        assert!(text.contains("dphe_refusals_total{code=\"late\"} 2\n"), "{text}");
        assert!(text.contains("dphe_rounds_total{ending=\"published\"} 1\n"), "{text}");
        assert!(text.contains("dphe_phase{phase=\"collecting\"} 1\n"), "{text}");
        assert!(text.contains("dphe_phase{phase=\"idle\"} 0\n"), "{text}");
        assert!(text.contains("\ndphe_last_round_seconds 0"), "{text}");
        assert!(!text.contains("dphe_certificate_end"), "it is not known: {text}");
        // every line is a comment or a name and a number
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
        }
        // every name is told once what it is
        let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let mut once = names.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), names.len());
    }
}
