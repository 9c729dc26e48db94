//! Logs and metrics. Logs contain rounds, parties, sizes, error codes, digests and times. They never contain keys,
//! seeds, weights, updates, sums, models or message bodies: types that hold these do not print them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use dphe::party::{AggregatorPhase, KeyGeneratorPhase, UserPhase};
use dphe::wire::{Ending, Outcome};
use tracing::level_filters::LevelFilter;

use crate::http::problem::ProblemCode;

/// The level and format of the log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// The lowest level that is logged.
    pub level: LevelFilter,
    /// Whether each line is a JSON object.
    pub json: bool,
}

impl LogOptions {
    /// Creates options from the flags `-q` and `-v` (counted).
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

/// Starts logging to standard error. A second call has no effect.
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
    /// Adds to the value.
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Subtracts from the value.
    pub fn sub(&self, n: i64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    /// Sets the value.
    pub fn set(&self, n: i64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Returns the value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The metrics of a party.
#[derive(Debug)]
pub struct Metrics {
    /// Open connections.
    pub connections: Gauge,
    /// TLS handshakes that were refused or not completed.
    pub refused_handshakes: Gauge,
    /// The current round.
    pub round: Gauge,
    /// Stored uploads.
    pub uploads: Gauge,
    /// Bytes of stored uploads.
    pub upload_bytes: Gauge,
    /// Bytes written to the log.
    pub log_bytes: Gauge,
    /// Milliseconds spent in steps of the protocol.
    pub step_milliseconds: Gauge,
    /// 1 if this aggregator is the leader.
    pub leads: Gauge,
    /// 1 if the party accepts requests.
    pub ready: Gauge,
    /// The users whom an aggregator suspects of spoiling rounds.
    pub suspects: Gauge,
    openings: [AtomicI64; Outcome::ALL.len()],
    refusals: Mutex<BTreeMap<&'static str, (u64, SystemTime)>>,
    rounds: Mutex<Rounds>,
    phase: Mutex<Option<Phase>>,
    accuracy: Mutex<Option<f64>>,
    started: SystemTime,
}

/// The number of rounds by ending, and when the last one ended.
#[derive(Debug)]
struct Rounds {
    endings: BTreeMap<&'static str, u64>,
    /// When the last round ended, or when the party started.
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
            suspects: Gauge::default(),
            openings: Default::default(),
            refusals: Mutex::default(),
            rounds: Mutex::new(Rounds { endings: BTreeMap::new(), since: Instant::now(), last: None }),
            phase: Mutex::default(),
            accuracy: Mutex::default(),
            started: SystemTime::now(),
        }
    }
}

/// The phase of a party's current round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The phase of an aggregator.
    Aggregator(AggregatorPhase),
    /// The phase of a key generator.
    KeyGenerator(KeyGeneratorPhase),
    /// The phase of a user.
    User(UserPhase),
}

impl Phase {
    /// Returns the stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Aggregator(phase) => phase.as_str(),
            Self::KeyGenerator(phase) => phase.as_str(),
            Self::User(phase) => phase.as_str(),
        }
    }

    /// The distinct names of all phases. All are exported, so that a phase that has ended shows as 0.
    fn names() -> impl Iterator<Item = &'static str> {
        let aggregator = AggregatorPhase::ALL.iter().map(|phase| phase.as_str());
        let key_generator = KeyGeneratorPhase::ALL.iter().map(|phase| phase.as_str());
        let user = UserPhase::ALL.iter().map(|phase| phase.as_str());
        aggregator.chain(key_generator).chain(user).collect::<BTreeSet<_>>().into_iter()
    }
}

impl From<AggregatorPhase> for Phase {
    fn from(phase: AggregatorPhase) -> Self {
        Self::Aggregator(phase)
    }
}

impl From<KeyGeneratorPhase> for Phase {
    fn from(phase: KeyGeneratorPhase) -> Self {
        Self::KeyGenerator(phase)
    }
}

impl From<UserPhase> for Phase {
    fn from(phase: UserPhase) -> Self {
        Self::User(phase)
    }
}

impl Metrics {
    /// Sets the phase of the current round. A follower of an aggregator has none.
    pub fn set_phase(&self, phase: Option<Phase>) {
        if let Ok(mut now) = self.phase.lock() {
            *now = phase;
        }
    }

    /// Notes the accuracy of the latest model on held-out samples.
    pub fn measured(&self, accuracy: f64) {
        if let Ok(mut latest) = self.accuracy.lock() {
            *latest = Some(accuracy);
        }
    }

    /// Counts a request that was refused with this error code.
    pub fn refused(&self, code: impl Into<ProblemCode>) {
        if let Ok(mut refusals) = self.refusals.lock() {
            let entry = refusals.entry(code.into().as_str()).or_insert((0, SystemTime::UNIX_EPOCH));
            *entry = (entry.0 + 1, SystemTime::now());
        }
    }

    /// Returns how many requests were refused with this error code.
    pub fn refusals(&self, code: impl Into<ProblemCode>) -> u64 {
        let code = code.into().as_str();
        self.refusals.lock().ok().and_then(|refusals| refusals.get(code).map(|entry| entry.0)).unwrap_or(0)
    }

    /// Returns error codes with their counts and the time of the last refusal.
    pub fn incidents(&self) -> Vec<(&'static str, u64, SystemTime)> {
        let refusals = self.refusals.lock().map(|map| map.clone()).unwrap_or_default();
        refusals.into_iter().map(|(code, (count, last))| (code, count, last)).collect()
    }

    /// Counts a sum that a key generator tried to open, with the outcome.
    pub fn opened(&self, outcome: Outcome) {
        let all = Outcome::ALL.iter().zip(&self.openings);
        for (_, count) in all.filter(|(one, _)| **one == outcome) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns how many sums were opened with this outcome.
    pub fn openings(&self, outcome: Outcome) -> u64 {
        let found = Outcome::ALL.iter().zip(&self.openings).find(|(one, _)| **one == outcome);
        found.map_or(0, |(_, count)| u64::try_from(count.load(Ordering::Relaxed)).unwrap_or(0))
    }

    /// Counts a round that ended this way. A user that does not know the ending has missed the round.
    pub fn ended(&self, ending: Option<Ending>) {
        if let Ok(mut rounds) = self.rounds.lock() {
            *rounds.endings.entry(ending.map_or("missed", Ending::as_str)).or_default() += 1;
            let now = Instant::now();
            rounds.last = Some((SystemTime::now(), (now - rounds.since).as_secs_f64()));
            rounds.since = now;
        }
    }

    /// Returns the metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for (name, kind, help, value) in [
            ("dphe_connections", "gauge", "Open connections.", &self.connections),
            ("dphe_refused_handshakes_total", "counter", "TLS handshakes refused.", &self.refused_handshakes),
            ("dphe_round", "gauge", "The current round.", &self.round),
            ("dphe_uploads_total", "counter", "Uploads stored.", &self.uploads),
            ("dphe_upload_bytes_total", "counter", "Bytes of uploads stored.", &self.upload_bytes),
            ("dphe_log_bytes_total", "counter", "Bytes written to the log.", &self.log_bytes),
            (
                "dphe_step_milliseconds_total",
                "counter",
                "Time in steps of the protocol.",
                &self.step_milliseconds,
            ),
            ("dphe_leads", "gauge", "1 if this aggregator is the leader, or the only one.", &self.leads),
            ("dphe_ready", "gauge", "1 if the party accepts requests.", &self.ready),
            ("dphe_suspects", "gauge", "Users suspected of spoiling rounds.", &self.suspects),
        ] {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {}", value.get());
        }
        let mut table = |name: &str, kind: &str, label: &str, help: &str, rows: Vec<(String, u64)>| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (value, count) in rows {
                let _ = writeln!(out, "{name}{{{label}=\"{value}\"}} {count}");
            }
        };
        let refusals =
            self.incidents().into_iter().map(|(code, count, _)| (code.to_owned(), count)).collect();
        table("dphe_refusals_total", "counter", "code", "Requests refused.", refusals);
        let openings =
            Outcome::ALL.iter().map(|&outcome| (outcome.as_str().to_owned(), self.openings(outcome)));
        table("dphe_openings_total", "counter", "outcome", "Sums opened.", openings.collect());
        let (endings, last) =
            self.rounds.lock().map(|rounds| (rounds.endings.clone(), rounds.last)).unwrap_or_default();
        let endings = endings.into_iter().map(|(ending, count)| (ending.to_owned(), count)).collect();
        table("dphe_rounds_total", "counter", "ending", "Rounds that ended.", endings);
        let phase = self.phase.lock().ok().and_then(|phase| *phase).map(Phase::as_str);
        let phases = Phase::names().map(|name| (name.to_owned(), u64::from(Some(name) == phase))).collect();
        table("dphe_phase", "gauge", "phase", "1 for the phase of the current round.", phases);
        let version = vec![(env!("CARGO_PKG_VERSION").to_owned(), 1)];
        table("dphe_build_info", "gauge", "version", "The version of the program.", version);
        if let Some((end, seconds)) = last {
            let name = "dphe_last_round_end_timestamp_seconds";
            plain(&mut out, name, "gauge", "When the last round ended.", since_epoch(end));
            let help = "Seconds from the end of the previous round, or from the start, to the end of the last round.";
            plain(&mut out, "dphe_last_round_seconds", "gauge", help, seconds);
        }
        if let Some(accuracy) = self.accuracy.lock().ok().and_then(|accuracy| *accuracy) {
            let help = "The accuracy of the latest model on held-out samples, from 0 to 1.";
            plain(&mut out, "dphe_accuracy", "gauge", help, accuracy);
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

/// Returns the process metrics that Prometheus clients usually export. Linux only.
fn own_process() -> Vec<(&'static str, &'static str, &'static str, f64)> {
    let mut found = Vec::new();
    let resident = std::fs::read_to_string("/proc/self/status").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    });
    if let Some(kilobytes) = resident {
        found.push(("process_resident_memory_bytes", "gauge", "Resident memory.", kilobytes * 1_024.0));
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        found.push(("process_open_fds", "gauge", "Open files and connections.", files.count() as f64));
    }
    found
}

#[cfg(test)]
mod tests {
    use dphe::ErrorCode;

    use super::*;

    #[test]
    fn metrics_are_in_the_prometheus_text_format() {
        let metrics = Metrics::default();
        metrics.round.set(7);
        metrics.refused(ErrorCode::Late);
        metrics.refused(ErrorCode::Late);
        metrics.ended(Some(Ending::Published));
        metrics.opened(Outcome::Failed);
        metrics.suspects.set(2);
        assert!(!metrics.render().contains("dphe_accuracy"), "nothing was measured yet");
        metrics.measured(0.5);
        metrics.set_phase(Some(AggregatorPhase::Collecting.into()));
        let text = metrics.render();
        assert!(text.contains("\ndphe_round 7\n"), "{text}");
        assert!(text.contains("dphe_refusals_total{code=\"late\"} 2\n"), "{text}");
        assert!(text.contains("dphe_rounds_total{ending=\"published\"} 1\n"), "{text}");
        assert!(text.contains("dphe_openings_total{outcome=\"failed\"} 1\n"), "{text}");
        // a counter that exists from the beginning, so that increase() notices the first failure
        assert!(text.contains("dphe_openings_total{outcome=\"released\"} 0\n"), "{text}");
        assert!(text.contains("\ndphe_suspects 2\n"), "{text}");
        assert!(text.contains("dphe_phase{phase=\"collecting\"} 1\n"), "{text}");
        assert!(text.contains("dphe_phase{phase=\"idle\"} 0\n"), "{text}");
        assert!(text.contains("\ndphe_accuracy 0.5\n"), "{text}");
        assert!(text.contains("\ndphe_last_round_seconds 0"), "{text}");
        // every line is a comment, or a name and a number
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
        }
        // every metric is declared once
        let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let mut once = names.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), names.len());
    }
}
