//! Watching the node of a grant.

use crate::{
    node::Guarded,
    session::{Live, State},
};
use futures_util::{FutureExt, future::BoxFuture};
use std::{sync::Arc, time::Duration};
use tenure_core::{ClaimId, LossCause};
use tokio_util::sync::CancellationToken;
use zookeeper_client::{EventType, WatchedEvent};

/// How long a grant goes unwatched. Most are over by then, and need no request for it.
const UNWATCHED: Duration = Duration::from_millis(100);
/// How soon a watch is set again after that failed.
const AGAIN: Duration = Duration::from_millis(100);
/// How long it may take to find out why a node has gone. The holder has lost the lock in any case, and is to be told soon.
const WHY: Duration = Duration::from_secs(1);

/// A watch that is set already, because the claim had to wait.
pub(crate) type OwnWatch = BoxFuture<'static, WatchedEvent>;

impl State {
    /// The node that has taken the place of the claim's node at `path`, or will have if its deletion is part of that.
    fn successor(&self, claim: ClaimId, path: &str) -> Option<String> {
        let node = self.nodes.get(&claim)?;
        let successors = [Some(&node.path), node.conversion.renamed.as_ref()];
        // Only a reader is succeeded, and by a writer.
        successors.into_iter().flatten().find(|other| *other != path).cloned()
    }

    /// Has the grant watched if it lasts. One task sees to all grants of the same moment.
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
    /// Ends the grant when somebody else deletes its node, and the session when the grant has passed its deadline.
    pub(crate) async fn guard(self: Arc<Self>, grant: Guarded, watch: Option<OwnWatch>) {
        let Guarded { claim, path, liveness, unwanted } = grant;
        tokio::select! {
            biased;
            () = self.over.cancelled() => {}
            () = self.deleted(claim, &path, watch, &unwanted) => {
                if !unwanted.is_cancelled() {
                    liveness.revoke(LossCause::Forced);
                    self.state().nodes.remove(&claim);
                }
            }
            _ = liveness.ended() => {
                // Released, it may outlast its deadline: only the removal of its node is still to come.
                if !unwanted.is_cancelled() || self.state().nodes.contains_key(&claim) {
                    tracing::warn!(%path, "no proof of the session's life in time: the session is given up");
                    self.end();
                }
            }
        }
    }

    /// Waits until the claim's node at `path` has gone, none has taken its place, and the session goes on as far as that can be
    /// found out in time.
    async fn deleted(
        &self,
        claim: ClaimId,
        path: &str,
        mut watch: Option<OwnWatch>,
        unwanted: &CancellationToken,
    ) {
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
                        tracing::debug!(path, %error, "a grant's node could not be watched; it is tried again");
                        tokio::time::sleep(AGAIN).await;
                        continue;
                    }
                }
            };
            if !stands {
                let successor = self.state().successor(claim, &path);
                let Some(successor) = successor else {
                    // Its own client needs no reason.
                    if unwanted.is_cancelled() {
                        return;
                    }
                    // Without an answer in time, the cause is what is likely: somebody deleted it.
                    let _ = tokio::time::timeout(WHY, self.is_answered(&path)).await;
                    return;
                };
                path = successor;
            }
        }
    }

    /// Waits for an answer to this session. One that has ended gets none: the server deletes its nodes, tells those who
    /// watch them, and then closes its connection.
    async fn is_answered(&self, path: &str) {
        while let Err(error) = self.client.check_stat(path).await {
            tracing::debug!(path, %error, "it is not known yet why a grant's node has gone; it is asked again");
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// Keeps a watch for whoever asks next.
pub(crate) fn keep(watcher: zookeeper_client::OneshotWatcher) -> OwnWatch {
    watcher.changed().boxed()
}
