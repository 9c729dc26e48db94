//! Tests of the SQLite store.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use dphe::{Profile, TaskConfig, TaskId, TaskParams};
use dphe_service::store::{LogStore, SqliteStore, StoreError, check_task};
use support::conformance::conforms;

#[tokio::test]
async fn sqlite_conforms() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    conforms(async || SqliteStore::open(&path).await.unwrap()).await;
}

#[test]
fn tasks_with_values_that_sqlite_cannot_hold_are_refused() {
    let task = |features| {
        let config = TaskConfig::new(Profile::Sparse, 100, features, 5).with_block(1);
        let config = TaskConfig { max_model_bytes: 1 << 24, ..config };
        TaskParams::new(TaskId::from_bytes([1; 16]), config).unwrap()
    };
    check_task(&task(10_000)).unwrap();
    // a sum of 1.2 GB, which the protocol allows
    let error = check_task(&task(15_000)).unwrap_err();
    assert!(matches!(error, StoreError::TaskTooLarge { what: "sum", .. }), "{error}");
    assert!(error.to_string().contains("at most 900000000") && error.hint().is_some(), "{error}");
}

#[tokio::test]
async fn data_directory_is_locked_by_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path()).await.unwrap();
    let error = SqliteStore::open(directory.path()).await.unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert!(error.hint().unwrap().contains("--data"));
    store.close().await.unwrap();
    // a process that another test forks at this moment holds the lock until it calls exec
    for _ in 0..100 {
        match SqliteStore::open(directory.path()).await {
            Ok(_) => return,
            Err(StoreError::InUse { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the directory stays locked");
}

#[cfg(unix)]
#[tokio::test]
async fn store_files_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let mut store = SqliteStore::open(&path).await.unwrap();
    store.append(b"a seed").await.unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for entry in std::fs::read_dir(&path).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

/// Old logs contain seeds, so they are overwritten in the database file and in the write-ahead log.
#[tokio::test]
async fn replaced_logs_leave_no_trace_in_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(directory.path()).await.unwrap();
    let canary = b"CANARY-SEED-0123456789";
    store.append(canary).await.unwrap();
    let found = || {
        std::fs::read_dir(directory.path()).unwrap().any(|entry| {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            bytes.windows(canary.len()).any(|window| window == canary)
        })
    };
    assert!(found(), "the search finds stored bytes");
    store.replace(b"a fresh start").await.unwrap();
    assert!(!found());
}

/// A directory that cannot be written gives an error with a hint.
#[test]
fn a_directory_that_cannot_be_used_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "not a directory").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(SqliteStore::open(&file)).unwrap_err();
    assert!(matches!(error, StoreError::Directory { .. }), "{error}");
    // the existing file is not changed
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "not a directory");
    // a read-only file system, if the test may mount one
    let path = directory.path().join("read-only");
    std::fs::create_dir(&path).unwrap();
    let mount = |args: &[&str]| {
        Command::new("mount").args(args).arg(&path).output().is_ok_and(|o| o.status.success())
    };
    if !mount(&["-t", "tmpfs", "-o", "ro,size=64k,mode=700", "tmpfs"]) {
        return println!("SKIPPED: no read-only file system can be made here");
    }
    let refused = runtime.block_on(SqliteStore::open(&path));
    let unmounted = Command::new("umount").arg(&path).status().unwrap().success();
    assert!(matches!(refused, Err(StoreError::Directory { .. })) && unmounted);
}

/// On a full disk the write fails, and earlier records survive.
#[test]
fn a_full_disk_loses_nothing_that_was_stored() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small");
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
    // a process that another test forks at this moment has the files open until it calls exec
    let unmounted = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        Command::new("umount").arg(&path).output().is_ok_and(|o| o.status.success())
    });
    assert!(unmounted);
    assert!(failed, "10 MB fit on a disk of 2 MiB");
    assert!(stored > 0 && after == stored, "{after} of {stored} records survived");
}

#[cfg(unix)]
#[tokio::test]
async fn data_directories_open_to_others_are_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let directory = tempfile::tempdir().unwrap();
    drop(SqliteStore::open(directory.path()).await.unwrap());
    let file = directory.path().join("dphe.sqlite");
    mode(&file, 0o644);
    let error = SqliteStore::open(directory.path()).await.unwrap_err();
    assert!(matches!(error, StoreError::NotPrivate { mode: 0o644, .. }), "{error}");
    assert!(error.hint().unwrap().contains("chmod"));
    mode(&file, 0o600);
    mode(directory.path(), 0o777);
    assert!(matches!(SqliteStore::open(directory.path()).await, Err(StoreError::NotPrivate { .. })));
    mode(directory.path(), 0o755);
    SqliteStore::open(directory.path()).await.unwrap();
}
