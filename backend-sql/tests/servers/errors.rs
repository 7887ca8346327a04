//! Problems with a server: each has a clear error.

use crate::{
    Backend, Kind, LEASE, RELEASED, Table, busy,
    case::cases,
    claim, granted,
    lease_rows::Rows,
    said, soon,
    store::{Options, Store},
    table::Raw,
    until, waiting,
};
use std::cell::Cell;
use tenure_core::{Error, StoreError};

cases!("errors":
    a_wrong_password, a_missing_database, no_permission, a_table_of_another_shape, a_server_that_is_away,
    a_statement_timeout.on(&[Kind::Postgres, Kind::Mariadb]).of_lease_rows(),
    a_statement_timeout_ends_no_wait.of_sessions(),
    user_who_may_only_read_by_default_can_lock.on(&[Kind::Postgres]),
    database_that_refuses_connections_is_named.on(&[Kind::Postgres]),
    connection_limit_of_user_is_named,
    passing_errors_are_asked_again_until_they_pass.of_lease_rows(), lasting_errors_fail_at_once.of_lease_rows(),
);

/// The refusal's words, which must have these among them and no password.
fn words<'w>(error: &dyn std::error::Error, words: impl IntoIterator<Item = &'w str>) {
    let text = said(error);
    let missing: Vec<&str> = words.into_iter().filter(|word| !text.contains(word)).collect();
    assert!(missing.is_empty() && !text.contains("hunter2"), "{missing:?} not in: {text}");
}

/// Checks that opening fails with a lasting error.
async fn refused<'w>(options: Options, said: impl IntoIterator<Item = &'w str>) {
    let error = options.open().await.map(drop).expect_err("it was not refused");
    words(&error, said);
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
}

/// Checks that the error may pass by itself.
pub(crate) fn unavailable<'w>(error: &StoreError, said: impl IntoIterator<Item = &'w str>) {
    words(error, said);
    assert!(error.is_unavailable(), "{error:?}");
}

async fn a_wrong_password(table: &Table) {
    let (user, url) = table.user().await;
    refused(table.options_at(&url.replace("hunter2", "wrong")), [&*user, "password", "check"]).await;
}

async fn a_missing_database(table: &Table) {
    let what_to_do = table.either("create it", "check its name");
    refused(table.options_at(&format!("{}_not", table.server.url())), ["_not", what_to_do]).await;
}

async fn database_that_refuses_connections_is_named(table: &Table) {
    let (user, url) = table.user().await;
    let mut admin = table.admin().await;
    admin.execute(&format!("CREATE DATABASE closed_to_{user}")).await;
    admin.execute(&format!("REVOKE CONNECT ON DATABASE closed_to_{user} FROM PUBLIC")).await;
    let (server, _) = url.rsplit_once('/').unwrap();
    let closed = format!("closed_to_{user}");
    refused(table.options_at(&format!("{server}/{closed}")), [&*user, &closed, "GRANT CONNECT"]).await;
    admin.execute(&format!("DROP DATABASE {closed}")).await;
}

async fn connection_limit_of_user_is_named(table: &Table) {
    let (user, url) = table.user().await;
    let alter = table.either("ALTER ROLE {} CONNECTION LIMIT 1", "ALTER USER {} WITH MAX_USER_CONNECTIONS 1");
    table.admin().await.execute(&alter.replace("{}", &user)).await;
    let _only = Raw::connect(&url).await;
    let error = table.options_at(&url).open().await.map(drop).unwrap_err();
    let limit = table.either("raise the CONNECTION LIMIT of role", "raise the limit of user");
    words(&error, [&*format!("{limit} {user}")]);
    assert!(error.is_retryable(), "{error:?}");
}

async fn no_permission(table: &Table) {
    let (user, url) = table.user().await;
    let refused = async |what_to_do| refused(table.options_at(&url), [&*user, what_to_do, &table.name]).await;
    let (create, use_it) = ("GRANT CREATE", "GRANT SELECT, INSERT, UPDATE, DELETE");
    // MySQL asks first for the right to use what is not there.
    refused(table.either(create, use_it)).await;
    if !table.is_postgres() {
        table.grant("SELECT, INSERT, UPDATE, DELETE", &user).await;
        refused(create).await;
    }
    let owner = table.open().await;
    if table.is_postgres() {
        refused(use_it).await;
        table.grant("SELECT, INSERT, UPDATE, DELETE", &user).await;
    }
    let store = table.options_at(&url).open().await.unwrap();
    let grant = granted(&store, &claim("a")).await;
    busy(&owner, &claim("a")).await;
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
}

async fn a_table_of_another_shape(table: &Table) {
    table.execute("CREATE TABLE {t} (id BIGINT, name VARCHAR(9))").await;
    refused(table.options(), [&*table.name, "does not match tenure's schema"]).await;
}

async fn a_server_that_is_away(table: &Table) {
    let scheme = table.either("postgres", "mysql");
    let away = table.options_at(&format!("{scheme}://u:hunter2@127.0.0.1:1/x"));
    let error = away.open().await.map(drop).unwrap_err();
    words(&error, ["127.0.0.1:1"]);
    assert!(error.is_retryable(), "{error:?}");
}

/// The setting with which a server ends a statement after 2 s: sooner than it is told to by us, and not before a busy one has
/// carried out those that begin a session. MySQL has it for reading only.
fn impatient(table: &Table) -> (&'static str, &'static str) {
    match table.server.kind() {
        Kind::Mysql => ("max_execution_time", "2000"),
        Kind::Mariadb => ("max_statement_time", "2"),
        _ => ("statement_timeout", "2000"),
    }
}

/// A foreign transaction locks the row, and the server's statement timeout is short.
async fn a_statement_timeout(table: &Table) {
    drop(table.open_with_row("a").await);
    let (setting, value) = impatient(table);
    let store = table.options().open_with(setting, value).await.unwrap();
    let mut other = table.raw().await;
    other.execute("BEGIN").await;
    other.execute(&table.sql("UPDATE {t} SET host = 'x'")).await;
    unavailable(&store.try_acquire(&claim("a")).await.unwrap_err(), [setting, "raise"]);
    other.execute("ROLLBACK").await;
    granted(&store, &claim("a")).await;
}

/// A waiter in the server's queue keeps waiting.
async fn a_statement_timeout_ends_no_wait(table: &Table) {
    let ours = table.open().await;
    let grant = granted(&ours, &claim("a")).await;
    let (setting, value) = impatient(table);
    let theirs = table.options().open_with(setting, value).await.unwrap();
    let next = waiting("a");
    let id = next.id;
    let acquiring = tokio::spawn(async move { (theirs.acquire(&next).await, theirs) });
    table.until_waits(id).await;
    // By the server's clock, longer than a statement may take.
    let begun = table.number("SELECT {now}").await;
    until(async || table.number("SELECT {now}").await - begun > 5_000).await;
    assert!(!acquiring.is_finished(), "the wait was ended");
    assert_eq!(ours.release(&grant).await.unwrap(), RELEASED);
    let (next, theirs) = soon(acquiring).await.unwrap();
    let next = next.unwrap();
    assert!(next.token > grant.token);
    assert_eq!(theirs.release(&next).await.unwrap(), RELEASED);
}

/// A setting of the user's, which a session may change. A pooler's session is not changed.
async fn user_who_may_only_read_by_default_can_lock(table: &Table) {
    let (user, url) = table.user().await;
    drop(table.open().await);
    table.grant("SELECT, INSERT, UPDATE, DELETE", &user).await;
    let read_only = format!("ALTER ROLE {user} SET default_transaction_read_only = on");
    table.admin().await.execute(&read_only).await;
    let store = table.options_at(&url).open().await.unwrap();
    let grant = granted(&store, &claim("a")).await;
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
    let Options::Postgres { url, options } = table.options_at(&url) else { panic!("not PostgreSQL") };
    let pooled = Options::Postgres { url, options: options.pooler(true) };
    refused(pooled, [&*user, "default_transaction_read_only", "ALTER ROLE"]).await;
}

/// Errors that pass: by class, and by number or code where the class says nothing.
const PASSING_OF_POSTGRES: &[&str] =
    &["08006", "25P03", "25P04", "40001", "40003", "53200", "57P01", "58030"];
const PASSING_OF_MYSQL: &[(&str, u16)] = &[
    ("08S01", 1047),
    ("08S01", 1158),
    ("40000", 3101),
    ("40001", 1213),
    ("HY000", 1020),
    ("HY000", 1041),
    ("HY001", 1037),
    ("HY000", 1180),
    ("HY000", 1615),
    ("HY000", 3100),
    ("HY000", 9001),
];
/// The last is a full disk.
const LASTING_OF_POSTGRES: &[&str] = &["23514", "P0001", "53100"];
const LASTING_OF_MYSQL: &[(&str, u16)] =
    &[("08S01", 1153), ("23000", 4025), ("45000", 1644), ("HY000", 1114)];

/// Has the server raise one of these errors for each row of the locks, as `{t}_said` says: 1 is the first of them.
/// The statement is undone, but a number of `{t}_counted` stays used.
pub(crate) async fn with_errors(table: &Table, postgres: &[&str], mysql: &[(&str, u16)]) -> Store {
    let store = table.open().await;
    table.execute("CREATE TABLE {t}_said (which INT)").await;
    if table.is_postgres() {
        table.execute("CREATE SEQUENCE {t}_counted").await;
        let cases = (1..).zip(postgres).map(|(which, code)| {
            format!(
                "IF EXISTS (SELECT FROM {{t}}_said WHERE which = {which}) THEN \
                 PERFORM nextval('{{t}}_counted'); RAISE EXCEPTION 'said so' USING ERRCODE = '{code}'; END IF; "
            )
        });
        let cases: String = cases.collect();
        let function = "CREATE FUNCTION {t}_say() RETURNS trigger LANGUAGE plpgsql AS ";
        table.execute(&format!("{function} $$BEGIN {cases} RETURN NEW; END$$")).await;
        let before = "CREATE TRIGGER say BEFORE INSERT OR UPDATE ON {t}";
        table.execute(&format!("{before} FOR EACH ROW EXECUTE FUNCTION {{t}}_say()")).await;
        return store;
    }
    table.execute("CREATE TABLE {t}_counted (id INT PRIMARY KEY AUTO_INCREMENT)").await;
    let cases = (1..).zip(mysql).map(|(which, (state, number))| {
        format!(
            "IF EXISTS (SELECT 1 FROM {{t}}_said WHERE which = {which}) THEN INSERT INTO {{t}}_counted VALUES (); \
             SIGNAL SQLSTATE '{state}' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'said so'; END IF; "
        )
    });
    let cases: String = cases.collect();
    let mut admin = table.admin_here().await;
    for event in ["INSERT", "UPDATE"] {
        let trigger =
            format!("CREATE TRIGGER {{t}}_{event} BEFORE {event} ON {{t}} FOR EACH ROW BEGIN {cases} END");
        admin.execute(&table.sql(&trigger)).await;
    }
    store
}

/// The next number of `{t}_counted`: the one after the last, unless an error was raised since.
async fn next_number(table: &Table) -> i64 {
    if table.is_postgres() {
        return table.number("SELECT nextval('{t}_counted')").await;
    }
    let mut raw = table.raw().await;
    raw.execute(&table.sql("INSERT INTO {t}_counted VALUES ()")).await;
    raw.number("SELECT CAST(LAST_INSERT_ID() AS SIGNED)").await
}

async fn passing_errors_are_asked_again_until_they_pass(table: &Table) {
    let locks = with_errors(table, PASSING_OF_POSTGRES, PASSING_OF_MYSQL).await.locks();
    for which in 1..=table.either(PASSING_OF_POSTGRES.len(), PASSING_OF_MYSQL.len()) {
        let last = Cell::new(next_number(table).await);
        table.execute(&format!("INSERT INTO {{t}}_said VALUES ({which})")).await;
        let lock = locks.lock("a").lease(LEASE);
        let acquiring = tokio::spawn(async move { lock.acquire().await });
        until(async || {
            let next = next_number(table).await;
            acquiring.is_finished() || next > last.replace(next) + 1
        })
        .await;
        table.execute("DELETE FROM {t}_said").await;
        let guard =
            soon(acquiring).await.unwrap().unwrap_or_else(|error| panic!("{which}: {}", said(&error)));
        guard.release().await.unwrap();
    }
}

async fn lasting_errors_fail_at_once(table: &Table) {
    let store = with_errors(table, LASTING_OF_POSTGRES, LASTING_OF_MYSQL).await;
    let full = table.either(LASTING_OF_POSTGRES.len(), LASTING_OF_MYSQL.len());
    for which in 1..=full {
        table.execute(&format!("INSERT INTO {{t}}_said VALUES ({which})")).await;
        let error = store.try_acquire(&claim("a")).await.unwrap_err();
        assert!(!error.is_unavailable(), "{which}: {error:?}");
        words(&error, if which == full { ["disk", "full; make room"] } else { ["said so"; 2] });
        table.execute("DELETE FROM {t}_said").await;
    }
}
