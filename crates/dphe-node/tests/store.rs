//! What every store must do, written for any of them, and what SQLite does besides.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use dphe::message::Participant;
use dphe::{Digest, Roster, Round, UserId};
use dphe_node::store::postgres::{BoardRow, Committed, Header, Lead, PgAddress, PgStore, Tally};
use dphe_node::store::{Archive, LogStore, Piece, SqliteStore, StoreError};
use support::postgres::{Line, Server};
use support::{Plan, Town};

fn round(number: u64) -> Round {
    Round::new(number).unwrap()
}

/// Another engine joins by passing this: `open` opens the same store again after the last one was dropped.
async fn conforms<S, F>(mut open: F)
where
    S: LogStore + Archive,
    F: AsyncFnMut() -> S,
{
    // a log: empty, grows, is there after a restart
    let mut store = open().await;
    assert!(store.load().await.unwrap().is_empty());
    store.append(b"one").await.unwrap();
    store.append(b"").await.unwrap();
    store.append(&[0; 100_000]).await.unwrap();
    let expected = [&b"one"[..], &[0; 100_000]].concat();
    assert!(*store.load().await.unwrap() == expected);
    drop(store);
    let mut store = open().await;
    assert!(*store.load().await.unwrap() == expected, "what was appended is there after a restart");

    // replaced as a whole, and goes on from there
    store.replace(b"checkpoint").await.unwrap();
    assert_eq!(store.load().await.unwrap()[..], b"checkpoint"[..]);
    store.append(b" and more").await.unwrap();
    drop(store);
    let mut store = open().await;
    assert_eq!(store.load().await.unwrap()[..], b"checkpoint and more"[..]);
    store.replace(b"").await.unwrap();
    assert!(store.load().await.unwrap().is_empty());

    // models: by digest, the latest, replaced, forgotten
    let digest = |model: &[u8]| Digest::of_model(model);
    assert_eq!(store.latest_model(round(9)).await.unwrap(), None);
    for (number, model) in [(1, b"first"), (2, b"wrong"), (2, b"other"), (4, b"later")] {
        store.put_model(round(number), digest(model), model).await.unwrap();
    }
    assert_eq!(store.model(digest(b"other")).await.unwrap().as_deref(), Some(&b"other"[..]));
    assert_eq!(store.model(digest(b"wrong")).await.unwrap(), None, "another took its place");
    assert_eq!(store.latest_model(round(3)).await.unwrap(), Some((round(2), b"other".to_vec())));
    assert_eq!(store.latest_model(round(9)).await.unwrap(), Some((round(4), b"later".to_vec())));
    store.forget_models(round(2)).await.unwrap();
    assert_eq!(store.latest_model(round(1)).await.unwrap(), None);
    assert_eq!(store.latest_model(round(2)).await.unwrap(), Some((round(2), b"other".to_vec())));

    // reports and messages: one of each round and kind, in order
    for number in [2, 1, 3, 2] {
        store.put_report(round(number), &format!("{{\"round\":{number}}}")).await.unwrap();
        store.put_message(round(number), 11, &[number as u8]).await.unwrap();
        store.put_message(round(number), 2, b"ticket").await.unwrap();
    }
    drop(store);
    let mut store = open().await;
    let reports = store.reports(round(2)).await.unwrap();
    assert_eq!(reports.iter().map(|(round, _)| round.get()).collect::<Vec<_>>(), [2, 3]);
    let messages = store.messages(round(2)).await.unwrap();
    let kinds: Vec<_> = messages.iter().map(|(round, kind, _)| (round.get(), *kind)).collect();
    assert_eq!(kinds, [(2, 2), (2, 11), (3, 2), (3, 11)]);
    assert_eq!(messages[1].2, [2]);
}

#[tokio::test]
async fn sqlite_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    conforms(async || SqliteStore::open(&path).await.unwrap()).await;
}

#[tokio::test]
async fn a_folder_has_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path()).await.unwrap();
    let error = SqliteStore::open(folder.path()).await.unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert!(error.hint().unwrap().contains("--data"));
    store.close().await.unwrap();
    // a process that another test starts just then holds the lock too, until it has become another program
    for _ in 0..100 {
        match SqliteStore::open(folder.path()).await {
            Ok(_) => return,
            Err(StoreError::InUse { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the folder stays locked");
}

#[cfg(unix)]
#[tokio::test]
async fn others_cannot_read_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let mut store = SqliteStore::open(&path).await.unwrap();
    store.append(b"a seed").await.unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for entry in std::fs::read_dir(&path).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

/// Old logs hold old seeds: they are overwritten in the file and in what was written ahead of it.
#[tokio::test]
async fn what_is_replaced_leaves_no_trace_in_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(folder.path()).await.unwrap();
    let canary = b"CANARY-SEED-0123456789";
    store.append(canary).await.unwrap();
    let found = || {
        std::fs::read_dir(folder.path()).unwrap().any(|entry| {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            bytes.windows(canary.len()).any(|window| window == canary)
        })
    };
    assert!(found(), "the search finds what is there");
    store.replace(b"a fresh start").await.unwrap();
    assert!(!found());
}

/// A disk that cannot be written: an error with a hint, and nothing that looks like success.
#[test]
fn a_folder_that_cannot_be_used_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "not a folder").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(SqliteStore::open(&file)).unwrap_err();
    assert!(matches!(error, StoreError::Folder { .. }), "{error}");
    // what is in the way is not touched
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "not a folder");
    // a file system that is read-only, where this machine lets a test make one
    let path = folder.path().join("read-only");
    std::fs::create_dir(&path).unwrap();
    let mount = |args: &[&str]| {
        Command::new("mount").args(args).arg(&path).output().is_ok_and(|o| o.status.success())
    };
    if !mount(&["-t", "tmpfs", "-o", "ro,size=64k,mode=700", "tmpfs"]) {
        return println!("SKIPPED: no read-only file system can be made here");
    }
    let refused = runtime.block_on(SqliteStore::open(&path));
    let unmounted = Command::new("umount").arg(&path).status().unwrap().success();
    assert!(matches!(refused, Err(StoreError::Folder { .. })) && unmounted);
}

/// A disk that fills up while a party works: the write fails, and what was there before is still there.
#[test]
fn a_full_disk_loses_nothing_that_was_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small");
    std::fs::create_dir(&path).unwrap();
    let mount =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs"]).arg(&path).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        return println!("SKIPPED: no small file system can be made here");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (stored, after, failed) = runtime.block_on(async {
        let mut store = SqliteStore::open(&path).await.unwrap();
        let (mut stored, mut failed) = (0, false);
        for _ in 0..100 {
            match store.append(&[7; 100_000]).await {
                Ok(()) => stored += 1,
                Err(_) => {
                    failed = true;
                    break;
                }
            }
        }
        drop(store);
        let mut store = SqliteStore::open(&path).await.unwrap();
        (stored, store.load().await.unwrap().len() / 100_000, failed)
    });
    // a process that another test starts just then has its files open too, for a moment
    let unmounted = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        Command::new("umount").arg(&path).output().is_ok_and(|o| o.status.success())
    });
    assert!(unmounted);
    assert!(failed, "a disk of 2 MiB holds 10 MB");
    assert!(stored > 0 && after == stored, "{after} of {stored} records are there");
}

#[cfg(unix)]
#[tokio::test]
async fn what_others_could_read_or_change_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let folder = tempfile::tempdir().unwrap();
    drop(SqliteStore::open(folder.path()).await.unwrap());
    let file = folder.path().join("dphe.sqlite");
    mode(&file, 0o644);
    let error = SqliteStore::open(folder.path()).await.unwrap_err();
    assert!(matches!(error, StoreError::NotPrivate { mode: 0o644, .. }), "{error}");
    assert!(error.hint().unwrap().contains("chmod"));
    mode(&file, 0o600);
    mode(folder.path(), 0o777);
    assert!(matches!(SqliteStore::open(folder.path()).await, Err(StoreError::NotPrivate { .. })));
    mode(folder.path(), 0o755);
    SqliteStore::open(folder.path()).await.unwrap();
}

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

/// What is longer than a row comes back whole.
#[tokio::test]
async fn postgres_takes_what_is_long() {
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

fn header(number: u32, body: &[u8]) -> Header {
    let body_hash = Digest::of_model(body);
    Header { user: user(number), body_hash, noise: vec![number as u8; 16], bytes: body.len() as u64 }
}

/// Adds numbers, written one after the other, as sums would be.
async fn add(tally: &Tally, number: u64, batch: &[Header], most: Option<usize>) -> Committed {
    let add = |mut sum: Vec<u8>| {
        sum.extend(batch.iter().map(|header| header.user.get() as u8));
        async { Ok::<_, ()>(sum) }
    };
    tally.commit(round(number), batch, most, add).await.unwrap().unwrap()
}

/// As many batches at once as there are partial sums: each takes one of its own, and all are found again.
#[tokio::test]
async fn every_partial_sum_is_used_and_found_again() {
    let Some(server) = Server::start() else { return };
    let roster = roster();
    let stores = [open(&server.url(), &roster).await.unwrap(), open(&server.url(), &roster).await.unwrap()];
    stores[0].tally().open_round(round(1)).await.unwrap();
    let count = Tally::shards().count();
    let together = Arc::new(tokio::sync::Barrier::new(count));
    let tasks: Vec<_> = (1..=count as u32)
        .map(|number| {
            let (tally, together) = (stores[number as usize % 2].tally(), together.clone());
            tokio::spawn(async move {
                let add = |sum: Vec<u8>| async move {
                    together.wait().await;
                    assert!(sum.is_empty(), "another one's");
                    Ok::<_, ()>(vec![number as u8])
                };
                tally.commit(round(1), &[header(number, b"body")], None, add).await.unwrap().unwrap()
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), Committed::All);
    }
    let tally = stores[0].tally();
    tally.close(round(1)).await.unwrap();
    let mut found = Vec::new();
    for shard in Tally::shards() {
        found.extend(tally.partial(round(1), shard).await.unwrap());
    }
    found.sort_unstable();
    assert_eq!(found, (1..=count as u8).collect::<Vec<_>>());
}

#[tokio::test]
async fn each_user_is_counted_once_whoever_takes_the_upload() {
    let Some(server) = Server::start() else { return };
    let roster = roster();
    let (one, two) =
        (open(&server.url(), &roster).await.unwrap(), open(&server.url(), &roster).await.unwrap());
    // whatever is usual there
    server.sql("ALTER DATABASE postgres SET default_transaction_isolation = 'repeatable read'");
    let (one, two) = (one.tally(), two.tally());
    assert_eq!(add(&one, 1, &[header(1, b"early")], None).await, Committed::Closed, "not open yet");
    one.open_round(round(1)).await.unwrap();
    one.open_round(round(1)).await.unwrap();
    assert_eq!(add(&one, 1, &[header(2, b"two"), header(1, b"one")], None).await, Committed::All);
    // again, to another: nothing of the batch is taken, and who is in is said
    let known = Committed::Known(vec![Participant { user: user(1), body_hash: Digest::of_model(b"one") }]);
    assert_eq!(add(&two, 1, &[header(3, b"three"), header(1, b"other")], None).await, known);
    assert_eq!(two.users(round(1)).await.unwrap(), (vec![user(1), user(2)], false));
    assert_eq!(two.known(round(1), user(1)).await.unwrap(), Some(Digest::of_model(b"one")));
    assert_eq!(two.known(round(1), user(3)).await.unwrap(), None);
    // many at once, each batch sent to both
    let batches: Vec<Vec<Header>> =
        (0..20).map(|b| (0..5).map(|i| header(10 + 5 * b + i, &[b as u8, i as u8])).collect()).collect();
    let mut tasks = Vec::new();
    for tally in [&one, &two] {
        for batch in batches.clone() {
            let tally = tally.clone();
            tasks.push(tokio::spawn(async move { add(&tally, 1, &batch, None).await }));
        }
    }
    let mut all = 0;
    for task in tasks {
        all += u32::from(task.await.unwrap() == Committed::All);
    }
    assert_eq!(all, 20, "of each batch one of two is taken");
    two.close(round(1)).await.unwrap();
    let mut counted = Vec::new();
    for shard in Tally::shards() {
        counted.extend(two.partial(round(1), shard).await.unwrap());
    }
    counted.sort_unstable();
    let expected: Vec<u8> = [1, 2].into_iter().chain(10..110).collect();
    assert_eq!(counted, expected, "in one of the sums, once");
    let mut users: Vec<UserId> = Vec::new();
    loop {
        let page = two.headers(round(1), users.last().copied(), 30).await.unwrap();
        assert!(page.len() <= 30);
        if page.is_empty() {
            break;
        }
        users.extend(page.iter().map(|header| header.user));
    }
    assert_eq!(users.iter().map(|user| user.get() as u8).collect::<Vec<_>>(), expected);
    // closed is closed, and what was taken is still known
    assert_eq!(add(&one, 1, &[header(3, b"three")], None).await, Committed::Closed);
    assert!(matches!(add(&one, 1, &[header(2, b"two")], None).await, Committed::Known(_)));
    one.close(round(1)).await.unwrap();
    assert_eq!(one.headers(round(1), None, 500).await.unwrap().len(), 102);
    // a round with room for two
    one.open_round(round(2)).await.unwrap();
    assert_eq!(
        add(&one, 2, &[header(1, b"a"), header(2, b"b"), header(3, b"c")], Some(2)).await,
        Committed::Full(2)
    );
    assert_eq!(add(&one, 2, &[header(1, b"a"), header(2, b"b")], Some(2)).await, Committed::All);
    assert_eq!(add(&two, 2, &[header(3, b"c")], Some(2)).await, Committed::Full(0));
    // of rounds that are over nothing is left
    two.forget(round(2)).await.unwrap();
    assert_eq!(server.sql(&format!("SELECT MIN(round) FROM dphe_{}.uploads", roster.task().id())), "2");
}

#[tokio::test]
async fn pieces_follow_one_another_whoever_takes_them() {
    let Some(server) = Server::start() else { return };
    let roster = roster();
    let (one, two) =
        (open(&server.url(), &roster).await.unwrap(), open(&server.url(), &roster).await.unwrap());
    let (one, two, body) = (one.tally(), two.tally(), b"0123456789");
    let put = async |tally: &Tally, offset: usize, end: usize| {
        tally
            .put_piece(round(1), user(1), offset as u64, 10, body[offset..end].to_vec().into())
            .await
            .unwrap()
    };
    assert_eq!(put(&one, 0, 10).await, Piece::Whole(body.to_vec().into()));
    assert_eq!(put(&one, 0, 4).await, Piece::Stored(4));
    assert_eq!(
        (two.offset(round(1), user(1)).await.unwrap(), two.offset(round(1), user(2)).await.unwrap()),
        (4, 0)
    );
    assert_eq!(
        put(&two, 0, 4).await,
        Piece::Misplaced(4),
        "a half-sent upload that was tried again elsewhere"
    );
    assert_eq!(put(&two, 4, 7).await, Piece::Stored(7));
    assert_eq!(
        two.put_piece(round(1), user(1), 0, 5, b"01234"[..].into()).await.unwrap(),
        Piece::Whole(b"01234"[..].into())
    );
    assert_eq!(
        two.put_piece(round(1), user(1), 2, 5, b"234"[..].into()).await.unwrap(),
        Piece::Misplaced(0),
        "another upload"
    );
    for (tally, from, to) in [(&two, 0, 4), (&one, 4, 7)] {
        assert_eq!(put(tally, from, to).await, Piece::Stored(to as u64));
    }
    assert_eq!(put(&two, 7, 10).await, Piece::Whole(body.to_vec().into()));
    assert_eq!(one.offset(round(1), user(1)).await.unwrap(), 0);
}

#[tokio::test]
async fn one_leads_and_whoever_led_before_writes_no_more() {
    let Some(server) = Server::start() else { return };
    let roster = roster();
    let line = Line::to(vec![([127, 0, 0, 1], server.port).into()]);
    let store = open(&server.url_at(line.address.port()), &roster).await.unwrap();
    let address = |port: u16| PgAddress::new(&server.url_at(port), &roster, LEASE).unwrap();
    let first = Lead::seek(&address(line.address.port()), &roster).await.unwrap().unwrap();
    let mut old = store.led_by(&first);
    old.append(b"one").await.unwrap();
    old.tally().put_board(&BoardRow { status: "1".into(), ..BoardRow::default() }).await.unwrap();
    let direct = address(server.port);
    assert!(Lead::seek(&direct, &roster).await.unwrap().is_none(), "there is one");
    // cut off without a word: soon another can lead, and the first one hears of it
    line.cut();
    let begin = std::time::Instant::now();
    let second = loop {
        if let Some(lead) = Lead::seek(&direct, &roster).await.unwrap() {
            break lead;
        }
        assert!(begin.elapsed() < 10 * LEASE, "a lost one leads for ever");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    tokio::time::timeout(10 * LEASE, first.lost()).await.unwrap();
    line.mend();
    let mut new = open(&server.url(), &roster).await.unwrap().led_by(&second);
    new.append(b" two").await.unwrap();
    // what the old one was about to do comes to nothing
    let refused = loop {
        // lines that were cut are found out one by one
        match old.append(b" three").await.unwrap_err() {
            StoreError::Deposed => break true,
            error => assert!(begin.elapsed() < Duration::from_secs(60), "{error}"),
        }
    };
    assert!(refused && second.mark().epoch > first.mark().epoch);
    let old = old.tally();
    assert!(matches!(old.put_status("9").await, Err(StoreError::Deposed)));
    assert!(matches!(old.close(round(1)).await, Err(StoreError::Deposed)));
    assert_eq!(new.load().await.unwrap()[..], b"one two"[..]);
    let board = new.tally().board((0, 0)).await.unwrap().unwrap();
    assert_eq!((board.1.as_str(), board.2.is_some()), ("1", true));
    assert_eq!(new.tally().board(board.0).await.unwrap(), None);
    new.tally().put_status("2").await.unwrap();
    let next = new.tally().board(board.0).await.unwrap().unwrap();
    assert_eq!((next.1.as_str(), next.2), ("2", None));
    drop(second);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(Lead::seek(&direct, &roster).await.unwrap().is_some(), "given up, it is free at once");
}

#[tokio::test]
async fn a_database_that_cannot_be_used_is_refused_by_name() {
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
    // tables of a later version
    server.sql(&format!("UPDATE {schema}.about SET version = 99"));
    let error = open(&url, &roster).await.unwrap_err();
    assert!(matches!(error, StoreError::Version { found: 99, .. }), "{error}");
    server.sql(&format!("UPDATE {schema}.about SET version = 1"));
    // tables of another roster
    server.sql(&format!("UPDATE {schema}.about SET roster = '\\x00'"));
    let error = open(&url, &roster).await.unwrap_err();
    assert!(matches!(error, StoreError::OtherRoster { .. }), "{error}");
    let hash: String = roster.hash().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    server.sql(&format!("UPDATE {schema}.about SET roster = '\\x{hash}'"));
    // read-only: nothing is written, what is there can be read
    server.sql("ALTER DATABASE postgres SET default_transaction_read_only = on");
    let refused = open(&url, &roster).await;
    assert!(matches!(refused, Err(StoreError::Database(_))), "{refused:?}");
    server.sql("SET default_transaction_read_only = off; ALTER DATABASE postgres RESET default_transaction_read_only");
    // away, and back
    server.stop();
    let error = open(&url, &roster).await.unwrap_err();
    assert!(error.hint().unwrap().contains("database runs"), "{error}");
    assert!(store.append(b" not").await.is_err());
    server.go_on();
    let mut store = open(&server.url(), &roster).await.unwrap();
    assert_eq!(store.load().await.unwrap()[..], b"kept"[..]);
}

/// Where pieces of long uploads go: rows, beside files that are synced in a folder that replicas would have to share.
#[tokio::test]
async fn pieces_as_rows_and_as_files() {
    const PIECE: usize = 1 << 20;
    let Some(server) = Server::start() else { return };
    let (roster, folder) = (roster(), tempfile::tempdir().unwrap());
    let tally = open(&server.url(), &roster).await.unwrap().tally();
    // nothing that a database could compress
    let body: Vec<u8> =
        (0..8 * PIECE as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    let (mut rows, mut files) = (Vec::new(), Vec::new());
    for number in 1..=5 {
        let begin = std::time::Instant::now();
        let mut whole = Piece::Stored(0);
        for (at, piece) in body.chunks(PIECE).enumerate() {
            let (offset, total) = ((at * PIECE) as u64, body.len() as u64);
            whole =
                tally.put_piece(round(1), user(number), offset, total, piece.to_vec().into()).await.unwrap();
        }
        assert!(whole == Piece::Whole(body.clone().into()));
        rows.push(begin.elapsed());
        let begin = std::time::Instant::now();
        let path = folder.path().join(number.to_string());
        for piece in body.chunks(PIECE) {
            let mut file = std::fs::File::options().create(true).append(true).open(&path).unwrap();
            std::io::Write::write_all(&mut file, piece).unwrap();
            file.sync_all().unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == body);
        std::fs::remove_file(&path).unwrap();
        files.push(begin.elapsed());
    }
    rows.sort();
    files.sort();
    println!(
        "8 MiB in pieces of 1 MiB: as rows {:.0?}, as synced files {:.0?} (medians of 5)",
        rows[2], files[2]
    );
}
