#![no_main]
//! Rosters, as they come from somebody.

use dphe::Roster;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Roster::decode(bytes);
    if let Ok(roster) = dphe::hazmat::decode_roster(bytes) {
        assert_eq!(roster.as_bytes(), bytes);
    }
});
