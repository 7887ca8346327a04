//! A disk that is full: nothing can be written until there is room.

use super::*;
use std::{fs, process::Command};
use tenure_conformance::skip;
use tenure_core::{Attempt, Locks, LossCause, StoreError};

/// Longer than filling the disk takes.
const LEASE: Duration = Duration::from_secs(4);

/// A small disk in memory, mounted on a directory of its own.
struct Disk(TempDir);

impl Disk {
    /// `None` for who may not mount anything.
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "tenure"]).arg(directory.path());
        if !mount.status().is_ok_and(|status| status.success()) {
            skip("namespaces", "no small disk can be mounted here to fill it up under SQLite").unwrap();
            return None;
        }
        Some(Self(directory))
    }

    fn ballast(&self) -> impl AsRef<Path> {
        self.0.path().join("ballast")
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let error = fs::write(self.ballast(), vec![0; 2 << 20]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
    }

    fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Also while a connection is open.
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

/// Asks until nothing can be written: the log has some room left when the disk has none.
async fn refused(backend: &SqliteBackend) -> StoreError {
    for number in 0..10_000 {
        if let Err(error) = backend.try_acquire(&claim(&format!("new.{number}"))).await {
            return error;
        }
    }
    panic!("everything can be written to a full disk");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_costs_leases_and_no_exclusion() {
    let Some(disk) = Disk::mount() else { return };
    let options = SqliteOptions::new(disk.0.path().join("locks.db"));
    let theirs = SqliteBackend::open(options.clone()).await.unwrap();
    let locks = Locks::new(SqliteBackend::open(options).await.unwrap());
    let guard = locks.lock("held").lease(LEASE).acquire().await.unwrap();
    let token = guard.token();
    disk.fill();
    let error = refused(&theirs).await;
    let refused = said(&error);
    assert!(refused.contains("full") && refused.contains("make room"), "{refused}");
    let beside = theirs.try_acquire(&claim("held")).await;
    assert!(!matches!(beside, Ok(Attempt::Granted(_))) || !guard.is_held(), "{beside:?}");
    // Nothing extends it.
    assert_eq!(soon(guard.lost()).await, LossCause::Expired);
    disk.make_room();
    let theirs = Locks::new(theirs);
    let next = soon(async { theirs.lock("held").acquire().await }).await.unwrap();
    assert!(next.token() > token, "{} after {token}", next.token());
    next.release().await.unwrap();
    theirs.close().await;
    locks.close().await;
}
