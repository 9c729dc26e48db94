#![no_main]
//! Reads the key files of kits, with the checksum that they should have. The first byte says of whose kit.

use dphe::hazmat::short_keys;
use dphe::{AggregatorKeys, Error, IdentityKey, KeyGenerator, UserKeys};
use dphe_fuzz::{PARTIES, TASKS, forge, identity, key, user_id, write_seeds};

/// Reads a file and writes it again.
fn again(tag: u8, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let written = match tag % 4 {
        0 => IdentityKey::from_secret_bytes(bytes)?.to_secret_bytes(),
        1 => UserKeys::from_secret_bytes_with(bytes, short_keys())?.to_secret_bytes(),
        2 => AggregatorKeys::from_secret_bytes_with(bytes, short_keys())?.to_secret_bytes(),
        _ => {
            let key = key(256, PARTIES.roles.key_generator.encryption_key().mode());
            KeyGenerator::from_secret_bytes_with(bytes, key, short_keys())?.to_secret_bytes()
        }
    };
    Ok(written.to_vec())
}

libfuzzer_sys::fuzz_target!(
    init: write_seeds(|| {
        let mut seeds = vec![(0, identity(dphe::PartyId::Aggregator).to_secret_bytes().to_vec())];
        for task in &*TASKS {
            let parties = &task.parties;
            seeds.push((1, parties.user_keys[&user_id(2)].to_secret_bytes().to_vec()));
            seeds.push((2, parties.roles.key_generator.aggregator_keys().to_secret_bytes().to_vec()));
            seeds.push((3, parties.roles.key_generator.to_secret_bytes().to_vec()));
        }
        for (tag, seed) in &seeds {
            assert_eq!(again(*tag, seed).as_ref(), Ok(seed));
        }
        // without the checksum
        seeds.into_iter().map(|(tag, seed)| [&[tag], &seed[..seed.len() - 32]].concat()).collect()
    }),
    |bytes: &[u8]| {
        let Some((tag, content)) = bytes.split_first() else { return };
        let _ = again(*tag, content);
        let bytes = [content, &forge::hash("dphe/v2/kit", &[content])].concat();
        if let Ok(written) = again(*tag, &bytes) {
            assert_eq!(written, bytes);
        }
    }
);
