//! Those who wait for a row that several may hold: they leave a mark in it.

use crate::{
    Claim, Duration, Kind, Mode, RELEASED, Release, Store, Table, busy,
    case::cases,
    claim, granted,
    sharing::{permits, reader},
    until, waiting,
};
use tenure_core::{Conversion, Renewal};

cases!("marks":
    a_writer_that_waits_keeps_new_readers_out.of_lease_rows(), one_who_gives_up_hides_nobody_else.of_lease_rows(),
    a_waiter_is_told_when_there_is_room.on(&[Kind::Postgres]).of_lease_rows(),
    one_who_is_granted_hides_nobody_else.on(&[Kind::Postgres]).of_lease_rows(),
);

/// So long that only a notification can have come first.
const POLL: Duration = Duration::from_mins(1);
/// Long enough for one who asks to have been refused.
const MOMENT: Duration = Duration::from_millis(300);

/// Has it wait until its mark stands.
async fn marked(table: &Table, store: &Store, claim: &Claim) {
    let marked =
        format!("SELECT COUNT(*) FROM {{t}} WHERE awaited_by = '{}' AND awaited_until > {{now}}", claim.id);
    tokio::select! {
        acquired = store.acquire(claim) => panic!("it was had: {acquired:?}"),
        () = until(async || table.number(&marked).await == 1) => {}
    }
}

async fn a_writer_that_waits_keeps_new_readers_out(table: &Table) {
    // Marks stand for three times as long as that.
    let (ours, theirs) = (table.open().await, table.options().poll(POLL).open().await.unwrap());
    let first = granted(&ours, &reader("a")).await;
    let writer = waiting("a");
    marked(table, &theirs, &writer).await;
    busy(&ours, &reader("a")).await.unwrap();
    // Whoever holds it already does so, and when nobody holds it the writer is next.
    assert_eq!(granted(&ours, &Claim { id: first.claim, ..reader("a") }).await.token, first.token);
    assert_eq!(ours.renew(std::slice::from_ref(&first)).await.unwrap(), [Renewal::Renewed]);
    assert_eq!(ours.release(&first).await.unwrap(), Release::Released { awaited: true });
    busy(&ours, &reader("a")).await.unwrap();
    busy(&ours, &permits("a", 1, 2)).await.unwrap();
    // A reader that waits does not take the mark over from one that may have gone.
    let reading = Claim { waits: true, ..reader("a") };
    assert!(tokio::time::timeout(MOMENT, ours.acquire(&reading)).await.is_err());
    busy(&ours, &reader("a")).await.unwrap();
    // Giving up takes the mark away at once.
    theirs.withdraw(&writer).await.unwrap();
    let second = granted(&ours, &reader("a")).await;
    // Who dies cannot do that: its mark ends.
    marked(table, &theirs, &writer).await;
    busy(&ours, &reader("a")).await.unwrap();
    table.execute("UPDATE {t} SET awaited_until = {now} - {second}").await;
    granted(&ours, &reader("a")).await;
    assert_eq!(ours.release(&second).await.unwrap(), RELEASED);
}

/// Waits until PostgreSQL has the mark of one who waits. The columns tell only of one who wants to hold it alone.
async fn until_awaited(table: &Table, text: &str) {
    let mark = "(record::jsonb #>> '{mark,until}')::bigint > {now} * 1000";
    let awaited = "SELECT count(*) FROM {t} WHERE name = '{text}' AND (awaited_until > {now} OR {mark})";
    let awaited = awaited.replace("{text}", text).replace("{mark}", mark);
    until(async || table.number(&awaited).await == 1).await;
}

/// A reader leaves, a permit comes back, a writer becomes a reader, and a writer that waited gives up.
async fn a_waiter_is_told_when_there_is_room(table: &Table) {
    let (ours, theirs) = (table.open().await, table.options().poll(POLL).open().await.unwrap());
    let begin = |claim: Claim| {
        let theirs = theirs.clone();
        tokio::spawn(async move { theirs.acquire(&claim).await })
    };
    for (text, holds, wants) in [
        ("reader", reader("reader"), waiting("reader")),
        ("permit", permits("permit", 2, 3), Claim { waits: true, ..permits("permit", 2, 3) }),
        ("writer", claim("writer"), Claim { waits: true, ..reader("writer") }),
    ] {
        let grant = granted(&ours, &holds).await;
        let acquiring = begin(wants);
        until_awaited(table, text).await;
        if text == "writer" {
            assert_eq!(ours.convert(&grant, Mode::Shared).await.unwrap(), Conversion::Converted);
        } else {
            assert_eq!(ours.release(&grant).await.unwrap(), Release::Released { awaited: true });
        }
        let told = tokio::time::timeout(POLL / 4, acquiring).await;
        told.unwrap_or_else(|_| panic!("{text}: not told")).unwrap().unwrap();
    }
    granted(&ours, &reader("gives up")).await;
    let (writer, reading) = (waiting("gives up"), Claim { waits: true, ..reader("gives up") });
    marked(table, &ours, &writer).await;
    let acquiring = begin(reading);
    tokio::time::sleep(MOMENT).await;
    assert!(!acquiring.is_finished(), "it passed a writer that waits");
    ours.withdraw(&writer).await.unwrap();
    tokio::time::timeout(POLL / 4, acquiring).await.expect("not told").unwrap().unwrap();
}

/// Nobody tells of its release those who were refused beside its mark.
async fn one_who_is_granted_hides_nobody_else(table: &Table) {
    let (ours, theirs) = (table.open().await, table.options().poll(POLL).open().await.unwrap());
    for (leaves, stays, first, next) in [
        (claim("reader"), None, claim("reader"), reader("reader")),
        (
            permits("permit", 2, 3),
            Some(permits("permit", 1, 3)),
            permits("permit", 2, 3),
            permits("permit", 3, 3),
        ),
    ] {
        let [first, next] = [first, next].map(|claim| Claim { waits: true, ..claim });
        let leaving = granted(&ours, &leaves).await;
        let mut held = Vec::new();
        if let Some(stays) = stays {
            held.push(granted(&ours, &stays).await);
        }
        tokio::select! {
            acquired = theirs.acquire(&first) => panic!("it was had: {acquired:?}"),
            () = until_awaited(table, first.name.as_str()) => {}
        }
        assert_eq!(ours.release(&leaving).await.unwrap(), Release::Released { awaited: true });
        let store = theirs.clone();
        let acquiring = tokio::spawn(async move { store.acquire(&next).await });
        tokio::time::sleep(MOMENT).await;
        assert!(!acquiring.is_finished(), "it passed one that waits");
        held.push(granted(&ours, &first).await);
        for grant in &held {
            ours.release(grant).await.unwrap();
        }
        tokio::time::timeout(POLL / 4, acquiring).await.expect("forgotten").unwrap().unwrap();
    }
}

/// Those who wait beside one that left its mark leave none of their own. They are not forgotten when it gives up.
async fn one_who_gives_up_hides_nobody_else(table: &Table) {
    // Marks stand for three times as long as that: nobody keeps this one fresh when its waiter has gone.
    let (ours, theirs) = (table.open().await, table.options().poll(POLL).open().await.unwrap());
    let (held, waiter) = (granted(&ours, &claim("a")).await, waiting("a"));
    let (store, asks) = (theirs.clone(), waiter.clone());
    let acquiring = tokio::spawn(async move { store.acquire(&asks).await });
    until(async || table.number("SELECT COUNT(*) FROM {t} WHERE awaited_by IS NOT NULL").await == 1).await;
    acquiring.abort();
    assert!(acquiring.await.unwrap_err().is_cancelled());
    theirs.withdraw(&waiter).await.unwrap();
    assert_eq!(table.number("SELECT COUNT(*) FROM {t} WHERE awaited_by IS NOT NULL").await, 0);
    assert_eq!(ours.release(&held).await.unwrap(), Release::Released { awaited: true });
}
