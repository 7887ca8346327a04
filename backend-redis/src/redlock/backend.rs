//! Locks held by a majority of servers.

use super::{options::RedlockOptions, voters::Voters};
use crate::{server::RENEW_BATCH, timing::ASK_AGAIN};
use std::{fmt, sync::Arc, time::Duration};
use tenure_core::{
    Attempt, Backend, Background, Capabilities, Claim, Error, Grant, Holder, Name, Operation, Release,
    Renewal, StoreError, Wakeup, async_trait,
};

/// Locks held by a majority of independent Redis or Valkey servers.
///
/// Every server is asked at once. A lock is held if a majority has its key, and a majority then raised the greatest of
/// the issued tokens; otherwise the attempt is withdrawn. So losing a minority of the servers costs neither locks nor
/// time, and tokens rise from grant to grant. On each server the key is the same as
/// [`RedisBackend`](crate::RedisBackend)'s, so tenure and other implementations of Redlock exclude each other on the
/// same servers.
///
/// It rests on two assumptions: that the servers' and the clients' clocks run at nearly the same rate, and that a
/// server which restarts has its data, or stays away for longer than the longest lease. `docs/redlock.md` says what
/// happens if they do not hold, and when one server with a replica is the better choice.
///
/// Cloning is cheap, and clones share the connections.
///
/// # Examples
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// use tenure_core::Locks;
/// use tenure_redis::{RedlockBackend, RedlockOptions};
///
/// let options = RedlockOptions::from_url("redlock://a.internal,b.internal,c.internal")?;
/// let locks = Locks::new(RedlockBackend::connect(options).await?);
/// let guard = locks.lock("report").acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedlockBackend(Arc<Inner>);

struct Inner {
    /// The servers' names, for errors and people.
    address: Arc<str>,
    voters: Voters,
}

impl RedlockBackend {
    /// Connects, and checks that a majority of the servers can keep locks. The others are tried again on every request.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it acquires no lock.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] before any server is asked; [`Error::Unavailable`] if a majority cannot be reached,
    /// does not answer in time, or is read-only; [`Error::Store`] if one of them refuses the password, has no such
    /// database, or denies this user what locks need, or if two addresses lead to the same server.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn connect(options: RedlockOptions) -> Result<Self, Error> {
        let voters = Voters::new(options.check()?);
        let addresses: Vec<_> = voters.all.iter().map(|voter| voter.address()).collect();
        let names: Vec<_> = voters.all.iter().map(|voter| voter.server.link.dial().server_name()).collect();
        let scheme = if names.iter().all(|name| name.tls) { "rediss+redlock" } else { "redlock" };
        let database = names[0].database;
        let address: Arc<str> = format!("{scheme}://{}/{database}", addresses.join(",")).into();
        check(&voters).await.map_err(|error| Error::from_store(&address, Operation::Connecting, error))?;
        Ok(Self(Arc::new(Inner { address, voters })))
    }

    fn voters(&self) -> &Voters {
        &self.0.voters
    }
}

/// How long a server may take to connect once a majority has.
const STRAGGLERS: Duration = Duration::from_millis(200);
/// No server takes that long: each has its own timeouts.
const LONGEST: Duration = Duration::from_hours(1);

/// Checks that a majority of the servers can keep locks. A server that answers that it cannot is an error even if the
/// others can: its settings must be mended.
async fn check(voters: &Voters) -> Result<(), StoreError> {
    let mut answers = voters.each(LONGEST, |voter| async move { voter.check().await });
    let (mut fit, mut silent) = (0, Vec::new());
    loop {
        let next = answers.next();
        let answer = if voters.quorum.is_met(fit) {
            tokio::time::timeout(STRAGGLERS, next).await.ok().flatten()
        } else {
            next.await
        };
        match answer {
            Some((_, Ok(()))) => fit += 1,
            Some((_, Err(error))) if error.is_unavailable() => silent.push(error),
            Some((_, Err(error))) => return Err(error),
            None if voters.quorum.is_met(fit) => {
                for error in silent {
                    tracing::warn!(%error, "one of the servers is unavailable; the others are a majority");
                }
                return Ok(());
            }
            None => return Err(voters.quorum.too_few(silent.into_iter().map(Into::into).collect())),
        }
    }
}

#[async_trait]
impl Backend for RedlockBackend {
    fn store(&self) -> &str {
        &self.0.address
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            wakeup: Wakeup::Push,
            ask_again: ASK_AGAIN.1,
            listing: true,
            renew_batch: RENEW_BATCH,
            ..Capabilities::POLLED
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        self.voters().try_acquire(claim).await
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        self.voters().wait(claim).await
    }

    async fn wait_for_release(&self, claim: &Claim, at_most: Duration) -> Result<(), StoreError> {
        self.voters().wait_for_release(claim, at_most).await;
        Ok(())
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        self.voters().release(grant).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        self.voters().withdraw(&claim.name, claim.id, claim.lease).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        self.voters().renew(grants).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.voters().holders(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        self.voters().list(prefix).await
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.voters().force(name).await
    }

    fn background(&self) -> Background {
        self.voters().background.clone()
    }

    async fn close(&self) {
        self.voters().close().await;
    }
}

impl fmt::Debug for RedlockBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockBackend").field("store", &self.0.address).finish_non_exhaustive()
    }
}
