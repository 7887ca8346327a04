//! A server whose disk is full: it refuses whatever would write.

use crate::{
    Attempt, Duration, Kind, LONG, LossCause, RELEASED, Table, case::cases, chain, claim, granted, lost,
    name, soon, waiting,
};
use tenure_core::{Moment, Standing};

cases!("full":
    // In MySQL, which keeps a binary log, only the administrator may make triggers. Its errors have MariaDB's numbers.
    a_full_disk_costs_leases_and_no_exclusion.on(&[Kind::Postgres, Kind::Mariadb]).of_lease_rows(),
    // Elsewhere no trigger can be made while a row is locked.
    a_full_disk_ends_no_row_lock.on(&[Kind::Postgres]).of_row_locks(),
);

const SHORT_LEASE: Duration = Duration::from_secs(4);

/// From now on each write of the table fails as it does on a full disk. What a real one lets in depends on the room that is
/// left in the last page.
async fn fill(table: &Table) {
    if table.is_postgres() {
        let full =
            "RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'";
        let function = format!("BEGIN {full}; END");
        table
            .execute(&format!(
                "CREATE FUNCTION {{t}}_full() RETURNS trigger LANGUAGE plpgsql AS '{}'",
                function.replace('\'', "''")
            ))
            .await;
        table
            .execute("CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON {t} FOR EACH ROW EXECUTE FUNCTION {t}_full()")
            .await;
    } else {
        for event in ["INSERT", "UPDATE"] {
            let refuse = "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'";
            table
                .execute(&format!(
                    "CREATE TRIGGER {{t}}_{event} BEFORE {event} ON {{t}} FOR EACH ROW {refuse}"
                ))
                .await;
        }
    }
}

async fn make_room(table: &Table) {
    if table.is_postgres() {
        table.execute("DROP FUNCTION {t}_full() CASCADE").await;
    } else {
        for event in ["INSERT", "UPDATE"] {
            table.execute(&format!("DROP TRIGGER {{t}}_{event}")).await;
        }
    }
}

async fn a_full_disk_costs_leases_and_no_exclusion(table: &Table) {
    let (ours, theirs) = (table.open_with_row("free").await, table.open().await);
    let locks = ours.locks();
    let guard = locks.lock("held").lease(SHORT_LEASE).acquire().await.unwrap();
    let (token, deadline) = (guard.token(), guard.deadline().expect("it is a lease"));
    fill(table).await;
    for name in ["free", "held", "new"] {
        let refused = match theirs.try_acquire(&claim(name)).await {
            Err(error) => chain(&error),
            // Whoever holds it is looked for before anything is written.
            Ok(Attempt::Busy { .. }) if name == "held" => continue,
            Ok(other) => panic!("{name}: {other:?} on a full disk"),
        };
        assert!(refused.contains("full") && refused.contains("make room"), "{refused}");
    }
    // Nothing extends it, so it ends by its own clock, and not later.
    assert_eq!(soon(guard.lost()).await, LossCause::Expired);
    assert!(Moment::now() < deadline + SHORT_LEASE, "the loss was noticed late");
    make_room(table).await;
    // The server gives a lease up a moment later than its holder.
    let theirs = theirs.locks();
    let next = theirs.lock("held").wait(LONG).acquire().await.unwrap();
    assert!(next.token() > token, "{} after {token}", next.token());
    next.release().await.unwrap();
    theirs.lock("free").wait(LONG).acquire().await.unwrap().release().await.unwrap();
}

/// A row lock needs no room while it is held. A new one needs some for its note, or is none.
async fn a_full_disk_ends_no_row_lock(table: &Table) {
    let (ours, theirs) = (table.open_with_row("held").await, table.open_with_row("free").await);
    let held = granted(&ours, &claim("held")).await;
    // Its note is written.
    assert_eq!(theirs.holders(&name("held")).await.unwrap().len(), 1);
    fill(table).await;
    match theirs.try_acquire(&claim("free")).await {
        Err(error) => {
            let refused = chain(&error);
            assert!(refused.contains("full") && refused.contains("make room"), "{refused}");
        }
        Ok(Attempt::Granted(unnoted)) => assert_eq!(lost(&unnoted).await, LossCause::SessionEnded),
        Ok(busy @ Attempt::Busy { .. }) => panic!("{busy:?}"),
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
