//! What can be wrong with a server, each said clearly.

use super::*;
use tenure_core::{Error, StoreError};

async fn refusal(options: PostgresOptions) -> Error {
    let error = PostgresBackend::connect(options).await.expect_err("it was not refused");
    assert!(!chain(&error).contains("hunter2"), "{}", chain(&error));
    error
}

fn says(error: &Error, words: &[&str]) {
    let text = chain(error);
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
}

#[tokio::test]
async fn a_wrong_password() {
    let table = Table::new().await;
    let (url, user) = table.user("").await;
    let wrong = url.replace("hunter2", "wrong");
    says(&refusal(PostgresOptions::new(wrong)).await, &["password", &user, "check it"]);
}

#[tokio::test]
async fn a_missing_database() {
    let table = Table::new().await;
    let url = format!("{}_not", table.url);
    says(&refusal(PostgresOptions::new(url)).await, &["does not exist", "create it"]);
}

#[tokio::test]
async fn a_missing_table() {
    let table = Table::new().await;
    let error = refusal(table.options().create_table(false)).await;
    says(&error, &[&table.name, "tenure schema postgres"]);
    table.execute(&tenure_sql::postgres_schema(&table.name).unwrap()).await;
    let backend = PostgresBackend::connect(table.options().create_table(false)).await.unwrap();
    granted(&backend, &claim("a")).await;
}

#[tokio::test]
async fn a_missing_schema() {
    let table = Table::new().await;
    let path = format!("{0}.{0}", table.name);
    says(&refusal(table.options().table(&path)).await, &["no schema", &path]);
    table.execute("CREATE SCHEMA {t}").await;
    let backend = PostgresBackend::connect(table.options().table(path)).await.unwrap();
    granted(&backend, &claim("a")).await;
    assert_eq!(table.number("SELECT count(*) FROM {t}.{t}").await, 1);
}

#[tokio::test]
async fn no_permission() {
    let table = Table::new().await;
    let (url, user) = table.user("").await;
    let options = || PostgresOptions::new(&url).table(&table.name);
    says(&refusal(options()).await, &[&user, "GRANT CREATE", &table.name]);
    let owner = table.open().await;
    says(&refusal(options()).await, &[&user, "GRANT SELECT, INSERT, UPDATE, DELETE"]);
    table.execute(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {{t}} TO {user}")).await;
    let backend = PostgresBackend::connect(options()).await.unwrap();
    let grant = granted(&backend, &claim("a")).await;
    busy(&owner, &claim("a")).await;
    assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
}

#[tokio::test]
async fn a_table_of_another_shape() {
    let table = Table::new().await;
    table.execute("CREATE TABLE {t} (id bigint, name text)").await;
    says(&refusal(table.options()).await, &[&table.name, "shape"]);
    let unkeyed = Table::new().await;
    drop(unkeyed.open().await);
    unkeyed.execute("ALTER TABLE {t} DROP CONSTRAINT {t}_pkey").await;
    let backend = unkeyed.open().await;
    let error = backend.try_acquire(&claim("a")).await.unwrap_err();
    assert!(!error.is_unavailable() && error.to_string().contains("shape"), "{error}");
}

async fn unavailable(options: PostgresOptions, words: &[&str]) {
    let error = refusal(options).await;
    let text = chain(&error);
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    assert!(error.is_retryable(), "{error:?}");
}

#[tokio::test]
async fn a_server_that_is_read_only_or_full_or_away() {
    let table = Table::new().await;
    let (url, user) = table.user("CONNECTION LIMIT 0").await;
    unavailable(PostgresOptions::new(&url), &["no connection left", "max_connections"]).await;
    table.execute(&format!("ALTER ROLE {user} CONNECTION LIMIT 5")).await;
    table.execute(&format!("ALTER ROLE {user} SET default_transaction_read_only = on")).await;
    table.execute(&format!("GRANT CREATE ON SCHEMA public TO {user}")).await;
    unavailable(PostgresOptions::new(&url).table(&table.name), &["read-only", "primary"]).await;
    unavailable(PostgresOptions::new("postgres://u:hunter2@127.0.0.1:1/x"), &["127.0.0.1:1"]).await;
}

/// The row is locked by somebody's transaction, and the server has no patience.
#[tokio::test]
async fn a_statement_timeout() {
    let table = Table::new().await;
    let (url, user) = table.user("").await;
    granted(&table.open().await, &claim("a")).await;
    table.execute(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {{t}} TO {user}")).await;
    table.execute(&format!("ALTER ROLE {user} SET statement_timeout = '200ms'")).await;
    let backend = PostgresBackend::connect(PostgresOptions::new(url).table(&table.name)).await.unwrap();
    let mut other = table.raw().await;
    let mut blocker = other.begin().await.unwrap();
    blocker.execute(table.sql("UPDATE {t} SET host = host")).await.unwrap();
    let error: StoreError = backend.try_acquire(&claim("a")).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("statement_timeout"), "{error}");
    blocker.rollback().await.unwrap();
    busy(&backend, &claim("a")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_create_the_table_at_once() {
    let table = Table::new().await;
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let options = table.options().connect_timeout(LONG);
        opening.spawn(async move {
            let backend = PostgresBackend::connect(options).await.unwrap();
            backend.close().await;
        });
    }
    while let Some(opened) = opening.join_next().await {
        opened.unwrap();
    }
}

#[tokio::test]
async fn ended_connections_and_a_dropped_table_are_survived() {
    let table = Table::new().await;
    let url = format!("{}?application_name={}", table.url, table.name);
    let backend = PostgresBackend::connect(PostgresOptions::new(url).table(&table.name)).await.unwrap();
    let grant = granted(&backend, &claim("a")).await;
    let end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '{t}'";
    table.execute(end).await;
    assert_eq!(backend.renew(std::slice::from_ref(&grant)).await.unwrap(), [tenure_core::Renewal::Renewed]);
    busy(&backend, &claim("a")).await;
    table.execute("DROP TABLE {t}").await;
    let after = granted(&backend, &claim("a")).await;
    assert!(after.token > grant.token);
    let forgotten = Release::NotHeld(tenure_core::LossCause::TakenOver);
    assert_eq!(backend.release(&grant).await.unwrap(), forgotten);
}
