//! Finds photos and their labels in a directory per class, a flat directory, or a CSV file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use csv::ReaderBuilder;

use crate::file::Names;
use crate::{Error, TableLabels};

const PHOTOS: [&str; 7] = ["jpg", "jpeg", "jpe", "png", "webp", "gif", "bmp"];
const VIDEOS: [&str; 8] = ["mp4", "m4v", "mov", "avi", "mkv", "webm", "mpg", "mpeg"];
/// The deepest nesting of directories. It only guards against mistakes.
const DEEPEST: usize = 32;

/// The photos and videos to extract, in the order of the output.
pub struct Corpus {
    pub(super) root: PathBuf,
    /// The paths of the files, relative to the root.
    pub(super) files: Vec<String>,
    pub(super) labels: Option<(TableLabels, Vec<String>)>,
}

impl Corpus {
    /// Finds photos. `path` may be a single photo, a directory with one subdirectory per class, a flat directory
    /// without labels, or a CSV file. Each line of the CSV file has a path relative to the file, then a label or
    /// several attributes of 0 and 1.
    ///
    /// # Errors
    /// If there are no photos, the CSV file has another form, or a file name is not valid Unicode.
    pub fn find(path: &Path) -> Result<Self, Error> {
        let found = match path {
            path if path.is_dir() => Self::directory(path),
            path if is_media(path) => Self::single(path),
            path => Self::csv(path),
        };
        let found = found.map_err(|error| error.in_file(path))?;
        if found.files.is_empty() {
            return Err(Error::File {
                path: path.into(),
                what: "there are no photos here".into(),
                hint: format!(
                    "Pass a directory with one subdirectory per class, a directory of photos, or a CSV file. Supported \
                     extensions: {}.",
                    PHOTOS.join(", ")
                ),
            });
        }
        Ok(found)
    }

    fn single(path: &Path) -> Result<Self, Error> {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name
            .ok_or_else(|| Error::table("the file name is not valid Unicode", "Rename the file."))?
            .to_owned();
        let root = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(Self { root, files: vec![name], labels: None })
    }

    /// Returns the directory that file names are relative to.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the number of photos and videos.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Always returns false, because a corpus has at least one photo.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    fn directory(root: &Path) -> Result<Self, Error> {
        let mut flat = Vec::new();
        let mut files = Vec::new();
        let (mut labels, mut classes) = (Vec::new(), Vec::new());
        for (name, path) in entries(root)? {
            if !path.is_dir() {
                if is_media(&path) {
                    flat.push(name);
                }
                continue;
            }
            let mut inside = Vec::new();
            walk(&path, &name, 0, &mut inside)?;
            if !inside.is_empty() {
                labels.extend(vec![classes.len(); inside.len()]);
                classes.push(name);
                files.extend(inside);
            }
        }
        match (flat.is_empty(), classes.is_empty()) {
            (_, true) => Ok(Self { root: root.into(), files: flat, labels: None }),
            (true, false) => {
                Ok(Self { root: root.into(), files, labels: Some((TableLabels::Classes(labels), classes)) })
            }
            (false, false) => Err(Error::table(
                format!(
                    "photos ({}, ...) lie beside the directories of classes ({}, ...)",
                    flat[0], classes[0]
                ),
                "Move each photo into the directory of its class.",
            )),
        }
    }

    fn csv(path: &Path) -> Result<Self, Error> {
        let bad = |what: String| {
            Error::table(what, "Write lines of the form path,label or path,attribute,attribute,...")
        };
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        let delimiter = match ending.as_ref().and_then(|ending| ending.to_str()) {
            Some("csv") => b',',
            Some("tsv") => b'\t',
            _ => return Err(bad("this is neither a directory nor a CSV file".into())),
        };
        let file = fs::File::open(path).map_err(Error::read(path))?;
        let mut reader = ReaderBuilder::new().delimiter(delimiter).has_headers(false).from_reader(file);
        let mut records = reader.records().enumerate();
        let (mut files, mut labels, mut attributes) = (Vec::new(), Names::default(), Vec::new());
        let mut names: Option<Vec<String>> = None;
        let mut columns = 0;
        for (line, record) in &mut records {
            let record = record.map_err(|error| bad(error.to_string()))?;
            let mut cells = record.iter().map(str::trim);
            let file = cells.next().unwrap_or_default();
            // a first line without a photo is a header
            if line == 0 && !is_media(Path::new(file)) {
                names = Some(cells.map(str::to_owned).collect());
                continue;
            }
            columns = record.len() - 1;
            if columns == 1 {
                labels.push(record[1].trim())?;
            } else {
                for cell in cells {
                    attributes.push(match cell {
                        "1" => true,
                        "0" | "-1" => false,
                        _ => return Err(bad(format!("line {}: attribute {cell:?} is not 0 or 1", line + 1))),
                    });
                }
            }
            files.push(file.to_owned());
        }
        let labels = match columns {
            0 => None,
            1 => Some(labels.labels(None)?),
            _ => {
                let names = names.unwrap_or_else(|| (0..columns).map(|i| i.to_string()).collect());
                Some((TableLabels::Attributes(attributes), names))
            }
        };
        let root = path.parent().unwrap_or(Path::new("")).to_owned();
        let mut seen = BTreeSet::new();
        if let Some(twice) = files.iter().find(|file| !seen.insert(file.as_str())) {
            return Err(bad(format!("the path {twice:?} occurs twice")));
        }
        Ok(Self { root, files, labels })
    }
}

pub(super) fn is_video(path: &Path) -> bool {
    has_ending(path, &VIDEOS)
}

fn is_media(path: &Path) -> bool {
    has_ending(path, &PHOTOS) || is_video(path)
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    endings.iter().any(|known| ending.eq_ignore_ascii_case(known))
}

/// Returns the entries of a directory, sorted by name, without hidden files.
fn entries(directory: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(Error::read(directory))? {
        let entry = entry.map_err(Error::read(directory))?;
        let name = entry
            .file_name()
            .into_string()
            .map_err(|name| Error::table(format!("the name {name:?} is not valid Unicode"), "Rename it."))?;
        if !name.starts_with('.') {
            found.push((name, entry.path()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Collects all photos below a directory. Links to directories are skipped, because they could form a loop.
fn walk(directory: &Path, name: &str, depth: usize, files: &mut Vec<String>) -> Result<(), Error> {
    if depth > DEEPEST {
        return Err(Error::table(
            format!("{name}: directories are nested too deeply"),
            "Use one directory per class.",
        ));
    }
    for (inside, path) in entries(directory)? {
        let name = format!("{name}/{inside}");
        if path.is_dir() && !path.is_symlink() {
            walk(&path, &name, depth + 1, files)?;
        } else if path.is_file() && is_media(&path) {
            files.push(name);
        }
    }
    Ok(())
}
