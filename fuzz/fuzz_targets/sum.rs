#![no_main]
//! Opened sums, as the aggregator gets them, and requests to open one.

use std::sync::{LazyLock, Mutex};

use dphe::party::{KeyGeneratorEvent, KeyGeneratorParty};
use dphe::{Round, WeightSum};
use dphe_fuzz::{NOW, PARTIES, TRANSCRIPT, rng};

/// A key generator that waits for the request, and the request.
static WAITING: LazyLock<(Mutex<KeyGeneratorParty>, &[u8])> = LazyLock::new(|| {
    let (log, request) = TRANSCRIPT.before.iter().find(|(_, message)| message[5] == 9).unwrap();
    (Mutex::new(PARTIES.start_key_generator(log).unwrap()), request)
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let task = PARTIES.roster.task();
    if let Ok(sum) = WeightSum::from_payload(task, Round::FIRST, 3, bytes) {
        assert_eq!(sum.to_payload(task), bytes);
    }
    // the signed request with another body: never taken, and nothing changes
    let (party, request) = &*WAITING;
    let message = [&request[..35 + 68 + 64], bytes].concat();
    if message != *request {
        let step = party.lock().unwrap().step(KeyGeneratorEvent::Message(message), NOW, &mut rng(1));
        assert!(step.is_err());
    }
});
