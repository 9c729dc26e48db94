#![no_main]
//! Decodes messages of every kind, as they come, and signed again by their sender: without that, no changed message
//! would pass the check of its signature.

use dphe::PartyId;
use dphe::wire::*;
use dphe_fuzz::{TASKS, Task, forge, user_id, write_seeds};

fn decode<M: Message>(task: &Task, bytes: &[u8]) {
    let roster = &task.parties.roster;
    if let Ok(message) = Signed::<M>::decode(bytes, roster) {
        assert_eq!(message.to_bytes(), bytes);
    }
    let Some((header, rest)) = bytes.split_at_checked(forge::header_bytes(M::KIND.number())) else { return };
    if header[5] != M::KIND.number() {
        return;
    }
    let from = match header[30] {
        1 => PartyId::Aggregator,
        2 => PartyId::KeyGenerator,
        _ => PartyId::User(user_id(1 + u32::from(header[34] % 3))),
    };
    let body = rest.get(64..).unwrap_or(&[]);
    let bytes = [header, &forge::signature(from, &forge::domain(M::KIND), header), body].concat();
    if let Ok(message) = Signed::<M>::decode(&bytes, roster) {
        assert_eq!(message.to_bytes(), bytes);
    }
}

libfuzzer_sys::fuzz_target!(
    init: write_seeds(|| {
        let all = TASKS.iter().flat_map(|task| &task.transcript.messages);
        all.map(|(_, message)| message.clone()).collect()
    }),
    |bytes: &[u8]| {
        for task in &*TASKS {
            decode::<RoundOpen>(task, bytes);
            decode::<RoundTicket>(task, bytes);
            decode::<Upload>(task, bytes);
            decode::<UploadAck>(task, bytes);
            decode::<Freeze>(task, bytes);
            decode::<FreezeAck>(task, bytes);
            decode::<Decrypt>(task, bytes);
            decode::<RoundResult>(task, bytes);
            decode::<Publish>(task, bytes);
            decode::<Inclusion>(task, bytes);
            decode::<Close>(task, bytes);
        }
        let _ = decode_list(bytes);
    }
);
