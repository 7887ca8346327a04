//! The session: a lease, and its heartbeats, which also look at the keys on it.

use crate::{
    errors::refused,
    keys::{Keys, claim_of},
    link::{Answer, Link, Silence},
    options::Checked,
};
use etcd_client::{Client, Error, LeaseTimeToLiveOptions, Txn, TxnOp, TxnResponse};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_core::{ClaimId, Liveness, LossCause, Moment, Session, StoreError, Token, lease};
use tokio::{runtime::Handle, sync::OwnedMutexGuard, time::sleep};
use tokio_util::sync::CancellationToken;

/// How soon to repeat a request whose outcome is unknown.
pub(crate) const AGAIN: Duration = Duration::from_millis(100);
/// How often to try to revoke the lease of a session that has ended here. Its own end is the last resort.
const REVOKE_ATTEMPTS: u32 = 20;
/// How long a spent claim is marked: much longer than a server keeps a request. The key of one that is later still is
/// deleted after the next heartbeat.
const SPENT: Duration = Duration::from_mins(2);

/// A session, from its opening to its end. After that, the backend opens another one.
///
/// It ends when the cluster says so, and also when its deadline has passed: its keys may still be there, so the lease is
/// revoked.
pub(crate) struct Live {
    pub(crate) link: Arc<Link>,
    pub(crate) keys: Keys,
    pub(crate) lease: i64,
    /// The lease's time to live, as the cluster has granted it.
    timeout: Duration,
    /// How long a waiter trusts its watch.
    pub(crate) ask_again: Duration,
    pub(crate) session: Session,
    pub(crate) over: CancellationToken,
    /// Where the session lives, and work that must outlive its callers.
    pub(crate) background: Handle,
    state: Mutex<HashMap<ClaimId, Entry>>,
    contending: AtomicUsize,
    /// Since when spent claims are marked, as far as this session has seen. Held while it looks after its keys.
    spent: Arc<tokio::sync::Mutex<HashMap<Vec<u8>, Moment>>>,
}

/// A claim whose key is there, or may be.
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    /// Held during each change of the key, so that they happen one after the other.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    pub(crate) held: Option<(Liveness, Token)>,
    /// Whether its removal was requested.
    pub(crate) unwanted: bool,
    /// Whether a copy of a request that makes its key may still arrive.
    pub(crate) in_doubt: bool,
}

impl Live {
    /// Grants a lease, and keeps it alive in the background.
    pub(crate) async fn open(
        link: Arc<Link>,
        keys: Keys,
        options: &Checked,
        background: Handle,
    ) -> Result<Arc<Self>, StoreError> {
        let asked =
            i64::try_from(options.values.session_timeout.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        let sent = Moment::now();
        // A copy without an answer leaves a lease without keys, which ends by itself.
        let grant = move |client: Client| async move { client.lease_client().grant(asked, None).await };
        let granted = link.ask(grant).await?.value;
        let timeout = Duration::from_secs(u64::try_from(granted.ttl()).unwrap_or(0));
        tracing::debug!(lease = granted.id(), ?timeout, "session opened");
        let live = Arc::new(Self {
            link,
            keys,
            lease: granted.id(),
            timeout,
            ask_again: options.ask_again(),
            session: Session::new(timeout, sent),
            over: CancellationToken::new(),
            background,
            state: Mutex::default(),
            contending: AtomicUsize::new(0),
            spent: Arc::default(),
        });
        live.background.spawn(Arc::clone(&live).attend());
        live.background.spawn(Arc::clone(&live).beat());
        Ok(live)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, HashMap<ClaimId, Entry>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Gives up a session that has ended, and revokes its lease in the background.
    pub(crate) fn end(self: &Arc<Self>) {
        if self.is_over() {
            return;
        }
        self.close();
        let lease = self.lease;
        // In the background: a loss must not wait for a log that blocks (clause F8).
        self.background.spawn_blocking(move || {
            tracing::warn!(lease, "the session has ended; all locks held in it are lost");
        });
        self.revoke_later();
    }

    /// Revokes the lease in the background.
    pub(crate) fn revoke_later(self: &Arc<Self>) {
        let live = Arc::clone(self);
        self.background.spawn(async move {
            for _ in 0..REVOKE_ATTEMPTS {
                match live.revoke().await {
                    Err(Silence::Failed(error)) if error.is_unavailable() => sleep(AGAIN).await,
                    _ => return,
                }
            }
        });
    }

    /// Ends the session here. Its lease is still to be revoked.
    pub(crate) fn close(&self) {
        self.over.cancel();
        self.session.end(LossCause::SessionEnded);
    }

    /// Revokes the lease, and with it deletes the keys on it.
    pub(crate) async fn revoke(&self) -> Result<(), Silence> {
        let lease = self.lease;
        let revoke = move |client: Client| async move { client.lease_client().revoke(lease).await };
        self.link.ask(revoke).await.map(drop)
    }

    /// Whether any claim holds or waits in this session, or is about to.
    pub(crate) fn in_use(&self) -> bool {
        !self.state().is_empty() || self.contending.load(Ordering::Relaxed) > 0
    }

    /// Notes that a claim contends in this session until the return value is dropped.
    pub(crate) fn contend(&self) -> impl Drop + Send + '_ {
        struct Contending<'a>(&'a AtomicUsize);
        impl Drop for Contending<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.contending.fetch_add(1, Ordering::Relaxed);
        Contending(&self.contending)
    }

    /// Commits a transaction that may be sent twice.
    pub(crate) async fn commit(&self, txn: Txn) -> Result<Answer<TxnResponse>, Silence> {
        let commit = |mut client: Client| {
            let txn = txn.clone();
            async move { client.txn(txn).await }
        };
        self.link.ask(commit).await
    }

    pub(crate) async fn unless_over<T>(&self, request: impl Future<Output = T> + Send) -> Option<T> {
        tokio::select! {
            biased;
            () = self.over.cancelled() => None,
            answer = request => Some(answer),
        }
    }
}

/// Heartbeats.
impl Live {
    /// Gives the session up when its deadline has passed.
    async fn attend(self: Arc<Self>) {
        let liveness = self.session.liveness();
        if self.unless_over(liveness.ended()).await.is_some() {
            self.end();
        }
    }

    /// Renews the lease: at a third of its time, and sooner after a failure.
    async fn beat(self: Arc<Self>) {
        let period = lease::renewal_period(self.timeout);
        let mut pause = period;
        while let Some(sent) = self.unless_over(async { sleep(pause).await }).await.map(|()| Moment::now()) {
            let answered = self.unless_over(self.prove()).await == Some(true);
            pause = if answered { (sent + period).left() } else { period / 8 };
        }
    }

    /// Renews the lease once, and looks after the keys on it.
    ///
    /// A replaced leader may keep renewing leases from memory while its successor lets them expire (before etcd 3.4.31 and
    /// 3.5.13). So a renewal counts if it came between two linearizable reads of one member in one term: the leader kept its
    /// quorum throughout.
    async fn prove(self: &Arc<Self>) -> bool {
        let (sent, lease) = (Moment::now(), self.lease);
        let none = self.keys.none();
        let renew = |mut client: Client| {
            let none = none.clone();
            async move {
                let before = term(&mut client, &none).await?;
                client.lease_client().keep_alive(lease).await?;
                if term(&mut client, &none).await? == before {
                    return Ok(());
                }
                Err(Error::WatchError("the cluster has another leader now".to_owned()))
            }
        };
        // A member that is silent must leave time to ask another.
        let patience = self.link.patience.min(lease::renewal_period(self.timeout));
        match self.link.ask_for(patience, renew).await {
            Ok(_) => self.session.proven(sent),
            Err(Silence::SessionOver) => {
                self.end();
                return false;
            }
            Err(Silence::Failed(error)) => {
                tracing::debug!(lease, %error, "a heartbeat failed");
                return false;
            }
        }
        // In the background: the next heartbeat must not wait.
        if let Ok(spent) = Arc::clone(&self.spent).try_lock_owned() {
            let live = Arc::clone(self);
            self.background.spawn(async move {
                match live.unless_over(live.look_after_keys(spent)).await {
                    Some(Err(Silence::SessionOver)) => live.end(),
                    Some(Err(Silence::Failed(error))) => {
                        tracing::debug!(lease, %error, "could not look at the session's keys");
                    }
                    Some(Ok(())) | None => {}
                }
            });
        }
        true
    }

    /// Waits until it is safe to grant something: while little of the session is left, a grant would soon be lost.
    pub(crate) async fn assured(self: &Arc<Self>) {
        while self.session.is_alive() && self.session.liveness().deadline().left() < self.timeout / 4 {
            if !self.prove().await {
                sleep(AGAIN).await;
            }
        }
    }

    /// Compares the keys on the lease with the claims. A grant whose key is gone was ended by force. A key without a claim
    /// came from a request that was late.
    async fn look_after_keys(
        &self,
        mut spent: OwnedMutexGuard<HashMap<Vec<u8>, Moment>>,
    ) -> Result<(), Silence> {
        let held: Vec<(ClaimId, Vec<u8>)> = {
            let state = self.state();
            let held = state.iter().filter(|(_, entry)| entry.held.is_some() && !entry.unwanted);
            held.map(|(claim, entry)| (*claim, entry.key.clone())).collect()
        };
        let lease = self.lease;
        let list = move |client: Client| async move {
            client.lease_client().time_to_live(lease, Some(LeaseTimeToLiveOptions::new().with_keys())).await
        };
        let told = self.link.ask(list).await?.value;
        let there: HashSet<&[u8]> = told.keys().iter().map(Vec::as_slice).collect();
        if told.ttl() < 0 {
            return Err(Silence::SessionOver);
        }
        for (claim, key) in held.iter().filter(|(_, key)| !there.contains(key.as_slice())) {
            // The member that told may not know of the key yet.
            let get = |mut client: Client| async move { client.get(key.as_slice(), None).await };
            let found = self.link.ask(get).await?.value;
            if found.kvs().is_empty() {
                self.lose(*claim);
            }
        }
        spent.retain(|key, _| there.contains(key.as_slice()));
        for key in there.iter().copied() {
            let is_over = if self.keys.is_spent(key) {
                (*spent.entry(key.to_vec()).or_insert_with(Moment::now) + SPENT).has_passed()
            } else {
                claim_of(key).is_some_and(|claim| !self.state().contains_key(&claim))
            };
            if is_over {
                self.commit(Txn::new().and_then([TxnOp::delete(key, None)])).await?;
            }
        }
        Ok(())
    }

    /// Ends the grant of a claim whose key another client has deleted.
    fn lose(&self, claim: ClaimId) {
        let mut state = self.state();
        let Some(entry) = state.get_mut(&claim).filter(|entry| !entry.unwanted) else { return };
        if let Some((liveness, _)) = entry.held.take() {
            liveness.end(LossCause::Forced);
            state.remove(&claim);
        }
    }
}

/// The member that answers a linearizable read, and its term.
async fn term(client: &mut Client, key: &[u8]) -> Result<Option<(u64, u64)>, Error> {
    let told = client.get(key, None).await?;
    Ok(told.header().map(|header| (header.member_id(), header.raft_term())))
}

/// A token is a revision.
pub(crate) fn token(revision: i64) -> Result<Token, StoreError> {
    Token::try_from(revision).map_err(StoreError::failed)
}

/// The error for an answer that etcd does not give.
pub(crate) fn unexpected() -> Silence {
    Silence::Failed(refused(Error::Internal("unexpected response from etcd".to_owned())))
}
