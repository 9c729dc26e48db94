//! The rules of the parties against a dishonest aggregator: which sums the key generator opens and how often, and which
//! rounds and publications users accept.

use dphe::party::{AggregatorEvent, KeyGeneratorEvent, Party as _, Time, UserEvent};
use dphe::wire::{
    Close, Encode as _, Ending, Freeze, Inclusion, Kind, Outcome, Participant, Publish, Signed,
};
use dphe::{Digest, Error, Profile, Receipts, TaskConfig, Update, WeightSum};
use rand_core::Rng as _;

use crate::support::world::{End, World, sent};
use crate::support::{MODEL, NEXT_MODEL, config, config_without_receipts, forge, rng, update, user_id};

/// The update of user `n` in every round: numbers of which no two users have the same.
fn local(n: u32) -> Update {
    update(24, &[(n, 0.25), (20, f64::from(n) / 16.0)], &[f64::from(n) / 8.0, -0.5])
}

/// All positions in every round.
fn full() -> TaskConfig {
    TaskConfig { capacity: 12, ..config(Profile::Full) }
}

fn all_kinds() -> [TaskConfig; 4] {
    let without = TaskConfig { capacity: 12, ..config_without_receipts(Profile::Full) };
    [full(), without, config(Profile::Sparse), config_without_receipts(Profile::Sparse)]
}

/// Whether a sum is that of these users.
fn is_sum_of(sum: &WeightSum, users: &[u32]) -> bool {
    let mut weights = [0; 24];
    let mut dense = [0, -1 << 15].map(|each| each * users.len() as i64);
    for &n in users {
        weights[n as usize] += 1 << 14;
        weights[20] += i64::from(n) << 12;
        dense[0] += i64::from(n) << 13;
    }
    sum.weights() == weights && sum.dense() == dense
}

/// From the sums of these three sets, twice the update of user 3 follows. Every round is honest but for its
/// participants, and the aggregator gives up every sum, so that the model stays the same.
#[test]
fn three_sets_that_isolate_a_user_are_not_opened_on_one_model() {
    for config in all_kinds() {
        for restart in [false, true] {
            let mut world = World::new(config.clone(), 5);
            for set in [&[1, 2, 3], &[3, 4, 5]] {
                let sum = world.round(MODEL, set, local, End::Reject).unwrap().unwrap();
                assert!(is_sum_of(&sum, set));
                if restart {
                    world.restart_generator();
                }
            }
            let ticket = world.start(MODEL).unwrap();
            let freeze = world.collect(&ticket, MODEL, &[1, 2, 4, 5], local).unwrap();
            assert_eq!(world.open(freeze).unwrap_err(), Error::SetDifference);
            world.abort();
            // no other third set either, but the same set again
            for (set, allowed) in [(&[1, 2, 3, 4, 5][..], false), (&[1, 2, 4], false), (&[3, 4, 5], true)] {
                let ticket = world.start(MODEL).unwrap();
                let freeze = world.collect(&ticket, MODEL, set, local).unwrap();
                match world.open(freeze) {
                    Ok(sum) => {
                        assert!(allowed && is_sum_of(&sum.unwrap(), set));
                        world.end(End::Publish(NEXT_MODEL)).unwrap();
                        world.tell_all(NEXT_MODEL);
                    }
                    Err(error) => {
                        assert!(!allowed && error == Error::SetDifference);
                        world.abort();
                    }
                }
            }
            // a new model is another matter
            let set = [1, 2, 4, 5];
            let sum = world.round(NEXT_MODEL, &set, local, End::Reject).unwrap().unwrap();
            assert!(is_sum_of(&sum, &set));
        }
    }
}

#[test]
fn second_set_on_one_model_differs_by_at_least_the_floor_or_not_at_all() {
    for (second, allowed) in [
        (&[1, 2, 3][..], true),
        (&[1, 2, 3, 4], false),
        (&[1, 2, 4], false),
        (&[1, 2, 3, 4, 5], false),
        (&[1, 2, 4, 5], true),
        (&[1, 4, 5], true),
        (&[1, 2, 3, 4, 5, 6], true),
        (&[4, 5, 6], true),
    ] {
        let mut world = World::new(full(), 6);
        world.round(MODEL, &[1, 2, 3], local, End::Reject).unwrap();
        let ticket = world.start(MODEL).unwrap();
        let freeze = world.collect(&ticket, MODEL, second, local).unwrap();
        match world.open(freeze) {
            Ok(sum) => assert!(allowed && is_sum_of(&sum.unwrap(), second), "{second:?}"),
            Err(error) => assert!(!allowed && error == Error::SetDifference, "{second:?}"),
        }
    }
}

/// An aggregator that publishes the old model again to have more sets opened on it is noticed by every user.
#[test]
fn users_notice_a_model_that_does_not_follow_from_the_sum() {
    for config in all_kinds() {
        let mut world = World::new(config, 5);
        let ticket = world.start(MODEL).unwrap();
        let freeze = world.collect(&ticket, MODEL, &[1, 2, 3], local).unwrap();
        world.open(freeze).unwrap();
        world.end(End::Publish(MODEL)).unwrap();
        // participants and others
        for n in 1..=5 {
            let messages = world.poll(n);
            assert_eq!(world.tell(n, messages, NEXT_MODEL).unwrap_err(), Error::Model);
            assert_eq!(world.users[&n].phase().as_str(), "checking");
        }
    }
}

#[test]
fn users_start_from_the_model_that_they_computed() {
    let mut world = World::new(full(), 5);
    let other = b"a model that differs in a bit";
    // the first round starts from the model of the roster
    let ticket = world.start(other).unwrap();
    assert_eq!(world.upload(1, &ticket, other, local(1)).unwrap_err(), Error::Lineage);
    let mut world = World::new(full(), 5);
    world.round(MODEL, &[1, 2, 3], local, End::Publish(NEXT_MODEL)).unwrap();
    let ticket = world.start(MODEL).unwrap();
    for n in 1..=5 {
        assert_eq!(world.upload(n, &ticket, MODEL, local(n)).unwrap_err(), Error::Lineage);
    }
}

#[test]
fn key_generator_opens_as_many_sums_as_the_policy_says() {
    for config in all_kinds() {
        let mut world = World::new(TaskConfig { rounds: 2, ..config }, 5);
        world.round(MODEL, &[1, 2, 3], local, End::Reject).unwrap();
        // a round that is aborted before its sum is opened does not count
        world.start(MODEL).unwrap();
        world.abort();
        world.round(MODEL, &[1, 2, 3], local, End::Publish(NEXT_MODEL)).unwrap();
        for _ in 0..2 {
            assert_eq!(world.start_forged(NEXT_MODEL).unwrap_err(), Error::Rounds { most: 2 });
            world.restart_generator();
        }
        assert_eq!(world.start(NEXT_MODEL).unwrap_err().code().as_str(), "rounds");
    }
}

/// What was opened is remembered if the key generator restarts before the round is closed, and after that.
#[test]
fn restart_before_a_round_is_closed_forgets_no_opened_sum() {
    for config in all_kinds() {
        let mut world = World::new(TaskConfig { rounds: 1, ..config.clone() }, 5);
        let ticket = world.start(MODEL).unwrap();
        let freeze = world.collect(&ticket, MODEL, &[1, 2, 3], local).unwrap();
        world.open(freeze).unwrap();
        world.restart_generator();
        world.end(End::Reject).unwrap();
        world.restart_generator();
        assert_eq!(world.start_forged(MODEL).unwrap_err(), Error::Rounds { most: 1 });
        // nor the set whose sum it was
        let mut world = World::new(config, 5);
        let ticket = world.start(MODEL).unwrap();
        let freeze = world.collect(&ticket, MODEL, &[1, 2, 3], local).unwrap();
        world.open(freeze).unwrap();
        world.restart_generator();
        world.end(End::Reject).unwrap();
        world.tell_all(MODEL);
        let ticket = world.start(MODEL).unwrap();
        let freeze = world.collect(&ticket, MODEL, &[1, 2, 3, 4], local).unwrap();
        assert_eq!(world.open(freeze).unwrap_err(), Error::SetDifference);
    }
}

/// A sum of a task with private supports that does not come from uploads: one position, and random ciphertexts.
fn random_sum(world: &World) -> Vec<u8> {
    let task = world.parties.roster.task();
    let mut bytes = vec![0; task.positions().div_ceil(8) as usize];
    bytes[0] = 0x80;
    // the position, the dense values and the check
    let ciphertexts = 2 + usize::from(task.receipts() == Receipts::Checked);
    let mut rng = rng(17);
    for _ in 0..2 * ciphertexts {
        let mut half = [0; 32];
        rng.fill_bytes(&mut half);
        // below the modulus, whose first bit is set
        half[0] >>= 1;
        bytes.extend(half);
    }
    bytes
}

/// Has a round of three users fail. All parties learn of it.
fn fail_round(world: &mut World) -> Result<(), Error> {
    let ticket = world.start_forged(MODEL)?;
    let uploads = [1, 2, 3].map(|n| world.upload(n, &ticket, MODEL, local(n)).unwrap());
    let users = uploads.iter().map(|upload| world.participant(upload)).collect();
    let result = world.open_forged(&ticket, users, 1, &random_sum(world)).unwrap();
    assert_eq!((result.message().outcome, result.body().len()), (Outcome::Failed, 0));
    let round = world.generator.round().get();
    world.close_forged(Ending::Failed, Digest::ZERO).unwrap();
    let close = forge::from_aggregator(round, &Close { ending: Ending::Failed, publish: Digest::ZERO }, &[]);
    for n in 1..=3 {
        world.user(n, UserEvent::Message(close.clone())).unwrap();
    }
    Ok(())
}

#[test]
fn key_generator_refuses_rounds_after_too_many_failures() {
    for config in [config(Profile::Sparse), config_without_receipts(Profile::Sparse)] {
        let mut world = World::new(TaskConfig { max_failures: 2, ..config.clone() }, 3);
        fail_round(&mut world).unwrap();
        world.restart_generator();
        fail_round(&mut world).unwrap();
        for _ in 0..2 {
            assert_eq!(fail_round(&mut world).unwrap_err(), Error::Failures { most: 2 });
            world.restart_generator();
        }
        // failed sums count as opened ones too
        let mut world = World::new(TaskConfig { rounds: 2, ..config }, 3);
        fail_round(&mut world).unwrap();
        fail_round(&mut world).unwrap();
        assert_eq!(fail_round(&mut world).unwrap_err(), Error::Rounds { most: 2 });
    }
}

#[test]
fn freeze_before_the_least_time_is_refused_and_accepted_later() {
    for restart in [false, true] {
        let mut world = World::new(TaskConfig { collect_min: 5000, ..full() }, 5);
        world.now = Time(70_000);
        let ticket = world.start(MODEL).unwrap();
        // the aggregator's clock is ahead
        world.now = Time(75_000);
        let freeze = world.collect(&ticket, MODEL, &[1, 2, 3], local).unwrap();
        let early = Error::Early { least: 5000 };
        for now in [70_000, 70_001, 74_999] {
            world.now = Time(now);
            assert_eq!(world.ask_generator(freeze.clone()).unwrap_err(), early);
            assert_eq!(world.generator.phase().as_str(), "ticketed", "a refused message changes nothing");
        }
        if restart {
            // the time counts from the restart
            world.restart_generator();
            world.now = Time(79_998);
            assert_eq!(world.ask_generator(freeze.clone()).unwrap_err(), early);
            world.now = Time(79_999);
        } else {
            world.now = Time(75_000);
        }
        assert!(is_sum_of(&world.open(freeze).unwrap().unwrap(), &[1, 2, 3]));
    }
}

/// The aggregator does not freeze earlier either, even if all users have uploaded.
#[test]
fn aggregator_waits_for_the_least_time() {
    for users in [3, 5] {
        let mut world = World::new(TaskConfig { collect_min: 5000, ..full() }, 5);
        let ticket = world.start(MODEL).unwrap();
        world.now = Time(4999);
        for n in 1..=users {
            let upload = world.upload(n, &ticket, MODEL, local(n)).unwrap();
            world.accept(n, &upload).unwrap();
        }
        assert_eq!(world.aggregator(AggregatorEvent::Freeze).unwrap_err(), Error::Early { least: 5000 });
        world.aggregator(AggregatorEvent::Tick).unwrap();
        assert_eq!(world.aggregator.phase().as_str(), "collecting");
        world.now = Time(5000);
        world.aggregator(AggregatorEvent::Tick).unwrap();
        // the deadline is earlier than the least time
        assert_eq!(world.aggregator.phase().as_str(), "frozen");
        let freeze = world.freeze();
        assert!(is_sum_of(&world.open(freeze).unwrap().unwrap(), &(1..=users).collect::<Vec<_>>()));
    }
}

/// A frozen participant must have signed an upload for this very ticket.
#[test]
fn freeze_with_missing_foreign_or_replayed_signatures_is_refused() {
    for config in all_kinds() {
        let mut world = World::new(config.clone(), 5);
        // the uploads of an earlier round, and of the same round under another ticket
        let ticket = world.start(MODEL).unwrap();
        let old = world.upload(4, &ticket, MODEL, local(4)).unwrap();
        let old = world.participant(&old);
        world.abort();
        let mut fork = World::with_seed(config, 5, 92);
        fork.start(MODEL).unwrap();
        fork.abort();
        let other_ticket = fork.start(MODEL).unwrap();
        let ticket = world.start(MODEL).unwrap();
        assert_ne!(ticket, other_ticket);
        let freeze = world.collect(&ticket, MODEL, &[1, 2, 3, 4], local).unwrap();
        let honest: Signed<Freeze> = world.read(&freeze);
        let honest = honest.message().clone();
        let list: Vec<Participant> = honest.users.clone();
        // user 4 of the other history is the same party
        let forked = fork.upload(4, &other_ticket, MODEL, local(4)).unwrap();
        let forked = fork.participant(&forked);

        let mut replaced: Vec<(&str, Vec<Participant>)> = Vec::new();
        let with = |participant: Participant| [&list[..3], &[participant]].concat();
        replaced.push(("none", with(Participant { signature: [0; 64], ..list[3] })));
        replaced.push(("another user's", with(Participant { signature: list[0].signature, ..list[3] })));
        replaced.push(("a user who sent nothing", with(Participant { user: user_id(5), ..list[3] })));
        replaced.push(("an earlier round's", with(old)));
        replaced.push(("another ticket's", with(forked)));
        replaced.push(("another salt", with(Participant { salt: [1; 16], ..list[3] })));
        replaced.push(("another count", with(Participant { count: list[3].count + 1, ..list[3] })));
        replaced.push(("another body", with(Participant { body_hash: list[0].body_hash, ..list[3] })));
        let mut exchanged = list.clone();
        (exchanged[0].salt, exchanged[1].salt) = (list[1].salt, list[0].salt);
        replaced.push(("exchanged salts", exchanged));
        for (what, users) in replaced {
            let message = forge::from_aggregator(2, &Freeze { users, ..honest.clone() }, &[]);
            assert_eq!(world.ask_generator(message).unwrap_err(), Error::Signature, "{what}");
            assert_eq!(world.generator.phase().as_str(), "ticketed");
        }
        assert!(is_sum_of(&world.open(freeze).unwrap().unwrap(), &[1, 2, 3, 4]));
    }
}

/// The aggregator may not call a sum that it has an aborted round, nor publish one that it does not have.
#[test]
fn ending_that_contradicts_the_outcome_is_refused() {
    let some = Digest::from_bytes([1; 32]);
    let endings = [Ending::Published, Ending::Failed, Ending::Aborted, Ending::Rejected];
    let refused = |world: &mut World, allowed: &[Ending]| {
        for ending in endings {
            for publish in [Digest::ZERO, some] {
                if allowed.contains(&ending) && (ending == Ending::Published) == (publish == some) {
                    continue;
                }
                assert_eq!(world.close_forged(ending, publish).unwrap_err(), Error::Ending, "{ending}");
            }
        }
    };
    let mut world = World::new(full(), 5);
    let ticket = world.start(MODEL).unwrap();
    refused(&mut world, &[Ending::Aborted]);
    let freeze = world.collect(&ticket, MODEL, &[1, 2, 3], local).unwrap();
    world.ask_generator(freeze.clone()).unwrap();
    refused(&mut world, &[Ending::Aborted]);
    world.open(freeze).unwrap();
    refused(&mut world, &[Ending::Published, Ending::Rejected]);
    world.end(End::Publish(NEXT_MODEL)).unwrap();

    let mut world = World::new(config(Profile::Sparse), 3);
    let ticket = world.start_forged(MODEL).unwrap();
    let uploads = [1, 2, 3].map(|n| world.upload(n, &ticket, MODEL, local(n)).unwrap());
    let users = uploads.iter().map(|upload| world.participant(upload)).collect();
    world.open_forged(&ticket, users, 1, &random_sum(&world)).unwrap();
    refused(&mut world, &[Ending::Failed]);
    world.close_forged(Ending::Failed, Digest::ZERO).unwrap();
}

/// A world in which a round was published, and the messages with which a user learns of it.
fn published(config: TaskConfig) -> (World, Vec<Vec<u8>>) {
    let mut world = World::new(config, 5);
    let ticket = world.start(MODEL).unwrap();
    let freeze = world.collect(&ticket, MODEL, &[1, 2, 3], local).unwrap();
    world.open(freeze).unwrap();
    world.end(End::Publish(NEXT_MODEL)).unwrap();
    let messages = world.poll(1);
    let kinds: Vec<u8> = messages.iter().map(|message| message[5]).collect();
    let expected = [Kind::Inclusion, Kind::RoundTicket, Kind::Publish, Kind::Close];
    assert_eq!(kinds, expected.map(Kind::number));
    (world, messages)
}

/// Signs the published sum again after a change.
fn republished(world: &World, message: &[u8], change: impl FnOnce(&mut Publish, &mut Vec<u8>)) -> Vec<u8> {
    let signed: Signed<Publish> = world.read(message);
    let (mut fields, mut body) = (signed.message().clone(), signed.body().to_vec());
    change(&mut fields, &mut body);
    fields.sum_hash = Digest::from_bytes(forge::hash("dphe/v2/payload", &[&body]));
    forge::from_aggregator(1, &fields, &body)
}

/// Adds a small number to a residue, or subtracts it.
fn shifted(residue: &mut [u8], by: i16) {
    let mut carry = by;
    for byte in residue.iter_mut().rev() {
        let value = i16::from(*byte) + carry;
        *byte = value.rem_euclid(256) as u8;
        carry = value.div_euclid(256);
    }
}

#[test]
fn users_refuse_a_published_sum_that_was_changed() {
    for config in all_kinds() {
        let (mut world, messages) = published(config.clone());
        let masked = config.receipts == Receipts::Masked;
        let width = if masked { 32 } else { 3 };
        type Change = fn(&mut [u8], usize);
        let changes: [(&str, Change); 5] = [
            ("shift up", |body, width| shifted(&mut body[..width], 1)),
            ("shift down", |body, width| shifted(&mut body[width..2 * width], -1)),
            ("exchange", |body, width| {
                let (first, second) = body.split_at_mut(width);
                first.swap_with_slice(&mut second[..width]);
            }),
            ("zeros", |body, _| body.fill(0)),
            ("the last", |body, width| {
                let at = body.len() - width;
                shifted(&mut body[at..], 1);
            }),
        ];
        for (what, change) in changes {
            let mut changed = false;
            let publish = republished(&world, &messages[2], |_, body| {
                let before = body.clone();
                change(body, width);
                changed = *body != before;
            });
            if !changed {
                // of a private support, the first two weights may be equal
                continue;
            }
            // a participant, and a user who took no part
            for n in [1, 4] {
                let mut wrong = if n == 1 { messages.clone() } else { world.poll(n) };
                let at = wrong.iter().position(|message| message[5] == Kind::Publish.number()).unwrap();
                wrong[at] = publish.clone();
                let error = world.tell(n, wrong, NEXT_MODEL).unwrap_err();
                assert_eq!(error, if masked { Error::Check } else { Error::Proof }, "{what}");
            }
        }
        // a residue that is not below the modulus
        if masked {
            let publish = republished(&world, &messages[2], |_, body| body[..width].fill(0xff));
            let mut wrong = messages.clone();
            wrong[2] = publish;
            assert_eq!(world.tell(1, wrong, NEXT_MODEL).unwrap_err().code().as_str(), "encoding");
        }
        // nothing has changed
        let sum = world.tell(1, messages, NEXT_MODEL).unwrap().unwrap();
        assert!(is_sum_of(&sum, &[1, 2, 3]));
    }
}

/// A user has forgotten that it checked a sum, so it checks the sum that it is told after a restart.
#[test]
fn restarted_user_refuses_a_published_sum_that_was_changed() {
    for config in all_kinds() {
        let (mut world, messages) = published(config.clone());
        let masked = config.receipts == Receipts::Masked;
        let width = if masked { 32 } else { 3 };
        let changed = republished(&world, &messages[2], |_, body| {
            let at = body.len() - width;
            shifted(&mut body[at..], 1);
        });
        let mut wrong = messages.clone();
        wrong[2] = changed;
        // before the sum arrives, and after the right sum was checked but not applied
        for checked in [false, true] {
            if checked {
                for message in &messages[..3] {
                    world.user(1, UserEvent::Message(message.clone())).unwrap();
                }
                assert_eq!(world.users[&1].phase().as_str(), "checking");
            }
            world.restart_user(1);
            assert_eq!(world.users[&1].phase().as_str(), "uploaded");
            let error = world.tell(1, wrong.clone(), NEXT_MODEL).unwrap_err();
            assert_eq!(error, if masked { Error::Check } else { Error::Proof });
        }
        world.restart_user(1);
        let sum = world.tell(1, messages, NEXT_MODEL).unwrap().unwrap();
        assert!(is_sum_of(&sum, &[1, 2, 3]));
    }
}

/// A user whose upload was acknowledged wants to see that it is in the sum.
#[test]
fn users_refuse_a_sum_without_a_proof_that_it_contains_their_upload() {
    let (mut world, messages) = published(full());
    let rest = messages[1..].to_vec();
    assert_eq!(world.tell(1, rest.clone(), NEXT_MODEL).unwrap_err(), Error::NotMine);
    // the proof of another user, and proofs with a changed place or path
    let of_other = world.poll(2)[0].clone();
    let signed: Signed<Inclusion> = world.read(&messages[0]);
    let own = signed.message().clone();
    let mut wrong = vec![of_other];
    for index in 1..4 {
        wrong.push(forge::from_aggregator(1, &Inclusion { index, ..own.clone() }, &[]));
    }
    for path in [vec![], own.path[1..].to_vec(), [&own.path[..], &own.path[..1]].concat()] {
        wrong.push(forge::from_aggregator(1, &Inclusion { path, ..own.clone() }, &[]));
    }
    for inclusion in wrong {
        let told = [&[inclusion][..], &rest].concat();
        assert_eq!(world.tell(1, told, NEXT_MODEL).unwrap_err(), Error::NotMine);
    }
    // a user who took no part needs no proof
    let (others, own) = (world.poll(4), messages);
    assert!(world.tell(4, others, NEXT_MODEL).unwrap().is_some());
    assert!(world.tell(1, own, NEXT_MODEL).unwrap().is_some());
}

/// The key generator was told of another publication than users were.
#[test]
fn users_notice_another_history_in_the_next_ticket() {
    for config in all_kinds() {
        let mut world = World::new(config, 5);
        let ticket = world.start(MODEL).unwrap();
        let freeze = world.collect(&ticket, MODEL, &[1, 2, 3], local).unwrap();
        world.open(freeze).unwrap();
        // users are told the truth, and the key generator another hash
        let model = NEXT_MODEL.to_vec();
        let round = world.aggregator.round();
        world.aggregator(AggregatorEvent::NewModel { round, model }).unwrap();
        world.tell_all(NEXT_MODEL);
        world.close_forged(Ending::Published, Digest::from_bytes([1; 32])).unwrap();
        let ticket = world.start(NEXT_MODEL).unwrap();
        for n in 1..=5 {
            assert_eq!(world.upload(n, &ticket, NEXT_MODEL, local(n)).unwrap_err(), Error::History);
        }
    }
}

/// One user is told that the sum was rejected, and the others that it was published.
#[test]
fn user_that_was_told_another_ending_notices_it() {
    for config in all_kinds() {
        let (mut world, _) = published(config);
        for n in 2..=5 {
            let messages = world.poll(n);
            world.tell(n, messages, NEXT_MODEL).unwrap();
        }
        let rejected = Close { ending: Ending::Rejected, publish: Digest::ZERO };
        let close = forge::from_aggregator(1, &rejected, &[]);
        world.user(1, UserEvent::Message(close)).unwrap();
        // from the new model, and from the old one that this user still has
        let ticket = world.start(NEXT_MODEL).unwrap();
        assert_eq!(world.upload(1, &ticket, NEXT_MODEL, local(1)).unwrap_err(), Error::Lineage);
        world.upload(2, &ticket, NEXT_MODEL, local(2)).unwrap();
        let (mut world, _) = published(full());
        let close = forge::from_aggregator(1, &rejected, &[]);
        world.user(1, UserEvent::Message(close)).unwrap();
        let ticket = world.start(MODEL).unwrap();
        assert_eq!(world.upload(1, &ticket, MODEL, local(1)).unwrap_err(), Error::History);
    }
}

/// A user who missed rounds follows them one by one, and refuses to skip one.
#[test]
fn user_follows_rounds_one_by_one() {
    for config in all_kinds() {
        let mut world = World::new(config, 5);
        let third: &[u8] = b"the model after that";
        let mut told = Vec::new();
        for (model, next) in [(MODEL, NEXT_MODEL), (NEXT_MODEL, third)] {
            let ticket = world.start(model).unwrap();
            let freeze = world.collect(&ticket, model, &[1, 2, 3], local).unwrap();
            world.open(freeze).unwrap();
            world.end(End::Publish(next)).unwrap();
            for n in 1..=4 {
                let messages = world.poll(n);
                world.tell(n, messages, next).unwrap();
            }
            // user 5 is away; the program keeps the messages
            told.push(world.aggregator.ended().unwrap().messages());
        }
        let ticket = world.start(third).unwrap();
        // a later ticket makes the user ask about the round that it waits for
        let begin = UserEvent::Begin { ticket: ticket.clone(), model: third.to_vec() };
        let asked = world.user(5, begin).unwrap();
        assert!(sent(asked).is_empty() && world.users[&5].round().get() == 1);
        // the second round before the first
        let [first, second] = &told[..] else { panic!("two rounds") };
        assert_eq!(world.tell(5, second[1..].to_vec(), third).unwrap_err().code().as_str(), "future");
        // without its ticket, a round cannot be checked
        assert_eq!(world.tell(5, first[1..].to_vec(), NEXT_MODEL).unwrap_err().code().as_str(), "order");
        for (messages, next) in [(first, NEXT_MODEL), (second, third)] {
            let sum = world.tell(5, messages.clone(), next).unwrap().unwrap();
            assert!(is_sum_of(&sum, &[1, 2, 3]));
        }
        world.upload(5, &ticket, third, local(5)).unwrap();
    }
}

/// The aggregator itself refuses uploads for another ticket, and bodies of other users.
#[test]
fn aggregator_refuses_uploads_of_other_tickets_and_bodies_of_others() {
    let mut world = World::new(full(), 5);
    let mut fork = World::with_seed(full(), 5, 92);
    let (ticket, other) = (world.start(MODEL).unwrap(), fork.start(MODEL).unwrap());
    let forked = fork.upload(1, &other, MODEL, local(1)).unwrap();
    let offer = |world: &mut World, upload: Vec<u8>| world.aggregator(AggregatorEvent::Message(upload));
    assert_eq!(offer(&mut world, forked).unwrap_err(), Error::Ticket);
    // user 2 sends the body of user 1 as its own
    let upload = world.upload(1, &ticket, MODEL, local(1)).unwrap();
    let signed: Signed<dphe::wire::Upload> = world.read(&upload);
    let (fields, from) = (signed.message().to_bytes(), dphe::PartyId::User(user_id(2)));
    let copied = forge::signed(from, Kind::Upload, 1, &fields, signed.body());
    assert_eq!(offer(&mut world, copied).unwrap_err(), Error::Body { user: user_id(2) });
    world.accept(1, &upload).unwrap();
}

/// Nothing that the key generator hands out in a masked round depends on the sum alone.
#[test]
fn key_generator_does_not_learn_a_masked_sum() {
    let mut world = World::new(full(), 5);
    let ticket = world.start(MODEL).unwrap();
    let freeze = world.collect(&ticket, MODEL, &[1, 2, 3], local).unwrap();
    let sum = world.open(freeze).unwrap().unwrap();
    // the log holds all that the key generator knows of the round
    let plain = sum.to_bytes();
    assert!(is_sum_of(&sum, &[1, 2, 3]));
    assert!(
        plain
            .windows(12)
            .filter(|bytes| bytes.iter().any(|&byte| byte != 0))
            .all(|bytes| { world.log.windows(12).all(|known| known != bytes) })
    );
    assert!(world.generator.step(KeyGeneratorEvent::Tick, world.now, &mut rng(1)).unwrap().is_empty());
}
