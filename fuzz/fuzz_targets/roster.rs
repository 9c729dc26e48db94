#![no_main]
//! Reads rosters and changes of rosters, as they come and signed again.

use dphe::hazmat::short_keys;
use dphe::wire::RosterChange;
use dphe::{PartyId, Roster};
use dphe_fuzz::{PARTIES, TASKS, forge, write_seeds};

fn read(bytes: &[u8]) {
    let _ = Roster::decode(bytes);
    if let Ok(roster) = Roster::decode_with(bytes, short_keys()) {
        assert_eq!(roster.as_bytes(), bytes);
    }
    if let Ok(change) = RosterChange::decode_with(bytes, &PARTIES.roster, short_keys()) {
        assert_eq!(change.as_bytes(), bytes);
    }
}

libfuzzer_sys::fuzz_target!(
    init: write_seeds(|| TASKS.iter().map(|task| task.parties.roster.as_bytes().to_vec()).collect()),
    |bytes: &[u8]| {
        read(bytes);
        if let Some((content, _)) = bytes.split_last_chunk::<64>() {
            let signature = forge::signature(PartyId::KeyGenerator, "dphe/v2/roster", content);
            read(&[content, &signature].concat());
        }
    }
);
