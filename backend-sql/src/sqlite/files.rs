//! The files that SQLite has open, and whether they are still those that every other program sees.
//!
//! In write-ahead mode a commit is in the `-wal` file, and the `-shm` file says what is in that one. If either of them,
//! or the database, is removed or replaced, a program that has them open goes on with files that no other program sees.

use super::errors;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tenure_core::{Background, Epoch};

/// How often the files are looked at between requests. A program that finds `-wal` or `-shm` missing waits until those
/// that have the old ones open have looked and closed them.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// The files of one database. All grants while they stay the same are of one [`Epoch`].
pub(super) struct Files {
    path: PathBuf,
    current: Mutex<Current>,
    watched: AtomicBool,
}

#[derive(Default)]
struct Current {
    epoch: Epoch,
    /// Counts the epochs.
    number: u64,
    /// The files that connections have open, or had.
    seen: Option<Seen>,
    /// How many connections there are in this epoch.
    users: usize,
    /// How many of them have the files open.
    settled: usize,
    /// How many of the last epoch are not closed yet.
    leaving: usize,
}

/// A connection's use of the files, from before it is opened until it is closed.
pub(super) struct Entry {
    pub(super) epoch: Epoch,
    number: u64,
    settled: bool,
    files: Arc<Files>,
}

impl Files {
    pub(super) fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path, current: Mutex::default(), watched: AtomicBool::new(false) })
    }

    /// Ends the epoch if the files are not the same any more. Returns the epoch that lasts.
    pub(super) fn look(&self) -> Epoch {
        let (epoch, ended) = {
            let mut current = self.current();
            let ended = current.seen.as_ref().is_some_and(|seen| !seen.is_at(&self.path));
            if ended {
                current.renew();
            }
            (current.epoch.clone(), ended)
        };
        if ended {
            let path = self.path.display();
            tracing::warn!(%path, "the database or a file beside it was removed or replaced; all locks held in it are lost");
        }
        epoch
    }

    /// Looks now, and from now on in the background too, because a holder need not ask for anything.
    pub(super) fn watch(self: &Arc<Self>, background: &Background) -> Epoch {
        if !self.watched.swap(true, Ordering::Relaxed) {
            let watching = Watching(Arc::downgrade(self));
            background.spawn(async move {
                loop {
                    tokio::time::sleep(LOOK).await;
                    let Some(files) = watching.0.upgrade() else { return };
                    files.look();
                }
            });
        }
        self.look()
    }

    /// Before a connection is opened. `None` while connections of the last epoch are open: SQLite lets all connections
    /// of a process share its `-shm` file, so a new one would get the old file.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Entry> {
        let mut current = self.current();
        (current.leaving == 0).then(|| {
            current.users += 1;
            let (epoch, number) = (current.epoch.clone(), current.number);
            Entry { epoch, number, settled: false, files: Arc::clone(self) }
        })
    }

    /// After the connection was opened, and has read, so that all files are there. Returns whether it has the same files
    /// as the others.
    pub(super) fn settle(&self, entry: &mut Entry) -> bool {
        let seen = Seen::at(&self.path);
        if cfg!(unix) && !seen.is_whole() {
            return false;
        }
        let mut current = self.current();
        if current.seen.as_ref().is_some_and(|known| !known.agrees_with(&seen)) {
            current.renew();
        }
        if entry.epoch.has_ended() {
            return false;
        }
        current.seen = Some(seen);
        current.settled += 1;
        entry.settled = true;
        true
    }

    /// Whether SQLite would make a `-wal` or `-shm` file. If another program has the database open, one was removed.
    pub(super) fn are_missing(&self) -> bool {
        let seen = Seen::at(&self.path);
        seen.database.is_some() && !seen.is_whole()
    }

    /// The message for an epoch that has ended.
    pub(super) fn removed(&self) -> String {
        errors::removed(&self.path)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    /// The next epoch begins.
    fn renew(&mut self) {
        self.epoch.end();
        let (number, leaving) = (self.number + 1, self.leaving + self.users);
        *self = Self { number, leaving, ..Self::default() };
    }
}

impl Entry {
    /// Before the connection is closed. SQLite may remove files meanwhile, which ends no epoch. But a connection of the
    /// last epoch counts until it is closed: then keep the returned entry.
    pub(super) fn leave(self) -> Option<Self> {
        self.epoch.has_ended().then_some(self)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut current = self.files.current();
        if self.number == current.number {
            current.users -= 1;
            current.settled -= usize::from(self.settled);
            // SQLite itself removes `-wal` and `-shm` when the last connection is closed.
            if current.settled == 0
                && let Some(seen) = &mut current.seen
            {
                seen.beside = None;
            }
        } else {
            current.leaving -= 1;
        }
    }
}

/// When its runtime goes away, another may take over.
struct Watching(Weak<Files>);

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(files) = self.0.upgrade() {
            files.watched.store(false, Ordering::Relaxed);
        }
    }
}

/// Which files are at a path and beside it.
struct Seen {
    database: Option<Inode>,
    /// The `-wal` and the `-shm` file; `None` if no connection has them open.
    beside: Option<[(PathBuf, Option<Inode>); 2]>,
}

impl Seen {
    fn at(path: &Path) -> Self {
        // SQLite follows links, and names the other files after what it finds.
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let beside = ["-wal", "-shm"].map(|end| {
            let mut name = real.clone().into_os_string();
            name.push(end);
            let name = PathBuf::from(name);
            let inode = Inode::of(&name);
            (name, inode)
        });
        Self { database: Inode::of(path), beside: Some(beside) }
    }

    /// Whether all files are there.
    fn is_whole(&self) -> bool {
        self.database.is_some() && self.beside.iter().flatten().all(|(_, inode)| inode.is_some())
    }

    /// Whether another look found the same, as far as it matters.
    fn agrees_with(&self, other: &Self) -> bool {
        self.database == other.database && (self.beside.is_none() || self.beside == other.beside)
    }

    /// Whether they are the same now.
    fn is_at(&self, path: &Path) -> bool {
        self.database == Inode::of(path)
            && self.beside.iter().flatten().all(|(name, inode)| *inode == Inode::of(name))
    }
}

/// Which file it is.
#[derive(PartialEq, Eq)]
struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    #[cfg(unix)]
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self { device: metadata.dev(), number: metadata.ino() })
    }

    /// On other systems an open file cannot be removed.
    #[cfg(not(unix))]
    fn of(_: &Path) -> Option<Self> {
        None
    }
}
