//! From a picture to what a network takes in: torchvision's evaluation transform.

use core::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::resample::{Interpolation, Picture};
use crate::{Error, FeatureSource};

/// Sides of pictures a network could want.
const MOST_PIXELS_A_SIDE: usize = 4096;

/// Resize the shorter side, crop the centre, scale to 0..1, subtract the mean, divide by the standard deviation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Preprocessing {
    /// Pixels of the shorter side after resizing.
    pub resize: usize,
    /// Pixels of each side of the centre that is kept.
    pub crop: usize,
    /// How pixels are weighted when resizing.
    pub interpolation: Interpolation,
    /// Mean of red, green and blue, from 0 to 1.
    pub mean: [f32; 3],
    /// Standard deviation of red, green and blue.
    pub std: [f32; 3],
}

impl Default for Preprocessing {
    /// ImageNet's: shorter side 256, bicubic, centre 224.
    fn default() -> Self {
        Self {
            resize: 256,
            crop: 224,
            interpolation: Interpolation::Bicubic,
            mean: [0.485, 0.456, 0.406],
            std: [0.229, 0.224, 0.225],
        }
    }
}

impl Preprocessing {
    /// From a small TOML file with any of the fields; those that are missing are ImageNet's.
    ///
    /// # Errors
    /// A file that cannot be read, or with unknown or impossible entries.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(Error::read(path))?;
        let found: Self = toml::from_str(&text).map_err(|error| Error::File {
            path: path.into(),
            what: error.message().to_owned(),
            hint: "resize = 256, crop = 224, interpolation = \"bicubic\", mean = [...], std = [...]".into(),
        })?;
        found.check().map_err(|error| error.in_file(path))?;
        Ok(found)
    }

    /// Fails where no picture could be prepared like this.
    ///
    /// # Errors
    /// A crop larger than the picture, no size, or a deviation that is not positive.
    pub fn check(&self) -> Result<(), Error> {
        let finite = self.mean.iter().chain(&self.std).all(|value| value.is_finite());
        if !finite || self.std.iter().any(|&std| std <= 0.0) {
            return Err(Error::table(
                "mean and standard deviation must be numbers, the latter positive",
                "ImageNet's",
            ));
        }
        if self.crop == 0 || self.crop > self.resize || self.resize > MOST_PIXELS_A_SIDE {
            return Err(Error::table(
                format!("a centre of {} pixels of a picture of {} is not possible", self.crop, self.resize),
                "a crop of at most the size, and that at most 4096",
            ));
        }
        Ok(())
    }

    /// Itself as JSON, always the same for the same fields.
    ///
    /// # Errors
    /// Only if numbers cannot be written.
    pub fn json(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|error| Error::table(error.to_string(), "finite numbers"))
    }

    /// From what a table of features says of its origin: the preparation, and the tensor that was taken.
    ///
    /// # Errors
    /// If it is not what an extraction writes.
    pub fn of_source(source: &FeatureSource) -> Result<(Self, String), Error> {
        let bad = |what: String| Error::table(what, "extract the features again");
        let mut description: serde_json::Value =
            serde_json::from_str(&source.preprocessing).map_err(|error| bad(error.to_string()))?;
        let output = description.as_object_mut().and_then(|fields| fields.remove("output"));
        let output = output.and_then(|output| output.as_str().map(str::to_owned));
        let output = output.ok_or_else(|| bad("no tensor of the network is named".into()))?;
        let found: Self = serde_json::from_value(description).map_err(|error| bad(error.to_string()))?;
        found.check()?;
        Ok((found, output))
    }

    /// Red, then green, then blue, each row after row.
    pub(crate) fn apply(&self, picture: &Picture) -> Vec<f32> {
        let (short, long) = (picture.width.min(picture.height), picture.width.max(picture.height));
        // torchvision: int(size * long / short), in double precision
        let resized = (self.resize as f64 * long as f64 / short as f64) as usize;
        let size =
            if picture.width <= picture.height { (self.resize, resized) } else { (resized, self.resize) };
        let (columns, rows) = (self.centre(size.0), self.centre(size.1));
        let cropped = picture.resized(size, columns, rows, self.interpolation);

        let mut values = vec![0.0; cropped.pixels.len()];
        let plane = cropped.width * cropped.height;
        for (channel, values) in values.chunks_exact_mut(plane).enumerate() {
            let (mean, std) = (self.mean[channel], self.std[channel]);
            let table: [f32; 256] = core::array::from_fn(|value| (value as f32 / 255.0 - mean) / std);
            for (value, pixel) in values.iter_mut().zip(cropped.pixels.as_chunks::<3>().0) {
                *value = table[usize::from(pixel[channel])];
            }
        }
        values
    }

    /// torchvision rounds the half of what is left over as Python does: halves to even.
    fn centre(&self, size: usize) -> Range<usize> {
        let start = ((size - self.crop) as f64 / 2.0).round_ties_even() as usize;
        start..start + self.crop
    }
}

impl Serialize for Interpolation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Bilinear => "bilinear",
            Self::Bicubic => "bicubic",
        })
    }
}

impl<'de> Deserialize<'de> for Interpolation {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "bilinear" => Ok(Self::Bilinear),
            "bicubic" => Ok(Self::Bicubic),
            other => Err(serde::de::Error::unknown_variant(other, &["bilinear", "bicubic"])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_torchvisions() {
        let preprocessing = Preprocessing::default();
        assert_eq!(preprocessing.centre(256), 16..240);
        assert_eq!(preprocessing.centre(227), 2..226, "1.5 rounds to even");
        assert_eq!(preprocessing.centre(229), 2..226, "2.5 rounds to even");
        // a line of pixels would be millions long if all of it were made
        let line = Picture { width: 60_000, height: 1, pixels: vec![255; 180_000] };
        assert_eq!(preprocessing.apply(&line).len(), 3 * 224 * 224);
    }

    #[test]
    fn a_file_beside_the_model_says_how() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.toml");
        std::fs::write(&path, "resize = 342\ncrop = 299\ninterpolation = \"bilinear\"\n").unwrap();
        let read = Preprocessing::read(&path).unwrap();
        assert_eq!((read.resize, read.crop, read.interpolation), (342, 299, Interpolation::Bilinear));
        for bad in ["resise = 3", "crop = 300", "std = [1.0, 0.0, 1.0]", "interpolation = \"nearest\"", "="] {
            std::fs::write(&path, bad).unwrap();
            let error = Preprocessing::read(&path).unwrap_err();
            assert!(error.to_string().contains("net.toml") && error.hint().is_some(), "{error}");
        }
    }
}
