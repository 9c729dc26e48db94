//! `dphe extract`: interrupts, videos and errors.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../dphe-features/tests/support/onnx.rs"]
mod onnx;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use dphe_features::{ReadOptions, read_table};

fn dphe(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dphe"));
    command.args(args).current_dir(directory);
    command
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a command that must fail without output, and returns its error and hint.
fn refused(directory: &Path, args: &[&str]) -> String {
    let output = dphe(directory, args).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{args:?} was accepted");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: ") && said.contains("\nhint: "), "{said}");
    said
}

/// Returns an uncompressed BMP image with 24 bits per pixel.
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

/// Writes many photos and a network, whose extraction takes about a second.
fn corpus(photos: u32) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("net.onnx"), onnx::network(8, &["GlobalAveragePool"], 4)).unwrap();
    fs::write(directory.path().join("net.toml"), "resize = 8\ncrop = 8\nmean = [0, 0, 0]\nstd = [1, 1, 1]\n")
        .unwrap();
    for class in ["cat", "dog"] {
        fs::create_dir_all(directory.path().join("photos").join(class)).unwrap();
        for i in 0..photos / 2 {
            let picture = bmp(320, 240, |x, y| [(x + i) as u8, (y * i) as u8, class.as_bytes()[0]]);
            fs::write(directory.path().join(format!("photos/{class}/{i:03}.bmp")), picture).unwrap();
        }
    }
    directory
}

fn journal(cache: &Path) -> Option<PathBuf> {
    fs::read_dir(cache).ok()?.next().map(|entry| entry.unwrap().path())
}

/// Returns whether this process ignores SIGINT, as shells make background jobs do. Child processes inherit this.
fn ignores_interrupts() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0)
}

const RECORD: u64 = 32 + 3 * 4 + 8;

#[test]
#[cfg(unix)]
fn interrupted_extraction_continues_and_gives_the_same_result() {
    let photos = 300;
    let directory = corpus(photos);
    let at = |name: &str| directory.path().join(name);
    let args = |out: &'static str| {
        ["extract", "--network", "net.onnx", "--threads", "1", "photos", "-o", out, "--format", "json"]
    };
    let whole = json(&dphe(directory.path(), &args("whole.npz")).output().unwrap());
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
        let mut child = dphe(directory.path(), &args("cut.npz")).stdout(Stdio::null()).spawn().unwrap();
        // interrupt when some photos are done
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

        let rest = json(&dphe(directory.path(), &args("cut.npz")).output().unwrap());
        assert_eq!(rest["computed"].as_u64().unwrap(), u64::from(photos) - before, "no photo twice");
        assert_eq!(fs::read(at("cut.npz")).unwrap(), expected);
        let left = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(left.into_iter().all(|name| !name.to_string_lossy().ends_with(".tmp")));
    }
    assert_eq!(interrupts, signals.len(), "all came before the end");
}

#[test]
#[cfg(target_os = "linux")]
fn memory_does_not_grow_with_the_number_of_photos() {
    // the identity network has 12 KiB of features per photo
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("net.onnx"), onnx::network(32, &["Flatten"], 2)).unwrap();
    fs::write(directory.path().join("net.toml"), "resize = 32\ncrop = 32\n").unwrap();
    let mut peaks = Vec::new();
    for (name, photos) in [("few", 100), ("many", 3000)] {
        let photos_folder = directory.path().join(name);
        fs::create_dir_all(&photos_folder).unwrap();
        for i in 0..photos {
            let picture = bmp(48, 32, |x, y| [x as u8, y as u8 ^ (i >> 8) as u8, i as u8]);
            fs::write(photos_folder.join(format!("{i}.bmp")), picture).unwrap();
        }
        let out = format!("{name}.npz");
        let args = ["extract", "--network", "net.onnx", "--tensor", "t1", "--threads", "1", name, "-o", &out];
        let mut child = dphe(directory.path(), &args).stdout(Stdio::null()).spawn().unwrap();
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
    // the features of 2,900 more photos would take 34 MiB; their names and digests are small
    assert!(peaks[1] < peaks[0] + 8192, "{peaks:?}");
}

#[test]
fn extract_prints_a_summary() {
    let directory = corpus(6);
    fs::write(directory.path().join("photos/cat/broken.jpg"), "no photo").unwrap();
    let args = ["extract", "--network", "net.onnx", "photos", "-o", "out.npz"];
    let output = dphe(directory.path(), &args).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for part in ["6 of 3 features", "skipped      1", "cat/broken.jpg: not a JPEG", "tensor \"t1\""] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let table = read_table(&directory.path().join("out.npz"), &ReadOptions::default()).unwrap();
    assert_eq!(table.classes(), ["cat", "dog"]);
    let strict = [&args[..5], &["strict.npz", "--strict"]].concat();
    assert!(refused(directory.path(), &strict).contains("broken.jpg"));
    assert!(!directory.path().join("strict.npz").exists());
}

#[test]
#[cfg(unix)]
fn video_features_are_averaged_with_ffmpeg() {
    use std::os::unix::fs::PermissionsExt;
    let directory = corpus(2);
    fs::create_dir_all(directory.path().join("videos")).unwrap();
    fs::write(directory.path().join("videos/a.mp4"), "a video").unwrap();
    let args = ["extract", "--network", "net.onnx", "videos", "-o", "out.npz"];
    let without = dphe(directory.path(), &args).env("PATH", "/nowhere").output().unwrap();
    let said = String::from_utf8(without.stderr).unwrap();
    assert!(said.contains("ffmpeg, which is not installed") && said.contains("a.mp4"), "{said}");

    // a fake ffmpeg that outputs a black and a white frame
    fs::write(directory.path().join("1.bmp"), bmp(20, 10, |_, _| [0; 3])).unwrap();
    fs::write(directory.path().join("2.bmp"), bmp(20, 10, |_, _| [255; 3])).unwrap();
    let program = directory.path().join("ffmpeg");
    fs::write(&program, "#!/bin/sh\nexec /bin/cat 1.bmp 2.bmp\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let output = dphe(directory.path(), &args).env("PATH", directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = read_table(&directory.path().join("out.npz"), &ReadOptions::default()).unwrap();
    assert_eq!(table.files(), ["a.mp4"]);
    assert!(table.values().iter().all(|value| (value - 0.5).abs() < 1e-6), "{:?}", table.values());
}

#[test]
fn invalid_extractions_are_refused_before_the_work() {
    let directory = corpus(2);
    let here = directory.path();
    let with = |more: &[&str]| {
        let args = ["extract", "--network", "net.onnx", "photos", "-o", "out.npz"];
        refused(here, &[&args[..], more].concat())
    };
    assert!(with(&["--crop", "9"]).contains("9 pixels"));
    assert!(with(&["--crop", "7"]).contains("needs pictures of 8 x 8 pixels"));
    assert!(with(&["--mean", "1,2"]).contains("--mean"));
    assert!(with(&["--tensor", "pool"]).contains("\"pool\""));
    assert!(with(&["--preprocessing", "missing.toml"]).contains("missing.toml"));
    let plain = |model, photos, out| refused(here, &["extract", "--network", model, photos, "-o", out]);
    assert!(plain("photos/cat/000.bmp", "photos", "out.npz").contains("not an ONNX network"));
    assert!(plain("net.onnx", "net.toml", "out.npz").contains("net.toml"));
    assert!(plain("net.onnx", "photos", "nowhere/out.npz").contains("nowhere"));
    assert!(plain("net.onnx", "photos", "out.csv").contains(".npz"));
    assert!(!here.join("out.npz").exists());
}
