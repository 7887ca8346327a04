//! A process that may write or open no more files for a while: what it asks meanwhile may be asked again.

use super::*;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::{env, process::Command};
use tenure_core::Error;
use tokio::signal::unix::{SignalKind, signal};

const ALONE: &str = "TENURE_TEST_ALONE";

/// Whether this is a process for this test alone, since its limits are those of all threads. If not, such a process has
/// passed the test.
fn is_alone(test: &str) -> bool {
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let mut alone = Command::new(env::current_exe().unwrap());
    let output = alone.args(["--exact", test]).env(ALONE, "1").output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
    false
}

/// Awaits `asked` while this process may use at most so much of the resource.
async fn limited<T>(resource: Resource, most: u64, asked: impl Future<Output = T>) -> T {
    let before = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(most), ..before }).unwrap();
    let answer = asked.await;
    setrlimit(resource, before).unwrap();
    answer
}

#[tokio::test]
async fn failed_write_is_unavailable_and_grants_nothing() {
    if !is_alone("limits::failed_write_is_unavailable_and_grants_nothing") {
        return;
    }
    // It would end the process.
    drop(signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).unwrap());
    let file = File::new();
    // As long as another has the file open, what is in the log stays there.
    let (backend, other) = (file.open().await, file.open().await);
    let held = granted(&backend, &claim("held")).await;
    for room in [0, 5000] {
        let failed = limited(Resource::Fsize, room, async {
            [
                backend.try_acquire(&claim("a")).await.map(drop).unwrap_err(),
                backend.renew(std::slice::from_ref(&held)).await.map(drop).unwrap_err(),
                backend.release(&held).await.map(drop).unwrap_err(),
            ]
        });
        for error in failed.await {
            assert!(error.is_unavailable() && said(&error).contains("disk I/O error"), "{error:?}");
        }
        let names = other.list("").await.unwrap();
        assert_eq!(names.iter().map(|holder| &*holder.name).collect::<Vec<_>>(), ["held"]);
    }
    assert_eq!(backend.release(&held).await.unwrap(), RELEASED);
    granted(&backend, &claim("a")).await;
}

#[tokio::test]
async fn file_is_unavailable_while_no_more_can_be_opened() {
    if !is_alone("limits::file_is_unavailable_while_no_more_can_be_opened") {
        return;
    }
    let file = File::new();
    let backend = file.open().await;
    let error = limited(Resource::Nofile, 0, SqliteBackend::open(file.options())).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && said(&error).contains("ulimit -n"), "{error:?}");
    granted(&file.open().await, &claim("a")).await;
    backend.close().await;
}
