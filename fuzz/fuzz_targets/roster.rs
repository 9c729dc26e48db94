#![no_main]
//! Reads rosters and changes of rosters.

use dphe::Roster;
use dphe::hazmat::short_keys;
use dphe::wire::RosterChange;
use dphe_fuzz::PARTIES;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Roster::decode(bytes);
    if let Ok(roster) = Roster::decode_with(bytes, short_keys()) {
        assert_eq!(roster.as_bytes(), bytes);
    }
    if let Ok(change) = RosterChange::decode_with(bytes, &PARTIES.roster, short_keys()) {
        assert_eq!(change.as_bytes(), bytes);
    }
});
