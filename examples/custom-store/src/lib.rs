//! A complete store of locks: one directory of small files, for the processes of one machine.
//!
//! It is an example of a store outside tenure: copy it, and put your own in place of the files.
//! `docs/write-a-store.md` leads through it.
//!
//! | file | what it is |
//! |---|---|
//! | `lib.rs` | the [`Backend`]: one short critical section for each request |
//! | `record.rs` | the algorithm: what becomes of one name's record; no I/O, no clock of its own |
//! | `directory.rs` | the files: one at a time, whole or not at all, a path for every name |
//!
//! # The store's clock
//!
//! Nobody but the clients is there to judge a lease, so the store's clock is the machine's wall clock, read by whoever
//! judges. That is one clock, as the contract asks, and only as long as all clients are on one machine: put the
//! directory on a local disk, never on a network file system. A wall clock can be set. Set forward, it ends leases
//! early, and two may then hold a lock until the first one's deadline passes: tokens still rise, so a resource that
//! checks them refuses the older holder. Set back, it makes leases last longer.
//!
//! # What a crash leaves
//!
//! A killed process leaves its record, whose lease runs out. Files are replaced whole, so nobody sees one half-written.
//! A directory in memory, such as one below `/run/lock`, is the best place: nothing here needs to outlive the machine,
//! and a busy disk makes renewals late. Nothing is forced to the disk either: a power failure may empty a file, and an
//! empty one counts as absent. No holder on this machine outlives such a failure, and the next token starts from the
//! clock.

mod directory;
mod record;

use directory::{Directory, Section};
use std::{io, path::Path, sync::Arc, time::Duration};
use tenure_core::{
    Attempt, Backend, Capabilities, Claim, Grant, Holder, Moment, Name, Release, Renewal, StoreError,
    async_trait,
};
use tokio::{sync::Mutex, task::spawn_blocking, time::timeout};

/// How long a request waits for this client's earlier ones, and then for other clients, before it says that the store
/// is unavailable.
const PATIENCE: Duration = Duration::from_secs(5);

/// Locks in a directory. One `FileStore` is one client; another one of the same directory, in this process or in
/// another one of this machine, meets it there.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use custom_store::FileStore;
/// use tenure_core::Locks;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("locks");
/// let locks = Locks::new(FileStore::open(path)?);
/// let guard = locks.lock("orders/42").acquire().await?;
/// println!("writing with token {}", guard.token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FileStore {
    store: String,
    directory: Arc<Directory>,
    /// One request of this client after the other: see [`request`](Self::request).
    turn: Arc<Mutex<()>>,
}

impl FileStore {
    /// Opens the directory, and makes it if it is absent.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let directory = Directory::open(path.as_ref())?;
        let store = format!("file:{}", path.as_ref().display());
        Ok(Self { store, directory: Arc::new(directory), turn: Arc::default() })
    }

    /// Does `work` while nobody else changes the directory.
    ///
    /// The caller may be dropped at any await. Before the work is spawned, nothing has happened; afterwards the work is
    /// carried out to its end, and keeps the turn until then. So a withdrawal never overtakes the attempt that it
    /// takes back.
    async fn request<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Section<'_>) -> io::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let turn = timeout(PATIENCE, Arc::clone(&self.turn).lock_owned()).await;
        let turn = turn.map_err(|_| StoreError::unavailable("earlier requests have not been carried out"))?;
        let directory = Arc::clone(&self.directory);
        let working = spawn_blocking(move || {
            let _turn = turn;
            work(&directory.enter(PATIENCE)?)
        });
        working.await.map_err(StoreError::failed)?.map_err(store_error)
    }
}

/// Whether asking again may help is all that a store has to say of an error; its text names the file.
fn store_error(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => StoreError::unavailable(error),
        _ => StoreError::failed(error),
    }
}

#[async_trait]
impl Backend for FileStore {
    fn store(&self) -> &str {
        &self.store
    }

    fn capabilities(&self) -> Capabilities {
        // Nobody else gets in while a batch is renewed, so it is a small one.
        Capabilities { listing: true, renew_batch: 100, ..Capabilities::POLLED }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        // Before anything is awaited: the holder's deadline counts from here.
        let sent = Moment::now();
        let claim = claim.clone();
        self.request(move |section| {
            let granted = section
                .change(&claim.name, |record, now| record.acquire(&claim, now, || section.next_token()))?;
            Ok(match granted {
                Ok(token) => Attempt::Granted(Grant::leased(&claim, token, sent)),
                Err(left) => Attempt::Busy { expires_in: Some(left) },
            })
        })
        .await
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let Grant { name, claim, .. } = grant.clone();
        self.request(move |section| section.change(&name, |record, now| Ok(record.release(claim, now)))).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let grants = grants.to_vec();
        self.request(move |section| {
            let renew = |grant: &Grant| {
                let renewed = section.change(&grant.name, |record, now| Ok(record.renew(grant, now)));
                // A file that cannot be read costs its own lock, never the others of the batch. Whoever asks for that
                // lock next is told what is wrong.
                renewed.unwrap_or(Renewal::Unanswered)
            };
            Ok(grants.iter().map(renew).collect())
        })
        .await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let Claim { name, id, .. } = claim.clone();
        self.request(move |section| {
            section.change(&name, |record, _| {
                record.withdraw(id);
                Ok(())
            })
        })
        .await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let name = name.clone();
        self.request(move |section| section.read(&name)?.holder(section.now).into_iter().collect()).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let prefix = prefix.to_owned();
        self.request(move |section| {
            let mut records = section.read_all()?;
            records.retain(|record| record.name.starts_with(&prefix));
            records.sort_by(|one, other| one.name.cmp(&other.name));
            records.iter().filter_map(|record| record.holder(section.now)).collect()
        })
        .await
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let name = name.clone();
        self.request(move |section| {
            section.change(&name, |record, now| record.force(now).into_iter().collect())
        })
        .await
    }
}
