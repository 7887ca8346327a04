//! The backend.

use crate::{
    claims::Removed,
    contender::{Contender, Stop, TOGETHER},
    keys::Keys,
    link::{Link, Silence},
    options::{Checked, EtcdOptions},
    session::Live,
};
use etcd_client::{Client, GetOptions};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tenure_core::{
    Attempt, AttemptAll, Backend, Background, Capabilities, Claim, Conversion, Error, Grant, Holder,
    LatchState, LatchStep, LossCause, Mode, Moment, Name, Opening, Operation, Release, Renewal, StandingKind,
    StoreError, Waiter, Wakeup, async_trait,
};
use tokio::time::timeout;

/// How long to wait for a lease to be revoked.
const CLOSING: Duration = Duration::from_secs(1);

/// Locks in an `etcd` cluster.
///
/// Each claim has a key below its lock's, on the lease of its client, and the first of them by its create revision holds
/// the lock, together with those behind it that it admits: readers beside a reader, permits while some are left. Each
/// waiter watches only the key in its way. The fencing token is the revision that created the holder's key.
///
/// All locks of one backend are on one lease, the session: it lasts as long as the cluster hears from the client. When
/// it ends, all of them are lost, and the next request opens a new session. A guard gives up before the cluster does, at a
/// deadline that counts from the last heartbeat that the cluster answered.
///
/// Needs etcd 3.4 or later. Cloning is cheap, and clones share the session: closing one of them ends it only if nothing is
/// held or waited for in it.
///
/// # Examples
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// use tenure_core::Locks;
/// use tenure_etcd::{EtcdBackend, EtcdOptions};
///
/// let locks = Locks::new(EtcdBackend::connect(EtcdOptions::new(["etcd1", "etcd2", "etcd3"])).await?);
/// let guard = locks.lock("report").acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EtcdBackend(Arc<Inner>);

struct Inner {
    options: Checked,
    keys: Keys,
    /// Connections, on the runtime of the background: that ends when all clients are closed.
    link: Mutex<Option<Arc<Link>>>,
    session: Mutex<Option<Arc<Live>>>,
    opening: Opening,
    /// Where sessions live: they outlive the callers' runtimes.
    background: Background,
}

impl EtcdBackend {
    /// Connects, and checks that the cluster has a leader and that the user may read the prefix.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it acquires no lock.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] before anything is connected; [`Error::Unavailable`] if no member answered in time, with
    /// each member's error; [`Error::Store`] if the cluster refuses the user or the password, or one side refuses the
    /// other's certificate.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn connect(options: EtcdOptions) -> Result<Self, Error> {
        let options = options.check()?;
        let keys = Keys::below(&options.path, &options.values.prefix);
        let (link, session, opening) = (Mutex::default(), Mutex::default(), Opening::default());
        let inner = Inner { options, keys, link, session, opening, background: Background::new() };
        match inner.check().await {
            Ok(()) => Ok(Self(Arc::new(inner))),
            Err(error) => Err(Error::from_store(&inner.options.store, Operation::Connecting, error.into())),
        }
    }
}

impl fmt::Debug for EtcdBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdBackend").field("store", &self.0.options.store).finish_non_exhaustive()
    }
}

impl Inner {
    async fn check(&self) -> Result<(), Silence> {
        let first = GetOptions::new().with_prefix().with_limit(1).with_keys_only();
        let look = |mut client: Client| {
            let (begin, first) = (self.keys.locks(""), first.clone());
            async move {
                let first = if begin.is_empty() { first.with_all_keys() } else { first };
                client.get(begin, Some(first)).await
            }
        };
        self.link().ask(look).await.map(drop)
    }

    fn link(&self) -> Arc<Link> {
        let runtime = self.background.handle();
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        match &*link {
            Some(link) if link.background.id() == runtime.id() => Arc::clone(link),
            _ => {
                let Checked { endpoints, client, values, .. } = &self.options;
                let new = Link::new(endpoints, client.clone(), values.response_timeout, runtime);
                Arc::clone(link.insert(Arc::new(new)))
            }
        }
    }

    fn current(&self) -> Option<Arc<Live>> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.clone().filter(|live| !live.is_over())
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
                let live = Live::open(inner.link(), inner.keys.clone(), &inner.options, background).await?;
                *inner.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&live));
                Ok(live)
            };
            inner.opening.session(asked, || inner.current(), open).await
        });
        opening
            .await
            .map_err(|_| StoreError::unavailable("this client was closed while a session was being opened"))?
    }

    /// Makes one attempt in a session, and in the next if that one has ended.
    async fn attempt(self: &Arc<Self>, claims: &[Claim]) -> Result<Option<Vec<Grant>>, StoreError> {
        loop {
            let live = self.session().await?;
            match Contender::new(&live, &self.keys, claims).attempt().await {
                Ok(answer) => return Ok(answer),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::SessionOver) => {}
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(live) = self.current() {
            live.close();
            live.revoke_later();
        }
    }
}

#[async_trait]
impl Backend for EtcdBackend {
    fn store(&self) -> &str {
        &self.0.options.store
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            standing: StandingKind::Session,
            wakeup: Wakeup::Queue,
            ask_again: self.0.options.ask_again(),
            fair: true,
            shared: true,
            permits: true,
            latches: true,
            together: true,
            listing: true,
            waiting: true,
            ..Capabilities::POLLED
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let granted = self.0.attempt(std::slice::from_ref(claim)).await?;
        Ok(match granted.and_then(|grants| grants.into_iter().next()) {
            Some(grant) => Attempt::Granted(grant),
            None => Attempt::Busy { expires_in: None },
        })
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        if claims.len() > TOGETHER {
            return Ok(AttemptAll::Apart);
        }
        Ok(self.0.attempt(claims).await?.map_or(AttemptAll::Busy, AttemptAll::Granted))
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        loop {
            let live = self.0.session().await?;
            match Contender::new(&live, &self.0.keys, std::slice::from_ref(claim)).wait().await {
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
        // Of a known key, only another client can have deleted it while the session lives.
        let (known, mut cause) = (live.remove(grant.claim).await, LossCause::Forced);
        let removed = if let Some(removed) = known {
            removed
        } else {
            // This may be a repeated request, and the first one may have removed the key.
            cause = LossCause::Forgotten;
            live.delete(&self.0.keys.contender(&grant.name, grant.claim), None).await
        };
        match removed {
            Removed::Deleted => Ok(Release::Released { awaited: false }),
            Removed::Missing => Ok(Release::Lost(grant.loss().unwrap_or(cause))),
            Removed::Earlier => Ok(Release::Lost(grant.loss().unwrap_or(LossCause::Forgotten))),
            Removed::SessionOver => Ok(Release::Lost(LossCause::SessionEnded)),
            Removed::Failed(error) => Err(error),
        }
    }

    /// Never called: grants in a session need no renewal.
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        Ok(Renewal::in_session(grants))
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let known = match self.0.current() {
            Some(live) => live.remove(claim.id).await,
            None => None,
        };
        let Some(removed) = known else {
            let key = self.0.keys.contender(&claim.name, claim.id);
            let delete = |mut client: Client| {
                let key = key.clone();
                async move { client.delete(key, None).await }
            };
            return self.0.link().ask(delete).await.map(drop).map_err(StoreError::from);
        };
        match removed {
            Removed::Deleted | Removed::Missing | Removed::Earlier | Removed::SessionOver => Ok(()),
            Removed::Failed(error) => Err(error),
        }
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        // Its session may have been followed by another one, which does not know it.
        if let Some(cause) = grant.loss() {
            return Ok(Conversion::Lost(cause));
        }
        let Some(live) = self.0.current() else { return Ok(Conversion::Lost(LossCause::SessionEnded)) };
        let (lock, key) = (self.0.keys.lock(&grant.name), self.0.keys.contender(&grant.name, grant.claim));
        live.convert(lock, key, grant.claim, to).await
    }

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        self.0.link().latch(&self.0.keys, name, step).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.0.link().holders(&self.0.keys, name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        self.0.link().all_holders(&self.0.keys, prefix).await
    }

    async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        self.0.link().waiting(&self.0.keys, name).await
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.0.link().force_release(&self.0.keys, name).await
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
        live.close();
        // A cluster that does not answer ends the lease by itself.
        let _ = timeout(CLOSING, live.revoke()).await;
    }
}
