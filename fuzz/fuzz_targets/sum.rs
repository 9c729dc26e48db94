#![no_main]
//! Reads opened sums, and requests to open a sum.

use std::sync::{LazyLock, Mutex};

use dphe::party::{KeyGeneratorEvent, KeyGeneratorParty, Party as _};
use dphe::scheme::RoundParams;
use dphe::wire::{DecodeWith as _, Encode as _, ResultParams};
use dphe::{Round, WeightSum};
use dphe_fuzz::{NOW, PARTIES, TRANSCRIPT, rng};

/// A key generator that waits for a request, and the request.
static WAITING: LazyLock<(Mutex<KeyGeneratorParty>, &[u8])> = LazyLock::new(|| {
    let (log, request) = TRANSCRIPT.before.iter().find(|(_, message)| message[5] == 9).unwrap();
    (Mutex::new(PARTIES.start_key_generator(log).unwrap()), request)
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let task = PARTIES.roster.task();
    if let Ok(sum) = WeightSum::from_bytes(
        bytes,
        &ResultParams { params: &RoundParams::new(task, Round::FIRST), users: 3 },
    ) {
        assert_eq!(sum.to_bytes(), bytes);
    }
    // the signed request with another body is never accepted and changes nothing
    let (party, request) = &*WAITING;
    let message = [&request[..35 + 68 + 64], bytes].concat();
    if message != *request {
        let step = party.lock().unwrap().step(KeyGeneratorEvent::Message(message), NOW, &mut rng(1));
        assert!(step.is_err());
    }
});
