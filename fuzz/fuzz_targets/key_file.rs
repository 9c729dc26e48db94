#![no_main]
//! Reads public and secret key files.

use dphe_fuzz::{PARTIES, key, rng, write_seeds};
use dphe_paillier::{DecryptionKey, EncryptionKey, PassphraseCost, hazmat};

libfuzzer_sys::fuzz_target!(
    init: write_seeds(|| {
        let public = PARTIES.roles.key_generator.encryption_key();
        let secret = key(256, public.mode());
        let encrypted = secret.to_encrypted_bytes(b"passphrase", PassphraseCost::TEST, &mut rng(1)).unwrap();
        vec![public.to_bytes(), encrypted]
    }),
    |bytes: &[u8]| {
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
    }
);
