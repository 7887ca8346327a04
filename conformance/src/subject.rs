//! A store under test.

use crate::saboteur::{Hurt, Saboteur};
use std::{error::Error, fmt, sync::Arc, time::Duration};
use tenure_core::{Backend, async_trait};

/// Any error, for code that prepares a store for its tests.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A store under test: how to reach it, and what may be done to it.
///
/// Two methods are required. Every other one opens more cases; without it they are listed as ignored, with the reason.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use tenure_conformance::{BoxError, Subject, async_trait};
/// use tenure_core::{Backend, Memory};
///
/// struct InMemory(Memory);
///
/// #[async_trait]
/// impl Subject for InMemory {
///     fn name(&self) -> &str {
///         "memory"
///     }
///
///     async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
///         Ok(Arc::new(self.0.clone()))
///     }
/// }
/// ```
#[async_trait]
pub trait Subject: Send + Sync + 'static {
    /// The first part of the test names: `redis` gives `redis::exclusion::basic_cycle`.
    fn name(&self) -> &str;

    /// Whether the cases of this group are for this subject, as all are by default. For one that differs from another in a
    /// part of the contract only, and would show the rest once more.
    fn shows(&self, group: &str) -> bool {
        let _ = group;
        true
    }

    /// Makes the store ready, for instance by starting a server. Called once, before the first case that is to run, and
    /// not at all when every case is filtered out.
    ///
    /// # Errors
    ///
    /// [`Absent`] when the store cannot be had here: its cases are then listed as ignored, with the reason. With
    /// `TENURE_TEST_REQUIRE=1` in the environment they fail: [`is_required`](crate::is_required).
    async fn start(&self) -> Result<(), Absent> {
        Ok(())
    }

    /// A new client of the store. Clients of one subject meet in the same store, and share nothing else.
    ///
    /// # Errors
    ///
    /// Whatever the store's client says. The case that asked fails with it.
    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError>;

    /// A new client whose names live in another namespace (prefix, table, chroot, …) of the store; `None` where it has
    /// no such thing.
    ///
    /// # Errors
    ///
    /// Whatever the store's client says.
    async fn backend_in(&self, namespace: &str) -> Result<Option<Arc<dyn Backend>>, BoxError> {
        let _ = namespace;
        Ok(None)
    }

    /// The environment variables with which another process, whose `main` makes its subjects by the same function,
    /// finds this very store; `None` where no other process can. Asked after [`start`](Self::start).
    fn environment(&self) -> Option<Vec<(String, String)>> {
        None
    }

    /// What this subject disturbs when its server is hurt. Cases that need the store for themselves wait for those of every
    /// subject with the same answer; the default is that each has a server of its own.
    fn place(&self) -> String {
        self.name().to_owned()
    }

    /// Ways to hurt the server behind the store; `None` where there is none, or none that may be hurt. Asked after
    /// [`start`](Self::start).
    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        None
    }

    /// Whether the store may end grants before their time when its server is hurt so: then, and only then, a fault run
    /// lets their holders believe in them until the deadline that they had, beside a successor (clause F4).
    ///
    /// What is named here is excused, so name no more than is so. By default a store forgets what was wiped, and the
    /// sessions that were ended: leases and sessions outlive connections, and a server that stands still or starts
    /// again with its data. Where a grant goes with its connection, as a row's lock does, these are
    /// [`Hurt::ENDS_CONNECTIONS`]; where a replica without the newest grants may take over, what makes it do so too.
    fn forgets(&self, hurt: Hurt) -> bool {
        matches!(hurt, Hurt::Wipe | Hurt::ExpireSessions)
    }

    /// How long the store keeps a session that it hears nothing of, where that takes the place of the leases that are
    /// asked for; `None` where leases are kept. A fault run has no other lease then.
    fn session_timeout(&self) -> Option<Duration> {
        None
    }

    /// Restarts the store's server, and returns when it answers again; `false` where that cannot be done. No other case
    /// of this subject runs meanwhile. The default leaves it to the [saboteur](Self::saboteur).
    ///
    /// # Errors
    ///
    /// When it did not come back.
    async fn restart(&self) -> Result<bool, BoxError> {
        let Some(saboteur) = self.saboteur().filter(|saboteur| saboteur.can(Hurt::Kill)) else {
            return Ok(false);
        };
        saboteur.restart().await?;
        Ok(true)
    }

    /// Removes everything that tenure keeps in the store, its memory of tokens too; `false` where that cannot be done.
    /// No other case of this subject runs meanwhile. The default leaves it to the [saboteur](Self::saboteur).
    ///
    /// # Errors
    ///
    /// When it could not be removed.
    async fn wipe(&self) -> Result<bool, BoxError> {
        let Some(saboteur) = self.saboteur().filter(|saboteur| saboteur.can(Hurt::Wipe)) else {
            return Ok(false);
        };
        saboteur.restart_empty().await?;
        Ok(true)
    }
}

/// Why a store cannot be had here: no server program, no container, no address. Say what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent(String);

impl Absent {
    /// The reason, in words.
    pub fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Absent {}

/// The stores that a run of the suite is about.
///
/// # Examples
///
/// ```
/// # use tenure_conformance::{Subject, Subjects};
/// # fn subjects(small: impl Subject, large: impl Subject) -> Subjects {
/// Subjects::new().with(small).with(large)
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Subjects(Vec<Arc<dyn Subject>>);

impl Subjects {
    /// No stores yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// And this store.
    #[must_use]
    pub fn with(self, subject: impl Subject) -> Self {
        self.and(Arc::new(subject))
    }

    /// And this store, which is shared with other code.
    #[must_use]
    pub fn and(mut self, subject: Arc<dyn Subject>) -> Self {
        self.0.push(subject);
        self
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<dyn Subject>> {
        self.0.iter().find(|subject| subject.name() == name)
    }
}

impl IntoIterator for Subjects {
    type Item = Arc<dyn Subject>;
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Debug for Subjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|subject| subject.name())).finish()
    }
}
