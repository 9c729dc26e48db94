//! Rounds that ended earlier, for users who are behind and for members who verify the task.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dphe::Round;
use dphe::party::EndedRound;
use dphe::wire::{Close, Ending, Kind, Rosters, Signed};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::AggregatorCommand;
use crate::Error;
use crate::store::Archive;
#[cfg(feature = "postgres")]
use crate::store::postgres::PgStore;

/// The number of rounds that stay in memory after they were read.
const KEPT: usize = 4;

/// Reads rounds that ended earlier. Users who are behind ask for the same few rounds again and again, so these are
/// kept. One round is read at a time: otherwise a single user could keep the actor busy with old rounds.
#[derive(Clone)]
pub(super) struct PastRounds {
    source: Source,
    kept: Arc<Mutex<VecDeque<Arc<EndedRound>>>>,
    reading: Arc<Semaphore>,
}

/// Where the rounds are.
#[derive(Clone)]
pub(super) enum Source {
    /// The store of a single aggregator, which its actor owns.
    Actor(mpsc::Sender<AggregatorCommand>),
    /// The database of replicas.
    #[cfg(feature = "postgres")]
    Database(Box<PgStore>),
}

impl PastRounds {
    pub(super) fn new(source: Source) -> Self {
        Self { source, kept: Arc::default(), reading: Arc::new(Semaphore::new(1)) }
    }

    /// Returns a round that has ended, or `None` if it is not known here.
    pub(super) async fn get(&self, round: Round, rosters: &Rosters) -> Option<Arc<EndedRound>> {
        if let Some(kept) = self.kept(round) {
            return Some(kept);
        }
        let _permit = self.reading.acquire().await.ok()?;
        // another request may have read it meanwhile
        if let Some(kept) = self.kept(round) {
            return Some(kept);
        }
        let ended = self.read(round, rosters).await?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.truncate(KEPT - 1);
        kept.push_front(ended.clone());
        Some(ended)
    }

    fn kept(&self, round: Round) -> Option<Arc<EndedRound>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|ended| ended.round() == round).cloned()
    }

    async fn read(&self, round: Round, rosters: &Rosters) -> Option<Arc<EndedRound>> {
        let _ = rosters;
        match &self.source {
            Source::Actor(actor) => {
                let (reply, answer) = oneshot::channel();
                actor.send(AggregatorCommand::PastRound { round, reply }).await.ok()?;
                answer.await.ok()?
            }
            #[cfg(feature = "postgres")]
            Source::Database(store) => match read(&mut (**store).clone(), rosters, round).await {
                Ok(ended) => ended.map(Arc::new),
                Err(error) => {
                    tracing::warn!(%error, round = round.get(), "an earlier round cannot be read");
                    None
                }
            },
        }
    }

    /// Returns the messages of a round that has ended, for members who verify it, or nothing if it is not known here.
    pub(super) async fn messages(&self, round: Round, rosters: &Rosters) -> Vec<Bytes> {
        let _ = rosters;
        match &self.source {
            Source::Actor(actor) => {
                let (reply, answer) = oneshot::channel();
                let sent = actor.send(AggregatorCommand::PastMessages { round, reply }).await;
                if sent.is_err() { Vec::new() } else { answer.await.unwrap_or_default() }
            }
            #[cfg(feature = "postgres")]
            Source::Database(store) => match read_messages(&mut (**store).clone(), rosters, round).await {
                Ok(messages) => messages,
                Err(error) => {
                    tracing::warn!(%error, round = round.get(), "an earlier round cannot be read");
                    Vec::new()
                }
            },
        }
    }
}

/// Reads the messages of a round that has ended from the archive: all of them but the masked sum of a published round,
/// which nobody can use any more. Returns nothing if the archive does not have the end of the round yet.
pub(super) async fn read_messages(
    store: &mut impl Archive,
    rosters: &Rosters,
    round: Round,
) -> Result<Vec<Bytes>, Error> {
    let messages = store.round_messages(round).await?;
    let find = |kind: Kind| messages.iter().find(|(number, _)| *number == kind.number());
    let Some((_, close)) = find(Kind::Close) else { return Ok(Vec::new()) };
    let close: Signed<Close> = Signed::decode(close, rosters.at(round))?;
    let published = close.message().ending == Ending::Published;
    if published && find(Kind::Publish).is_none() {
        return Ok(Vec::new());
    }
    let wanted = |number: u8| !(published && number == Kind::RoundResult.number());
    Ok(messages.into_iter().filter(|(number, _)| wanted(*number)).map(|(_, bytes)| bytes.into()).collect())
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
