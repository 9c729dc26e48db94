#![no_main]
//! Key files, public and secret.

use dphe_paillier::{DecryptionKey, EncryptionKey, hazmat};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // a file may ask for a passphrase cost up to a limit, which takes a second: that is not looked for here
    let dear = bytes
        .get(22..30)
        .is_some_and(|cost| cost[..2] != [0, 0] || cost[2] > 1 || cost[4..] > [0, 0, 0, 2][..]);
    let _ = EncryptionKey::from_bytes(bytes);
    if let Ok(key) = hazmat::read_public_key(bytes) {
        assert_eq!(key.to_bytes(), bytes);
    }
    if !dear {
        let _ = DecryptionKey::open(bytes, b"passphrase");
        let _ = hazmat::open_secret_key(bytes, b"passphrase");
    }
});
