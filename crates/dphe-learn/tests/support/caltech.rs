//! Caltech101 features for tests that need real data, with the paper's split.
#![allow(dead_code, reason = "every test uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use dphe_learn::dataset::{shares, split_per_class};
use dphe_learn::{Dataset, Features, Labels, Seed, Standardizer};

/// Returns the directory with features.npy and labels.npy: `$DPHE_DATA/caltech101`, or `shared/data/caltech101` in a
/// parent directory. Prints a line if there is none.
pub(crate) fn directory() -> Option<PathBuf> {
    let found = match std::env::var_os("DPHE_DATA") {
        Some(data) => vec![PathBuf::from(data).join("caltech101")],
        None => Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .map(|up| up.join("shared/data/caltech101"))
            .collect(),
    };
    let found = found.into_iter().find(|directory| directory.join("features.npy").is_file());
    if found.is_none() {
        println!(
            "SKIPPED: no Caltech101 features; set DPHE_DATA to the directory that holds caltech101/features.npy"
        );
    }
    found
}

/// Returns all raw samples.
pub(crate) fn load(directory: &Path) -> Dataset<f32> {
    let (width, values) = npy(&directory.join("features.npy"));
    let (_, labels) = npy(&directory.join("labels.npy"));
    let labels: Vec<u32> = labels.into_iter().map(|l| l as u32).collect();
    let classes = labels.iter().max().unwrap() + 1;
    Dataset::new(Features::new(width, values).unwrap(), Labels::classes(classes as usize, labels).unwrap())
        .unwrap()
}

/// One split as in the paper. Of each class, 30 samples are for training (3 of them initial, the rest dealt to users)
/// and up to 50 for testing. All are standardised by the initial samples.
pub(crate) struct Task {
    pub(crate) initial: Dataset<f32>,
    pub(crate) users: Vec<Dataset<f32>>,
    pub(crate) train: Dataset<f32>,
    pub(crate) test: Dataset<f32>,
}

impl Task {
    pub(crate) fn new(all: &Dataset<f32>, users: usize, split: u64) -> Self {
        let seed = Seed::new(split);
        let parts = split_per_class(all.labels(), 30, 50, &seed).unwrap();
        let (initial, private): (Vec<_>, Vec<_>) =
            parts.train.iter().enumerate().partition(|(i, _)| i % 30 < 3);
        let strip = |list: Vec<(usize, &usize)>| list.into_iter().map(|(_, &s)| s).collect::<Vec<usize>>();
        let (initial, private) = (strip(initial), strip(private));
        let standardizer = Standardizer::fit(&all.features().select(&initial).unwrap());
        let pick = |samples: &[usize]| {
            let part = all.select(samples).unwrap();
            part.standardized(&standardizer).unwrap()
        };
        Self {
            initial: pick(&initial),
            users: shares(&private, users, &seed).unwrap().iter().map(|share| pick(share)).collect(),
            train: pick(&parts.train),
            test: pick(&parts.test),
        }
    }
}

/// Reads a matrix (width, values) from a version 1 .npy file with little-endian f2, f4, f8 or i8 elements.
fn npy(path: &Path) -> (usize, Vec<f32>) {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00", "{path:?} is not .npy, version 1");
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..10 + length]).unwrap();
    assert!(header.contains("'fortran_order': False"));
    let shape = header.split("'shape': (").nth(1).unwrap().split(')').next().unwrap();
    let width = shape.split(',').nth(1).and_then(|w| w.trim().parse().ok()).unwrap_or(1);
    let body = &bytes[10 + length..];
    let kind = header.split("'descr': '").nth(1).unwrap().split('\'').next().unwrap();
    let values = match kind {
        "<f2" => body.chunks_exact(2).map(|b| half(u16::from_le_bytes([b[0], b[1]]))).collect(),
        "<f4" => body.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect(),
        "<f8" => body.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap()) as f32).collect(),
        "<i8" => body.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f32).collect(),
        other => panic!("elements of type {other}"),
    };
    (width, values)
}

/// Converts IEEE 754 half precision.
fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, (bits >> 10) & 31, f32::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 => f32::NAN,
        e => (1.0 + fraction / 1024.0) * 2f32.powi(i32::from(e) - 15),
    };
    if sign == 1 { -magnitude } else { magnitude }
}
