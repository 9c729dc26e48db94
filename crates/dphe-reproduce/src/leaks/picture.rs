//! Images, stored as numbers of a measurement. The sample is on the left, and the recovered sample is on the right.

use crate::{GreyImage, Measurement};

/// Adds a pair of images to a measurement.
pub(super) fn keep(measurement: &mut Measurement, number: usize, left: &[f64], right: &[f64]) {
    for (side, pixels) in [("left", left), ("right", right)] {
        for (i, &pixel) in pixels.iter().enumerate() {
            measurement.insert(format!("picture{number}_{side}_{i:04}"), pixel);
        }
    }
}

/// Returns the pair with this number as one image, with a white line between the two, if it was kept. `white` is the
/// largest value of a pixel.
pub(super) fn pair(
    measurement: &Measurement,
    number: usize,
    width: usize,
    white: f64,
    lines: Vec<String>,
) -> Option<GreyImage> {
    let side = |side: &str| -> Vec<u8> {
        let prefix = format!("picture{number}_{side}_");
        let pixels = measurement.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(&prefix));
        // the cast saturates at 0 and 255
        pixels.map(|(_, &pixel)| (pixel / white * 255.0).round() as u8).collect()
    };
    let (left, right) = (side("left"), side("right"));
    if left.is_empty() || left.len() != right.len() || !left.len().is_multiple_of(width) {
        return None;
    }
    let rows = left.chunks(width).zip(right.chunks(width));
    let grey = rows.flat_map(|(left, right)| left.iter().chain(&[255]).chain(right)).copied().collect();
    Some(GreyImage { lines, width: 2 * width + 1, grey })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_pairs_are_drawn_side_by_side() {
        let mut measurement = Measurement::new();
        keep(&mut measurement, 1, &[0.0, 16.0, 8.0, 4.0], &[16.0, -1.0, 99.0, 0.0]);
        let picture = pair(&measurement, 1, 2, 16.0, vec![]).unwrap();
        assert_eq!(picture.width, 5);
        assert_eq!(picture.grey, [0, 255, 255, 255, 0, 128, 64, 255, 255, 0]);
        assert_eq!(pair(&measurement, 0, 2, 16.0, vec![]), None);
        assert_eq!(pair(&measurement, 1, 3, 16.0, vec![]), None);
    }
}
