//! The backend.

use crate::{
    bucket::Bucket,
    link::Link,
    options::{Checked, NatsOptions},
};
use std::{fmt, sync::Arc};
use tenure_core::{
    Error, Operation, async_trait, forward_backend,
    record::{RecordStore, Records},
};

/// Locks in a key-value bucket of a NATS server or cluster with `JetStream`.
///
/// Each name has one key. A client reads its last revision from the stream's leader, changes the record in it, and
/// updates that revision, which fails if another client came first. Leases end by the dates of revisions; tokens begin
/// with them, too. Waiters of all clients are served in the order in which they came, and hear of revisions. A cluster under
/// load may lose such a message; they also ask every second.
///
/// Needs NATS 2.9 or later. Cloning is cheap, and clones share the connection.
///
/// # Examples
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// use tenure_core::Locks;
/// use tenure_nats::{NatsBackend, NatsOptions};
///
/// let options = NatsOptions::new(["nats1", "nats2", "nats3"], "locks").replicas(3);
/// let locks = Locks::new(NatsBackend::connect(options).await?);
/// let guard = locks.lock("report").acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct NatsBackend(Arc<Records<Bucket>>);

impl NatsBackend {
    /// Connects, and creates the bucket if there is none.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it acquires no lock. The bucket may have been created.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] before anything is connected; [`Error::Unavailable`] if no server answered in time, or the
    /// cluster has no quorum; [`Error::Store`] if the servers refuse the user or the bucket, `JetStream` is off, or the
    /// bucket has a TTL.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn connect(options: NatsOptions) -> Result<Self, Error> {
        Self::open(options.check()?, None).await
    }

    /// Uses a connection that the program already has, and creates the bucket if there is none.
    ///
    /// Hosts, user, credentials, TLS and `connect_timeout` of the options are not used. Locks are renewed as long as the
    /// runtime runs on which this client was connected.
    ///
    /// # Cancel safety
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    pub async fn connect_with(client: async_nats::Client, options: NatsOptions) -> Result<Self, Error> {
        let checked = options.check()?;
        let link = Link::over(client, checked.values.response_timeout);
        Self::open(checked, Some(link)).await
    }

    /// The bucket alone, for the suite.
    #[doc(hidden)]
    pub async fn records(options: NatsOptions) -> Result<impl RecordStore, Error> {
        Self::bucket(options.check()?, None).await
    }

    async fn open(options: Checked, link: Option<Link>) -> Result<Self, Error> {
        Ok(Self(Arc::new(Records::new(Self::bucket(options, link).await?))))
    }

    async fn bucket(options: Checked, link: Option<Link>) -> Result<Bucket, Error> {
        let store = Arc::clone(&options.store);
        let bucket = Bucket::new(options, link);
        let opened = bucket.open().await;
        opened.map_err(|error| Error::from_store(&store, Operation::Connecting, error))?;
        Ok(bucket)
    }
}

impl fmt::Debug for NatsBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NatsBackend").field(&tenure_core::Backend::store(&*self.0)).finish()
    }
}

#[async_trait]
impl tenure_core::Backend for NatsBackend {
    forward_backend!(self => self.0);
}
