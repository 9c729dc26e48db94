//! What people compare over the telephone: fingerprints of identity keys, and the hash of the roster.

use core::fmt;
use core::str::FromStr;

use dphe::{Digest, Identity, Roster};
use sha2::{Digest as _, Sha256};

use crate::hex;

/// The number of hexadecimal digits that people compare. The maker of a roster can try many, so two rosters with one
/// short form must be out of reach: 160 bits, as in OpenPGP, need about 2^80 attempts.
const DIGITS: usize = 40;
/// The number of hexadecimal digits of a whole hash.
const ALL_DIGITS: usize = 64;

/// The first 40 hexadecimal digits of a hash. `Display` prints them in groups of four.
#[derive(Clone, PartialEq, Eq)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Returns the fingerprint of an identity: the beginning of the SHA-256 hash of the public key.
    pub fn of_identity(identity: &Identity) -> Self {
        Self::of_hash(&Sha256::digest(identity.to_bytes()).into())
    }

    /// Returns the beginning of the roster's hash.
    pub fn of_roster(roster: &Roster) -> Self {
        Self::of_digest(&roster.hash())
    }

    /// Returns the beginning of a digest.
    pub fn of_digest(digest: &Digest) -> Self {
        Self::of_hash(digest.as_bytes())
    }

    fn of_hash(hash: &[u8; 32]) -> Self {
        Self(hex::encode(&hash[..DIGITS / 2]))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&grouped(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// The hash of the roster that a person passes to a party: at least its first 40 hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct RosterHash(String);

impl RosterHash {
    /// Returns whether these are the first digits of the roster's hash.
    pub fn matches(&self, roster: &Roster) -> bool {
        hex::encode(roster.hash().as_bytes()).starts_with(&self.0)
    }
}

impl FromStr for RosterHash {
    type Err = &'static str;

    /// Reads digits, which may be in groups that hyphens, colons or spaces separate.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits: String =
            text.chars().filter(|c| !matches!(c, '-' | ':' | ' ')).map(|c| c.to_ascii_lowercase()).collect();
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err("the hash of a roster consists of hexadecimal digits");
        }
        if digits.len() < DIGITS {
            return Err("the hash of a roster has at least 40 digits");
        }
        if digits.len() > ALL_DIGITS {
            return Err("the hash of a roster has at most 64 digits");
        }
        Ok(Self(digits))
    }
}

impl From<Digest> for RosterHash {
    fn from(hash: Digest) -> Self {
        Self(hex::encode(hash.as_bytes()))
    }
}

impl fmt::Display for RosterHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&grouped(&self.0))
    }
}

impl fmt::Debug for RosterHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RosterHash({self})")
    }
}

/// Separates digits into groups of four.
fn grouped(digits: &str) -> String {
    let groups: Vec<String> =
        digits.as_bytes().chunks(4).map(|group| String::from_utf8_lossy(group).into_owned()).collect();
    groups.join("-")
}

#[cfg(test)]
mod tests {
    use dphe::IdentityKey;

    use super::*;

    #[test]
    fn fingerprint_is_the_grouped_beginning_of_the_sha_256_hash_of_the_key() {
        let fingerprint = Fingerprint::of_digest(&Digest::from_bytes([0x1f; 32]));
        assert_eq!(fingerprint.to_string(), ["1f1f"; 10].join("-"));
        let identity = IdentityKey::from_seed(&[7; 32]).identity();
        let hash: [u8; 32] = Sha256::digest(identity.to_bytes()).into();
        let digits = Fingerprint::of_identity(&identity).to_string().replace('-', "");
        assert_eq!(digits, hex::encode(&hash)[..40]);
    }

    #[test]
    fn roster_hash_needs_40_to_64_digits_in_any_grouping() {
        let same = [
            "1f2e3d4c5b6a79880011aabbccddeeff00112233",
            "1f2e-3d4c-5b6a-7988-0011-aabb-ccdd-eeff-0011-2233",
            "1F2E 3d4c:5b6a 79880011AABBccddeeff 00112233",
        ];
        let read: Vec<RosterHash> = same.iter().map(|text| text.parse().unwrap()).collect();
        assert!(read.windows(2).all(|pair| pair[0] == pair[1]));
        assert_eq!(read[0].to_string(), same[1]);
        assert!("ab".repeat(32).parse::<RosterHash>().is_ok());
        for (wrong, reason) in [
            ("", "at least 40"),
            ("1f2e3d4c5b6a79880011aabbccddeeff0011223", "at least 40"),
            ("1f2e-3d4c-5b6a-7988-0011-aabb-ccdd-eeff-0011-223", "at least 40"),
            (&"ab".repeat(33), "at most 64"),
            ("1f2e3d4c5b6a79880011aabg", "hexadecimal"),
            ("1f2e_3d4c_5b6a_7988_0011_aabb", "hexadecimal"),
            ("é1f2e3d4c5b6a79880011aabb", "hexadecimal"),
        ] {
            assert!(wrong.parse::<RosterHash>().unwrap_err().contains(reason), "{wrong}");
        }
    }
}
