#![no_main]
//! Bodies of uploads, to an aggregator.

use dphe::{Round, SealedUpdate};
use dphe_fuzz::{ONE, PARTIES, user_id};

libfuzzer_sys::fuzz_target!(|input: (u8, u32, &[u8])| {
    let (user, count, body) = input;
    // two shards of four columns and a dense ciphertext, most of the time
    let count = if user & 0x80 == 0 { 9 } else { count };
    let user = user_id(1 + u32::from(user % 4));
    let mut collecting = PARTIES.roles.aggregator.begin(Round::FIRST);
    if let Ok(update) = SealedUpdate::from_body(PARTIES.roster.task(), Round::FIRST, user, count, body) {
        assert_eq!(update.to_body(), body);
        let accepted = collecting.accept(update, ONE).is_ok();
        assert_eq!(collecting.users().len(), usize::from(accepted));
    }
});
