//! Tests of the PostgreSQL store. They are skipped with a message if PostgreSQL is not installed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use dphe::wire::Participant;
use dphe::{Digest, Roster, UserId};
use dphe_service::store::postgres::{
    BatchOutcome, LeaderLease, PgAddress, PgStore, RoundStore, SnapshotRow, UploadRecord,
};
use dphe_service::store::{ChunkOutcome, LogStore, StoreError};
use support::conformance::{conforms, round};
use support::postgres::{Proxy, Server};
use support::{Plan, Town};

fn roster() -> Roster {
    (**Town::on_free_ports(Plan::default()).kit("aggregator").roster()).clone()
}

const LEASE: Duration = Duration::from_secs(2);

async fn open(url: &str, roster: &Roster) -> Result<PgStore, StoreError> {
    PgStore::open(&PgAddress::new(url, roster, LEASE).unwrap(), roster).await
}

#[tokio::test]
async fn postgres_conforms() {
    let Some(server) = Server::start() else { return };
    let roster = roster();
    conforms(async || open(&server.url(), &roster).await.unwrap()).await;
}

/// Values that are longer than a row are read back completely.
#[tokio::test]
async fn postgres_stores_long_logs_and_models() {
    let Some(server) = Server::start() else { return };
    let roster = roster();
    let mut store = open(&server.url(), &roster).await.unwrap();
    let long: Vec<u8> = (0..9_000_000u32).map(|i| (i % 251) as u8).collect();
    store.append(b"head").await.unwrap();
    store.append(&long).await.unwrap();
    assert!(*store.load().await.unwrap() == [b"head", &long[..]].concat());
    store.replace(&long).await.unwrap();
    assert!(*store.load().await.unwrap() == long);
}

fn user(number: u32) -> UserId {
    UserId::new(number).unwrap()
}

fn upload_record(number: u32, body: &[u8]) -> UploadRecord {
    let body_hash = Digest::of_model(body);
    UploadRecord {
        participant: Participant {
            user: user(number),
            count: 1,
            salt: [0; 16],
            body_hash,
            signature: [0; 64],
        },
        masks: vec![0; 48],
        fingerprints: vec![number as u8; 16],
        bytes: body.len() as u64,
    }
}

/// Stands in for adding sums: appends the users of a batch.
async fn add(
    round_store: &RoundStore,
    number: u64,
    batch: &[UploadRecord],
    most: Option<usize>,
) -> BatchOutcome {
    let add = |mut sum: Vec<u8>| {
        sum.extend(batch.iter().map(|record| record.participant.user.get() as u8));
        async { Ok::<_, ()>(sum) }
    };
    round_store.store_batch(round(number), batch, most, add).await.unwrap().unwrap()
}

/// Concurrent batches, one per partial sum, each lock a different one, and all are read back.
#[tokio::test]
async fn every_partial_sum_is_used_and_read_back() {
    let Some(server) = Server::start() else { return };
    let roster = roster();
    let stores = [open(&server.url(), &roster).await.unwrap(), open(&server.url(), &roster).await.unwrap()];
    stores[0].round_store().start_round(round(1)).await.unwrap();
    let count = RoundStore::partial_sum_numbers().count();
    let together = Arc::new(tokio::sync::Barrier::new(count));
    let tasks: Vec<_> = (1..=count as u32)
        .map(|number| {
            let (round_store, together) = (stores[number as usize % 2].round_store(), together.clone());
            tokio::spawn(async move {
                let add = |sum: Vec<u8>| async move {
                    together.wait().await;
                    assert!(sum.is_empty(), "the partial sum belongs to another batch");
                    Ok::<_, ()>(vec![number as u8])
                };
                round_store
                    .store_batch(round(1), &[upload_record(number, b"body")], None, add)
                    .await
                    .unwrap()
                    .unwrap()
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), BatchOutcome::Stored);
    }
    let round_store = stores[0].round_store();
    round_store.freeze(round(1)).await.unwrap();
    let mut found = Vec::new();
    for number in RoundStore::partial_sum_numbers() {
        found.extend(round_store.partial_sum(round(1), number).await.unwrap());
    }
    found.sort_unstable();
    assert_eq!(found, (1..=count as u8).collect::<Vec<_>>());
}

#[tokio::test]
async fn each_user_is_counted_once_across_replicas() {
    let Some(server) = Server::start() else { return };
    let roster = roster();
    let (one, two) =
        (open(&server.url(), &roster).await.unwrap(), open(&server.url(), &roster).await.unwrap());
    // whatever the default of the server is
    server.sql("ALTER DATABASE postgres SET default_transaction_isolation = 'repeatable read'");
    let (one, two) = (one.round_store(), two.round_store());
    assert_eq!(
        add(&one, 1, &[upload_record(1, b"early")], None).await,
        BatchOutcome::NotCollecting,
        "not open yet"
    );
    one.start_round(round(1)).await.unwrap();
    one.start_round(round(1)).await.unwrap();
    assert_eq!(
        add(&one, 1, &[upload_record(2, b"two"), upload_record(1, b"one")], None).await,
        BatchOutcome::Stored
    );
    // the same upload to another replica: the batch is not stored, and the known users are returned
    let known = BatchOutcome::Known(vec![(user(1), Digest::of_model(b"one"))]);
    assert_eq!(add(&two, 1, &[upload_record(3, b"three"), upload_record(1, b"other")], None).await, known);
    assert_eq!(two.users(round(1)).await.unwrap(), (vec![user(1), user(2)], false));
    assert_eq!(two.known(round(1), user(1)).await.unwrap(), Some(Digest::of_model(b"one")));
    assert_eq!(two.known(round(1), user(3)).await.unwrap(), None);
    // concurrent batches, each sent to both replicas
    let batches: Vec<Vec<UploadRecord>> = (0..20)
        .map(|b| (0..5).map(|i| upload_record(10 + 5 * b + i, &[b as u8, i as u8])).collect())
        .collect();
    let mut tasks = Vec::new();
    for round_store in [&one, &two] {
        for batch in batches.clone() {
            let round_store = round_store.clone();
            tasks.push(tokio::spawn(async move { add(&round_store, 1, &batch, None).await }));
        }
    }
    let mut all = 0;
    for task in tasks {
        all += u32::from(task.await.unwrap() == BatchOutcome::Stored);
    }
    assert_eq!(all, 20, "each batch is stored once");
    two.freeze(round(1)).await.unwrap();
    let mut counted = Vec::new();
    for number in RoundStore::partial_sum_numbers() {
        counted.extend(two.partial_sum(round(1), number).await.unwrap());
    }
    counted.sort_unstable();
    let expected: Vec<u8> = [1, 2].into_iter().chain(10..110).collect();
    assert_eq!(counted, expected, "each user is in exactly one partial sum");
    let mut users: Vec<UserId> = Vec::new();
    loop {
        let page = two.upload_records(round(1), users.last().copied(), 30).await.unwrap();
        assert!(page.len() <= 30);
        if page.is_empty() {
            break;
        }
        users.extend(page.iter().map(|record| record.participant.user));
    }
    assert_eq!(users.iter().map(|user| user.get() as u8).collect::<Vec<_>>(), expected);
    // a closed round stays closed, and its uploads are still known
    assert_eq!(add(&one, 1, &[upload_record(3, b"three")], None).await, BatchOutcome::NotCollecting);
    assert!(matches!(add(&one, 1, &[upload_record(2, b"two")], None).await, BatchOutcome::Known(_)));
    one.freeze(round(1)).await.unwrap();
    assert_eq!(one.upload_records(round(1), None, 500).await.unwrap().len(), 102);
    // a round of at most two participants
    one.start_round(round(2)).await.unwrap();
    assert_eq!(
        add(&one, 2, &[upload_record(1, b"a"), upload_record(2, b"b"), upload_record(3, b"c")], Some(2))
            .await,
        BatchOutcome::Full(2)
    );
    assert_eq!(
        add(&one, 2, &[upload_record(1, b"a"), upload_record(2, b"b")], Some(2)).await,
        BatchOutcome::Stored
    );
    assert_eq!(add(&two, 2, &[upload_record(3, b"c")], Some(2)).await, BatchOutcome::Full(0));
    // nothing is left of earlier rounds
    two.forget(round(2)).await.unwrap();
    assert_eq!(server.sql(&format!("SELECT MIN(round) FROM dphe_{}.uploads", roster.task().id())), "2");
}

#[tokio::test]
async fn chunks_are_joined_across_replicas() {
    let Some(server) = Server::start() else { return };
    let roster = roster();
    let (one, two) =
        (open(&server.url(), &roster).await.unwrap(), open(&server.url(), &roster).await.unwrap());
    let (one, two, body) = (one.round_store(), two.round_store(), b"0123456789");
    let put = async |round_store: &RoundStore, offset: usize, end: usize| {
        round_store
            .put_chunk(round(1), user(1), offset as u64, 10, body[offset..end].to_vec().into())
            .await
            .unwrap()
    };
    assert_eq!(put(&one, 0, 10).await, ChunkOutcome::Complete(body.to_vec().into()));
    assert_eq!(put(&one, 0, 4).await, ChunkOutcome::Stored(4));
    assert_eq!(
        (two.offset(round(1), user(1)).await.unwrap(), two.offset(round(1), user(2)).await.unwrap()),
        (4, 0)
    );
    assert_eq!(
        put(&two, 0, 4).await,
        ChunkOutcome::WrongOffset(4),
        "a half-sent upload that was tried again elsewhere"
    );
    assert_eq!(put(&two, 4, 7).await, ChunkOutcome::Stored(7));
    assert_eq!(
        two.put_chunk(round(1), user(1), 0, 5, b"01234"[..].into()).await.unwrap(),
        ChunkOutcome::Complete(b"01234"[..].into())
    );
    assert_eq!(
        two.put_chunk(round(1), user(1), 2, 5, b"234"[..].into()).await.unwrap(),
        ChunkOutcome::WrongOffset(0),
        "another upload"
    );
    for (round_store, from, to) in [(&two, 0, 4), (&one, 4, 7)] {
        assert_eq!(put(round_store, from, to).await, ChunkOutcome::Stored(to as u64));
    }
    assert_eq!(put(&two, 7, 10).await, ChunkOutcome::Complete(body.to_vec().into()));
    assert_eq!(one.offset(round(1), user(1)).await.unwrap(), 0);
}

#[tokio::test]
async fn a_former_leader_cannot_write() {
    let Some(server) = Server::start() else { return };
    let roster = roster();
    let proxy = Proxy::to(vec![([127, 0, 0, 1], server.port).into()]);
    let store = open(&server.url_at(proxy.address.port()), &roster).await.unwrap();
    let address = |port: u16| PgAddress::new(&server.url_at(port), &roster, LEASE).unwrap();
    let first = LeaderLease::try_acquire(&address(proxy.address.port()), &roster).await.unwrap().unwrap();
    let mut old = store.with_lease(&first);
    old.append(b"one").await.unwrap();
    old.round_store()
        .put_snapshot(&SnapshotRow { status: "1".into(), ..SnapshotRow::default() })
        .await
        .unwrap();
    let direct = address(server.port);
    assert!(
        LeaderLease::try_acquire(&direct, &roster).await.unwrap().is_none(),
        "another replica has the lease"
    );
    // the connection breaks silently: another replica can get the lease soon, and the first one notices
    proxy.block();
    let begin = std::time::Instant::now();
    let second = loop {
        if let Some(lead) = LeaderLease::try_acquire(&direct, &roster).await.unwrap() {
            break lead;
        }
        assert!(begin.elapsed() < 10 * LEASE, "the lease of a lost leader does not expire");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    tokio::time::timeout(10 * LEASE, first.lost()).await.unwrap();
    proxy.unblock();
    let mut new = open(&server.url(), &roster).await.unwrap().with_lease(&second);
    new.append(b" two").await.unwrap();
    // writes of the former leader fail
    let refused = loop {
        // broken connections of the pool are noticed one by one
        match old.append(b" three").await.unwrap_err() {
            StoreError::LeaseLost => break true,
            error => assert!(begin.elapsed() < Duration::from_secs(60), "{error}"),
        }
    };
    assert!(refused && second.fencing_token().epoch > first.fencing_token().epoch);
    let old = old.round_store();
    assert!(matches!(old.put_status("9").await, Err(StoreError::LeaseLost)));
    assert!(matches!(old.freeze(round(1)).await, Err(StoreError::LeaseLost)));
    assert_eq!(new.load().await.unwrap()[..], b"one two"[..]);
    let snapshot = new.round_store().snapshot((0, 0)).await.unwrap().unwrap();
    assert_eq!((snapshot.1.as_str(), snapshot.2.is_some()), ("1", true));
    assert_eq!(new.round_store().snapshot(snapshot.0).await.unwrap(), None);
    new.round_store().put_status("2").await.unwrap();
    let next = new.round_store().snapshot(snapshot.0).await.unwrap().unwrap();
    assert_eq!((next.1.as_str(), next.2), ("2", None));
    drop(second);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(
        LeaderLease::try_acquire(&direct, &roster).await.unwrap().is_some(),
        "a lease that is released is free at once"
    );
}

#[test]
fn database_on_another_machine_needs_a_verified_connection() {
    let roster = roster();
    let host = "postgres://me:secret@db.example.org/name";
    for (url, refused) in [
        (host.to_owned(), true),
        (format!("{host}?sslmode=require"), true),
        (format!("{host}?sslmode=verify-ca"), true),
        (format!("{host}?sslmode=verify-full"), false),
        ("postgres://me:secret@10.0.0.1/name".into(), true),
        ("postgres://me:secret@localhost/name".into(), false),
        ("postgres://me:secret@127.8.0.1/name".into(), false),
        ("postgres://me:secret@[::1]/name".into(), false),
        ("postgres:///name?host=/var/run/postgresql".into(), false),
    ] {
        match PgAddress::new(&url, &roster, LEASE) {
            Err(StoreError::Unverified { .. }) => assert!(refused, "{url}"),
            Ok(_) => assert!(!refused, "{url}"),
            Err(other) => panic!("{url}: {other}"),
        }
        let error = PgAddress::new(&url, &roster, LEASE).err();
        assert!(error.is_none_or(|error| !error.to_string().contains("secret") && error.hint().is_some()));
        PgAddress::new_unverified(&url, &roster, LEASE).unwrap();
    }
}

#[tokio::test]
async fn unusable_databases_are_refused_with_a_reason() {
    let Some(mut server) = Server::start() else { return };
    let (roster, url) = (roster(), server.url());
    for bad in ["", "mysql://x/y", "postgres://:::"] {
        let error = PgAddress::new(bad, &roster, LEASE).unwrap_err();
        assert!(matches!(error, StoreError::Address { .. }) && error.hint().is_some(), "{bad}: {error}");
    }
    let secret = PgAddress::new("postgres://me:secret@[::", &roster, LEASE).unwrap_err();
    assert!(!format!("{secret:?} {secret}").contains("secret"));
    let secret = PgAddress::new("postgres://me:secret@127.0.0.1/name", &roster, LEASE).unwrap();
    assert!(!format!("{secret:?}").contains("secret"));
    let mut store = open(&url, &roster).await.unwrap();
    store.append(b"kept").await.unwrap();
    let schema = format!("dphe_{}", roster.task().id());
    // the tables have a later version
    server.sql(&format!("UPDATE {schema}.about SET version = 99"));
    let error = open(&url, &roster).await.unwrap_err();
    assert!(matches!(error, StoreError::Version { found: 99, .. }), "{error}");
    server.sql(&format!("UPDATE {schema}.about SET version = 4"));
    // the tables belong to another roster
    server.sql(&format!("UPDATE {schema}.about SET roster = '\\x00'"));
    let error = open(&url, &roster).await.unwrap_err();
    assert!(matches!(error, StoreError::OtherRoster { .. }), "{error}");
    let hash: String = roster.hash().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    server.sql(&format!("UPDATE {schema}.about SET roster = '\\x{hash}'"));
    // read-only: writes fail, reads succeed
    server.sql("ALTER DATABASE postgres SET default_transaction_read_only = on");
    let refused = open(&url, &roster).await;
    assert!(matches!(refused, Err(StoreError::Postgres(_))), "{refused:?}");
    server.sql("SET default_transaction_read_only = off; ALTER DATABASE postgres RESET default_transaction_read_only");
    // the server stops and starts again
    server.stop();
    let error = open(&url, &roster).await.unwrap_err();
    assert!(error.hint().unwrap().contains("database runs"), "{error}");
    assert!(store.append(b" not").await.is_err());
    server.resume();
    let mut store = open(&server.url(), &roster).await.unwrap();
    assert_eq!(store.load().await.unwrap()[..], b"kept"[..]);
}

/// Compares chunks of long uploads in database rows with chunks in synced files.
#[tokio::test]
async fn chunks_in_the_database_and_in_files_behave_alike() {
    const PIECE: usize = 1 << 20;
    let Some(server) = Server::start() else { return };
    let (roster, directory) = (roster(), tempfile::tempdir().unwrap());
    let round_store = open(&server.url(), &roster).await.unwrap().round_store();
    // random bytes, which the database cannot compress
    let body: Vec<u8> =
        (0..8 * PIECE as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    let (mut rows, mut files) = (Vec::new(), Vec::new());
    for number in 1..=5 {
        let begin = std::time::Instant::now();
        let mut whole = ChunkOutcome::Stored(0);
        for (at, chunk) in body.chunks(PIECE).enumerate() {
            let (offset, total) = ((at * PIECE) as u64, body.len() as u64);
            whole = round_store
                .put_chunk(round(1), user(number), offset, total, chunk.to_vec().into())
                .await
                .unwrap();
        }
        assert!(whole == ChunkOutcome::Complete(body.clone().into()));
        rows.push(begin.elapsed());
        let begin = std::time::Instant::now();
        let path = directory.path().join(number.to_string());
        for chunk in body.chunks(PIECE) {
            let mut file = std::fs::File::options().create(true).append(true).open(&path).unwrap();
            std::io::Write::write_all(&mut file, chunk).unwrap();
            file.sync_all().unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == body);
        std::fs::remove_file(&path).unwrap();
        files.push(begin.elapsed());
    }
    rows.sort();
    files.sort();
    println!(
        "8 MiB in chunks of 1 MiB: as rows {:.0?}, as synced files {:.0?} (medians of 5)",
        rows[2], files[2]
    );
}
