//! A complete store of locks: one directory of small files, for the processes of one machine.
//!
//! It is an example of a store outside tenure. Copy it, and replace the files with your own store. [`RecordStore`] asks
//! for three requests; [`Records`] turns them into a store with every mode. `docs/contributing/write-a-store.md`
//! explains it step by step.
//!
//! # The store's clock
//!
//! There is no server to decide when a lease has expired, only clients, so the store's clock is the machine's wall
//! clock. That is one clock, as the contract requires, but only as long as all clients are on one machine. Put the
//! directory on a local disk, never on a network file system.
//!
//! If the clock is set forward, leases end early. Two clients may then hold a lock until the first one's deadline
//! passes. Tokens still rise, so a resource that checks them refuses the older holder. If the clock is set back, leases
//! last longer.
//!
//! # After a crash
//!
//! A killed process leaves its record behind, and the lease in it expires. Files are replaced whole, so no client sees
//! a half-written one. A directory in memory, such as one below `/run/lock`, is the best place: nothing here needs to
//! survive a restart of the machine. Nothing is forced to disk either. A power failure may leave a file empty, and an
//! empty file counts as absent.
//!
//! Do not remove the file `mutex` while clients are running.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime},
};
use tenure_core::{
    StoreError, async_trait,
    record::{RecordStore, Records, StoreTime, Stored},
};
use tokio::task::spawn_blocking;
use uuid::Uuid;

/// How long a request waits for other clients before it says that the store is unavailable.
const PATIENCE: Duration = Duration::from_secs(5);

/// Files in a directory, one for each key. A key's version is its text.
#[derive(Debug)]
pub struct Files {
    store: String,
    directory: Arc<PathBuf>,
}

/// Opens a store of locks in a directory. All clients of the same directory share its locks, whether they are in this
/// process or in another one on this machine.
///
/// # Errors
///
/// If the directory does not exist and cannot be created.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tenure_core::Locks;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("locks");
/// let locks = Locks::new(custom_store::open(path)?);
/// let guard = locks.lock("orders/42").acquire().await?;
/// println!("writing with token {}", guard.token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
pub fn open(path: impl AsRef<Path>) -> io::Result<Records<Files>> {
    Ok(Records::new(Files::open(path)?))
}

#[async_trait]
impl RecordStore for Files {
    type Version = Option<String>;

    fn store(&self) -> &str {
        &self.store
    }

    async fn read(&self, key: &str) -> Result<Stored<Self::Version>, StoreError> {
        let path = self.path_of(key);
        blocking(move || Ok(stored(read(&path)?.map(|(_, text)| text)))).await
    }

    async fn swap(&self, key: &str, from: &Self::Version, to: Option<&str>) -> Result<bool, StoreError> {
        let (directory, path) = (Arc::clone(&self.directory), self.path_of(key));
        let (key, from, to) = (key.to_owned(), from.clone(), to.map(ToOwned::to_owned));
        // Carried out to its end, even if the caller stops waiting for it.
        blocking(move || {
            let _alone = alone(&directory)?;
            if read(&path)?.map(|(_, text)| text) != from {
                return Ok(false);
            }
            match to {
                Some(text) => write(&path, &(key, text))?,
                None => fs::remove_file(&path)?,
            }
            Ok(true)
        })
        .await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Stored<Self::Version>)>, StoreError> {
        let (directory, prefix) = (Arc::clone(&self.directory), prefix.to_owned());
        blocking(move || {
            // A directory that is changed while it is read may tell of a file twice or not at all.
            let _alone = alone(&directory)?;
            let mut listed = Vec::new();
            for entry in fs::read_dir(&*directory)? {
                let path = entry?.path();
                if path.extension().is_none_or(|extension| extension != "json") {
                    continue;
                }
                // One that is spoilt hides no other: a request for its name fails.
                if let Ok(Some((key, text))) = read(&path)
                    && key.starts_with(&prefix)
                {
                    listed.push((key, stored(Some(text))));
                }
            }
            Ok(listed)
        })
        .await
    }
}

impl Files {
    /// Opens the files below [`open`].
    ///
    /// # Errors
    ///
    /// If the directory does not exist and cannot be created.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let directory = path.as_ref().to_owned();
        fs::create_dir_all(&directory)?;
        let store = format!("file:{}", directory.display());
        Ok(Self { store, directory: Arc::new(directory) })
    }

    /// A key may be too long for a file's name, and may contain characters that a file's name cannot.
    fn path_of(&self, key: &str) -> PathBuf {
        let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes());
        self.directory.join(format!("{name}.json"))
    }
}

/// Reads the clock after the text, so the time is never older than the text it is compared with.
fn stored(text: Option<String>) -> Stored<Option<String>> {
    Stored { version: text.clone(), text, now: StoreTime::from(SystemTime::now()) }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, StoreError> {
    // It is not carried out when the caller's runtime ends.
    let done = spawn_blocking(work).await.map_err(StoreError::unavailable)?;
    // Whether asking again may help is all that a store has to say of an error.
    done.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => StoreError::unavailable(error),
        _ => StoreError::failed(error),
    })
}

/// Waits for exclusive access to the directory. If a process dies, the system ends its turn.
fn alone(directory: &Path) -> io::Result<File> {
    let mutex = File::options().create(true).truncate(false).write(true).open(directory.join("mutex"))?;
    let until = Instant::now() + PATIENCE;
    loop {
        match mutex.try_lock() {
            Ok(()) => return Ok(mutex),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if until <= Instant::now() => {
                let error = "another process keeps the directory locked";
                return Err(io::Error::new(io::ErrorKind::TimedOut, error));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// A file's key and text. A file that a power failure has emptied counts as absent.
fn read(path: &Path) -> io::Result<Option<(String, String)>> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let said = |error| io::Error::other(format!("{}: {error}; move it away", path.display()));
    serde_json::from_slice(&bytes).map(Some).map_err(said)
}

/// Replaces the old file with a whole new one. If the process dies in between, the old file stays.
fn write(path: &Path, content: &(String, String)) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(content)?)?;
    fs::rename(&new, path)
}
