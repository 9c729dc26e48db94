//! Who leads. A lock that lasts as long as a connection, which is kept alive; and a number that only grows, so that
//! whoever was cut off and does not know it yet can write no more.

use std::time::Duration;

use dphe::Roster;
use sqlx::{PgConnection, Row as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{PgAddress, StoreError, within};

/// What one who leads writes with: a number that grows, and one that nobody else has. A database that was put back, or
/// taken over before all of it had arrived, may count to the same number again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// How many have led, with this one.
    pub epoch: i64,
    /// A random number.
    pub token: i64,
}

/// One that leads, until it is dropped or loses touch with the database.
#[derive(Debug)]
pub struct Lead {
    mark: Mark,
    lost: watch::Receiver<bool>,
    keeper: JoinHandle<()>,
}

impl Lead {
    /// Leads, unless another one does.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be asked.
    pub async fn seek(address: &PgAddress, roster: &Roster) -> Result<Option<Self>, StoreError> {
        // three beats may be missed
        let (idle, beat) = (format!("{}ms", address.lease.as_millis()), address.lease / 4);
        let mut connection =
            address.connect(&[("idle_session_timeout", &idle), ("lock_timeout", &idle)]).await?;
        let mut token = [0; 8];
        getrandom::fill(&mut token).map_err(std::io::Error::other).map_err(sqlx::Error::Io)?;
        let token = i64::from_be_bytes(token);
        let mut key = [0; 8];
        key.copy_from_slice(&roster.hash().as_bytes()[..8]);
        let (key, db) = (i64::from_be_bytes(key), &mut connection);
        let taken = within(address.lease, async {
            let row = sqlx::query("SELECT pg_try_advisory_lock($1)").bind(key).fetch_one(&mut *db).await?;
            if !row.try_get::<bool, _>(0)? {
                return Ok(None);
            }
            let query = sqlx::query("UPDATE leader SET epoch = epoch + 1, token = $1 RETURNING epoch");
            query.bind(token).fetch_one(&mut *db).await?.try_get::<i64, _>(0).map(Some)
        });
        let Some(epoch) = taken.await? else { return Ok(None) };
        let mark = Mark { epoch, token };
        let (sender, lost) = watch::channel(false);
        let keeper = tokio::spawn(async move {
            keep(connection, beat, mark).await;
            sender.send_replace(true);
        });
        Ok(Some(Self { mark, lost, keeper }))
    }

    /// What it writes with.
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// Waits until it leads no more.
    pub async fn lost(&self) {
        let _ = self.lost.clone().wait_for(|&lost| lost).await;
    }
}

/// Says that it is there, again and again, until nobody answers or another one leads.
async fn keep(mut connection: PgConnection, beat: Duration, mark: Mark) {
    loop {
        tokio::time::sleep(beat).await;
        let query = sqlx::query("SELECT 1 FROM leader WHERE epoch = $1 AND token = $2");
        let query = query.bind(mark.epoch).bind(mark.token);
        match within(2 * beat, query.fetch_optional(&mut connection)).await {
            Ok(Some(_)) => {}
            Ok(None) => return tracing::warn!("another replica leads"),
            Err(error) => return tracing::warn!(%error, "out of touch with the database: another may lead"),
        }
    }
}

impl Drop for Lead {
    /// The connection goes, and the lock with it.
    fn drop(&mut self) {
        self.keeper.abort();
    }
}
