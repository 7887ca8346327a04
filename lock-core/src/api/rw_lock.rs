//! Readers and writers.

use crate::api::{Lock, lock::UncheckedMode};

/// A read-write lock: many may read at once, or one may write. Made by [`Locks::rw`](crate::Locks::rw).
///
/// Both sides are ordinary [`Lock`]s. A writer excludes all others, including holders of
/// [`Locks::lock`](crate::Locks::lock) with that name. A waiting writer keeps new readers out, so a stream of readers
/// cannot keep it waiting for ever. A dead reader's grant ends when its own lease expires; no other client renews it.
///
/// [`Guard::downgrade`](crate::Guard::downgrade) turns a writer into a reader without letting another writer in
/// between. [`Guard::try_upgrade`](crate::Guard::try_upgrade) turns the only reader into a writer.
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

    /// Returns the readers' side: held together with other readers.
    pub fn read(&self) -> Lock {
        self.0.clone().held_as(UncheckedMode::Shared)
    }

    /// Returns the writers' side: held exclusively.
    pub fn write(&self) -> Lock {
        self.0.clone()
    }
}
