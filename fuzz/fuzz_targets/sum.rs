#![no_main]
//! Reads opened and published sums, and requests to open a sum. The first byte says of which task it is.

use std::sync::{Arc, LazyLock, Mutex};

use dphe::party::{KeyGeneratorEvent, KeyGeneratorParty, Party as _};
use dphe::scheme::{RoundParams, UncheckedSum};
use dphe::wire::{DecodeWith as _, Encode as _, Kind, SumContext};
use dphe::{OpenedSum, Round};
use dphe_fuzz::{NOW, TASKS, Task, forge, rng, write_seeds};

/// What is kept for all inputs: a key generator that waits for a request, and the request.
struct Waiting {
    generator: Mutex<KeyGeneratorParty>,
    request: &'static [u8],
    params: Arc<RoundParams>,
}

impl Waiting {
    fn new(task: &'static Task) -> Self {
        let mut before = task.transcript.before.iter();
        let (log, request) = before.find(|(_, message)| message[5] == Kind::Decrypt.number()).unwrap();
        Self {
            generator: Mutex::new(task.parties.start_key_generator(log).unwrap()),
            request,
            params: Arc::new(RoundParams::new(task.parties.roster.task(), Round::FIRST)),
        }
    }
}

static WAITING: LazyLock<[Waiting; 2]> = LazyLock::new(|| [Waiting::new(&TASKS[0]), Waiting::new(&TASKS[1])]);

libfuzzer_sys::fuzz_target!(
    init: write_seeds(|| {
        let body = |task: &Task, tag, kind: Kind| {
            let message = task.transcript.of_kind(kind.number());
            [&[tag], &message[forge::header_bytes(kind.number()) + 64..]].concat()
        };
        let kinds = [Kind::RoundResult, Kind::Publish, Kind::Decrypt];
        TASKS.iter().zip(0..).flat_map(|(task, tag)| kinds.map(|kind| body(task, tag, kind))).collect()
    }),
    |bytes: &[u8]| {
        let Some((tag, bytes)) = bytes.split_first() else { return };
        let at = usize::from(tag % 2);
        let (parties, Waiting { generator, request, params }) = (&TASKS[at].parties, &WAITING[at]);
        let context = SumContext { params, users: 3, key: parties.roles.key_generator.encryption_key() };
        if let Ok(sum) = OpenedSum::from_bytes(bytes, &context) {
            assert_eq!(sum.to_bytes(), bytes);
        }
        if let Ok(sum) = UncheckedSum::from_bytes(bytes, &context) {
            assert_eq!(sum.to_bytes(), bytes);
            let _ = sum.check(&parties.roles.users[0]);
            let _ = sum.decode_unchecked(&parties.roles.aggregator);
        }
        // the signed request with another body is never accepted and changes nothing
        let signed = forge::header_bytes(Kind::Decrypt.number()) + 64;
        let message = [&request[..signed], bytes].concat();
        if message != *request {
            let step = generator.lock().unwrap().step(KeyGeneratorEvent::Message(message), NOW, &mut rng(1));
            assert!(step.is_err());
        }
    }
);
