//! The measurements of a grid, and tables over them whose columns are data.

use super::grid::{GridCell, GridSpec};
use crate::{Cell, Claim, Column, Measured, Table, ValueUnit};

/// Everything that has been measured of an experiment.
pub(super) struct Results<'a> {
    pub(super) spec: &'a GridSpec,
    pub(super) measured: &'a Measured,
}

/// A column of a table with one row per cell: key, title, unit, and what it shows.
pub(super) type ColumnSpec<'a> = (&'a str, &'a str, ValueUnit, Show<'a>);

/// What a column shows of a cell. Names are those of measurements.
pub(super) enum Show<'a> {
    Source,
    Label,
    Mean(&'a str),
    Deviation(&'a str),
    SampleDeviation(&'a str),
    /// The number of runs that have this measurement.
    Runs(&'a str),
    /// One of the numbers in the paper.
    Printed(usize),
    Privacy,
    Value(&'a dyn Fn(&GridCell) -> Cell),
}

impl Results<'_> {
    pub(super) fn of(&self, what: &str, name: &str) -> Repeated {
        Repeated::of(self.measured, what, name)
    }

    pub(super) fn mean(&self, what: &str, name: &str) -> Option<f64> {
        self.of(what, name).mean()
    }

    /// Makes a table with one row for each cell that has the main measurement.
    pub(super) fn table(&self, title: impl Into<String>, columns: &[ColumnSpec<'_>]) -> Table {
        let measured = |cell: &&GridCell| !self.of(&cell.what, self.spec.main).0.is_empty();
        let row = |cell| columns.iter().map(|(.., show)| self.show(cell, show)).collect();
        Table {
            title: title.into(),
            columns: columns.iter().map(|(key, title, unit, _)| Column::new(key, title, *unit)).collect(),
            rows: self.spec.cells.iter().filter(measured).map(row).collect(),
        }
    }

    fn show(&self, cell: &GridCell, show: &Show<'_>) -> Cell {
        let of = |name: &str| self.of(&cell.what, name);
        match show {
            Show::Source => self.spec.sources[cell.source].name().into(),
            Show::Label => cell.label.as_str().into(),
            Show::Mean(name) => of(name).mean().into(),
            Show::Deviation(name) => of(name).deviation().into(),
            Show::SampleDeviation(name) => of(name).sample_deviation().into(),
            Show::Runs(name) => (of(name).0.len() as f64).into(),
            Show::Printed(index) => cell.printed.get(*index).copied().into(),
            Show::Privacy => cell.privacy.into(),
            Show::Value(value) => value(cell),
        }
    }

    /// Says whether encrypted rounds gave the same weights as rounds in the clear, wherever both were run.
    pub(super) fn equality(&self) -> Option<Claim> {
        let checked: Vec<f64> = self.measured.values().filter_map(|m| m.get("equal").copied()).collect();
        let equal = checked.iter().filter(|&&equal| equal == 1.0).count();
        let text = "Encrypted rounds give the same weights as rounds in the clear, bit for bit";
        let seen = format!("{equal} of {} encrypted runs", checked.len());
        (!checked.is_empty()).then(|| Claim::new(text, equal == checked.len(), seen))
    }
}

/// One measurement of all repetitions of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Repeated(pub(super) Vec<f64>);

impl Repeated {
    pub(super) fn of(measured: &Measured, what: &str, name: &str) -> Self {
        let found = measured.iter().filter(|(run, _)| run.what == what);
        Self(found.filter_map(|(_, measurement)| measurement.get(name).copied()).collect())
    }

    pub(super) fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.iter().sum::<f64>() / self.0.len() as f64)
    }

    /// The population standard deviation, which is numpy's default and therefore probably the paper's.
    pub(super) fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        let squares: f64 = self.0.iter().map(|v| (v - mean) * (v - mean)).sum();
        Some((squares / self.0.len() as f64).sqrt())
    }

    /// The sample standard deviation, an estimate for all possible splits.
    pub(super) fn sample_deviation(&self) -> Option<f64> {
        let count = self.0.len() as f64;
        (count > 1.0).then(|| self.deviation().map(|d| d * (count / (count - 1.0)).sqrt())).flatten()
    }
}
