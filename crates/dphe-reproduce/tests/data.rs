//! Reads small files in the layouts of the real data sets, intact and damaged.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/caltech101.rs"]
mod caltech101;
#[path = "data/records.rs"]
mod records;

use std::fs;
use std::path::Path;

use dphe_features::tfrecord::write_record;
use dphe_features::{FeatureTable, TableLabels, write_npz};
use dphe_learn::Seed;
use dphe_reproduce::Error;
use dphe_reproduce::data::{YouTube8m, caltech, celeba, detection, lifelog, medical, parse_video, youtube8m};
use records::{Mutations, example};
use tempfile::TempDir;

/// Checks that the result is an error that names the file, contains the text, and refers to an existing section.
fn expect<T>(result: Result<T, Error>, file: &str, says: &str, anchor: &str) {
    let Err(error) = result else { panic!("{file}: no error, expected {says}") };
    let text = error.to_string();
    for part in [file, says, &format!("docs/reproduction.md#{anchor}")] {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
    // the section exists
    let docs =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reproduction.md")).unwrap();
    let slug = |heading: &str| heading.trim().to_lowercase().replace(' ', "-");
    let found =
        docs.lines().filter_map(|line| line.strip_prefix("### ")).any(|heading| slug(heading) == anchor);
    assert!(found, "{anchor}");
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Makes a table of three features per sample, all equal to the number of the sample.
fn table(samples: usize) -> FeatureTable {
    FeatureTable::new(3, (0..3 * samples).map(|i| (i / 3) as f32).collect()).unwrap()
}

#[test]
fn medical_images_are_split_by_their_directories_or_at_random() {
    let directory = TempDir::new().unwrap();
    let path = directory.path();
    let write = |labels: Vec<usize>, classes: &[&str], files: &[&str]| {
        let labelled = table(labels.len()).with_labels(TableLabels::Classes(labels), names(classes)).unwrap();
        let named = if files.is_empty() { labelled } else { labelled.with_files(names(files)).unwrap() };
        write_npz(&path.join("features.npz"), &named).unwrap();
    };
    let files = ["train/a.png", "test/b.png", "train/c.png", "test/d.png", "train/e.png"];
    write(vec![1, 0, 0, 1, 1], &["well", "ill"], &files);
    let found = medical(path).unwrap();
    assert_eq!((found.train.len(), found.held_out.len(), found.names), (3, 2, names(&["ill"])));
    let positive = |sample| found.train.labels().is_positive(sample, 0);
    assert_eq!([0, 1, 2].map(positive), [true, false, true]);
    assert_eq!(found.held_out.features().values(), [1.0, 1.0, 1.0, 3.0, 3.0, 3.0]);

    write((0..40).map(|i| i % 2).collect(), &["well", "ill"], &[]);
    let found = medical(path).unwrap();
    assert_eq!((found.train.len(), found.held_out.len()), (28, 12));

    let refuse = |says: &str| expect(medical(path), "features.npz", says, "medical-images");
    write(vec![0, 1, 2], &["a", "b", "c"], &[]);
    refuse("3 classes, not two");
    write(vec![1, 0, 0, 1, 1], &["well", "ill"], &["train/a", "test/b", "train/c", "d", "train/e"]);
    refuse("neither in train/ nor in test/");
    write(vec![1, 0, 0, 1, 1], &["well", "ill"], &["train/a", "test/b", "train/c", "test/d", "train/e"]);
    assert!(medical(path).is_ok());
    write(vec![1, 0, 0, 0, 1], &["well", "ill"], &["train/a", "test/b", "train/c", "test/d", "train/e"]);
    refuse("the test samples are all of one class");
}

#[test]
fn caltech_leaves_out_the_background_class() {
    let directory = TempDir::new().unwrap();
    let path = directory.path();
    expect(caltech(path), path.to_str().unwrap(), "neither features.npz nor", "caltech-101-and-caltech-256");
    for background in ["BACKGROUND_Google", "257.clutter"] {
        let labels = TableLabels::Classes(vec![1, 0, 2, 0, 1]);
        let table = table(5).with_labels(labels, names(&["a", background, "b"])).unwrap();
        write_npz(&path.join("features.npz"), &table).unwrap();
        let found = caltech(path).unwrap();
        assert_eq!(found.names, ["a", "b"]);
        assert_eq!(found.data.labels().as_classes("a test").unwrap(), [0, 1, 0]);
        assert_eq!(found.data.features().values(), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0]);
        assert!(found.description.contains("3 images of 2 classes"), "{}", found.description);
        assert!(found.description.contains("2 of the background"), "{}", found.description);
    }
    // no labels, attributes instead of classes, and a NaN
    write_npz(&path.join("features.npz"), &table(5)).unwrap();
    expect(caltech(path), "features.npz", "no class", "caltech-101-and-caltech-256");
    let attributes = table(2).with_labels(TableLabels::Attributes(vec![true, false]), names(&["a"])).unwrap();
    write_npz(&path.join("features.npz"), &attributes).unwrap();
    expect(caltech(path), "features.npz", "no class", "caltech-101-and-caltech-256");
    let labels = TableLabels::Classes(vec![0]);
    let nan = FeatureTable::new(1, vec![f32::NAN]).unwrap().with_labels(labels, names(&["a"])).unwrap();
    write_npz(&path.join("features.npz"), &nan).unwrap();
    expect(caltech(path), "features.npz", "finite", "caltech-101-and-caltech-256");

    // every truncation is an error, and changed bytes never cause a panic
    let labels = TableLabels::Classes(vec![0, 1, 1, 0, 1]);
    write_npz(&path.join("features.npz"), &table(5).with_labels(labels, names(&["a", "b"])).unwrap())
        .unwrap();
    let whole = fs::read(path.join("features.npz")).unwrap();
    for end in (0..whole.len()).step_by(97) {
        fs::write(path.join("features.npz"), &whole[..end]).unwrap();
        expect(caltech(path), "features.npz", "features.npz", "caltech-101-and-caltech-256");
    }
    for damaged in Mutations::new(&whole, 1).take(200) {
        fs::write(path.join("features.npz"), damaged).unwrap();
        let _ = caltech(path);
    }
}

#[test]
fn caltech_reads_the_real_features_if_they_exist() {
    let Some(directory) = caltech101::directory() else { return };
    let found = caltech(&directory).unwrap();
    assert_eq!((found.data.len(), found.data.features().width(), found.names.len()), (8_677, 2_048, 101));
    let counts = found.data.labels().counts();
    assert_eq!((counts.iter().min(), counts.iter().max()), (Some(&31), Some(&800)));
}

/// Writes the files of CelebA for images of these parts. The 40 attributes depend on the number of the image.
fn write_celeba(directory: &Path, parts: &[usize]) {
    let header: Vec<String> = (0..40).map(|i| format!("Attribute_{i}")).collect();
    let mut list = format!("{}\n{} \n", parts.len(), header.join(" "));
    let mut partition = String::new();
    for (i, part) in parts.iter().enumerate() {
        let row: Vec<&str> = (0..40).map(|a| if (i + a) % 3 == 0 { " 1" } else { "-1" }).collect();
        list += &format!("{:06}.jpg {}\n", i + 1, row.join(" "));
        partition += &format!("{:06}.jpg {part}\n", i + 1);
    }
    fs::write(directory.join("list_attr_celeba.txt"), list).unwrap();
    fs::write(directory.join("list_eval_partition.txt"), partition).unwrap();
}

#[test]
fn celeba_is_split_by_its_official_partition() {
    let directory = TempDir::new().unwrap();
    let path = directory.path();
    expect(celeba(path), "list_attr_celeba.txt", "file", "celeba");
    write_celeba(path, &[0, 0, 1, 2, 0, 1]);
    expect(celeba(path), path.to_str().unwrap(), "neither features.npz", "celeba");
    // features in another order, in a subdirectory, without the last training image
    let files =
        names(&["img/000004.jpg", "img/000001.jpg", "img/000003.jpg", "img/000002.jpg", "img/000006.jpg"]);
    let features = path.join("features.npz");
    write_npz(&features, &table(5).with_files(files).unwrap()).unwrap();
    let found = celeba(path).unwrap();
    let initial = found.initial.unwrap();
    assert_eq!(found.train.features().values(), [1.0, 1.0, 1.0, 3.0, 3.0, 3.0]);
    assert_eq!(initial.features().values(), [2.0, 2.0, 2.0, 4.0, 4.0, 4.0]);
    assert_eq!(found.held_out.features().values(), [0.0; 3]);
    assert_eq!((found.names.len(), found.names[39].as_str()), (40, "Attribute_39"));
    for attribute in 0..40 {
        // the second training image is number 1, the test image number 3
        assert_eq!(found.train.labels().is_positive(1, attribute), (1 + attribute) % 3 == 0);
        assert_eq!(found.held_out.labels().is_positive(0, attribute), (3 + attribute) % 3 == 0);
    }
    assert!(found.description.contains("2 train, 2 validation, 1 test images of 6"), "{}", found.description);

    write_npz(&features, &table(5)).unwrap();
    expect(celeba(path), "features.npz", "`files`", "celeba");
    let twice = names(&["a/000001.jpg", "a/000001.jpg"]);
    write_npz(&features, &table(2).with_files(twice).unwrap()).unwrap();
    expect(celeba(path), "features.npz", "twice", "celeba");
    let train_only = names(&["000001.jpg", "000002.jpg"]);
    write_npz(&features, &table(2).with_files(train_only).unwrap()).unwrap();
    expect(celeba(path), "features.npz", "no features of validation", "celeba");
}

#[test]
fn celeba_refuses_malformed_lists() {
    let directory = TempDir::new().unwrap();
    let path = directory.path();
    let list = path.join("list_attr_celeba.txt");
    let partition = path.join("list_eval_partition.txt");
    let files = names(&["000001.jpg", "000002.jpg", "000003.jpg"]);
    write_npz(&path.join("features.npz"), &table(3).with_files(files).unwrap()).unwrap();
    let change = |file: &Path, from: &str, to: &str| {
        write_celeba(path, &[0, 1, 2]);
        assert!(celeba(path).is_ok());
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains(from), "{from}");
        fs::write(file, text.replacen(from, to, 1)).unwrap();
    };
    for (from, to, says) in [
        ("3\n", "4\n", "says 4 images, but there are 3"),
        ("3\n", "many\n", "line 1"),
        ("Attribute_7 ", "", "39 names"),
        ("000002.jpg -1", "000002.jpg 7", "line 4 has the unknown label \"7\""),
        ("000002.jpg -1", "000002.jpg -2", "line 4 has the unknown label \"-2\""),
        ("000003.jpg -1", "000003.jpg", "line 5 has 39 labels"),
        ("000003.jpg", "000009.jpg", "no line for 000009.jpg"),
    ] {
        change(&list, from, to);
        let file =
            if says.starts_with("no line") { "list_eval_partition.txt" } else { "list_attr_celeba.txt" };
        expect(celeba(path), file, says, "celeba");
    }
    for (from, to, says) in [
        ("000002.jpg 1", "000002.jpg 3", "line 2 has the unknown part \"3\""),
        ("000002.jpg 1", "000002.jpg", "line 2 has 1 words"),
        ("000002.jpg 1", "000001.jpg 1", "line 2 repeats 000001.jpg"),
        ("000003.jpg 2\n", "", "it lists 2 images, but there are attributes of 3"),
    ] {
        change(&partition, from, to);
        expect(celeba(path), "list_eval_partition.txt", says, "celeba");
    }
    write_celeba(path, &[0, 1, 2]);
    let whole = fs::read(&list).unwrap();
    for damaged in Mutations::new(&whole, 2).take(200) {
        fs::write(&list, damaged).unwrap();
        let _ = celeba(path);
    }
}

#[test]
fn detection_reads_lists_and_refuses_malformed_ones() {
    let directory = TempDir::new().unwrap();
    let path = directory.path();
    let (train, test, features) = (path.join("train.csv"), path.join("test.csv"), path.join("features.npz"));
    let files = names(&["x/1.jpg", "x/2.jpg", "y/2.jpg", "y/3.jpg"]);
    write_npz(&features, &table(4).with_files(files).unwrap()).unwrap();
    fs::write(&train, "file,label\ny/2.jpg,1\n1.jpg,0\n").unwrap();
    fs::write(&test, "file, label\n3.jpg, -1\n").unwrap();
    let found = detection(&train, &features).unwrap();
    assert_eq!(found.data.features().values(), [2.0, 2.0, 2.0, 0.0, 0.0, 0.0]);
    assert_eq!([0, 1].map(|i| found.data.labels().is_positive(i, 0)), [true, false]);
    assert!(found.description.contains("2 images, 1 of them positive"), "{}", found.description);
    let both = lifelog(path).unwrap();
    assert_eq!((both.train.len(), both.held_out.len(), both.initial.is_none()), (2, 1, true));
    assert!(both.with_initial(1, &Seed::new(0)).unwrap_err().to_string().contains("positive"));
    for (text, says) in [
        ("", "columns"),
        ("file,label\n", "empty"),
        ("name,label\n1.jpg,1\n", "line 1 has the columns name,label"),
        ("file,label\n1.jpg,1\n3.jpg,7\n", "line 3 has the unknown label \"7\""),
        ("file,label\n1.jpg,1\n1.jpg,1\n", "line 3 repeats 1.jpg"),
        ("file,label\n9.jpg,1\n", "has no features of 9.jpg"),
        // two files have this name
        ("file,label\n2.jpg,1\n", "has no features of 2.jpg"),
        ("file,label\n1.jpg,1,2\n", "3 fields"),
    ] {
        fs::write(&train, text).unwrap();
        expect(detection(&train, &features), "train.csv", says, "life-logging");
    }
    fs::remove_file(&train).unwrap();
    expect(lifelog(path), "train.csv", "file", "life-logging");
}

#[test]
fn with_initial_draws_enough_positive_samples() {
    let directory = TempDir::new().unwrap();
    let path = directory.path();
    let files: Vec<String> = (0..200).map(|i| format!("{i}.jpg")).collect();
    let rows: Vec<String> =
        files.iter().enumerate().map(|(i, f)| format!("{f},{}", u8::from(i % 20 == 0))).collect();
    write_npz(&path.join("features.npz"), &table(200).with_files(files).unwrap()).unwrap();
    fs::write(path.join("train.csv"), format!("file,label\n{}\n", rows.join("\n"))).unwrap();
    fs::write(path.join("test.csv"), "file,label\n1.jpg,0\n").unwrap();
    let found = lifelog(path).unwrap();
    for count in [0, 200, usize::MAX] {
        assert!(found.clone().with_initial(count, &Seed::new(1)).is_err(), "{count}");
    }
    let split = found.clone().with_initial(40, &Seed::new(1)).unwrap();
    let initial = split.initial.as_ref().unwrap();
    assert_eq!((initial.len(), split.train.len()), (40, 160));
    assert!(initial.labels().counts()[0] >= 5);
    assert_eq!(initial.labels().counts()[0] + split.train.labels().counts()[0], 10);
    // no sample is in both, and the same seed draws the same samples
    let mut all = [initial.features().values(), split.train.features().values()].concat();
    all.sort_by(f32::total_cmp);
    assert_eq!(all, (0..600).map(|i| (i / 3) as f32).collect::<Vec<_>>());
    assert_eq!(found.with_initial(40, &Seed::new(1)).unwrap().train, split.train);
    // public samples of the split are kept
    assert_eq!(split.clone().with_initial(3, &Seed::new(2)).unwrap().initial, split.initial);
}

/// Writes videos with these labels and features as records.
fn write_videos(path: &Path, videos: &[(&[u32], &[f32])]) {
    let mut bytes = Vec::new();
    for (labels, features) in videos {
        write_record(&mut bytes, &example(b"id", labels, features, &[9.0])).unwrap();
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn youtube8m_takes_the_most_frequent_attributes_and_refuses_damaged_records() {
    let directory = TempDir::new().unwrap();
    let path = directory.path();
    let wanted = YouTube8m { attributes: 2, ..YouTube8m::default() };
    expect(youtube8m(path, &wanted), path.to_str().unwrap(), "train*.tfrecord is missing", "youtube-8m");
    write_videos(&path.join("train01.tfrecord"), &[(&[5, 300], &[3.0, 4.0])]);
    write_videos(&path.join("train00.tfrecord"), &[(&[300, 8], &[1.0, 2.0]), (&[8], &[5.0, 6.0])]);
    write_videos(&path.join("validate00.tfrecord"), &[(&[5], &[7.0, 8.0]), (&[300], &[9.0, 9.0])]);
    let found = youtube8m(path, &wanted).unwrap();
    // 8 and 300 are equally frequent, and 8 is the smaller number
    assert_eq!(found.names, ["label 8", "label 300"]);
    assert_eq!(found.train.features().values(), [1.0, 2.0, 5.0, 6.0, 3.0, 4.0]);
    let has = |sample: usize| [0, 1].map(|attribute| found.train.labels().is_positive(sample, attribute));
    assert_eq!([0, 1, 2].map(has), [[true, true], [true, false], [false, true]]);
    assert_eq!(found.held_out.len(), 2);
    let all = youtube8m(path, &YouTube8m { audio: true, train: 2, ..YouTube8m::default() }).unwrap();
    assert_eq!((all.train.len(), all.train.features().width(), all.names.len()), (2, 3, 2));
    fs::write(path.join("vocabulary.csv"), "Index,TrainVideoCount,Name\n8,100,Games\n").unwrap();
    assert_eq!(youtube8m(path, &wanted).unwrap().names, ["Games", "label 300"]);
    fs::write(path.join("vocabulary.csv"), "Index,Other\n8,100\n").unwrap();
    expect(youtube8m(path, &wanted), "vocabulary.csv", "column", "youtube-8m");
    fs::remove_file(path.join("vocabulary.csv")).unwrap();

    let first = path.join("train00.tfrecord");
    let whole = fs::read(&first).unwrap();
    write_videos(&first, &[(&[1], &[1.0])]);
    expect(youtube8m(path, &wanted), "train01.tfrecord", "record 1: 2 features", "youtube-8m");
    write_videos(&first, &[(&[1], &[])]);
    expect(youtube8m(path, &wanted), "train00.tfrecord", "mean_rgb is missing", "youtube-8m");
    write_videos(&first, &[(&[1], &[1.0, f32::NAN])]);
    expect(youtube8m(path, &wanted), "train00.tfrecord", "not finite", "youtube-8m");
    for end in 1..whole.len() {
        fs::write(&first, &whole[..end]).unwrap();
        // a file may end between two records
        if youtube8m(path, &wanted).is_err() {
            expect(youtube8m(path, &wanted), "train00.tfrecord", "truncated", "youtube-8m");
        }
    }
    // every changed byte is an error in the length, the data or a checksum
    for damaged in Mutations::new(&whole, 3).filter(|damaged| damaged.len() == whole.len()).take(300) {
        fs::write(&first, &damaged).unwrap();
        assert_eq!(youtube8m(path, &wanted).is_err(), damaged != whole);
    }
}

#[test]
fn parse_video_never_panics_on_damaged_records() {
    let record = example(b"abcd", &[3, 300, 70_000], &[1.0, -2.5, 0.0], &[0.5]);
    let whole = parse_video(&record).unwrap();
    assert_eq!((whole.id.as_slice(), whole.labels.as_slice()), (&b"abcd"[..], &[3, 300, 70_000][..]));
    let mut refused = 0;
    for damaged in Mutations::new(&record, 4).take(20_000) {
        refused += usize::from(parse_video(&damaged).is_err());
    }
    assert!(refused > 1_000, "{refused}");
    for end in 0..record.len() {
        let _ = parse_video(&record[..end]);
    }
}
