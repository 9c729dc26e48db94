//! Resizes 8-bit pictures exactly as Pillow does, so that features agree with those of other programs.
//!
//! There are two passes with rounding to 8 bits between them. The weights of a pixel are a filter stretched by the
//! scale (antialiasing), in fixed point with 22 fractional bits. Only the part that a crop keeps is computed. Output
//! pixels do not depend on each other, so the result is the same as resizing everything and cropping.

use core::ops::Range;

/// Fractional bits of weights: 32 minus 8 for the pixel and 2 for overshoot.
const PRECISION: u32 = 22;

/// The filter for resizing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// A triangle with a support of two pixels.
    Bilinear,
    /// A cubic with a support of four pixels and a = -1/2.
    Bicubic,
}

impl Interpolation {
    fn support(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let x = x.abs();
        match self {
            Self::Bilinear if x < 1.0 => 1.0 - x,
            Self::Bicubic if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
            Self::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
            _ => 0.0,
        }
    }
}

/// An RGB picture with three bytes per pixel, row after row.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) pixels: Vec<u8>,
}

impl Picture {
    /// Resizes to `width` x `height` and returns only these `columns` and `rows`.
    pub(crate) fn resized(
        &self,
        (width, height): (usize, usize),
        columns: Range<usize>,
        rows: Range<usize>,
        filter: Interpolation,
    ) -> Self {
        let across = weights(self.width, width, columns, filter);
        let down = weights(self.height, height, rows, filter);
        // the rows that the second pass needs
        let first = down.iter().map(|w| w.start).min().unwrap_or(0);
        let last = down.iter().map(|w| w.start + w.values.len()).max().unwrap_or(0);

        let mut between = Vec::with_capacity((last - first) * across.len() * 3);
        for row in self.pixels.chunks_exact(self.width * 3).take(last).skip(first) {
            for w in &across {
                let mut sums = [1 << (PRECISION - 1); 3];
                let (pixels, _) = row[w.start * 3..].as_chunks::<3>();
                for (pixel, &weight) in pixels.iter().zip(&w.values) {
                    for (sum, &value) in sums.iter_mut().zip(pixel) {
                        *sum += i32::from(value) * weight;
                    }
                }
                between.extend(sums.map(clip));
            }
        }
        let stride = across.len() * 3;
        let mut pixels = Vec::with_capacity(down.len() * stride);
        let mut sums = vec![0; stride];
        for w in &down {
            sums.fill(1 << (PRECISION - 1));
            let start = (w.start - first) * stride;
            for (row, &weight) in between[start..].chunks_exact(stride).zip(&w.values) {
                for (sum, &value) in sums.iter_mut().zip(row) {
                    *sum += i32::from(value) * weight;
                }
            }
            pixels.extend(sums.iter().map(|&sum| clip(sum)));
        }
        Self { width: across.len(), height: down.len(), pixels }
    }
}

fn clip(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

/// The weights of consecutive old pixels in one new pixel.
struct Weights {
    start: usize,
    values: Vec<i32>,
}

/// Computes the weights of the new pixels in `kept`, like Pillow's `precompute_coeffs` and `normalize_coeffs_8bpc`.
fn weights(old: usize, new: usize, kept: Range<usize>, filter: Interpolation) -> Vec<Weights> {
    let scale = old as f64 / new as f64;
    let stretch = scale.max(1.0);
    let support = filter.support() * stretch;
    kept.map(|x| {
        let center = (x as f64 + 0.5) * scale;
        // casts of negative numbers give 0, as Pillow clamps
        let start = (center - support + 0.5) as usize;
        let end = ((center + support + 0.5) as usize).min(old);
        let values: Vec<f64> =
            (start..end).map(|i| filter.weight((i as f64 - center + 0.5) * (1.0 / stretch))).collect();
        let sum: f64 = values.iter().sum();
        let fixed = |value: f64| {
            let value = if sum == 0.0 { value } else { value / sum } * f64::from(1 << PRECISION);
            // Pillow adds or subtracts one half and casts, which rounds halves away from zero
            (value + 0.5f64.copysign(value)) as i32
        };
        Weights { start, values: values.into_iter().map(fixed).collect() }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_size_is_identity_and_crop_equals_part_of_whole() {
        let pixels = (0..7 * 5 * 3).map(|i| (i * 37 % 256) as u8).collect();
        let picture = Picture { width: 7, height: 5, pixels };
        for filter in [Interpolation::Bilinear, Interpolation::Bicubic] {
            let same = picture.resized((7, 5), 0..7, 0..5, filter);
            assert!(same == picture);
            let whole = picture.resized((4, 9), 0..4, 0..9, filter);
            let part = picture.resized((4, 9), 1..3, 2..8, filter);
            for y in 0..6 {
                let row = &whole.pixels[((y + 2) * 4 + 1) * 3..][..6];
                assert_eq!(&part.pixels[y * 6..][..6], row);
            }
        }
    }

    #[test]
    fn uniform_colour_is_preserved() {
        let picture = Picture { width: 50, height: 3, pixels: vec![201; 450] };
        let resized = picture.resized((11, 64), 0..11, 0..64, Interpolation::Bicubic);
        assert!(resized.pixels.iter().all(|&value| value == 201));
    }
}
