//! An uncontended acquire and release in a SQLite file, beside the two bare statements through an sqlx pool; a reader
//! and a permit, beside the holder of a lock; and one name that many tasks want.
//!
//! Run it on one core, or the scheduler's choices drown the difference:
//! `taskset -c 1 cargo bench --features sqlite --bench sqlite`, or one of them: `… --bench sqlite -- one_name`.

#[path = "support/one_name.rs"]
mod one_name;
mod support;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use support::{Way, report};
use tenure::Locks;
use tokio::runtime::Builder;

const ROUNDS: u32 = 60;
const CYCLES: u32 = 100;

const TABLE: &str = "CREATE TABLE bare (name TEXT PRIMARY KEY, token INTEGER NOT NULL, claim TEXT, expires_at INTEGER NOT NULL) WITHOUT ROWID";
const ACQUIRE: &str = "
    INSERT INTO bare (name, token, claim, expires_at)
    VALUES (?1, unixepoch('subsec') * 1000000, ?2, unixepoch('subsec') * 1000 + ?3)
    ON CONFLICT (name) DO UPDATE SET token = max(token + 1, excluded.token), claim = excluded.claim, expires_at = excluded.expires_at
    WHERE claim IS NULL OR expires_at < unixepoch('subsec') * 1000
    RETURNING token";
const RELEASE: &str = "UPDATE bare SET claim = NULL WHERE name = ?1 AND claim = ?2 RETURNING token";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let named: Vec<&String> = arguments[1..].iter().filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| named.is_empty() || named.iter().any(|wanted| *wanted == name);
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let directory = tempfile::tempdir().expect("a directory");
        let options = SqliteConnectOptions::new()
            .filename(directory.path().join("bare.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal);
        let pool = SqlitePoolOptions::new().max_connections(2).test_before_acquire(false);
        let pool = pool.connect_with(options).await.expect("a pool");
        sqlx::query(TABLE).execute(&pool).await.expect("a table");

        let url = format!("sqlite:{}", directory.path().join("tenure.db").display());
        let locks = tenure::connect(url).await.expect("a store");
        if wanted("uncontended") {
            uncontended(&pool, &locks).await;
            beside_a_lock(&locks).await;
        }
        // The last, because it turns succession on.
        if wanted("one_name") {
            one_name::measure("sqlite", &locks, async || bare_cycle(&pool).await).await;
        }
        locks.close().await;
    });
}

async fn uncontended(pool: &SqlitePool, locks: &Locks) {
    let (mut bare, mut ours) = (Way::new("two bare statements"), Way::new("tenure"));
    for _ in 0..ROUNDS {
        bare.round(CYCLES, async || bare_cycle(pool).await).await;
        ours.round(CYCLES, async || cycle(locks).await).await;
    }
    report("sqlite: uncontended acquire + release", &bare, &ours);
}

/// A reader and a permit, beside the holder of a lock.
async fn beside_a_lock(locks: &Locks) {
    let (read, permit) = (locks.rw("read").read(), locks.semaphore("permits", 8).permit());
    for (what, lock) in [("read()", &read), ("permit()", &permit)] {
        let (mut alone, mut shared) = (Way::new("a lock"), Way::new(what));
        for _ in 0..ROUNDS {
            alone.round(CYCLES, async || cycle(locks).await).await;
            shared
                .round(CYCLES, async || {
                    let guard = lock.acquire().await.expect("there is room");
                    guard.release().await.expect("it was held");
                })
                .await;
        }
        let title = format!("sqlite: {what} + release, where the lock is what is bare (asked for: 0.83)");
        report(&title, &alone, &shared);
    }
}

async fn bare_cycle(pool: &SqlitePool) {
    let claim = tenure::ClaimId::new().to_string();
    let acquire = sqlx::query(ACQUIRE).bind("a").bind(&claim).bind(30_000);
    assert_eq!(acquire.fetch_all(pool).await.expect("an answer").len(), 1);
    let release = sqlx::query(RELEASE).bind("a").bind(&claim);
    assert_eq!(release.fetch_all(pool).await.expect("an answer").len(), 1);
}

async fn cycle(locks: &Locks) {
    let guard = locks.lock("a").acquire().await.expect("it is free");
    guard.release().await.expect("it was held");
}
