//! A server whose disk is full refuses every write.

use crate::{
    Attempt, Backend, Duration, LEASE, LONG, LossCause, RELEASED, Standing, Table, busy, case::cases, chain,
    claim, errors::with_errors, granted, lease_rows::Rows, lost, name, soon, waiting,
};

cases!("full":
    a_full_disk_costs_leases_and_no_exclusion.of_lease_rows(), a_full_disk_ends_no_row_lock.of_row_locks(),
);

const SHORT_LEASE: Duration = Duration::from_secs(4);

const FILL: &str = "INSERT INTO {t}_said VALUES (1)";
const MAKE_ROOM: &str = "DELETE FROM {t}_said";

/// As long as it is full, each write of the table fails. What a real one lets in depends on the room that is left in the
/// last page.
async fn with_a_disk(table: &Table) {
    drop(with_errors(table, &["53100"], &[("HY000", 1114)]).await);
}

async fn a_full_disk_costs_leases_and_no_exclusion(table: &Table) {
    with_a_disk(table).await;
    let (ours, theirs) = (table.open_with_row("free").await, table.open().await);
    let locks = ours.locks();
    let guard = locks.lock("held").lease(SHORT_LEASE).acquire().await.unwrap();
    let done = locks.lock("done").lease(LEASE).acquire().await.unwrap();
    let token = guard.token();
    table.execute(FILL).await;
    for name in ["free", "held", "new"] {
        let refused = match theirs.try_acquire(&claim(name)).await {
            Err(error) => chain(&error),
            // PostgreSQL looks for a holder before it writes.
            Ok(Attempt::Busy { .. }) if name == "held" => continue,
            Ok(other) => panic!("{name}: {other:?} on a full disk"),
        };
        assert!(refused.contains("full") && refused.contains("make room"), "{refused}");
    }
    let refused = chain(&done.release().await.unwrap_err());
    assert!(refused.contains("full") && refused.contains("make room"), "{refused}");
    // Nothing extends it.
    assert_eq!(soon(guard.lost()).await, LossCause::Expired);
    table.execute(MAKE_ROOM).await;
    busy(&theirs, &claim("done")).await;
    // The server gives a lease up a moment later than its holder.
    let theirs = theirs.locks();
    let next = theirs.lock("held").wait(LONG).acquire().await.unwrap();
    assert!(next.token() > token, "{} after {token}", next.token());
    next.release().await.unwrap();
    theirs.lock("free").wait(LONG).acquire().await.unwrap().release().await.unwrap();
}

/// A row lock needs no room while it is held. A new one needs some for its note, or is none.
async fn a_full_disk_ends_no_row_lock(table: &Table) {
    with_a_disk(table).await;
    let (ours, theirs) = (table.open_with_row("held").await, table.open_with_row("free").await);
    let held = granted(&ours, &claim("held")).await;
    // Its note is written.
    assert_eq!(theirs.holders(&name("held")).await.unwrap().len(), 1);
    table.execute(FILL).await;
    for name in ["free", "new"] {
        match theirs.try_acquire(&claim(name)).await {
            Err(error) => {
                let refused = chain(&error);
                assert!(refused.contains("full") && refused.contains("make room"), "{name}: {refused}");
            }
            // Its row is there, and its note is not.
            Ok(Attempt::Granted(unnoted)) if name == "free" => {
                assert_eq!(lost(&unnoted).await, LossCause::SessionEnded);
            }
            Ok(other) => panic!("{name}: {other:?} on a full disk"),
        }
    }
    let beside = theirs.try_acquire(&claim("held")).await;
    assert!(!matches!(beside, Ok(Attempt::Granted(_))), "{beside:?}");
    let Standing::Session(liveness) = &held.standing else { panic!("{held:?}") };
    assert_eq!(liveness.loss(), None);
    assert_eq!(ours.release(&held).await.unwrap(), RELEASED);
    table.execute(MAKE_ROOM).await;
    let next = soon(theirs.acquire(&waiting("held"))).await.unwrap();
    assert!(next.token > held.token, "{} after {}", next.token, held.token);
    assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
}
