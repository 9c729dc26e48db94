//! Feeds mutated valid bytes to everything that reads bytes. Nothing panics, and no forgery is accepted.
//!
//! `DPHE_FUZZ_SECONDS` sets the time per test (one second by default), and `DPHE_FUZZ_SEED` the seed. Signed and
//! chained bytes are also signed and chained again after a mutation, because otherwise the first check would refuse
//! all of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use chacha20::ChaCha20Rng;
use dphe::hazmat::paper_keys;
use dphe::party::log::Log;
use dphe::party::{Action, AggregatorEvent, KeyGeneratorEvent, Party as _, UserEvent};
use dphe::scheme::{RoundParams, UncheckedSum};
use dphe::wire::{
    Close, DecodeWith as _, Decrypt, Encode as _, Freeze, FreezeAck, Inclusion, Kind, Message, Publish,
    RoundOpen, RoundResult, RoundTicket, Signed, SumContext, Upload, UploadAck, UploadParams,
};
use dphe::{
    AggregatorKeys, Digest, Error, IdentityKey, KeyGenerator, OpenedSum, PartyId, Profile, PublicSupport,
    Receipts, Roster, Round, SealedUpdate, TaskConfig, Update, UserKeys,
};
use rand_core::Rng as _;
use support::forge::{self, domain, hash, header_bytes, signature};
use support::{
    MODEL, NOW, ONE, Parties, Transcript, below, config, config_without_receipts, rng, roles, transcript,
    update, user_id,
};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().unwrap())
}

/// Calls `run` with the valid bytes, and then with mutated ones until the time is over.
fn fuzz(name: &str, seeds: &[Vec<u8>], mut run: impl FnMut(&mut ChaCha20Rng, Vec<u8>)) {
    let until = Instant::now() + Duration::from_secs(setting("DPHE_FUZZ_SECONDS", 1));
    let mut rng = rng(setting("DPHE_FUZZ_SEED", 1));
    seeds.iter().for_each(|seed| run(&mut rng, seed.clone()));
    let mut executions = seeds.len();
    while Instant::now() < until {
        for _ in 0..16 {
            let mut bytes = seeds[below(&mut rng, seeds.len())].clone();
            let steps = 1 + below(&mut rng, 3);
            (0..steps).for_each(|_| mutate(&mut bytes, seeds, &mut rng));
            run(&mut rng, bytes);
            executions += 1;
        }
    }
    println!("{name}: {executions} executions");
}

fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut ChaCha20Rng) {
    let length = bytes.len();
    // often near the beginning, where lengths and counts are
    let near = below(rng, 2) == 0;
    let at = below(rng, if near { length.min(300) } else { length });
    let count = 1 + below(rng, 64);
    let end = (at + count).min(length);
    match below(rng, 9) {
        0 | 1 if length > 0 => bytes[at] ^= 1 << below(rng, 8),
        2 if length > 0 => bytes[at] = rng.next_u32() as u8,
        3 => bytes.truncate(at),
        4 => bytes.extend((0..count).map(|_| if near { 0 } else { rng.next_u32() as u8 })),
        5 => {
            let other = &seeds[below(rng, seeds.len())];
            let from = below(rng, other.len());
            let piece = other[from..(from + count).min(other.len())].to_vec();
            let keep = if near { end } else { at };
            bytes.splice(at..keep, piece);
        }
        6 => drop(bytes.drain(at..end)),
        7 => {
            let width = [1, 2, 4, 8][below(rng, 4)];
            let edges = [
                0,
                1,
                2,
                0x7f,
                0x80,
                0xff,
                1 << 15,
                1 << 20,
                (1 << 31) - 1,
                1 << 31,
                u64::MAX >> 1,
                u64::MAX,
            ];
            let number = match below(rng, 14) {
                12 => length as u64,
                13 => length as u64 + 1,
                i => edges[i],
            };
            if let Some(field) = bytes.get_mut(at..at + width) {
                field.copy_from_slice(&number.to_be_bytes()[8 - width..]);
            }
        }
        _ if length > 0 => {
            let to = below(rng, length);
            bytes.swap(at, to);
        }
        _ => {}
    }
}

/// A valid round of three users, with all messages and logs.
type Valid = (Parties, Transcript);

fn valid_round(profile: Profile) -> Valid {
    let parties = Parties::new(TaskConfig { max_attempts: 16, ..config(profile) }, 3);
    let support = PublicSupport::of(parties.roster.task(), Round::FIRST);
    let transcript = transcript(&parties, |user| local_in(&support, user));
    (parties, transcript)
}

/// A round whose sums are checked.
fn valid() -> &'static Valid {
    static VALID: OnceLock<Valid> = OnceLock::new();
    VALID.get_or_init(|| valid_round(Profile::Sparse))
}

/// A round whose sums are masked.
fn valid_masked() -> &'static Valid {
    static VALID: OnceLock<Valid> = OnceLock::new();
    VALID.get_or_init(|| valid_round(Profile::Full))
}

fn local(user: u32) -> Update {
    update(24, &[(user, 0.25), (20, 0.5)], &[1.0, -0.5])
}

/// An update within a public support, if there is one.
fn local_in(support: &PublicSupport, user: u32) -> Update {
    match support.indices().next() {
        None => local(user),
        Some(index) => update(24, &[(index as u32, 0.5)], &[1.0, -0.5]),
    }
}

#[test]
fn mutated_rosters_are_refused() {
    let (parties, _) = valid();
    let other = Parties::new(TaskConfig { dense: 7, ..config(Profile::Full) }, 5);
    let seeds = [parties.roster.as_bytes().to_vec(), other.roster.as_bytes().to_vec()];
    fuzz("roster", &seeds, |rng, mut bytes| {
        let resign = below(rng, 2) == 0 && bytes.len() > 64;
        if resign {
            let end = bytes.len() - 64;
            let signature = signature(PartyId::KeyGenerator, "dphe/v2/roster", &bytes[..end]);
            bytes[end..].copy_from_slice(&signature);
        }
        let _ = Roster::decode(&bytes);
        if let Ok(roster) = Roster::decode_with(&bytes, dphe::hazmat::short_keys()) {
            assert_eq!(roster.as_bytes(), bytes);
            assert!(resign || seeds.contains(&bytes), "a forged roster was believed");
            // its methods must not panic
            let _ = (roster.floor(), roster.task().policy_hash(), roster.initial_model(), roster.agreement());
            if roster.task().dimension() < 1 << 16 {
                let _ = dphe::wire::max_upload_bytes(roster.task());
            }
        }
    });
}

/// The kinds of messages with a body, which is not signed but named by the header.
const HAVE_BODIES: [u8; 4] = [3, 9, 10, 11];

fn messages<M: Message>() {
    for (parties, transcript) in [valid(), valid_masked()] {
        messages_of::<M>(parties, transcript);
    }
}

fn messages_of<M: Message>(parties: &Parties, transcript: &Transcript) {
    let roster = &parties.roster;
    let of_kind = transcript.messages.iter().filter(|(_, message)| message[5] == M::KIND.number());
    let seeds: Vec<Vec<u8>> = of_kind.map(|(_, message)| message.clone()).collect();
    assert!(!seeds.is_empty());
    let known: Vec<_> = seeds.iter().map(|seed| Signed::<M>::decode(seed, roster).unwrap().hash()).collect();
    let header = header_bytes(M::KIND.number());
    let domain = domain(M::KIND);
    let mut resigned_and_valid = 0;
    let mut run = |rng: &mut ChaCha20Rng, bytes: Vec<u8>| {
        if let Ok(message) = Signed::<M>::decode(&bytes, roster) {
            assert_eq!(message.to_bytes(), bytes);
            assert!(known.contains(&message.hash()), "a forged {} was believed", M::KIND.as_str());
            assert!(HAVE_BODIES.contains(&M::KIND.number()) || seeds.contains(&bytes));
        }
        // the same header, signed again by its sender or by another party; not always, because signing is slow
        if bytes.len() >= header && (below(rng, 8) == 0 || seeds.contains(&bytes)) {
            let from = [
                PartyId::Aggregator,
                PartyId::KeyGenerator,
                PartyId::User(user_id(1)),
                PartyId::User(user_id(2)),
            ];
            let from = match (bytes[26 + 4], below(rng, 8)) {
                (role @ 1..=2, 1..) => from[usize::from(role) - 1],
                (_, i) => from[i % 4],
            };
            let (head, rest) = bytes.split_at(header);
            let body = rest.get(64..).unwrap_or(&[]);
            let bytes = [head, &signature(from, &domain, head), body].concat();
            if let Ok(message) = Signed::<M>::decode(&bytes, roster) {
                assert_eq!(message.to_bytes(), bytes);
                resigned_and_valid += 1;
            }
        }
    };
    fuzz(M::KIND.as_str(), &seeds, &mut run);
    assert!(resigned_and_valid > 0);
}

macro_rules! message_tests {
    ($($name:ident: $message:ty;)*) => {$(
        #[test]
        fn $name() {
            messages::<$message>();
        }
    )*};
}

message_tests! {
    round_opens: RoundOpen;
    round_tickets: RoundTicket;
    uploads: Upload;
    upload_acks: UploadAck;
    freezes: Freeze;
    freeze_acks: FreezeAck;
    decrypts: Decrypt;
    results: RoundResult;
    publishes: Publish;
    closes: Close;
    inclusions: Inclusion;
}

fn upload_bodies(name: &str, config: TaskConfig) {
    let mut roles = roles(config, 3, 1);
    let task = roles.key_generator.task().clone();
    let support = PublicSupport::of(&task, Round::FIRST);
    let seal = |user: usize, rng: &mut ChaCha20Rng| {
        let update = local_in(&support, user as u32 + 1);
        roles.users[user].seal(Round::FIRST, &update, rng, ONE).unwrap()
    };
    let mut seeds_rng = rng(9);
    let sealed: Vec<_> = (0..3).map(|user| seal(user, &mut seeds_rng)).collect();
    let count = sealed[0].ciphertexts() as u32;
    let seeds: Vec<Vec<u8>> = sealed.iter().map(SealedUpdate::to_bytes).collect();
    let (mut refused, mut accepted) = (0, 0);
    let mut collecting = roles.aggregator.begin(Round::FIRST);
    fuzz(name, &seeds, |rng, bytes| {
        let user = user_id(1 + below(rng, 3) as u32);
        let count = if below(rng, 16) == 0 { rng.next_u32() >> below(rng, 32) } else { count };
        let offered = SealedUpdate::from_bytes(
            &bytes,
            &UploadParams { params: &RoundParams::new(&task, Round::FIRST), user, count, salt: [0; 16] },
        )
        .and_then(|update| collecting.accept(update, ONE));
        match offered {
            Ok(()) => {
                accepted += 1;
                collecting = roles.aggregator.begin(Round::FIRST);
            }
            Err(error) => {
                assert!(error.culprit().is_none_or(|culprit| culprit == user), "{error}");
                assert_eq!(collecting.users().len(), 0);
                refused += 1;
            }
        }
    });
    // refused updates have left no trace
    sealed.into_iter().for_each(|update| collecting.accept(update, ONE).unwrap());
    let sum = roles.open(collecting.finish(ONE).unwrap()).unwrap();
    assert_eq!(sum.dense(), [3 * ((1 << 16) - 1), -3 << 15]);
    assert_eq!(sum.weights().iter().filter(|&&w| w == 3 << 15).count(), 1);
    println!("{name}: {refused} refused, {accepted} taken");
}

#[test]
fn mutated_upload_bodies_sparse() {
    upload_bodies("upload body, sparse", config(Profile::Sparse));
    upload_bodies("upload body, sparse without receipts", config_without_receipts(Profile::Sparse));
}

#[test]
fn mutated_upload_bodies_full() {
    upload_bodies("upload body, full", config(Profile::Full));
    upload_bodies("upload body, full without receipts", config_without_receipts(Profile::Full));
}

#[test]
fn mutated_upload_bodies_paper() {
    upload_bodies("upload body, paper", config(Profile::Paper));
}

/// Requests that were mutated on the way, and requests that a dishonest aggregator froze and signed.
#[test]
fn mutated_requests_are_not_opened() {
    for (parties, transcript) in [valid(), valid_masked()] {
        mutated_requests(parties, transcript);
    }
}

fn mutated_requests(parties: &Parties, transcript: &Transcript) {
    let (request, freeze) = (transcript.of_kind(9), transcript.of_kind(5));
    let honest_sum = &request[header_bytes(9) + 64..];
    let freeze: Signed<Freeze> = Signed::decode(&freeze, &parties.roster).unwrap();
    let receipts = parties.roster.task().receipts();
    let snapshot =
        |kind: u8| transcript.before.iter().find(|(_, message)| message[5] == kind).unwrap().0.clone();
    let (ticketed, frozen) = (snapshot(5), snapshot(9));
    let header = header_bytes(9);
    let (mut opened, mut failed) = (0, 0);
    let mut honest = parties.start_key_generator(&frozen).unwrap();
    // starting a key generator is slow, so one is used until its freeze attempts are used up
    let (mut party, mut attempt) = (parties.start_key_generator(&ticketed).unwrap(), 1);
    fuzz("decrypt body", std::slice::from_ref(&request), |rng, bytes| {
        // mutated on the way: only the original request is accepted
        if bytes != request {
            let step = honest.step(KeyGeneratorEvent::Message(bytes.clone()), NOW, rng);
            assert!(step.is_err(), "a forged request was taken");
        }
        // mutated by the aggregator itself
        let Some(body) = bytes.get(header + 64..) else { return };
        if attempt > 16 {
            (party, attempt) = (parties.start_key_generator(&ticketed).unwrap(), 1);
        }
        let sum_hash = Digest::from_bytes(hash("dphe/v2/sum", &[body]));
        let positions = match receipts {
            Receipts::Masked => 0,
            _ => body.iter().take(2).map(|byte| byte.count_ones()).sum::<u32>(),
        };
        let occupied = if below(rng, 4) == 0 { rng.next_u32() >> below(rng, 32) } else { positions };
        let fields = Freeze { attempt, sum_hash, occupied, ..freeze.message().clone() };
        let frozen = forge::from_aggregator(1, &fields, &[]);
        if party.step(KeyGeneratorEvent::Message(frozen.clone()), NOW, rng).is_err() {
            return;
        }
        attempt += 1;
        let freeze = Digest::from_bytes(hash("dphe/v2/freeze", &[&frozen[..header_bytes(5)]]));
        let message = forge::from_aggregator(1, &Decrypt { freeze, occupied, sum_hash }, body);
        if party.step(KeyGeneratorEvent::Message(message.clone()), NOW, rng).is_ok() {
            let actions = party.step(KeyGeneratorEvent::Tick, NOW, rng).unwrap();
            let [Action::Append(_), Action::Send { message: result, .. }] = &actions[..] else {
                panic!("{actions:?}")
            };
            let result = Signed::<RoundResult>::decode(result, &parties.roster).unwrap();
            match result.message().outcome {
                dphe::wire::Outcome::Released => {
                    // the check finds every change of the sum, and the key generator finds none of a masked one
                    assert!(body == honest_sum || receipts == Receipts::Masked, "a changed sum was opened");
                    opened += 1;
                }
                dphe::wire::Outcome::Failed => {
                    assert!(result.body().is_empty() && body != honest_sum);
                    failed += 1;
                }
            }
            // it is opened only once
            if message != request {
                let again = party.step(KeyGeneratorEvent::Message(request.clone()), NOW, rng);
                assert_eq!(again.unwrap_err(), Error::Committed);
            }
            attempt = u32::MAX;
        }
    });
    // the honest key generator is unchanged
    honest.step(KeyGeneratorEvent::Message(request), NOW, &mut rng(1)).unwrap();
    println!("decrypt body, {receipts:?}: {opened} opened, {failed} failed");
}

/// Sums that were mutated before they are published, by an aggregator that signs them.
#[test]
fn mutated_sums_are_not_accepted() {
    for (parties, transcript) in [valid(), valid_masked()] {
        let receipts = parties.roster.task().receipts();
        let publish = transcript.of_kind(11);
        let sum = publish[header_bytes(11) + 64..].to_vec();
        let published: Signed<Publish> = Signed::decode(&publish, &parties.roster).unwrap();
        // a user that knows the ticket of the round and took no part in it
        let mut user = parties.start_user(2, &[]).unwrap();
        user.step(UserEvent::Message(transcript.of_kind(2)), NOW, &mut rng(1)).unwrap();
        let mut codes = std::collections::BTreeMap::new();
        fuzz("published sum", std::slice::from_ref(&sum), |rng, body| {
            let sum_hash = Digest::from_bytes(hash("dphe/v2/payload", &[&body]));
            let fields = Publish { sum_hash, ..published.message().clone() };
            let message = forge::from_aggregator(1, &fields, &body);
            match user.step(UserEvent::Message(message), NOW, rng) {
                Ok(_) => {
                    assert!(body == sum, "a changed sum was accepted");
                    user = parties.start_user(2, &[]).unwrap();
                    user.step(UserEvent::Message(transcript.of_kind(2)), NOW, rng).unwrap();
                }
                Err(error) => *codes.entry(error.code().as_str()).or_insert(0) += 1,
            }
        });
        println!("published sum, {receipts:?}: {codes:?}");
        let expected: &[&str] =
            if receipts == Receipts::Masked { &["check", "encoding", "size"] } else { &["proof", "size"] };
        assert!(codes.contains_key(expected[0]), "{codes:?}");
        assert!(codes.keys().all(|code| expected.contains(code)), "{codes:?}");
    }
}

/// Opened sums in every form, mutated. They are refused, or read back exactly as written.
#[test]
fn mutated_opened_sums_do_not_panic() {
    for (parties, transcript) in [valid(), valid_masked()] {
        let seeds = [transcript.of_kind(10)[header_bytes(10) + 64..].to_vec()];
        let params = std::sync::Arc::new(RoundParams::new(parties.roster.task(), Round::FIRST));
        let key = parties.roles.key_generator.encryption_key();
        let user = &parties.roles.users[0];
        fuzz("opened sum", &seeds, |rng, bytes| {
            let context = SumContext { params: &params, users: 3 + below(rng, 2), key };
            if let Ok(sum) = OpenedSum::from_bytes(&bytes, &context) {
                assert_eq!(sum.to_bytes(), bytes);
            }
            if let Ok(sum) = UncheckedSum::from_bytes(&bytes, &context) {
                assert_eq!(sum.to_bytes(), bytes);
                assert!(sum.check(user).is_err());
                let _ = sum.decode_unchecked(&parties.roles.aggregator);
            }
        });
    }
}

/// Sends mutated messages of all kinds to parties in all states.
#[test]
fn mutated_messages_do_not_change_parties() {
    for (parties, transcript) in [valid(), valid_masked()] {
        mutated_messages(parties, transcript);
    }
}

fn mutated_messages(parties: &Parties, transcript: &Transcript) {
    let seeds: Vec<Vec<u8>> = transcript.messages.iter().map(|(_, message)| message.clone()).collect();
    let logs = |party: PartyId| {
        let mut logs = transcript.logs[&party].clone();
        logs.push(Vec::new());
        logs
    };
    let (of_g, of_a) = (logs(PartyId::KeyGenerator), logs(PartyId::Aggregator));
    let of_u = logs(PartyId::User(user_id(2)));
    let mut g: Vec<_> = of_g.iter().map(|log| parties.start_key_generator(log).unwrap()).collect();
    let mut a: Vec<_> = of_a.iter().map(|log| parties.start_aggregator(log).unwrap()).collect();
    let mut u: Vec<_> = of_u.iter().map(|log| parties.start_user(2, log).unwrap()).collect();
    fuzz("party step", &seeds, |rng, bytes| {
        let i = below(rng, g.len());
        if g[i].step(KeyGeneratorEvent::Message(bytes.clone()), NOW, rng).is_ok() {
            g[i] = parties.start_key_generator(&of_g[i]).unwrap();
        }
        let i = below(rng, a.len());
        if a[i].step(AggregatorEvent::Message(bytes.clone()), NOW, rng).is_ok() {
            a[i] = parties.start_aggregator(&of_a[i]).unwrap();
        }
        let i = below(rng, u.len());
        let event = if below(rng, 4) == 0 {
            UserEvent::Begin { ticket: bytes, model: MODEL.to_vec() }
        } else {
            UserEvent::Message(bytes)
        };
        if u[i].step(event, NOW, rng).is_ok() {
            u[i] = parties.start_user(2, &of_u[i]).unwrap();
        }
    });
}

const PARTIES: [fn() -> PartyId; 3] =
    [|| PartyId::Aggregator, || PartyId::KeyGenerator, || PartyId::User(user_id(2))];

#[test]
fn torn_record_is_cut_off() {
    let (parties, transcript) = valid();
    let mut cuts = 0;
    for party in PARTIES.map(|party| party()) {
        for bytes in &transcript.logs[&party] {
            let whole = Log::recover(party, &parties.roster, bytes).unwrap();
            let mut end = bytes.len();
            for n in (0..whole.records.len()).rev() {
                let start = end - (8 + whole.records[n].len() + 32);
                // the file system had extended the file, so unwritten bytes are zeros
                for cut in (start..end).filter(|cut| cut - start < 64 || end - cut < 64) {
                    let mut torn = bytes[..end].to_vec();
                    torn[cut..].fill(0);
                    let found = Log::recover(party, &parties.roster, &torn).unwrap();
                    let all = bytes[cut..end].iter().all(|&byte| byte == 0);
                    assert_eq!(
                        found.records.len(),
                        n + usize::from(all),
                        "{party:?}, cut at {cut} of {start}..{end}"
                    );
                    cuts += 1;
                }
                end = start;
            }
        }
    }
    assert!(cuts > 1000, "{cuts}");
}

#[test]
fn mutated_logs_are_refused_or_cut_off() {
    let (parties, transcript) = valid();
    for party in PARTIES.map(|party| party()) {
        let seeds = &transcript.logs[&party];
        let whole: Vec<_> =
            seeds.iter().map(|log| Log::recover(party, &parties.roster, log).unwrap()).collect();
        let mut torn = 0;
        fuzz(&format!("log of {party:?}"), seeds, |_, bytes| {
            let Ok(log) = Log::recover(party, &parties.roster, &bytes) else { return };
            assert!(log.valid <= bytes.len());
            // the recovered records are the first ones that were written
            let nothing = log.checkpoint.is_none() && log.records.is_empty();
            assert!(
                nothing
                    || whole
                        .iter()
                        .any(|w| w.checkpoint == log.checkpoint && w.records.starts_with(&log.records)),
                "a forged log was believed"
            );
            torn += usize::from(log.valid < bytes.len());
            // the log without the torn tail reads the same
            let again = Log::recover(party, &parties.roster, &bytes[..log.valid]).unwrap();
            assert_eq!(
                (again.valid, again.records, again.log.point()),
                (log.valid, log.records, log.log.point())
            );
        });
        println!("log of {party:?}: {torn} torn tails");
    }
}

/// Starts a party from a log.
fn start(parties: &Parties, party: PartyId, log: &[u8]) -> Result<(), Error> {
    match party {
        PartyId::Aggregator => parties.start_aggregator(log).map(drop),
        PartyId::KeyGenerator => parties.start_key_generator(log).map(drop),
        PartyId::User(user) => parties.start_user(user.get(), log).map(drop),
    }
}

/// Mutates checkpoints and chains them again. The party starts or refuses to, without a panic.
#[test]
fn mutated_checkpoints_do_not_panic() {
    let rounds = [valid(), valid_masked()];
    for (party, (parties, transcript)) in
        PARTIES.iter().flat_map(|party| rounds.map(|round| (party(), round)))
    {
        let recovered =
            transcript.logs[&party].iter().map(|log| Log::recover(party, &parties.roster, log).unwrap());
        let mut states: Vec<Vec<u8>> =
            recovered.filter_map(|log| log.checkpoint.map(<[u8]>::to_vec)).collect();
        states.dedup();
        fuzz(&format!("checkpoint of {party:?}"), &states, |_, state| {
            let log = Log::new(party, &parties.roster).checkpoint(&state);
            match start(parties, party, &log) {
                Ok(()) | Err(Error::Storage { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        });
    }
}

#[test]
fn mutated_records_do_not_panic() {
    let rounds = [valid(), valid_masked()];
    for (party, (parties, transcript)) in
        PARTIES.iter().flat_map(|party| rounds.map(|round| (party(), round)))
    {
        // the longest log, before the round ended
        let logs =
            transcript.logs[&party].iter().map(|log| Log::recover(party, &parties.roster, log).unwrap());
        let full = logs.max_by_key(|log| log.records.len()).unwrap().records;
        let full: Vec<Vec<u8>> = full.into_iter().map(<[u8]>::to_vec).collect();
        fuzz(&format!("records of {party:?}"), &full, |rng, record| {
            let mut log = Log::new(party, &parties.roster);
            let mut bytes = log.prefix().to_vec();
            let at = below(rng, full.len());
            for (i, good) in full.iter().enumerate() {
                bytes.extend(log.append(if i == at { &record } else { good }));
            }
            // the party may refuse, but must not panic
            let _ = start(parties, party, &bytes);
        });
    }
}

/// A round so far ahead that deriving its seeds would take too long is refused, even if it is signed.
#[test]
fn user_refuses_rounds_too_far_ahead() {
    let (parties, _) = valid();
    let mut user = parties.start_user(2, &[]).unwrap();
    for round in [(1 << 20) + 2, 1 << 63, u64::MAX] {
        let message =
            forge::signed(PartyId::Aggregator, Kind::Close, round, &[&[3][..], &[0; 32]].concat(), &[]);
        let error = user.step(UserEvent::Message(message), NOW, &mut rng(1)).unwrap_err();
        assert_eq!(error, Error::Future { round: support::round(round), current: Round::FIRST });
    }
}

/// Mutated key bytes with a correct checksum are refused, or read back exactly as written.
#[test]
fn mutated_key_bytes_are_refused() {
    // short keys need `paper`
    let paper = TaskConfig { block: 1, ..config(Profile::Paper) };
    let parties = Parties::new(paper, 3);
    let mut roles = parties.roles;
    let keys = roles.key_generator.enroll(user_id(2), &mut roles.rng);
    let identity = support::identity(PartyId::Aggregator);
    let seeds: [(&str, Vec<u8>); 4] = [
        ("identity", identity.to_secret_bytes().to_vec()),
        ("user", keys.to_secret_bytes().to_vec()),
        ("aggregator", roles.key_generator.aggregator_keys().to_secret_bytes().to_vec()),
        ("key generator", roles.key_generator.to_secret_bytes().to_vec()),
    ];
    let key = || support::key(256, roles.key_generator.encryption_key().mode());
    let again = |name: &str, bytes: &[u8]| -> Result<Vec<u8>, Error> {
        Ok(match name {
            "identity" => IdentityKey::from_secret_bytes(bytes)?.to_secret_bytes(),
            "user" => UserKeys::from_secret_bytes_with(bytes, paper_keys())?.to_secret_bytes(),
            "aggregator" => AggregatorKeys::from_secret_bytes_with(bytes, paper_keys())?.to_secret_bytes(),
            _ => KeyGenerator::from_secret_bytes_with(bytes, key(), paper_keys())?.to_secret_bytes(),
        }
        .to_vec())
    };
    for (name, good) in &seeds {
        assert_eq!(again(name, good).as_ref(), Ok(good), "{name}");
        // every flipped bit is detected
        for bit in 0..8 * good.len() {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(again(name, &bytes).is_err(), "{name}: bit {bit}");
        }
        for length in 0..good.len() {
            assert!(again(name, &good[..length]).is_err(), "{name}: {length} bytes");
        }
        // keys of one party are not accepted as keys of another
        for (other, bytes) in seeds.iter().filter(|(other, _)| other != name) {
            assert_eq!(again(name, bytes), Err(Error::Version), "{other} as {name}");
        }
        let covered = good[..good.len() - 32].to_vec();
        fuzz(&format!("kit of {name}"), &[covered], |_, mut bytes| {
            let check = hash("dphe/v2/kit", &[&bytes]);
            bytes.extend(check);
            if let Ok(written) = again(name, &bytes) {
                assert_eq!(written, bytes, "{name} is read in two ways");
            }
        });
    }
}
