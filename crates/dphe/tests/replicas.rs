//! Replicas that collect uploads for one aggregator. The sum, the freeze and all later messages are the same as those
//! of an aggregator without replicas.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use dphe::party::{
    Action, AggregatorEvent, AggregatorParty, Checked, Intake, IntakeRound, Notice, Party as _,
};
use dphe::wire::{Kind, Participant, Signed, UploadAck};
use dphe::{Collecting, Error, PartyId, Profile, PublicSupport, TaskConfig, Threads, UserId};
use support::{NOW, Parties, Transcript, config, identity, rng, transcript, update};

struct Round {
    parties: Parties,
    transcript: Transcript,
    intake: IntakeRound,
}

fn round(profile: Profile) -> Round {
    round_of(config(profile))
}

fn round_of(config: TaskConfig) -> Round {
    let dense = config.dense as usize;
    let parties = Parties::new(config, 5);
    let task = parties.roster.task();
    let public: Vec<usize> = PublicSupport::of(task, support::round(1)).indices().collect();
    // any weight, or those of the public support
    let at = |i: u32| if task.has_private_support() { i } else { public[i as usize % public.len()] as u32 };
    let transcript =
        transcript(&parties, |n| update(24, &[(at(n), 0.5)], &[0.125, f64::from(n) / 8.0][..dense]));
    let keys = parties.roles.key_generator.aggregator_keys();
    let intake =
        Intake::new(keys, identity(PartyId::Aggregator), parties.roster.clone(), Threads::ONE).unwrap();
    let intake = intake.begin(&transcript.of_kind(Kind::RoundTicket.number())).unwrap();
    Round { parties, transcript, intake }
}

impl Round {
    fn uploads(&self) -> Vec<Vec<u8>> {
        let all = self.transcript.messages.iter().map(|(_, message)| message);
        all.filter(|message| message[5] == Kind::Upload.number()).cloned().collect()
    }

    /// The aggregator just after the ticket, and its log.
    fn aggregator(&self) -> (AggregatorParty, Vec<u8>) {
        let log = self.transcript.logs[&PartyId::Aggregator][1].clone();
        let party = self.parties.start_aggregator(&log).unwrap();
        assert_eq!(party.phase().as_str(), "collecting");
        (party, log)
    }

    /// Reads the partial sums of replicas, as the leader does.
    fn restore<P: AsRef<[u8]>>(&self, partials: &[P], users: &[Stored]) -> Result<Collecting, Error> {
        let mut collected = self.intake.empty();
        users
            .iter()
            .try_for_each(|(user, fingerprints, masks)| collected.add_user(*user, fingerprints, masks))?;
        partials.iter().try_for_each(|partial| collected.add_partial_sum(partial.as_ref(), Threads::ONE))?;
        Ok(collected)
    }

    fn gather(&self, uploads: &[Vec<u8>]) -> (Collecting, Vec<Participant>) {
        let Folded { shards, users, participants } = self.fold(uploads);
        (self.restore(&shards, &users).unwrap(), participants)
    }

    /// Adds each upload to one of two partial sums, which are written and read in between, as replicas do.
    fn fold(&self, uploads: &[Vec<u8>]) -> Folded {
        let mut shards: [Vec<u8>; 2] = Default::default();
        let (mut participants, mut users) = (Vec::new(), Vec::new());
        for (i, message) in uploads.iter().enumerate() {
            let Checked { participant, collecting } = self.intake.check(message).unwrap();
            users.push((participant.user, collecting.fingerprints(), collecting.mask_parts()));
            let shard = &mut shards[i % 2];
            *shard = self.intake.add_to(shard, collecting).unwrap();
            participants.push(participant);
        }
        Folded { shards, users, participants }
    }
}

/// What replicas store of a user: its fingerprints and the parts of its masks.
type Stored = (UserId, Vec<u8>, Vec<u8>);

/// What replicas store.
struct Folded {
    shards: [Vec<u8>; 2],
    users: Vec<Stored>,
    participants: Vec<Participant>,
}

fn sent(actions: &[Action]) -> &[u8] {
    let message = actions.iter().find_map(|action| match action {
        Action::Send { to: PartyId::KeyGenerator, message } => Some(message),
        _ => None,
    });
    message.unwrap()
}

#[test]
fn replicas_collect_the_same_sum_as_one_aggregator() {
    for profile in [Profile::Sparse, Profile::Full] {
        let round = round(profile);
        let (mut aggregator, mut log) = round.aggregator();
        let (collected, uploads) = round.gather(&round.uploads());
        let event = AggregatorEvent::Collected { collected: Box::new(collected), uploads };
        let actions = aggregator.step(event, NOW, &mut rng(3)).unwrap();
        let Action::Append(record) = &actions[0] else { panic!("on disk before it is sent") };
        log.extend(record);
        assert!(
            sent(&actions) == round.transcript.of_kind(Kind::Freeze.number()),
            "the same set, the same sum"
        );
        // again from the log
        let mut again = round.parties.start_aggregator(&log).unwrap();
        assert_eq!((again.phase().as_str(), again.collected().len()), ("frozen", 5));
        let ack = AggregatorEvent::Message(round.transcript.of_kind(Kind::FreezeAck.number()));
        let actions = again.step(ack, NOW, &mut rng(3)).unwrap();
        assert!(sent(&actions) == round.transcript.of_kind(Kind::Decrypt.number()), "the same request");
        // an exchanged sum in the log is detected
        let at = log.len() - 40;
        log[at] ^= 1;
        let (mut short, _) = round.aggregator();
        let (few, uploads) = round.gather(&round.uploads()[..2]);
        let event = AggregatorEvent::Collected { collected: Box::new(few), uploads };
        assert_eq!(short.step(event, NOW, &mut rng(3)).unwrap_err(), Error::SetSmall { users: 2, floor: 3 });
        assert_eq!(short.phase().as_str(), "collecting");
        let damaged = round.parties.start_aggregator(&log);
        assert!(
            damaged.is_err() || damaged.unwrap().phase().as_str() == "collecting",
            "what does not hold is not used"
        );
    }
}

/// Partial sums that were added twice or not at all.
#[test]
fn partial_sum_added_twice_or_lost_is_detected() {
    for (profile, dense) in
        [(Profile::Sparse, 2), (Profile::Sparse, 0), (Profile::Full, 2), (Profile::Paper, 0)]
    {
        let round = round_of(TaskConfig { dense, ..config(profile) });
        let Folded { shards: [a, b], users, participants } = round.fold(&round.uploads());
        assert!(round.restore(&[&a, &b], &users).unwrap().check_count().is_ok());
        // in `paper`, users may send different numbers of shards
        let twice = vec![&a, &b, &b];
        let wrong = if profile == Profile::Paper { vec![] } else { vec![twice] };
        for partials in [vec![&a], vec![]].into_iter().chain(wrong) {
            let collected = round.restore(&partials, &users).unwrap();
            assert!(matches!(collected.check_count(), Err(Error::Storage { .. })), "{profile:?} {dense}");
            let (mut aggregator, _) = round.aggregator();
            let event =
                AggregatorEvent::Collected { collected: Box::new(collected), uploads: participants.clone() };
            assert!(matches!(aggregator.step(event, NOW, &mut rng(3)), Err(Error::Storage { .. })));
            assert_eq!(aggregator.phase().as_str(), "collecting");
            let collected = round.restore(&partials, &users).unwrap();
            let still = collected.finish(Threads::ONE).unwrap_err();
            assert!(matches!(Error::from(still), Error::Storage { .. }));
        }
    }
}

#[test]
fn intake_signs_acknowledgements_of_the_aggregator() {
    let round = round(Profile::Full);
    let upload = round.uploads().remove(0);
    let checked = round.intake.check(&upload).unwrap();
    let body_hash = checked.participant.body_hash;
    let ack = round.intake.acknowledge(body_hash);
    assert!(ack == round.transcript.of_kind(Kind::UploadAck.number()));
    assert!(Signed::<UploadAck>::decode(&ack, &round.parties.roster).is_ok());
    // following the ticket of the same round changes nothing
    let again = round.intake.follow(&round.transcript.of_kind(Kind::RoundTicket.number())).unwrap();
    assert!(again.check(&upload).is_ok() && again.acknowledge(body_hash) == ack);
}

#[test]
fn tampered_uploads_and_partial_sums_are_refused() {
    let round = round(Profile::Sparse);
    let uploads = round.uploads();
    // a list of participants that does not match the sum
    let (mut aggregator, _) = round.aggregator();
    let (collected, mut participants) = round.gather(&uploads);
    participants.pop();
    let event = AggregatorEvent::Collected { collected: Box::new(collected), uploads: participants };
    assert!(matches!(aggregator.step(event, NOW, &mut rng(3)), Err(Error::Storage { .. })));
    // uploads that are already in the log
    let (collected, participants) = round.gather(&uploads[1..]);
    aggregator.step(AggregatorEvent::Message(uploads[0].clone()), NOW, &mut rng(3)).unwrap();
    let event = AggregatorEvent::Collected { collected: Box::new(collected), uploads: participants };
    assert!(matches!(aggregator.step(event, NOW, &mut rng(3)), Err(Error::Order { .. })));
    // tampered uploads
    let mut bad = uploads[0].clone();
    *bad.last_mut().unwrap() ^= 1;
    assert!(round.intake.check(&bad).is_err());
    // tampered partial sums
    let Checked { participant, collecting } = round.intake.check(&uploads[0]).unwrap();
    let (user, masks) = (participant.user, collecting.mask_parts());
    assert_eq!(masks, participant.salt);
    let (fingerprints, partial) = (collecting.fingerprints(), collecting.to_partial_sum(Threads::ONE));
    assert!(!fingerprints.is_empty() && fingerprints.len() % 12 == 0);
    let one = [(user, fingerprints.clone(), masks.clone())];
    let refused = |partials: &[&[u8]], users: &[Stored]| round.restore(partials, users).unwrap_err();
    assert!(round.restore(&[&partial], &one).is_ok());
    for cut in [0, 7, 11, partial.len() / 2, partial.len() - 1] {
        assert!(matches!(refused(&[&partial[..cut]], &one), Error::Storage { .. }), "{cut}");
    }
    let (longer, other) = ([&partial[..], &[0]].concat(), [&[9; 8], &partial[8..]].concat());
    for bad in [&longer, &other] {
        assert!(matches!(refused(&[bad], &one), Error::Storage { .. }));
    }
    // noise that two replicas have seen
    let other = support::user_id(5);
    let twice = [(user, fingerprints.clone(), masks.clone()), (other, fingerprints.clone(), masks.clone())];
    assert_eq!(refused(&[&partial], &twice), Error::NonceReuse { user: other });
    let same = [(user, fingerprints.clone(), masks.clone()), (user, Vec::new(), masks.clone())];
    assert!(matches!(refused(&[&partial], &same), Error::Storage { .. }));
    // parts of masks of another length
    for masks in [&[][..], &masks[..15], &[&masks[..], &[0]].concat(), &[0; 48]] {
        let cut = [(user, fingerprints.clone(), masks.to_vec())];
        assert!(matches!(refused(&[&partial], &cut), Error::Storage { .. }), "{}", masks.len());
    }
}

/// In a masked round, the aggregator's part of the masks passes through the store as well, and is needed.
#[test]
fn masks_pass_through_the_store() {
    let round = round(Profile::Full);
    let Folded { shards, users, participants } = round.fold(&round.uploads());
    for ((_, _, masks), participant) in users.iter().zip(&participants) {
        assert_eq!((masks.len(), &masks[..16]), (48, &participant.salt[..]));
    }
    for masks in [&[][..], &[0; 16], &[0; 47], &[0; 49]] {
        let one = [(participants[0].user, Vec::new(), masks.to_vec())];
        assert!(matches!(round.restore(&shards, &one), Err(Error::Storage { .. })), "{}", masks.len());
    }
    // the whole round from the store of replicas, with a restart in between, and with two blinds exchanged
    let mut exchanged = users.clone();
    let (first, rest) = exchanged.split_at_mut(1);
    first[0].2[16..].swap_with_slice(&mut rest[0].2[16..]);
    for (users, works) in [(users, true), (exchanged, false)] {
        let (mut aggregator, mut log) = round.aggregator();
        let collected = Box::new(round.restore(&shards, &users).unwrap());
        let event = AggregatorEvent::Collected { collected, uploads: participants.clone() };
        let store = |log: &mut Vec<u8>, actions: &[Action]| {
            let Action::Append(record) = &actions[0] else { panic!("on disk before it is sent") };
            log.extend(record);
        };
        store(&mut log, &aggregator.step(event, NOW, &mut rng(3)).unwrap());
        let mut again = round.parties.start_aggregator(&log).unwrap();
        for kind in [Kind::FreezeAck, Kind::RoundResult] {
            let event = AggregatorEvent::Message(round.transcript.of_kind(kind.number()));
            let actions = again.step(event, NOW, &mut rng(3)).unwrap();
            store(&mut log, &actions);
            if kind == Kind::RoundResult {
                let opened = actions.iter().find_map(|action| match action {
                    Action::Notify(Notice::Opened { sum, .. }) => Some(sum),
                    _ => None,
                });
                assert_eq!(opened == Some(&round.transcript.sums[0].1), works);
                // a sum that cannot be decoded ends the round
                assert_eq!(again.phase().as_str(), if works { "received" } else { "idle" });
            }
        }
    }
}
