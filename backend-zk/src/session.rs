//! One session of the ensemble: its life, and the nodes that live in it.

use crate::{
    card::Card,
    errors::{Verdict, verdict},
    login,
    node::{Conversion, Guarded, Node},
    opening,
    options::Checked,
    pulse::Pulse,
    vigil::Vigil,
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

/// A session, from its opening to its end. The backend opens another one then.
///
/// It ends when the server says so, and also when a grant in it was lost by its own deadline: the grant's node may
/// still stand, so the session that keeps it is given up. The client closes the session with its last handle.
pub(crate) struct Live {
    pub(crate) client: Client,
    pub(crate) over: CancellationToken,
    /// Where the session lives, and whatever must outlast its callers.
    pub(crate) background: Handle,
    acl: Vec<Acl>,
    timeout: Duration,
    state: Mutex<State>,
    pub(crate) vigil: Vigil,
    contending: AtomicUsize,
    /// Tells of each write that was answered.
    answered: Notify,
}

pub(crate) struct State {
    pub(crate) nodes: HashMap<ClaimId, Node>,
    /// Claims whose node was asked for, and of which nobody knows yet whether it was made.
    pub(crate) creating: HashSet<ClaimId>,
    /// Grants that are not watched yet.
    pub(crate) unwatched: Vec<Guarded>,
    pulse: Pulse,
}

impl Live {
    /// Opens a session in the background, where this is called, and sees to it that it is kept and watched.
    pub(crate) async fn open(options: &Checked, background: Handle) -> Result<Arc<Self>, StoreError> {
        let sent = Moment::now();
        let client = opening::open(options).await?;
        let timeout = client.session_timeout();
        tracing::debug!(session = %client.session_id(), ?timeout, "session opened");
        let pulse = Pulse::new(timeout, sent);
        let state = State { nodes: HashMap::new(), creating: HashSet::new(), unwatched: Vec::new(), pulse };
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

    /// Ends the session here; the servers learn of it when the last handle of the client goes.
    pub(crate) fn end(&self) {
        self.state().pulse.belief().end(LossCause::SessionEnded);
        self.over.cancel();
    }

    /// What its nodes allow to whom.
    pub(crate) fn acls(&self) -> Acls<'_> {
        Acls::new(&self.acl)
    }

    /// Says that a claim contends in this session, until what is returned is dropped.
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

    /// A write that was sent at `sent` has been answered.
    pub(crate) fn written(&self, sent: Moment) {
        let mut state = self.state();
        let held = state.nodes.values().any(|node| node.held.is_some());
        state.pulse.written(sent, held);
        drop(state);
        self.answered.notify_waiters();
    }

    /// Waits until nothing is wrong with granting something in this session: while little is left of it, after an outage
    /// say, what is granted would soon be lost. Returns as well when the session is over.
    pub(crate) async fn assured(&self) {
        loop {
            let answered = self.answered.notified();
            let liveness = {
                let state = self.state();
                if !state.pulse.runs_out() {
                    return;
                }
                state.pulse.belief().liveness()
            };
            tokio::select! {
                () = answered => {}
                _ = liveness.ended() => return,
            }
        }
    }

    /// Whether somebody holds or waits in this session.
    fn in_use(&self) -> bool {
        let state = self.state();
        let idle = state.nodes.is_empty() && state.creating.is_empty();
        !idle || self.contending.load(Ordering::Relaxed) > 0
    }

    /// Ends the session when the servers do.
    async fn attend(self: Arc<Self>) {
        let mut states = self.client.state_watcher();
        let mut state = states.state();
        while !state.is_terminated() {
            tokio::select! {
                () = self.over.cancelled() => return,
                changed = states.changed() => state = changed,
            }
            tracing::debug!(session = %self.client.session_id(), %state, "session");
        }
        tracing::warn!(session = %self.client.session_id(), %state, "the session is over, and what was held in it is lost");
        self.end();
    }

    /// Proves the session's life: at a third of its timeout, and sooner after a failure or while it runs out.
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
            let hurried = !answered || (self.in_use() && self.state().pulse.runs_out());
            pause = if hurried { period / 8 } else { (sent + period).left() };
        }
    }

    /// One proof of life. While nobody holds or waits a read will do, which stays with one server; otherwise a transaction.
    async fn prove(&self, sent: Moment) -> bool {
        let writes = self.in_use();
        let answer = if writes { self.check().await } else { self.client.check_stat("/").await.map(drop) };
        match answer {
            Ok(()) if writes => self.written(sent),
            Ok(()) => self.state().pulse.touched(sent),
            Err(error) => {
                tracing::debug!(session = %self.client.session_id(), %error, "no proof of life");
                if verdict(&error) == Verdict::SessionOver {
                    self.end();
                }
                return false;
            }
        }
        true
    }
}

impl Live {
    /// A transaction that a majority agrees on and that changes nothing. It succeeds also where a node is missing that
    /// somebody waits to hear of, and tells them.
    async fn check(&self) -> Result<(), Error> {
        let looks = self.vigil.next();
        let mut transaction = self.client.new_check_writer("/", None)?;
        for (_, node, version) in &looks {
            transaction.add_check_version(node, *version)?;
        }
        match transaction.commit().await {
            // A check that failed went through a majority too.
            Ok(_) | Err(CheckWriteError::CheckFailed { .. }) => Ok(()),
            Err(CheckWriteError::OperationFailed { index, source }) => {
                if let Some((look, node, _)) = looks.get(index) {
                    tracing::debug!(node, %source, "who waits to hear of this node is woken");
                    self.vigil.missed(look);
                }
                Ok(())
            }
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

    /// Grants what the claim's node stands for; `None` when nothing proves that the session still lives.
    pub(crate) fn grant(&mut self, claim: ClaimId) -> Option<(&Node, Liveness, bool)> {
        let node = self.nodes.get_mut(&claim)?;
        let new = node.held.is_none();
        let belief = self.pulse.belief();
        let liveness = node.held.get_or_insert_with(|| belief.liveness()).clone();
        if liveness.loss().is_some() {
            node.held.take_if(|_| new);
            return None;
        }
        Some((node, liveness, new))
    }
}
