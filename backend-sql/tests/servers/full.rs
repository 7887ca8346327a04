//! A server whose disk is full: it refuses whatever would write.

use crate::{
    Attempt, Duration, LEASE, LONG, LossCause, RELEASED, Table, busy, case::cases, chain, claim, granted,
    lost, name, soon, waiting,
};
use tenure_core::{Moment, Standing};

cases!("full":
    a_full_disk_costs_leases_and_no_exclusion.of_lease_rows(), a_full_disk_ends_no_row_lock.of_row_locks(),
);

const SHORT_LEASE: Duration = Duration::from_secs(4);

/// Makes the table, and one beside it: as long as that one has a row, each write of the first fails as it does on a full disk.
/// What a real one lets in depends on the room that is left in the last page.
async fn with_a_disk(table: &Table) {
    table.execute(&table.ddl()).await;
    table.execute("CREATE TABLE {t}_full (id BIGINT PRIMARY KEY)").await;
    if table.is_postgres() {
        let refuse = "BEGIN IF EXISTS (SELECT FROM {t}_full) THEN \
             RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; \
             END IF; RETURN NEW; END";
        let function = "CREATE FUNCTION {t}_refuse() RETURNS trigger LANGUAGE plpgsql AS ";
        table.execute(&format!("{function} $${refuse}$$")).await;
        let before = "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {t}";
        table.execute(&format!("{before} FOR EACH ROW EXECUTE FUNCTION {{t}}_refuse()")).await;
    } else {
        let mut admin = table.admin_here().await;
        for event in ["INSERT", "UPDATE"] {
            let trigger = format!(
                "CREATE TRIGGER {{t}}_{event} BEFORE {event} ON {{t}} FOR EACH ROW \
                 IF EXISTS (SELECT 1 FROM {{t}}_full) THEN \
                 SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'; \
                 END IF"
            );
            admin.execute(&table.sql(&trigger)).await;
        }
    }
}

async fn fill(table: &Table) {
    table.execute("INSERT INTO {t}_full VALUES (1)").await;
}

async fn make_room(table: &Table) {
    table.execute("DELETE FROM {t}_full").await;
}

async fn a_full_disk_costs_leases_and_no_exclusion(table: &Table) {
    with_a_disk(table).await;
    let (ours, theirs) = (table.open_with_row("free").await, table.open().await);
    let locks = ours.locks();
    let guard = locks.lock("held").lease(SHORT_LEASE).acquire().await.unwrap();
    let done = locks.lock("done").lease(LEASE).acquire().await.unwrap();
    let token = guard.token();
    fill(table).await;
    // It may have been renewed until now.
    let deadline = guard.deadline().expect("it is a lease");
    // How long the rest takes says nothing about when the loss is noticed.
    let lost = guard.lost();
    let losing = tokio::spawn(async move { (lost.await, Moment::now()) });
    for name in ["free", "held", "new"] {
        let refused = match theirs.try_acquire(&claim(name)).await {
            Err(error) => chain(&error),
            // Whoever holds it is looked for before anything is written.
            Ok(Attempt::Busy { .. }) if name == "held" => continue,
            Ok(other) => panic!("{name}: {other:?} on a full disk"),
        };
        assert!(refused.contains("full") && refused.contains("make room"), "{refused}");
    }
    let refused = chain(&done.release().await.unwrap_err());
    assert!(refused.contains("full") && refused.contains("make room"), "{refused}");
    // Nothing extends it, so it ends by its own clock, and not later.
    let (cause, noticed) = soon(losing).await.unwrap();
    assert_eq!(cause, LossCause::Expired);
    assert!(noticed < deadline + SHORT_LEASE, "the loss was noticed late");
    make_room(table).await;
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
    fill(table).await;
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
    make_room(table).await;
    let next = soon(theirs.acquire(&waiting("held"))).await.unwrap();
    assert!(next.token > held.token, "{} after {}", next.token, held.token);
    assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
}
