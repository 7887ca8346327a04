//! What can be wrong with a server, each said clearly.

use super::*;
use tenure_core::Error;

async fn says(options: MySqlOptions, words: &[&str]) {
    let error = MySqlBackend::connect(options).await.expect_err("it was not refused");
    let text = chain(&error);
    assert!(words.iter().all(|word| text.contains(word)) && !text.contains("hunter2"), "{text}");
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
}

#[tokio::test]
async fn a_wrong_password_a_missing_database_and_a_missing_table() {
    let table = Table::new().await;
    let (_, place) = table.url.split_once('@').unwrap();
    says(MySqlOptions::new(format!("mysql://nobody:hunter2@{place}")), &["nobody", "password"]).await;
    says(MySqlOptions::new(format!("{}_not", table.url)), &["_not"]).await;
    says(table.options().create_table(false), &[&table.name, "tenure schema mysql"]).await;
    table.execute(&tenure_sql::mysql_schema(&table.name).unwrap()).await;
    let backend = MySqlBackend::connect(table.options().create_table(false)).await.unwrap();
    granted(&backend, &claim("a")).await;
}

#[tokio::test]
async fn a_table_of_another_shape() {
    let table = Table::new().await;
    table.execute("CREATE TABLE {t} (id BIGINT, name TEXT)").await;
    says(table.options(), &[&table.name, "shape"]).await;
}

#[tokio::test]
async fn a_server_that_is_away() {
    let gone = MySqlOptions::new("mysql://u:hunter2@127.0.0.1:1/x");
    let error = MySqlBackend::connect(gone).await.unwrap_err();
    assert!(error.is_retryable() && chain(&error).contains("127.0.0.1:1"), "{}", chain(&error));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_create_the_table_at_once() {
    let table = Table::new().await;
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let options = table.options().connect_timeout(LONG);
        opening.spawn(async move { MySqlBackend::connect(options).await.unwrap().close().await });
    }
    while let Some(opened) = opening.join_next().await {
        opened.unwrap();
    }
}

#[tokio::test]
async fn a_dropped_table_is_survived() {
    let table = Table::new().await;
    let backend = table.open().await;
    let grant = granted(&backend, &claim("a")).await;
    table.execute("DROP TABLE {t}").await;
    let after = granted(&backend, &claim("a")).await;
    assert!(after.token > grant.token);
    assert_eq!(backend.release(&after).await.unwrap(), RELEASED);
}
