//! Watching the node of a grant.

use crate::{
    errors::{Verdict, verdict},
    node::Guarded,
    session::{Live, State},
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, join},
};
use std::{sync::Arc, time::Duration};
use tenure_core::{ClaimId, LossCause};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use zookeeper_client::{EventType, WatchedEvent};

/// How long a grant goes unwatched. Most have ended by then, and need no request.
const UNWATCHED: Duration = Duration::from_millis(100);
/// How soon to set a watch again after that failed.
const AGAIN: Duration = Duration::from_millis(100);
/// How long to try to find out why a node is gone. The holder has lost the lock in any case, and must be told soon.
const WHY: Duration = Duration::from_secs(1);

/// A watch that is set already, because the claim had to wait.
pub(crate) type OwnWatch = BoxFuture<'static, WatchedEvent>;

impl State {
    /// The node that has replaced the claim's node at `path`, or is about to if its deletion is part of an upgrade.
    fn successor(&self, claim: ClaimId, path: &str) -> Option<String> {
        let node = self.nodes.get(&claim)?;
        let successors = [Some(&node.path), node.conversion.renamed.as_ref()];
        // Only a reader's node is replaced, by a writer's.
        successors.into_iter().flatten().find(|other| *other != path).cloned()
    }

    /// Watches the grant later, if it lasts. One task handles all grants of the same moment.
    pub(crate) fn watch_later(&mut self, live: &Arc<Live>, grant: Guarded) {
        self.unwatched.push(grant);
        if self.unwatched.len() > 1 {
            return;
        }
        let (live, background) = (Arc::clone(live), live.background.clone());
        background.spawn(async move {
            live.unless_over(tokio::time::sleep(UNWATCHED)).await;
            let lasting = std::mem::take(&mut live.state().unwatched);
            for grant in lasting.into_iter().filter(|grant| !grant.unwanted.is_cancelled()) {
                live.background.spawn(Arc::clone(&live).guard(grant, None));
            }
        });
    }
}

impl Live {
    /// Ends the grant when another client deletes its node, and the session when the grant has passed its deadline.
    pub(crate) async fn guard(self: Arc<Self>, grant: Guarded, watch: Option<OwnWatch>) {
        let Guarded { claim, path, liveness, unwanted } = grant;
        tokio::select! {
            biased;
            () = self.over.cancelled() => {}
            cause = self.deleted(claim, &path, watch, &unwanted) => {
                if !unwanted.is_cancelled() {
                    liveness.end(cause);
                    self.state().nodes.remove(&claim);
                }
            }
            _ = liveness.ended() => {
                // A released grant may pass its deadline: only its node is still being removed.
                if !unwanted.is_cancelled() || self.state().nodes.contains_key(&claim) {
                    self.end();
                    // Not here, because a log may block.
                    self.background.spawn(async move {
                        tracing::warn!(%path, "no heartbeat was confirmed in time; giving up the session");
                    });
                }
            }
        }
    }

    /// Waits until the claim's node at `path` is gone without a replacement, and returns why.
    async fn deleted(
        &self,
        claim: ClaimId,
        path: &str,
        mut watch: Option<OwnWatch>,
        unwanted: &CancellationToken,
    ) -> LossCause {
        let mut path = path.to_owned();
        loop {
            let stands = if let Some(set) = watch.take() {
                set.await.event_type != EventType::NodeDeleted
            } else {
                match self.client.check_and_watch_stat(&path).await {
                    Ok((Some(_), watcher)) => {
                        watch = Some(keep(watcher));
                        continue;
                    }
                    Ok((None, _)) => false,
                    Err(error) => {
                        tracing::debug!(path, %error, "could not watch a grant's node; trying again");
                        tokio::time::sleep(AGAIN).await;
                        continue;
                    }
                }
            };
            if !stands {
                let successor = self.state().successor(claim, &path);
                let Some(successor) = successor else {
                    // The client that removed it needs no reason.
                    if unwanted.is_cancelled() {
                        return LossCause::Forced;
                    }
                    return self.why_gone(&path).await;
                };
                path = successor;
                // While an upgrade is in doubt, each of the two nodes is the other's successor.
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// Why a grant's node is gone, as far as that can be found out in time: another client deleted it, if the session
    /// goes on.
    ///
    /// An ended session usually gets no answer: the server deletes its nodes, notifies their watchers, and then closes
    /// the connection, or keeps silent on it. But if the session was closed on another connection to the same server,
    /// and that server does not lead, it goes on answering from its own data, while the leader refuses the rest. The
    /// leader waits for disks, so its silence alone says nothing.
    async fn why_gone(&self, path: &str) -> LossCause {
        match join(timeout(WHY, self.is_answered(path)), timeout(WHY, self.ask_leader())).await {
            (Ok(()), _) if !self.is_over() => LossCause::Forced,
            _ => LossCause::SessionEnded,
        }
    }

    /// Waits until the leader has answered in this session, and ends it here if the answer is that it has ended.
    async fn ask_leader(&self) {
        while let Err(error) = self.check(&[]).await {
            if verdict(&error) == Verdict::SessionOver {
                return self.end();
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Waits for an answer in this session.
    async fn is_answered(&self, path: &str) {
        while let Err(error) = self.client.check_stat(path).await {
            tracing::debug!(path, %error, "could not find out why a grant's node is gone; trying again");
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// Keeps a watch for later use.
pub(crate) fn keep(watcher: zookeeper_client::OneshotWatcher) -> OwnWatch {
    watcher.changed().boxed()
}
