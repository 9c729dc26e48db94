//! What every store must do, written for any of them, and what SQLite does besides.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use dphe::{Digest, Round};
use dphe_node::store::{Archive, LogStore, SqliteStore, StoreError};

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
            Err(StoreError::InUse { .. }) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
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
        std::thread::sleep(std::time::Duration::from_millis(20));
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
