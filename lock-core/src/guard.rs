//! The holder's handle.

use crate::{
    Error, Hold,
    policy::{
        holding::{Departure, Holding},
        release::{self, Releasing},
    },
};
use std::{fmt, ops::Deref, sync::Arc};

/// The holder's handle: it proves the grant, renews it, knows when it is lost, and releases it.
///
/// Everything that can be asked of a held lock is on [`Hold`], to which a guard dereferences:
/// [`token`](Hold::token), [`is_held`](Hold::is_held), [`lost`](Hold::lost), [`extend`](Hold::extend).
///
/// Dropping a guard releases the lock in the background; [`Locks::close`](crate::Locks::close) waits for that. A
/// program that ends before it is done leaves the lock to run out with its lease. Use [`release`](Self::release) to learn
/// whether the lock was held to the end.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
/// let guard = locks.lock("orders/42").acquire().await?;
/// println!("writing with token {}", guard.token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a guard releases the lock"]
pub struct Guard {
    hold: Hold,
    /// Whether this guard still counts among the hold's guards.
    counted: bool,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Holding>) -> Self {
        Self { hold: Hold(hold), counted: true }
    }

    /// Waits until a grant that came late has been renewed; `false` when it was lost first.
    pub(crate) async fn fresh(&self) -> bool {
        self.hold.0.fresh().await
    }

    /// Releases this hold of the lock, and with the owner's last one the lock itself.
    ///
    /// A request whose reply is lost is sent again, until the lease would have run out.
    ///
    /// # Cancel safety
    ///
    /// When dropped, the release goes on in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the lease had run out before the release, or another had taken the lock: what it protected
    /// may have been changed by another holder. [`Error::Unavailable`] when the store did not answer before the lease
    /// ran out.
    pub async fn release(mut self) -> Result<(), Error> {
        self.counted = false;
        let hold = Arc::clone(&self.hold.0);
        match hold.leave() {
            Departure::Shared => Ok(()),
            Departure::Release(place, until) => Releasing::new(hold, place, until).finish().await,
            Departure::Lost(cause, kept) => {
                let error = release::lost(&hold, cause);
                if kept {
                    release::clean_up(hold);
                }
                Err(error)
            }
        }
    }

    /// Makes a writer a reader, without letting another writer in between: it keeps its place, its token and its lease.
    ///
    /// Readers that wait get in beside it. A reader stays a reader. The guard counts as a reader's as soon as this is
    /// called, whatever the store answers; as long as the store cannot be reached it is asked again, and other readers
    /// are kept out meanwhile.
    ///
    /// # Cancel safety
    ///
    /// The request may have been carried out; call it again to be sure.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]; [`Error::InvalidOption`] when the owner has other guards of the lock, which rely on its holding
    /// it alone; [`Error::Unsupported`] where the store has no readers; [`Error::Store`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
    /// let config = locks.rw("config");
    /// let mut guard = config.write().acquire().await?;
    /// guard.downgrade().await?;
    /// let reader = config.read().acquire().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn downgrade(&mut self) -> Result<(), Error> {
        self.hold.0.downgrade().await
    }

    /// Makes the only reader a writer, with the same token and lease; `false`, and still a reader, when there are other
    /// readers. Two readers that want to write can so never wait for each other.
    ///
    /// Also `false` after a [`downgrade`](Self::downgrade) of which an answer was lost: its request may still arrive, and
    /// would let readers in beside the writer. Release the guard and take the lock anew.
    ///
    /// # Cancel safety
    ///
    /// The request may have been carried out: the guard counts as a reader's, and others are kept out until it is
    /// released or [downgraded](Self::downgrade).
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]; [`Error::Unavailable`], after which others may be kept out as above; [`Error::InvalidOption`] for
    /// a permit; [`Error::Unsupported`] where the store has no readers; [`Error::Store`].
    pub async fn try_upgrade(&mut self) -> Result<bool, Error> {
        self.hold.0.try_upgrade().await
    }

    /// A view of the hold, for code that may look but not release.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.hold.clone()
    }
}

impl Deref for Guard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.counted {
            return;
        }
        let hold = Arc::clone(&self.hold.0);
        match hold.leave() {
            Departure::Shared | Departure::Lost(_, false) => {}
            Departure::Release(place, until) => drop(Releasing::new(hold, place, until)),
            Departure::Lost(_, true) => release::clean_up(hold),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.hold).finish()
    }
}
