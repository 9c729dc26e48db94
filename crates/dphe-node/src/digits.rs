//! Data that is always there: the handwritten digits of the UCI repository (see data/README.md).

use dphe_learn::{Dataset, Error, Features, Labels};

const BYTES: &[u8] = include_bytes!("../data/digits.bin");
const PIXELS: usize = 64;

/// All 1,797 digits, grey values from 0 to 16.
pub fn digits() -> Result<Dataset, Error> {
    let (mut labels, mut values) = (Vec::new(), Vec::new());
    for sample in BYTES.chunks_exact(1 + PIXELS) {
        labels.push(sample[0].into());
        values.extend(sample[1..].iter().map(|&grey| f32::from(grey)));
    }
    Dataset::new(Features::new(PIXELS, values)?, Labels::classes(10, labels)?)
}

/// What the classes are called.
pub fn names() -> Vec<String> {
    (0..10).map(|digit: u32| digit.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digits_are_whole() {
        let data = digits().unwrap();
        assert_eq!(data.len(), 1797);
        assert_eq!(data.labels().counts(), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        // as scikit-learn has it: the sum of all grey values
        let sum: f64 = data.features().values().iter().map(|&v| f64::from(v)).sum();
        assert_eq!(sum, 561_718.0);
        assert_eq!(names().len(), 10);
    }
}
