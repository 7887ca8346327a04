//! Lease rows over real files. Several backends on one file are what several processes are.

#[cfg(unix)]
mod access;
mod bad_files;
mod cancelling;
#[path = "../common/claims.rs"]
mod claims;
#[cfg(target_os = "linux")]
mod clock;
mod foreign;
#[path = "../common/format.rs"]
mod format;
#[cfg(target_os = "linux")]
mod full;
#[path = "../common/lease_rows.rs"]
mod lease_rows;
mod leases;
#[cfg(unix)]
mod limits;
mod people;
mod removed;
mod waiting;

use claims::{RELEASED, busy, claim, granted, name, reader, said, soon, until};
use lease_rows::Rows;
use serde_json::Value;
use sqlx::{
    AssertSqlSafe, Connection,
    sqlite::{SqliteConnectOptions, SqliteConnection},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use tenure_core::{Backend, Claim, HolderInfo};
use tenure_sql::{SqliteBackend, SqliteOptions};

/// The cases of all databases.
macro_rules! on_a_file {
    ($($case:ident),+ $(,)?) => {
        $(#[tokio::test]
        async fn $case() {
            lease_rows::$case(&File::new()).await;
        })+
    };
}
on_a_file!(
    token_follows_the_last_where_the_clock_is_behind,
    batch_is_renewed_and_each_is_answered,
    mark_of_a_waiter_keeps_readers_out_until_it_ends,
    idle_rows_swept_tokens_kept,
    row_that_is_not_ours_says_so_and_lets_nobody_in,
    row_that_cannot_be_renewed_costs_no_other_its_lease,
    clients_with_a_queue_and_without_exclude_each_other,
);

#[tokio::test]
async fn rows_are_written_as_the_page_says() {
    let file = File::new();
    format::rows_are_written_as_the_page_says(&file).await;
    let columns = file.number("SELECT count(*) FROM pragma_table_info('{t}')").await;
    assert_eq!(usize::try_from(columns), Ok(format::COLUMNS.len()));
}

#[tokio::test]
async fn rows_of_the_page_are_read() {
    format::rows_of_the_page_are_read(&File::new()).await;
}

/// A database file of its own.
struct File {
    directory: TempDir,
}

impl File {
    fn new() -> Self {
        // In memory where that can be: what else writes to the disk would decide how long a commit takes.
        let memory = Path::new("/dev/shm");
        let directory = TempDir::new_in(memory).or_else(|_| TempDir::new());
        Self { directory: directory.unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("locks.db")
    }

    /// A file beside it, or the file itself.
    fn beside(&self, end: &str) -> PathBuf {
        let mut path = self.path().into_os_string();
        path.push(end);
        path.into()
    }

    /// Patient, so that it is no fault if many write at once where each commit takes long.
    fn options(&self) -> SqliteOptions {
        SqliteOptions::new(self.path()).busy_timeout(Duration::from_mins(1))
    }

    async fn open(&self) -> SqliteBackend {
        SqliteBackend::open(self.options()).await.unwrap()
    }

    /// A connection beside the locks' own.
    async fn raw(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.path()).create_if_missing(true);
        SqliteConnection::connect_with(&options).await.unwrap()
    }

    /// A transaction of another program that has the lock of the file.
    async fn blocker(&self) -> SqliteConnection {
        let mut blocker = self.raw().await;
        sqlx::query("BEGIN IMMEDIATE").execute(&mut blocker).await.unwrap();
        blocker
    }
}

impl Rows for File {
    async fn client(&self, fair: bool) -> Arc<dyn Backend> {
        Arc::new(SqliteBackend::open(self.options().fair(fair)).await.unwrap())
    }

    async fn swept(&self) -> u64 {
        self.open().await.sweep().await.unwrap()
    }

    async fn execute(&self, statement: &str) {
        let mut connection = self.raw().await;
        sqlx::query(AssertSqlSafe(sql(statement))).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    async fn number(&self, query: &str) -> i64 {
        let mut connection = self.raw().await;
        let query = sqlx::query_scalar(AssertSqlSafe(sql(query)));
        let number = query.fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        number
    }

    async fn texts(&self, query: &str) -> Vec<String> {
        let mut connection = self.raw().await;
        let query = sqlx::query_scalar(AssertSqlSafe(sql(query)));
        let texts = query.fetch_all(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        texts
    }

    async fn record(&self, name: &str) -> Option<Value> {
        let mut connection = self.raw().await;
        let query = sqlx::query_scalar("SELECT record FROM tenure_locks WHERE name = ?1").bind(name);
        let record: Option<Option<String>> = query.fetch_optional(&mut connection).await.unwrap();
        record.flatten().map(|record| serde_json::from_str(&record).unwrap())
    }

    async fn set_record(&self, name: &str, record: &Value) {
        let set = "UPDATE tenure_locks SET version = version + 1, record = ?1 WHERE name = ?2";
        let set = sqlx::query(set).bind(record.to_string()).bind(name);
        set.execute(&mut self.raw().await).await.unwrap();
    }

    fn no_text(&self) -> Option<&'static str> {
        Some("claim = CAST(x'ff' AS TEXT)")
    }
}

fn sql(text: &str) -> String {
    let words = [
        ("{t}", "tenure_locks"),
        ("{text}", "TEXT"),
        ("{now}", "CAST(unixepoch('subsec') * 1000 AS INTEGER)"),
        ("{second}", "1000"),
        ("{day}", "86400000"),
    ];
    words.into_iter().fold(text.to_owned(), |text, (word, meaning)| text.replace(word, meaning))
}
