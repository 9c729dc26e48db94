//! An aggregator that freezes a round early. It succeeds with enough updates only.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use dphe::party::{Action, AggregatorEvent, KeyGeneratorEvent, Party as _, UserEvent};
use dphe::wire::{Freeze, Header, Kind, Signed};
use dphe::{Digest, Error, Profile};
use support::world::sent;
use support::{MODEL, NOW, Parties, config, rng, update};

#[test]
fn early_freeze_needs_enough_uploads() {
    let parties = Parties::new(config(Profile::Sparse), 5);
    let mut generator = parties.start_key_generator(&[]).unwrap();
    let mut aggregator = parties.start_aggregator(&[]).unwrap();
    assert_eq!((aggregator.phase().as_str(), generator.phase().as_str()), ("idle", "idle"));
    assert!(matches!(aggregator.step(AggregatorEvent::Freeze, NOW, &mut rng(3)), Err(Error::Order { .. })));
    let start = AggregatorEvent::Start { model: Digest::of_model(MODEL), deadline: 1000 };
    let open = sent(aggregator.step(start, NOW, &mut rng(3)).unwrap()).remove(0);
    let ticket = generator.step(KeyGeneratorEvent::Message(open), NOW, &mut rng(1)).unwrap();
    let ticket = sent(ticket).remove(0);
    aggregator.step(AggregatorEvent::Message(ticket.clone()), NOW, &mut rng(3)).unwrap();
    for n in 1..=3u32 {
        assert_eq!(aggregator.collected().len() as u32, n - 1);
        let refused = aggregator.step(AggregatorEvent::Freeze, NOW, &mut rng(3)).unwrap_err();
        assert_eq!(refused, Error::SetSmall { users: n as usize - 1, floor: 3 });
        assert_eq!(aggregator.phase().as_str(), "collecting", "a refused event changes nothing");
        let mut user = parties.start_user(n, &[]).unwrap();
        let mut rng = rng(u64::from(n));
        let begin = UserEvent::Begin { ticket: ticket.clone(), model: MODEL.to_vec() };
        user.step(begin, NOW, &mut rng).unwrap();
        assert_eq!(user.phase().as_str(), "ticketed");
        let update = update(24, &[(n, 0.5)], &[0.0, 0.0]);
        let upload =
            sent(user.step(UserEvent::Update { round: user.round(), update }, NOW, &mut rng).unwrap());
        aggregator.step(AggregatorEvent::Message(upload[0].clone()), NOW, &mut rng).unwrap();
    }
    let actions = aggregator.step(AggregatorEvent::Freeze, NOW, &mut rng(3)).unwrap();
    assert!(matches!(actions[0], Action::Append(_)), "on disk before it is sent");
    let freeze = sent(actions).remove(0);
    assert_eq!(Header::peek(&freeze).unwrap().kind, Kind::Freeze);
    let freeze: Signed<Freeze> = Signed::decode(&freeze, &parties.roster).unwrap();
    let users: Vec<u32> = freeze.message().users.iter().map(|one| one.user.get()).collect();
    assert_eq!((users, aggregator.phase().as_str()), (vec![1, 2, 3], "frozen"));
    assert!(matches!(aggregator.step(AggregatorEvent::Freeze, NOW, &mut rng(3)), Err(Error::Order { .. })));
}
