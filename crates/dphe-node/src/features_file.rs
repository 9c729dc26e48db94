//! A user's samples from a text file: one a line, the class (counted from 0), then the features, separated by commas.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use dphe_learn::{Dataset, Features, Labels};

use crate::Error;

/// No line is longer.
const MAX_LINE: usize = 1 << 22;

/// Reads samples with this many features of this many classes.
///
/// # Errors
/// [`Error::Data`], with the line.
pub fn read_features(path: &Path, features: usize, classes: usize) -> Result<Dataset<f32>, Error> {
    let error = |line: usize, reason: String| Error::Data {
        file: match line {
            0 => path.display().to_string(),
            line => format!("{}, line {line}", path.display()),
        },
        reason,
    };
    let file = File::open(path).map_err(|source| error(0, format!("it could not be read: {source}")))?;
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    let mut reader = BufReader::new(file);
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        let mut part = std::io::Read::take(&mut reader, MAX_LINE as u64);
        let read = part.read_line(&mut line).map_err(|source| error(number, source.to_string()))?;
        if read == 0 {
            break;
        }
        if read == MAX_LINE {
            return Err(error(number, "it is too long".into()));
        }
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let mut fields = text.split(',').map(str::trim);
        let label = fields.next().and_then(|label| label.parse::<u32>().ok());
        let label = label.filter(|&label| (label as usize) < classes);
        labels.push(
            label.ok_or_else(|| error(number, format!("a class from 0 to {} comes first", classes - 1)))?,
        );
        let before = values.len();
        for field in fields {
            let value: f32 =
                field.parse().map_err(|_| error(number, format!("{field:?} is not a number")))?;
            if !value.is_finite() {
                return Err(error(number, format!("{field:?} is not finite")));
            }
            values.push(value);
        }
        let found = values.len() - before;
        if found != features {
            return Err(error(number, format!("{found} features, and the task has {features}")));
        }
    }
    let learn = |source: dphe_learn::Error| error(0, source.to_string());
    let features = Features::new(features, values).map_err(learn)?;
    Dataset::new(features, Labels::classes(classes, labels).map_err(learn)?).map_err(learn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Dataset<f32>, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("features.csv");
        std::fs::write(&path, text).unwrap();
        read_features(&path, 2, 3)
    }

    #[test]
    fn samples_are_read_and_mistakes_named_with_their_line() {
        let data = read("# class, x, y\n0, 1.5, -2\n\n2,0,1e3\n").unwrap();
        assert_eq!(data.len(), 2);
        assert_eq!(data.features().row(1), [0.0, 1000.0]);
        for (text, line, reason) in [
            ("0,1,2\n3,1,2\n", "line 2", "a class from 0 to 2"),
            ("0,1\n", "line 1", "1 features, and the task has 2"),
            ("0,1,x\n", "line 1", "not a number"),
            ("0,1,inf\n", "line 1", "not finite"),
            ("", "features.csv", ""),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(line) && error.contains(reason), "{error}");
        }
    }
}
