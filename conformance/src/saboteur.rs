//! Ways to hurt the server behind a store, and to heal it again.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

/// One way to hurt a server.
///
/// The seeded fault run draws from these; a case names the ones it needs, and is ignored where
/// [`Saboteur::can`] says no.
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
    /// [`Saboteur::half_open`].
    HalfOpen,
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
}

impl Hurt {
    /// Every hurt there is.
    pub const ALL: [Self; 20] = [
        Self::Freeze,
        Self::Kill,
        Self::Wipe,
        Self::Cut,
        Self::Refuse,
        Self::Delay,
        Self::HalfOpen,
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
    ];

    /// What the hurts on the network need: a proxy of ours in front of the server, and no more.
    pub const NETWORK: [Self; 5] = [Self::Cut, Self::Refuse, Self::Delay, Self::HalfOpen, Self::DropReplies];

    /// Those that end connections which the server has, when they begin or when they are undone: what a store forgets
    /// whose grants stand no longer than the connections that they were made on.
    pub const ENDS_CONNECTIONS: [Self; 7] = [
        Self::Kill,
        Self::Wipe,
        Self::Cut,
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
            Self::HalfOpen => "half-open",
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
        })
    }
}

/// One way of the traffic between clients and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Replies,
}

/// Why a server was not hurt, or not healed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SabotageError {
    /// This server cannot be hurt that way: a capability, not a fault. A case that needs it is ignored.
    #[error("{server} cannot be hurt by: {hurt}")]
    CannotHurt {
        /// The hurt that was asked for.
        hurt: Hurt,
        /// The server, as a person would call it.
        server: String,
    },
    /// The attempt failed. The server may be in any state; [`Saboteur::heal`] tries to bring it back.
    #[error("{server} could not {what}: {source}")]
    Failed {
        /// What was tried.
        what: &'static str,
        /// The server, as a person would call it.
        server: String,
        /// What came in the way.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// What a [`Saboteur`] answers.
pub type Sabotage = Result<(), SabotageError>;

/// Hurts one server (or one member of an ensemble, or all of it) and heals it again.
///
/// Each hurt is one method with its undo beside it. A hurt is complete when the method returns: a frozen server
/// answers nothing more, a restarted one answers again, at the same address. Hurts add up; undoing one leaves the others.
/// Hurting twice is the same as once, and so is an undo with nothing to undo.
///
/// Every method's default is [`SabotageError::CannotHurt`] (an undo's: nothing), so an implementation
/// writes only what its server can suffer, and [`can`](Self::can) to say so.
///
/// # Cancel safety
///
/// A dropped future may leave the hurt done, half done or undone. [`heal`](Self::heal) puts every case right.
///
/// # Errors
///
/// [`SabotageError::CannotHurt`] exactly when [`can`](Self::can) says no, [`SabotageError::Failed`] when the attempt failed.
#[async_trait]
pub trait Saboteur: fmt::Debug + Send + Sync {
    /// The server's name for people: `redis (container of redis:7)`.
    fn server(&self) -> String;

    /// Whether this server can be hurt that way.
    fn can(&self, hurt: Hurt) -> bool;

    /// Undoes every hurt, in the order that works, and returns when the server serves again.
    async fn heal(&self) -> Sabotage;

    /// A number that is another after each failover. Whatever the reason for one, the replica may lack what its master
    /// granted last.
    async fn last_failover(&self) -> Result<u64, SabotageError> {
        Ok(0)
    }

    /// Stops the server's every process where it stands: connections stay open, nothing is answered.
    async fn freeze(&self) -> Sabotage {
        self.cannot(Hurt::Freeze)
    }

    /// Lets a frozen server go on.
    async fn thaw(&self) -> Sabotage {
        Ok(())
    }

    /// Ends the server at once, without a chance to tidy up (SIGKILL). Connections are refused afterwards.
    async fn kill(&self) -> Sabotage {
        self.cannot(Hurt::Kill)
    }

    /// Starts the server again at the same address with the data it had; kills it first if it runs.
    async fn restart(&self) -> Sabotage {
        self.cannot(Hurt::Kill)
    }

    /// As [`restart`](Self::restart), but everything the server had stored is gone.
    async fn restart_empty(&self) -> Sabotage {
        self.cannot(Hurt::Wipe)
    }

    /// Resets every open connection (RST). New ones are served: nothing needs to be undone.
    async fn cut(&self) -> Sabotage {
        self.cannot(Hurt::Cut)
    }

    /// Refuses new connections; open ones go on. Undone by [`mend`](Self::mend).
    async fn refuse(&self) -> Sabotage {
        self.cannot(Hurt::Refuse)
    }

    /// Makes the bytes of one direction arrive `by` later, in order. Undone by [`mend`](Self::mend).
    async fn delay(&self, direction: Direction, by: Duration) -> Sabotage {
        let _ = (direction, by);
        self.cannot(Hurt::Delay)
    }

    /// Lets every connection, open or new, hang: accepted, never answered, and the server sees none of it.
    /// Undone by [`mend`](Self::mend), which delivers what was held back.
    async fn half_open(&self) -> Sabotage {
        self.cannot(Hurt::HalfOpen)
    }

    /// Lets requests reach the server and swallows its replies. Undone by [`mend`](Self::mend), which resets the
    /// connections that lost a reply: no network loses bytes inside a connection and carries on.
    async fn drop_replies(&self) -> Sabotage {
        self.cannot(Hurt::DropReplies)
    }

    /// Has every client stop within its transaction: what would end one (`COMMIT`, `ROLLBACK`) is lost, and so is all that
    /// comes after it on that connection, also that the client closed it. Connections that end none, as those where each
    /// statement commits by itself, go on. Undone by [`mend`](Self::mend), which resets the connections that lost something.
    async fn lose_ends(&self) -> Sabotage {
        self.cannot(Hurt::LoseEnds)
    }

    /// Undoes [`refuse`](Self::refuse), [`delay`](Self::delay), [`half_open`](Self::half_open),
    /// [`drop_replies`](Self::drop_replies) and [`lose_ends`](Self::lose_ends).
    async fn mend(&self) -> Sabotage {
        Ok(())
    }

    /// Ends every client's session as the server does when it has run out. Nothing needs to be undone.
    async fn expire_sessions(&self) -> Sabotage {
        self.cannot(Hurt::ExpireSessions)
    }

    /// Has the server end the backends that serve its clients, as an administrator would
    /// (`pg_terminate_backend`, `KILL`, `CLIENT KILL`). Nothing needs to be undone.
    async fn terminate_backends(&self) -> Sabotage {
        self.cannot(Hurt::TerminateBackends)
    }

    /// Empties the server's cache of scripts. Nothing needs to be undone.
    async fn flush_scripts(&self) -> Sabotage {
        self.cannot(Hurt::FlushScripts)
    }

    /// Holds every write inside the server, executed only later (`CLIENT PAUSE … WRITE`): for `at_most` that long.
    async fn pause_writes(&self, at_most: Duration) -> Sabotage {
        let _ = at_most;
        self.cannot(Hurt::PauseWrites)
    }

    /// Lets the held writes run.
    async fn resume_writes(&self) -> Sabotage {
        Ok(())
    }

    /// Has the server refuse writes, as a replica does after a failover.
    async fn make_read_only(&self) -> Sabotage {
        self.cannot(Hurt::ReadOnly)
    }

    /// Has the server take writes again.
    async fn make_writable(&self) -> Sabotage {
        Ok(())
    }

    /// Takes every connection the server has left, so that a new one is turned away by the server itself.
    async fn fill_connections(&self) -> Sabotage {
        self.cannot(Hurt::FillConnections)
    }

    /// Gives those connections back.
    async fn free_connections(&self) -> Sabotage {
        Ok(())
    }

    /// Has the server refuse what would take more memory, as one does that is full. What it has it keeps.
    async fn fill_memory(&self) -> Sabotage {
        self.cannot(Hurt::FillMemory)
    }

    /// Gives the server its memory back.
    async fn free_memory(&self) -> Sabotage {
        Ok(())
    }

    /// Has the server refuse what would add to tenure's tables or change them, as one does whose disk is full. It still
    /// reads, and deletes. A table that is so busy that this cannot be prepared in time is left out.
    async fn fill_disk(&self) -> Sabotage {
        self.cannot(Hurt::FillDisk)
    }

    /// Makes room on the server's disk.
    async fn free_disk(&self) -> Sabotage {
        Ok(())
    }

    /// Locks every row of tenure's tables that nobody has locked, in a transaction of somebody else's.
    async fn lock_rows(&self) -> Sabotage {
        self.cannot(Hurt::LockRows)
    }

    /// Ends that transaction.
    async fn unlock_rows(&self) -> Sabotage {
        Ok(())
    }

    /// Locks tenure's tables against everybody, readers too, in a session of somebody else's. It waits for those who use a
    /// table, and others wait behind it; a table that it does not get in time is left out.
    async fn lock_tables(&self) -> Sabotage {
        self.cannot(Hurt::LockTables)
    }

    /// Gives the tables back.
    async fn unlock_tables(&self) -> Sabotage {
        Ok(())
    }

    /// Cuts these members of an ensemble off from the others. Clients still reach every one.
    async fn partition(&self, members: &[usize]) -> Sabotage {
        let _ = members;
        self.cannot(Hurt::Partition)
    }

    /// Lets the members of an ensemble see each other again.
    async fn rejoin(&self) -> Sabotage {
        Ok(())
    }

    /// The answer to a hurt that this server cannot suffer.
    fn cannot(&self, hurt: Hurt) -> Sabotage {
        Err(SabotageError::CannotHurt { hurt, server: self.server() })
    }
}
