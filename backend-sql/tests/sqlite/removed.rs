//! Files that are removed or replaced while a client has them open.

use super::*;
use tenure_core::{Locks, LossCause};

const LONG: Duration = Duration::from_hours(1);

#[tokio::test]
async fn holder_is_told_before_another_client_opens_a_file_whose_log_was_removed() {
    for removed in [&["-wal", "-shm"][..], &["-wal"], &["-shm"]] {
        let file = File::new();
        let ours = Locks::new(file.open().await);
        let guard = ours.lock("a").lease(LONG).acquire().await.unwrap();
        // An idle client must not keep others waiting.
        let _idle = file.open().await;
        for end in removed {
            std::fs::remove_file(file.beside(end)).unwrap();
        }
        let theirs = soon(file.open()).await;
        assert_eq!(guard.loss(), Some(LossCause::Forgotten), "{removed:?}");
        let next = ours.lock("b").acquire().await.unwrap();
        busy(&theirs, &claim("b")).await.unwrap();
        next.release().await.unwrap();
        granted(&theirs, &claim("b")).await;
    }
}

#[tokio::test]
async fn holder_is_told_between_renewals_that_the_database_was_replaced() {
    let file = File::new();
    let ours = Locks::new(file.open().await);
    let guard = ours.lock("a").lease(LONG).acquire().await.unwrap();
    let plain = ours.lock("b").lease(LONG).renew(false).acquire().await.unwrap();
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(file.beside(end)).unwrap();
    }
    let told = soon(guard.lost()).await;
    assert_eq!((told, plain.loss()), (LossCause::Forgotten, Some(LossCause::Forgotten)));
    // The client goes on in the new file, as others do.
    let next = ours.lock("a").acquire().await.unwrap();
    busy(&file.open().await, &claim("a")).await.unwrap();
    next.release().await.unwrap();
}

/// Another program, or a client of an older version, does not ask who has the files open.
#[tokio::test]
async fn nothing_more_is_granted_in_files_that_were_replaced_by_another_program() {
    let file = File::new();
    let ours = Locks::new(file.open().await);
    let guard = ours.lock("a").lease(LONG).acquire().await.unwrap();
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(file.beside(end)).unwrap();
    }
    let theirs = file.open().await;
    let other = granted(&theirs, &claim("b")).await;
    assert!(
        ours.lock("b").try_acquire().await.unwrap().is_none(),
        "granted in a file that no other client sees"
    );
    assert_eq!(guard.loss(), Some(LossCause::Forgotten));
    theirs.release(&other).await.unwrap();
    assert!(ours.lock("b").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn nothing_is_lost_while_other_clients_come_and_go() {
    let file = File::new();
    let backend = file.open().await;
    let ours = Locks::new(backend.clone());
    let guard = ours.lock("a").lease(LONG).acquire().await.unwrap();
    for _ in 0..10 {
        let theirs = file.open().await;
        let grant = granted(&theirs, &claim("b")).await;
        theirs.release(&grant).await.unwrap();
        theirs.close().await;
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)").await;
        // SQLite removes the files with its last connection.
        backend.close().await;
        // Each request looks at the files.
        ours.lock("b").acquire().await.unwrap().release().await.unwrap();
    }
    assert!(guard.is_held(), "{:?}", guard.loss());
}
