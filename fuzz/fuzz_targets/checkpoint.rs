#![no_main]
//! States in well-formed logs, to parties that start from them.

use dphe::Party;
use dphe::log::Log;
use dphe_fuzz::{PARTIES, user_id};

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8])| {
    let (party, state) = input;
    let log = |party| Log::new(party, &PARTIES.roster).checkpoint(state);
    match party % 3 {
        0 => drop(PARTIES.start_aggregator(&log(Party::Aggregator))),
        1 => drop(PARTIES.start_key_generator(&log(Party::KeyGenerator))),
        _ => drop(PARTIES.start_user(2, &log(Party::User(user_id(2))))),
    }
});
