//! Behaviour of MySQL or MariaDB alone.

use crate::{
    Backend, Duration, Kind, RELEASED, Table, busy,
    case::cases,
    claim, granted,
    lease_rows::{Rows, token_follows_the_last},
    said, soon, until, waiting,
};
use futures_util::{FutureExt, future::join_all};
use std::pin::pin;
use tenure_core::{Error, Renewal};

cases!("mysql":
    another_mode_of_assignment_changes_nothing.on(&[Kind::Mariadb]).of_lease_rows(),
    session_that_begins_otherwise_commits.on(&[Kind::Mariadb, Kind::Mysql]),
    session_of_any_setting_commits_and_answers_for_all_rows.on(&[Kind::Mariadb, Kind::Mysql]).of_lease_rows(),
    uncommitted_changes_are_not_seen_whatever_the_isolation_level.on(&[Kind::Mariadb, Kind::Mysql]).of_lease_rows(),
    a_password_without_tls.on(&[Kind::Mysql]),
    uncontended_lock_is_not_looked_at_first.on(&[Kind::Mariadb, Kind::Mysql]).of_lease_rows(),
    what_reads_for_too_long_is_ended_by_the_server.on(&[Kind::Mysql]).of_lease_rows(),
    who_gives_up_while_a_row_is_made_leaves_no_lock.on(&[Kind::Mariadb, Kind::Mysql]).of_row_locks().alone(),
    row_locks_are_refused_where_a_group_has_several_writers.on(&[Kind::Mysql]).of_row_locks().alone(),
);

/// The upsert relies on assignments being made from left to right.
async fn another_mode_of_assignment_changes_nothing(table: &Table) {
    let store = table.options().open_with("sql_mode", "'SIMULTANEOUS_ASSIGNMENT'").await.unwrap();
    token_follows_the_last(table, &store).await;
}

/// The server may say so in its configuration, or by `init_connect`. Here the driver's first statement does, right after
/// that. A session that begins as read-only protects people from what they type; unlike `read_only`, any session may
/// change it for itself.
async fn session_that_begins_otherwise_commits(table: &Table) {
    let read_only = if table.server.kind() == Kind::Mysql { "transaction_read_only" } else { "tx_read_only" };
    for (setting, value) in [("autocommit", "0"), (read_only, "1")] {
        let open = async || table.options().open_with(setting, value).await.unwrap();
        let (ours, theirs) = (open().await, open().await);
        let grant = granted(&ours, &claim("a")).await;
        let committed = format!("SELECT COUNT(*) FROM {{t}} WHERE claim = '{}'", grant.claim);
        // A row lock's note is written while it is held.
        until(async || table.number(&committed).await == 1).await;
        busy(&theirs, &claim("a")).await;
        assert_eq!(ours.release(&grant).await.unwrap(), RELEASED);
        let next = soon(theirs.acquire(&waiting("a"))).await.unwrap();
        assert!(next.token > grant.token);
        assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
    }
}

/// A client whose try was refused reads the row before it tries again. A client that has just released the lock does not,
/// even if it has read the row meanwhile.
async fn uncontended_lock_is_not_looked_at_first(table: &Table) {
    let other = table.open().await;
    // Otherwise the first release would begin it.
    other.sweep().await.unwrap();
    let (proxy, options) = table.through_proxy().await;
    let store = options.open().await.unwrap();
    let cycle = async || {
        let before = proxy.counters().requests.arrived;
        let grant = granted(&store, &claim("a")).await;
        let sent = proxy.counters().requests.arrived - before;
        store.holders(&grant.name).await.unwrap();
        assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
        sent
    };
    let refused = async || {
        let held = granted(&other, &claim("a")).await;
        busy(&store, &claim("a")).await;
        assert_eq!(other.release(&held).await.unwrap(), RELEASED);
    };
    // Afterwards all statements are prepared, and requests of a kind have the same length.
    refused().await;
    cycle().await;
    // Something else may be sent beside one of them.
    let uncontended = cycle().await.min(cycle().await);
    refused().await;
    let after_refusal = cycle().await;
    assert!(after_refusal > uncontended, "{after_refusal} bytes after a refusal, {uncontended} otherwise");
}

/// A batch is one transaction. With `completion_type`, its commit would begin another, which takes in the next request
/// and never ends. Limits protect people from what they type: rows without an answer would count as lost.
async fn session_of_any_setting_commits_and_answers_for_all_rows(table: &Table) {
    for (setting, value) in [("completion_type", "1"), ("sql_select_limit", "1"), ("sql_safe_updates", "1")] {
        let store = table.options().connections(1).open_with(setting, value).await.unwrap();
        let held = async || table.number("SELECT COUNT(*) FROM {t} WHERE claim IS NOT NULL").await;
        // The first time, the rows are made.
        for _ in 0..2 {
            let claims = ["a", "b", "c", "d"].map(claim);
            let grants = soon(join_all(claims.iter().map(|claim| granted(&store, claim)))).await;
            assert_eq!(held().await, 4, "{setting}");
            assert_eq!(soon(store.renew(&grants)).await.unwrap(), [Renewal::Renewed; 4], "{setting}");
            assert_eq!(store.list("").await.unwrap().len(), 4, "{setting}");
            assert_eq!(store.release(&grants[0]).await.unwrap(), RELEASED, "{setting}");
            assert_eq!(held().await, 3, "{setting}");
            for told in soon(join_all(grants[1..].iter().map(|grant| store.release(grant)))).await {
                assert_eq!(told.unwrap(), RELEASED, "{setting}");
            }
        }
    }
}

/// A client that saw a change, and wrote by it, would be wrong once the change is undone.
async fn uncommitted_changes_are_not_seen_whatever_the_isolation_level(table: &Table) {
    let setting = if table.server.kind() == Kind::Mysql { "transaction_isolation" } else { "tx_isolation" };
    let mut other = table.raw().await;
    for level in ["'READ-UNCOMMITTED'", "'SERIALIZABLE'"] {
        let store = table.options().open_with(setting, level).await.unwrap();
        let held = granted(&store, &claim("a")).await;
        other.execute("BEGIN").await;
        other.execute(&table.sql("UPDATE {t} SET claim = NULL, version = version + 1")).await;
        let holders = soon(store.holders(&held.name)).await.unwrap();
        assert_eq!(holders.len(), 1, "{level}");
        assert_eq!(soon(store.list("")).await.unwrap().len(), 1, "{level}");
        other.execute("ROLLBACK").await;
        assert_eq!(store.release(&held).await.unwrap(), RELEASED, "{level}");
    }
}

/// MySQL wants a password over TLS, until it has seen it once.
async fn a_password_without_tls(table: &Table) {
    let (_, url) = table.user().await;
    let error = table.options_at(&format!("{url}?ssl-mode=disabled")).open().await.map(drop).unwrap_err();
    let said = said(&error);
    assert!(said.contains("ssl-mode") && !said.contains("hunter2"), "{said}");
}

/// Nothing is locked here, so no limit of a wait ends it. In MariaDB, one limit is for all statements.
async fn what_reads_for_too_long_is_ended_by_the_server(table: &Table) {
    let store = table.options().response_timeout(Duration::from_secs(4)).open().await.unwrap();
    granted(&store, &claim("a")).await;
    table.execute("RENAME TABLE {t} TO {t}_slow").await;
    let slowly = "BENCHMARK(1000000000000, SHA2(name, 512)) = 0";
    table.execute(&format!("CREATE VIEW {{t}} AS SELECT * FROM {{t}}_slow WHERE {slowly}")).await;
    let error = store.list("").await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    until(async || table.asking(&table.name).await == 0).await;
}

/// A client that makes a name's row has a user-level lock, on a connection that it keeps.
async fn who_gives_up_while_a_row_is_made_leaves_no_lock(table: &Table) {
    let store = table.open().await;
    let (mut other, mut transaction) = (table.raw().await, table.raw().await);
    let secret =
        "(SELECT CONVERT(claim USING utf8mb4) FROM {t} WHERE prefix = '' AND name = '' AND part = 2)";
    let making =
        |ask: &str| table.sql(&ask.replace("{making}", &format!("CONCAT('tenure/making/', {secret})")));
    assert_eq!(other.number(&making("SELECT CAST(GET_LOCK({making}, 10) AS SIGNED)")).await, 1);
    transaction.execute("BEGIN").await;
    {
        let mut locking = pin!(store.in_transaction(&mut transaction, "a"));
        assert!(locking.as_mut().now_or_never().is_none());
        table.until_asked("SELECT GET_LOCK(%tenure/making%").await;
    }
    other.execute("DO RELEASE_ALL_LOCKS()").await;
    // When it has had it, it gives it back.
    until(async || table.number("SELECT COUNT(*) FROM {t} WHERE name = 'a' AND part = 0").await == 1).await;
    let is_free = making("SELECT CAST(IS_FREE_LOCK({making}) AS SIGNED)");
    until(async || table.number(&is_free).await == 1).await;
}

/// With Group Replication each server says in its settings whether all of them accept writes.
async fn row_locks_are_refused_where_a_group_has_several_writers(table: &Table) {
    let mut admin = table.admin().await;
    admin.execute("INSTALL PLUGIN group_replication SONAME 'group_replication.so'").await;
    admin.execute("SET GLOBAL group_replication_single_primary_mode = OFF").await;
    let several = table.options().open().await.map(drop);
    admin.execute("SET GLOBAL group_replication_single_primary_mode = ON").await;
    let one = table.options().open().await.map(drop);
    admin.execute("UNINSTALL PLUGIN group_replication").await;
    one.unwrap();
    let error = several.expect_err("it was not refused");
    assert!(said(&error).contains("Group Replication"), "{}", said(&error));
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
}
