//! Weights as integers, with one public scale per task (docs/protocol.md, section 4).

use zeroize::Zeroizing;

use crate::{ClipRule, Error};

/// The fixed-point encoding of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FixedPoint {
    /// `2^f`, exact.
    scale: f64,
    /// `2^c`, exact.
    clip: f64,
    /// `2^(f+c) - 1`, the largest magnitude.
    most: i64,
    rule: ClipRule,
}

/// A number that cannot be encoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unencodable(pub(crate) &'static str);

impl FixedPoint {
    pub(crate) fn new(scale_bits: u8, clip_exponent: i8, rule: ClipRule) -> Self {
        let bits = i32::from(scale_bits) + i32::from(clip_exponent);
        Self {
            scale: 2f64.powi(scale_bits.into()),
            clip: 2f64.powi(clip_exponent.into()),
            // TaskParams guarantees an exponent between 1 and 61
            most: (1i64 << bits.clamp(0, 62)) - 1,
            rule,
        }
    }

    /// Returns the integer nearest to `w 2^f`, with ties to even, and whether `w` was clipped. A magnitude that
    /// rounds to `2^c` becomes the largest magnitude, which is one step smaller.
    fn encode(&self, w: f64) -> Result<(i64, bool), Unencodable> {
        if !w.is_finite() {
            return Err(Unencodable("not a finite number"));
        }
        let outside = w.abs() > self.clip;
        if outside && self.rule == ClipRule::Refuse {
            return Err(Unencodable(
                "outside the task's range; clip it, or raise the clip exponent of the task",
            ));
        }
        // the conversion saturates, so every float is safe here
        let e = (w * self.scale).round_ties_even() as i64;
        Ok((e.clamp(-self.most, self.most), outside))
    }

    /// Encodes all weights, and counts the clipped ones.
    pub(crate) fn encode_all(&self, weights: &[f64]) -> Result<(Zeroizing<Vec<i64>>, usize), Error> {
        let mut clipped = 0;
        let mut integers = Zeroizing::new(Vec::with_capacity(weights.len()));
        for (index, &w) in weights.iter().enumerate() {
            let (e, outside) =
                self.encode(w).map_err(|Unencodable(reason)| Error::Value { index, reason })?;
            clipped += usize::from(outside);
            integers.push(e);
        }
        Ok((integers, clipped))
    }

    /// Returns `e 2^-f`, which is exact for magnitudes below `2^53`.
    pub(crate) fn decode(&self, e: i64) -> f64 {
        e as f64 / self.scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_rounds_to_even_within_the_range() {
        let fixed = FixedPoint::new(2, 1, ClipRule::Refuse);
        let encode = |w| fixed.encode(w).map(|(e, _)| e);
        assert_eq!(encode(0.125), Ok(0));
        assert_eq!(encode(0.375), Ok(2));
        assert_eq!(encode(-0.375), Ok(-2));
        assert_eq!(encode(-0.0), Ok(0));
        assert_eq!(encode(f64::MIN_POSITIVE / 2.0), Ok(0));
        assert_eq!(encode(2.0), Ok(7));
        assert_eq!(encode(-1.99), Ok(-7));
        for bad in [2.1, -2.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(encode(bad).is_err(), "{bad}");
        }
        let clipping = FixedPoint::new(2, 1, ClipRule::Clip);
        assert_eq!(clipping.encode(-1e300), Ok((-7, true)));
        assert_eq!(clipping.encode(2.0), Ok((7, false)));
        assert!(clipping.encode(f64::NAN).is_err());
    }
}
