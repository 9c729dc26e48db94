//! The tables and their versions.

use dphe::wire::Rosters;
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};

use super::StoreError;

/// The statements of each version. A released version is never changed; changes are appended as a new version.
const VERSIONS: [&str; 4] = ["
    CREATE TABLE log (seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, bytes BYTEA STORAGE EXTERNAL NOT NULL);
    CREATE TABLE models (round BIGINT PRIMARY KEY, digest BYTEA NOT NULL, bytes BYTEA STORAGE EXTERNAL NOT NULL);
    CREATE INDEX models_by_digest ON models (digest);
    CREATE TABLE reports (round BIGINT PRIMARY KEY, json TEXT NOT NULL);
    CREATE TABLE messages (
        round BIGINT, kind SMALLINT, bytes BYTEA STORAGE EXTERNAL NOT NULL, PRIMARY KEY (round, kind));

    -- the leader: every new lease raises the epoch
    CREATE TABLE leader (
        one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one), epoch BIGINT NOT NULL, token BIGINT NOT NULL);
    INSERT INTO leader (epoch, token) VALUES (0, 0);
    -- the state that the leader publishes and all replicas serve
    CREATE TABLE board (
        one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one), version BIGINT NOT NULL, status TEXT NOT NULL,
        ended_round BIGINT, ended BYTEA STORAGE EXTERNAL, ticket BYTEA STORAGE EXTERNAL, model BYTEA STORAGE EXTERNAL,
        pages BIGINT NOT NULL);

    -- a round accepts uploads until it is frozen (closed = TRUE); every upload is in exactly one partial sum
    CREATE TABLE rounds (round BIGINT PRIMARY KEY, closed BOOLEAN NOT NULL DEFAULT FALSE);
    CREATE TABLE uploads (
        round BIGINT REFERENCES rounds ON DELETE CASCADE, user_id BIGINT, body_hash BYTEA NOT NULL,
        noise BYTEA STORAGE EXTERNAL NOT NULL, bytes BIGINT NOT NULL, PRIMARY KEY (round, user_id));
    CREATE TABLE shards (
        round BIGINT REFERENCES rounds ON DELETE CASCADE, shard INTEGER, PRIMARY KEY (round, shard));
    CREATE TABLE partials (
        round BIGINT, shard INTEGER, part INTEGER, bytes BYTEA STORAGE EXTERNAL NOT NULL,
        PRIMARY KEY (round, shard, part), FOREIGN KEY (round, shard) REFERENCES shards ON DELETE CASCADE);
    -- uploads that are not complete yet
    CREATE TABLE pieces (
        round BIGINT, user_id BIGINT, start BIGINT, bytes BYTEA STORAGE EXTERNAL NOT NULL,
        PRIMARY KEY (round, user_id, start));
", "
    ALTER TABLE pieces RENAME TO chunks;
    ALTER TABLE reports RENAME TO round_records;
    ALTER TABLE board RENAME TO snapshot;
    ALTER TABLE snapshot RENAME COLUMN pages TO content_version;
    ALTER TABLE shards RENAME TO partial_sums;
    ALTER TABLE partial_sums RENAME COLUMN shard TO number;
    ALTER TABLE partials RENAME TO partial_sum_parts;
    ALTER TABLE partial_sum_parts RENAME COLUMN shard TO number;
", "
    -- what shows that the user uploaded, and what its masks are removed with
    ALTER TABLE uploads ADD COLUMN participant BYTEA NOT NULL, ADD COLUMN masks BYTEA NOT NULL;
", "
    -- the number of the database, which kits name, and whether a person has compared the hash of the roster
    ALTER TABLE about ADD COLUMN id UUID NOT NULL DEFAULT gen_random_uuid(),
        ADD COLUMN pinned BOOLEAN NOT NULL DEFAULT FALSE;
"];

/// A column that PostgreSQL must not compress. Older servers set it in a statement of its own.
const STORAGE: &str = " STORAGE EXTERNAL";

/// Checks that the schema belongs to the task, moves it on to the latest roster, and creates or updates its tables.
pub(super) async fn prepare(
    db: &mut PgConnection,
    schema: &str,
    rosters: &Rosters,
) -> Result<Result<(), StoreError>, sqlx::Error> {
    let mut transaction = db.begin().await?;
    // replicas do this one after the other; the name consists of hexadecimal digits and needs no quoting
    transaction.execute("SELECT pg_advisory_xact_lock(hashtext('dphe schema'))").await?;
    transaction.execute(format!("CREATE SCHEMA IF NOT EXISTS {schema}").as_str()).await?;
    transaction
        .execute(
            "CREATE TABLE IF NOT EXISTS about (
                one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one), version INTEGER NOT NULL, roster BYTEA NOT NULL)",
        )
        .await?;
    let row = sqlx::query("SELECT version, roster FROM about").fetch_optional(&mut *transaction).await?;
    let (version, known) = match &row {
        Some(row) => {
            (usize::try_from(row.try_get::<i32, _>(0)?).unwrap_or(0), Some(row.try_get::<&[u8], _>(1)?))
        }
        None => (0, None),
    };
    let latest = rosters.latest().hash();
    let is_one_of_ours = |known: &[u8]| rosters.iter().any(|roster| roster.hash().as_bytes() == known);
    if known.is_some_and(|known| !is_one_of_ours(known)) {
        return Ok(Err(StoreError::OtherRoster { schema: schema.to_owned() }));
    }
    let follows = known.is_some_and(|known| known != latest.as_bytes());
    let here = VERSIONS.len();
    if version > here {
        return Ok(Err(StoreError::Version { found: version, known: here }));
    }
    for statements in &VERSIONS[version..] {
        transaction.execute(statements.replace(STORAGE, "").as_str()).await?;
        for (table, column) in external(statements) {
            let statement = format!("ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL");
            transaction.execute(statement.as_str()).await?;
        }
    }
    if version < here {
        sqlx::query(
            "INSERT INTO about (version, roster) VALUES ($1, $2) ON CONFLICT (one) DO UPDATE SET version = $1",
        )
        .bind(i32::try_from(here).unwrap_or(i32::MAX))
        .bind(&latest.as_bytes()[..])
        .execute(&mut *transaction)
        .await?;
    }
    if follows {
        // the first replica with a new roster ends the lease of a leader that does not have it
        let update = sqlx::query("UPDATE about SET roster = $1, pinned = FALSE").bind(&latest.as_bytes()[..]);
        update.execute(&mut *transaction).await?;
        transaction.execute("UPDATE leader SET epoch = epoch + 1").await?;
    }
    transaction.commit().await?;
    Ok(Ok(()))
}

/// Returns the columns that must not be compressed, as (table, column). Ciphertexts do not compress.
fn external(statements: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for statement in statements.split("CREATE TABLE ").skip(1) {
        let table = statement.split_whitespace().next().unwrap_or_default();
        let marked = statement.split(" BYTEA STORAGE EXTERNAL");
        let count = statement.matches(STORAGE).count();
        found.extend(
            marked.take(count).filter_map(|before| Some((table, before.split([' ', '(']).next_back()?))),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncompressed_columns_are_found_in_the_statements() {
        let found = external(VERSIONS[0]);
        assert!(found.contains(&("log", "bytes")) && found.contains(&("board", "model")), "{found:?}");
        assert!(found.contains(&("uploads", "noise")) && found.contains(&("pieces", "bytes")), "{found:?}");
        assert_eq!(found.len(), VERSIONS[0].matches(STORAGE).count());
    }
}
