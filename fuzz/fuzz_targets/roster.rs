#![no_main]
//! Reads rosters.

use dphe::Roster;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Roster::decode(bytes);
    if let Ok(roster) = Roster::decode_with(bytes, dphe::hazmat::short_keys()) {
        assert_eq!(roster.as_bytes(), bytes);
    }
});
