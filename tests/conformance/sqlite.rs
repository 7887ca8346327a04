//! Locks in a SQLite file.

use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{env, path::PathBuf, sync::Arc};
use tempfile::TempDir;
use tenure_conformance::{BoxError, Subject, async_trait};
use tenure_core::Backend;
use tenure_sql::{SqliteBackend, SqliteOptions};

/// Names the file for the processes that the suite starts.
const PATH: &str = "TENURE_TEST_SQLITE_PATH";

/// One file, which goes with this value if it was made for it.
pub(crate) struct InFile {
    path: PathBuf,
    _directory: Option<TempDir>,
}

impl InFile {
    /// The file that the environment names, else one of its own.
    pub(crate) fn new() -> Self {
        if let Some(path) = env::var_os(PATH) {
            return Self { path: path.into(), _directory: None };
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { path: directory.path().join("locks.db"), _directory: Some(directory) }
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Backend>, BoxError> {
        let options = SqliteOptions::new(&self.path).prefix(namespace);
        Ok(Arc::new(SqliteBackend::open(options).await?))
    }
}

#[async_trait]
impl Subject for InFile {
    fn name(&self) -> &'static str {
        "sqlite"
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

    async fn wipe(&self) -> Result<bool, BoxError> {
        let file = SqliteConnectOptions::new().filename(&self.path);
        let mut connection = SqliteConnection::connect_with(&file).await?;
        sqlx::query("DELETE FROM tenure_locks").execute(&mut connection).await?;
        connection.close().await?;
        Ok(true)
    }
}
