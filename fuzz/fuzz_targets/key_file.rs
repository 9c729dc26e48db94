#![no_main]
//! Reads public and secret key files.

use dphe_paillier::{DecryptionKey, EncryptionKey, hazmat};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // A file may ask for a passphrase cost that takes a second. Such files are not tried.
    let costly = bytes
        .get(22..30)
        .is_some_and(|cost| cost[..2] != [0, 0] || cost[2] > 1 || cost[4..] > [0, 0, 0, 2][..]);
    let _ = EncryptionKey::from_bytes(bytes);
    if let Ok(key) = hazmat::read_public_key(bytes) {
        assert_eq!(key.to_bytes(), bytes);
    }
    if !costly {
        let _ = DecryptionKey::from_encrypted_bytes(bytes, b"passphrase");
        let _ = hazmat::read_secret_key(bytes, b"passphrase");
    }
});
