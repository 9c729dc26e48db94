#![no_main]
//! Decodes messages of every kind.

use dphe::wire::*;
use dphe_fuzz::PARTIES;

fn decode<M: Message>(bytes: &[u8]) {
    if let Ok(message) = Signed::<M>::decode(bytes, &PARTIES.roster) {
        assert_eq!(message.to_bytes(), bytes);
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let all =
        [decode::<RoundOpen>, decode::<RoundTicket>, decode::<Upload>, decode::<UploadAck>, decode::<Freeze>];
    all.iter().for_each(|decode| decode(bytes));
    let rest =
        [decode::<FreezeAck>, decode::<Decrypt>, decode::<RoundResult>, decode::<Publish>, decode::<Close>];
    rest.iter().for_each(|decode| decode(bytes));
});
