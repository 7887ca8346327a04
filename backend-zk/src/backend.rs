//! The backend.

use crate::{
    errors::explain,
    node::{Removed, names::encode},
    options::{Checked, ZkOptions},
    recipe::{Contender, Stop},
    removal::finish,
    session::{Live, diagnosis::diagnose},
};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tenure_core::{
    Attempt, Backend, Background, Capabilities, Claim, Conversion, Error, Grant, Holder, LatchState,
    LatchStep, LossCause, Mode, Moment, Name, Opening, Operation, Release, Renewal, StandingKind, StoreError,
    Waiter, Wakeup, async_trait, lease,
};

/// How long to wait for a session to be closed.
const CLOSING: Duration = Duration::from_secs(1);
/// How often to ask for the first session if nothing is wrong with the servers.
const ATTEMPTS: u32 = 4;

/// Locks in a `ZooKeeper` ensemble.
///
/// A lock is a container node. Each claim makes an ephemeral sequential node below it, and the first of them holds the
/// lock, together with those behind it that it admits: readers beside a reader, permits while some are left. Each
/// waiter watches only the node in its way, so a release wakes one waiter, or the readers that share. The fencing token
/// is the `czxid` of the holder's node: the number of the transaction that made it.
///
/// All locks of one backend live in one session, which lasts as long as the servers hear from the client. When it ends,
/// all of them are lost, and the next request opens a new session. A guard gives up before the servers do, at a
/// deadline that counts from the last heartbeat that the leader is known to have seen.
///
/// Needs servers of version 3.5 or later. Cloning is cheap, and clones share the session: closing one of them
/// ends it only if nothing is held or waited for in it.
///
/// # Examples
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// use tenure_core::Locks;
/// use tenure_zk::{ZkBackend, ZkOptions};
///
/// let locks = Locks::new(ZkBackend::connect(ZkOptions::new(["zk1", "zk2", "zk3"])).await?);
/// let guard = locks.lock("report").acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ZkBackend(Arc<Inner>);

struct Inner {
    store: Arc<str>,
    options: Checked,
    /// A live session keeps itself alive. An ended one is not kept here, so that its client can close it: nodes of lost
    /// grants may still exist.
    session: Mutex<Weak<Live>>,
    opening: Opening,
    /// Where sessions live: they outlive the callers' runtimes.
    background: Background,
}

impl ZkBackend {
    /// Opens a session with the ensemble.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a session that was opened anyway ends by itself.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] before anything is connected; [`Error::Unavailable`] if no server opened a session in
    /// time, with each server's error; [`Error::Store`] if the chroot does not exist, the servers refuse the
    /// credentials, or one side refuses the other's certificate.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn connect(options: ZkOptions) -> Result<Self, Error> {
        let options = options.check()?;
        let store: Arc<str> = options.store.as_str().into();
        let inner = Arc::new(Inner {
            store,
            options,
            session: Mutex::default(),
            opening: Opening::default(),
            background: Background::new(),
        });
        match inner.first_session().await {
            Ok(_) => Ok(Self(inner)),
            Err(error) => Err(Error::from_store(&inner.store, Operation::Connecting, error)),
        }
    }
}

impl fmt::Debug for ZkBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkBackend").field("store", &self.0.store).finish_non_exhaustive()
    }
}

impl Inner {
    fn current(&self) -> Option<Arc<Live>> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.upgrade().filter(|live| !live.is_over())
    }

    /// Returns the session, opening one if there is none.
    async fn session(self: &Arc<Self>) -> Result<Arc<Live>, StoreError> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let (inner, background, asked) = (Arc::clone(self), self.background.handle(), Moment::now());
        // In a task, so that a caller that is not polled does not block the others.
        let opening = self.background.spawn(async move {
            let open = async {
                let live = Live::open(&inner.options, background).await?;
                *inner.session.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&live);
                Ok(live)
            };
            inner.opening.session(asked, || inner.current(), open).await
        });
        opening
            .await
            .map_err(|_| StoreError::unavailable("this client was closed while a session was being opened"))?
    }

    /// Opens the first session, which shows whether the servers are reachable and accept the user.
    ///
    /// If nothing seems wrong, it asks again: a server that refuses the credentials closes the connection right after
    /// its answer, and the client, which pings meanwhile, may lose that answer.
    async fn first_session(self: &Arc<Self>) -> Result<Arc<Live>, StoreError> {
        let until = Moment::now() + self.options.values.connect_timeout;
        let mut attempts = 0;
        loop {
            let error = match self.session().await {
                Err(error) if error.is_unavailable() => error,
                decided => return decided,
            };
            if let Some(found) = diagnose(&self.options).await {
                return Err(found);
            }
            attempts += 1;
            if attempts < ATTEMPTS && !until.has_passed() {
                continue;
            }
            return Err(match self.options.login {
                Some(_) => StoreError::unavailable(
                    "all servers are running, but none opened a session; if this persists, check user and password",
                ),
                None => error,
            });
        }
    }

    fn lock_node(&self, name: &Name) -> String {
        format!("{}/{}", self.options.prefix, encode(name, self.at_root()))
    }

    /// Whether the locks' nodes are directly under the servers' own root.
    fn at_root(&self) -> bool {
        self.options.prefix.is_empty() && self.options.chroot.is_empty()
    }

    fn contender<'a>(&'a self, live: &'a Arc<Live>, claim: &'a Claim, lock: &'a str) -> Contender<'a> {
        let Checked { prefix, values, read_write, .. } = &self.options;
        let (response_timeout, read_write) = (values.response_timeout, *read_write);
        Contender { live, claim, lock, prefix, response_timeout, read_write }
    }

    /// Runs a request that can be repeated, within the response timeout.
    async fn in_time<T>(
        &self,
        request: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let patience = self.options.values.response_timeout;
        let late = |_| StoreError::unavailable(format!("no answer within {patience:?}"));
        tokio::time::timeout(patience, request).await.map_err(late)?
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(live) = self.current() {
            live.end();
        }
    }
}

#[async_trait]
impl Backend for ZkBackend {
    fn store(&self) -> &str {
        &self.0.store
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            standing: StandingKind::Session,
            wakeup: Wakeup::Queue,
            // With each heartbeat of the session.
            ask_again: lease::renewal_period(self.0.options.values.session_timeout),
            fair: true,
            shared: true,
            permits: true,
            latches: true,
            listing: true,
            waiting: true,
            ..Capabilities::POLLED
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let lock = self.0.lock_node(&claim.name);
        loop {
            let live = self.0.session().await?;
            match self.0.contender(&live, claim, &lock).attempt().await {
                Ok(answer) => return Ok(answer),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::SessionOver) => {}
            }
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let lock = self.0.lock_node(&claim.name);
        loop {
            let live = self.0.session().await?;
            match self.0.contender(&live, claim, &lock).wait().await {
                Ok(grant) => return Ok(grant),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::SessionOver) => {}
            }
        }
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        if let Some(cause @ LossCause::SessionEnded) = grant.loss() {
            return Ok(Release::Lost(cause));
        }
        let Some(live) = self.0.current() else { return Ok(Release::Lost(LossCause::SessionEnded)) };
        let lock = self.0.lock_node(&grant.name);
        let (removed, cause) = match live.remove(&lock, grant.claim) {
            // Only another client can have deleted a known node of a live session.
            Some(removal) => (finish(&live, removal).await, LossCause::Forced),
            // This may be a repeated request, and the first one may have removed the node.
            None => (live.sweep(lock.clone(), grant.claim).await, LossCause::Forgotten),
        };
        match removed {
            Removed::Deleted => Ok(Release::Released { awaited: false }),
            Removed::Missing => Ok(Release::Lost(grant.loss().unwrap_or(cause))),
            Removed::SessionOver => Ok(Release::Lost(LossCause::SessionEnded)),
            Removed::Refused(error) => Err(explain(&lock, error)),
        }
    }

    /// Never called: grants in a session need no renewal.
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        Ok(Renewal::in_session(grants))
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let lock = self.0.lock_node(&claim.name);
        let live = self.0.session().await?;
        let uncertain = live.state().creating.contains(&claim.id);
        let removal = live.remove(&lock, claim.id);
        let known = removal.is_some();
        let mut removed = match removal {
            Some(removal) => finish(&live, removal).await,
            None => Removed::Missing,
        };
        if uncertain || !known {
            removed = live.sweep(lock.clone(), claim.id).await;
        }
        match removed {
            Removed::Deleted | Removed::Missing | Removed::SessionOver => Ok(()),
            Removed::Refused(error) => Err(explain(&lock, error)),
        }
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        // Its session may have been followed by another one, which does not know it.
        if let Some(cause) = grant.loss() {
            return Ok(Conversion::Lost(cause));
        }
        let Some(live) = self.0.current() else { return Ok(Conversion::Lost(LossCause::SessionEnded)) };
        live.convert(self.0.lock_node(&grant.name), grant.claim, to).await
    }

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        let prefix = &self.0.options.prefix;
        self.0.in_time(async { self.0.session().await?.latch(prefix, name, step).await }).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let lock = self.0.lock_node(name);
        self.0.in_time(async { self.0.session().await?.holders(&lock, name).await }).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let live = self.0.session().await?;
        let (root, at_root) = (&self.0.options.prefix, self.0.at_root());
        self.0.in_time(live.all_holders(root, at_root, prefix, &self.0.store)).await
    }

    async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        let lock = self.0.lock_node(name);
        self.0.in_time(async { self.0.session().await?.waiting(&lock, name).await }).await
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let lock = self.0.lock_node(name);
        self.0.in_time(async { self.0.session().await?.force_release(&lock, name).await }).await
    }

    fn background(&self) -> Background {
        self.0.background.clone()
    }

    async fn close(&self) {
        let Some(live) = self.0.current() else { return };
        // By another client of this backend or of a clone.
        let is_shared = Arc::strong_count(&self.0) > 1 || self.0.background.clients() > 1;
        if is_shared && live.in_use() {
            return;
        }
        let mut states = live.client.state_watcher();
        live.end();
        drop(live);
        // The client closes the session when its last handle goes. A server that does not answer ends it by itself.
        let closed = async { while !states.changed().await.is_terminated() {} };
        let _ = tokio::time::timeout(CLOSING, closed).await;
    }
}
