//! The PostgreSQL store: one schema per task, shared by any number of aggregator replicas. The leader alone runs the
//! party and writes its log. All replicas accept uploads.

mod lease;
mod round_store;
mod schema;

pub use lease::{FencingToken, LeaderLease};
pub use round_store::{BatchOutcome, RoundStore, SnapshotRow, UploadRecord};

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dphe::wire::Rosters;
use dphe::{Digest, Roster, Round};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgPoolOptions, PgRow, PgSslMode};
use sqlx::query::Query;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, PgConnection, Postgres, Row as _};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use super::{AboutStore, Archive, ChunkOutcome, LogStore, StoreError, StoreId, round_from_i64, round_to_i64};

/// The length of the longest row in bytes. Longer values are divided into several rows.
const MAX_ROW_BYTES: usize = 4 << 20;
/// The number of connections of a replica. The leader has [`LEADER_CONNECTIONS`] more, which uploads cannot use up.
const CONNECTIONS: u32 = 6;
const LEADER_CONNECTIONS: u32 = 2;
/// The number of connections that upload chunks may use.
const CHUNK_CONNECTIONS: usize = 3;
/// The timeout of a statement, in leases.
const STATEMENT_LEASES: u32 = 6;

/// The shortest lease. A busy machine would lose shorter ones.
const MIN_LEASE: Duration = Duration::from_millis(500);

/// The address of a task's database.
#[derive(Clone)]
pub struct PgAddress {
    options: PgConnectOptions,
    schema: String,
    lease: Duration,
}

impl fmt::Debug for PgAddress {
    /// Leaves out the URL, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PgAddress({}, lease {:?})", self.schema, self.lease)
    }
}

impl PgAddress {
    /// Reads a libpq URL. A replica that has no contact with the database for `lease` loses the transaction that it
    /// is in, and the leadership.
    ///
    /// # Errors
    /// [`StoreError::Address`] if the URL is invalid, [`StoreError::Unverified`] if the connection would cross a
    /// network without `sslmode=verify-full`.
    pub fn new(url: &str, roster: &Roster, lease: Duration) -> Result<Self, StoreError> {
        let address = Self::new_unverified(url, roster, lease)?;
        if address.crosses_network() && !matches!(address.options.get_ssl_mode(), PgSslMode::VerifyFull) {
            return Err(StoreError::Unverified { host: address.options.get_host().to_owned() });
        }
        Ok(address)
    }

    /// Reads a libpq URL, and accepts connections that others on the network can read or redirect. They carry seeds and
    /// sums.
    ///
    /// # Errors
    /// [`StoreError::Address`] if the URL is invalid.
    pub fn new_unverified(url: &str, roster: &Roster, lease: Duration) -> Result<Self, StoreError> {
        let address = |reason: &dyn fmt::Display| StoreError::Address { reason: reason.to_string() };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(address(&"it does not start with postgres://"));
        }
        // sqlx's own message may contain the password
        let options: PgConnectOptions =
            url.parse().map_err(|_| address(&"it is not of the form postgres://USER@HOST:PORT/NAME"))?;
        let schema = format!("dphe_{}", roster.task().id());
        let lease = lease.max(MIN_LEASE);
        let (idle, timeout) =
            (format!("{}ms", lease.as_millis()), format!("{}ms", (STATEMENT_LEASES * lease).as_millis()));
        let options = options
            .application_name("dphe-aggregator")
            .options([
                ("search_path", schema.as_str()),
                // a transaction that waited for a lock must see what was committed before it got the lock
                ("default_transaction_isolation", r"read\ committed"),
                ("idle_in_transaction_session_timeout", &idle),
                ("statement_timeout", &timeout),
                // a client that has disconnected must not hold locks
                ("client_connection_check_interval", "1s"),
                ("tcp_keepalives_idle", "10"),
                ("tcp_keepalives_interval", "5"),
                ("tcp_keepalives_count", "3"),
                ("client_min_messages", "warning"),
            ])
            .disable_statement_logging();
        Ok(Self { options, schema, lease })
    }

    /// Returns whether the database is not on this machine.
    fn crosses_network(&self) -> bool {
        let host = self.options.get_host();
        let local = self.options.get_socket().is_some()
            || host == "localhost"
            || host.starts_with('/')
            || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        !local
    }

    /// Returns the time after which a replica without contact loses the leadership.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Opens a connection within one lease.
    async fn connect(&self, more: &[(&str, &str)]) -> Result<PgConnection, StoreError> {
        let options = self.options.clone().options(more.iter().copied());
        with_timeout(self.lease, PgConnection::connect_with(&options)).await
    }
}

/// Waits for the database with a timeout, because a broken connection may never report an error.
async fn with_timeout<T, E>(
    timeout: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, StoreError>
where
    StoreError: From<E>,
{
    match tokio::time::timeout(timeout, work).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(StoreError::Timeout { after: timeout }),
    }
}

/// The log and the archive of a task's aggregator replicas.
#[derive(Clone, Debug)]
pub struct PgStore {
    pool: PgPool,
    address: PgAddress,
    chunks: Arc<Semaphore>,
    /// The leader's token, which every write checks. The token of a later leader invalidates it.
    fencing_token: Option<FencingToken>,
}

/// A connection that returns to the pool when it is released. A connection that is dropped before that is closed,
/// because its next user would receive the answer that is still outstanding.
struct PooledConnection(Option<PoolConnection<Postgres>>);

impl PooledConnection {
    fn db(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        self.0.as_deref_mut().ok_or(sqlx::Error::PoolClosed)
    }

    /// Returns the connection to the pool.
    fn release(mut self) {
        drop(self.0.take());
    }

    async fn end(mut self, how: &str) -> Result<(), sqlx::Error> {
        self.db()?.execute(how).await?;
        self.release();
        Ok(())
    }

    async fn commit(self) -> Result<(), sqlx::Error> {
        self.end("COMMIT").await
    }

    async fn rollback(self) -> Result<(), sqlx::Error> {
        self.end("ROLLBACK").await
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

impl PgStore {
    /// Opens the database of a task and creates or updates its tables.
    ///
    /// # Errors
    /// [`StoreError::Postgres`] if it cannot be reached, [`StoreError::Version`] if a later version of this program
    /// created its tables, [`StoreError::OtherRoster`] if they belong to another roster.
    pub async fn open(address: &PgAddress, rosters: impl Into<Rosters>) -> Result<Self, StoreError> {
        let rosters = rosters.into();
        let mut address = address.clone();
        let mut connection = address.connect(&[]).await?;
        with_timeout(
            STATEMENT_LEASES * address.lease,
            schema::prepare(&mut connection, &address.schema, &rosters),
        )
        .await??;
        let row = sqlx::query("SHOW synchronous_commit").fetch_one(&mut connection);
        let durable: String = with_timeout(address.lease, row).await?.try_get(0)?;
        if durable == "off" {
            // an acknowledged upload must be durable
            address.options = address.options.options([("synchronous_commit", "on")]);
        }
        with_timeout(address.lease, connection.close()).await?;
        Ok(Self::at(&address, CONNECTIONS))
    }

    /// Opens the database of a task for reading. All writes fail.
    ///
    /// # Errors
    /// [`StoreError::Postgres`] if it cannot be reached or has no tables.
    pub async fn open_read_only(address: &PgAddress) -> Result<Self, StoreError> {
        // fails at once, where the pool would retry
        with_timeout(address.lease, address.connect(&[]).await?.close()).await?;
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
            // the pool's own check has no timeout
            .after_release(move |db, _| {
                Box::pin(async move {
                    let ping = tokio::time::timeout(lease, db.ping()).await;
                    Ok(ping.is_ok_and(|answer| answer.is_ok()))
                })
            })
            .connect_lazy_with(address.options.clone());
        Self {
            pool,
            address: address.clone(),
            chunks: Arc::new(Semaphore::new(CHUNK_CONNECTIONS)),
            fencing_token: None,
        }
    }

    /// Returns the uploads and partial sums, which all replicas share.
    pub fn round_store(&self) -> RoundStore {
        RoundStore::new(self.clone())
    }

    /// Returns a store whose writes check the leader's fencing token.
    #[must_use]
    pub fn with_lease(&self, lease: &LeaderLease) -> Self {
        Self { fencing_token: Some(lease.fencing_token()), ..Self::at(&self.address, LEADER_CONNECTIONS) }
    }

    /// Checks that the lease of this store is still valid.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if it is not, another error if the database cannot be asked.
    pub async fn check_lease(&self) -> Result<(), StoreError> {
        with_timeout(self.address.lease, async {
            let connection = self.begin().await?;
            Ok::<_, StoreError>(connection.rollback().await?)
        })
        .await
    }

    /// Deletes the tables of the task with their content.
    ///
    /// # Errors
    /// [`StoreError`]. Nothing is deleted then.
    pub async fn remove(self, roster: &Roster) -> Result<(), StoreError> {
        // the name consists of hexadecimal digits and needs no quoting
        let statement = format!("DROP SCHEMA IF EXISTS dphe_{} CASCADE", roster.task().id());
        self.write(sqlx::query(&statement)).await
    }

    fn timeout(&self) -> Duration {
        STATEMENT_LEASES * self.address.lease
    }

    async fn acquire(&self) -> Result<PooledConnection, sqlx::Error> {
        Ok(PooledConnection(Some(self.pool.acquire().await?)))
    }

    async fn read<T>(
        &self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        with_timeout(self.timeout(), async {
            let mut connection = self.acquire().await?;
            let found = work(connection.db()?).await?;
            connection.release();
            Ok::<_, sqlx::Error>(found)
        })
        .await
    }

    /// Begins a transaction. It fails if another replica has become the leader.
    async fn begin(&self) -> Result<PooledConnection, StoreError> {
        let mut connection = self.acquire().await?;
        connection.db()?.execute("BEGIN").await?;
        self.check_fencing_token(connection.db()?).await?;
        Ok(connection)
    }

    async fn check_fencing_token(&self, db: &mut PgConnection) -> Result<(), StoreError> {
        if let Some(FencingToken { epoch, token }) = self.fencing_token {
            let query = sqlx::query("SELECT 1 FROM leader WHERE epoch = $1 AND token = $2 FOR SHARE");
            query.bind(epoch).bind(token).fetch_optional(db).await?.ok_or(StoreError::LeaseLost)?;
        }
        Ok(())
    }

    /// Runs one statement in a transaction.
    async fn write(&self, query: Query<'_, Postgres, PgArguments>) -> Result<(), StoreError> {
        with_timeout(self.timeout(), async {
            let mut connection = self.begin().await?;
            query.execute(connection.db()?).await?;
            Ok::<_, StoreError>(connection.commit().await?)
        })
        .await
    }
}

async fn append(db: &mut PgConnection, bytes: &[u8]) -> Result<(), sqlx::Error> {
    for part in bytes.chunks(MAX_ROW_BYTES) {
        sqlx::query("INSERT INTO log (bytes) VALUES ($1)").bind(part).execute(&mut *db).await?;
    }
    Ok(())
}

impl LogStore for PgStore {
    async fn about(&mut self) -> Result<AboutStore, StoreError> {
        let query = sqlx::query("SELECT replace(id::text, '-', ''), roster, pinned FROM about");
        let row = self.read(async |db| query.fetch_one(db).await).await?;
        let id = StoreId::parse(row.try_get(0)?).ok_or(StoreError::Damaged)?;
        let hash = <[u8; 32]>::try_from(row.try_get::<&[u8], _>(1)?).map_err(|_| StoreError::Damaged)?;
        let roster = row.try_get::<bool, _>(2)?.then(|| Digest::from_bytes(hash));
        Ok(AboutStore { id, roster })
    }

    async fn remember_roster(&mut self, hash: Digest) -> Result<(), StoreError> {
        let query = sqlx::query("UPDATE about SET roster = $1, pinned = TRUE");
        self.write(query.bind(hash.as_bytes().to_vec())).await
    }

    async fn begin_log(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        with_timeout(self.timeout(), async {
            let mut connection = self.begin().await?;
            let db = connection.db()?;
            // replicas do this one after the other
            db.execute("SELECT pg_advisory_xact_lock(hashtext('dphe log'))").await?;
            if sqlx::query("SELECT 1 FROM log LIMIT 1").fetch_optional(&mut *db).await?.is_none() {
                append(db, bytes).await?;
            }
            Ok::<_, StoreError>(connection.commit().await?)
        })
        .await
    }

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
        with_timeout(self.timeout(), async {
            let mut connection = self.begin().await?;
            append(connection.db()?, bytes).await?;
            Ok::<_, StoreError>(connection.commit().await?)
        })
        .await
    }

    async fn replace(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        with_timeout(self.timeout(), async {
            let mut connection = self.begin().await?;
            sqlx::query("DELETE FROM log").execute(connection.db()?).await?;
            append(connection.db()?, bytes).await?;
            Ok::<_, StoreError>(connection.commit().await?)
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
        self.write(query.bind(round_to_i64(round)).bind(digest.as_bytes().to_vec()).bind(model)).await
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
                .bind(round_to_i64(round));
        let row = self.read(async |db| query.fetch_optional(db).await).await?;
        row.map(|row| Ok((round_from_i64(row.try_get(0)?)?, row.try_get(1)?))).transpose()
    }

    async fn forget_models(&mut self, before: Round) -> Result<(), StoreError> {
        let query = sqlx::query("DELETE FROM models WHERE round < $1").bind(round_to_i64(before));
        self.write(query).await
    }

    async fn put_round_record(&mut self, round: Round, record: &str) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO round_records (round, json) VALUES ($1, $2) \
             ON CONFLICT (round) DO UPDATE SET json = EXCLUDED.json",
        );
        let query = query.bind(round_to_i64(round)).bind(record);
        self.write(query).await
    }

    async fn round_records(&mut self, from: Round) -> Result<Vec<(Round, String)>, StoreError> {
        let query = sqlx::query("SELECT round, json FROM round_records WHERE round >= $1 ORDER BY round");
        let query = query.bind(round_to_i64(from));
        let rows = self.read(async |db| query.fetch_all(db).await).await?;
        rows.iter().map(|row| Ok((round_from_i64(row.try_get(0)?)?, row.try_get(1)?))).collect()
    }

    async fn put_message(&mut self, round: Round, kind: u8, message: &[u8]) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO messages (round, kind, bytes) VALUES ($1, $2, $3) \
             ON CONFLICT (round, kind) DO UPDATE SET bytes = EXCLUDED.bytes",
        );
        let query = query.bind(round_to_i64(round)).bind(i16::from(kind)).bind(message);
        self.write(query).await
    }

    async fn round_messages(&mut self, round: Round) -> Result<Vec<(u8, Vec<u8>)>, StoreError> {
        let query =
            sqlx::query("SELECT kind, bytes FROM messages WHERE round = $1").bind(round_to_i64(round));
        let rows = self.read(async |db| query.fetch_all(db).await).await?;
        let read = |row: &PgRow| {
            let kind = u8::try_from(row.try_get::<i16, _>(0)?).map_err(|_| StoreError::Damaged)?;
            Ok((kind, row.try_get(1)?))
        };
        rows.iter().map(read).collect()
    }

    async fn messages(&mut self, from: Round) -> Result<Vec<(Round, u8, Vec<u8>)>, StoreError> {
        let query =
            sqlx::query("SELECT round, kind, bytes FROM messages WHERE round >= $1 ORDER BY round, kind");
        let query = query.bind(round_to_i64(from));
        let rows = self.read(async |db| query.fetch_all(db).await).await?;
        let read = |row: &PgRow| {
            let kind = u8::try_from(row.try_get::<i16, _>(1)?).map_err(|_| StoreError::Damaged)?;
            Ok((round_from_i64(row.try_get(0)?)?, kind, row.try_get(2)?))
        };
        rows.iter().map(read).collect()
    }
}
