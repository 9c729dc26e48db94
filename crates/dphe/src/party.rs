//! The three parties as state machines (docs/protocol.md, section 9).
//!
//! [`Party::step`] takes an event and the time, and returns actions. The program that runs a party carries them out in
//! their order. In particular, a record must be on disk before the messages after it are sent. If storing fails, the
//! process stops and starts again from its log. An error means that the event was refused and nothing has changed.

mod aggregator;
mod context;
pub mod history;
mod key_generator;
pub mod log;
mod user;

pub use aggregator::{
    AggregatorEvent, AggregatorParty, AggregatorPhase, Checked, EndedRound, Intake, IntakeRound, PublishedSum,
};
pub use context::{IdentityKeys, PartyContext};
#[cfg(test)]
pub(crate) use history::with_roster as history_with_roster;
pub use key_generator::{ChangedRoster, KeyGeneratorEvent, KeyGeneratorParty, KeyGeneratorPhase};
pub use user::{UserEvent, UserParty, UserPhase};

use core::fmt;

use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::wire::Ending;
use crate::{Error, Overlap, PartyId, PublicSupport, Roster, Round, WeightSum};

/// A party of a task.
pub trait Party: Sized {
    /// The keys of the party.
    type Keys;
    /// The events that it accepts.
    type Event;
    /// The phases of its round.
    type Phase: Copy + Eq + fmt::Debug + fmt::Display;

    /// Starts the party from its log, and returns it with the actions to begin with.
    ///
    /// # Errors
    /// [`Error::Storage`] if the log is damaged or belongs to another party, [`Error::OtherTask`], [`Error::Roster`],
    /// [`Error::Signature`] or [`Error::Key`] if the keys or the identity do not match the roster.
    fn start(keys: Self::Keys, context: PartyContext<'_>, now: Time) -> Result<(Self, Vec<Action>), Error>;

    /// Starts a party that has never run. Its first action replaces the log by a checkpoint, which holds the seeds.
    /// Then the keys need not be kept anywhere else, because `from_log` of the keys reads the seeds from the log. The
    /// log of the context is ignored.
    ///
    /// # Errors
    /// As [`Party::start`].
    fn start_new(
        keys: Self::Keys,
        context: PartyContext<'_>,
        now: Time,
    ) -> Result<(Self, Vec<Action>), Error>;

    /// Takes one step.
    ///
    /// # Errors
    /// The errors of docs/protocol.md, section 8. After an error, nothing has changed.
    fn step(&mut self, event: Self::Event, now: Time, rng: &mut impl CryptoRng)
    -> Result<Vec<Action>, Error>;

    /// Returns the event of a message that has arrived.
    fn message(bytes: Vec<u8>) -> Self::Event;

    /// Returns the event for the time that [`Action::Wake`] asked for.
    fn tick() -> Self::Event;

    /// Returns the roster.
    fn roster(&self) -> &Roster;

    /// Returns the current round, or the next one if none is running.
    fn round(&self) -> Round;

    /// Returns the phase of the current round.
    fn phase(&self) -> Self::Phase;
}

/// Milliseconds on a clock that never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    fn after(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }
}

/// How long a party waits for an answer before it sends again, in milliseconds.
const RETRY: u64 = 2_000;
/// The same for requests to open a sum, which are long and take long to answer.
const RETRY_REQUEST: u64 = 30_000;

/// Something that the program must do for a party. Stored bytes may hold seeds and sums, so `Debug` omits them.
pub enum Action {
    /// Append these bytes to the log.
    Append(Vec<u8>),
    /// Replace the log by these bytes, atomically.
    Replace(Zeroizing<Vec<u8>>),
    /// Send a message.
    Send {
        /// The receiver.
        to: PartyId,
        /// The message.
        message: Vec<u8>,
    },
    /// Send a message to every user. A user who misses it polls.
    Announce(Vec<u8>),
    /// Ask the aggregator about this round.
    Poll(Round),
    /// Send a tick at this time or later. Only the latest such action counts.
    Wake(Time),
    /// Tell the program.
    Notify(Notice),
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append(bytes) => write!(f, "Append({} bytes)", bytes.len()),
            Self::Replace(bytes) => write!(f, "Replace({} bytes)", bytes.len()),
            Self::Send { to, message } => write!(f, "Send({to:?}, {} bytes)", message.len()),
            Self::Announce(message) => write!(f, "Announce({} bytes)", message.len()),
            Self::Poll(round) => write!(f, "Poll({round:?})"),
            Self::Wake(time) => write!(f, "Wake({time:?})"),
            Self::Notify(notice) => write!(f, "Notify({notice:?})"),
        }
    }
}

/// A notice from a party to the program that runs it.
#[derive(Debug)]
pub enum Notice {
    /// To a user: train, and hand in an update.
    Train {
        /// The round.
        round: Round,
        /// The positions to train, if they are public.
        support: PublicSupport,
    },
    /// To a user: the published sum is that of the listed users. Compute the model that follows from it and hand it
    /// in.
    Apply {
        /// The sum.
        sum: WeightSum,
    },
    /// To the aggregator: the sum of a round is open. Hand in the new model.
    Opened {
        /// The sum.
        sum: WeightSum,
        /// How much the updates overlap. It is lost in a restart.
        overlap: Option<Overlap>,
    },
    /// A round is over.
    Finished {
        /// The round.
        round: Round,
        /// How it ended. A user does not know it if it hears of a later round first.
        ending: Option<Ending>,
        /// To a user: whether its update is known to be in the sum.
        included: bool,
        /// To a user: the new model.
        model: Option<Vec<u8>>,
    },
}
