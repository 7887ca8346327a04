//! The capabilities of stores.

use std::{fmt, time::Duration};

/// The capabilities of a store.
///
/// # Examples
///
/// A store with leases whose waiters can only poll, which is how most new stores begin:
///
/// ```
/// use tenure_core::Capabilities;
///
/// let plain = Capabilities { listing: true, ..Capabilities::POLLED };
/// assert!(!plain.fair);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "a flat list of yes and no is what this type is for")]
pub struct Capabilities {
    /// How an unreleased grant ends: lease or session.
    pub standing: StandingKind,
    /// How far the time in the store's answers may be behind its clock. A grant may outlast its lease by up to twice that
    /// (clause L1). Zero unless the store tells no time, but dates what is written.
    pub margin: Duration,
    /// How a waiter learns that it is worth asking again.
    pub wakeup: Wakeup,
    /// The longest time for which a waiter does not ask the store again, with or without a hint (clause W4).
    pub ask_again: Duration,
    /// Whether waiters of different clients are served first come, first served.
    pub fair: bool,
    /// Whether [`Mode::Shared`](crate::Mode::Shared) is supported.
    pub shared: bool,
    /// Whether [`Mode::Permit`](crate::Mode::Permit) is supported.
    pub permits: bool,
    /// Whether [`latch`](crate::Backend::latch) is supported.
    pub latches: bool,
    /// Whether [`try_acquire_all`](crate::Backend::try_acquire_all) grants several names in one request.
    pub together: bool,
    /// Whether [`holders`](crate::Backend::holders) and [`list`](crate::Backend::list) list holders.
    pub listing: bool,
    /// Whether [`waiting`](crate::Backend::waiting) lists waiters. This needs a queue that can be listed.
    pub waiting: bool,
    /// How many tokens a grant can [reserve](crate::Claim::reserve), and so how many successors in a row it can have by
    /// [succession](crate::Locks::with_succession). Zero: none. A grant and its release must take longer than that many
    /// microseconds, so that tokens do not run ahead of the store's clock: a store that has forgotten the last token
    /// continues from its clock (clause T2).
    pub succession: u32,
    /// How many grants one renewal request may carry.
    pub renew_batch: usize,
}

/// How an unreleased grant ends: lease or session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StandingKind {
    /// A lease on the store's clock.
    Lease,
    /// The end of a session or connection.
    Session,
}

/// How a waiter learns that it is worth asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wakeup {
    /// It polls, with growing pauses up to [`Capabilities::ask_again`].
    Poll,
    /// The store tells it when the holder releases.
    Push,
    /// It waits in the store's queue and is told when its turn has come.
    Queue,
}

impl Capabilities {
    /// Leases, and waiters that ask again at least every 50 ms: the base for other stores' values.
    pub const POLLED: Self = Self {
        standing: StandingKind::Lease,
        margin: Duration::ZERO,
        wakeup: Wakeup::Poll,
        ask_again: Duration::from_millis(50),
        fair: false,
        shared: false,
        permits: false,
        latches: false,
        together: false,
        listing: false,
        waiting: false,
        succession: 0,
        renew_batch: 500,
    };
}

/// Something that not every store can do, named by [`Error::Unsupported`](crate::Error::Unsupported).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// Listing holders.
    Listing,
    /// Listing waiters.
    Waiting,
    /// Releasing a lock by force.
    ForcedRelease,
    /// Extending a lease by hand.
    Extending,
    /// Holding a lock for a least time, although it is released sooner.
    HoldingAtLeast,
    /// [Shared mode](crate::Mode::Shared), which readers need.
    Shared,
    /// Semaphores.
    Permits,
    /// Latches.
    Latches,
    /// [Succession](crate::Locks::with_succession) inside a process.
    Succession,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listing => "listing holders",
            Self::Waiting => {
                "listing waiters (memory, ZooKeeper, etcd, NATS and object stores do; Redis and lease rows do with fair=true in \
                 the URL of every client)"
            }
            Self::ForcedRelease => "releasing a lock by force",
            Self::Extending => "extending a lease by hand (all built-in stores except ZooKeeper, etcd, row locks and advisory locks do)",
            Self::HoldingAtLeast => {
                "keeping a lock held after its release (all built-in stores except ZooKeeper, etcd, row locks and advisory locks do)"
            }
            Self::Shared => "shared mode (all built-in stores except row locks, Redlock, and advisory locks in MySQL and MariaDB do)",
            Self::Permits => "semaphores (all built-in stores except row locks, advisory locks and Redlock do)",
            Self::Latches => "latches (all built-in stores except Redlock do)",
            Self::Succession => {
                "succession here (all built-in stores except ZooKeeper, etcd, Redlock, row locks and advisory locks do, \
                 without fair=true); remove succession= or fair=true"
            }
        })
    }
}
