//! Lease rows in a file: names, tables, sweeps.

use super::*;
use tenure_core::{Attempt, LossCause, Renewal};

#[tokio::test]
async fn prefixes_and_tables_never_meet() {
    let file = File::new();
    let with = |prefix: &str| SqliteBackend::open(file.options().prefix(prefix));
    let (one, other) = (with("a").await.unwrap(), with("ab").await.unwrap());
    let first = granted(&one, &claim("bc")).await;
    granted(&other, &claim("c")).await;
    assert!(other.holders(&name("bc")).await.unwrap().is_empty());
    assert_eq!(other.list("").await.unwrap().len(), 1);
    assert!(other.force_release(&name("bc")).await.unwrap().is_empty());
    assert_eq!(
        other.renew(std::slice::from_ref(&first)).await.unwrap(),
        [Renewal::Lost(LossCause::Forgotten)]
    );
    let table = SqliteBackend::open(file.options().prefix("a").table("other")).await.unwrap();
    granted(&table, &claim("bc")).await;
    assert_eq!(one.release(&first).await.unwrap(), RELEASED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_open_a_new_file_at_once() {
    let file = File::new();
    let opened = (0..20).map(|_| tokio::spawn(SqliteBackend::open(file.options())));
    let opened: Vec<_> = opened.collect();
    let mut grants = 0;
    for backend in opened {
        let backend = backend.await.unwrap().unwrap();
        if let Attempt::Granted(_) = backend.try_acquire(&claim("a")).await.unwrap() {
            grants += 1;
        }
    }
    assert_eq!(grants, 1);
}

#[tokio::test]
async fn the_first_release_sweeps_once_an_hour() {
    let file = File::new();
    let rows = async || file.number("SELECT count(*) FROM {t} WHERE name <> ''").await;
    let swept = async || file.number("SELECT expires_at FROM {t} WHERE name = ''").await;
    let cycle = async |text: &'static str| {
        granted(&file.open().await, &claim("old")).await;
        let backend = file.open().await;
        let grant = granted(&backend, &claim(text)).await;
        file.execute("UPDATE {t} SET expires_at = 1 WHERE name = 'old'").await;
        backend.release(&grant).await.unwrap();
        backend
    };
    let _first = cycle("a").await;
    until(async || rows().await == 1).await;
    // Swept within the hour, so the next client does not sweep.
    let before = swept().await;
    cycle("b").await.close().await;
    assert_eq!((swept().await, rows().await), (before, 3));
}
