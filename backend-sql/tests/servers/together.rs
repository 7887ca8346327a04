//! Requests of many tasks that are carried out together.

use crate::{
    Attempt, Claim, Duration, Kind, RELEASED, Store, Table, blocked::stranger, case::cases, chain, claim,
    granted, soon, until,
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use tenure_conformance::{
    proxy::{Flow, Proxy},
    saboteur::Direction::{Replies, Requests},
};
use tenure_core::{ClaimId, Grant, Renewal, StoreError};

cases!("together":
    each_is_told_its_own.on(ALL).of_lease_rows(),
    a_blocked_row_holds_up_no_other.on(ALL).of_lease_rows(),
    a_lost_answer_is_made_up_for.on(ALL).of_lease_rows(),
    what_one_is_refused_is_done_for_the_others.on(&[Kind::Mariadb, Kind::Mysql]).of_lease_rows(),
);

const ALL: &[Kind] = &[Kind::Postgres, Kind::Pgbouncer, Kind::Mariadb, Kind::Mysql];
/// How many tasks ask at the same time.
const TASKS: usize = 24;
/// Longer than a busy machine takes for what is not blocked.
pub(crate) const RESPONSE: Duration = Duration::from_secs(20);

/// One for each name.
fn claims() -> Vec<Claim> {
    (0..TASKS).map(|number| claim(&format!("name {number}"))).collect()
}

/// A store that does nothing by itself, behind a proxy: all that passes is what it is asked for.
async fn quiet(table: &Table) -> (Proxy, Store) {
    // Opened after that sweep, it does not sweep by itself.
    table.open().await.sweep().await.unwrap();
    let (proxy, options) = table.through_proxy().await;
    let store = options.connections(1).response_timeout(RESPONSE).open().await.unwrap();
    let held = [granted(&store, &claim("held")).await];
    assert_eq!(renew(&store, &held).await, [Renewal::Renewed]);
    assert_eq!(store.release(&held[0]).await.unwrap(), RELEASED);
    (proxy, store)
}

/// Where renewals run, over the connection that was opened there: afterwards none is still being opened.
pub(crate) fn renew<'s>(store: &'s Store, held: &'s [Grant]) -> BoxFuture<'s, Vec<Renewal>> {
    async move {
        let (renewing, held) = (store.clone(), held.to_vec());
        let told = store.background().spawn(async move { renewing.renew(&held).await });
        told.await.unwrap().unwrap()
    }
    .boxed()
}

/// For the names of these, as others ask for them.
fn anew<'c>(claims: impl IntoIterator<Item = &'c Claim>) -> Vec<Claim> {
    claims.into_iter().map(|claim| Claim { id: ClaimId::new(), reserve: 2, ..claim.clone() }).collect()
}

fn taken(told: Result<Attempt, StoreError>) -> Grant {
    match told.unwrap() {
        Attempt::Granted(grant) => grant,
        busy @ Attempt::Busy { .. } => panic!("{busy:?}"),
    }
}

/// All at the same time.
async fn acquire_all(store: &Store, claims: &[Claim]) -> Vec<Grant> {
    let told = soon(join_all(claims.iter().map(|claim| store.try_acquire(claim)))).await;
    told.into_iter().map(taken).collect()
}

/// There is a row of each name afterwards, and the server knows the statements for one and for many: in MySQL, another
/// one makes a row than takes it.
async fn prepare(store: &Store, claims: &[Claim]) {
    for _ in 0..2 {
        let alone = granted(store, &anew(&claims[..1])[0]).await;
        assert_eq!(store.release(&alone).await.unwrap(), RELEASED);
    }
    for _ in 0..2 {
        let grants = acquire_all(store, &anew(claims)).await;
        for told in soon(join_all(grants.iter().map(|grant| store.release(grant)))).await {
            assert_eq!(told.unwrap(), RELEASED);
        }
    }
}

/// Some of the names are held, some are free, and some have no row yet.
async fn each_is_told_its_own(table: &Table) {
    let (store, claims) = (table.open().await, claims());
    let mut held = Vec::new();
    for (number, claim) in claims.iter().enumerate().filter(|(number, _)| number % 3 < 2) {
        let grant = granted(&store, claim).await;
        if number % 3 == 0 {
            held.push(grant);
        } else {
            store.release(&grant).await.unwrap();
        }
    }
    let asked = anew(&claims);
    let told = soon(join_all(asked.iter().map(|claim| store.try_acquire(claim)))).await;
    let mut grants = Vec::new();
    for (number, (told, claim)) in told.into_iter().zip(&asked).enumerate() {
        match told.unwrap() {
            Attempt::Granted(grant) if number % 3 > 0 => {
                assert_eq!((&grant.name, grant.claim), (&claim.name, claim.id));
                grants.push(grant);
            }
            Attempt::Busy { .. } if number % 3 == 0 => {}
            other => panic!("{number}: {other:?}"),
        }
    }
    let holders = store.list("").await.unwrap();
    assert_eq!(holders.len(), TASKS);
    for grant in grants.iter().chain(&held) {
        let holder = holders.iter().find(|holder| holder.name == grant.name).unwrap();
        assert_eq!((holder.claim, holder.token), (Some(grant.claim), Some(grant.token)));
    }
    // One of them is lost.
    store.force_release(&grants[0].name).await.unwrap();
    let told = soon(join_all(grants.iter().chain(&held).map(|grant| store.release(grant)))).await;
    for (number, told) in told.into_iter().enumerate() {
        assert_eq!(told.unwrap() == RELEASED, number > 0, "{number}");
    }
    assert_eq!(store.list("").await.unwrap().len(), 0);
    let wanted = anew(asked.iter().filter(|claim| grants.iter().any(|grant| grant.name == claim.name)));
    for (before, after) in grants.iter().zip(acquire_all(&store, &wanted).await) {
        // All that a claim reserves are new.
        assert!(after.token.get() >= before.token.get() + 3, "{before:?} {after:?}");
    }
}

/// The first one's request is on its way, and then the others ask, in this order.
pub(crate) async fn gather<T>(proxy: &Proxy, asked: &mut [BoxFuture<'_, T>]) {
    proxy.set(Requests, Flow::Hold);
    let before = proxy.counters().requests.arrived;
    for asked in asked {
        assert!(asked.now_or_never().is_none());
        soon(proxy.until(|counters| counters.requests.arrived > before)).await;
    }
}

/// A foreign session has locked one of the rows: only who wants that one waits.
async fn a_blocked_row_holds_up_no_other(table: &Table) {
    let (proxy, store) = quiet(table).await;
    let claims = claims();
    prepare(&store, &claims).await;
    let mut stranger = stranger(table, claims[1].name.as_str()).await;
    let mut asked: Vec<_> = claims.iter().map(|claim| store.try_acquire(claim)).collect();
    gather(&proxy, &mut asked).await;
    proxy.set(Requests, Flow::Pass);
    let mut blocked = asked.remove(1);
    tokio::select! {
        told = soon(join_all(asked)) => told.into_iter().for_each(|told| drop(taken(told))),
        told = &mut blocked => panic!("it is locked: {told:?}"),
    }
    stranger.execute("ROLLBACK").await;
    taken(soon(blocked).await);
}

/// How many names are held, as a session beside the store's sees it.
async fn held(table: &Table) -> usize {
    let number = table.number("SELECT COUNT(*) FROM {t} WHERE claim IS NOT NULL").await;
    number.try_into().unwrap()
}

/// Lets the first request be answered, and the one behind it be carried out, as `carried_out` sees, without an answer.
pub(crate) async fn lose_the_second(proxy: &Proxy, carried_out: impl AsyncFn() -> bool) {
    let before = proxy.counters().replies.arrived;
    proxy.set(Replies, Flow::Hold);
    proxy.set(Requests, Flow::Pass);
    proxy.until(|counters| counters.replies.arrived > before).await;
    let before = proxy.counters().requests.arrived;
    proxy.set(Requests, Flow::Hold);
    proxy.set(Replies, Flow::Pass);
    proxy.until(|counters| counters.requests.arrived > before).await;
    let before = proxy.counters().replies.dropped;
    proxy.set(Replies, Flow::Drop);
    proxy.set(Requests, Flow::Pass);
    proxy.until(|counters| counters.replies.dropped > before).await;
    // What was dropped may be only the beginning of the answer.
    until(carried_out).await;
    proxy.mend().await.unwrap();
}

/// The server did what it was asked to, and its answer to all is lost with the connection.
async fn a_lost_answer_is_made_up_for(table: &Table) {
    let (proxy, store) = quiet(table).await;
    let claims = claims();
    prepare(&store, &claims).await;
    let mut asked: Vec<_> = claims.iter().map(|claim| store.try_acquire(claim)).collect();
    gather(&proxy, &mut asked).await;
    let losing = lose_the_second(&proxy, async || held(table).await == TASKS);
    let (told, ()) = soon(Box::pin(async { tokio::join!(join_all(asked), losing) })).await;
    let grants: Vec<Grant> = told.into_iter().map(taken).collect();
    let holders = store.list("").await.unwrap();
    assert_eq!(holders.len(), TASKS);
    for grant in &grants {
        let holder = holders.iter().find(|holder| holder.name == grant.name).unwrap();
        assert_eq!((holder.claim, holder.token), (Some(grant.claim), Some(grant.token)));
    }
    for told in soon(join_all(grants.iter().map(|grant| store.release(grant)))).await {
        assert_eq!(told.unwrap(), RELEASED);
    }
    // The connection is a new one.
    prepare(&store, &claims).await;
    let grants = acquire_all(&store, &anew(&claims)).await;
    // What became of a release is not known without its answer, so it is not sent again.
    let mut asked: Vec<_> = grants.iter().map(|grant| store.release(grant)).collect();
    gather(&proxy, &mut asked).await;
    let losing = lose_the_second(&proxy, async || held(table).await == 0);
    let (told, ()) = soon(Box::pin(async { tokio::join!(join_all(asked), losing) })).await;
    for (number, told) in told.into_iter().enumerate() {
        match told {
            Ok(RELEASED) if number == 0 => {}
            Err(error) if number > 0 => assert!(error.is_unavailable(), "{error}"),
            other => panic!("{number}: {other:?}"),
        }
    }
    assert_eq!(store.list("").await.unwrap().len(), 0);
}

/// What was done for all of them is undone, and each is asked for by itself. No transaction stays open: a session
/// beside the store's sees what was granted.
async fn what_one_is_refused_is_done_for_the_others(table: &Table) {
    let store = table.options().connections(1).open().await.unwrap();
    let claims = claims();
    prepare(&store, &claims).await;
    let refused = &claims[TASKS / 2];
    let trigger = format!(
        "CREATE TRIGGER {{t}}_refuse BEFORE UPDATE ON {{t}} FOR EACH ROW IF NEW.name = '{}' THEN \
         SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF",
        refused.name
    );
    table.admin_here().await.execute(&table.sql(&trigger)).await;
    for _ in 0..2 {
        let asked = anew(&claims);
        let told = soon(join_all(asked.iter().map(|claim| store.try_acquire(claim)))).await;
        assert_eq!(held(table).await, TASKS - 1);
        let mut grants = Vec::new();
        for (told, claim) in told.into_iter().zip(&asked) {
            if claim.name == refused.name {
                let error = told.unwrap_err();
                assert!(chain(&error).contains("not this one"), "{error}");
            } else {
                grants.push(taken(told));
            }
        }
        for told in soon(join_all(grants.iter().map(|grant| store.release(grant)))).await {
            assert_eq!(told.unwrap(), RELEASED);
        }
        assert_eq!(held(table).await, 0);
    }
}
