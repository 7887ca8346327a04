//! The state of a held lock.

use super::{
    client::Client,
    holding::{HoldOptions, Holding},
    queue::Seat,
};
use crate::contract::{ClaimId, Error, Grant, LossCause, Mode, Moment, Name, Token};
use std::{fmt, future::Future, sync::Arc};

/// A view of a lock that is held: its token, its state, its loss. It cannot release, and it does not keep the lock.
///
/// [`Guard`](crate::Guard) dereferences to it, and [`run`](crate::Lock::run) hands it to the work. [`hold`](Self::hold)
/// returns another view. It is not `Clone`, because a guard's `clone()` would then be a view that keeps nothing.
pub struct Hold {
    pub(super) client: Arc<Client>,
    pub(super) holding: Arc<Holding>,
}

impl Hold {
    /// Begins to hold, unless the answer came so late that the grant has already expired.
    pub(super) fn begin(
        client: &Arc<Client>,
        grant: Grant,
        options: HoldOptions,
        seat: Seat,
    ) -> Result<Self, Seat> {
        let callers = options.callers.clone();
        let holding = Holding::begin(client.renewals.next_id(), &client.store, grant, options, seat)?;
        if holding.owner.is_some() {
            client.owned.add(&holding);
            // Another task of this owner may be waiting for the turn.
            client.queues.tell(&holding.grant.name);
        }
        // Only now: if such a task gets the turn, it must find the hold (clause R1).
        if holding.grant.mode != Mode::Exclusive {
            drop(holding.pass_turn());
        }
        client.renewals.add(&holding);
        // Not before it is renewed, because a log may block.
        holding.trace(&callers);
        Ok(Self { client: Arc::clone(client), holding })
    }

    /// The error for a hold that was lost.
    pub(crate) fn lost_error(&self) -> Error {
        self.holding.lost_error()
    }

    /// Returns another view of the hold, for code that may look but not release. It is cheap.
    #[must_use]
    pub fn hold(&self) -> Self {
        Self { client: Arc::clone(&self.client), holding: Arc::clone(&self.holding) }
    }

    /// Returns the lock's name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.holding.grant.name
    }

    /// Returns the hold's fencing token. Send it along with every write that the lock protects, and let the resource
    /// refuse a smaller one.
    #[must_use]
    pub fn token(&self) -> Token {
        self.holding.token()
    }

    /// Returns how the lock is held: exclusively, shared, or with permits.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.holding.mode()
    }

    /// Returns the claim's identity, as `tenure ls --json` shows it.
    #[must_use]
    pub fn claim(&self) -> ClaimId {
        self.holding.grant.claim
    }

    /// Returns whether the lock is held, as far as can be told without asking the store.
    ///
    /// True from the grant until the release or the loss, whichever comes first, and never again. It compares clocks,
    /// so it is right immediately after the process was frozen, before any timer has fired.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holding.is_held()
    }

    /// Returns until when the lock is held if no further renewal succeeds, at the latest until
    /// [`max_hold`](crate::Lock::max_hold) ends; `None` once it is released or lost.
    #[must_use]
    pub fn deadline(&self) -> Option<Moment> {
        self.holding.deadline()
    }

    /// Returns why the lock was lost; `None` if it is held or was released.
    #[must_use]
    pub fn loss(&self) -> Option<LossCause> {
        self.holding.loss()
    }

    /// Waits until the lock is lost, and returns why.
    ///
    /// Resolves when the store says that the grant is gone, or when the deadline passes without a renewal, whichever
    /// comes first. Resolves at once if the lock is already lost, and never because of a release. Afterwards
    /// [`is_held`](Self::is_held) is `false` for ever.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Panics
    ///
    /// If polled in a tokio runtime without time enabled. Outside a runtime it relies on the renewal thread alone.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
    /// # async fn work() {}
    /// let guard = locks.lock("etl").acquire().await?;
    /// tokio::select! {
    ///     () = work() => guard.release().await?,
    ///     cause = guard.lost() => eprintln!("stopped: {cause}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = LossCause> + Send + Sync + 'static {
        let hold = self.hold();
        async move { hold.holding.lost().await }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", self.name())
            .field("token", &self.token())
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        api::Locks,
        contract::{LossCause, lease::MIN_LEASE},
        memory::Memory,
    };

    /// A freeze, as the process sees it: time has passed, and no timer has run yet.
    #[tokio::test]
    async fn expired_hold_is_noticed_after_a_freeze() {
        let lock = Locks::new(Memory::new()).semaphore("a", 3).permit().lease(MIN_LEASE).renew(false);
        let [one, two, three] = [lock.acquire().await, lock.acquire().await, lock.acquire().await];
        std::thread::sleep(MIN_LEASE * 2);
        assert_eq!(one.unwrap().deadline(), None);
        assert!(!two.unwrap().is_held());
        assert_eq!(three.unwrap().loss(), Some(LossCause::Expired));
    }
}
