//! Readers and writers.

use crate::{Lock, lock::Wanted};

/// A name that many may read at once, and one may write alone. Made by [`Locks::rw`](crate::Locks::rw).
///
/// Both sides are [`Lock`]s, with the same options, waits, leases, loss and tokens as any. A writer excludes everybody,
/// also holders of [`Locks::lock`](crate::Locks::lock) with that name. A writer that waits keeps new readers out, so
/// readers that come and go cannot keep it waiting for ever. A reader that dies frees its share when its own lease is
/// over; nobody else renews it.
///
/// [`Guard::downgrade`](crate::Guard::downgrade) makes a writer a reader without letting another writer in between, and
/// [`Guard::try_upgrade`](crate::Guard::try_upgrade) makes the only reader a writer.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
/// let config = locks.rw("config");
/// let (one, other) = (config.read().acquire().await?, config.read().acquire().await?);
/// assert!(config.write().try_acquire().await?.is_none());
/// one.release().await?;
/// other.release().await?;
/// let writer = config.write().acquire().await?;
/// # writer.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it holds nothing until one side is acquired"]
pub struct RwLock(Lock);

impl RwLock {
    pub(crate) fn new(lock: Lock) -> Self {
        Self(lock)
    }

    /// The readers' side: held together with other readers.
    pub fn read(&self) -> Lock {
        self.0.clone().held_as(Wanted::Shared)
    }

    /// The writers' side: held alone.
    pub fn write(&self) -> Lock {
        self.0.clone()
    }
}
