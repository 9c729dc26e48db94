//! The one way things are hashed (docs/protocol.md, section 2).

use core::fmt;

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// A hash of 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// 32 zeros: of nothing.
    pub const ZERO: Self = Self([0; 32]);

    /// The digest with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest of a model's bytes.
    pub fn of_model(model: &[u8]) -> Self {
        hash("dphe/v1/model", &[model])
    }
}

impl fmt::Display for Digest {
    /// The first eight bytes in hexadecimal: enough for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// `H(domain, parts...)`. Every part is preceded by its length, so that no two lists collide.
pub(crate) fn hash(domain: &str, parts: &[&[u8]]) -> Digest {
    let mut sha = Sha256::new();
    for part in core::iter::once(domain.as_bytes()).chain(parts.iter().copied()) {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part);
    }
    Digest(sha.finalize().into())
}

/// The same, for keys: the result is wiped when dropped.
pub(crate) fn derive(domain: &str, parts: &[&[u8]]) -> Zeroizing<[u8; 32]> {
    Zeroizing::new(hash(domain, parts).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_a_boundary_changes_the_hash() {
        let all = b"abcdef";
        let mut seen = Vec::new();
        for cut in 0..=all.len() {
            let (a, b) = all.split_at(cut);
            seen.push(hash("d", &[a, b]));
            seen.push(hash("d", &[a, b, b""]));
        }
        seen.push(hash("d", &[all]));
        seen.push(hash("da", &[&all[1..]]));
        let count = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
