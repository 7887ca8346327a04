//! The faults of `docs/prove.md` that only databases have.

use crate::{
    Attempt, Backend, Claim, Duration, Kind, LONG, LossCause, RELEASED, Standing, Table, busy, case::cases,
    claim, errors::unavailable, granted, lease_rows::Rows, name, said, soon, until, waiting,
};
use futures_util::FutureExt;
use std::{cell::Cell, pin::pin};
use tenure_conformance::{pause, saboteur::Hurt};
use tenure_core::{Error, Guard, LatchState, LatchStep};
use tenure_sql::Strategy;
use tokio::task::JoinSet;

cases!("faults":
    backend_terminated.alone(), too_many_connections.alone(), read_only_server_clear_error.alone(),
    deadlock_or_serialization_retried, connection_not_reused_dirty, table_missing_clear_error,
    table_created_concurrently, what_a_backend_held_ends_with_it.of_sessions(),
    a_release_is_all_that_a_crash_undoes.alone().of_lease_rows().on(&[Kind::Postgres]),
);

const SHORT_LEASE: Duration = Duration::from_secs(6);

/// Only a renewal gives it another deadline.
async fn renewed(guard: &Guard) {
    let before = guard.deadline();
    until(async || guard.deadline() > before || !guard.is_held()).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
}

/// The server ends every connection. A lease does not mind; a row lock is lost, and its holder knows.
async fn backend_terminated(table: &Table) {
    let (ours, theirs) = (table.locks().await, table.locks().await);
    let guard = ours.lock("a").lease(SHORT_LEASE * 2).acquire().await.unwrap();
    let lock = theirs.lock("a").lease(SHORT_LEASE * 2);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    table.server.saboteur().hurt(Hurt::TerminateBackends).await.unwrap();
    let token = guard.token();
    if table.strategy == Strategy::RowLock {
        assert_eq!(soon(guard.lost()).await, LossCause::SessionEnded);
        let late = guard.release().await;
        assert!(matches!(late, Err(Error::Lost { .. })), "{late:?}");
    } else {
        renewed(&guard).await;
        assert!(!waiter.is_finished());
        guard.release().await.unwrap();
    }
    let next = soon(waiter).await.unwrap().unwrap();
    assert!(next.token() > token);
    match next.release().await {
        // The server may also have ended a connection that was opened meanwhile.
        Ok(()) | Err(Error::Lost { cause: LossCause::SessionEnded, .. }) => {}
        Err(error) => panic!("{}", said(&error)),
    }
}

/// A connected client keeps its lock, and a new one gets a clear error.
async fn too_many_connections(table: &Table) {
    let ours = table.open().await;
    let locks = ours.locks();
    let guard = locks.lock("a").lease(SHORT_LEASE).acquire().await.unwrap();
    table.server.saboteur().hurt(Hurt::FillConnections).await.unwrap();
    let error = table.options().open().await.map(drop).unwrap_err();
    let said = said(&error);
    assert!(
        error.is_retryable() && said.contains("no connection left") && said.contains("max_connections"),
        "{said}"
    );
    let tried = ours.try_acquire(&claim("b")).await;
    if table.strategy == Strategy::RowLock {
        unavailable(&tried.unwrap_err(), ["no connection left", "max_connections"]);
    } else {
        assert!(matches!(tried.unwrap(), Attempt::Granted(_)));
    }
    for _ in 0..2 {
        renewed(&guard).await;
    }
    let token = guard.token();
    guard.release().await.unwrap();
    table.server.saboteur().undo(Hurt::FillConnections).await.unwrap();
    until(async || table.options().open().await.is_ok()).await;
    assert!(granted(&table.open().await, &claim("a")).await.token > token);
}

async fn read_only_server_clear_error(table: &Table) {
    let store = table.open_with_row("a").await;
    table.server.saboteur().hurt(Hurt::ReadOnly).await.unwrap();
    unavailable(&store.try_acquire(&claim("a")).await.unwrap_err(), ["read-only", "primary"]);
    table.server.saboteur().undo(Hurt::ReadOnly).await.unwrap();
    let grant = granted(&store, &claim("a")).await;
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
}

/// A transaction that the server undoes after a collision is no answer, least of all a grant.
async fn deadlock_or_serialization_retried(table: &Table) {
    match table.strategy {
        Strategy::LeaseRow => sweeps_collide(table).await,
        _ => transactions_collide(table).await,
    }
}

/// A deadlock of a sweep, which is the one statement that waits for several rows, with a transaction of the application's: the
/// server undoes the sweep.
async fn sweeps_collide(table: &Table) {
    let store = table.options().response_timeout(LONG).open().await.unwrap();
    let many: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    for name in many.iter().map(String::as_str).chain(["a", "b"]) {
        granted(&store, &claim(name)).await;
    }
    let grow_old = "UPDATE {t} SET expires_at = expires_at - {day} - {day} WHERE name IN ('a', 'b')";
    table.execute(grow_old).await;
    let mut other = table.raw().await;
    if table.is_postgres() {
        // This one is never chosen: it does not look for deadlocks.
        other.execute("SET deadlock_timeout = '1h'").await;
    }
    other.execute("BEGIN").await;
    // By the whole key, so that MySQL and MariaDB lock nothing else.
    let change =
        |name: &str| table.sql(&format!("UPDATE {{t}} SET host = 'x' WHERE prefix = '' AND name = '{name}'"));
    // MySQL and MariaDB never choose the transaction that changed the most rows.
    for name in many.iter().map(String::as_str).chain(["b"]) {
        other.execute(&change(name)).await;
    }
    let sweeping = tokio::spawn(async move { store.sweep().await });
    table
        .until_asked(
            &table
                .either("DELETE FROM \"{t}\" AS idle", "DELETE idle FROM JSON_TABLE")
                .replace("{t}", &table.name),
        )
        .await;
    other.execute(&change("a")).await;
    other.execute("COMMIT").await;
    assert_eq!(soon(sweeping).await.unwrap().unwrap(), 2);
}

/// Two transactions of the application's take two locks in opposite orders: one is told to begin again, the other goes on.
async fn transactions_collide(table: &Table) {
    let store = table.open_with_row("a").await;
    drop(granted(&store, &claim("b")).await);
    let store = table.open().await;
    let (mut one, mut other) = (table.raw().await, table.raw().await);
    one.execute("BEGIN").await;
    store.in_transaction(&mut one, "c").await.unwrap();
    other.execute("BEGIN").await;
    store.in_transaction(&mut other, "d").await.unwrap();
    let crossed = store.clone();
    let crossing = tokio::spawn(async move {
        let crossed = crossed.in_transaction(&mut one, "d").await;
        one.execute("ROLLBACK").await;
        crossed
    });
    table.until_asked(&table.sql("FROM {q}{t}{q}%FOR UPDATE")).await;
    let outcomes = [soon(store.in_transaction(&mut other, "c")).await, {
        other.execute("ROLLBACK").await;
        soon(crossing).await.unwrap()
    }];
    let [ok, ended]: [Vec<_>; 2] = outcomes.into_iter().partition::<Vec<_>, _>(Result::is_ok).into();
    let error = ended.into_iter().find_map(Result::err);
    let said = error.as_ref().map(|error| said(error)).unwrap_or_default();
    assert!(
        ok.len() == 1 && error.is_some_and(|error| error.is_retryable()) && said.contains("begin again"),
        "{said}"
    );
}

/// Requests and waits are given up at every moment; what comes over the same connections next gets its own answer, and finds
/// nothing of them. However many were given up, as many locks can be had as before.
async fn connection_not_reused_dirty(table: &Table) {
    const MOST: usize = 20;
    let (ours, theirs) = (table.options().connections(MOST).open().await.unwrap(), table.open().await);
    // No client renews it, and hundreds of requests are made while it stands.
    let held = Claim { lease: LONG * 20, ..claim("held") };
    let grant = granted(&theirs, &held).await;
    for round in 0..60_u32 {
        let text = if round % 2 == 0 { "held" } else { "free" };
        let dropped = Claim { waits: round % 4 < 2, ..claim(text) };
        {
            let asking = async {
                if dropped.waits {
                    ours.acquire(&dropped).await.map(drop)
                } else {
                    ours.try_acquire(&dropped).await.map(drop)
                }
            };
            let mut asking = pin!(asking);
            for _ in 0..=round % 5 {
                if asking.as_mut().now_or_never().is_some() {
                    break;
                }
                pause::settle(Duration::from_micros(200 * u64::from(round % 7))).await;
            }
        }
        ours.withdraw(&dropped).await.unwrap();
        busy(&ours, &claim("held")).await;
        assert_eq!(ours.holders(&held.name).await.unwrap()[0].claim, Some(held.id));
        let next = granted(&ours, &claim("free")).await;
        assert_eq!(ours.holders(&next.name).await.unwrap()[0].claim, Some(next.claim));
        assert_eq!(ours.release(&next).await.unwrap(), RELEASED);
        if table.strategy == Strategy::RowLock {
            assert_eq!(table.connection_of(dropped.id).await, 0, "what was given up shows on a connection");
        }
    }
    theirs.release(&grant).await.unwrap();
    table.until_nothing_is_locked().await;
    for number in 0..MOST {
        granted(&ours, &claim(&number.to_string())).await;
    }
    assert_eq!(ours.list("").await.unwrap().len(), MOST);
}

async fn table_missing_clear_error(table: &Table) {
    let missing = || table.options().create_table(false).open();
    let error = missing().await.map(drop).unwrap_err();
    let text = said(&error);
    let strategy = if table.strategy == Strategy::RowLock { " --strategy row-lock" } else { "" };
    let command =
        format!("`tenure schema {}{strategy} --table {}`", table.either("postgres", "mysql"), table.name);
    assert!(matches!(error, Error::Store { .. }) && text.contains(&command), "{text}");
    table.execute(&table.ddl()).await;
    let store = missing().await.unwrap();
    let grant = granted(&store, &claim("a")).await;
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
    let latch = async || store.latch(&name("a"), &LatchStep::Look).await;
    if table.strategy == Strategy::RowLock {
        let said = said(&latch().await.unwrap_err());
        // They are lease rows.
        let command =
            format!("`tenure schema {} --table {}_latches`", table.either("postgres", "mysql"), table.name);
        assert!(said.contains(&command), "{said}");
        table.execute(&table.latch_ddl()).await;
    }
    assert_eq!(latch().await.unwrap(), LatchState::default());
}

async fn table_created_concurrently(table: &Table) {
    let mut opening = JoinSet::new();
    for _ in 0..20 {
        let options = table.options().connect_timeout(LONG);
        opening.spawn(async move { options.open().await.unwrap().close().await });
    }
    while let Some(opened) = opening.join_next().await {
        opened.unwrap();
    }
    granted(&table.open().await, &claim("a")).await;
}

/// A program drops its backend without closing it, and the guards outlive it.
async fn what_a_backend_held_ends_with_it(table: &Table) {
    let backend = table.open().await;
    let grant = granted(&backend, &Claim { lease: Duration::from_mins(1), ..claim("a") }).await;
    drop(backend);
    let next = soon(async { table.open().await.acquire(&waiting("a")).await }).await.unwrap();
    assert!(next.token > grant.token);
    let Standing::Session(liveness) = &grant.standing else { panic!("{grant:?}") };
    assert_eq!(liveness.loss(), Some(LossCause::SessionEnded), "two believe");
}

/// A release does not wait for the disk, so a server that is killed may undo it: then the name is free a lease later. A
/// later grant has waited for the disk, and with that for the release before it.
async fn a_release_is_all_that_a_crash_undoes(table: &Table) {
    let set_up = async |setting: &str| {
        let mut session = table.raw().await;
        session.execute(setting).await;
        session.execute("SELECT pg_reload_conf()").await;
    };
    set_up("ALTER SYSTEM SET wal_writer_delay = '10s'").await;
    let (ours, theirs) = (table.locks().await, table.locks().await);
    let tokens_after_crash = async |name: &str| {
        table.server.saboteur().hurt(Hurt::Kill).await.unwrap();
        table.server.saboteur().heal().await.unwrap();
        until(async || theirs.holders(name).await.is_ok()).await;
        let held = theirs.holders(name).await.unwrap();
        held.iter().map(|holder| holder.token.expect("a lease has one")).collect::<Vec<_>>()
    };
    let version = async |name: &str| {
        table.number(&format!("SELECT COALESCE(MAX(version), 0) FROM {{t}} WHERE name = '{name}'")).await
    };
    let undone = Cell::new(0);
    let held_after_crash = async |guard: Guard, name: &str| {
        let before = version(name).await;
        guard.release().await.unwrap();
        let released = version(name).await;
        assert!(released - before > 100, "the version may come again");
        let held = tokens_after_crash(name).await;
        undone.set(undone.get() + usize::from(version(name).await < released));
        held
    };
    for _ in 0..3 {
        let guard = ours.lock("a").lease(SHORT_LEASE).acquire().await.unwrap();
        let first = guard.token();
        let held = held_after_crash(guard, "a").await;
        assert!(held.is_empty() || held == [first], "{held:?}");
        let guard = ours.lock("a").lease(SHORT_LEASE).acquire().await.unwrap();
        assert!(guard.token() > first, "the token went back");
        guard.release().await.unwrap();
        let next = theirs.lock("a").lease(LONG * 3).acquire().await.unwrap();
        let held = tokens_after_crash("a").await;
        assert_eq!(held, [next.token()], "a grant was undone, or the release before it");
        soon(next.release()).await.unwrap();
    }
    // Where a release writes a record, no other holder loses its grant if that is undone.
    let reader = theirs.rw("b").read().lease(LONG * 3).acquire().await.unwrap();
    let mut tokens = vec![reader.token()];
    for _ in 0..3 {
        let beside = soon(ours.rw("b").read().lease(SHORT_LEASE).acquire()).await.unwrap();
        tokens.push(beside.token());
        let held = held_after_crash(beside, "b").await;
        assert!(
            held.contains(&reader.token()) && held.iter().all(|token| tokens.contains(token)),
            "{held:?}"
        );
    }
    assert!(reader.is_held());
    soon(reader.release()).await.unwrap();
    set_up("ALTER SYSTEM RESET wal_writer_delay").await;
    assert!(undone.get() > 1, "nearly every release was on the disk before the server was killed");
}
