//! The whole suite on the store: `cargo test --test conformance`, or a group: `-- file::waiting`.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};
use tempfile::TempDir;
use tenure_conformance::{AnyRecordStore, BoxError, Subject, Subjects, async_trait};
use tenure_core::Backend;

/// Names the directory for the processes that the suite starts.
const DIRECTORY: &str = "CUSTOM_STORE_TEST_DIRECTORY";

/// A directory for each namespace, in one that goes with this value if it was made for it.
struct Files {
    root: PathBuf,
    _own: Option<TempDir>,
}

impl Files {
    fn new() -> Self {
        if let Some(root) = env::var_os(DIRECTORY) {
            return Self { root: root.into(), _own: None };
        }
        // In memory where the system has it, as the store's first page advises.
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
        let own = tempfile::tempdir_in(place).expect("a temporary directory");
        Self { root: own.path().to_owned(), _own: Some(own) }
    }
}

#[async_trait]
impl Subject for Files {
    fn name(&self) -> &'static str {
        "file"
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(custom_store::open(self.root.join("main"))?))
    }

    async fn records(&self) -> Result<Option<AnyRecordStore>, BoxError> {
        Ok(Some(AnyRecordStore::new(custom_store::Files::open(self.root.join("main"))?)))
    }

    async fn backend_in(&self, namespace: &str) -> Result<Option<Arc<dyn Backend>>, BoxError> {
        Ok(Some(Arc::new(custom_store::open(self.root.join("other").join(namespace))?)))
    }

    fn environment(&self) -> Option<Vec<(String, String)>> {
        Some(vec![(DIRECTORY.to_owned(), self.root.display().to_string())])
    }

    async fn wipe(&self) -> Result<bool, BoxError> {
        // The mutex itself stays, or a client that has it and one that makes it anew would both be alone.
        let main = self.root.join("main");
        let mutex = File::create(main.join("mutex"))?;
        mutex.lock()?;
        for entry in fs::read_dir(&main)? {
            let path = entry?.path();
            match path.is_dir() {
                true => fs::remove_dir_all(path)?,
                false if path.ends_with("mutex") => {}
                false => fs::remove_file(path)?,
            }
        }
        Ok(true)
    }
}

fn main() -> ExitCode {
    tenure_conformance::main(|| async { Subjects::new().with(Files::new()) })
}
