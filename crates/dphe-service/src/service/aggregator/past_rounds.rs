//! Rounds that ended earlier, for users who are behind.

use std::sync::Arc;

use dphe::Round;
use dphe::party::EndedRound;
use dphe::wire::{Kind, Rosters};
use tokio::sync::{mpsc, oneshot};

use super::AggregatorCommand;
use crate::Error;
use crate::store::Archive;
#[cfg(feature = "postgres")]
use crate::store::postgres::PgStore;

/// Where the handlers find rounds that ended earlier.
#[derive(Clone)]
pub(super) enum PastRounds {
    /// The store of a single aggregator, which its actor owns.
    Actor(mpsc::Sender<AggregatorCommand>),
    /// The database of replicas.
    #[cfg(feature = "postgres")]
    Database(Box<PgStore>),
}

impl PastRounds {
    /// Returns a round that has ended, or `None` if it is not known here.
    pub(super) async fn get(&self, round: Round, rosters: &Rosters) -> Option<Arc<EndedRound>> {
        let _ = rosters;
        match self {
            Self::Actor(actor) => {
                let (reply, answer) = oneshot::channel();
                actor.send(AggregatorCommand::PastRound { round, reply }).await.ok()?;
                answer.await.ok()?
            }
            #[cfg(feature = "postgres")]
            Self::Database(store) => match read(&mut (**store).clone(), rosters, round).await {
                Ok(ended) => ended.map(Arc::new),
                Err(error) => {
                    tracing::warn!(%error, round = round.get(), "an earlier round cannot be read");
                    None
                }
            },
        }
    }
}

/// Reads a round that has ended from the archive.
pub(super) async fn read(
    store: &mut impl Archive,
    rosters: &Rosters,
    round: Round,
) -> Result<Option<EndedRound>, Error> {
    let messages = store.round_messages(round).await?;
    let find = |kind: Kind| {
        messages.iter().find(|(number, _)| *number == kind.number()).map(|(_, bytes)| &bytes[..])
    };
    let (Some(ticket), Some(close)) = (find(Kind::RoundTicket), find(Kind::Close)) else { return Ok(None) };
    let published = find(Kind::Freeze).zip(find(Kind::Publish));
    Ok(Some(EndedRound::from_messages(rosters.at(round), ticket, close, published)?))
}
