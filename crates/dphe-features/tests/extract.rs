//! Extraction with tiny networks and generated pictures: directory layouts, the cache, invalid input.
#![cfg(feature = "extract")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/onnx.rs"]
mod onnx;

use std::fs;
use std::io::Cursor;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use dphe_features::{
    Corpus, Error, Extracted, Extraction, FeatureModel, Preprocessing, ReadOptions, TableLabels, read_table,
};
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};

const SIDE: usize = 8;

/// A directory with a network that averages colours.
struct Bench {
    directory: tempfile::TempDir,
    preprocessing: Preprocessing,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("net.onnx"), onnx::network(SIDE, &["GlobalAveragePool"], 4)).unwrap();
        let preprocessing = Preprocessing {
            resize: SIDE,
            crop: SIDE,
            mean: [0.0; 3],
            std: [1.0; 3],
            ..Preprocessing::default()
        };
        Self { directory, preprocessing }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn extract(&self, photos: &str, strict: bool, threads: usize) -> Result<Extracted, Error> {
        let model = FeatureModel::load(&self.path("net.onnx"), SIDE, None)?;
        let extraction = Extraction {
            model: &model,
            preprocessing: &self.preprocessing,
            cache: self.path("cache"),
            threads: NonZeroUsize::new(threads).unwrap(),
            strict,
        };
        extraction.run(&Corpus::find(&self.path(photos))?, &self.path("out.npz"), |_| ())
    }

    fn table(&self) -> dphe_features::FeatureTable {
        read_table(&self.path("out.npz"), &ReadOptions::default()).unwrap()
    }
}

fn plain(colour: [u8; 3], width: u32, height: u32) -> DynamicImage {
    RgbImage::from_pixel(width, height, Rgb(colour)).into()
}

fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

#[test]
fn every_format_and_bit_depth_is_decoded() {
    let bench = Bench::new();
    let image = plain([200, 100, 40], 40, 20);
    for (name, bytes) in [
        ("a.png", encoded(&image, ImageFormat::Png)),
        ("b.bmp", encoded(&image, ImageFormat::Bmp)),
        ("c.gif", encoded(&image, ImageFormat::Gif)),
        ("d.webp", encoded(&image, ImageFormat::WebP)),
        ("e.jpg", encoded(&image, ImageFormat::Jpeg)),
        // the format is detected by content, not by name
        ("f.jpg", encoded(&plain([200, 100, 40], 3, 90), ImageFormat::Png)),
        ("g.png", encoded(&DynamicImage::from(image.to_rgb16()), ImageFormat::Png)),
        ("h.png", encoded(&DynamicImage::from(image.to_rgba8()), ImageFormat::Png)),
    ] {
        bench.write(&format!("photos/{name}"), bytes);
    }
    bench.write(
        "photos/i.png",
        encoded(&DynamicImage::from(plain([90; 3], 9, 9).to_luma16()), ImageFormat::Png),
    );
    bench.write("photos/readme.txt", "not a photo");
    bench.write("photos/.hidden.jpg", "not a photo");
    let extracted = bench.extract("photos", true, 2).unwrap();
    assert_eq!((extracted.samples, extracted.broken.len()), (9, 0));
    let table = bench.table();
    assert_eq!(table.files()[5], "f.jpg");
    assert!(table.labels().is_none());
    for (file, row) in table.files().iter().zip(table.rows()) {
        let expected = if file == "i.png" { [90.0; 3] } else { [200.0, 100.0, 40.0] };
        for (value, expected) in row.iter().zip(expected) {
            assert!((value * 255.0 - expected).abs() < 3.0, "{file}: {row:?}");
        }
    }
    let source = table.source().unwrap();
    assert_eq!(source.model_digest.len(), 64);
    assert!(
        source.preprocessing.contains("\"crop\":8") && source.preprocessing.contains("\"output\":\"t1\"")
    );
}

#[test]
fn exif_orientation_is_applied() {
    let bench = Bench::new();
    // left half white, right half black, and square, so that the crop keeps both halves
    let image = RgbImage::from_fn(64, 64, |x, _| Rgb(if x < 32 { [255; 3] } else { [0; 3] }));
    let jpeg = encoded(&image.into(), ImageFormat::Jpeg);
    // a TIFF header with one entry, orientation 6: the top of the scene is on the right
    let exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    let mut turned = jpeg[..2].to_vec();
    turned.extend([0xff, 0xe1]);
    turned.extend(u16::try_from(exif.len() + 2).unwrap().to_be_bytes());
    turned.extend(exif);
    turned.extend(&jpeg[2..]);
    bench.write("photos/a.jpg", jpeg);
    bench.write("photos/b.jpg", turned);
    // a network that returns its input
    bench.write("net.onnx", onnx::network(SIDE, &["Flatten"], 2));
    let model = FeatureModel::load(&bench.path("net.onnx"), SIDE, Some("t1")).unwrap();
    let extraction = Extraction {
        model: &model,
        preprocessing: &bench.preprocessing,
        cache: bench.path("cache"),
        threads: NonZeroUsize::MIN,
        strict: true,
    };
    extraction.run(&Corpus::find(&bench.path("photos")).unwrap(), &bench.path("out.npz"), |_| ()).unwrap();
    let table = bench.table();
    let plain = &table.values()[..64];
    let turned = &table.values()[192..256];
    assert!(plain[0] > 0.9 && plain[7] < 0.1 && plain[56] > 0.9, "{plain:?}");
    assert!(turned[0] > 0.9 && turned[7] > 0.9 && turned[56] < 0.1, "{turned:?}");
}

#[test]
fn labels_come_from_directories_or_csv() {
    let bench = Bench::new();
    let photo = |i: u8| encoded(&plain([i, 0, 0], 9, 9), ImageFormat::Png);
    for (i, name) in ["dog/1.png", "dog/old/2.png", "cat/3.png"].iter().enumerate() {
        bench.write(&format!("photos/{name}"), photo(i as u8));
    }
    fs::create_dir_all(bench.path("photos/empty")).unwrap();
    bench.extract("photos", true, 1).unwrap();
    let table = bench.table();
    assert_eq!(table.files(), ["cat/3.png", "dog/1.png", "dog/old/2.png"]);
    assert_eq!(
        (table.classes(), table.labels()),
        (&["cat".to_owned(), "dog".to_owned()][..], Some(&TableLabels::Classes(vec![0, 1, 1])))
    );

    bench.write("list.csv", "path,label\nphotos/dog/1.png,wolf\nphotos/cat/3.png,lion\n");
    let extracted = bench.extract("list.csv", true, 1).unwrap();
    assert_eq!((extracted.samples, extracted.computed, extracted.reused), (2, 0, 2));
    assert_eq!(bench.table().classes(), ["lion", "wolf"]);
    bench.write("list.csv", "path,young,male\nphotos/dog/1.png,1,-1\nphotos/cat/3.png,0,1\n");
    bench.extract("list.csv", true, 1).unwrap();
    assert_eq!(bench.table().classes(), ["young", "male"]);
    assert_eq!(bench.table().labels(), Some(&TableLabels::Attributes(vec![true, false, false, true])));

    for (name, text) in [
        ("bad.csv", "a.png,1,7\n"),
        ("bad2.csv", "a.png,x\na.png,y\n"),
        ("bad3.csv", "path,label\n"),
        ("bad4.csv", "a.png,x\nb.png\n"),
        ("bad5.csv", "a.png,x\nb.png,\n"),
        ("bad.txt", "a.png"),
    ] {
        let path = bench.write(name, text);
        let error = Corpus::find(&path).err().unwrap();
        assert!(error.to_string().contains(name) && error.hint().is_some(), "{error}");
    }
    bench.write("photos/loose.png", photo(9));
    assert!(Corpus::find(&bench.path("photos")).err().unwrap().to_string().contains("loose.png"));
    assert!(Corpus::find(&bench.path("photos/empty")).is_err());
    assert!(Corpus::find(&bench.path("nowhere")).is_err());
}

#[test]
fn cache_is_reused_and_output_is_independent_of_threads() {
    let bench = Bench::new();
    for i in 0..40u8 {
        // ten pictures under four names each
        bench.write(&format!("photos/{i:02}.png"), encoded(&plain([i % 10, 7, 9], 12, 10), ImageFormat::Png));
    }
    let first = bench.extract("photos", true, 1).unwrap();
    assert_eq!((first.samples, first.computed), (40, 10));
    let bytes = fs::read(bench.path("out.npz")).unwrap();
    let again = bench.extract("photos", true, 3).unwrap();
    assert_eq!((again.samples, again.computed), (40, 0));
    assert_eq!(fs::read(bench.path("out.npz")).unwrap(), bytes);
    fs::remove_dir_all(bench.path("cache")).unwrap();
    assert_eq!(bench.extract("photos", true, 4).unwrap().computed, 10);
    assert_eq!(fs::read(bench.path("out.npz")).unwrap(), bytes);
}

#[test]
fn unreadable_photos_are_listed_or_refused_if_strict() {
    let bench = Bench::new();
    let good = encoded(&plain([1, 2, 3], 30, 30), ImageFormat::Jpeg);
    bench.write("photos/good.jpg", &good);
    bench.write("photos/empty.jpg", "");
    bench.write("photos/cut.jpg", &good[..good.len() - 20]);
    bench.write("photos/text.png", "I am no picture");
    // a PNG header that declares 60,000 x 60,000 pixels
    let mut bomb = encoded(&plain([0; 3], 1, 1), ImageFormat::Png);
    bomb[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
    let checksum = crc32(&bomb[12..29]);
    bomb[29..33].copy_from_slice(&checksum.to_be_bytes());
    bench.write("photos/huge.png", bomb);
    let extracted = bench.extract("photos", false, 2).unwrap();
    let broken: Vec<&str> = extracted.broken.iter().map(|(file, _)| file.as_str()).collect();
    assert_eq!(broken, ["cut.jpg", "empty.jpg", "huge.png", "text.png"]);
    let why: Vec<&str> = extracted.broken.iter().map(|(_, why)| why.as_str()).collect();
    assert!(
        why[0].contains("cut off") && why[1].contains("empty") && why[3].contains("not a JPEG"),
        "{why:?}"
    );
    assert!(why[2].contains("60000 x 60000") || why[2].contains("limit"), "{why:?}");
    assert_eq!(bench.table().files(), ["good.jpg"]);

    fs::remove_file(bench.path("out.npz")).unwrap();
    let error = bench.extract("photos", true, 2).unwrap_err();
    assert!(error.to_string().contains("cut.jpg") && error.to_string().contains("4 of 5"), "{error}");
    assert!(!bench.path("out.npz").exists(), "nothing is written");
}

#[test]
fn invalid_networks_are_refused_with_a_reason() {
    let bench = Bench::new();
    let refused = |bytes: Vec<u8>, side: usize, tensor: Option<&str>| {
        let path = bench.write("bad.onnx", bytes);
        let error = FeatureModel::load(&path, side, tensor).err().unwrap();
        assert!(error.to_string().contains("bad.onnx") && error.hint().is_some(), "{error}");
        format!("{error} {}", error.hint().unwrap())
    };
    assert!(refused(b"no network".to_vec(), 8, None).contains("not an ONNX network"));
    assert!(refused(vec![], 8, None).contains("not an ONNX network"));
    let good = onnx::network(8, &["GlobalAveragePool"], 4);
    assert!(refused(good.clone(), 16, None).contains("--crop 8"));
    assert!(refused(good.clone(), 8, Some("pool")).contains("t1"));
    assert!(refused(onnx::network(8, &["Quantum", "GlobalAveragePool"], 4), 8, None).contains("Quantum"));
    assert!(FeatureModel::load(Path::new("missing.onnx"), 8, None).is_err());
    // without a pool, the spatial axes are averaged
    let path = bench.write("relu.onnx", onnx::network(8, &["Relu"], 4));
    assert_eq!(FeatureModel::load(&path, 8, None).unwrap().width(), 3);
    // a vector output is used as it is, unless it holds class scores
    let path = bench.write("flat.onnx", onnx::network(8, &["Flatten"], 2));
    assert_eq!(FeatureModel::load(&path, 8, None).unwrap().width(), 3 * 8 * 8);
    assert!(refused(onnx::network(8, &["Flatten", "Gemm"], 2), 8, None).contains("--tensor"));
    // a damaged network is refused or harmless, but never causes a panic
    for at in 0..good.len() {
        for bit in [0, 3, 7] {
            let mut damaged = good.clone();
            damaged[at] ^= 1 << bit;
            let path = bench.write("bad.onnx", damaged);
            let _ = FeatureModel::load(&path, 8, None);
        }
    }
}

#[test]
fn mutated_pictures_never_cause_a_panic() {
    let bench = Bench::new();
    let image = RgbImage::from_fn(24, 16, |x, y| Rgb([(x * 9) as u8, (y * 13) as u8, (x * y) as u8]));
    let image = DynamicImage::from(image);
    let formats =
        [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP, ImageFormat::Gif, ImageFormat::Bmp];
    let mut state = 7u64;
    let mut random = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let total = 1200;
    for i in 0..total {
        let mut bytes = encoded(&image, formats[i % formats.len()]);
        for _ in 0..=random(5) {
            let at = random(bytes.len());
            match random(5) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes[at] = 255,
                2 => bytes[at] ^= 1 << random(8),
                3 => {
                    let part = bytes[at..(at + 12).min(bytes.len())].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => bytes[at] = random(256) as u8,
            }
        }
        bench.write(&format!("photos/{i:04}.jpg"), bytes);
    }
    bench.write("photos/good.png", encoded(&image, ImageFormat::Png));
    let extracted = bench.extract("photos", false, 2).unwrap();
    println!("{} of {total} mutated pictures are still pictures", extracted.samples - 1);
    assert_eq!(extracted.samples + extracted.broken.len(), total + 1);
    assert!(extracted.broken.len() > total / 10 && extracted.samples > total / 10);
    let bytes = fs::read(bench.path("out.npz")).unwrap();
    assert_eq!(bench.extract("photos", false, 1).unwrap().computed, 0);
    assert_eq!(fs::read(bench.path("out.npz")).unwrap(), bytes);
    if let Ok(status) = fs::read_to_string("/proc/self/status") {
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kibibytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        println!("peak memory {} MiB", kibibytes >> 10);
        assert!(kibibytes < 2 << 20, "a mutated size took {kibibytes} KiB");
    }
}

/// Computes the checksum of a PNG chunk.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}
