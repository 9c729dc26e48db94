//! Reads files that NumPy wrote, and lets NumPy read our files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use dphe_features::{FeatureSource, FeatureTable, ReadOptions, TableLabels, read_table, write_npz};

const WRITE: &str = r#"
import sys, numpy as np
directory = sys.argv[1]
x = np.arange(12, dtype=np.float64).reshape(4, 3) / 4 - 1
y = np.array([1, 0, 2, 1])
names = np.array(["Ara", "Bär", "鳥"])
np.savez(f"{directory}/plain.npz", features=x.astype(np.float32), labels=y, classes=names)
np.savez_compressed(f"{directory}/compressed.npz", X=np.asfortranarray(x), y=names[y])
np.savez(f"{directory}/big_endian.npz", features=x.astype(">f8"), labels=y.astype(">i2"), classes=names.astype(">U3"))
np.savez(f"{directory}/half.npz", features=x.astype(np.float16), labels=y.astype(np.uint8), classes=names)
np.savez(f"{directory}/bytes.npz", features=x, labels=y.astype(float), classes=np.char.encode(names, "utf-8"))
np.savez(f"{directory}/objects.npz", features=x, labels=y, classes=names.astype(object))
np.savez(f"{directory}/record.npz", features=np.zeros(3, dtype=[("a", "f4"), ("b", "f4")]))
"#;

const READ: &str = r#"
import sys, numpy as np
with np.load(sys.argv[1]) as data:
    assert data["features"].dtype == np.float32 and data["features"].shape == (2, 3), data["features"]
    assert data["features"][1].tolist() == [3.5, -1.0, 0.0]
    assert data["labels"].tolist() == [2, 0] and data["labels"].dtype == np.int64
    assert data["classes"].tolist() == ["Ara", "Bär", "鳥"]
    assert data["files"].tolist() == ["a.jpg", "b.jpg"]
    assert str(data["model_digest"]) == "ab" * 32 and str(data["preprocessing"]) == "{}"
"#;

/// Runs a script. Prints a line and returns false if Python is missing.
fn python(script: &str, argument: &Path) -> bool {
    let Ok(python) = std::env::var("DPHE_TEST_PYTHON") else {
        println!("SKIPPED: DPHE_TEST_PYTHON names no Python that has NumPy; run scripts/setup python");
        return false;
    };
    let status = Command::new(python).args(["-c", script]).arg(argument).status();
    assert!(status.expect("the Python of DPHE_TEST_PYTHON starts").success());
    true
}

#[test]
fn numpy_arrays_are_read() {
    let directory = tempfile::tempdir().unwrap();
    if !python(WRITE, directory.path()) {
        return;
    }
    let read = |name: &str| read_table(&directory.path().join(name), &ReadOptions::default());
    let expected: Vec<f32> = (0..12).map(|i| i as f32 / 4.0 - 1.0).collect();
    for name in ["plain.npz", "compressed.npz", "big_endian.npz", "half.npz", "bytes.npz"] {
        let table = read(name).unwrap();
        assert_eq!((table.width(), table.values()), (3, &expected[..]), "{name}");
        assert_eq!(table.labels(), Some(&TableLabels::Classes(vec![1, 0, 2, 1])), "{name}");
        assert_eq!(table.classes(), ["Ara", "Bär", "鳥"], "{name}");
    }
    assert!(read("objects.npz").unwrap_err().to_string().contains("Python objects"));
    assert!(read("record.npz").unwrap_err().to_string().contains("named fields"));
}

#[test]
fn numpy_reads_written_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table.npz");
    let table = FeatureTable::new(3, vec![1.0, 2.0, 3.0, 3.5, -1.0, 0.0])
        .unwrap()
        .with_labels(TableLabels::Classes(vec![2, 0]), vec!["Ara".into(), "Bär".into(), "鳥".into()])
        .unwrap()
        .with_files(vec!["a.jpg".into(), "b.jpg".into()])
        .unwrap()
        .with_source(FeatureSource { model_digest: "ab".repeat(32), preprocessing: "{}".into() });
    write_npz(&path, &table).unwrap();
    python(READ, &path);
}
