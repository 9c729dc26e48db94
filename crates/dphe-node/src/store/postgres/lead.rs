//! Who leads. A lock that lasts as long as a connection, which is kept alive; and a number that only grows, so that
//! whoever was cut off and does not know it yet can write no more.

use std::time::Duration;

use dphe::Roster;
use sqlx::{PgConnection, Row as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{PgAddress, StoreError, within};

/// One that leads, until it is dropped or loses touch with the database.
#[derive(Debug)]
pub struct Lead {
    epoch: i64,
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
        let mut connection = address.connect(&[("idle_session_timeout", &idle)]).await?;
        let mut key = [0; 8];
        key.copy_from_slice(&roster.hash().as_bytes()[..8]);
        let (key, db) = (i64::from_be_bytes(key), &mut connection);
        let taken = within(address.lease, async {
            let row = sqlx::query("SELECT pg_try_advisory_lock($1)").bind(key).fetch_one(&mut *db).await?;
            if !row.try_get::<bool, _>(0)? {
                return Ok(None);
            }
            let row = sqlx::query("UPDATE leader SET epoch = epoch + 1 RETURNING epoch")
                .fetch_one(&mut *db)
                .await?;
            row.try_get::<i64, _>(0).map(Some)
        });
        let Some(epoch) = taken.await? else { return Ok(None) };
        let (sender, lost) = watch::channel(false);
        let keeper = tokio::spawn(async move {
            keep(connection, beat, epoch).await;
            sender.send_replace(true);
        });
        Ok(Some(Self { epoch, lost, keeper }))
    }

    /// Its number.
    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Waits until it leads no more.
    pub async fn lost(&self) {
        let _ = self.lost.clone().wait_for(|&lost| lost).await;
    }
}

/// Says that it is there, again and again, until nobody answers or another one leads.
async fn keep(mut connection: PgConnection, beat: Duration, epoch: i64) {
    loop {
        tokio::time::sleep(beat).await;
        let query = sqlx::query("SELECT 1 FROM leader WHERE epoch = $1").bind(epoch);
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
