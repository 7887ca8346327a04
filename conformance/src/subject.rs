//! A store under test.

use crate::{
    any_records::AnyRecordStore,
    saboteur::{Hurt, Saboteur},
};
use std::{error::Error, fmt, sync::Arc, time::Duration};
use tenure_core::{Backend, async_trait};

/// Any error, for code that prepares a store for tests.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A store under test: how to reach it, and what may be done to it.
///
/// Two methods are required. Each of the others enables more cases; without it, they are listed as ignored, with the
/// reason.
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
    /// The first part of the test names: `redis` gives `redis::exclusion::two_clients_exclude`.
    fn name(&self) -> &str;

    /// Whether to run this group's cases on this subject. Default: `true`. Override it if the subject differs from
    /// another in only a part of the contract, and would prove the rest again.
    fn shows(&self, group: &str) -> bool {
        let _ = group;
        true
    }

    /// Makes an empty store of this kind that follows tokio's clock, so that its cases can run in virtual time: each in a
    /// runtime of its own, whose clock is paused. It is used without [`start`](Self::start). `None`, the default, if the
    /// store is not in memory.
    fn simulated(&self) -> Option<Arc<dyn Subject>> {
        None
    }

    /// Makes the store ready, for instance by starting a server. Called once, before the first case that runs; never if
    /// every case is filtered out.
    ///
    /// # Errors
    ///
    /// [`Absent`] if the store is not available here: its cases are then listed as ignored, with the reason
    /// ([`skip`](crate::skip)). With `TENURE_TEST_REQUIRE=1` in the environment they fail.
    async fn start(&self) -> Result<(), Absent> {
        Ok(())
    }

    /// Makes a new client of the store. Clients of one subject meet in the same store, and share nothing else.
    ///
    /// # Errors
    ///
    /// The error of the store's client. The case fails with it.
    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError>;

    /// Makes a new client in another namespace (prefix, table, chroot, …) of the store; `None` if it has no namespaces.
    ///
    /// # Errors
    ///
    /// The error of the store's client.
    async fn backend_in(&self, namespace: &str) -> Result<Option<Arc<dyn Backend>>, BoxError> {
        let _ = namespace;
        Ok(None)
    }

    /// The environment variables by which another process, whose `main` makes its subjects by the same function, finds
    /// this very store; `None` if no other process can. Called after [`start`](Self::start).
    fn environment(&self) -> Option<Vec<(String, String)>> {
        None
    }

    /// The URL by which any program finds the store's server: the way to it that a [saboteur](Self::saboteur) hurts.
    /// `None` if there is none. Called after [`start`](Self::start).
    fn url(&self) -> Option<String> {
        None
    }

    /// Whether its clients write the store's files themselves. A fault run then also has client processes whose writes
    /// fail (`EFBIG`, on Linux). By default, a server writes them.
    fn writes_files(&self) -> bool {
        false
    }

    /// Names what this subject disturbs when a fault is injected into its server. Cases that need the store for
    /// themselves wait for those of every subject with the same answer. By default, each subject has a server of its
    /// own.
    fn disturbs(&self) -> String {
        self.name().to_owned()
    }

    /// Ways to inject faults into the server behind the store; `None` if there is no server, or it must not be
    /// disturbed. Called after [`start`](Self::start).
    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        None
    }

    /// Whether the store may end grants early when this fault is injected into its server. Only then may a holder count
    /// on its lock until the deadline that it had, beside a successor (clause F4): in a fault run, and among the
    /// clients that take turns in the cases of the group `faults`. And only then may a restart that ends in time cost a
    /// lease (clause F2, `faults::server_restarted`).
    ///
    /// Faults named here are excused, so name only those that apply. By default, a store forgets what was wiped, the
    /// sessions that were ended, and leases that its clock has passed: leases and sessions outlive connections, and also the freeze of a server or its
    /// restart with its data. If a grant ends with its connection, as a row lock does, name [`Hurt::ENDS_CONNECTIONS`].
    /// If a replica without the newest grants may take over, name what causes a failover too.
    fn forgets(&self, hurt: Hurt) -> bool {
        matches!(hurt, Hurt::Wipe | Hurt::ExpireSessions | Hurt::ClockAhead)
    }

    /// Whether a single attempt at a free name, or an upgrade, may be refused because another request about it is under
    /// way. Two attempts may each see the other's entry in the store, or each get the votes of a minority. By default,
    /// one of them is granted.
    fn attempts_collide(&self) -> bool {
        false
    }

    /// How long the store keeps a silent client's session, if sessions take the place of leases; `None` if it keeps
    /// leases. A fault run uses this as its only lease.
    fn session_timeout(&self) -> Option<Duration> {
        None
    }

    /// Restarts the store's server, and returns when it answers again; `false` if it cannot be restarted. No other case
    /// of this subject runs meanwhile. The default leaves it to the [saboteur](Self::saboteur).
    ///
    /// # Errors
    ///
    /// If the server did not come back.
    async fn restart(&self) -> Result<bool, BoxError> {
        let Some(saboteur) = self.saboteur().filter(|saboteur| saboteur.can(Hurt::Kill)) else {
            return Ok(false);
        };
        saboteur.restart().await?;
        Ok(true)
    }

    /// Removes everything that tenure keeps in the store, including the last tokens; `false` if it cannot. No other
    /// case of this subject runs meanwhile. The default leaves it to the [saboteur](Self::saboteur).
    ///
    /// # Errors
    ///
    /// If it could not be removed.
    async fn wipe(&self) -> Result<bool, BoxError> {
        let Some(saboteur) = self.saboteur().filter(|saboteur| saboteur.can(Hurt::Wipe)) else {
            return Ok(false);
        };
        saboteur.hurt(Hurt::Wipe).await?;
        Ok(true)
    }

    /// Makes a new client of the [`RecordStore`](tenure_core::record::RecordStore) below [`backend`](Self::backend);
    /// `None` if there is none. Enables the cases of the group `record_store`, which check that its requests keep that
    /// trait's promises.
    ///
    /// # Errors
    ///
    /// The error of the store's client.
    async fn records(&self) -> Result<Option<AnyRecordStore>, BoxError> {
        Ok(None)
    }
}

/// Why a store is not available here: no server program, no container, no address. Say what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Absent(String);

impl Absent {
    /// Gives the reason, in words.
    pub fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// The stores on which the suite is run.
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
    /// Starts without stores.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds this store.
    #[must_use]
    pub fn with(self, subject: impl Subject) -> Self {
        self.and(Arc::new(subject))
    }

    /// Adds this store, which is shared with other code.
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
