//! One lock and its options.

use crate::{
    contract::{
        Capability, Error, HolderInfo, InvalidName, Mode, Name, Owner, StandingKind,
        lease::{self, MIN_LEASE},
    },
    policy::guard::Guard,
    policy::{acquire::Acquisition, client::Client, holding::HoldOptions, succession::Terms},
};
use std::{
    fmt,
    num::NonZeroU32,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tracing::Span;

/// A lock to acquire: a name and options. Made by [`Locks::lock`](crate::Locks::lock).
///
/// It holds nothing by itself. Keep it, clone it, acquire it as often as you like. Invalid options are refused before
/// the store is asked.
#[derive(Clone)]
#[must_use = "a Lock holds nothing until it is acquired"]
pub struct Lock {
    client: Arc<Client>,
    name: Result<Name, InvalidName>,
    lease: Option<Duration>,
    wait: Option<Duration>,
    max_hold: Option<Duration>,
    hold_at_least: Option<Duration>,
    renews: bool,
    label: Option<String>,
    owner: Option<Owner>,
    mode: UncheckedMode,
}

/// A mode as the program gave it: its numbers are not checked yet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UncheckedMode {
    Exclusive,
    Shared,
    Permits { take: u32, of: u32 },
}

impl Lock {
    pub(crate) fn new(client: Arc<Client>, name: Result<Name, InvalidName>) -> Self {
        Self {
            client,
            name,
            lease: None,
            wait: None,
            max_hold: None,
            hold_at_least: None,
            renews: true,
            label: None,
            owner: None,
            mode: UncheckedMode::Exclusive,
        }
    }

    pub(crate) fn held_as(mut self, mode: UncheckedMode) -> Self {
        self.mode = mode;
        self
    }

    /// Undoes [`wait`](Self::wait).
    pub(crate) fn wait_for_ever(mut self) -> Self {
        self.wait = None;
        self
    }

    /// Sets how long the store keeps the lock without hearing from its holder: 100 ms to 365 days. Default: 30 s.
    ///
    /// It is renewed after a third of that time. With a short lease, a dead holder's lock is free sooner; a long one
    /// survives longer outages of the store. A session store (`ZooKeeper`, `etcd`) uses its session's timeout instead.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets how long [`acquire`](Self::acquire) waits at most: up to 365 days. Zero means one attempt. Default: no
    /// limit.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets whether the lease is renewed in the background. Default: `true`. Without renewal the lock is held for one
    /// lease, or as long as [`extend`](crate::Hold::extend) makes it.
    pub fn renew(mut self, renews: bool) -> Self {
        self.renews = renews;
        self
    }

    /// Sets how long the lock may be held at most: 100 ms to 365 days. Default: no limit.
    ///
    /// After that it is lost, with [`LossCause::MaxHold`](crate::LossCause::MaxHold), and the store frees it at most
    /// one lease later. So a holder that hangs cannot keep a lock for ever.
    ///
    /// In a [`LockSet`](crate::LockSet) it counts from each name's own grant: while the set waits for a busy name, it
    /// may lose those that it has, and then acquires all of them again.
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.max_hold = Some(longest);
        self
    }

    /// Sets how long the lock stays held at least, counted from its grant: 100 ms to 365 days. Default: it is free as
    /// soon as it is released.
    ///
    /// After a release before that, the store keeps the lock for the rest of the time, even if this program has ended by
    /// then. So a short job that several machines start by their clocks runs once, although their clocks differ.
    /// `ShedLock` calls this `lockAtLeastFor`.
    ///
    /// The store's lease is at least as long, so that this also holds for a holder that dies; it is renewed as often as
    /// the [lease](Self::lease) asks. A release by force frees the lock at once.
    ///
    /// For one name at a time: a [`LockSet`](crate::LockSet) of several refuses it. A store whose grants end with a session
    /// refuses it too, with [`Error::Unsupported`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # use std::time::Duration;
    /// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
    /// let nightly = locks.lock("nightly").hold_at_least(Duration::from_secs(50));
    /// if let Some(guard) = nightly.try_acquire().await? {
    ///     // The job takes a second.
    ///     guard.release().await?;
    /// }
    /// assert!(nightly.try_acquire().await?.is_none(), "a machine whose clock is 20 s late finds it held");
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_at_least(mut self, shortest: Duration) -> Self {
        self.hold_at_least = Some(shortest);
        self
    }

    /// Sets a text for people, shown by `tenure ls`: at most 200 bytes without control characters. It is not kept
    /// secret.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Lets `owner` re-enter what it already holds: see [`Owner`].
    ///
    /// A re-entry shares the grant, with the token, lease and options of the first acquisition.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Acquires the lock, waiting while another holds it.
    ///
    /// Waiters of one client are served first come, first served; waiters of different clients only where the store can
    /// do so. While the store is unavailable, this asks again, with pauses, as long as [`wait`](Self::wait) allows.
    ///
    /// If the answer took a third of the lease or more, the grant is renewed before it is returned, because the lease
    /// counts from the request.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future at any point leaves no grant and no place in a queue. A grant that the store
    /// may have made meanwhile is withdrawn in the background.
    ///
    /// Poll the future until it is done, or drop it. One that is left alone while it asks the store keeps the other
    /// waiters of this client out.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when the wait is over; [`Error::Unavailable`] when it is over and the store was unavailable;
    /// [`Error::Lost`] if the [`owner`](Self::owner) has lost this lock and still has guards of it;
    /// [`Error::InvalidName`] and [`Error::InvalidOption`] before the store is asked; [`Error::Closed`]; and
    /// [`Error::Store`] or [`Error::Unsupported`] if the store cannot carry out the request.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// use std::time::Duration;
    /// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
    ///
    /// let guard = locks.lock("report").lease(Duration::from_secs(10)).wait(Duration::from_secs(5)).acquire().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.checked()?.wait().await
    }

    /// Acquires the lock if it is free, with at most one attempt. Returns `None` if it is held, if another client or
    /// another task of this one is ahead in the queue, or if this client has just released it and lets another that
    /// waited go first.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire), but never [`Error::Timeout`]: an unavailable store is
    /// [`Error::Unavailable`] at once.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
    /// if let Some(guard) = locks.lock("report").try_acquire().await? {
    ///     println!("no other client writes the report");
    ///     guard.release().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.checked()?.once().await
    }

    /// Whether it stays held after an early release.
    pub(crate) fn stays_held(&self) -> bool {
        self.hold_at_least.is_some()
    }

    /// Checks that each option is within its range.
    pub(crate) fn checked(&self) -> Result<Acquisition, Error> {
        let check = |option, value: Option<Duration>, least| {
            value.map(|value| lease::check(option, value, least)).transpose()
        };
        let client = &self.client;
        let name = self.name.clone()?;
        let lease = check("lease", self.lease, MIN_LEASE)?.unwrap_or(client.default_lease);
        let wait = check("wait", self.wait, Duration::ZERO)?;
        let max_hold = check("max_hold", self.max_hold, MIN_LEASE)?;
        let hold_at_least = check("hold_at_least", self.hold_at_least, MIN_LEASE)?;
        if let (Some(shortest), Some(longest)) = (hold_at_least, max_hold)
            && shortest > longest
        {
            let range = format!("at most max_hold, {longest:?}");
            return Err(Error::invalid_option("hold_at_least", format!("{shortest:?}"), range));
        }
        if hold_at_least.is_some() && client.store.capabilities().standing == StandingKind::Session {
            return Err(client.store.unsupported(Capability::HoldingAtLeast));
        }
        // The store keeps a name that must stay held for longer. A loss is to be noticed as soon as without that.
        let (lease, pace) = match hold_at_least {
            Some(shortest) => (lease.max(shortest), lease),
            None => (lease, lease::MAX_LEASE),
        };
        let holder = match self.label.clone().map(HolderInfo::check_label).transpose()? {
            None => Arc::clone(&client.here),
            label => Arc::new(HolderInfo { label, ..(*client.here).clone() }),
        };
        let mode = self.mode.checked()?;
        client.store.can_hold(mode)?;
        let (owner, renews, callers) = (self.owner.clone(), self.renews, Span::current());
        let successors = client.successors.load(Ordering::Relaxed);
        let is_plain = mode == Mode::Exclusive && renews && max_hold.is_none() && hold_at_least.is_none();
        let terms = (successors > 0 && is_plain).then(|| {
            let holder = Arc::clone(&holder);
            Terms { lease, holder, successors }
        });
        let options = HoldOptions { owner, renews, pace, max_hold, hold_at_least, terms, callers };
        Ok(Acquisition { client: Arc::clone(client), name, lease, wait, mode, options, holder })
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.name)
            .field("lease", &self.lease)
            .field("wait", &self.wait)
            .field("renew", &self.renews)
            .field("max_hold", &self.max_hold)
            .field("hold_at_least", &self.hold_at_least)
            .field("label", &self.label)
            .field("owner", &self.owner)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl UncheckedMode {
    fn checked(self) -> Result<Mode, Error> {
        match self {
            Self::Exclusive => Ok(Mode::Exclusive),
            Self::Shared => Ok(Mode::Shared),
            Self::Permits { take, of } => {
                let of = NonZeroU32::new(of)
                    .ok_or_else(|| Error::invalid_option("permits of a semaphore", of, "1 to 4294967295"))?;
                let take = NonZeroU32::new(take).filter(|take| *take <= of).ok_or_else(|| {
                    Error::invalid_option(
                        "permits",
                        take,
                        format!("1 to {of}, the number that the semaphore has"),
                    )
                })?;
                Ok(Mode::Permit { take, of })
            }
        }
    }
}
