//! Clients that wait, beside others that write.

use super::*;
use claims::{AWAITED, waiting};
use tenure_core::AttemptAll;

/// Polls are reads, and a mark, or a place in a queue, is written rarely: by the file's own clock.
#[tokio::test]
async fn waiting_writes_rarely() {
    for (fair, least) in [(false, 800), (true, 600)] {
        let file = File::new();
        let (ours, theirs) = (file.client(fair).await, file.client(fair).await);
        let grant = granted(&ours, &claim("a")).await;
        file.execute("CREATE TABLE writes (at)").await;
        let count =
            "CREATE TRIGGER count_writes AFTER UPDATE ON {t} BEGIN INSERT INTO writes VALUES ({now}); END";
        file.execute(count).await;
        let writes = async || file.number("SELECT count(*) FROM writes").await;
        let waits = waiting("a");
        tokio::select! {
            granted = theirs.acquire(&waits) => panic!("it was had: {granted:?}"),
            () = until(async || writes().await == 3) => {}
        }
        // The first of them says that it waits.
        let took = file.number("SELECT max(at) - min(at) FROM writes").await;
        assert!(took >= least, "3 writes in {took} ms");
        theirs.withdraw(&waits).await.unwrap();
        assert!([RELEASED, AWAITED].contains(&ours.release(&grant).await.unwrap()));
        // As many for each acquire and release, with a queue and without.
        for claim in [claim("a"), reader("a")] {
            let before = writes().await;
            let grant = ours.acquire(&Claim { waits: true, ..claim }).await.unwrap();
            ours.release(&grant).await.unwrap();
            assert_eq!(writes().await, before + 2);
        }
    }
}

/// Another program's transaction has the lock of the file.
#[tokio::test]
async fn refused_attempt_waits_for_no_writer() {
    let file = File::new();
    let holder = file.open().await;
    let other = SqliteBackend::open(file.options().busy_timeout(Duration::from_millis(100))).await.unwrap();
    granted(&holder, &claim("a")).await;
    granted(&holder, &reader("b")).await;
    granted(&holder, &reader("b")).await;
    let _writer = file.blocker().await;
    for refused in [claim("a"), reader("a"), claim("b")] {
        busy(&other, &refused).await;
    }
    let set = other.try_acquire_all(&["a", "c"].map(claim)).await.unwrap();
    assert!(matches!(set, AttemptAll::Busy), "{set:?}");
}
