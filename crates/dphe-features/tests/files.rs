//! Reads feature files of every format as other programs write them, and refuses invalid ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use dphe_features::{
    Error, FeatureSource, FeatureTable, LabelColumn, NpzArray, NpzFloats, NpzReader, ReadOptions,
    TableLabels, read_table, write_npz, write_npz_arrays,
};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn read(path: &Path) -> Result<FeatureTable, Error> {
    read_table(path, &ReadOptions::default())
}

fn file(directory: &tempfile::TempDir, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

/// Returns the error for an invalid file. The error must name the file and have a hint.
fn refused(path: &Path, options: &ReadOptions) -> String {
    let error = read_table(path, options).unwrap_err();
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    assert!(
        error.hint().is_some_and(|hint| hint.starts_with(|first: char| first.is_ascii_uppercase())),
        "{error}"
    );
    error.to_string()
}

fn npy(kind: &str, shape: &str, body: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(body);
    bytes
}

#[test]
fn npz_is_read_back_whole_and_written_reproducibly() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table.npz");
    let table = FeatureTable::new(3, vec![0.0, f32::INFINITY, -1.5, 2.0, 3.0, 4.0])
        .unwrap()
        .with_labels(TableLabels::Classes(vec![1, 0]), names(&["Katze", "鳥", "never seen"]))
        .unwrap()
        .with_files(names(&["a/1.jpg", "b/ü.png"]))
        .unwrap()
        .with_source(FeatureSource { model_digest: "ab".repeat(32), preprocessing: "{\"crop\":224}".into() });
    write_npz(&path, &table).unwrap();
    assert_eq!(read(&path).unwrap(), table);
    let first = fs::read(&path).unwrap();
    write_npz(&path, &table).unwrap();
    assert_eq!(fs::read(&path).unwrap(), first);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");

    let attributes = FeatureTable::new(1, vec![1.0, 2.0])
        .unwrap()
        .with_labels(TableLabels::Attributes(vec![true, false, true, true]), names(&["young", "smiling"]))
        .unwrap();
    write_npz(&path, &attributes).unwrap();
    assert_eq!(read(&path).unwrap(), attributes);
}

#[test]
fn failed_write_leaves_no_partial_file() {
    let directory = tempfile::tempdir().unwrap();
    let table = FeatureTable::new(1, vec![1.0]).unwrap();
    for path in [directory.path().join("missing/out.npz"), directory.path().to_path_buf()] {
        let error = write_npz(&path, &table).unwrap_err();
        assert!(matches!(error, Error::Write { .. }) && error.hint().is_some(), "{error}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn directory_of_arrays_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let features = file(&directory, "features.npy", npy("|u1", "(2, 2)", &[1, 2, 3, 4]));
    assert!(read(directory.path()).unwrap().labels().is_none());
    file(&directory, "labels.npy", npy("<i8", "(2,)", &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(read(directory.path()).unwrap().classes(), ["0", "1"]);
    file(&directory, "classes.json", r#"["cat", "dog"]"#);
    file(&directory, "files.txt", "x.jpg\ny.jpg\n");
    let table = read(directory.path()).unwrap();
    assert_eq!(table, read(&features).unwrap());
    assert_eq!(table.values(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(table.labels(), Some(&TableLabels::Classes(vec![1, 0])));
    assert_eq!(
        (table.classes(), table.files()),
        (&names(&["cat", "dog"])[..], &names(&["x.jpg", "y.jpg"])[..])
    );

    // a file with another name gets its labels by option
    let other = file(&directory, "x.npy", npy("|u1", "(2, 2)", &[1, 2, 3, 4]));
    assert!(read(&other).unwrap().labels().is_none());
    let labels = file(&directory, "y.npy", npy("|b1", "(2, 3)", &[1, 0, 0, 0, 1, 1]));
    let options = ReadOptions { labels: Some(labels), ..ReadOptions::default() };
    let attributes = TableLabels::Attributes(vec![true, false, false, false, true, true]);
    assert_eq!(read_table(&other, &options).unwrap().labels(), Some(&attributes));

    // the error names the file that is at fault
    let bad = file(&directory, "labels.npy", npy("|i1", "(3,)", &[1, 0, 0]));
    let error = read(directory.path()).unwrap_err();
    assert!(error.to_string().contains(&bad.display().to_string()), "{error}");
    file(&directory, "labels.npy", npy("|i1", "(2,)", &[1, 2]));
    assert!(read(directory.path()).unwrap_err().to_string().contains("label 2 names no class"));
}

#[test]
fn csv_is_read_with_and_without_header() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "a.csv", "path,f0,f1,label\nx.jpg,1,2.5,dog\ny.jpg,-3e1,,cat\n");
    let table = read(&path).unwrap();
    assert_eq!((table.samples(), table.width()), (2, 2));
    assert_eq!(table.values()[..3], [1.0, 2.5, -30.0]);
    assert!(table.values()[3].is_nan(), "an empty cell is a missing value");
    assert_eq!(table.labels(), Some(&TableLabels::Classes(vec![1, 0])));
    assert_eq!(
        (table.classes(), table.files()),
        (&names(&["cat", "dog"])[..], &names(&["x.jpg", "y.jpg"])[..])
    );

    let path = file(&directory, "b.csv", "1,2,b\n3,4,a\n");
    assert_eq!(read(&path).unwrap().labels(), Some(&TableLabels::Classes(vec![1, 0])));
    let path = file(&directory, "c.tsv", "1\t2\t1\n3\t4\t0\n");
    assert_eq!(read(&path).unwrap().width(), 3, "numbers alone are features");
    let with = |label_column| ReadOptions { label_column, ..ReadOptions::default() };
    let table = read_table(&path, &with(LabelColumn::Last)).unwrap();
    assert_eq!(table.labels(), Some(&TableLabels::Classes(vec![1, 0])));
    let table = read_table(&path, &with(LabelColumn::First)).unwrap();
    assert_eq!(table.labels(), Some(&TableLabels::Classes(vec![1, 3])));

    let path = file(&directory, "d.csv", "f0,a_young,a_male,f1\n1,0,1,2\n3,1,-1,4\n");
    let options = ReadOptions { attribute_prefix: Some("a_".into()), ..ReadOptions::default() };
    let table = read_table(&path, &options).unwrap();
    assert_eq!(table.values(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(table.classes(), ["young", "male"]);
    assert_eq!(table.labels(), Some(&TableLabels::Attributes(vec![false, true, true, false])));

    let path = file(&directory, "semicolons.csv", "f0;f1;label\n1;2.5;dog\n3;4;cat\n");
    assert_eq!(read(&path).unwrap().values(), [1.0, 2.5, 3.0, 4.0]);
    assert!(refused(&file(&directory, "e.csv", "1,2\n3\n"), &ReadOptions::default()).contains("line: 2"));
    assert!(
        refused(&file(&directory, "f.csv", "f,g\n1,2\n3,x\n"), &ReadOptions::default()).contains("\"x\"")
    );
    assert!(refused(&file(&directory, "g.csv", "f,g\n"), &ReadOptions::default()).contains("no samples"));
    assert!(refused(&file(&directory, "h.csv", ""), &ReadOptions::default()).contains("empty"));
    assert!(refused(&file(&directory, "i.csv", b"f,g\n1,\xff\n"), &ReadOptions::default()).contains("UTF-8"));
    let missing = with(LabelColumn::Named("colour".into()));
    assert!(refused(&file(&directory, "j.csv", "f,g\n1,2\n"), &missing).contains("colour"));
    let few = ReadOptions { max_values: 3, ..ReadOptions::default() };
    assert!(refused(&file(&directory, "k.csv", "1,2\n1,2\n1,2\n"), &few).contains("at most"));
}

#[test]
fn svmlight_is_read_with_features_from_zero_or_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "a.svmlight", "# made by hand\n+1 1:0.5 3:2 # x\n\n-1 2:1e-1\n");
    let table = read(&path).unwrap();
    assert_eq!((table.width(), table.values()), (3, &[0.5, 0.0, 2.0, 0.0, 0.1, 0.0][..]));
    assert_eq!(table.labels(), Some(&TableLabels::Classes(vec![1, 0])));
    let wide = ReadOptions { width: Some(5), first_feature: Some(0), ..ReadOptions::default() };
    assert_eq!(read_table(&path, &wide).unwrap().values()[..5], [0.0, 0.5, 0.0, 2.0, 0.0]);
    let path = file(&directory, "b.svm", "2 0:1\n0 1:1\n");
    assert_eq!(read(&path).unwrap().width(), 2);
    let path = file(&directory, "c.svm", "0,2 1:1\n1 2:1\n3:1\n");
    let attributes = vec![true, false, true, false, true, false, false, false, false];
    assert_eq!(read(&path).unwrap().labels(), Some(&TableLabels::Attributes(attributes)));

    let default = ReadOptions::default();
    assert!(refused(&file(&directory, "d.svm", "1 qid:3 1:1\n"), &default).contains("qid"));
    assert!(refused(&file(&directory, "e.svm", "1 2:1 1:1\n"), &default).contains("line 1"));
    assert!(refused(&file(&directory, "f.svm", "1 2:x\n"), &default).contains("2:x"));
    assert!(refused(&file(&directory, "g.svm", "cat 2:1\n"), &default).contains("cat"));
    assert!(refused(&file(&directory, "h.svm", "1 4294967295:1\n"), &default).contains("at most"));
    assert!(refused(&file(&directory, "i.svm", "1\n"), &default).contains("no features"));
    let narrow = ReadOptions { width: Some(1), ..ReadOptions::default() };
    assert!(refused(&file(&directory, "j.svm", "1 4:1\n"), &narrow).contains("more than the 1"));
    assert!(
        refused(&file(&directory, "k.svm", "1 0:1\n"), &ReadOptions { first_feature: Some(1), ..default })
            .contains("feature 0")
    );
}

#[test]
fn arrays_are_written_and_read_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.npz");
    let classes = names(&["cat", "dog"]);
    let arrays =
        [("weights", NpzArray::Floats(&[1, 2], &[0.5, -2.0])), ("classes", NpzArray::Texts(&classes))];
    write_npz_arrays(&path, &arrays).unwrap();
    let mut reader = NpzReader::open(&path).unwrap();
    assert_eq!(
        reader.floats("weights").unwrap(),
        Some(NpzFloats { shape: vec![1, 2], values: vec![0.5, -2.0] })
    );
    assert_eq!(reader.texts("classes").unwrap(), Some(classes));
    assert_eq!(reader.floats("intercepts").unwrap(), None);
    assert!(reader.floats("classes").unwrap_err().to_string().contains("a.npz"));
    assert!(NpzReader::open(&file(&directory, "b.npz", "not a zip")).is_err());
}

#[test]
fn into_parts_keeps_the_buffer() {
    let values = vec![1.0, 2.0];
    let buffer = values.as_ptr();
    let parts = FeatureTable::new(1, values).unwrap().into_parts();
    assert_eq!((parts.width, parts.values.as_ptr()), (1, buffer));
}

#[test]
fn other_invalid_files_are_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let default = ReadOptions::default();
    assert!(refused(&file(&directory, "a.txt", "1"), &default).contains("ending"));
    assert!(refused(&file(&directory, "a.npz", "not a zip"), &default).contains("zip"));
    assert!(refused(&file(&directory, "a.npy", "not an array"), &default).contains("not a NumPy array"));
    assert!(
        refused(&file(&directory, "b.npy", npy("|O", "(2, 2)", &[0; 32])), &default)
            .contains("Python objects")
    );
    assert!(refused(&file(&directory, "c.npy", npy("<f4", "(4,)", &[0; 16])), &default).contains("two axes"));
    assert!(refused(&directory.path().join("missing.npz"), &default).contains("could not be read"));
    assert!(refused(&file(&directory, "d.npy", npy("<f4", "(0, 4)", &[])), &default).contains("no features"));
}
