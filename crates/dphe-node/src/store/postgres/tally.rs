//! What replicas share of a round: who is in it, the partial sums, pieces of uploads, and the board.
//!
//! An upload is not kept. Whoever takes it adds it to a partial sum, and notes its sender in the same transaction: each
//! user is in the sums once, or not at all. A partial sum is held by one replica at a time, for the length of a
//! transaction; the others take one that is free.

use std::ops::RangeInclusive;

use dphe::message::Participant;
use dphe::{Digest, Round, UserId};
use sqlx::postgres::PgRow;
use sqlx::{Executor as _, PgConnection, Row as _};

use super::{PgStore, Piece, ROW, StoreError, damaged, number, round_of, within};

/// Partial sums of a round: so many replicas, or threads of one, can add at once.
const SHARDS: RangeInclusive<i32> = 1..=8;

/// What is noted of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whose.
    pub user: UserId,
    /// The hash of its body.
    pub body_hash: Digest,
    /// Its noise, to notice what was sent twice.
    pub noise: Vec<u8>,
    /// How long it was.
    pub bytes: u64,
}

/// What came of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// All of it is in.
    All,
    /// Nothing of it: these are in already, each with the hash of its body.
    Known(Vec<Participant>),
    /// Nothing of it: there is room for so many only.
    Full(usize),
    /// Nothing of it: the round is closed, or not open.
    Closed,
}

/// What the one who leads shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoardRow {
    /// How it stands, as JSON.
    pub status: String,
    /// The last round that is over, and the list of its closing messages.
    pub ended: Option<(Round, Vec<u8>)>,
    /// The ticket of the round at hand, as a list.
    pub ticket: Option<Vec<u8>>,
    /// The model it starts from.
    pub model: Option<Vec<u8>>,
}

/// What replicas share of rounds.
#[derive(Clone, Debug)]
pub struct Tally {
    store: PgStore,
}

impl Tally {
    pub(super) fn new(store: PgStore) -> Self {
        Self { store }
    }

    /// Opens a round. By the one who leads; again, it changes nothing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open_round(&self, round: Round) -> Result<(), StoreError> {
        let work = async {
            let mut held = self.store.begin().await?;
            let query = sqlx::query("INSERT INTO rounds (round) VALUES ($1) ON CONFLICT DO NOTHING");
            query.bind(number(round)).execute(held.db()?).await?;
            let query = sqlx::query(
                "INSERT INTO shards (round, shard) SELECT $1, * FROM generate_series($2, $3) ON CONFLICT DO NOTHING",
            );
            let query = query.bind(number(round)).bind(SHARDS.start()).bind(SHARDS.end());
            query.execute(held.db()?).await?;
            Ok::<_, StoreError>(held.commit().await?)
        };
        within(self.store.patience(), work).await
    }

    /// Forgets what is left of rounds before this one. By the one who leads.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn forget(&self, before: Round) -> Result<(), StoreError> {
        // each by itself: a user who sends a piece of an old round just now stands in the way of one only
        self.store.write(sqlx::query("DELETE FROM rounds WHERE round < $1").bind(number(before))).await?;
        self.store.write(sqlx::query("DELETE FROM pieces WHERE round < $1").bind(number(before))).await
    }

    /// Notes a batch of uploads and adds them to a partial sum, all or nothing: `add` gets the sum and gives the new one.
    /// Beyond `most` users nothing is taken.
    ///
    /// # Errors
    /// [`StoreError`]; whether the batch is in is not known then, and asking again tells.
    pub async fn commit<E, F: Future<Output = Result<Vec<u8>, E>>>(
        &self,
        round: Round,
        batch: &[Header],
        most: Option<usize>,
        add: impl FnOnce(Vec<u8>) -> F,
    ) -> Result<Result<Committed, E>, StoreError> {
        // everybody in the same order, so that no two wait for each other
        let mut batch: Vec<&Header> = batch.iter().collect();
        batch.sort_by_key(|header| header.user);
        let work = async {
            let mut held = self.store.hold().await?;
            held.db()?.execute("BEGIN").await?;
            // sums of a large task take a while to add up
            let patience = 3 * self.store.address.lease;
            let query = format!("SET LOCAL idle_in_transaction_session_timeout = {}", patience.as_millis());
            held.db()?.execute(query.as_str()).await?;
            if let Some(refused) = note(held.db()?, round, &batch, most).await? {
                held.rollback().await?;
                return Ok(Ok(refused));
            }
            let shard = free_shard(held.db()?, round).await?;
            let sum = match add(partial(held.db()?, round, shard).await?).await {
                Ok(sum) => sum,
                Err(error) => {
                    held.rollback().await?;
                    return Ok(Err(error));
                }
            };
            put_partial(held.db()?, round, shard, &sum).await?;
            held.commit().await?;
            Ok::<_, StoreError>(Ok(Committed::All))
        };
        within(self.store.patience(), work).await
    }

    /// What is noted of a user's upload.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn known(&self, round: Round, user: UserId) -> Result<Option<Digest>, StoreError> {
        let query = sqlx::query("SELECT body_hash FROM uploads WHERE round = $1 AND user_id = $2");
        let query = query.bind(number(round)).bind(i64::from(user.get()));
        let row = self.store.read(async |db| query.fetch_optional(db).await).await?;
        row.map(|row| digest(&row, 0)).transpose()
    }

    /// Who is in, ascending, and whether the round is closed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn users(&self, round: Round) -> Result<(Vec<UserId>, bool), StoreError> {
        let rows = self
            .store
            .read(async |db| {
                let open = sqlx::query("SELECT closed FROM rounds WHERE round = $1").bind(number(round));
                let open = open.fetch_optional(&mut *db).await?;
                // one row: thousands of them take more memory than what is in them
                let users = "SELECT COALESCE(ARRAY_AGG(user_id ORDER BY user_id), '{}') FROM uploads WHERE round = $1";
                Ok((open, sqlx::query(users).bind(number(round)).fetch_one(&mut *db).await?))
            })
            .await?;
        let closed = rows.0.map(|row| row.try_get(0)).transpose()?.unwrap_or(false);
        let users: Vec<i64> = rows.1.try_get(0)?;
        Ok((users.into_iter().map(user_of).collect::<Result<_, _>>()?, closed))
    }

    /// Closes a round: whoever is in by then is in it, and nothing of it changes any more. By the one who leads; again, it
    /// changes nothing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn close(&self, round: Round) -> Result<(), StoreError> {
        // waits for batches under way, and they for nobody
        let work = async {
            let mut held = self.store.hold().await?;
            held.db()?.execute("BEGIN").await?;
            // first the round, then who leads: whoever waits for the one must not keep the other
            lock(held.db()?, round, "").await?;
            self.store.check_mark(held.db()?).await?;
            let query = sqlx::query("UPDATE rounds SET closed = TRUE WHERE round = $1");
            query.bind(number(round)).execute(held.db()?).await?;
            held.commit().await?;
            Ok::<_, StoreError>(())
        };
        within(self.store.patience(), work).await
    }

    /// Those in a round, ascending, from behind `last` on and as many as wanted at most.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn headers(
        &self,
        round: Round,
        last: Option<UserId>,
        most: u32,
    ) -> Result<Vec<Header>, StoreError> {
        let rows = self.store.read(async |db| {
            let query = sqlx::query(
                "SELECT user_id, body_hash, noise, bytes FROM uploads WHERE round = $1 AND user_id > $2 \
                 ORDER BY user_id LIMIT $3",
            );
            let last = last.map_or(0, |user| i64::from(user.get()));
            query.bind(number(round)).bind(last).bind(i64::from(most)).fetch_all(db).await
        });
        rows.await?.iter().map(header).collect()
    }

    /// The names of partial sums.
    pub fn shards() -> RangeInclusive<i32> {
        SHARDS
    }

    /// One of the partial sums of a round; empty if nothing was added to it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn partial(&self, round: Round, shard: i32) -> Result<Vec<u8>, StoreError> {
        self.store.read(async |db| partial(db, round, shard).await).await
    }

    /// How much of an upload is here.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn offset(&self, round: Round, user: UserId) -> Result<u64, StoreError> {
        let row = self.store.read(async |db| length(db, round, user).await).await?;
        Ok(row)
    }

    /// Takes the piece that begins at `offset` of an upload of `total` bytes. It does not matter which replica took the
    /// ones before.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_piece(
        &self,
        round: Round,
        user: UserId,
        offset: u64,
        total: u64,
        piece: bytes::Bytes,
    ) -> Result<Piece, StoreError> {
        if offset == 0 && piece.len() as u64 == total {
            return Ok(Piece::Whole(piece));
        }
        let work = async {
            let _turn = self.store.pieces.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
            let mut held = self.store.hold().await?;
            held.db()?.execute("BEGIN").await?;
            // one piece of a user's at a time
            let turn =
                sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended(format('%s/%s', $1, $2), 0))");
            turn.bind(number(round)).bind(i64::from(user.get())).execute(held.db()?).await?;
            let here = length(held.db()?, round, user).await?;
            if here > total {
                // another upload than the one that was begun
                forget_pieces(held.db()?, round, user).await?;
                held.commit().await?;
                return Ok(Piece::Misplaced(0));
            }
            if offset != here {
                held.rollback().await?;
                return Ok(Piece::Misplaced(here));
            }
            let here = here + piece.len() as u64;
            if here < total {
                let query =
                    sqlx::query("INSERT INTO pieces (round, user_id, start, bytes) VALUES ($1, $2, $3, $4)");
                let query = query.bind(number(round)).bind(i64::from(user.get()));
                query.bind(offset.cast_signed()).bind(&piece[..]).execute(held.db()?).await?;
                held.commit().await?;
                return Ok(Piece::Stored(here));
            }
            let rows =
                sqlx::query("SELECT bytes FROM pieces WHERE round = $1 AND user_id = $2 ORDER BY start");
            let rows = rows.bind(number(round)).bind(i64::from(user.get())).fetch_all(held.db()?).await?;
            let mut whole = Vec::with_capacity(usize::try_from(total).unwrap_or(0));
            for row in &rows {
                whole.extend_from_slice(row.try_get(0)?);
            }
            whole.extend_from_slice(&piece);
            forget_pieces(held.db()?, round, user).await?;
            held.commit().await?;
            Ok::<_, StoreError>(Piece::Whole(whole.into()))
        };
        within(self.store.patience(), work).await
    }

    /// Shows a board. By the one who leads.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_board(&self, row: &BoardRow) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO board (version, pages, status, ended_round, ended, ticket, model) \
             VALUES ($6, $6, $1, $2, $3, $4, $5) ON CONFLICT (one) DO UPDATE SET version = $6, pages = $6, \
             status = $1, ended_round = $2, ended = $3, ticket = $4, model = $5",
        );
        let query = query
            .bind(&row.status)
            .bind(row.ended.as_ref().map(|(round, _)| number(*round)))
            .bind(row.ended.as_ref().map(|(_, list)| &list[..]))
            .bind(row.ticket.as_deref())
            .bind(row.model.as_deref())
            .bind(any()?);
        self.store.write(query).await
    }

    /// Shows how it stands, where the rest is as it was. By the one who leads.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_status(&self, status: &str) -> Result<(), StoreError> {
        let query = sqlx::query("UPDATE board SET version = $2, status = $1").bind(status).bind(any()?);
        self.store.write(query).await
    }

    /// What is shown, unless this version of it is known: its version, and the number of the whole board, which is left
    /// out where only the status is new.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn board(
        &self,
        known: (i64, i64),
    ) -> Result<Option<((i64, i64), String, Option<BoardRow>)>, StoreError> {
        let query = sqlx::query("SELECT version, pages, status FROM board WHERE version <> $1").bind(known.0);
        let Some(row) = self.store.read(async |db| query.fetch_optional(db).await).await? else {
            return Ok(None);
        };
        let (version, status): ((i64, i64), String) = ((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?);
        if version.1 == known.1 {
            return Ok(Some((version, status, None)));
        }
        let query =
            sqlx::query("SELECT version, pages, status, ended_round, ended, ticket, model FROM board");
        let row = self.store.read(async |db| query.fetch_one(db).await).await?;
        let (version, status): ((i64, i64), String) = ((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?);
        let ended = row.try_get::<Option<i64>, _>(3)?.zip(row.try_get::<Option<Vec<u8>>, _>(4)?);
        let ended = ended.map(|(round, list)| Ok::<_, StoreError>((round_of(round)?, list))).transpose()?;
        let whole =
            BoardRow { status: status.clone(), ended, ticket: row.try_get(5)?, model: row.try_get(6)? };
        Ok(Some((version, status, Some(whole))))
    }

    /// Bytes of the task's tables on the server's disk.
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

/// A number that says no more than that something is another one: those that count may come twice.
fn any() -> Result<i64, StoreError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other).map_err(sqlx::Error::Io)?;
    Ok(i64::from_be_bytes(bytes) | 1)
}

fn header(row: &PgRow) -> Result<Header, StoreError> {
    let bytes = row.try_get::<i64, _>(3)?.unsigned_abs();
    Ok(Header { user: user(row, 0)?, body_hash: digest(row, 1)?, noise: row.try_get(2)?, bytes })
}

/// Notes the uploads of a batch; says what is in the way.
async fn note(
    db: &mut PgConnection,
    round: Round,
    batch: &[&Header],
    most: Option<usize>,
) -> Result<Option<Committed>, sqlx::Error> {
    // beside other batches; where users must be counted, one after the other
    lock(db, round, if most.is_some() { "" } else { "_shared" }).await?;
    let query = sqlx::query("SELECT 1 FROM rounds WHERE round = $1 AND NOT closed");
    let open = query.bind(number(round)).fetch_optional(&mut *db).await?;
    let users: Vec<i64> = batch.iter().map(|header| i64::from(header.user.get())).collect();
    if open.is_some() {
        let query = sqlx::query(
            "INSERT INTO uploads (round, user_id, body_hash, noise, bytes) \
             SELECT $1, * FROM UNNEST($2::BIGINT[], $3::BYTEA[], $4::BYTEA[], $5::BIGINT[]) \
             ON CONFLICT DO NOTHING",
        );
        let done = query
            .bind(number(round))
            .bind(&users)
            .bind(batch.iter().map(|header| header.body_hash.as_bytes().to_vec()).collect::<Vec<_>>())
            .bind(batch.iter().map(|header| &header.noise[..]).collect::<Vec<_>>())
            .bind(batch.iter().map(|header| header.bytes.cast_signed()).collect::<Vec<_>>())
            .execute(&mut *db)
            .await?;
        if done.rows_affected() == batch.len() as u64 {
            let Some(most) = most else { return Ok(None) };
            let count = sqlx::query("SELECT COUNT(*) FROM uploads WHERE round = $1").bind(number(round));
            let count: i64 = count.fetch_one(&mut *db).await?.try_get(0)?;
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let room = most.saturating_sub(count - batch.len());
            return Ok((count > most).then_some(Committed::Full(room)));
        }
    }
    let query = sqlx::query("SELECT user_id, body_hash FROM uploads WHERE round = $1 AND user_id = ANY($2)");
    let query = query.bind(number(round)).bind(&users);
    // those that were noted just now among them, if any were
    if open.is_some() {
        db.execute("ROLLBACK AND CHAIN").await?;
    }
    let rows = query.fetch_all(&mut *db).await?;
    let known = |row: &PgRow| {
        let wrong = |error: StoreError| sqlx::Error::Protocol(error.to_string());
        Ok(Participant { user: user(row, 0).map_err(wrong)?, body_hash: digest(row, 1).map_err(wrong)? })
    };
    let known = rows.iter().map(known).collect::<Result<Vec<_>, sqlx::Error>>()?;
    Ok(Some(if known.is_empty() { Committed::Closed } else { Committed::Known(known) }))
}

/// Holds a round until the transaction ends, alone or with others. Unlike a row, it is given in the order in which it
/// was asked for: whoever closes the round is not kept waiting by ever new batches.
async fn lock(db: &mut PgConnection, round: Round, how: &str) -> Result<(), sqlx::Error> {
    let query =
        format!("SELECT pg_advisory_xact_lock{how}(hashtext(current_schema()), ($1 % 1000000000)::INTEGER)");
    sqlx::query(&query).bind(number(round)).execute(&mut *db).await?;
    Ok(())
}

/// A partial sum that nobody else is at, from now on until the transaction ends.
async fn free_shard(db: &mut PgConnection, round: Round) -> Result<i32, sqlx::Error> {
    for lock in ["FOR UPDATE SKIP LOCKED", "FOR UPDATE"] {
        let query = format!("SELECT shard FROM shards WHERE round = $1 ORDER BY shard LIMIT 1 {lock}");
        if let Some(row) = sqlx::query(&query).bind(number(round)).fetch_optional(&mut *db).await? {
            return row.try_get(0);
        }
    }
    Err(sqlx::Error::RowNotFound)
}

async fn partial(db: &mut PgConnection, round: Round, shard: i32) -> Result<Vec<u8>, sqlx::Error> {
    let query = sqlx::query("SELECT bytes FROM partials WHERE round = $1 AND shard = $2 ORDER BY part");
    let rows = query.bind(number(round)).bind(shard).fetch_all(&mut *db).await?;
    let mut sum = Vec::new();
    for row in &rows {
        sum.extend_from_slice(row.try_get(0)?);
    }
    Ok(sum)
}

async fn put_partial(db: &mut PgConnection, round: Round, shard: i32, sum: &[u8]) -> Result<(), sqlx::Error> {
    let parts = sum.chunks(ROW).count();
    for (part, bytes) in (0i32..).zip(sum.chunks(ROW)) {
        let query = sqlx::query(
            "INSERT INTO partials (round, shard, part, bytes) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (round, shard, part) DO UPDATE SET bytes = EXCLUDED.bytes",
        );
        query.bind(number(round)).bind(shard).bind(part).bind(bytes).execute(&mut *db).await?;
    }
    let query = sqlx::query("DELETE FROM partials WHERE round = $1 AND shard = $2 AND part >= $3");
    let parts = i32::try_from(parts).unwrap_or(i32::MAX);
    query.bind(number(round)).bind(shard).bind(parts).execute(&mut *db).await?;
    Ok(())
}

async fn length(db: &mut PgConnection, round: Round, user: UserId) -> Result<u64, sqlx::Error> {
    let query = sqlx::query(
        "SELECT COALESCE(SUM(LENGTH(bytes)), 0)::BIGINT FROM pieces WHERE round = $1 AND user_id = $2",
    );
    let row = query.bind(number(round)).bind(i64::from(user.get())).fetch_one(db).await?;
    Ok(row.try_get::<i64, _>(0)?.unsigned_abs())
}

async fn forget_pieces(db: &mut PgConnection, round: Round, user: UserId) -> Result<(), sqlx::Error> {
    let query = sqlx::query("DELETE FROM pieces WHERE round = $1 AND user_id = $2");
    query.bind(number(round)).bind(i64::from(user.get())).execute(&mut *db).await?;
    Ok(())
}

fn user(row: &PgRow, column: usize) -> Result<UserId, StoreError> {
    user_of(row.try_get(column)?)
}

fn user_of(number: i64) -> Result<UserId, StoreError> {
    u32::try_from(number).ok().and_then(UserId::new).ok_or_else(damaged)
}

fn digest(row: &PgRow, column: usize) -> Result<Digest, StoreError> {
    let bytes = row.try_get::<&[u8], _>(column)?;
    Ok(Digest::from_bytes(bytes.try_into().map_err(|_| damaged())?))
}
