//! Removing nodes reliably.

use crate::{
    errors::{Verdict, verdict},
    node::{Removal, Removed, contender::claim_of},
    session::Live,
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, join},
};
use std::{sync::Arc, time::Duration};
use tenure_core::{ClaimId, LossCause};
use tokio::runtime::Handle;
use zookeeper_client::Error as Client;

/// How soon to repeat a request whose outcome is unknown. While the client is disconnected, requests wait in it.
const AGAIN: Duration = Duration::from_millis(100);

/// Waits for a removal in this session. When dropped, the removal goes on in the background: no lease would end the
/// node.
pub(crate) async fn finish(live: &Live, removal: Removal) -> Removed {
    struct Onward(Handle, Option<Removal>);
    impl Drop for Onward {
        fn drop(&mut self) {
            if let Some(removal) = self.1.take() {
                self.0.spawn(removal);
            }
        }
    }
    let mut onward = Onward(live.background.clone(), Some(removal.clone()));
    let removed = removal.await;
    onward.1 = None;
    removed
}

impl Live {
    /// Removes the claim's node; `None` if none is known. The request has been sent when this returns, unless the claim
    /// is just changing its mode.
    pub(crate) fn remove(self: &Arc<Self>, lock: &str, claim: ClaimId) -> Option<Removal> {
        let mut state = self.state();
        let node = state.nodes.get_mut(&claim)?;
        node.unwanted.cancel();
        let removal = node.removal.get_or_insert_with(|| {
            let live = Arc::clone(self);
            let turn = Arc::clone(&node.conversion.turn);
            let removing = match turn.clone().try_lock_owned() {
                Ok(turn) if !node.conversion.unsettled => {
                    let path = node.path.clone();
                    let request = self.client.delete(&path, None);
                    async move {
                        let _turn = turn;
                        live.removed(claim, live.finish_removal(&path, request).await)
                    }
                    .boxed()
                }
                // It is not known by which node the claim holds.
                _ => {
                    let lock = lock.to_owned();
                    async move {
                        let _turn = turn.lock_owned().await;
                        live.removed(claim, live.sweep(lock, claim).await)
                    }
                    .boxed()
                }
            };
            removing.shared()
        });
        Some(removal.clone())
    }

    /// Forgets the claim's node. If another client had deleted it, the grant is lost: its own watch ended with the request,
    /// and a repeated request finds no node, which must not count as a release.
    fn removed(&self, claim: ClaimId, removed: Removed) -> Removed {
        let held = self.state().nodes.remove(&claim).and_then(|node| node.held);
        if let (Removed::Missing, Some(held)) = (&removed, held) {
            held.end(LossCause::Forced);
        }
        removed
    }

    /// Deletes a node that is not recorded.
    pub(crate) async fn delete(&self, path: &str) -> Removed {
        self.finish_removal(path, self.client.delete(path, None)).await
    }

    async fn finish_removal(
        &self,
        path: &str,
        request: impl Future<Output = Result<(), Client>> + Send,
    ) -> Removed {
        let mut answer = self.unless_over(request).await;
        let mut asked_before = false;
        loop {
            match answer {
                None => return Removed::SessionOver,
                Some(Ok(())) => return Removed::Deleted,
                // The first request may have deleted it.
                Some(Err(Client::NoNode)) if asked_before => return Removed::Deleted,
                Some(Err(Client::NoNode)) => return Removed::Missing,
                Some(Err(error)) => match verdict(&error) {
                    Verdict::SessionOver => return Removed::SessionOver,
                    Verdict::Refused => return Removed::Refused(error),
                    Verdict::Unknown => asked_before = true,
                },
            }
            tokio::time::sleep(AGAIN).await;
            answer = self.unless_over(self.client.delete(path, None)).await;
        }
    }

    /// Removes every node of the claim under `lock`, known or not. This includes a node whose creation is still on its
    /// way in this session, because a session's requests are carried out in order.
    pub(crate) fn sweep(self: &Arc<Self>, lock: String, claim: ClaimId) -> BoxFuture<'static, Removed> {
        let live = Arc::clone(self);
        let task = self.background.spawn(async move {
            let removed = live.sweep_to_the_end(&lock, claim).await;
            live.state().creating.remove(&claim);
            removed
        });
        task.map(|ended| ended.unwrap_or(Removed::SessionOver)).boxed()
    }

    async fn sweep_to_the_end(&self, lock: &str, claim: ClaimId) -> Removed {
        let mut removed = Removed::Missing;
        loop {
            let error = match self.unless_over(self.list_synced(lock)).await {
                None => return Removed::SessionOver,
                Some(Ok(children)) => {
                    for node in children.iter().filter(|node| claim_of(node) == Some(claim)) {
                        match self.delete(&format!("{lock}/{node}")).await {
                            Removed::Missing => {}
                            Removed::Deleted => removed = Removed::Deleted,
                            over_or_refused => return over_or_refused,
                        }
                    }
                    return removed;
                }
                Some(Err(Client::NoNode)) => return removed,
                Some(Err(error)) => error,
            };
            match verdict(&error) {
                Verdict::SessionOver => return Removed::SessionOver,
                Verdict::Refused => return Removed::Refused(error),
                Verdict::Unknown => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    /// The children of `lock` as the leader knows them now or later.
    pub(crate) async fn list_synced(&self, lock: &str) -> Result<Vec<String>, Client> {
        let (synced, listed) = join(self.client.sync(lock), self.client.list_children(lock)).await;
        synced?;
        listed
    }

    pub(crate) async fn unless_over<T>(&self, request: impl Future<Output = T> + Send) -> Option<T> {
        tokio::select! {
            biased;
            answer = request => Some(answer),
            () = self.over.cancelled() => None,
        }
    }
}
