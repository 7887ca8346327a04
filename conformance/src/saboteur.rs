//! Faults in the server behind a store, and their healing.

mod start_stop;

pub use start_stop::StartStop;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

/// Each fault, what it does, and its name for people.
macro_rules! hurts {
    ($($(#[$does:meta])+ $hurt:ident: $words:literal,)+) => {
        /// A kind of fault in a server.
        ///
        /// The seeded fault run draws from these. A case names the ones that it needs, and is ignored if
        /// [`Saboteur::can`] says no.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Hurt {
            $($(#[$does])+ $hurt,)+
        }

        impl Hurt {
            /// All faults.
            pub const ALL: [Self; [$($words),+].len()] = [$(Self::$hurt),+];
        }

        impl fmt::Display for Hurt {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$hurt => $words,)+
                })
            }
        }
    };
}

hurts! {
    /// Freezes all processes of the server: connections stay open, and nothing is answered.
    Freeze: "freeze",
    /// Kills the server (SIGKILL), without a chance to clean up. Connections are refused afterwards. Undone by a start
    /// at the same address, with the data that it had.
    Kill: "kill",
    /// Kills the server, and starts it again without its data. Nothing needs to be undone.
    Wipe: "restart empty",
    /// Resets every open connection (RST). New ones are served, so nothing needs to be undone.
    Cut: "cut connections",
    /// Refuses new connections; open ones continue.
    Refuse: "refuse connections",
    /// Delays requests by the injection's time, in order.
    DelayRequests: "delay requests",
    /// Delays replies by the injection's time, in order.
    DelayReplies: "delay replies",
    /// Hands bytes on one at a time in both directions, with a pause of the injection's time after each, so that
    /// something arrives all the while and little is complete. Undone, the rest is delivered.
    Drip: "drip",
    /// Makes every connection, open or new, hang: it is accepted and never answered, and the server sees nothing.
    /// Undone, what was held back is delivered.
    HalfOpen: "half-open",
    /// Drops requests; the replies to earlier ones still arrive. Undone, the connections that lost a request are reset.
    DropRequests: "drop requests",
    /// Lets requests reach the server and drops its replies. Undone, the connections that lost a reply are reset: no
    /// network loses bytes inside a connection and carries on.
    DropReplies: "drop replies",
    /// Makes every client stop within its transaction: what would end it (`COMMIT`, `ROLLBACK`) is lost, and so is
    /// everything after it on that connection, including its closing. Connections whose statements each commit by
    /// themselves continue. Undone, the connections that lost something are reset.
    LoseEnds: "lose the ends of transactions",
    /// Ends every client's session as the server does when one expires. Nothing needs to be undone.
    ExpireSessions: "expire sessions",
    /// Makes the server end the backends that serve its clients, as an administrator would (`pg_terminate_backend`,
    /// `KILL`, `CLIENT KILL`). Nothing needs to be undone.
    TerminateBackends: "terminate backends",
    /// Empties the server's cache of scripts. Nothing needs to be undone.
    FlushScripts: "flush scripts",
    /// Holds all writes inside the server for at most the injection's time, and executes them later (`CLIENT PAUSE …
    /// WRITE`).
    PauseWrites: "pause writes",
    /// Makes the server refuse writes, as a replica does after a failover.
    ReadOnly: "make read-only",
    /// Uses up all of the server's remaining connections, so that the server itself refuses new ones.
    FillConnections: "fill up connections",
    /// Makes the server refuse what needs more memory, as a full one does. It keeps its data.
    FillMemory: "fill up memory",
    /// Makes the server refuse to add to tenure's tables or change them, as one with a full disk does. It still reads
    /// and deletes. Leaves out a table that is so busy that this cannot be prepared in time.
    FillDisk: "fill up the disk",
    /// Locks every unlocked row of tenure's tables, in a transaction of another session.
    LockRows: "lock rows",
    /// Locks tenure's tables against all other sessions, including readers. It waits for current users of a table, and
    /// later ones wait behind it. Leaves out a table that it cannot lock in time.
    LockTables: "lock tables",
    /// Restarts the members of an ensemble, one after the other, as an update does. Nothing needs to be undone.
    RestartEach: "restart the members in turn",
    /// Cuts the injection's member of an ensemble off from the others. Clients still reach all of them.
    Partition: "partition",
    /// Drops all messages from the injection's member of an ensemble to the others, whose messages it still gets. Clients still reach all
    /// of them. Undone, the connections between members that lost something are reset.
    Mute: "partition in one direction",
    /// Makes every client's connection to the injection's member of an ensemble hang.
    HideOne: "hide one member",
    /// Freezes the injection's member of an ensemble.
    FreezeOne: "freeze one member",
    /// Kills the injection's member of an ensemble.
    KillOne: "kill one member",
    /// Sets the server's clock ahead by the injection's time. Nothing needs to be undone.
    ClockAhead: "set the clock ahead",
    /// Sets the server's clock back by the injection's time. Nothing needs to be undone.
    ClockBack: "set the clock back",
}

impl Hurt {
    /// The faults of the network, which need only a proxy of ours in front of the server.
    pub const NETWORK: [Self; 8] = [
        Self::Cut,
        Self::Refuse,
        Self::DelayRequests,
        Self::DelayReplies,
        Self::Drip,
        Self::HalfOpen,
        Self::DropRequests,
        Self::DropReplies,
    ];

    /// The faults of a single member of an ensemble.
    pub const OF_ONE: [Self; 5] =
        [Self::Partition, Self::Mute, Self::HideOne, Self::FreezeOne, Self::KillOne];

    /// The faults that end the server's connections when they begin or when they are undone. They are what a store
    /// forgets if its grants last no longer than the connections on which they were made.
    pub const ENDS_CONNECTIONS: [Self; 10] = [
        Self::Kill,
        Self::Wipe,
        Self::Cut,
        Self::DropRequests,
        Self::DropReplies,
        Self::LoseEnds,
        Self::ExpireSessions,
        Self::TerminateBackends,
        Self::RestartEach,
        Self::KillOne,
    ];

    /// Whether the fault goes on until it is undone.
    #[must_use]
    pub const fn lasts(self) -> bool {
        !matches!(
            self,
            Self::Wipe
                | Self::Cut
                | Self::ExpireSessions
                | Self::TerminateBackends
                | Self::FlushScripts
                | Self::RestartEach
                | Self::ClockAhead
                | Self::ClockBack
        )
    }

    const fn has_terms(self) -> bool {
        matches!(
            self,
            Self::DelayRequests
                | Self::DelayReplies
                | Self::Drip
                | Self::PauseWrites
                | Self::Partition
                | Self::Mute
                | Self::HideOne
                | Self::FreezeOne
                | Self::KillOne
                | Self::ClockAhead
                | Self::ClockBack
        )
    }

    /// This fault with a time: how late something is, how long it lasts, or by how much a clock is set.
    #[must_use]
    pub const fn by(self, time: Duration) -> Injection {
        Injection { hurt: self, by: time, member: 0 }
    }

    /// This fault in one member of an ensemble.
    #[must_use]
    pub const fn of(self, member: usize) -> Injection {
        Injection { hurt: self, by: Duration::ZERO, member }
    }
}

/// A fault with its terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    /// The kind of fault.
    pub hurt: Hurt,
    /// How late something is, how long it lasts, or by how much a clock is set, for the kinds that say so.
    pub by: Duration,
    /// The member of an ensemble, for [faults of one](Hurt::OF_ONE).
    pub member: usize,
}

impl From<Hurt> for Injection {
    fn from(hurt: Hurt) -> Self {
        hurt.of(0)
    }
}

/// As the fault is called in a timeline: `delay replies by 300.0ms`, `kill one member (2)`.
impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hurt, by, member } = self;
        match hurt {
            hurt if Hurt::OF_ONE.contains(hurt) => write!(f, "{hurt} ({member})"),
            hurt if by.is_zero() => write!(f, "{hurt}"),
            hurt => write!(f, "{hurt} by {by:.1?}"),
        }
    }
}

/// A direction of the traffic between clients and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Replies,
}

/// Why a fault could not be injected or healed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SabotageError {
    /// This server does not support the fault: a capability, not an error. A case that needs it is ignored.
    #[error("{server} cannot be hurt by: {hurt}")]
    CannotHurt {
        /// The requested fault.
        hurt: Hurt,
        /// The server's name for people.
        server: String,
    },
    /// The attempt failed. The server may be in any state; [`Saboteur::heal`] tries to bring it back.
    #[error("{server}: {what} failed: {source}")]
    Failed {
        /// The attempt.
        what: String,
        /// The server's name for people.
        server: String,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// The answer of a [`Saboteur`].
pub type Sabotage = Result<(), SabotageError>;

/// Injects faults into one server (or one member of an ensemble, or all of it), and heals it.
///
/// A fault is complete when [`inject`](Self::inject) returns: a frozen server no longer answers, and a restarted one
/// answers again, at the same address. Faults add up; undoing one leaves the others. Injecting a fault twice is the same
/// as once, and an undo with nothing to undo does nothing.
///
/// # Cancel safety
///
/// A dropped future may leave the fault done, half done or undone. [`heal`](Self::heal) repairs every case.
///
/// # Errors
///
/// [`SabotageError::CannotHurt`] exactly if [`can`](Self::can) says no, and [`SabotageError::Failed`] if the attempt
/// failed.
#[async_trait]
pub trait Saboteur: fmt::Debug + Send + Sync {
    /// The server's name for people: `redis (container of redis:7)`.
    fn server(&self) -> String;

    /// Whether this server supports this fault.
    fn can(&self, hurt: Hurt) -> bool;

    /// Injects a fault.
    async fn inject(&self, injection: Injection) -> Sabotage;

    /// Undoes a fault, if it is there. The [faults of the network](Hurt::NETWORK), [`Hurt::LoseEnds`] and
    /// [`Hurt::HideOne`] are undone together.
    async fn undo(&self, hurt: Hurt) -> Sabotage;

    /// Undoes every fault, in an order that works, and returns when the server serves again.
    async fn heal(&self) -> Sabotage;

    /// Starts the server again at the same address with the data that it had; kills it first if it runs. It does so if
    /// it can do [`Hurt::Kill`].
    async fn restart(&self) -> Sabotage {
        self.hurt(Hurt::Kill).await?;
        self.undo(Hurt::Kill).await
    }

    /// Returns a number that changes with each failover. After a failover for any reason, the replica may lack the last
    /// grants of its master.
    async fn last_failover(&self) -> Result<u64, SabotageError> {
        Ok(0)
    }

    /// Returns how many members an ensemble has. They are numbered from 0.
    fn members(&self) -> usize {
        1
    }

    /// Injects a fault that has no terms.
    ///
    /// # Panics
    ///
    /// If it has, in a debug build: without them it would do nothing.
    async fn hurt(&self, hurt: Hurt) -> Sabotage {
        debug_assert!(!hurt.has_terms(), "{hurt} needs Hurt::by or Hurt::of");
        self.inject(hurt.into()).await
    }

    /// Undoes all faults of the network.
    async fn mend(&self) -> Sabotage {
        self.undo(Hurt::HalfOpen).await
    }

    /// The answer to a fault that this server does not support.
    fn cannot(&self, hurt: Hurt) -> Sabotage {
        Err(SabotageError::CannotHurt { hurt, server: self.server() })
    }
}
