//! The hash function that everything uses (docs/protocol.md, section 2).

use core::fmt;

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::wire::domains;

/// A SHA-256 hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// 32 zero bytes, which stand for the absence of a hash.
    pub const ZERO: Self = Self([0; 32]);

    /// Creates a digest from its bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the digest of a model.
    pub fn of_model(model: &[u8]) -> Self {
        hash(domains::MODEL, &[model])
    }

    /// Returns the digest of a task file.
    pub fn of_task_file(file: &[u8]) -> Self {
        hash(domains::TASK_FILE, &[file])
    }

    /// Returns the digest of the body of an upload.
    pub(crate) fn of_upload(body: &[u8]) -> Self {
        hash(domains::UPLOAD_BODY, &[body])
    }

    /// Returns the digest of a sealed sum.
    pub(crate) fn of_sum(body: &[u8]) -> Self {
        hash(domains::SUM, &[body])
    }

    /// Returns the digest of a published sum.
    pub fn of_sum_bytes(sum: &[u8]) -> Self {
        Self::of_payload(sum)
    }

    /// Returns the digest of an opened sum.
    pub(crate) fn of_payload(payload: &[u8]) -> Self {
        hash(domains::PAYLOAD, &[payload])
    }
}

impl fmt::Display for Digest {
    /// Prints the first eight bytes in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Computes `H(domain, parts...)`. A length precedes every part, so that different lists never have the same input.
pub(crate) fn hash(domain: &str, parts: &[&[u8]]) -> Digest {
    let mut sha = Sha256::new();
    for part in core::iter::once(domain.as_bytes()).chain(parts.iter().copied()) {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part);
    }
    Digest(sha.finalize().into())
}

/// Computes the same hash as a key, which is wiped when dropped.
pub(crate) fn derive(domain: &str, parts: &[&[u8]]) -> Zeroizing<[u8; 32]> {
    Zeroizing::new(hash(domain, parts).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_depends_on_the_boundaries_between_parts() {
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
