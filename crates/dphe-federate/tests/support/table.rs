//! A table of methods with their accuracy and cost.

use dphe_federate::{RoundReport, Seconds};

/// One run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    accuracy: f64,
    sparsity: f64,
    ciphertexts: usize,
    bytes: usize,
    clipped: usize,
    seconds: Seconds,
}

impl Row {
    /// A run without updates.
    pub(crate) fn of_accuracy(accuracy: f64) -> Self {
        Self { accuracy: 100.0 * accuracy, ..Self::default() }
    }

    /// A run of these rounds: the last accuracy, the largest update, the average time.
    pub(crate) fn of(reports: &[RoundReport]) -> Self {
        let rounds = reports.len() as f64;
        let mean = |f: fn(&RoundReport) -> f64| reports.iter().map(f).sum::<f64>() / rounds;
        let seconds =
            |f: fn(Seconds) -> f64| reports.iter().filter_map(|r| r.seconds).map(f).sum::<f64>() / rounds;
        Self {
            accuracy: 100.0 * reports.last().and_then(|r| r.accuracy).unwrap_or(f64::NAN),
            sparsity: 100.0 * mean(|r| r.update_sparsity),
            ciphertexts: reports.iter().map(|r| r.cost.ciphertexts).max().unwrap_or(0),
            bytes: reports.iter().map(|r| r.cost.bytes).max().unwrap_or(0),
            clipped: reports.iter().filter_map(|r| r.clipped).sum(),
            seconds: Seconds {
                train: seconds(|s| s.train),
                seal: seconds(|s| s.seal),
                aggregate: seconds(|s| s.aggregate),
                open: seconds(|s| s.open),
            },
        }
    }
}

/// The runs of every method, one per split.
#[derive(Default)]
pub(crate) struct Table(Vec<(String, Vec<Row>)>);

impl Table {
    pub(crate) fn put(&mut self, name: String, row: Row) {
        match self.0.iter_mut().find(|(n, _)| *n == name) {
            Some((_, rows)) => rows.push(row),
            None => self.0.push((name, vec![row])),
        }
    }

    fn rows(&self, name: &str) -> &[Row] {
        self.0.iter().find(|(n, _)| n == name).map_or(&[], |(_, rows)| rows)
    }

    /// The average accuracy in percent, or NaN for a method that was not run.
    pub(crate) fn accuracy(&self, name: &str) -> f64 {
        mean(self.rows(name), |row| row.accuracy)
    }

    /// Ciphertexts of the longest update.
    pub(crate) fn ciphertexts(&self, name: &str) -> usize {
        self.rows(name).iter().map(|row| row.ciphertexts).max().unwrap_or(0)
    }

    pub(crate) fn print(&self, splits: u64) {
        println!(
            "after {splits} splits; ciphertexts and bytes per update; processor seconds per round, all users together; clipped values"
        );
        println!(
            "| payload | accuracy % | zeros % | ciphertexts | bytes | train | seal | add | open | cut |"
        );
        println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
        for (name, rows) in &self.0 {
            let accuracy = mean(rows, |row| row.accuracy);
            let variance = mean(rows, |row| (row.accuracy - accuracy).powi(2));
            print!("| {name} | {accuracy:.2} +- {:.2} |", variance.sqrt());
            let bytes = rows.iter().map(|row| row.bytes).max().unwrap_or(0);
            if bytes == 0 {
                println!(" - | - | - | - | - | - | - | - |");
                continue;
            }
            println!(
                " {:.1} | {} | {bytes} | {:.2} | {:.2} | {:.3} | {:.2} | {} |",
                mean(rows, |row| row.sparsity),
                self.ciphertexts(name),
                mean(rows, |row| row.seconds.train),
                mean(rows, |row| row.seconds.seal),
                mean(rows, |row| row.seconds.aggregate),
                mean(rows, |row| row.seconds.open),
                rows.iter().map(|row| row.clipped).sum::<usize>(),
            );
        }
    }
}

fn mean(rows: &[Row], f: impl Fn(&Row) -> f64) -> f64 {
    rows.iter().map(f).sum::<f64>() / rows.len() as f64
}
