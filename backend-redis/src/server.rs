//! One server: the requests about a name, each one script call, and this client's state for it.
//!
//! A server may be a node of a Cluster. Then it has the connections of the others too, because while a slot is moving,
//! another node may have the answer.
//!
//! Each file uses only those below it.
//!
//! | file | what is in it |
//! |---|---|
//! | `wait` | a claim that waits: for news of a release, or in a queue |
//! | `attempt`, `several` | one attempt to grant a claim, or several together |
//! | `renewal`, `ending` | renewals, and changes of mode; releases, and withdrawals |
//! | `holders`, `latch` | holders and waiters; latches |
//! | `replication` | grants that count only once replicas have them |
//! | `fitness` | whether a server can keep locks |
//! | `nodes`, `redirect` | the other nodes of a Cluster, and when they are to be asked |

mod attempt;
mod ending;
pub(crate) mod fitness;
mod holders;
mod latch;
mod nodes;
mod redirect;
mod renewal;
mod replication;
mod several;
mod wait;

pub(crate) use nodes::Nodes;
pub(crate) use redirect::{Redirect, is_moving, redirect, took_no_requests};
pub(crate) use renewal::RENEW_BATCH;

use crate::{
    connection::{
        address::Address,
        dial::Endpoint,
        errors::Failure,
        failovers::Failovers,
        link::{Answer, Link},
        notices::QueuedClaims,
        subscriptions::{Listening, Subscriptions},
    },
    doubts::Doubts,
    options::CheckedOptions,
    requests::{
        keys,
        script::{Script, Scripts},
    },
};
use redis::Cmd;
use replication::Replication;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tenure_core::{Background, ClaimId, Name, StoreError};

/// One server, and this client's state for it.
pub(crate) struct Server {
    pub(crate) options: CheckedOptions,
    pub(crate) link: Arc<Link>,
    pub(crate) subscriptions: Subscriptions,
    /// Set if sentinels name the master.
    failovers: Option<Failovers>,
    pub(crate) scripts: Scripts,
    queued: QueuedClaims,
    /// Set if replicas must have a grant before it counts.
    replication: Option<Replication>,
    pub(crate) doubts: Doubts,
    /// All nodes of the Cluster, if this is one of them.
    nodes: Option<Arc<Nodes>>,
    /// This client's id, for hand-overs to it.
    client: ClaimId,
    inbox: Mutex<Option<Listening>>,
}

impl Server {
    pub(crate) fn new(endpoint: Endpoint, options: CheckedOptions, background: &Background) -> Self {
        let link = Arc::new(Link::new(options.dial(endpoint)));
        Self::with(None, link, options, Doubts::default(), background)
    }

    /// One node of a Cluster.
    pub(crate) fn among(
        nodes: &Arc<Nodes>,
        address: &Address,
        options: CheckedOptions,
        doubts: Doubts,
        background: &Background,
    ) -> Result<Self, StoreError> {
        let link = nodes.at(address)?;
        Ok(Self::with(Some(Arc::clone(nodes)), link, options, doubts, background))
    }

    fn with(
        nodes: Option<Arc<Nodes>>,
        link: Arc<Link>,
        options: CheckedOptions,
        doubts: Doubts,
        background: &Background,
    ) -> Self {
        let (dial, queued, in_cluster) = (link.dial().clone(), QueuedClaims::default(), nodes.is_some());
        let wanted = Some(options.replicas).filter(|replicas| *replicas > 0);
        Self {
            replication: wanted.map(|wanted| Replication::new(dial.clone(), wanted)),
            failovers: Failovers::of(&dial, background),
            subscriptions: Subscriptions::new(dial, in_cluster, queued.clone(), background.clone()),
            link,
            scripts: Scripts::new(options.fair, in_cluster),
            queued,
            doubts,
            nodes,
            client: ClaimId::new(),
            inbox: Mutex::default(),
            options,
        }
    }

    pub(crate) fn lock_key(&self, name: &Name) -> String {
        keys::lock(&self.options.prefix, name)
    }

    /// The channel on which this client is told that its turn has come.
    pub(crate) fn inbox(&self) -> Listening {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        let listen = || self.subscriptions.listen(&keys::inbox(&self.options.prefix, self.client));
        inbox.get_or_insert_with(listen).clone()
    }

    /// The inbox, if the server has confirmed the subscription.
    pub(crate) fn confirmed_inbox(&self) -> Option<Listening> {
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.clone().filter(Listening::is_confirmed)
    }

    pub(crate) fn disconnect(&self) {
        drop(self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.subscriptions.disconnect();
        if let Some(failovers) = &self.failovers {
            failovers.stop();
        }
        if let Some(replication) = &self.replication {
            replication.disconnect();
        }
        self.link.disconnect();
    }

    /// Begins a call with every key of a name that the script may need. Also returns the lock's key.
    pub(crate) fn call(&self, script: &Script, name: &Name) -> (Cmd, String) {
        let lock = self.lock_key(name);
        let (record, size) = (keys::record(&lock), lock.len());
        if self.options.fair {
            let mut call = script.call(4, size * 8);
            call.arg(&lock).arg(record).arg(keys::queue(&lock)).arg(keys::waiters(&lock));
            return (call, lock);
        }
        let mut call = script.call(2, size * 4);
        call.arg(&lock).arg(record);
        (call, lock)
    }

    /// A call without a queue, with the key that stops newcomers.
    fn call_with_stop(&self, script: &Script, name: &Name) -> (Cmd, String) {
        let lock = self.lock_key(name);
        let mut call = script.call(3, lock.len() * 6);
        call.arg(&lock).arg(keys::record(&lock)).arg(keys::stop(&lock));
        (call, lock)
    }

    pub(crate) async fn run(&self, script: &Script, call: &Cmd, about: &str) -> Result<Answer, Failure> {
        self.listen_to_failovers();
        match self.link.run(script, call, about).await {
            Err(failure) => match self.asked_to_ask(&failure) {
                // A first copy may have been carried out before the slot began to move.
                Some(link) => match link.run_asking(script, call, about).await {
                    Ok(answer) => Ok(Answer { resent: answer.resent || failure.in_doubt, ..answer }),
                    Err(next) => Err(Failure { in_doubt: next.in_doubt || failure.in_doubt, ..next }),
                },
                None => Err(failure),
            },
            answer => answer,
        }
    }

    fn listen_to_failovers(&self) {
        if let Some(failovers) = &self.failovers {
            failovers.listen();
        }
    }

    /// The node to which the slot of a request is moving, if that is why it failed.
    fn asked_to_ask(&self, failure: &Failure) -> Option<Arc<Link>> {
        match redirect(&failure.error)? {
            Redirect::Ask(address) => self.nodes.as_ref()?.at(&address).ok(),
            Redirect::Moved(_) => None,
        }
    }

    /// Whether names in different slots need separate requests.
    pub(crate) fn is_in_cluster(&self) -> bool {
        self.nodes.is_some()
    }

    /// How long the record of a grant is kept, in seconds: longer than the grant.
    pub(crate) fn remember(&self, lease: Duration) -> u64 {
        self.options.remember.max(lease * 2).as_secs()
    }

    /// Runs a script whose effect may also be required on replicas.
    pub(crate) async fn run_replicated(
        &self,
        script: &Script,
        call: &Cmd,
        about: &str,
    ) -> Result<Answer, Failure> {
        self.listen_to_failovers();
        match &self.replication {
            Some(replication) => replication.run(script, call, about).await,
            None => self.run(script, call, about).await,
        }
    }

    /// Whether a grant counts only once replicas have it.
    pub(crate) fn is_replicated(&self) -> bool {
        self.replication.is_some()
    }
}
