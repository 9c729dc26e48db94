#![no_main]
//! Starts parties from well-formed logs with arbitrary checkpoints. The first byte says of which task and party.

use dphe::PartyId;
use dphe::party::log::Log;
use dphe_fuzz::{TASKS, user_id, write_seeds};

fn party(tag: u8) -> PartyId {
    match tag / 2 % 3 {
        0 => PartyId::Aggregator,
        1 => PartyId::KeyGenerator,
        _ => PartyId::User(user_id(2)),
    }
}

libfuzzer_sys::fuzz_target!(
    init: write_seeds(|| {
        let mut seeds = Vec::new();
        for tag in 0..6 {
            let task = &TASKS[usize::from(tag % 2)];
            let logs = &task.transcript.logs[&party(tag)];
            let last = Log::recover(party(tag), &task.parties.roster, logs.last().unwrap()).unwrap();
            seeds.extend(last.checkpoint.map(|state| [&[tag], state].concat()));
        }
        assert!(!seeds.is_empty());
        seeds
    }),
    |bytes: &[u8]| {
        let Some((tag, state)) = bytes.split_first() else { return };
        let (parties, party) = (&TASKS[usize::from(tag % 2)].parties, party(*tag));
        let log = Log::new(party, &parties.roster).checkpoint(state);
        match party {
            PartyId::Aggregator => drop(parties.start_aggregator(&log)),
            PartyId::KeyGenerator => drop(parties.start_key_generator(&log)),
            PartyId::User(user) => drop(parties.start_user(user.get(), &log)),
        }
    }
);
