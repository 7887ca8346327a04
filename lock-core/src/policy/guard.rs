//! The holder's handle.

use super::hold::Hold;
use crate::contract::Error;
use std::{fmt, ops::Deref};

/// The holder's handle: it proves the grant, renews it, knows when it is lost, and releases it.
///
/// Everything that a held lock can tell is on [`Hold`], to which a guard dereferences: [`token`](Hold::token),
/// [`is_held`](Hold::is_held), [`lost`](Hold::lost), [`extend`](Hold::extend). Other tasks get a view by
/// [`hold`](Hold::hold).
///
/// Dropping a guard releases the lock in the background; [`Locks::close`](crate::Locks::close) waits for that. If the
/// program ends before it is done, the lock stays until its lease expires. Use [`release`](Self::release) to learn
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
    pub(super) hold: Hold,
    /// Whether this guard still counts among the hold's guards.
    counted: bool,
}

impl Guard {
    pub(super) fn new(hold: Hold) -> Self {
        Self { hold, counted: true }
    }

    /// Waits until a grant that came late has been renewed; `false` if it was lost first.
    pub(super) async fn fresh(&self) -> bool {
        self.hold.holding.fresh().await
    }

    /// Marks it as the program's, to which it goes without another await.
    pub(super) fn delivered(self) -> Self {
        self.hold.holding.delivered();
        self
    }

    /// Releases this guard; with the owner's last guard, the lock itself.
    ///
    /// A request whose reply is lost is sent again, until the lease would have expired. With
    /// [succession](crate::Locks::with_succession), the lock may instead pass at once to a waiter of this client.
    ///
    /// # Cancel safety
    ///
    /// When dropped, the release goes on in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lease expired before the release, another acquired the lock, or the store forgot it:
    /// protected data may have changed. [`Error::Unavailable`] if the store did not answer before the lease expired.
    pub async fn release(mut self) -> Result<(), Error> {
        self.counted = false;
        match self.hold.leave() {
            Ok(Some(releasing)) => releasing.finish().await,
            Ok(None) => Ok(()),
            Err(_) => Err(self.hold.lost_error()),
        }
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
        if self.counted {
            // Dropping the result finishes the release in the background.
            drop(self.hold.leave());
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.hold).finish()
    }
}
