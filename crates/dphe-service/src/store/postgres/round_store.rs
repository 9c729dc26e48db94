//! The state of a round that replicas share: participants, partial sums, upload chunks and the snapshot.
//!
//! The bodies of uploads are not stored. The replica that receives an upload adds it to a partial sum and records its
//! sender in the same transaction, so each user is in the sums once or not at all. A transaction locks the partial sum
//! that it adds to; concurrent transactions choose another one.

use core::fmt;
use std::ops::RangeInclusive;

use dphe::wire::{DecodeWith as _, Encode as _, Participant};
use dphe::{Digest, Round, UserId};
use sqlx::postgres::PgRow;
use sqlx::{Executor as _, PgConnection, Row as _};

use super::{ChunkOutcome, MAX_ROW_BYTES, PgStore, StoreError, round_from_i64, round_to_i64, with_timeout};

/// The numbers of a round's partial sums. This many transactions can add at once.
const PARTIAL_SUMS: RangeInclusive<i32> = 1..=8;

/// What is stored of an upload. Its masks are secret, so `Debug` omits them.
#[derive(Clone, PartialEq, Eq)]
pub struct UploadRecord {
    /// The user who sent it, and what shows that it did.
    pub participant: Participant,
    /// The salt of its masks, and the aggregator's part of them. Secret.
    pub masks: Vec<u8>,
    /// The fingerprints of its noise, to detect reuse.
    pub fingerprints: Vec<u8>,
    /// The length of the upload in bytes.
    pub bytes: u64,
}

impl fmt::Debug for UploadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut record = f.debug_struct("UploadRecord");
        record.field("participant", &self.participant).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The outcome of storing a batch of uploads. A batch is stored as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchOutcome {
    /// The batch is stored.
    Stored,
    /// Not stored, because these users have uploaded before. The digests are those of their bodies.
    Known(Vec<(UserId, Digest)>),
    /// Not stored, because the round can take only this many more users.
    Full(usize),
    /// Not stored, because the round has not started or is frozen.
    NotCollecting,
}

/// The state that the leader publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotRow {
    /// The status as JSON.
    pub status: String,
    /// The last round that ended, with the list of its closing messages.
    pub ended: Option<(Round, Vec<u8>)>,
    /// The ticket of the current round, as a list of one message.
    pub ticket: Option<Vec<u8>>,
    /// The model that the current round starts from.
    pub model: Option<Vec<u8>>,
}

/// The state of rounds that replicas share.
#[derive(Clone, Debug)]
pub struct RoundStore {
    store: PgStore,
}

impl RoundStore {
    pub(super) fn new(store: PgStore) -> Self {
        Self { store }
    }

    /// Starts a round, which then accepts uploads. Only the leader does this. Starting it twice has no effect.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn start_round(&self, round: Round) -> Result<(), StoreError> {
        let work = async {
            let mut connection = self.store.begin().await?;
            let query = sqlx::query("INSERT INTO rounds (round) VALUES ($1) ON CONFLICT DO NOTHING");
            query.bind(round_to_i64(round)).execute(connection.db()?).await?;
            let query = sqlx::query(
                "INSERT INTO partial_sums (round, number) SELECT $1, * FROM generate_series($2, $3) ON CONFLICT DO NOTHING",
            );
            let query = query.bind(round_to_i64(round)).bind(PARTIAL_SUMS.start()).bind(PARTIAL_SUMS.end());
            query.execute(connection.db()?).await?;
            Ok::<_, StoreError>(connection.commit().await?)
        };
        with_timeout(self.store.timeout(), work).await
    }

    /// Deletes the uploads and chunks of rounds before `before`. Only the leader does this.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn forget(&self, before: Round) -> Result<(), StoreError> {
        // two transactions, so that a late chunk of an old round can only block the second one
        self.store
            .write(sqlx::query("DELETE FROM rounds WHERE round < $1").bind(round_to_i64(before)))
            .await?;
        self.store.write(sqlx::query("DELETE FROM chunks WHERE round < $1").bind(round_to_i64(before))).await
    }

    /// Stores a batch of uploads and adds it to a partial sum in one transaction. `add` maps the old sum to the new
    /// one. If the round would exceed `max_users`, nothing is stored.
    ///
    /// # Errors
    /// [`StoreError`]. The batch may or may not be stored then. It is safe to repeat the call.
    pub async fn store_batch<E, F: Future<Output = Result<Vec<u8>, E>>>(
        &self,
        round: Round,
        batch: &[UploadRecord],
        max_users: Option<usize>,
        add: impl FnOnce(Vec<u8>) -> F,
    ) -> Result<Result<BatchOutcome, E>, StoreError> {
        // all replicas insert in the same order, which prevents deadlocks
        let mut batch: Vec<&UploadRecord> = batch.iter().collect();
        batch.sort_by_key(|record| record.participant.user);
        let work = async {
            let mut connection = self.store.acquire().await?;
            connection.db()?.execute("BEGIN").await?;
            // adding the sums of a large task takes longer than the usual idle time
            let timeout = 3 * self.store.address.lease;
            let query = format!("SET LOCAL idle_in_transaction_session_timeout = {}", timeout.as_millis());
            connection.db()?.execute(query.as_str()).await?;
            if let Some(refused) = insert_uploads(connection.db()?, round, &batch, max_users).await? {
                connection.rollback().await?;
                return Ok(Ok(refused));
            }
            let number = lock_free_partial_sum(connection.db()?, round).await?;
            let sum = match add(partial_sum(connection.db()?, round, number).await?).await {
                Ok(sum) => sum,
                Err(error) => {
                    connection.rollback().await?;
                    return Ok(Err(error));
                }
            };
            write_partial_sum(connection.db()?, round, number, &sum).await?;
            connection.commit().await?;
            Ok::<_, StoreError>(Ok(BatchOutcome::Stored))
        };
        with_timeout(self.store.timeout(), work).await
    }

    /// Returns the body hash of a user's upload.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn known(&self, round: Round, user: UserId) -> Result<Option<Digest>, StoreError> {
        let query = sqlx::query("SELECT body_hash FROM uploads WHERE round = $1 AND user_id = $2");
        let query = query.bind(round_to_i64(round)).bind(i64::from(user.get()));
        let row = self.store.read(async |db| query.fetch_optional(db).await).await?;
        row.map(|row| digest(&row, 0)).transpose()
    }

    /// Returns the participants in ascending order, and whether the round is frozen.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn users(&self, round: Round) -> Result<(Vec<UserId>, bool), StoreError> {
        let rows = self
            .store
            .read(async |db| {
                let frozen = sqlx::query("SELECT closed FROM rounds WHERE round = $1").bind(round_to_i64(round));
                let frozen = frozen.fetch_optional(&mut *db).await?;
                // one row with an array, because thousands of rows would take more memory than their content
                let users = "SELECT COALESCE(ARRAY_AGG(user_id ORDER BY user_id), '{}') FROM uploads WHERE round = $1";
                Ok((frozen, sqlx::query(users).bind(round_to_i64(round)).fetch_one(&mut *db).await?))
            })
            .await?;
        let frozen = rows.0.map(|row| row.try_get(0)).transpose()?.unwrap_or(false);
        let users: Vec<i64> = rows.1.try_get(0)?;
        Ok((users.into_iter().map(user_of).collect::<Result<_, _>>()?, frozen))
    }

    /// Freezes a round: its participants and sums do not change any more. Only the leader does this. Freezing it twice
    /// has no effect.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn freeze(&self, round: Round) -> Result<(), StoreError> {
        // waits for running batches, which do not wait for it
        let work = async {
            let mut connection = self.store.acquire().await?;
            connection.db()?.execute("BEGIN").await?;
            // the round is locked before the leader row: waiting for the round must not block other writes of a leader
            lock(connection.db()?, round, "").await?;
            self.store.check_fencing_token(connection.db()?).await?;
            let query = sqlx::query("UPDATE rounds SET closed = TRUE WHERE round = $1");
            query.bind(round_to_i64(round)).execute(connection.db()?).await?;
            connection.commit().await?;
            Ok::<_, StoreError>(())
        };
        with_timeout(self.store.timeout(), work).await
    }

    /// Returns at most `limit` uploads of a round in ascending order of users, starting after `last`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn upload_records(
        &self,
        round: Round,
        last: Option<UserId>,
        limit: u32,
    ) -> Result<Vec<UploadRecord>, StoreError> {
        let rows = self.store.read(async |db| {
            let query = sqlx::query(
                "SELECT participant, masks, noise, bytes FROM uploads WHERE round = $1 AND user_id > $2 \
                 ORDER BY user_id LIMIT $3",
            );
            let last = last.map_or(0, |user| i64::from(user.get()));
            query.bind(round_to_i64(round)).bind(last).bind(i64::from(limit)).fetch_all(db).await
        });
        rows.await?.iter().map(upload_record).collect()
    }

    /// Returns the numbers of the partial sums.
    pub fn partial_sum_numbers() -> RangeInclusive<i32> {
        PARTIAL_SUMS
    }

    /// Returns a partial sum of a round. It is empty if nothing was added to it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn partial_sum(&self, round: Round, number: i32) -> Result<Vec<u8>, StoreError> {
        self.store.read(async |db| partial_sum(db, round, number).await).await
    }

    /// Returns the number of bytes of an upload that are stored.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn offset(&self, round: Round, user: UserId) -> Result<u64, StoreError> {
        let row = self.store.read(async |db| length(db, round, user).await).await?;
        Ok(row)
    }

    /// Stores the chunk at `offset` of an upload of `total` bytes. Other replicas may have stored the chunks before it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_chunk(
        &self,
        round: Round,
        user: UserId,
        offset: u64,
        total: u64,
        chunk: bytes::Bytes,
    ) -> Result<ChunkOutcome, StoreError> {
        if offset == 0 && chunk.len() as u64 == total {
            return Ok(ChunkOutcome::Complete(chunk));
        }
        let work = async {
            let _permit = self.store.chunks.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
            let mut connection = self.store.acquire().await?;
            connection.db()?.execute("BEGIN").await?;
            // chunks of one user are stored one after the other
            let lock =
                sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended(format('%s/%s', $1, $2), 0))");
            lock.bind(round_to_i64(round)).bind(i64::from(user.get())).execute(connection.db()?).await?;
            let here = length(connection.db()?, round, user).await?;
            if here > total {
                // the stored chunks belong to another upload
                delete_chunks(connection.db()?, round, user).await?;
                connection.commit().await?;
                return Ok(ChunkOutcome::WrongOffset(0));
            }
            if offset != here {
                connection.rollback().await?;
                return Ok(ChunkOutcome::WrongOffset(here));
            }
            let here = here + chunk.len() as u64;
            if here < total {
                let query =
                    sqlx::query("INSERT INTO chunks (round, user_id, start, bytes) VALUES ($1, $2, $3, $4)");
                let query = query.bind(round_to_i64(round)).bind(i64::from(user.get()));
                query.bind(offset.cast_signed()).bind(&chunk[..]).execute(connection.db()?).await?;
                connection.commit().await?;
                return Ok(ChunkOutcome::Stored(here));
            }
            let rows =
                sqlx::query("SELECT bytes FROM chunks WHERE round = $1 AND user_id = $2 ORDER BY start");
            let rows = rows
                .bind(round_to_i64(round))
                .bind(i64::from(user.get()))
                .fetch_all(connection.db()?)
                .await?;
            let mut whole = Vec::with_capacity(usize::try_from(total).unwrap_or(0));
            for row in &rows {
                whole.extend_from_slice(row.try_get(0)?);
            }
            whole.extend_from_slice(&chunk);
            delete_chunks(connection.db()?, round, user).await?;
            connection.commit().await?;
            Ok::<_, StoreError>(ChunkOutcome::Complete(whole.into()))
        };
        with_timeout(self.store.timeout(), work).await
    }

    /// Publishes a snapshot. Only the leader does this.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_snapshot(&self, row: &SnapshotRow) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO snapshot (version, content_version, status, ended_round, ended, ticket, model) \
             VALUES ($6, $6, $1, $2, $3, $4, $5) ON CONFLICT (one) DO UPDATE SET version = $6, content_version = $6, \
             status = $1, ended_round = $2, ended = $3, ticket = $4, model = $5",
        );
        let query = query
            .bind(&row.status)
            .bind(row.ended.as_ref().map(|(round, _)| round_to_i64(*round)))
            .bind(row.ended.as_ref().map(|(_, list)| &list[..]))
            .bind(row.ticket.as_deref())
            .bind(row.model.as_deref())
            .bind(random_version()?);
        self.store.write(query).await
    }

    /// Publishes a new status in an otherwise unchanged snapshot. Only the leader does this.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_status(&self, status: &str) -> Result<(), StoreError> {
        let query =
            sqlx::query("UPDATE snapshot SET version = $2, status = $1").bind(status).bind(random_version()?);
        self.store.write(query).await
    }

    /// Returns the snapshot if its version differs from `known`: the versions of snapshot and content, the status,
    /// and the rest of the content if its version differs too.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn snapshot(
        &self,
        known: (i64, i64),
    ) -> Result<Option<((i64, i64), String, Option<SnapshotRow>)>, StoreError> {
        let query = sqlx::query("SELECT version, content_version, status FROM snapshot WHERE version <> $1")
            .bind(known.0);
        let Some(row) = self.store.read(async |db| query.fetch_optional(db).await).await? else {
            return Ok(None);
        };
        let (version, status): ((i64, i64), String) = ((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?);
        if version.1 == known.1 {
            return Ok(Some((version, status, None)));
        }
        let query = sqlx::query(
            "SELECT version, content_version, status, ended_round, ended, ticket, model FROM snapshot",
        );
        let row = self.store.read(async |db| query.fetch_one(db).await).await?;
        let (version, status): ((i64, i64), String) = ((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?);
        let ended = row.try_get::<Option<i64>, _>(3)?.zip(row.try_get::<Option<Vec<u8>>, _>(4)?);
        let ended =
            ended.map(|(round, list)| Ok::<_, StoreError>((round_from_i64(round)?, list))).transpose()?;
        let whole =
            SnapshotRow { status: status.clone(), ended, ticket: row.try_get(5)?, model: row.try_get(6)? };
        Ok(Some((version, status, Some(whole))))
    }

    /// Returns the size of the task's tables on the server's disk in bytes.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn disk_bytes(&self) -> Result<u64, StoreError> {
        let query = sqlx::query(
            "SELECT COALESCE(SUM(pg_total_relation_size(c.oid)), 0)::BIGINT FROM pg_class c \
             JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND c.relkind = 'r'",
        );
        let row = self.store.read(async |db| query.fetch_one(db).await).await?;
        Ok(row.try_get::<i64, _>(0)?.unsigned_abs())
    }
}

/// Returns a random version number. A counter could repeat after a failover.
fn random_version() -> Result<i64, StoreError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other).map_err(sqlx::Error::Io)?;
    Ok(i64::from_be_bytes(bytes) | 1)
}

fn upload_record(row: &PgRow) -> Result<UploadRecord, StoreError> {
    let bytes = row.try_get::<i64, _>(3)?.unsigned_abs();
    let participant =
        Participant::from_bytes(row.try_get::<&[u8], _>(0)?, &()).map_err(|_| StoreError::Damaged)?;
    Ok(UploadRecord { participant, masks: row.try_get(1)?, fingerprints: row.try_get(2)?, bytes })
}

/// Inserts the uploads of a batch. Returns why the batch cannot be stored, if so.
async fn insert_uploads(
    db: &mut PgConnection,
    round: Round,
    batch: &[&UploadRecord],
    max_users: Option<usize>,
) -> Result<Option<BatchOutcome>, sqlx::Error> {
    // batches run concurrently, except where users must be counted
    lock(db, round, if max_users.is_some() { "" } else { "_shared" }).await?;
    let query = sqlx::query("SELECT 1 FROM rounds WHERE round = $1 AND NOT closed");
    let collecting = query.bind(round_to_i64(round)).fetch_optional(&mut *db).await?;
    let users: Vec<i64> = batch.iter().map(|record| i64::from(record.participant.user.get())).collect();
    if collecting.is_some() {
        let query = sqlx::query(
            "INSERT INTO uploads (round, user_id, body_hash, noise, bytes, participant, masks) \
             SELECT $1, * FROM UNNEST($2::BIGINT[], $3::BYTEA[], $4::BYTEA[], $5::BIGINT[], $6::BYTEA[], $7::BYTEA[]) \
             ON CONFLICT DO NOTHING",
        );
        let done = query
            .bind(round_to_i64(round))
            .bind(&users)
            .bind(
                batch
                    .iter()
                    .map(|record| record.participant.body_hash.as_bytes().to_vec())
                    .collect::<Vec<_>>(),
            )
            .bind(batch.iter().map(|record| &record.fingerprints[..]).collect::<Vec<_>>())
            .bind(batch.iter().map(|record| record.bytes.cast_signed()).collect::<Vec<_>>())
            .bind(batch.iter().map(|record| record.participant.to_bytes()).collect::<Vec<_>>())
            .bind(batch.iter().map(|record| &record.masks[..]).collect::<Vec<_>>())
            .execute(&mut *db)
            .await?;
        if done.rows_affected() == batch.len() as u64 {
            let Some(max_users) = max_users else { return Ok(None) };
            let count =
                sqlx::query("SELECT COUNT(*) FROM uploads WHERE round = $1").bind(round_to_i64(round));
            let count: i64 = count.fetch_one(&mut *db).await?.try_get(0)?;
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let free = max_users.saturating_sub(count - batch.len());
            return Ok((count > max_users).then_some(BatchOutcome::Full(free)));
        }
    }
    let query = sqlx::query("SELECT user_id, body_hash FROM uploads WHERE round = $1 AND user_id = ANY($2)");
    let query = query.bind(round_to_i64(round)).bind(&users);
    // removes the rows of this batch that were inserted above
    if collecting.is_some() {
        db.execute("ROLLBACK AND CHAIN").await?;
    }
    let rows = query.fetch_all(&mut *db).await?;
    let known = |row: &PgRow| {
        let wrong = |error: StoreError| sqlx::Error::Protocol(error.to_string());
        Ok((user(row, 0).map_err(wrong)?, digest(row, 1).map_err(wrong)?))
    };
    let known = rows.iter().map(known).collect::<Result<Vec<_>, sqlx::Error>>()?;
    Ok(Some(if known.is_empty() { BatchOutcome::NotCollecting } else { BatchOutcome::Known(known) }))
}

/// Locks a round until the transaction ends, exclusively or shared. Unlike row locks, advisory locks are granted in the
/// order of requests, so new batches cannot delay the freeze of a round indefinitely.
async fn lock(db: &mut PgConnection, round: Round, how: &str) -> Result<(), sqlx::Error> {
    let query =
        format!("SELECT pg_advisory_xact_lock{how}(hashtext(current_schema()), ($1 % 1000000000)::INTEGER)");
    sqlx::query(&query).bind(round_to_i64(round)).execute(&mut *db).await?;
    Ok(())
}

/// Locks a partial sum until the transaction ends. Prefers one that no other transaction has locked.
async fn lock_free_partial_sum(db: &mut PgConnection, round: Round) -> Result<i32, sqlx::Error> {
    for lock in ["FOR UPDATE SKIP LOCKED", "FOR UPDATE"] {
        let query =
            format!("SELECT number FROM partial_sums WHERE round = $1 ORDER BY number LIMIT 1 {lock}");
        if let Some(row) = sqlx::query(&query).bind(round_to_i64(round)).fetch_optional(&mut *db).await? {
            return row.try_get(0);
        }
    }
    Err(sqlx::Error::RowNotFound)
}

async fn partial_sum(db: &mut PgConnection, round: Round, number: i32) -> Result<Vec<u8>, sqlx::Error> {
    let query =
        sqlx::query("SELECT bytes FROM partial_sum_parts WHERE round = $1 AND number = $2 ORDER BY part");
    let rows = query.bind(round_to_i64(round)).bind(number).fetch_all(&mut *db).await?;
    let mut sum = Vec::new();
    for row in &rows {
        sum.extend_from_slice(row.try_get(0)?);
    }
    Ok(sum)
}

async fn write_partial_sum(
    db: &mut PgConnection,
    round: Round,
    number: i32,
    sum: &[u8],
) -> Result<(), sqlx::Error> {
    let parts = sum.chunks(MAX_ROW_BYTES).count();
    for (part, bytes) in (0i32..).zip(sum.chunks(MAX_ROW_BYTES)) {
        let query = sqlx::query(
            "INSERT INTO partial_sum_parts (round, number, part, bytes) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (round, number, part) DO UPDATE SET bytes = EXCLUDED.bytes",
        );
        query.bind(round_to_i64(round)).bind(number).bind(part).bind(bytes).execute(&mut *db).await?;
    }
    let query = sqlx::query("DELETE FROM partial_sum_parts WHERE round = $1 AND number = $2 AND part >= $3");
    let parts = i32::try_from(parts).unwrap_or(i32::MAX);
    query.bind(round_to_i64(round)).bind(number).bind(parts).execute(&mut *db).await?;
    Ok(())
}

async fn length(db: &mut PgConnection, round: Round, user: UserId) -> Result<u64, sqlx::Error> {
    let query = sqlx::query(
        "SELECT COALESCE(SUM(LENGTH(bytes)), 0)::BIGINT FROM chunks WHERE round = $1 AND user_id = $2",
    );
    let row = query.bind(round_to_i64(round)).bind(i64::from(user.get())).fetch_one(db).await?;
    Ok(row.try_get::<i64, _>(0)?.unsigned_abs())
}

async fn delete_chunks(db: &mut PgConnection, round: Round, user: UserId) -> Result<(), sqlx::Error> {
    let query = sqlx::query("DELETE FROM chunks WHERE round = $1 AND user_id = $2");
    query.bind(round_to_i64(round)).bind(i64::from(user.get())).execute(&mut *db).await?;
    Ok(())
}

fn user(row: &PgRow, column: usize) -> Result<UserId, StoreError> {
    user_of(row.try_get(column)?)
}

fn user_of(number: i64) -> Result<UserId, StoreError> {
    u32::try_from(number).ok().and_then(UserId::new).ok_or(StoreError::Damaged)
}

fn digest(row: &PgRow, column: usize) -> Result<Digest, StoreError> {
    let bytes = row.try_get::<&[u8], _>(column)?;
    Ok(Digest::from_bytes(bytes.try_into().map_err(|_| StoreError::Damaged)?))
}
