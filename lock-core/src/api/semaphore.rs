//! Semaphores.

use crate::api::{Lock, lock::UncheckedMode};

/// A semaphore: a name with a fixed number of permits. Made by [`Locks::semaphore`](crate::Locks::semaphore).
///
/// Every permit is a [`Lock`] with its own lease: the permits of a dead holder come back when its lease expires. All
/// clients must agree on the number of permits; a client that disagrees with the current holders gets an error with
/// both numbers.
///
/// # Examples
///
/// At most four jobs on the graphics cards of a whole cluster, and one that needs two of them:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
/// let gpus = locks.semaphore("gpu", 4);
/// let one = gpus.permit().acquire().await?;
/// let two = gpus.permits(2).acquire().await?;
/// assert!(gpus.permits(2).try_acquire().await?.is_none());
/// # one.release().await?;
/// # two.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it holds nothing until a permit is acquired"]
pub struct Semaphore {
    lock: Lock,
    of: u32,
}

impl Semaphore {
    pub(crate) fn new(lock: Lock, of: u32) -> Self {
        Self { lock, of }
    }

    /// Returns a lock for one permit.
    pub fn permit(&self) -> Lock {
        self.permits(1)
    }

    /// Returns a lock for `take` permits, all or none, in one grant: at least 1, and at most as many as the semaphore
    /// has. Any other number is refused on acquisition, before the store is asked.
    ///
    /// Where waiters of different clients are not served in order ([`Capabilities::fair`](crate::Capabilities::fair)), a
    /// waiter for several permits may wait for as long as others hold fewer of them in turn and never leave enough free
    /// at once.
    pub fn permits(&self, take: u32) -> Lock {
        self.lock.clone().held_as(UncheckedMode::Permits { take, of: self.of })
    }
}
