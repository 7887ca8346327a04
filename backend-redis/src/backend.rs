//! Locks in one Redis server, in the master that Sentinel names, or in a Cluster.

use crate::{
    connection::dial::Endpoint,
    options::RedisOptions,
    server::{RENEW_BATCH, Server},
    store::{Store, ask},
    timing::ASK_AGAIN,
};
use redis::Client;
use std::{fmt, sync::Arc, time::Duration};
use tenure_core::{
    Attempt, AttemptAll, Backend, Background, Capabilities, Claim, Conversion, Error, Grant, Holder,
    LatchState, LatchStep, LossCause, Mode, Name, Operation, Release, Renewal, StoreError, Waiter, Wakeup,
    async_trait,
};

/// Locks in one Redis or Valkey server, in the master of a service that Sentinel watches over, or in a Cluster.
///
/// The lock of a name is the key *prefix + name*: a string that holds the claim, with the lease as its time to live. If
/// readers or permits hold the name, it is the list of them, and lives as long as the longest of their leases. A second
/// key remembers the last token and its holder. Acquiring, releasing and renewing take one script call each. Waiters
/// share one connection on which the server tells them of releases, and poll now and then as well.
///
/// How safe the locks are depends on the server: one that restarts without its data, or a replica that takes over
/// without the last writes, forgets who holds what. `docs/redis.md` says what to configure. Fencing tokens protect what
/// matters in any case.
///
/// Cloning is cheap, and clones share the connections.
///
/// # Examples
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// use tenure_core::Locks;
/// use tenure_redis::{RedisBackend, RedisOptions};
///
/// let options = RedisOptions::from_url("redis://127.0.0.1/")?;
/// let locks = Locks::new(RedisBackend::connect(options).await?);
/// let guard = locks.lock("report").acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisBackend(Arc<Inner>);

struct Inner {
    /// The store's name: a URL without secrets.
    address: Arc<str>,
    fair: bool,
    store: Store,
    background: Background,
}

impl RedisBackend {
    /// Connects to the server in the options, and checks that it can keep locks.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it acquires no lock.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] before the server is asked; [`Error::Unavailable`] if it cannot be reached, does not
    /// answer in time, or is a read-only replica; [`Error::Store`] if it refuses the password, has no such database, or
    /// denies this user what locks need.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn connect(options: RedisOptions) -> Result<Self, Error> {
        let checked = options.check()?;
        let fair = checked.fair;
        let background = Background::new();
        Self::with(Store::new(&options, checked, &background)?, fair, background).await
    }

    /// Connects with a client of the `redis` crate, which has the server's address, the login, the certificates and the
    /// TCP settings. The options provide the rest; their address is ignored.
    ///
    /// Such a client has no connections: it opens them. So the connections are tenure's own. Set `nodelay` in the
    /// client's TCP settings: without it a request may wait for the TCP acknowledgement of the previous one.
    ///
    /// # Cancel safety
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Panics
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use tenure_redis::{RedisBackend, RedisOptions, redis};
    ///
    /// let client = redis::Client::open("redis://app:secret@cache.internal/2")?;
    /// let backend = RedisBackend::from_client(client, RedisOptions::default().prefix("billing:")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn from_client(client: Client, options: RedisOptions) -> Result<Self, Error> {
        let checked = options.check()?;
        let fair = checked.fair;
        let background = Background::new();
        let server = Server::new(Endpoint::Server(Arc::new(client)), checked, &background);
        Self::with(Store::One(Arc::new(server)), fair, background).await
    }

    async fn with(store: Store, fair: bool, background: Background) -> Result<Self, Error> {
        let address: Arc<str> = store.url().into();
        let fit = store.check().await;
        fit.map_err(|error| Error::from_store(&address, Operation::Connecting, error))?;
        Ok(Self(Arc::new(Inner { address, fair, store, background })))
    }

    /// Why a grant is gone.
    async fn why(&self, grant: &Grant) -> Result<LossCause, StoreError> {
        ask!(self.0.store, &grant.name, server => server.why(grant).await)
    }
}

#[async_trait]
impl Backend for RedisBackend {
    fn store(&self) -> &str {
        &self.0.address
    }

    fn capabilities(&self) -> Capabilities {
        let fair = self.0.fair;
        Capabilities {
            wakeup: if fair { Wakeup::Queue } else { Wakeup::Push },
            ask_again: ASK_AGAIN.1,
            fair,
            shared: true,
            permits: true,
            latches: true,
            together: !fair,
            listing: true,
            waiting: fair,
            // Two requests take longer than that many microseconds.
            succession: if fair { 0 } else { 32 },
            renew_batch: RENEW_BATCH,
            ..Capabilities::POLLED
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        ask!(self.0.store, &claim.name, server => server.try_once(claim).await)
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        let [first, ..] = claims else { return Ok(AttemptAll::Apart) };
        let alone = claims.iter().all(|claim| claim.mode == Mode::Exclusive);
        if self.0.fair || !alone || !self.0.store.are_together(claims.iter().map(|claim| &claim.name)) {
            return Ok(AttemptAll::Apart);
        }
        ask!(self.0.store, &first.name, server => server.ask_all(claims).await)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        if self.0.fair {
            ask!(self.0.store, &claim.name, server => server.wait_in_turn(claim).await)
        } else {
            ask!(self.0.store, &claim.name, server => server.wait(claim).await)
        }
    }

    async fn wait_for_release(&self, claim: &Claim, at_most: Duration) -> Result<(), StoreError> {
        self.0.store.route(&claim.name).next().await?.wait_for_release(claim, at_most).await;
        Ok(())
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        match ask!(self.0.store, &grant.name, server => server.release(&grant.name, grant.claim).await)? {
            Some(released) => Ok(released),
            // The grant is certainly gone, even if the store does not answer this second request.
            None => Ok(Release::Lost(self.why(grant).await.unwrap_or(LossCause::Expired))),
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let stops = claim.waits && claim.mode == Mode::Exclusive;
        ask!(self.0.store, &claim.name, server => server.withdraw(&claim.name, claim.id, stops).await)
            .map(drop)
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        self.0.store.renew(grants).await
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        ask!(self.0.store, &grant.name, server => server.convert(grant, to).await)
    }

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        ask!(self.0.store, name, server => server.latch(name, step).await)
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        ask!(self.0.store, name, server => server.holders(name).await)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        self.0.store.list(prefix).await
    }

    async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        ask!(self.0.store, name, server => server.waiting(name).await)
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        ask!(self.0.store, name, server => server.force(name).await)
    }

    fn shard(&self, name: &Name) -> u64 {
        self.0.store.shard(name)
    }

    fn background(&self) -> Background {
        self.0.background.clone()
    }

    async fn close(&self) {
        self.0.store.disconnect();
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend").field("store", &self.0.address).finish_non_exhaustive()
    }
}
