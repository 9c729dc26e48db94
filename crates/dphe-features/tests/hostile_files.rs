//! Thousands of damaged feature files. Each is read or refused, without a panic and without excessive memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use dphe_features::{
    FeatureSource, FeatureTable, LabelColumn, ReadOptions, TableLabels, read_table, write_npz,
};

/// A small random generator that makes failures reproducible.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// Changes a few bytes, truncates the file, or repeats or removes a part.
fn mutate(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => {
                let end = (at + random.below(20)).min(bytes.len());
                bytes.drain(at..end);
            }
            2 => {
                let part = bytes[at..(at + random.below(20)).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
            3 if !bytes.is_empty() => bytes[at] = b"0123456789:,-.\n\xff\0"[random.below(17)],
            4 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            _ if !bytes.is_empty() => bytes[at] = random.below(256) as u8,
            _ => (),
        }
    }
    bytes
}

/// Writes a valid file of every format.
fn originals(directory: &Path) -> Vec<PathBuf> {
    let table = FeatureTable::new(3, (0..30).map(|i| i as f32 / 7.0).collect())
        .unwrap()
        .with_labels(TableLabels::Classes((0..10).map(|i| i % 2).collect()), vec!["cat".into(), "dog".into()])
        .unwrap()
        .with_files((0..10).map(|i| format!("{i}.jpg")).collect())
        .unwrap()
        .with_source(FeatureSource { model_digest: "00".repeat(32), preprocessing: "{}".into() });
    let npz = directory.join("a.npz");
    write_npz(&npz, &table).unwrap();

    let mut npy = b"\x93NUMPY\x01\x00".to_vec();
    let header = "{'descr': '<f4', 'fortran_order': True, 'shape': (5, 3), }\n";
    npy.extend((header.len() as u16).to_le_bytes());
    npy.extend(header.as_bytes());
    npy.extend((0..15).flat_map(|i| (i as f32).to_le_bytes()));

    let mut files = vec![npz];
    for (name, bytes) in [
        ("a.npy", npy),
        ("a.csv", b"path,f0,f1,label\nx.jpg,1,2.5,dog\ny.jpg,-3e1,,cat\nz.jpg,0,0,cat\n".to_vec()),
        ("a.svmlight", b"1 1:0.5 3:2 # x\n-1 2:1e-1\n0 1:3 2:4 3:5\n".to_vec()),
    ] {
        files.push(directory.join(name));
        fs::write(files.last().unwrap(), bytes).unwrap();
    }
    #[cfg(feature = "parquet")]
    files.extend(parquet_file(directory));
    files
}

#[cfg(feature = "parquet")]
fn parquet_file(directory: &Path) -> Option<PathBuf> {
    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType, FloatType};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    let schema = "message table { required float f0; optional float f1; required binary label (UTF8); }";
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let path = directory.join("a.parquet");
    let mut writer = SerializedFileWriter::new(
        fs::File::create(&path).unwrap(),
        parse_message_type(schema).unwrap().into(),
        properties.into(),
    )
    .unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<FloatType>().write_batch(&[1.0, 2.0, 3.0], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<FloatType>().write_batch(&[4.0, 5.0], Some(&[1, 0, 1]), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let labels = ["b", "a", "b"].map(ByteArray::from);
    column.typed::<ByteArrayType>().write_batch(&labels, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();

    let table = read_table(&path, &ReadOptions::default()).unwrap();
    assert_eq!((table.samples(), table.width(), table.values()[0], table.values()[5]), (3, 2, 1.0, 5.0));
    assert!(table.values()[3].is_nan());
    assert_eq!(table.labels(), Some(&TableLabels::Classes(vec![1, 0, 1])));
    Some(path)
}

#[test]
fn damaged_files_are_read_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random(1);
    // the limit is low, so that a damaged size cannot reserve gigabytes
    let options = [
        ReadOptions { max_values: 1 << 20, ..ReadOptions::default() },
        ReadOptions { max_values: 1 << 20, label_column: LabelColumn::First, ..ReadOptions::default() },
    ];
    for path in originals(directory.path()) {
        let good = fs::read(&path).unwrap();
        assert!(read_table(&path, &options[0]).is_ok());
        let (mut read, mut refused) = (0, 0);
        for _ in 0..1500 {
            fs::write(&path, mutate(&good, &mut random)).unwrap();
            match read_table(&path, &options[random.below(2)]) {
                Ok(table) => {
                    assert!(table.samples() * table.width() <= 1 << 20);
                    read += 1;
                }
                Err(error) => {
                    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
                    refused += 1;
                }
            }
        }
        println!("{}: {read} read, {refused} refused", path.extension().unwrap().display());
        assert!(refused > 100, "mutations should hurt");
    }
}
