//! Locks in a SQLite file.

use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;
use tenure_conformance::{BoxError, Subject, async_trait};
use tenure_core::Backend;
use tenure_sql::{SqliteBackend, SqliteOptions};

/// Names the file for the processes that the suite starts.
const PATH: &str = "TENURE_TEST_SQLITE_PATH";

/// One file, which goes with this value if it was made for it.
pub(crate) struct InFile {
    name: &'static str,
    fair: bool,
    /// The groups of cases that it is for; none means all.
    groups: &'static [&'static str],
    path: PathBuf,
    _directory: Option<TempDir>,
}

impl InFile {
    /// The file that the environment names, else one of its own.
    pub(crate) fn new() -> Self {
        let (name, fair, groups): (_, _, &[&str]) = ("sqlite", false, &[]);
        if let Some(path) = env::var_os(PATH) {
            return Self { name, fair, groups, path: path.into(), _directory: None };
        }
        // In memory where that can be: what else writes to the disk would decide how long a commit takes.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        let directory = directory.expect("a temporary directory");
        Self { name, fair, groups, path: directory.path().join("locks.db"), _directory: Some(directory) }
    }

    /// A store with a queue, for these groups of cases.
    pub(crate) fn fair(groups: &'static [&'static str]) -> Self {
        Self { name: "sqlite-fair", fair: true, groups, ..Self::new() }
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Backend>, BoxError> {
        let options = SqliteOptions::new(&self.path).prefix(namespace).fair(self.fair);
        Ok(Arc::new(SqliteBackend::open(options).await?))
    }
}

#[async_trait]
impl Subject for InFile {
    fn name(&self) -> &str {
        self.name
    }

    fn shows(&self, group: &str) -> bool {
        self.groups.is_empty() || self.groups.contains(&group)
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        self.open("").await
    }

    async fn backend_in(&self, namespace: &str) -> Result<Option<Arc<dyn Backend>>, BoxError> {
        self.open(namespace).await.map(Some)
    }

    fn environment(&self) -> Option<Vec<(String, String)>> {
        Some(vec![(PATH.to_owned(), self.path.display().to_string())])
    }

    fn writes_files(&self) -> bool {
        true
    }

    async fn wipe(&self) -> Result<bool, BoxError> {
        let file = SqliteConnectOptions::new().filename(&self.path);
        let mut connection = SqliteConnection::connect_with(&file).await?;
        sqlx::query("DELETE FROM tenure_locks").execute(&mut connection).await?;
        connection.close().await?;
        Ok(true)
    }
}
