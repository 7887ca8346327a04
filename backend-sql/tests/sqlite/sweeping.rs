//! Idle rows go, tokens stay.

use super::*;

/// The first release would have the file swept otherwise, beside the test.
async fn open_swept(file: &File) -> SqliteBackend {
    let backend = file.open().await;
    backend.sweep().await.unwrap();
    backend
}

async fn rows(file: &File) -> i64 {
    file.number("SELECT count(*) FROM tenure_locks WHERE name <> ''").await
}

#[tokio::test]
async fn idle_rows_go_and_tokens_rise_though_the_clock_went_back() {
    let file = File::new();
    let backend = open_swept(&file).await;
    for number in 0..1201 {
        let grant = granted(&backend, &claim(&format!("n{number}"))).await;
        if number % 2 == 0 {
            backend.release(&grant).await.unwrap();
        }
    }
    // All but the last are idle: half of them were released, half ran out. Not the row that says when the file was swept: the
    // first release may still be about to look at it.
    file.execute(
        "UPDATE tenure_locks SET expires_at = expires_at - 2 * 86400000 WHERE name NOT IN ('', 'n1200')",
    )
    .await;
    // As far ahead as the clock was before somebody set it back.
    file.execute("UPDATE tenure_locks SET token = token + 3600000000").await;
    let greatest = file.number("SELECT max(token) FROM tenure_locks WHERE name <> 'n1200'").await;
    assert_eq!(backend.sweep().await.unwrap(), 1200);
    assert_eq!(rows(&file).await, 1);
    assert_eq!(backend.sweep().await.unwrap(), 0);

    let grant = granted(&backend, &claim("n5")).await;
    assert!(grant.token.as_i64() > greatest, "{} is not above {greatest}", grant.token);
    assert_eq!(backend.list("").await.unwrap().len(), 1, "the floor was listed as a lock");
}

/// It stays, or every name that is new would have to come after it.
#[tokio::test]
async fn a_row_with_the_last_token_costs_no_other_name() {
    let file = File::new();
    let backend = open_swept(&file).await;
    for text in ["damaged", "idle"] {
        let grant = granted(&backend, &claim(text)).await;
        backend.release(&grant).await.unwrap();
    }
    file.execute("UPDATE tenure_locks SET token = 9223372036854775807 WHERE name = 'damaged'").await;
    file.execute("UPDATE tenure_locks SET expires_at = expires_at - 2 * 86400000 WHERE name <> ''").await;
    assert_eq!(backend.sweep().await.unwrap(), 1);
    assert_eq!(rows(&file).await, 1);
    granted(&backend, &claim("idle")).await;
}

#[tokio::test]
async fn what_is_held_or_was_used_today_stays() {
    let file = File::new();
    let backend = open_swept(&file).await;
    let day_long = Claim { lease: Duration::from_hours(365 * 24), ..claim("held") };
    granted(&backend, &day_long).await;
    let grant =
        granted(&backend, &Claim { lease: Duration::from_hours(365 * 24), ..claim("released") }).await;
    backend.release(&grant).await.unwrap();
    file.execute("UPDATE tenure_locks SET since = since - 10 * 86400000").await;
    assert_eq!(backend.sweep().await.unwrap(), 0);
    // Not of the row that says when the file was swept: the release may still be about to look at it.
    file.execute("UPDATE tenure_locks SET expires_at = expires_at - 86400000 - 1 WHERE name <> ''").await;
    assert_eq!(backend.sweep().await.unwrap(), 1, "the release of a long lease did not end it");
    assert_eq!(rows(&file).await, 1);
}

#[tokio::test]
async fn the_first_release_sweeps_once_an_hour() {
    let file = File::new();
    let cycle = async |text: &'static str| {
        let backend = file.open().await;
        let grant = granted(&backend, &claim(text)).await;
        file.execute("UPDATE tenure_locks SET expires_at = 1 WHERE name = 'old'").await;
        backend.release(&grant).await.unwrap();
        backend
    };
    let _old = file.open().await.try_acquire(&claim("old")).await.unwrap();
    let _first = cycle("a").await;
    until(async || rows(&file).await == 1).await;
    // Swept within the hour: whoever opens the file next leaves it alone.
    let _old = file.open().await.try_acquire(&claim("old")).await.unwrap();
    let swept = file.number("SELECT expires_at FROM tenure_locks WHERE name = ''").await;
    let second = cycle("b").await;
    second.close().await;
    assert_eq!(file.number("SELECT expires_at FROM tenure_locks WHERE name = ''").await, swept);
    assert_eq!(rows(&file).await, 3);
}
