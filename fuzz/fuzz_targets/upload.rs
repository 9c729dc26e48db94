#![no_main]
//! Reads the content of uploads. The first byte says of which task and user it is, the second changes the number of
//! ciphertexts.

use dphe::scheme::RoundParams;
use dphe::wire::{DecodeWith as _, Encode as _, UploadParams};
use dphe::{Round, SealedUpdate};
use dphe_fuzz::{ONE, TASKS, user_id, write_seeds};

libfuzzer_sys::fuzz_target!(
    init: write_seeds(|| {
        let sealed = TASKS.iter().zip(0..).map(|(task, tag)| (task.sealed_updates(), tag));
        sealed
            .flat_map(|(all, tag)| all.into_iter().map(move |update| [&[tag, 0], &update.to_bytes()[..]].concat()))
            .collect()
    }),
    |bytes: &[u8]| {
        let [tag, more, content @ ..] = bytes else { return };
        let task = &TASKS[usize::from(tag % 2)];
        let count = task.ciphertexts + u32::from(*more);
        let user = user_id(1 + u32::from(tag / 2 % 4));
        let params = RoundParams::new(task.parties.roster.task(), Round::FIRST);
        let mut collecting = task.parties.roles.aggregator.begin(Round::FIRST);
        let context = UploadParams { params: &params, user, count, salt: [0; 16] };
        if let Ok(update) = SealedUpdate::from_bytes(content, &context) {
            assert_eq!(update.to_bytes(), content);
            let accepted = collecting.accept(update, ONE).is_ok();
            assert_eq!(collecting.users().len(), usize::from(accepted));
        }
    }
);
