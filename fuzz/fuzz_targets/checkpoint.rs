#![no_main]
//! Starts parties from well-formed logs with arbitrary checkpoints.

use dphe::PartyId;
use dphe::party::log::Log;
use dphe_fuzz::{PARTIES, user_id};

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8])| {
    let (party, state) = input;
    let log = |party| Log::new(party, &PARTIES.roster).checkpoint(state);
    match party % 3 {
        0 => drop(PARTIES.start_aggregator(&log(PartyId::Aggregator))),
        1 => drop(PARTIES.start_key_generator(&log(PartyId::KeyGenerator))),
        _ => drop(PARTIES.start_user(2, &log(PartyId::User(user_id(2))))),
    }
});
