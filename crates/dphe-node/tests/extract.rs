//! `dphe extract` and `dphe data` as a person meets them: interrupts, videos, splits, refusals.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../dphe-features/tests/support/onnx.rs"]
mod onnx;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use dphe_features::{FeatureTable, ReadOptions, TableLabels, read_table, write_npz};

fn dphe(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dphe"));
    command.args(args).current_dir(folder);
    command
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Two lines, what happened and what to try, and nothing printed as a result.
fn refused(folder: &Path, args: &[&str]) -> String {
    let output = dphe(folder, args).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{args:?} was accepted");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: ") && said.contains("\ntry: "), "{said}");
    said
}

/// An uncompressed picture of 24 bits a pixel.
fn bmp(width: u32, height: u32, colour: impl Fn(u32, u32) -> [u8; 3]) -> Vec<u8> {
    let stride = (width * 3).next_multiple_of(4);
    let size = 54 + stride * height;
    let mut bytes = b"BM".to_vec();
    for number in [size, 0, 54, 40, width, height, 1 | 24 << 16, 0, size - 54, 0, 0, 0, 0] {
        bytes.extend(number.to_le_bytes());
    }
    for y in 0..height {
        let row: Vec<u8> = (0..width).flat_map(|x| colour(x, y)).collect();
        bytes.extend(&row);
        bytes.resize(bytes.len() + (stride as usize - row.len()), 0);
    }
    bytes
}

/// Many photos and a network; extracting them takes about a second.
fn corpus(photos: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("net.onnx"), onnx::network(8, &["GlobalAveragePool"], 4)).unwrap();
    fs::write(folder.path().join("net.toml"), "resize = 8\ncrop = 8\nmean = [0, 0, 0]\nstd = [1, 1, 1]\n")
        .unwrap();
    for class in ["cat", "dog"] {
        fs::create_dir_all(folder.path().join("photos").join(class)).unwrap();
        for i in 0..photos / 2 {
            let picture = bmp(320, 240, |x, y| [(x + i) as u8, (y * i) as u8, class.as_bytes()[0]]);
            fs::write(folder.path().join(format!("photos/{class}/{i:03}.bmp")), picture).unwrap();
        }
    }
    folder
}

fn journal(cache: &Path) -> Option<PathBuf> {
    fs::read_dir(cache).ok()?.next().map(|entry| entry.unwrap().path())
}

/// Whether whoever started the tests made them, and so their children, deaf to SIGINT, as shells do in scripts.
fn ignores_interrupts() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0)
}

const RECORD: u64 = 32 + 3 * 4 + 8;

#[test]
#[cfg(unix)]
fn an_interrupted_extraction_goes_on_and_ends_the_same() {
    let photos = 300;
    let folder = corpus(photos);
    let at = |name: &str| folder.path().join(name);
    let args = |out: &'static str| {
        ["extract", "--model", "net.onnx", "--threads", "1", "photos", "-o", out, "--format", "json"]
    };
    let whole = json(&dphe(folder.path(), &args("whole.npz")).output().unwrap());
    assert_eq!((&whole["samples"], &whole["computed"]), (&photos.into(), &photos.into()));
    let expected = fs::read(at("whole.npz")).unwrap();

    let mut signals = vec!["-INT", "-KILL"];
    if ignores_interrupts() {
        println!("SKIPPED: SIGINT is ignored here");
        signals.remove(0);
    }
    let mut interrupts = 0;
    for signal in &signals {
        let _ = fs::remove_dir_all(at("cut.npz.cache"));
        let _ = fs::remove_file(at("cut.npz"));
        let mut child = dphe(folder.path(), &args("cut.npz")).stdout(Stdio::null()).spawn().unwrap();
        // as soon as some photos are done
        let start = Instant::now();
        let size = || journal(&at("cut.npz.cache")).map_or(0, |path| path.metadata().unwrap().len());
        while size() < 5 * RECORD && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(Command::new("kill").args([*signal, &child.id().to_string()]).status().unwrap().success());
        assert!(!child.wait().unwrap().success());
        let before = size() / RECORD;
        assert!(before >= 5);
        interrupts += usize::from(before < u64::from(photos));
        assert!(!at("cut.npz").exists(), "nothing half-written");

        let rest = json(&dphe(folder.path(), &args("cut.npz")).output().unwrap());
        assert_eq!(rest["computed"].as_u64().unwrap(), u64::from(photos) - before, "no photo twice");
        assert_eq!(fs::read(at("cut.npz")).unwrap(), expected);
        let left = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(left.into_iter().all(|name| !name.to_string_lossy().ends_with(".tmp")));
    }
    assert_eq!(interrupts, signals.len(), "all came before the end");
}

#[test]
#[cfg(target_os = "linux")]
fn memory_does_not_grow_with_the_number_of_photos() {
    // a network that gives its input back: 12 KiB of features a photo
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("net.onnx"), onnx::network(32, &["Flatten"], 2)).unwrap();
    fs::write(folder.path().join("net.toml"), "resize = 32\ncrop = 32\n").unwrap();
    let mut peaks = Vec::new();
    for (name, photos) in [("few", 100), ("many", 3000)] {
        let photos_folder = folder.path().join(name);
        fs::create_dir_all(&photos_folder).unwrap();
        for i in 0..photos {
            let picture = bmp(48, 32, |x, y| [x as u8, y as u8 ^ (i >> 8) as u8, i as u8]);
            fs::write(photos_folder.join(format!("{i}.bmp")), picture).unwrap();
        }
        let out = format!("{name}.npz");
        let args = ["extract", "--model", "net.onnx", "--tensor", "t1", "--threads", "1", name, "-o", &out];
        let mut child = dphe(folder.path(), &args).stdout(Stdio::null()).spawn().unwrap();
        let mut peak = 0;
        while child.try_wait().unwrap().is_none() {
            let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            peak = line.map_or(peak, |line| line.trim().trim_end_matches(" kB").parse().unwrap());
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(child.wait().unwrap().success());
        peaks.push(peak);
    }
    println!("peak memory: {} KiB for 100 photos, {} KiB for 3,000", peaks[0], peaks[1]);
    // names and digests of 2,900 more photos are small; their features would be 34 MiB
    assert!(peaks[1] < peaks[0] + 8192, "{peaks:?}");
}

#[test]
fn a_table_says_what_was_done() {
    let folder = corpus(6);
    fs::write(folder.path().join("photos/cat/broken.jpg"), "no photo").unwrap();
    let args = ["extract", "--model", "net.onnx", "photos", "-o", "out.npz"];
    let output = dphe(folder.path(), &args).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for part in ["6 of 3 features", "left out     1", "cat/broken.jpg: not a JPEG", "tensor \"t1\""] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let table = read_table(&folder.path().join("out.npz"), &ReadOptions::default()).unwrap();
    assert_eq!(table.classes(), ["cat", "dog"]);
    let strict = [&args[..5], &["strict.npz", "--strict"]].concat();
    assert!(refused(folder.path(), &strict).contains("broken.jpg"));
    assert!(!folder.path().join("strict.npz").exists());
}

#[test]
#[cfg(unix)]
fn videos_are_averaged_where_there_is_ffmpeg() {
    use std::os::unix::fs::PermissionsExt;
    let folder = corpus(2);
    fs::create_dir_all(folder.path().join("videos")).unwrap();
    fs::write(folder.path().join("videos/a.mp4"), "a video").unwrap();
    let args = ["extract", "--model", "net.onnx", "videos", "-o", "out.npz"];
    let without = dphe(folder.path(), &args).env("PATH", "/nowhere").output().unwrap();
    let said = String::from_utf8(without.stderr).unwrap();
    assert!(said.contains("ffmpeg, which is not installed") && said.contains("a.mp4"), "{said}");

    // a stand-in that sends two frames, black and white
    fs::write(folder.path().join("1.bmp"), bmp(20, 10, |_, _| [0; 3])).unwrap();
    fs::write(folder.path().join("2.bmp"), bmp(20, 10, |_, _| [255; 3])).unwrap();
    let program = folder.path().join("ffmpeg");
    fs::write(&program, "#!/bin/sh\nexec /bin/cat 1.bmp 2.bmp\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let output = dphe(folder.path(), &args).env("PATH", folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = read_table(&folder.path().join("out.npz"), &ReadOptions::default()).unwrap();
    assert_eq!(table.files(), ["a.mp4"]);
    assert!(table.values().iter().all(|value| (value - 0.5).abs() < 1e-6), "{:?}", table.values());
}

#[test]
fn what_cannot_be_extracted_is_refused_before_the_work() {
    let folder = corpus(2);
    let here = folder.path();
    let with = |more: &[&str]| {
        let args = ["extract", "--model", "net.onnx", "photos", "-o", "out.npz"];
        refused(here, &[&args[..], more].concat())
    };
    assert!(with(&["--crop", "9"]).contains("9 pixels"));
    assert!(with(&["--crop", "7"]).contains("wants pictures of 8 pixels"));
    assert!(with(&["--mean", "1,2"]).contains("--mean"));
    assert!(with(&["--tensor", "pool"]).contains("\"pool\""));
    assert!(with(&["--preprocessing", "missing.toml"]).contains("missing.toml"));
    let plain = |model, photos, out| refused(here, &["extract", "--model", model, photos, "-o", out]);
    assert!(plain("photos/cat/000.bmp", "photos", "out.npz").contains("not an ONNX network"));
    assert!(plain("net.onnx", "net.toml", "out.npz").contains("net.toml"));
    assert!(plain("net.onnx", "photos", "nowhere/out.npz").contains("nowhere"));
    assert!(plain("net.onnx", "photos", "out.csv").contains(".npz"));
    assert!(!here.join("out.npz").exists());
}

/// 4 classes, 30 samples each.
fn table() -> FeatureTable {
    let classes = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
    FeatureTable::new(2, (0..240).map(|i| (i * 7 % 101) as f32).collect())
        .unwrap()
        .with_labels(TableLabels::Classes((0..120).map(|i| i % 4).collect()), classes)
        .unwrap()
        .with_files((0..120).map(|i| format!("{i}.jpg")).collect())
        .unwrap()
}

#[test]
fn data_is_described() {
    let folder = tempfile::tempdir().unwrap();
    write_npz(&folder.path().join("table.npz"), &table()).unwrap();
    let found =
        json(&dphe(folder.path(), &["data", "inspect", "table.npz", "--format", "json"]).output().unwrap());
    assert_eq!(
        (&found["samples"], &found["features"], &found["labels"]),
        (&120.into(), &2.into(), &"classes".into())
    );
    assert_eq!(found["classes"][3], serde_json::json!({ "name": "d", "samples": 30 }));
    assert_eq!(found["nan"], 0);
    fs::write(folder.path().join("table.csv"), "f0,f1,label\n1,nan,x\n1,2,y\n1,2,x\n").unwrap();
    let output = dphe(folder.path(), &["data", "inspect", "table.csv"]).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    for part in
        ["3 of 2 features", "1 NaN, 0 infinite, in 1 samples", "1 samples, 1 of them with another label"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    fs::write(folder.path().join("bad.npz"), "no zip").unwrap();
    assert!(refused(folder.path(), &["data", "inspect", "bad.npz"]).contains("bad.npz"));
}

#[test]
fn splits_are_disjoint_or_duplicated_and_reproducible() {
    let folder = tempfile::tempdir().unwrap();
    write_npz(&folder.path().join("table.npz"), &table()).unwrap();
    let split_by = |seed: &str, out: &str, more: &[&str]| {
        let args = [
            "data",
            "split",
            "table.npz",
            "--users",
            "3",
            "--initial-per-class",
            "2",
            "--test-per-class",
            "5",
            "--seed",
            seed,
            "-o",
            out,
            "--format",
            "json",
        ];
        let written = json(&dphe(folder.path(), &[&args[..], more].concat()).output().unwrap());
        assert_eq!(written.as_array().unwrap().len(), 5);
        ["initial", "test", "user-1", "user-2", "user-3"].map(|name| {
            let path = folder.path().join(out).join(format!("{name}.npz"));
            read_table(&path, &ReadOptions::default()).unwrap()
        })
    };
    let split = |out: &str, more: &[&str]| split_by("9", out, more);
    let sizes = |parts: &[FeatureTable; 5]| parts.each_ref().map(FeatureTable::samples);
    let files = |parts: &[FeatureTable]| parts.iter().flat_map(|p| p.files().to_vec()).collect::<Vec<_>>();
    let distinct = |mut files: Vec<String>| {
        files.sort_unstable();
        files.dedup();
        files.len()
    };

    let parts = split("one", &[]);
    assert_eq!(sizes(&parts), [8, 20, 31, 31, 30]);
    assert_eq!(distinct(files(&parts)), 120, "every sample once");
    assert_eq!(parts[0].summary().class_counts, [2; 4]);
    assert_eq!(parts[1].summary().class_counts, [5; 4]);
    split("two", &[]);
    for name in ["initial", "test", "user-1", "user-3"] {
        let bytes = |out: &str| fs::read(folder.path().join(out).join(format!("{name}.npz"))).unwrap();
        assert_eq!(bytes("one"), bytes("two"));
    }
    assert_ne!(files(&parts), files(&split_by("8", "three", &[])));

    let parts = split("four", &["--train-per-class", "20", "--skew", "by-class"]);
    assert_eq!(sizes(&parts), [8, 20, 24, 24, 24]);
    assert_eq!(distinct(files(&parts)), 100);
    let classes =
        |part: &FeatureTable| part.summary().class_counts.iter().filter(|&&count| count > 0).count();
    assert!(parts[2..].iter().all(|part| classes(part) == 2), "72 samples of 4 classes in 3 runs");

    let parts = split("five", &["--rule", "duplicated", "--per-user", "60"]);
    assert_eq!(sizes(&parts)[2..], [60; 3]);
    assert!(distinct(files(&parts[2..])) <= 92, "180 of 92: some are shared");
    assert_eq!(sizes(&split("six", &["--rule", "duplicated"]))[2..], [19; 3], "a fifth");

    let args = ["data", "split", "table.npz", "--users", "3", "-o", "bad", "--initial-per-class"];
    assert!(
        String::from_utf8(dphe(folder.path(), &[&args[..], &["31"]].concat()).output().unwrap().stderr)
            .unwrap()
            .contains("31")
    );
    let unlabelled = FeatureTable::new(1, vec![1.0, 2.0]).unwrap();
    write_npz(&folder.path().join("table.npz"), &unlabelled).unwrap();
    assert!(refused(folder.path(), &[&args[..], &["1"]].concat()).contains("no labels"));
}
