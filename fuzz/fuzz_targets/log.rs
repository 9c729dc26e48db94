#![no_main]
//! Logs, as they are found after a crash.

use dphe::Party;
use dphe::log::Log;
use dphe_fuzz::PARTIES;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // behind a good beginning, or from the beginning
    let prefix = Log::new(Party::KeyGenerator, &PARTIES.roster).prefix().to_vec();
    for bytes in [bytes.to_vec(), [&prefix[..], bytes].concat()] {
        if let Ok(read) = Log::recover(Party::KeyGenerator, &PARTIES.roster, &bytes) {
            let again = Log::recover(Party::KeyGenerator, &PARTIES.roster, &bytes[..read.valid]).unwrap();
            assert_eq!((again.valid, again.records), (read.valid, read.records));
        }
    }
});
