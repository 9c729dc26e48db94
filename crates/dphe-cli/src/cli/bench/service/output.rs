//! The report of a load: as text, as JSON, and as plots.

use std::collections::BTreeMap;
use std::path::Path;

use dphe_service::chart::{PointPlot, Unit};
use serde::Serialize;

use super::Service;
use super::drive::Run;
use super::resources::ProcessUsage;
use super::setting::about_key;
use crate::args::TableFormat;
use crate::cli::CliError;
use crate::files;
use crate::load::AbusiveClientCounts;
use crate::terminal::print_rows;

#[derive(Serialize)]
pub(super) struct Report {
    key: &'static str,
    bits: u32,
    mode: &'static str,
    profile: &'static str,
    dimension: u32,
    ciphertexts: u32,
    /// The size of an upload's ciphertexts.
    upload_bytes: usize,
    rounds: u64,
    /// Uploads started per second, or 0 for no limit.
    rate: f64,
    in_flight: u32,
    duplicates: f64,
    slow: u32,
    idle: u32,
    waiting: u32,
    replicas: u32,
    store: &'static str,
    seed: u64,
    runs: Vec<RunReport>,
}

#[derive(Serialize)]
struct RunReport {
    users: u32,
    /// The size of the task's tables at the end, with a database.
    database_bytes: Option<u64>,
    /// Valid acknowledgements, and users in published sums, over all rounds.
    acknowledged: usize,
    counted: usize,
    ok: bool,
    problems: Vec<String>,
    kits_s: f64,
    seal_s: f64,
    /// From the first upload of a round to its last acknowledgement, over all rounds.
    send_s: f64,
    uploads_per_s: f64,
    /// From when an upload was due to its acknowledgement. Without a rate, it is due when it starts.
    latency_p50_s: f64,
    latency_p99_s: f64,
    latency_max_s: f64,
    retries: BTreeMap<String, u64>,
    duplicates: usize,
    duplicates_acknowledged: usize,
    duplicates_late: usize,
    /// The mean time from the last acknowledgement to the published model.
    close_s: f64,
    abusive_clients: Option<AbusiveClientCounts>,
    processes: Vec<ProcessUsage>,
}

/// Returns the smallest value that at least this fraction of the sorted values does not exceed.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
}

impl Report {
    pub(super) fn new(service: &Service) -> Self {
        Self {
            key: about_key(service.bits),
            bits: service.bits,
            mode: service.noise.name(),
            profile: "full",
            dimension: service.dimension,
            ciphertexts: 0,
            upload_bytes: 0,
            rounds: service.rounds,
            rate: service.rate,
            in_flight: service.in_flight,
            duplicates: service.duplicates,
            slow: service.slow,
            idle: service.idle,
            waiting: service.waiting,
            replicas: service.replicas,
            store: if service.database.is_some() { "database" } else { "sqlite" },
            seed: service.seed,
            runs: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, run: Run) {
        let Run { database_bytes, users, kits_s, seal_s, load, processes, ciphertexts, body_bytes } = run;
        (self.ciphertexts, self.upload_bytes) = (ciphertexts, body_bytes);
        let expected = users as usize * self.rounds as usize;
        self.runs.push(RunReport {
            users,
            database_bytes,
            acknowledged: load.acknowledged,
            counted: load.counted,
            ok: load.problems.is_empty() && (load.acknowledged, load.counted) == (expected, expected),
            problems: load.problems,
            kits_s,
            seal_s,
            send_s: load.send_s,
            uploads_per_s: load.acknowledged as f64 / load.send_s.max(f64::MIN_POSITIVE),
            latency_p50_s: quantile(&load.latencies, 0.5),
            latency_p99_s: quantile(&load.latencies, 0.99),
            latency_max_s: quantile(&load.latencies, 1.0),
            retries: load.retries,
            duplicates: load.duplicates,
            duplicates_acknowledged: load.duplicates_acknowledged,
            duplicates_late: load.duplicates_late,
            close_s: load.close_s.iter().sum::<f64>() / load.close_s.len().max(1) as f64,
            abusive_clients: load.abusive_clients,
            processes,
        });
    }

    pub(super) fn print(&self, format: TableFormat) -> Result<(), CliError> {
        if format == TableFormat::Json {
            println!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        println!(
            "{} weights in {} ciphertexts of {} bits ({}), profile {}, noise {}",
            self.dimension,
            self.ciphertexts,
            self.bits,
            Unit::Bytes.write(self.upload_bytes as f64),
            self.profile,
            self.mode
        );
        println!("key: {}", self.key);
        let offered = match self.rate {
            0.0 => "as many uploads as possible".to_owned(),
            rate => format!("{rate} uploads per second"),
        };
        println!(
            "offered: {offered}, {} at once, {:.0} % of them twice\nbesides: {} slow uploads, {} idle connections, {} polling users\nrounds: {}; aggregators: {}, {}\n",
            self.in_flight,
            100.0 * self.duplicates,
            self.slow,
            self.idle,
            self.waiting,
            self.rounds,
            self.replicas,
            self.store
        );
        self.print_runs();
        for run in &self.runs {
            println!();
            run.print();
        }
        println!("\nlatency is measured from when an upload was due, even if earlier ones were delayed");
        for (run, problem) in
            self.runs.iter().flat_map(|run| run.problems.iter().take(10).map(move |p| (run, p)))
        {
            println!("problem with {} users: {problem}", run.users);
        }
        Ok(())
    }

    fn print_runs(&self) {
        let head = [
            "users",
            "acknowledged",
            "counted",
            "uploads/s",
            "p50",
            "p99",
            "max",
            "retries",
            "close",
            "result",
        ];
        let rows: Vec<Vec<String>> = self
            .runs
            .iter()
            .map(|run| {
                vec![
                    run.users.to_string(),
                    run.acknowledged.to_string(),
                    run.counted.to_string(),
                    format!("{:.1}", run.uploads_per_s),
                    Unit::Seconds.write(run.latency_p50_s),
                    Unit::Seconds.write(run.latency_p99_s),
                    Unit::Seconds.write(run.latency_max_s),
                    run.retries.values().sum::<u64>().to_string(),
                    Unit::Seconds.write(run.close_s),
                    if run.ok { "ok".into() } else { "FAILED".into() },
                ]
            })
            .collect();
        print_rows(&head, &rows);
    }

    /// Writes the report as JSON, and plots if there are several numbers of users.
    pub(super) fn write(&self, directory: &Path) -> Result<(), CliError> {
        let output = |path: &Path, source| CliError::Output { path: path.into(), source };
        std::fs::create_dir_all(directory).map_err(|source| output(directory, source))?;
        let mut written = vec![("service.json", serde_json::to_string_pretty(self)? + "\n")];
        if self.runs.len() > 1 {
            written.extend(self.memory_plot().map(|svg| ("service-memory.svg", svg)));
            written.extend(self.time_plot().map(|svg| ("service-time.svg", svg)));
        }
        for (name, text) in written {
            let path = directory.join(name);
            files::replace(&path, text.as_bytes()).map_err(|source| output(&path, source))?;
        }
        Ok(())
    }

    /// Returns the points of a plot over the number of users.
    fn line(&self, name: &str, of: impl Fn(&RunReport) -> Option<f64>) -> (String, Vec<(f64, f64)>) {
        let mut points: Vec<(f64, f64)> =
            self.runs.iter().filter_map(|run| Some((f64::from(run.users), of(run)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        (name.to_owned(), points)
    }

    /// Returns the names of the parties, which are the same in all runs.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.runs.iter().take(1).flat_map(|run| &run.processes).map(|process| process.name.as_str())
    }

    fn memory_plot(&self) -> Option<String> {
        let names = self.names().take(6);
        let series: Vec<_> =
            names.map(|name| self.line(name, |run| Some(run.process(name)?.peak_bytes? as f64))).collect();
        let plot = PointPlot {
            title: "Peak memory of the services by number of users",
            x: "users",
            logarithmic: true,
            from_zero: true,
            write: |bytes| Unit::Bytes.write(bytes),
            series: &series,
        };
        plot.standalone_svg()
    }

    fn time_plot(&self) -> Option<String> {
        let mut series =
            vec![self.line("uploads", |run| Some(run.send_s)), self.line("closing", |run| Some(run.close_s))];
        let names = self.names().take(4);
        series.extend(
            names.map(|name| self.line(&format!("{name} cpu"), |run| run.process(name)?.processor_s)),
        );
        let plot = PointPlot {
            title: "Duration of a run by number of users",
            x: "users",
            logarithmic: true,
            from_zero: true,
            write: |seconds| Unit::Seconds.write(seconds),
            series: &series,
        };
        plot.standalone_svg()
    }

    /// Fails unless every upload was acknowledged and counted.
    pub(super) fn verdict(&self) -> Result<(), CliError> {
        let Some(wrong) = self.runs.iter().find(|run| !run.ok) else { return Ok(()) };
        let what = wrong
            .problems
            .first()
            .cloned()
            .unwrap_or_else(|| format!("{} of {} users are in the sum", wrong.counted, wrong.users));
        let hint = "Use a lower `--rate` or fewer `--slow`. If that does not help, report a bug.".to_owned();
        Err(CliError::Data { what: format!("with {} users: {what}", wrong.users), hint })
    }
}

impl RunReport {
    fn process(&self, name: &str) -> Option<&ProcessUsage> {
        self.processes.iter().find(|process| process.name == name)
    }

    fn print(&self) {
        println!(
            "{} users: keys {:.1} s, sealing {:.1} s, uploads {:.1} s",
            self.users, self.kits_s, self.seal_s, self.send_s
        );
        if self.duplicates > 0 {
            println!(
                "sent twice: {}, of which {} were acknowledged and {} arrived after the round",
                self.duplicates, self.duplicates_acknowledged, self.duplicates_late
            );
        }
        if !self.retries.is_empty() {
            let retries: Vec<String> =
                self.retries.iter().map(|(code, count)| format!("{code} {count}")).collect();
            println!("retries: {}", retries.join(", "));
        }
        if let Some(counts) = self.abusive_clients.filter(|counts| *counts != AbusiveClientCounts::default())
        {
            println!(
                "at the end: {} slow, {} idle, {} polling; closed by a service: {} slow, {} idle",
                counts.slow, counts.idle, counts.waiting, counts.slow_ended, counts.idle_closed
            );
        }
        let bytes = |bytes: Option<u64>| bytes.map_or("-".into(), |bytes| Unit::Bytes.write(bytes as f64));
        if let Some(size) = self.database_bytes {
            println!("database size of the task at the end: {}", bytes(Some(size)));
        }
        let rows: Vec<Vec<String>> = self
            .processes
            .iter()
            .map(|process| {
                vec![
                    process.name.clone(),
                    bytes(process.peak_bytes),
                    bytes(process.rest_bytes),
                    bytes(process.mean_bytes),
                    bytes(process.end_bytes),
                    process.processor_s.map_or("-".into(), |seconds| Unit::Seconds.write(seconds)),
                    bytes(Some(process.disk_peak_bytes)),
                    bytes(Some(process.disk_bytes)),
                ]
            })
            .collect();
        let head = [
            "process",
            "peak memory",
            "at start",
            "mean",
            "at the end",
            "processor",
            "peak disk",
            "at the end",
        ];
        print_rows(&head, &rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_observed_values() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| quantile(&sorted, share)), [1.0, 50.0, 99.0, 100.0]);
        assert_eq!(quantile(&[7.0], 0.5), 7.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
