//! Requests of many tasks that are carried out together.

use crate::{
    Attempt, Backend, Claim, Duration, Kind, LossCause, RELEASED, Release, Store, Table, blocked::stranger,
    case::cases, claim, granted, lease_rows::Rows, reader, said, soon, until,
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use tenure_conformance::{
    pause,
    proxy::{Flow, Proxy},
    saboteur::Direction::{Replies, Requests},
};
use tenure_core::{ClaimId, Grant, Renewal, StoreError};

cases!("together":
    each_is_told_its_own.on(ALL).of_lease_rows(),
    a_renewal_that_was_sent_twice_is_in_doubt.on(ONE_OF_EACH).of_lease_rows(),
    late_renewal_by_record_revives_nothing.on(ALL).of_lease_rows(),
    renewal_whose_time_is_over_asks_for_no_more.on(ONE_OF_EACH).of_lease_rows(),
    a_blocked_row_holds_up_no_other.on(ALL).of_lease_rows(),
    what_one_is_refused_is_done_for_the_others.on(&[Kind::Mariadb, Kind::Mysql]).of_lease_rows(),
);

const ALL: &[Kind] = &[Kind::Postgres, Kind::Pgbouncer, Kind::Mariadb, Kind::Mysql];
/// For what the client decides by the answers of a dialect.
const ONE_OF_EACH: &[Kind] = &[Kind::Postgres, Kind::Mariadb];
/// How many tasks ask at the same time.
const TASKS: usize = 24;
/// Longer than a busy machine takes for what is not blocked.
const RESPONSE: Duration = Duration::from_secs(20);

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
fn renew<'s>(store: &'s Store, held: &'s [Grant]) -> BoxFuture<'s, Vec<Renewal>> {
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
async fn gather<T>(proxy: &Proxy, asked: &mut [BoxFuture<'_, T>]) {
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

/// Lets the first request be answered, and the one behind it be carried out without an answer.
async fn lose_the_second(proxy: &Proxy) {
    step(proxy).await;
    let before = proxy.counters().replies.dropped;
    proxy.set(Replies, Flow::Drop);
    proxy.set(Requests, Flow::Pass);
    proxy.until(|counters| counters.replies.dropped > before).await;
    proxy.mend().await.unwrap();
}

/// The request that is held is carried out, and the next one is held.
async fn step(proxy: &Proxy) {
    let before = proxy.counters().replies.arrived;
    proxy.set(Replies, Flow::Hold);
    proxy.set(Requests, Flow::Pass);
    proxy.until(|counters| counters.replies.arrived > before).await;
    let before = proxy.counters().requests.arrived;
    proxy.set(Requests, Flow::Hold);
    proxy.set(Replies, Flow::Pass);
    proxy.until(|counters| counters.requests.arrived > before).await;
}

/// The client reads the row while the lease lasts, and is to write it after expiry. No other client writes in between.
async fn late_renewal_by_record_revives_nothing(table: &Table) {
    let (proxy, store) = quiet(table).await;
    let beside = granted(&store, &reader("a")).await;
    assert_eq!(renew(&store, &[granted(&store, &reader("a")).await, beside]).await, [Renewal::Renewed; 2]);
    let brief = granted(&store, &Claim { lease: Duration::from_secs(5), ..reader("a") }).await;
    let held = [brief];
    proxy.set(Requests, Flow::Hold);
    let before = proxy.counters().requests.arrived;
    let mut renewing = renew(&store, &held);
    assert!(renewing.as_mut().now_or_never().is_none());
    let writing = async {
        proxy.until(|counters| counters.requests.arrived > before).await;
        // One statement for those in columns, and one that reads; in MySQL each comes after a look for locked rows.
        for _ in 0..table.either(2, 4) {
            step(&proxy).await;
        }
        until(async || table.open().await.holders(&held[0].name).await.unwrap().len() == 2).await;
        proxy.set(Requests, Flow::Pass);
    };
    let (told, ()) = soon(Box::pin(async { tokio::join!(renewing, writing) })).await;
    assert_ne!(told, [Renewal::Renewed], "an expired lease was renewed");
    assert_eq!(store.release(&held[0]).await.unwrap(), Release::Lost(LossCause::Expired));
}

/// Those that were renewed must learn of it in time, so a row that is locked is not asked for again.
async fn renewal_whose_time_is_over_asks_for_no_more(table: &Table) {
    let (proxy, store) = quiet(table).await;
    // A part of a renewal is left unanswered when a twelfth of the shortest lease has passed.
    let lease = Duration::from_secs(24);
    let mut held = Vec::new();
    for name in ["a", "b", "c"] {
        held.push(granted(&store, &Claim { lease, ..claim(name) }).await);
    }
    let mut stranger = stranger(table, "b").await;
    let expected = [Renewal::Renewed, Renewal::Unanswered, Renewal::Renewed];
    let sent = || proxy.counters().requests.arrived;
    let before = sent();
    assert_eq!(renew(&store, &held).await, expected);
    let (before, at_leisure) = (sent(), sent() - before);
    proxy.set(Replies, Flow::Hold);
    let mut renewing = renew(&store, &held);
    assert!(renewing.as_mut().now_or_never().is_none());
    proxy.until(|counters| counters.requests.arrived > before).await;
    pause::keep(lease / 12).await;
    proxy.set(Replies, Flow::Pass);
    assert_eq!(soon(renewing).await, expected);
    let in_a_hurry = sent() - before;
    assert!(in_a_hurry * 3 < at_leisure, "{in_a_hurry} bytes, and {at_leisure} at leisure");
    stranger.execute("ROLLBACK").await;
}

/// The first copy may still be carried out, after the second was answered, and would cut short a longer lease that has
/// been asked for meanwhile.
async fn a_renewal_that_was_sent_twice_is_in_doubt(table: &Table) {
    let (proxy, options) = table.through_proxy().await;
    let store = options.connections(1).response_timeout(RESPONSE).open().await.unwrap();
    let held = [granted(&store, &claim("a")).await];
    assert_eq!(renew(&store, &held).await, [Renewal::Renewed]);
    let doubtful = if table.is_postgres() {
        // A request that the server itself answers is over, so nothing is in doubt.
        let sessions = "FROM pg_stat_activity WHERE query LIKE '%{t}%' AND pid <> pg_backend_pid()";
        table.number(&format!("SELECT count(pg_terminate_backend(pid, 10000)) {sessions}")).await;
        assert_eq!(renew(&store, &held).await, [Renewal::Renewed]);
        proxy.cut().await;
        renew(&store, &held).await
    } else {
        // A look for locked rows comes first, which may be repeated.
        let mut asked = [renew(&store, &held)];
        gather(&proxy, &mut asked).await;
        let [asked] = asked;
        soon(async { tokio::join!(asked, lose_the_second(&proxy)) }).await.0
    };
    assert_eq!(doubtful, [Renewal::Unanswered]);
    assert_eq!(renew(&store, &held).await, [Renewal::Renewed]);
    // Over the connection for releases, which are not sent twice.
    assert_eq!(store.holders(&held[0].name).await.unwrap().len(), 1);
    store.release(&held[0]).await.unwrap();
    proxy.cut().await;
    let told = renew(&store, &held).await;
    assert!(matches!(told[..], [Renewal::Lost(_)]), "that is no doubt: {told:?}");
}

/// The whole batch is undone, and the client repeats each request by itself. No transaction stays open: a session
/// beside the store's sees the grants.
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
                assert!(said(&error).contains("not this one"), "{error}");
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
