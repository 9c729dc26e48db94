//! Which key lengths a task may have.

use dphe_paillier::{DecryptionKey, EncryptionKey, KeyBits};

#[cfg(feature = "hazmat")]
use crate::Profile;
use crate::TaskConfig;

/// The key lengths that a reader of tasks, rosters and keys accepts. The default accepts 2048 bits and more. Only
/// [`crate::hazmat`] has values that accept less, so no call behaves differently because a feature is enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyLengths(Accepted);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Accepted {
    #[default]
    Secure,
    #[cfg(feature = "hazmat")]
    ShortInPaper,
    #[cfg(feature = "hazmat")]
    Short,
}

impl KeyLengths {
    #[cfg(feature = "hazmat")]
    pub(crate) const SHORT_IN_PAPER: Self = Self(Accepted::ShortInPaper);
    #[cfg(feature = "hazmat")]
    pub(crate) const SHORT: Self = Self(Accepted::Short);

    #[cfg(feature = "hazmat")]
    fn allows_short(self, config: &TaskConfig) -> bool {
        match self.0 {
            Accepted::Secure => false,
            Accepted::ShortInPaper => config.profile == Profile::Paper,
            Accepted::Short => true,
        }
    }

    pub(crate) fn key_bits(self, config: &TaskConfig) -> Result<KeyBits, dphe_paillier::Error> {
        #[cfg(feature = "hazmat")]
        if self.allows_short(config) {
            return dphe_paillier::hazmat::insecure_key_bits(config.key_bits);
        }
        KeyBits::new(config.key_bits)
    }

    /// Reads the encryption key of a task with this configuration.
    ///
    /// # Errors
    /// As [`EncryptionKey::from_bytes`].
    pub fn encryption_key(
        self,
        #[cfg_attr(not(feature = "hazmat"), expect(unused_variables))] config: &TaskConfig,
        bytes: &[u8],
    ) -> Result<EncryptionKey, dphe_paillier::Error> {
        #[cfg(feature = "hazmat")]
        if self.allows_short(config) {
            return dphe_paillier::hazmat::read_public_key(bytes);
        }
        EncryptionKey::from_bytes(bytes)
    }

    /// Reads the decryption key of a task with this configuration from its encrypted file.
    ///
    /// # Errors
    /// As [`DecryptionKey::from_encrypted_bytes`].
    pub fn decryption_key(
        self,
        #[cfg_attr(not(feature = "hazmat"), expect(unused_variables))] config: &TaskConfig,
        bytes: &[u8],
        passphrase: &[u8],
    ) -> Result<DecryptionKey, dphe_paillier::Error> {
        #[cfg(feature = "hazmat")]
        if self.allows_short(config) {
            return dphe_paillier::hazmat::read_secret_key(bytes, passphrase);
        }
        DecryptionKey::from_encrypted_bytes(bytes, passphrase)
    }
}
