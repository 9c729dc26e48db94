#![no_main]
//! Reads the bodies of uploads.

use dphe::scheme::RoundParams;
use dphe::wire::{DecodeWith as _, Encode as _, UploadParams};
use dphe::{Round, SealedUpdate};
use dphe_fuzz::{ONE, PARTIES, user_id};

libfuzzer_sys::fuzz_target!(|input: (u8, u32, &[u8])| {
    let (user, count, body) = input;
    // usually two shards of four columns and a dense ciphertext
    let count = if user & 0x80 == 0 { 9 } else { count };
    let user = user_id(1 + u32::from(user % 4));
    let mut collecting = PARTIES.roles.aggregator.begin(Round::FIRST);
    if let Ok(update) = SealedUpdate::from_bytes(
        body,
        &UploadParams { params: &RoundParams::new(PARTIES.roster.task(), Round::FIRST), user, count },
    ) {
        assert_eq!(update.to_bytes(), body);
        let accepted = collecting.accept(update, ONE).is_ok();
        assert_eq!(collecting.users().len(), usize::from(accepted));
    }
});
