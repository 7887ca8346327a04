//! Lease rows over real files. Several backends on one file are what several processes are.

#[cfg(unix)]
mod access;
mod bad_files;
mod cancelling;
mod fair;
mod foreign;
#[cfg(target_os = "linux")]
mod full;
mod leases;
mod people;
mod removed;
mod sharing;
mod sweeping;
mod waiting;

use sqlx::{
    Connection, Row,
    sqlite::{SqliteConnectOptions, SqliteConnection},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use tenure_core::{Attempt, Backend, Claim, ClaimId, Grant, HolderInfo, Mode, Name};
use tenure_sql::{SqliteBackend, SqliteOptions};

const LEASE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(100);

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

    /// Patient, so that it is no fault if many write at once where each commit takes long.
    fn options(&self) -> SqliteOptions {
        SqliteOptions::new(self.path()).busy_timeout(Duration::from_mins(1))
    }

    async fn open(&self) -> SqliteBackend {
        SqliteBackend::open(self.options()).await.unwrap()
    }

    /// A connection beside the locks' own.
    async fn raw(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.path());
        SqliteConnection::connect_with(&options).await.unwrap()
    }

    async fn execute(&self, sql: &'static str) {
        let mut connection = self.raw().await;
        sqlx::query(sql).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    async fn number(&self, sql: &'static str) -> i64 {
        let mut connection = self.raw().await;
        let row = sqlx::query(sql).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        row.get(0)
    }
}

/// Waits until `is_so`, for 20 s at most.
async fn until(is_so: impl AsyncFn() -> bool) {
    let look = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), look).await.expect("it did not come about within 20 s");
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn claim(text: &str) -> Claim {
    Claim {
        id: ClaimId::new(),
        name: name(text),
        mode: Mode::Exclusive,
        lease: LEASE,
        waits: false,
        reserve: 0,
        holder: Arc::new(HolderInfo::here(None)),
    }
}

async fn granted(backend: &SqliteBackend, claim: &Claim) -> Grant {
    match backend.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => grant,
        busy @ Attempt::Busy { .. } => panic!("{busy:?}"),
    }
}

async fn busy(backend: &SqliteBackend, claim: &Claim) -> Option<Duration> {
    match backend.try_acquire(claim).await.unwrap() {
        Attempt::Busy { expires_in } => expires_in,
        granted @ Attempt::Granted(_) => panic!("{granted:?}"),
    }
}
