//! Cases that the suite lacks: files after a crash, foreign files, and a client that hangs.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;
use tenure_core::{Error, Locks};

fn store() -> (TempDir, Locks) {
    let directory = tempfile::tempdir().unwrap();
    let locks = Locks::new(custom_store::open(directory.path()).unwrap());
    (directory, locks)
}

/// The file of the one name that was used.
fn file(directory: &Path) -> PathBuf {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut records = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let record = records.next().unwrap();
    assert_eq!(records.next(), None);
    record
}

#[tokio::test]
async fn a_half_written_file_is_not_read() {
    let (directory, locks) = store();
    let guard = locks.lock("a").acquire().await.unwrap();
    // A process was killed while it wrote.
    fs::write(file(directory.path()).with_extension("new"), "[\"lock/a\",\"{\"").unwrap();
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none());
    let token = guard.token();
    guard.release().await.unwrap();
    assert!(locks.lock("a").acquire().await.unwrap().token() > token);
}

#[tokio::test]
async fn an_emptied_file_counts_as_absent_and_tokens_still_rise() {
    let (directory, locks) = store();
    let before = locks.lock("a").acquire().await.unwrap().token();
    locks.close().await;
    for emptied in ["", "\0\0\0\0"] {
        fs::write(file(directory.path()), emptied).unwrap();
        let locks = Locks::new(custom_store::open(directory.path()).unwrap());
        let guard = locks.lock("a").try_acquire().await.unwrap().expect("nobody holds it");
        assert!(guard.token() > before);
    }
}

#[tokio::test]
async fn a_file_of_another_kind_is_an_error_that_names_it_and_costs_only_its_own_lock() {
    let (directory, locks) = store();
    let lease = Duration::from_secs(4);
    let spoilt = locks.lock("spoilt").lease(lease).acquire().await.unwrap();
    let path = file(directory.path());
    let healthy = locks.lock("healthy").lease(lease).acquire().await.unwrap();
    fs::write(&path, "not JSON").unwrap();
    spoilt.lost().await;
    tokio::time::sleep(lease / 2).await;
    assert!(healthy.is_held(), "{:?}", healthy.loss());
    let error = locks.lock("spoilt").try_acquire().await.unwrap_err();
    let said = error.to_string();
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(matches!(error, Error::Store { .. }) && said.contains(name), "{error}: {said}");
}

#[tokio::test]
async fn a_process_that_hangs_in_its_turn_makes_the_store_unavailable() {
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
