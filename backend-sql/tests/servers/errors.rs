//! What can be wrong with a server: each has a clear error.

use crate::{
    Duration, Kind, RELEASED, Table, busy, case::cases, chain, claim, granted, soon, store::Options, waiting,
};
use tenure_core::{Error, StoreError};

cases!("errors":
    a_wrong_password, a_missing_database, no_permission, a_table_of_another_shape, a_server_that_is_away,
    a_statement_timeout.on(&[Kind::Postgres, Kind::Mariadb]).of_lease_rows(),
    a_statement_timeout_ends_no_wait.of_row_locks(),
    user_who_may_only_read_by_default_can_lock.on(&[Kind::Postgres]),
);

/// The refusal's words, which must have these among them and no password.
fn words<'w>(error: &dyn std::error::Error, words: impl IntoIterator<Item = &'w str>) {
    let text = chain(error);
    let missing: Vec<&str> = words.into_iter().filter(|word| !text.contains(word)).collect();
    assert!(missing.is_empty() && !text.contains("hunter2"), "{missing:?} not in: {text}");
}

/// What will not pass by itself.
async fn refused<'w>(options: Options, said: impl IntoIterator<Item = &'w str>) {
    let error = options.open().await.map(drop).expect_err("it was not refused");
    words(&error, said);
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
}

/// What may pass by itself.
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
    refused(table.options(), [&*table.name, "shape"]).await;
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

/// The row is locked by somebody's transaction, and the server has no patience.
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

/// Whoever waits in the server's queue waits on.
async fn a_statement_timeout_ends_no_wait(table: &Table) {
    let ours = table.open().await;
    let grant = granted(&ours, &claim("a")).await;
    let (setting, value) = impatient(table);
    let theirs = table.options().open_with(setting, value).await.unwrap();
    let acquiring = tokio::spawn(async move { (theirs.acquire(&waiting("a")).await, theirs) });
    // Several times as long as a statement may take.
    tokio::time::sleep(Duration::from_secs(6)).await;
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
