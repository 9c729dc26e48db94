#![no_main]
//! Reads logs.

use dphe::PartyId;
use dphe::party::log::Log;
use dphe_fuzz::{PARTIES, TASKS, write_seeds};

libfuzzer_sys::fuzz_target!(
    init: write_seeds(|| TASKS[0].transcript.logs[&PartyId::KeyGenerator].clone()),
    |bytes: &[u8]| {
        // after a valid beginning, or from the beginning
        let prefix = Log::new(PartyId::KeyGenerator, &PARTIES.roster).prefix().to_vec();
        for bytes in [bytes.to_vec(), [&prefix[..], bytes].concat()] {
            if let Ok(read) = Log::recover(PartyId::KeyGenerator, &PARTIES.roster, &bytes) {
                let again = Log::recover(PartyId::KeyGenerator, &PARTIES.roster, &bytes[..read.valid]).unwrap();
                assert_eq!((again.valid, again.records), (read.valid, read.records));
            }
        }
    }
);
