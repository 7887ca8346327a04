//! Faults in the server behind a store, and their healing.

mod start_stop;

pub use start_stop::StartStop;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

/// A fault in a server.
///
/// The seeded fault run draws from these. A case names the ones that it needs, and is ignored if [`Saboteur::can`] says
/// no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Hurt {
    /// [`Saboteur::freeze`].
    Freeze,
    /// [`Saboteur::kill`].
    Kill,
    /// [`Saboteur::restart_empty`].
    Wipe,
    /// [`Saboteur::cut`].
    Cut,
    /// [`Saboteur::refuse`].
    Refuse,
    /// [`Saboteur::delay`].
    Delay,
    /// [`Saboteur::drip`].
    Drip,
    /// [`Saboteur::half_open`].
    HalfOpen,
    /// [`Saboteur::drop_requests`].
    DropRequests,
    /// [`Saboteur::drop_replies`].
    DropReplies,
    /// [`Saboteur::lose_ends`].
    LoseEnds,
    /// [`Saboteur::expire_sessions`].
    ExpireSessions,
    /// [`Saboteur::terminate_backends`].
    TerminateBackends,
    /// [`Saboteur::flush_scripts`].
    FlushScripts,
    /// [`Saboteur::pause_writes`].
    PauseWrites,
    /// [`Saboteur::make_read_only`].
    ReadOnly,
    /// [`Saboteur::fill_connections`].
    FillConnections,
    /// [`Saboteur::fill_memory`].
    FillMemory,
    /// [`Saboteur::fill_disk`].
    FillDisk,
    /// [`Saboteur::lock_rows`].
    LockRows,
    /// [`Saboteur::lock_tables`].
    LockTables,
    /// [`Saboteur::partition`].
    Partition,
    /// [`Saboteur::freeze_one`].
    FreezeOne,
    /// [`Saboteur::kill_one`].
    KillOne,
}

impl Hurt {
    /// All faults.
    pub const ALL: [Self; 24] = [
        Self::Freeze,
        Self::Kill,
        Self::Wipe,
        Self::Cut,
        Self::Refuse,
        Self::Delay,
        Self::Drip,
        Self::HalfOpen,
        Self::DropRequests,
        Self::DropReplies,
        Self::LoseEnds,
        Self::ExpireSessions,
        Self::TerminateBackends,
        Self::FlushScripts,
        Self::PauseWrites,
        Self::ReadOnly,
        Self::FillConnections,
        Self::FillMemory,
        Self::FillDisk,
        Self::LockRows,
        Self::LockTables,
        Self::Partition,
        Self::FreezeOne,
        Self::KillOne,
    ];

    /// The faults of the network, which need only a proxy of ours in front of the server.
    pub const NETWORK: [Self; 7] = [
        Self::Cut,
        Self::Refuse,
        Self::Delay,
        Self::Drip,
        Self::HalfOpen,
        Self::DropRequests,
        Self::DropReplies,
    ];

    /// The faults of a single member of an ensemble.
    pub const OF_ONE: [Self; 3] = [Self::Partition, Self::FreezeOne, Self::KillOne];

    /// The faults that end the server's connections when they begin or when they are undone. They are what a store
    /// forgets if its grants last no longer than the connections on which they were made.
    pub const ENDS_CONNECTIONS: [Self; 8] = [
        Self::Kill,
        Self::Wipe,
        Self::Cut,
        Self::DropRequests,
        Self::DropReplies,
        Self::LoseEnds,
        Self::ExpireSessions,
        Self::TerminateBackends,
    ];
}

impl fmt::Display for Hurt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Freeze => "freeze",
            Self::Kill => "kill",
            Self::Wipe => "restart empty",
            Self::Cut => "cut connections",
            Self::Refuse => "refuse connections",
            Self::Delay => "delay",
            Self::Drip => "drip",
            Self::HalfOpen => "half-open",
            Self::DropRequests => "drop requests",
            Self::DropReplies => "drop replies",
            Self::LoseEnds => "lose the ends of transactions",
            Self::ExpireSessions => "expire sessions",
            Self::TerminateBackends => "terminate backends",
            Self::FlushScripts => "flush scripts",
            Self::PauseWrites => "pause writes",
            Self::ReadOnly => "make read-only",
            Self::FillConnections => "fill up connections",
            Self::FillMemory => "fill up memory",
            Self::FillDisk => "fill up the disk",
            Self::LockRows => "lock rows",
            Self::LockTables => "lock tables",
            Self::Partition => "partition",
            Self::FreezeOne => "freeze one member",
            Self::KillOne => "kill one member",
        })
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
    #[error("{server} could not {what}: {source}")]
    Failed {
        /// The attempt.
        what: &'static str,
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
/// Each fault is one method, with its undo beside it. The method returns when the fault is complete: a frozen server no
/// longer answers, and a restarted one answers again, at the same address. Faults add up; undoing one leaves the
/// others. Injecting a fault twice is the same as once, and an undo with nothing to undo does nothing.
///
/// By default, every fault is [`SabotageError::CannotHurt`], and every undo does nothing. So an implementation writes
/// only the faults that its server supports, and [`can`](Self::can) to say so.
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

    /// Undoes every fault, in an order that works, and returns when the server serves again.
    async fn heal(&self) -> Sabotage;

    /// Returns a number that changes with each failover. After a failover for any reason, the replica may lack the last
    /// grants of its master.
    async fn last_failover(&self) -> Result<u64, SabotageError> {
        Ok(0)
    }

    /// Freezes all processes of the server: connections stay open, and nothing is answered.
    async fn freeze(&self) -> Sabotage {
        self.cannot(Hurt::Freeze)
    }

    /// Resumes a frozen server.
    async fn thaw(&self) -> Sabotage {
        Ok(())
    }

    /// Kills the server (SIGKILL), without a chance to clean up. Connections are refused afterwards.
    async fn kill(&self) -> Sabotage {
        self.cannot(Hurt::Kill)
    }

    /// Starts the server again at the same address with the data that it had; kills it first if it runs.
    async fn restart(&self) -> Sabotage {
        self.cannot(Hurt::Kill)
    }

    /// Does the same as [`restart`](Self::restart), but with all stored data gone.
    async fn restart_empty(&self) -> Sabotage {
        self.cannot(Hurt::Wipe)
    }

    /// Resets every open connection (RST). New ones are served, so nothing needs to be undone.
    async fn cut(&self) -> Sabotage {
        self.cannot(Hurt::Cut)
    }

    /// Refuses new connections; open ones continue. Undone by [`mend`](Self::mend).
    async fn refuse(&self) -> Sabotage {
        self.cannot(Hurt::Refuse)
    }

    /// Delays the bytes of one direction by `by`, in order. Undone by [`mend`](Self::mend).
    async fn delay(&self, direction: Direction, by: Duration) -> Sabotage {
        let _ = (direction, by);
        self.cannot(Hurt::Delay)
    }

    /// Hands bytes on one at a time in both directions, with this pause after each, so that something arrives all the while
    /// and little is complete. Undone by [`mend`](Self::mend), which delivers the rest.
    async fn drip(&self, pause: Duration) -> Sabotage {
        let _ = pause;
        self.cannot(Hurt::Drip)
    }

    /// Makes every connection, open or new, hang: it is accepted and never answered, and the server sees nothing.
    /// Undone by [`mend`](Self::mend), which delivers what was held back.
    async fn half_open(&self) -> Sabotage {
        self.cannot(Hurt::HalfOpen)
    }

    /// Drops requests; the replies to earlier ones still arrive. Undone by [`mend`](Self::mend), which resets the
    /// connections that lost a request.
    async fn drop_requests(&self) -> Sabotage {
        self.cannot(Hurt::DropRequests)
    }

    /// Lets requests reach the server and drops its replies. Undone by [`mend`](Self::mend), which resets the
    /// connections that lost a reply: no network loses bytes inside a connection and carries on.
    async fn drop_replies(&self) -> Sabotage {
        self.cannot(Hurt::DropReplies)
    }

    /// Makes every client stop within its transaction: what would end it (`COMMIT`, `ROLLBACK`) is lost, and so is
    /// everything after it on that connection, including its closing. Connections whose statements each commit by
    /// themselves continue. Undone by [`mend`](Self::mend), which resets the connections that lost something.
    async fn lose_ends(&self) -> Sabotage {
        self.cannot(Hurt::LoseEnds)
    }

    /// Undoes [`refuse`](Self::refuse), [`delay`](Self::delay), [`drip`](Self::drip), [`half_open`](Self::half_open),
    /// [`drop_requests`](Self::drop_requests), [`drop_replies`](Self::drop_replies) and [`lose_ends`](Self::lose_ends).
    async fn mend(&self) -> Sabotage {
        Ok(())
    }

    /// Ends every client's session as the server does when one expires. Nothing needs to be undone.
    async fn expire_sessions(&self) -> Sabotage {
        self.cannot(Hurt::ExpireSessions)
    }

    /// Makes the server end the backends that serve its clients, as an administrator would (`pg_terminate_backend`,
    /// `KILL`, `CLIENT KILL`). Nothing needs to be undone.
    async fn terminate_backends(&self) -> Sabotage {
        self.cannot(Hurt::TerminateBackends)
    }

    /// Empties the server's cache of scripts. Nothing needs to be undone.
    async fn flush_scripts(&self) -> Sabotage {
        self.cannot(Hurt::FlushScripts)
    }

    /// Holds all writes inside the server for at most `at_most`, and executes them later (`CLIENT PAUSE … WRITE`).
    async fn pause_writes(&self, at_most: Duration) -> Sabotage {
        let _ = at_most;
        self.cannot(Hurt::PauseWrites)
    }

    /// Executes the held writes.
    async fn resume_writes(&self) -> Sabotage {
        Ok(())
    }

    /// Makes the server refuse writes, as a replica does after a failover.
    async fn make_read_only(&self) -> Sabotage {
        self.cannot(Hurt::ReadOnly)
    }

    /// Makes the server accept writes again.
    async fn make_writable(&self) -> Sabotage {
        Ok(())
    }

    /// Uses up all of the server's remaining connections, so that the server itself refuses new ones.
    async fn fill_connections(&self) -> Sabotage {
        self.cannot(Hurt::FillConnections)
    }

    /// Frees those connections.
    async fn free_connections(&self) -> Sabotage {
        Ok(())
    }

    /// Makes the server refuse what needs more memory, as a full one does. It keeps its data.
    async fn fill_memory(&self) -> Sabotage {
        self.cannot(Hurt::FillMemory)
    }

    /// Frees the server's memory.
    async fn free_memory(&self) -> Sabotage {
        Ok(())
    }

    /// Makes the server refuse to add to tenure's tables or change them, as one with a full disk does. It still reads
    /// and deletes. Leaves out a table that is so busy that this cannot be prepared in time.
    async fn fill_disk(&self) -> Sabotage {
        self.cannot(Hurt::FillDisk)
    }

    /// Frees space on the server's disk.
    async fn free_disk(&self) -> Sabotage {
        Ok(())
    }

    /// Locks every unlocked row of tenure's tables, in a transaction of another session.
    async fn lock_rows(&self) -> Sabotage {
        self.cannot(Hurt::LockRows)
    }

    /// Ends that transaction.
    async fn unlock_rows(&self) -> Sabotage {
        Ok(())
    }

    /// Locks tenure's tables against all other sessions, including readers. It waits for current users of a table, and
    /// later ones wait behind it. Leaves out a table that it cannot lock in time.
    async fn lock_tables(&self) -> Sabotage {
        self.cannot(Hurt::LockTables)
    }

    /// Unlocks the tables.
    async fn unlock_tables(&self) -> Sabotage {
        Ok(())
    }

    /// Cuts these members of an ensemble off from the others. Clients still reach all of them.
    async fn partition(&self, members: &[usize]) -> Sabotage {
        let _ = members;
        self.cannot(Hurt::Partition)
    }

    /// Returns how many members an ensemble has. They are numbered from 0.
    fn members(&self) -> usize {
        1
    }

    /// Does the same as [`freeze`](Self::freeze) to one member of an ensemble. Undone by [`thaw`](Self::thaw).
    async fn freeze_one(&self, member: usize) -> Sabotage {
        let _ = member;
        self.cannot(Hurt::FreezeOne)
    }

    /// Does the same as [`kill`](Self::kill) to one member of an ensemble. Undone by [`heal`](Self::heal).
    async fn kill_one(&self, member: usize) -> Sabotage {
        let _ = member;
        self.cannot(Hurt::KillOne)
    }

    /// Reconnects the members of an ensemble.
    async fn rejoin(&self) -> Sabotage {
        Ok(())
    }

    /// The answer to a fault that this server does not support.
    fn cannot(&self, hurt: Hurt) -> Sabotage {
        Err(SabotageError::CannotHurt { hurt, server: self.server() })
    }
}
