//! The handwritten digits that come with the program `dphe`.

use dphe_learn::{Dataset, Error, Features, Labels};

/// Returns 1,797 images of 8 x 8 pixels with grey values from 0 to 16.
///
/// # Errors
/// None. The file is part of the repository.
pub fn digits() -> Result<Dataset, Error> {
    let bytes = include_bytes!("../crates/dphe-cli/data/digits.bin");
    // A sample is its label and 64 bytes.
    let labels = bytes.chunks_exact(65).map(|sample| sample[0].into()).collect();
    let greys = bytes.chunks_exact(65).flat_map(|sample| &sample[1..]).map(|&grey| f32::from(grey)).collect();
    Dataset::new(Features::new(64, greys)?, Labels::classes(10, labels)?)
}
