//! The checks of one round.

use std::collections::BTreeSet;

use dphe::party::{PublishedSum, history};
use dphe::wire::{
    Close, Ending, Freeze, FreezeAck, LastOutcome, Message, Outcome, ParticipantTree, Publish, RoundResult,
    RoundTicket, Signed,
};
use dphe::{Digest, Error, PublicSupport, Receipts, Roster, Round, UserId, WeightSum};

use super::export::RoundHead;
use super::{Chain, CheckedRound, MessageSource, Replay, RoundMessages, SumCheck};
use crate::hex;

pub(super) struct RoundCheck<'a> {
    pub(super) roster: &'a Roster,
    pub(super) source: MessageSource,
    pub(super) round: Round,
    /// The last stored round may be published and not closed yet.
    pub(super) is_last: bool,
    pub(super) messages: &'a RoundMessages,
    pub(super) findings: Vec<String>,
}

/// The messages of a round whose signatures are valid.
struct Messages {
    ticket: Option<Signed<RoundTicket>>,
    freeze: Option<Signed<Freeze>>,
    ack: Option<Signed<FreezeAck>>,
    result: Option<Signed<RoundResult>>,
    publish: Option<Signed<Publish>>,
    close: Option<Signed<Close>>,
    /// The key generator's result, which a publish message contains too.
    signed: Option<Signed<RoundResult>>,
}

impl Messages {
    /// Returns how the round ended. A publish message alone counts too, because the aggregator signs both.
    fn ending(&self) -> Option<Ending> {
        let published = self.publish.as_ref().map(|_| Ending::Published);
        published.or(self.close.as_ref().map(|close| close.message().ending))
    }
}

impl RoundCheck<'_> {
    pub(super) fn run(mut self, chain: &mut Chain, replay: Option<&mut Replay<'_>>) -> CheckedRound {
        let all = self.read_all();
        if let Some(ticket) = &all.ticket {
            self.check_ticket(ticket, chain);
        }
        self.check_presence(&all);
        self.check_freeze(&all);
        self.check_result(&all);
        self.check_released(&all, chain);
        let mut sum = SumCheck::None;
        if let Some(publish) = &all.publish {
            self.check_publish(publish, &all);
            if let (Some(replay), Some(ticket)) = (replay, &all.ticket) {
                sum = self.recompute(ticket, publish, replay);
            }
            chain.model = Some(publish.message().model);
        }
        let head = self.advance(&all, chain);
        let users = all.signed.as_ref().map_or(0, |result| result.message().users as usize);
        let (round, ending) = (self.round.get(), all.close.as_ref().map(|close| close.message().ending));
        // a user keeps no close message of a round that it saw published
        let ending = if self.source == MessageSource::User { all.ending() } else { ending };
        CheckedRound { round, ending, users, sum, head, findings: self.findings }
    }

    fn read_all(&mut self) -> Messages {
        let publish = self.read::<Publish>();
        let result = self.read::<RoundResult>();
        let published =
            publish.as_ref().map(|publish| publish.message().check_result(self.roster, self.round));
        let signed = match published {
            Some(Ok(signed)) => Some(signed),
            Some(Err(_)) => {
                self.require(false, "the published result is not signed by the key generator");
                None
            }
            None => result.clone(),
        };
        Messages {
            ticket: self.read(),
            freeze: self.read(),
            ack: self.read(),
            result,
            publish,
            close: self.read(),
            signed,
        }
    }

    fn read<M: Message>(&mut self) -> Option<Signed<M>> {
        let bytes = self.messages.get(&M::KIND.number())?;
        match Signed::<M>::decode(bytes, self.roster) {
            Ok(message) if message.round() == self.round => Some(message),
            Ok(_) => {
                self.findings.push(format!("the {} belongs to another round", M::KIND));
                None
            }
            Err(error) => {
                self.findings.push(format!("the {}: {error}", M::KIND));
                None
            }
        }
    }

    fn require(&mut self, holds: bool, finding: &str) {
        if !holds {
            self.findings.push(finding.to_owned());
        }
    }

    /// Checks that the round continues the task: its model, its history, and the key generator's log.
    fn check_ticket(&mut self, ticket: &Signed<RoundTicket>, chain: &mut Chain) {
        let (message, task) = (ticket.message(), self.roster.task());
        self.require(message.policy == task.policy_hash(), "the ticket names another policy");
        self.require(message.roster == self.roster.hash(), "the ticket names another roster");
        let support = PublicSupport::of(task, self.round).digest();
        self.require(message.support == support, "the ticket names another public support");
        self.require(
            chain.model.is_none_or(|model| model == message.model),
            "the round does not start from the last published model",
        );
        chain.model = Some(message.model);
        self.require(
            chain.history.is_none_or(|history| history == message.history),
            "the history in the ticket does not follow from the rounds before",
        );
        chain.history = Some(message.history);
        self.require(
            chain.outcome.is_none_or(|outcome| outcome == message.last),
            "the ticket has another outcome of the round before",
        );
        let seq = message.log.seq;
        self.require(
            chain.records.is_none_or(|last| seq > last),
            "the key generator's log is shorter than before",
        );
        chain.records = Some(seq);
    }

    /// Reports what cannot be checked because it is missing.
    fn check_presence(&mut self, all: &Messages) {
        if self.source == MessageSource::User {
            let ticket = all.ticket.is_some() || all.ending().is_none();
            self.require(ticket, "the round has ended, but the ticket is missing");
            return;
        }
        let ending = all.close.as_ref().map(|close| close.message().ending);
        if ending == Some(Ending::Published) || all.publish.is_some() {
            for (kept, finding) in [
                (all.publish.is_some(), "the round was published, but the publish message is missing"),
                (
                    all.close.is_some() || self.is_last,
                    "the round was published, but the close message is missing",
                ),
                (
                    ending.is_none_or(|ending| ending == Ending::Published),
                    "the round was published, but the close message says that it was not",
                ),
                (all.ticket.is_some(), "the round was published, but the ticket is missing"),
                (all.freeze.is_some(), "the round was published, but the freeze is missing"),
                (
                    all.ack.is_some(),
                    "the round was published, but the key generator's acknowledgement of the freeze is missing",
                ),
                (
                    all.result.is_some() || self.source == MessageSource::Aggregator,
                    "the round was published, but the key generator's result is missing",
                ),
            ] {
                self.require(kept, finding);
            }
        } else if let Some(ending @ (Ending::Failed | Ending::Rejected)) = ending {
            let kept = all.result.is_some() && all.freeze.is_some();
            self.require(kept, &format!("the round was {ending}, but the freeze or the result is missing"));
        } else if ending.is_none() && !self.is_last {
            self.require(
                self.source == MessageSource::User,
                "the end of the round is missing, although a later round exists",
            );
        }
    }

    /// Checks the participants, and that they uploaded in this round.
    fn check_freeze(&mut self, all: &Messages) {
        let Some(freeze) = &all.freeze else { return };
        if let Some(ack) = &all.ack {
            self.require(ack.message().freeze == freeze.hash(), "the acknowledgement is for another freeze");
        }
        let users = &freeze.message().users;
        let ascending = users.is_sorted_by(|a, b| a.user < b.user);
        let known = users.iter().all(|one| self.roster.contains(one.user));
        self.require(ascending && known, "the participants contain a duplicate or an unknown user");
        self.require(users.len() >= self.roster.floor(), "there are fewer participants than the floor");
        if let Some(ticket) = &all.ticket {
            self.require(freeze.message().ticket == ticket.hash(), "the freeze refers to another ticket");
            let (roster, round, ticket) = (self.roster, self.round, ticket.hash());
            let signed = users.iter().all(|one| one.verify(roster, round, ticket).is_ok());
            self.require(signed, "a participant did not sign an upload for this round");
        }
    }

    /// Checks the key generator's result.
    fn check_result(&mut self, all: &Messages) {
        if let Some(result) = &all.result {
            self.require(
                Digest::of_sum_bytes(result.body()) == result.message().payload_hash,
                "the stored sum is not the one that the key generator signed",
            );
        }
        let Some(result) = all.signed.as_ref().map(Signed::message) else { return };
        self.require(
            result.users as usize >= self.roster.floor(),
            "the key generator opened a sum of fewer users than the floor",
        );
        if let Some(freeze) = &all.freeze {
            let users = &freeze.message().users;
            self.require(
                result.users as usize == users.len(),
                "the sum and the freeze have different numbers of participants",
            );
            self.require(
                result.users_root == ParticipantTree::new(users).root(),
                "the frozen participants are not those of the result",
            );
        }
        let outcome = match result.outcome {
            Outcome::Released => LastOutcome::Released,
            Outcome::Failed => LastOutcome::Failed,
        };
        self.require(
            all.ending().is_none_or(|ending| ending.outcome() == outcome),
            "the round ended in another way than the key generator's result says",
        );
    }

    /// Checks which sums were opened: how many, and of which sets of users on one model.
    fn check_released(&mut self, all: &Messages, chain: &mut Chain) {
        let Some(result) = &all.signed else { return };
        chain.opened = chain.opened.saturating_add(1);
        let most = self.roster.task().config().rounds;
        self.require(chain.opened <= most, "more sums were opened than the policy allows");
        let (Some(freeze), Outcome::Released) = (&all.freeze, result.message().outcome) else { return };
        let model = all.ticket.as_ref().map(|ticket| ticket.message().model);
        if chain.released.0 != model {
            chain.released = (model, Vec::new());
        }
        let users: BTreeSet<UserId> = freeze.message().users.iter().map(|one| one.user).collect();
        let sets = &mut chain.released.1;
        let differences: Vec<usize> =
            sets.iter().map(|set| set.symmetric_difference(&users).count()).collect();
        if differences.contains(&0) {
            return;
        }
        sets.push(users);
        let allowed = match differences[..] {
            [] => true,
            [one] => one >= self.roster.floor(),
            _ => false,
        };
        self.require(allowed, "sums of several sets of users were opened on one model");
    }

    fn check_publish(&mut self, publish: &Signed<Publish>, all: &Messages) {
        let message = publish.message();
        let hash = Digest::of_sum_bytes(publish.body());
        self.require(hash == message.sum_hash, "the stored sum is not the published one");
        if let Some(signed) = &all.signed {
            self.require(
                self.roster.task().receipts() == Receipts::Masked || signed.message().payload_hash == hash,
                "the published sum is not the one that the key generator signed",
            );
        }
        if let Some(result) = &all.result {
            self.require(
                message.result.hash() == result.hash(),
                "the published result is not the one received",
            );
        }
        if let Some(close) = &all.close {
            self.require(
                close.message().publish == publish.hash(),
                "the close message refers to another publish message",
            );
        }
    }

    /// Computes the model of the round again from the published sum.
    fn recompute(
        &mut self,
        ticket: &Signed<RoundTicket>,
        publish: &Signed<Publish>,
        replay: &mut Replay<'_>,
    ) -> SumCheck {
        // the findings of an earlier round say why its model is not the one that was computed
        if Digest::of_model(&replay.model) != ticket.message().model {
            return SumCheck::None;
        }
        let read =
            PublishedSum::new(self.roster, ticket, publish).and_then(|sum| self.read_sum(&sum, replay));
        let (sum, check) = match read {
            Ok(read) => read,
            Err(error) => {
                self.findings.push(format!("the published sum cannot be used: {error}"));
                return SumCheck::None;
            }
        };
        // an aggregator that cannot compute a model publishes the one before
        if let Ok(model) = replay.maker.next_model(&sum, &replay.model) {
            replay.model = model;
        }
        self.require(
            Digest::of_model(&replay.model) == publish.message().model,
            "the published model does not follow from the sum",
        );
        check
    }

    fn read_sum(&self, sum: &PublishedSum<'_>, replay: &Replay<'_>) -> Result<(WeightSum, SumCheck), Error> {
        for &user in &replay.users {
            match sum.checked(user) {
                // this user has forgotten the seeds of the round
                Err(Error::Stale { .. }) => {}
                checked => return Ok((checked?, SumCheck::Checked)),
            }
        }
        let check = match self.roster.task().receipts() {
            // the signature of the key generator is the check
            Receipts::None | Receipts::Checked => SumCheck::Checked,
            Receipts::Masked if self.source == MessageSource::Archive => SumCheck::Read,
            Receipts::Masked => SumCheck::Chained,
        };
        Ok((sum.unchecked(&replay.key)?, check))
    }

    /// Continues the history, and returns what members compare.
    fn advance(&mut self, all: &Messages, chain: &mut Chain) -> Option<RoundHead> {
        let Some(ticket) = &all.ticket else {
            (chain.history, chain.outcome) = (None, None);
            return None;
        };
        let root = all
            .publish
            .as_ref()
            .zip(all.signed.as_ref())
            .map(|(publish, signed)| (publish.hash(), signed.message().users_root));
        let ended = all.ending().filter(|ending| (*ending == Ending::Published) == root.is_some());
        chain.history = ended
            .zip(chain.history)
            .map(|(ending, last)| history::next(last, self.roster, ticket, ending, root));
        chain.outcome = ended.map(Ending::outcome);
        let text = |digest: &Digest| hex::encode(digest.as_bytes());
        Some(RoundHead {
            ticket: text(&ticket.hash()),
            log_records: ticket.message().log.seq,
            log_head: text(&ticket.message().log.head),
            users_root: root.map(|(_, root)| text(&root)),
            history: chain.history.as_ref().map(text),
            model: text(chain.model.as_ref().unwrap_or(&ticket.message().model)),
        })
    }
}
