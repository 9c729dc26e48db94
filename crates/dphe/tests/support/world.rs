//! The parties of a task, moved step by step by a test. No message is lost.

use std::collections::BTreeMap;

use chacha20::ChaCha20Rng;
use dphe::party::log::Log;
use dphe::party::{
    Action, AggregatorEvent, AggregatorParty, KeyGeneratorEvent, KeyGeneratorParty, Notice, Party as _, Time,
    UserEvent, UserParty,
};
use dphe::wire::{
    Close, Decrypt, Ending, Freeze, Participant, RoundOpen, RoundResult, RoundTicket, Signed, Upload,
};
use dphe::{Digest, Error, PartyId, PublicSupport, TaskConfig, Update, WeightSum};

use super::{NOW, Parties, forge, rng, user_id};

pub struct World {
    pub parties: Parties,
    pub generator: KeyGeneratorParty,
    pub aggregator: AggregatorParty,
    pub users: BTreeMap<u32, UserParty>,
    pub now: Time,
    /// The key generator's log.
    pub log: Vec<u8>,
    /// The users' logs.
    user_logs: BTreeMap<u32, Vec<u8>>,
    /// What the aggregator wants to send to the key generator.
    outbox: Vec<Vec<u8>>,
    rng: ChaCha20Rng,
}

/// How a round ends after its sum was opened.
#[derive(Clone, Copy)]
pub enum End<'a> {
    Publish(&'a [u8]),
    Reject,
}

/// Returns the messages to a party, or to all users.
pub fn sent(actions: Vec<Action>) -> Vec<Vec<u8>> {
    let message = |action| match action {
        Action::Send { message, .. } | Action::Announce(message) => Some(message),
        _ => None,
    };
    actions.into_iter().filter_map(message).collect()
}

/// Does what actions ask for with a log.
fn store(log: &mut Vec<u8>, actions: &[Action]) {
    for action in actions {
        match action {
            Action::Append(bytes) => log.extend(bytes),
            Action::Replace(bytes) => *log = bytes.to_vec(),
            _ => {}
        }
    }
}

impl World {
    pub fn new(config: TaskConfig, users: u32) -> Self {
        Self::with_seed(config, users, 91)
    }

    /// The same keys, and other random numbers in tickets and uploads.
    pub fn with_seed(config: TaskConfig, users: u32, seed: u64) -> Self {
        let parties = Parties::new(config, users);
        let start = |n| (n, parties.start_user(n, &[]).unwrap());
        let prefix = |party| Log::new(party, &parties.roster).prefix().to_vec();
        Self {
            generator: parties.start_key_generator(&[]).unwrap(),
            aggregator: parties.start_aggregator(&[]).unwrap(),
            users: (1..=users).map(start).collect(),
            now: NOW,
            log: prefix(PartyId::KeyGenerator),
            user_logs: (1..=users).map(|n| (n, prefix(PartyId::User(user_id(n))))).collect(),
            outbox: Vec::new(),
            rng: rng(seed),
            parties,
        }
    }

    /// Hands a message to the key generator, which opens a sum at once, and returns its answers.
    pub fn ask_generator(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, Error> {
        let mut actions =
            self.generator.step(KeyGeneratorEvent::Message(message), self.now, &mut self.rng)?;
        if actions.iter().any(|action| matches!(action, Action::Wake(_))) {
            actions.extend(self.generator.step(KeyGeneratorEvent::Tick, self.now, &mut self.rng)?);
        }
        store(&mut self.log, &actions);
        Ok(sent(actions))
    }

    /// The key generator starts again from its log.
    pub fn restart_generator(&mut self) {
        self.generator = self.parties.start_key_generator_at(&self.log, self.now).unwrap();
    }

    /// The aggregator gives up the round, and everybody learns of it.
    pub fn abort(&mut self) {
        self.aggregator(AggregatorEvent::Abort).unwrap();
        let close = self.outbox.pop().unwrap();
        self.outbox.clear();
        self.ask_generator(close).unwrap();
        self.tell_all(&[]);
    }

    /// Lets the aggregator take a step, and keeps what it sends to the key generator.
    pub fn aggregator(&mut self, event: AggregatorEvent) -> Result<Vec<Action>, Error> {
        let (mine, others) =
            self.aggregator.step(event, self.now, &mut self.rng)?.into_iter().partition::<Vec<_>, _>(
                |action| matches!(action, Action::Send { to: PartyId::KeyGenerator, .. }),
            );
        self.outbox.extend(sent(mine));
        Ok(others)
    }

    /// Lets a user take a step.
    pub fn user(&mut self, n: u32, event: UserEvent) -> Result<Vec<Action>, Error> {
        let actions = self.users.get_mut(&n).unwrap().step(event, self.now, &mut self.rng)?;
        store(self.user_logs.get_mut(&n).unwrap(), &actions);
        Ok(actions)
    }

    /// A user starts again from its log.
    pub fn restart_user(&mut self, n: u32) {
        let user = self.parties.start_user(n, &self.user_logs[&n]).unwrap();
        self.users.insert(n, user);
    }

    /// The aggregator asks for a ticket of the next round.
    pub fn start(&mut self, model: &[u8]) -> Result<Vec<u8>, Error> {
        let start = AggregatorEvent::Start { model: Digest::of_model(model), deadline: 1000 };
        self.aggregator(start)?;
        // the close of the round before is sent again
        let messages = core::mem::take(&mut self.outbox);
        let mut answers = Vec::new();
        for message in messages {
            answers = self.ask_generator(message)?;
        }
        let ticket = answers.remove(0);
        self.aggregator(AggregatorEvent::Message(ticket.clone()))?;
        Ok(ticket)
    }

    /// A user seals an update for a ticket.
    pub fn upload(&mut self, n: u32, ticket: &[u8], model: &[u8], update: Update) -> Result<Vec<u8>, Error> {
        self.user(n, UserEvent::Begin { ticket: ticket.to_vec(), model: model.to_vec() })?;
        let round = self.users[&n].round();
        Ok(sent(self.user(n, UserEvent::Update { round, update })?).remove(0))
    }

    /// The aggregator accepts an upload, and the user gets the acknowledgement.
    pub fn accept(&mut self, n: u32, upload: &[u8]) -> Result<(), Error> {
        let ack = sent(self.aggregator(AggregatorEvent::Message(upload.to_vec()))?).remove(0);
        self.user(n, UserEvent::Message(ack)).map(drop)
    }

    /// The aggregator freezes the round with what it has, unless it has done so already.
    pub fn freeze(&mut self) -> Vec<u8> {
        if self.outbox.is_empty() {
            self.aggregator(AggregatorEvent::Freeze).unwrap();
        }
        self.outbox.remove(0)
    }

    /// The key generator takes the freeze and opens the sum, which the aggregator then has. Nothing if opening failed.
    pub fn open(&mut self, freeze: Vec<u8>) -> Result<Option<WeightSum>, Error> {
        let ack = self.ask_generator(freeze)?.remove(0);
        self.aggregator(AggregatorEvent::Message(ack))?;
        let request = self.outbox.remove(0);
        let result = self.ask_generator(request)?.remove(0);
        let opened = self.aggregator(AggregatorEvent::Message(result))?;
        Ok(opened.into_iter().find_map(|action| match action {
            Action::Notify(Notice::Opened { sum, .. }) => Some(sum),
            _ => None,
        }))
    }

    /// The aggregator ends a round whose sum is open, and the key generator learns of it.
    pub fn end(&mut self, end: End<'_>) -> Result<(), Error> {
        let round = self.aggregator.round();
        self.aggregator(match end {
            End::Publish(model) => AggregatorEvent::NewModel { round, model: model.to_vec() },
            End::Reject => AggregatorEvent::Reject { round },
        })?;
        let close = self.outbox.remove(0);
        self.ask_generator(close).map(drop)
    }

    /// The messages with which the aggregator answers a user who asks about its round.
    pub fn poll(&mut self, n: u32) -> Vec<Vec<u8>> {
        let event = AggregatorEvent::Poll { user: user_id(n), round: self.users[&n].round() };
        sent(self.aggregator(event).unwrap())
    }

    /// A user takes messages of the aggregator. If they hold a sum, it arrives at this model. Returns the sum.
    pub fn tell(&mut self, n: u32, messages: Vec<Vec<u8>>, model: &[u8]) -> Result<Option<WeightSum>, Error> {
        for message in messages {
            for action in self.user(n, UserEvent::Message(message))? {
                if let Action::Notify(Notice::Apply { sum }) = action {
                    self.user(n, UserEvent::Applied { round: sum.round(), model: model.to_vec() })?;
                    return Ok(Some(sum));
                }
            }
        }
        Ok(None)
    }

    /// Runs a round of these users, whose updates are given. All users of the task learn how it ended.
    pub fn round(
        &mut self,
        model: &[u8],
        users: &[u32],
        update: impl Fn(u32) -> Update,
        end: End<'_>,
    ) -> Result<Option<WeightSum>, Error> {
        let ticket = self.start(model)?;
        let freeze = self.collect(&ticket, model, users, update)?;
        let opened = self.open(freeze)?;
        self.end(end)?;
        self.tell_all(if let End::Publish(next) = end { next } else { model });
        Ok(opened)
    }

    /// Collects the updates of these users, and returns the freeze.
    pub fn collect(
        &mut self,
        ticket: &[u8],
        model: &[u8],
        users: &[u32],
        update: impl Fn(u32) -> Update,
    ) -> Result<Vec<u8>, Error> {
        for &n in users {
            let upload = self.upload(n, ticket, model, update(n))?;
            self.accept(n, &upload)?;
        }
        Ok(self.freeze())
    }

    /// All users learn how the round ended, and compute this model.
    pub fn tell_all(&mut self, model: &[u8]) {
        for n in self.users.keys().copied().collect::<Vec<_>>() {
            let messages = self.poll(n);
            self.tell(n, messages, model).unwrap();
        }
    }

    /// Reads a message of the task.
    pub fn read<M: dphe::wire::Message>(&self, message: &[u8]) -> Signed<M> {
        Signed::decode(message, &self.parties.roster).unwrap()
    }

    /// The participant that an upload makes of its sender.
    pub fn participant(&self, upload: &[u8]) -> Participant {
        let signed: Signed<Upload> = self.read(upload);
        let PartyId::User(user) = signed.from() else { panic!("only users upload") };
        let &Upload { count, salt, body_hash, .. } = signed.message();
        // the signature precedes the body
        let at = upload.len() - signed.body().len() - 64;
        let signature = upload[at..at + 64].try_into().unwrap();
        Participant { user, count, salt, body_hash, signature }
    }

    /// An aggregator that asks for a ticket of any round from any model.
    pub fn start_forged(&mut self, model: &[u8]) -> Result<Vec<u8>, Error> {
        let (roster, round) = (&self.parties.roster, self.generator.round());
        let open = RoundOpen {
            model: Digest::of_model(model),
            policy: roster.task().policy_hash(),
            roster: roster.hash(),
            support: PublicSupport::of(roster.task(), round).digest(),
            deadline: 1000,
            nonce: [3; 16],
        };
        Ok(self.ask_generator(forge::from_aggregator(round.get(), &open, &[]))?.remove(0))
    }

    /// An aggregator that freezes any sum with any participants, and asks the key generator to open it.
    pub fn open_forged(
        &mut self,
        ticket: &[u8],
        users: Vec<Participant>,
        occupied: u32,
        sum: &[u8],
    ) -> Result<Signed<RoundResult>, Error> {
        let round = self.generator.round().get();
        let ticket = self.read::<RoundTicket>(ticket).hash();
        let sum_hash = Digest::from_bytes(forge::hash("dphe/v2/sum", &[sum]));
        let freeze = Freeze { ticket, attempt: 1, sum_hash, occupied, users };
        let message = forge::from_aggregator(round, &freeze, &[]);
        self.ask_generator(message.clone())?;
        let freeze = self.read::<Freeze>(&message).hash();
        let request = Decrypt { freeze, occupied, sum_hash };
        let result = self.ask_generator(forge::from_aggregator(round, &request, sum))?.remove(0);
        Ok(self.read(&result))
    }

    /// An aggregator that tells the key generator any end of the round.
    pub fn close_forged(&mut self, ending: Ending, publish: Digest) -> Result<(), Error> {
        let round = self.generator.round().get();
        self.ask_generator(forge::from_aggregator(round, &Close { ending, publish }, &[])).map(drop)
    }
}
