//! The leader lease: an advisory lock that lasts as long as its connection. A fencing token keeps a former leader,
//! which may not know that it lost the lease, from writing.

use std::time::Duration;

use dphe::wire::Rosters;
use sqlx::{PgConnection, Row as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{PgAddress, StoreError, with_timeout};

/// The token that every write of a leader checks. The epoch alone could repeat after a database was restored from a
/// backup or failed over to a standby that was behind; the random number cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FencingToken {
    /// The number of leases that were acquired so far.
    pub epoch: i64,
    /// A random number.
    pub token: i64,
}

/// A lease of the leadership. It ends when it is dropped or loses contact with the database.
#[derive(Debug)]
pub struct LeaderLease {
    token: FencingToken,
    lost: watch::Receiver<bool>,
    heartbeat: JoinHandle<()>,
}

impl LeaderLease {
    /// Acquires the lease, or returns `None` if another replica has it.
    ///
    /// # Errors
    /// [`StoreError::OtherRoster`] if the database belongs to another roster, another [`StoreError`] if it cannot be
    /// asked.
    pub async fn try_acquire(
        address: &PgAddress,
        rosters: impl Into<Rosters>,
    ) -> Result<Option<Self>, StoreError> {
        let rosters = rosters.into();
        // several heartbeats per lease, so that the leader notices a failure before the server ends the session
        let (idle, interval) = (format!("{}ms", address.lease.as_millis()), address.lease / 4);
        let mut connection =
            address.connect(&[("idle_session_timeout", &idle), ("lock_timeout", &idle)]).await?;
        let mut token = [0; 8];
        getrandom::fill(&mut token).map_err(std::io::Error::other).map_err(sqlx::Error::Io)?;
        let token = i64::from_be_bytes(token);
        let mut key = [0; 8];
        // the same for all rosters of a task, so that there is one leader
        key.copy_from_slice(&rosters.first().hash().as_bytes()[..8]);
        let (key, db) = (i64::from_be_bytes(key), &mut connection);
        let taken = with_timeout(address.lease, async {
            // before the lock: a follower with an old roster must stop, and not serve users who have left
            let row = sqlx::query("SELECT roster FROM about").fetch_one(&mut *db).await?;
            if row.try_get::<&[u8], _>(0)? != rosters.latest().hash().as_bytes() {
                return Ok(Err(StoreError::OtherRoster { schema: address.schema.clone() }));
            }
            let row = sqlx::query("SELECT pg_try_advisory_lock($1)").bind(key).fetch_one(&mut *db).await?;
            if !row.try_get::<bool, _>(0)? {
                return Ok(Ok(None));
            }
            let query = sqlx::query("UPDATE leader SET epoch = epoch + 1, token = $1 RETURNING epoch");
            query.bind(token).fetch_one(&mut *db).await?.try_get::<i64, _>(0).map(|epoch| Ok(Some(epoch)))
        });
        let Some(epoch) = taken.await?? else { return Ok(None) };
        let token = FencingToken { epoch, token };
        let (sender, lost) = watch::channel(false);
        let heartbeat = tokio::spawn(async move {
            keep_alive(connection, interval, token).await;
            sender.send_replace(true);
        });
        Ok(Some(Self { token, lost, heartbeat }))
    }

    /// Returns the token for writes.
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }

    /// Waits until the lease is lost.
    pub async fn lost(&self) {
        let _ = self.lost.clone().wait_for(|&lost| lost).await;
    }
}

/// Keeps the connection alive until the database does not answer or another replica is the leader.
async fn keep_alive(mut connection: PgConnection, interval: Duration, token: FencingToken) {
    loop {
        tokio::time::sleep(interval).await;
        let query = sqlx::query("SELECT 1 FROM leader WHERE epoch = $1 AND token = $2");
        let query = query.bind(token.epoch).bind(token.token);
        match with_timeout(2 * interval, query.fetch_optional(&mut connection)).await {
            Ok(Some(_)) => {}
            Ok(None) => return tracing::warn!("another replica is the leader"),
            Err(error) => {
                return tracing::warn!(%error, "no contact with the database: another replica may become the leader");
            }
        }
    }
}

impl Drop for LeaderLease {
    /// Closes the connection, which releases the lock.
    fn drop(&mut self) {
        self.heartbeat.abort();
    }
}
