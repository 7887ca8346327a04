//! A server whose disk is full refuses every write.

use crate::{
    Attempt, Backend, LossCause, RELEASED, Standing, Table, case::cases, claim, errors::with_errors, granted,
    lease_rows::Rows, lost, name, said, soon, waiting,
};

cases!("full": a_full_disk_ends_no_row_lock.of_row_locks());

const FILL: &str = "INSERT INTO {t}_said VALUES (1)";
const MAKE_ROOM: &str = "DELETE FROM {t}_said";

/// A row lock needs no room while it is held. A new one needs some for its note, or is none.
async fn a_full_disk_ends_no_row_lock(table: &Table) {
    // As long as it is full, each write of the table fails. What a real one lets in depends on the room that is left in
    // the last page.
    drop(with_errors(table, &["53100"], &[("HY000", 1114)]).await);
    let (ours, theirs) = (table.open_with_row("held").await, table.open_with_row("free").await);
    let held = granted(&ours, &claim("held")).await;
    // Its note is written.
    assert_eq!(theirs.holders(&name("held")).await.unwrap().len(), 1);
    table.execute(FILL).await;
    for name in ["free", "new"] {
        match theirs.try_acquire(&claim(name)).await {
            Err(error) => {
                let refused = said(&error);
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
