//! Prepares pictures for a network with torchvision's evaluation transform.

use core::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::resample::{Interpolation, Picture};
use crate::{Error, FeatureSource};

/// The largest side of a picture that a network may need.
const MOST_PIXELS_A_SIDE: usize = 4096;

/// The steps from a picture to a network's input.
///
/// The shorter side is resized, the centre is cropped, and colours are scaled to 0..1, centred by `mean` and divided
/// by `std`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Preprocessing {
    /// The shorter side after resizing, in pixels.
    pub resize: usize,
    /// Each side of the square centre that is kept, in pixels.
    pub crop: usize,
    /// The filter that is used for resizing.
    pub interpolation: Interpolation,
    /// The mean of red, green and blue, from 0 to 1.
    pub mean: [f32; 3],
    /// The standard deviation of red, green and blue.
    pub std: [f32; 3],
}

impl Default for Preprocessing {
    /// Returns the usual values for ImageNet: shorter side 256, bicubic, centre 224.
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
    /// Reads a TOML file with any of the fields. Missing fields get the values for ImageNet.
    ///
    /// # Errors
    /// If the file cannot be read, or has an unknown field or an invalid value.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(Error::read(path))?;
        let found: Self = toml::from_str(&text).map_err(|error| Error::File {
            path: path.into(),
            what: error.message().to_owned(),
            hint: "Use the fields resize = 256, crop = 224, interpolation = \"bicubic\", mean = [...], std = [...]."
                .into(),
        })?;
        found.check().map_err(|error| error.in_file(path))?;
        Ok(found)
    }

    /// Checks the values.
    ///
    /// # Errors
    /// If the crop is larger than the resized picture, a size is zero or too large, or a deviation is not positive.
    pub fn check(&self) -> Result<(), Error> {
        let finite = self.mean.iter().chain(&self.std).all(|value| value.is_finite());
        if !finite || self.std.iter().any(|&std| std <= 0.0) {
            return Err(Error::table(
                "`mean` and `std` must be finite, and `std` positive",
                "Use mean = [0.485, 0.456, 0.406] and std = [0.229, 0.224, 0.225], as for ImageNet.",
            ));
        }
        if self.crop == 0 || self.crop > self.resize || self.resize > MOST_PIXELS_A_SIDE {
            return Err(Error::table(
                format!(
                    "a centre of {} pixels cannot be cropped from a picture of {}",
                    self.crop, self.resize
                ),
                "Use 0 < crop <= resize <= 4096.",
            ));
        }
        Ok(())
    }

    /// Returns the fields as JSON. The same fields always give the same text.
    ///
    /// # Errors
    /// If a number is not finite.
    pub fn json(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|error| Error::table(error.to_string(), "Use finite numbers."))
    }

    /// Reads the preprocessing and the name of the network's output tensor from a table's source.
    ///
    /// # Errors
    /// If the source was not written by an extraction.
    pub fn of_source(source: &FeatureSource) -> Result<(Self, String), Error> {
        let bad = |what: String| Error::table(what, "Extract the features again.");
        let mut description: serde_json::Value =
            serde_json::from_str(&source.preprocessing).map_err(|error| bad(error.to_string()))?;
        let output = description.as_object_mut().and_then(|fields| fields.remove("output"));
        let output = output.and_then(|output| output.as_str().map(str::to_owned));
        let output =
            output.ok_or_else(|| bad("the source does not name the network's output tensor".into()))?;
        let found: Self = serde_json::from_value(description).map_err(|error| bad(error.to_string()))?;
        found.check()?;
        Ok((found, output))
    }

    /// Returns the red plane, then the green, then the blue, each row after row.
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

    /// Returns the centred range that is kept. Like torchvision, it rounds halves to even.
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
    fn resize_and_crop_sizes_equal_torchvision() {
        let preprocessing = Preprocessing::default();
        assert_eq!(preprocessing.centre(256), 16..240);
        assert_eq!(preprocessing.centre(227), 2..226, "1.5 rounds to even");
        assert_eq!(preprocessing.centre(229), 2..226, "2.5 rounds to even");
        // the resized line would have millions of pixels if it were computed whole
        let line = Picture { width: 60_000, height: 1, pixels: vec![255; 180_000] };
        assert_eq!(preprocessing.apply(&line).len(), 3 * 224 * 224);
    }

    #[test]
    fn preprocessing_file_is_read_and_checked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("net.toml");
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
