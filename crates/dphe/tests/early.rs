//! An aggregator that does not wait any longer: with enough updates the round goes on, with fewer it does not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use dphe::message::{Freeze, Message as _, Signed, kind};
use dphe::party::{Action, AggregatorEvent, KeyGeneratorEvent, UserEvent};
use dphe::{Digest, Error, Profile};
use support::{MODEL, NOW, Parties, config, rng, update};

fn sent(actions: Vec<Action>) -> Vec<Vec<u8>> {
    let message = |action| match action {
        Action::Send { message, .. } | Action::Announce(message) => Some(message),
        _ => None,
    };
    actions.into_iter().filter_map(message).collect()
}

#[test]
fn a_round_is_frozen_early_with_enough_users_only() {
    let parties = Parties::new(config(Profile::Sparse), 5);
    let mut generator = parties.start_key_generator(&[]).unwrap();
    let mut aggregator = parties.start_aggregator(&[]).unwrap();
    assert_eq!((aggregator.phase(), generator.phase()), ("idle", "idle"));
    assert!(matches!(aggregator.step(AggregatorEvent::Freeze, NOW), Err(Error::Order { .. })));
    let start = AggregatorEvent::Start { model: Digest::of_model(MODEL), deadline: 1000, nonce: [3; 16] };
    let open = sent(aggregator.step(start, NOW).unwrap()).remove(0);
    let ticket = generator.step(KeyGeneratorEvent::Message(open), NOW, &mut rng(1)).unwrap();
    let ticket = sent(ticket).remove(0);
    aggregator.step(AggregatorEvent::Message(ticket.clone()), NOW).unwrap();
    for n in 1..=3u32 {
        assert_eq!(aggregator.collected().len() as u32, n - 1);
        let refused = aggregator.step(AggregatorEvent::Freeze, NOW).unwrap_err();
        assert_eq!(refused, Error::SetSmall { users: n as usize - 1, floor: 3 });
        assert_eq!(aggregator.phase(), "collecting", "a refused event changes nothing");
        let mut user = parties.start_user(n, &[]).unwrap();
        let mut rng = rng(u64::from(n));
        let begin = UserEvent::Begin { ticket: ticket.clone(), model: MODEL.to_vec() };
        user.step(begin, NOW, &mut rng).unwrap();
        assert_eq!(user.phase(), "ticketed");
        let update = update(24, &[(n, 0.5)], &[0.0, 0.0]);
        let upload =
            sent(user.step(UserEvent::Update { round: user.round(), update }, NOW, &mut rng).unwrap());
        aggregator.step(AggregatorEvent::Message(upload[0].clone()), NOW).unwrap();
    }
    let actions = aggregator.step(AggregatorEvent::Freeze, NOW).unwrap();
    assert!(matches!(actions[0], Action::Append(_)), "on disk before it is sent");
    let freeze = sent(actions).remove(0);
    assert_eq!(kind(&freeze), Ok(Freeze::KIND));
    let freeze: Signed<Freeze> = Signed::decode(&freeze, &parties.roster).unwrap();
    let users: Vec<u32> = freeze.message().users.iter().map(|one| one.user.get()).collect();
    assert_eq!((users, aggregator.phase()), (vec![1, 2, 3], "frozen"));
    assert!(matches!(aggregator.step(AggregatorEvent::Freeze, NOW), Err(Error::Order { .. })));
}
