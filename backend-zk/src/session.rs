//! One session with the ensemble: its life, and the nodes in it.
//!
//! | file | what is in it |
//! |---|---|
//! | `diagnosis` | why it could not be opened |
//! | `opening` | how it is opened |
//! | `vigil` | waiters whose watch may be lost |
//! | `heartbeats` | until when it certainly lasts |

pub(crate) mod diagnosis;
mod heartbeats;
mod opening;
pub(crate) mod vigil;

use self::{
    heartbeats::Heartbeats,
    vigil::{Check, Vigil},
};
use crate::{
    errors::{Verdict, verdict},
    node::{Conversion, Guarded, Node, card::Card},
    options::{Checked, login},
};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_core::{ClaimId, Liveness, LossCause, Moment, StoreError, Token, lease};
use tokio::{runtime::Handle, sync::Notify};
use tokio_util::sync::CancellationToken;
use zookeeper_client::{Acl, Acls, CheckWriteError, Client, Error};

/// A session, from its opening to its end. After that, the backend opens another one.
///
/// It ends when the server says so, and also when a grant in it has passed its deadline: the grant's node may still
/// exist, so the session that keeps it is given up. The client closes the session with its last handle.
pub(crate) struct Live {
    pub(crate) client: Client,
    pub(crate) over: CancellationToken,
    /// Where the session lives, and work that must outlive its callers.
    pub(crate) background: Handle,
    acl: Vec<Acl>,
    timeout: Duration,
    state: Mutex<State>,
    pub(crate) vigil: Vigil,
    contending: AtomicUsize,
    /// Notified of each answered write.
    answered: Notify,
}

pub(crate) struct State {
    pub(crate) nodes: HashMap<ClaimId, Node>,
    /// Claims whose node was requested, and is not yet known to exist or not.
    pub(crate) creating: HashSet<ClaimId>,
    /// Grants that are not watched yet.
    pub(crate) unwatched: Vec<Guarded>,
    heartbeats: Heartbeats,
}

impl Live {
    /// Opens a session, and keeps and watches it in the background, where this is called.
    pub(crate) async fn open(options: &Checked, background: Handle) -> Result<Arc<Self>, StoreError> {
        let sent = Moment::now();
        let client = opening::open(options).await?;
        let timeout = client.session_timeout();
        tracing::debug!(session = %client.session_id(), ?timeout, "session opened");
        let heartbeats = Heartbeats::new(timeout, sent);
        let state =
            State { nodes: HashMap::new(), creating: HashSet::new(), unwatched: Vec::new(), heartbeats };
        let live = Arc::new(Self {
            client,
            over: CancellationToken::new(),
            background,
            acl: login::acl(options.login.as_ref()),
            timeout,
            state: Mutex::new(state),
            vigil: Vigil::default(),
            contending: AtomicUsize::new(0),
            answered: Notify::new(),
        });
        live.background.spawn(Arc::clone(&live).attend());
        live.background.spawn(Arc::clone(&live).beat());
        Ok(live)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Ends the session here. The servers learn of it when the client's last handle is dropped.
    pub(crate) fn end(&self) {
        self.state().heartbeats.session().end(LossCause::SessionEnded);
        self.over.cancel();
    }

    /// The ACL of its nodes.
    pub(crate) fn acls(&self) -> Acls<'_> {
        Acls::new(&self.acl)
    }

    /// Notes that a claim contends in this session, or that others' nodes are being removed, until the return value is
    /// dropped.
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

    /// Records that a write sent at `sent` has been answered.
    pub(crate) fn written(&self, sent: Moment) {
        let mut state = self.state();
        let held = state.nodes.values().any(|node| node.held.is_some());
        state.heartbeats.written(sent, held);
        drop(state);
        self.answered.notify_waiters();
    }

    /// Waits until it is safe to grant something in this session: while little of it is left, for instance after an
    /// outage, a grant would soon be lost. Also returns when the session has ended.
    pub(crate) async fn assured(&self) {
        loop {
            let answered = self.answered.notified();
            let liveness = {
                let state = self.state();
                if !state.heartbeats.runs_out() {
                    return;
                }
                state.heartbeats.session().liveness()
            };
            tokio::select! {
                () = answered => {}
                _ = liveness.ended() => return,
            }
        }
    }

    /// Whether any claim holds or waits in this session, or is about to, or its node is being removed.
    pub(crate) fn in_use(&self) -> bool {
        let state = self.state();
        let idle = state.nodes.is_empty() && state.creating.is_empty();
        !idle || self.contending.load(Ordering::Relaxed) > 0
    }

    /// Ends the session when the servers do.
    async fn attend(self: Arc<Self>) {
        let mut states = self.client.state_watcher();
        let mut state = states.state();
        while !state.is_terminated() {
            tracing::debug!(session = %self.client.session_id(), %state, "session state");
            tokio::select! {
                () = self.over.cancelled() => return,
                changed = states.changed() => state = changed,
            }
        }
        self.end();
        let session = self.client.session_id();
        // Not here: a loss must not wait for a log that blocks (clause F8).
        self.background.spawn(async move {
            tracing::warn!(%session, %state, "the session has ended; all locks held in it are lost");
        });
    }

    /// Sends heartbeats: at a third of the session's timeout, and sooner after a failure or while it runs out.
    async fn beat(self: Arc<Self>) {
        let period = lease::renewal_period(self.timeout);
        let mut pause = period;
        loop {
            let sent = tokio::select! {
                () = self.over.cancelled() => return,
                () = tokio::time::sleep(pause) => Moment::now(),
            };
            let answered = tokio::select! {
                () = self.over.cancelled() => return,
                answered = self.prove(sent) => answered,
            };
            let hurried = !answered || (self.in_use() && self.state().heartbeats.runs_out());
            pause = if hurried { period / 8 } else { (sent + period).left() };
        }
    }

    /// Has the server that this client talks to hear from the session.
    async fn touch(&self, sent: Moment) -> Result<(), Error> {
        self.client.check_stat("/").await.map(|_| self.state().heartbeats.touched(sent))
    }

    /// Sends one heartbeat. While no task holds or waits, a read is enough, which involves one server only. Otherwise a
    /// transaction follows at once. It waits for a majority; the read does not, so the next transaction confirms the read
    /// however slow this one is.
    async fn prove(&self, sent: Moment) -> bool {
        let answer = if self.in_use() {
            let check = |checks: Vec<Check>| async move {
                let sent = Moment::now();
                let missing = self.check(&checks).await?;
                self.written(sent);
                Ok(missing.map(|missing| (checks, missing)))
            };
            // A read that fails shows in the transaction, or does not matter.
            let (_, answer) = tokio::join!(self.touch(sent), self.vigil.look_after(check));
            answer
        } else {
            self.touch(sent).await
        };
        match answer {
            Ok(()) => true,
            Err(error) => {
                if verdict(&error) == Verdict::SessionOver {
                    self.end();
                }
                tracing::debug!(session = %self.client.session_id(), %error, "a heartbeat failed");
                false
            }
        }
    }
}

impl Live {
    /// Commits a transaction that changes nothing but needs a majority. If a node that a waiter relies on is missing,
    /// it still counts as success, and returns which one.
    pub(crate) async fn check(&self, checks: &[Check]) -> Result<Option<usize>, Error> {
        let mut transaction = self.client.new_check_writer("/", None)?;
        for Check { node, version, .. } in checks {
            transaction.add_check_version(node, *version)?;
        }
        match transaction.commit().await {
            // Before each check, the leader looks whether the session is alive.
            Err(
                CheckWriteError::CheckFailed { source } | CheckWriteError::OperationFailed { source, .. },
            ) if verdict(&source) == Verdict::SessionOver => Err(source),
            // A check that failed went through a majority too.
            Ok(_) | Err(CheckWriteError::CheckFailed { .. }) => Ok(None),
            Err(CheckWriteError::OperationFailed { index, .. }) => Ok(Some(index)),
            Err(CheckWriteError::RequestFailed { source }) => Err(source),
        }
    }
}

impl State {
    pub(crate) fn remember(&mut self, claim: ClaimId, path: String, token: Token, card: Card) {
        let (unwanted, conversion) = (CancellationToken::new(), Conversion::default());
        let node = Node { path, token, held: None, unwanted, removal: None, card, conversion };
        self.nodes.insert(claim, node);
    }

    /// Grants the claim by its node; `None` if nothing proves that the session is still alive.
    pub(crate) fn grant(&mut self, claim: ClaimId) -> Option<(&Node, Liveness, bool)> {
        let node = self.nodes.get_mut(&claim)?;
        let new = node.held.is_none();
        let session = self.heartbeats.session();
        let liveness = node.held.get_or_insert_with(|| session.liveness()).clone();
        if liveness.loss().is_some() {
            node.held.take_if(|_| new);
            return None;
        }
        Some((node, liveness, new))
    }
}
