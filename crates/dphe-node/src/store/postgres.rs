//! PostgreSQL: one schema a task, shared by any number of aggregators. One of them leads: it alone runs the party and
//! writes its log. All of them take uploads.

mod lead;
mod schema;
mod tally;

pub use lead::{Lead, Mark};
pub use tally::{BoardRow, Committed, Header, Tally};

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dphe::{Digest, Roster, Round};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgPoolOptions, PgRow, PgSslMode};
use sqlx::query::Query;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, PgConnection, Postgres, Row as _};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use super::{Archive, LogStore, Piece, StoreError, damaged, number, round_of};

/// The longest row: what is longer becomes several.
const ROW: usize = 4 << 20;
/// Connections of one process, and more for whoever leads: users must not keep it from its work.
const CONNECTIONS: u32 = 6;
const LEADERS: u32 = 2;
/// How many of them pieces of uploads may take.
const PIECES: usize = 3;
/// What is large takes its time: so many leases.
const PATIENCE: u32 = 6;

/// Shorter ones would be lost to a busy machine.
const SHORTEST_LEASE: Duration = Duration::from_millis(500);

/// How to reach the database of a task.
#[derive(Clone)]
pub struct PgAddress {
    options: PgConnectOptions,
    schema: String,
    lease: Duration,
}

impl fmt::Debug for PgAddress {
    /// Without what was in the URL: it may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PgAddress({}, lease {:?})", self.schema, self.lease)
    }
}

impl PgAddress {
    /// From a URL as libpq takes them, for a task. Whoever is out of touch with the database for `lease` has lost
    /// what it was about to do.
    ///
    /// # Errors
    /// [`StoreError::Address`] if the URL cannot be read.
    pub fn new(url: &str, roster: &Roster, lease: Duration) -> Result<Self, StoreError> {
        let address = |reason: &dyn fmt::Display| StoreError::Address { reason: reason.to_string() };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(address(&"it begins with postgres://"));
        }
        // what sqlx says of a URL it cannot read may hold the password
        let options: PgConnectOptions =
            url.parse().map_err(|_| address(&"it is not postgres://USER@HOST:PORT/NAME"))?;
        let host = options.get_host();
        let local = host == "localhost"
            || host.starts_with('/')
            || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if !local && !matches!(options.get_ssl_mode(), PgSslMode::VerifyFull) {
            tracing::warn!(
                "seeds and sums go to a database without sslmode=verify-full: others may read them"
            );
        }
        let schema = format!("dphe_{}", roster.task().id());
        let lease = lease.max(SHORTEST_LEASE);
        let (idle, patience) =
            (format!("{}ms", lease.as_millis()), format!("{}ms", (PATIENCE * lease).as_millis()));
        let options = options
            .application_name("dphe-aggregator")
            .options([
                ("search_path", schema.as_str()),
                // who waits for a lock sees what was done before it got it
                ("default_transaction_isolation", r"read\ committed"),
                ("idle_in_transaction_session_timeout", &idle),
                ("statement_timeout", &patience),
                // whoever is gone holds nothing up
                ("client_connection_check_interval", "1s"),
                ("tcp_keepalives_idle", "10"),
                ("tcp_keepalives_interval", "5"),
                ("tcp_keepalives_count", "3"),
                ("client_min_messages", "warning"),
            ])
            .disable_statement_logging();
        Ok(Self { options, schema, lease })
    }

    /// How long one may be out of touch.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// A connection, or why there is none, before long.
    async fn connect(&self, more: &[(&str, &str)]) -> Result<PgConnection, StoreError> {
        let options = self.options.clone().options(more.iter().copied());
        within(self.lease, PgConnection::connect_with(&options)).await
    }
}

/// Waits for the database, but not for ever: a line that was cut says nothing.
async fn within<T, E>(patience: Duration, work: impl Future<Output = Result<T, E>>) -> Result<T, StoreError>
where
    StoreError: From<E>,
{
    match tokio::time::timeout(patience, work).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(StoreError::Silent { patience }),
    }
}

/// The log and the archive of the aggregators of a task.
#[derive(Clone, Debug)]
pub struct PgStore {
    pool: PgPool,
    address: PgAddress,
    pieces: Arc<Semaphore>,
    /// The one who leads writes with its mark; a later one makes it worthless.
    mark: Option<Mark>,
}

/// A connection that goes back to the pool when its work is done. Where it was not, it is thrown away: an answer that
/// never came would be waited for by the next one.
struct Held(Option<PoolConnection<Postgres>>);

impl Held {
    fn db(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        self.0.as_deref_mut().ok_or(sqlx::Error::PoolClosed)
    }

    /// Its work is done.
    fn done(mut self) {
        drop(self.0.take());
    }

    async fn end(mut self, how: &str) -> Result<(), sqlx::Error> {
        self.db()?.execute(how).await?;
        self.done();
        Ok(())
    }

    async fn commit(self) -> Result<(), sqlx::Error> {
        self.end("COMMIT").await
    }

    async fn rollback(self) -> Result<(), sqlx::Error> {
        self.end("ROLLBACK").await
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

impl PgStore {
    /// Opens the database of a task; tables are made if need be.
    ///
    /// # Errors
    /// [`StoreError::Database`] if it cannot be reached, [`StoreError::Version`] if a later version of this program made
    /// its tables, [`StoreError::OtherRoster`] if they are of another task or roster.
    pub async fn open(address: &PgAddress, roster: &Roster) -> Result<Self, StoreError> {
        let mut address = address.clone();
        let mut connection = address.connect(&[]).await?;
        within(PATIENCE * address.lease, schema::prepare(&mut connection, &address.schema, roster)).await??;
        let row = sqlx::query("SHOW synchronous_commit").fetch_one(&mut connection);
        let durable: String = within(address.lease, row).await?.try_get(0)?;
        if durable == "off" {
            // an acknowledgement is a promise
            address.options = address.options.options([("synchronous_commit", "on")]);
        }
        within(address.lease, connection.close()).await?;
        Ok(Self::at(&address, CONNECTIONS))
    }

    /// Opens the database of a task to look at it; nothing is written, whatever is asked.
    ///
    /// # Errors
    /// [`StoreError::Database`] if it cannot be reached, or there are no tables.
    pub async fn open_read_only(address: &PgAddress) -> Result<Self, StoreError> {
        // what is wrong is said at once, and not by a pool that tries again
        within(address.lease, address.connect(&[]).await?.close()).await?;
        let options = address.options.clone().options([("default_transaction_read_only", "on")]);
        let store = Self::at(&PgAddress { options, ..address.clone() }, 1);
        store.read(async |db| sqlx::query("SELECT version FROM about").fetch_one(db).await).await?;
        Ok(store)
    }

    fn at(address: &PgAddress, connections: u32) -> Self {
        let lease = address.lease;
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(lease)
            .idle_timeout(Duration::from_secs(60))
            // the pool itself would wait for ever
            .after_release(move |db, _| {
                Box::pin(async move {
                    let ping = tokio::time::timeout(lease, db.ping()).await;
                    Ok(ping.is_ok_and(|answer| answer.is_ok()))
                })
            })
            .connect_lazy_with(address.options.clone());
        Self { pool, address: address.clone(), pieces: Arc::new(Semaphore::new(PIECES)), mark: None }
    }

    /// The uploads of rounds, which all replicas share.
    pub fn tally(&self) -> Tally {
        Tally::new(self.clone())
    }

    /// The same store for the one who leads.
    #[must_use]
    pub fn led_by(&self, lead: &Lead) -> Self {
        Self { mark: Some(lead.mark()), ..Self::at(&self.address, LEADERS) }
    }

    /// Whether the one it was made for still leads.
    ///
    /// # Errors
    /// [`StoreError::Deposed`] if not, or why that cannot be said.
    pub async fn still_leads(&self) -> Result<(), StoreError> {
        within(self.address.lease, async {
            let held = self.begin().await?;
            Ok::<_, StoreError>(held.rollback().await?)
        })
        .await
    }

    /// Removes the tables of the task, and all that is in them.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is removed then.
    pub async fn remove(self, roster: &Roster) -> Result<(), StoreError> {
        // the name is made of hexadecimal digits
        let statement = format!("DROP SCHEMA IF EXISTS dphe_{} CASCADE", roster.task().id());
        self.write(sqlx::query(&statement)).await
    }

    fn patience(&self) -> Duration {
        PATIENCE * self.address.lease
    }

    async fn hold(&self) -> Result<Held, sqlx::Error> {
        Ok(Held(Some(self.pool.acquire().await?)))
    }

    async fn read<T>(
        &self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        within(self.patience(), async {
            let mut held = self.hold().await?;
            let found = work(held.db()?).await?;
            held.done();
            Ok::<_, sqlx::Error>(found)
        })
        .await
    }

    /// The beginning of a transaction. Nothing of it comes to be if another one leads by now.
    async fn begin(&self) -> Result<Held, StoreError> {
        let mut held = self.hold().await?;
        held.db()?.execute("BEGIN").await?;
        self.check_mark(held.db()?).await?;
        Ok(held)
    }

    async fn check_mark(&self, db: &mut PgConnection) -> Result<(), StoreError> {
        if let Some(Mark { epoch, token }) = self.mark {
            let query = sqlx::query("SELECT 1 FROM leader WHERE epoch = $1 AND token = $2 FOR SHARE");
            query.bind(epoch).bind(token).fetch_optional(db).await?.ok_or(StoreError::Deposed)?;
        }
        Ok(())
    }

    /// One statement, all or nothing.
    async fn write(&self, query: Query<'_, Postgres, PgArguments>) -> Result<(), StoreError> {
        within(self.patience(), async {
            let mut held = self.begin().await?;
            query.execute(held.db()?).await?;
            Ok::<_, StoreError>(held.commit().await?)
        })
        .await
    }
}

async fn append(db: &mut PgConnection, bytes: &[u8]) -> Result<(), sqlx::Error> {
    for part in bytes.chunks(ROW) {
        sqlx::query("INSERT INTO log (bytes) VALUES ($1)").bind(part).execute(&mut *db).await?;
    }
    Ok(())
}

impl LogStore for PgStore {
    async fn load(&mut self) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let rows = self
            .read(async |db| sqlx::query("SELECT bytes FROM log ORDER BY seq").fetch_all(db).await)
            .await?;
        let parts = rows.iter().map(|row| row.try_get::<&[u8], _>(0)).collect::<Result<Vec<_>, _>>()?;
        let mut log = Zeroizing::new(Vec::with_capacity(parts.iter().map(|part| part.len()).sum()));
        parts.into_iter().for_each(|part| log.extend_from_slice(part));
        Ok(log)
    }

    async fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        within(self.patience(), async {
            let mut held = self.begin().await?;
            append(held.db()?, bytes).await?;
            Ok::<_, StoreError>(held.commit().await?)
        })
        .await
    }

    async fn replace(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        within(self.patience(), async {
            let mut held = self.begin().await?;
            sqlx::query("DELETE FROM log").execute(held.db()?).await?;
            append(held.db()?, bytes).await?;
            Ok::<_, StoreError>(held.commit().await?)
        })
        .await
    }
}

impl Archive for PgStore {
    async fn put_model(&mut self, round: Round, digest: Digest, model: &[u8]) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO models (round, digest, bytes) VALUES ($1, $2, $3) \
             ON CONFLICT (round) DO UPDATE SET digest = EXCLUDED.digest, bytes = EXCLUDED.bytes",
        );
        self.write(query.bind(number(round)).bind(digest.as_bytes().to_vec()).bind(model)).await
    }

    async fn model(&mut self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let query = sqlx::query("SELECT bytes FROM models WHERE digest = $1 LIMIT 1");
        let query = query.bind(digest.as_bytes().to_vec());
        let row = self.read(async |db| query.fetch_optional(db).await).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    async fn latest_model(&mut self, round: Round) -> Result<Option<(Round, Vec<u8>)>, StoreError> {
        let query =
            sqlx::query("SELECT round, bytes FROM models WHERE round <= $1 ORDER BY round DESC LIMIT 1")
                .bind(number(round));
        let row = self.read(async |db| query.fetch_optional(db).await).await?;
        row.map(|row| Ok((round_of(row.try_get(0)?)?, row.try_get(1)?))).transpose()
    }

    async fn forget_models(&mut self, before: Round) -> Result<(), StoreError> {
        let query = sqlx::query("DELETE FROM models WHERE round < $1").bind(number(before));
        self.write(query).await
    }

    async fn put_report(&mut self, round: Round, report: &str) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO reports (round, json) VALUES ($1, $2) \
             ON CONFLICT (round) DO UPDATE SET json = EXCLUDED.json",
        );
        let query = query.bind(number(round)).bind(report);
        self.write(query).await
    }

    async fn reports(&mut self, from: Round) -> Result<Vec<(Round, String)>, StoreError> {
        let query = sqlx::query("SELECT round, json FROM reports WHERE round >= $1 ORDER BY round");
        let query = query.bind(number(from));
        let rows = self.read(async |db| query.fetch_all(db).await).await?;
        rows.iter().map(|row| Ok((round_of(row.try_get(0)?)?, row.try_get(1)?))).collect()
    }

    async fn put_message(&mut self, round: Round, kind: u8, message: &[u8]) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO messages (round, kind, bytes) VALUES ($1, $2, $3) \
             ON CONFLICT (round, kind) DO UPDATE SET bytes = EXCLUDED.bytes",
        );
        let query = query.bind(number(round)).bind(i16::from(kind)).bind(message);
        self.write(query).await
    }

    async fn messages(&mut self, from: Round) -> Result<Vec<(Round, u8, Vec<u8>)>, StoreError> {
        let query =
            sqlx::query("SELECT round, kind, bytes FROM messages WHERE round >= $1 ORDER BY round, kind");
        let query = query.bind(number(from));
        let rows = self.read(async |db| query.fetch_all(db).await).await?;
        let read = |row: &PgRow| {
            let kind = u8::try_from(row.try_get::<i16, _>(1)?).map_err(|_| damaged())?;
            Ok((round_of(row.try_get(0)?)?, kind, row.try_get(2)?))
        };
        rows.iter().map(read).collect()
    }
}
