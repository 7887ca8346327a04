//! What the suite cannot see: what a crash leaves in the directory, and what the store makes of it.

use custom_store::FileStore;
use std::{
    error::Error as _,
    fs::{self, File},
    path::Path,
    time::Duration,
};
use tempfile::TempDir;
use tenure_core::{Error, Locks};

fn store() -> (TempDir, Locks) {
    let directory = tempfile::tempdir().unwrap();
    let locks = Locks::new(FileStore::open(directory.path()).unwrap());
    (directory, locks)
}

/// What is in `directory`.
fn paths(directory: &Path) -> Vec<String> {
    let mut paths: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    paths.sort();
    paths
}

#[tokio::test]
async fn a_free_name_leaves_no_file() {
    let (directory, locks) = store();
    let long = "🔒".repeat(50);
    let guard = locks.lock(&long).acquire().await.unwrap();
    assert_eq!(paths(directory.path()).len(), 3);
    guard.release().await.unwrap();
    assert!(locks.lock("Orders/42").try_acquire().await.unwrap().is_some());
    locks.close().await;
    assert_eq!(paths(directory.path()), ["last-token", "mutex"]);
}

#[tokio::test]
async fn a_half_written_file_is_not_read() {
    let (directory, locks) = store();
    let guard = locks.lock("a").acquire().await.unwrap();
    // A process was killed while it wrote.
    fs::write(directory.path().join("a.new"), "{\"name\":\"a\",\"he").unwrap();
    fs::write(directory.path().join("last-token.new"), "17").unwrap();
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none());
    let token = guard.token();
    guard.release().await.unwrap();
    assert!(locks.lock("a").acquire().await.unwrap().token() > token);
}

#[tokio::test]
async fn emptied_files_count_as_absent_and_tokens_still_rise() {
    let (directory, locks) = store();
    let before = locks.lock("a").acquire().await.unwrap().token();
    locks.close().await;
    fs::write(directory.path().join("a.lock"), "").unwrap();
    fs::write(directory.path().join("last-token"), "\0\0\0\0").unwrap();
    let locks = Locks::new(FileStore::open(directory.path()).unwrap());
    let guard = locks.lock("a").try_acquire().await.unwrap().expect("nobody holds it");
    assert!(guard.token() > before);
}

#[tokio::test]
async fn tokens_rise_while_the_clock_is_behind() {
    let (directory, locks) = store();
    let ahead = 1_u64 << 60;
    fs::write(directory.path().join("last-token"), ahead.to_string()).unwrap();
    assert_eq!(locks.lock("a").acquire().await.unwrap().token().get(), ahead + 1);
}

#[tokio::test]
async fn a_file_of_another_kind_is_an_error_that_names_it_and_costs_only_its_own_lock() {
    let (directory, locks) = store();
    let lease = Duration::from_millis(600);
    let spoilt = locks.lock("spoilt").lease(lease).acquire().await.unwrap();
    let healthy = locks.lock("healthy").lease(lease).acquire().await.unwrap();
    fs::write(directory.path().join("spoilt.lock"), "not JSON").unwrap();
    spoilt.lost().await;
    tokio::time::sleep(lease).await;
    assert!(healthy.is_held(), "{:?}", healthy.loss());
    let error = locks.lock("spoilt").try_acquire().await.unwrap_err();
    let said = error.source().unwrap().to_string();
    assert!(matches!(error, Error::Store { .. }) && said.contains("spoilt.lock"), "{error}: {said}");
}

#[tokio::test]
async fn a_process_that_hangs_in_its_section_makes_the_store_unavailable() {
    let (directory, locks) = store();
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    let mutex = File::open(directory.path().join("mutex")).unwrap();
    mutex.lock().unwrap();
    let asking = locks.lock("a");
    let outcome = tokio::time::timeout(Duration::from_secs(20), asking.try_acquire()).await.unwrap();
    assert!(matches!(outcome, Err(Error::Unavailable { .. })), "{outcome:?}");
    mutex.unlock().unwrap();
    // The attempt that failed has been withdrawn, if it was carried out at all.
    assert!(locks.lock("a").wait(Duration::from_secs(20)).acquire().await.is_ok());
}
