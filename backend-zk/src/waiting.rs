//! Waiting in the queue.

use crate::{
    errors::{Verdict, verdict},
    node::card::Card,
    queue::WaitsFor,
    recipe::{Contender, Position, Stop},
    session::{Live, vigil::Awaited},
    watch::{OwnWatch, keep},
};
use futures_util::{FutureExt, try_join};
use std::{sync::Arc, time::Duration};
use tenure_core::{ClaimId, Grant, Mode, StoreError};
use zookeeper_client::{Client, Error, EventType, OneshotWatcher, SessionState};

/// How soon to tell waiters again after that failed.
const AGAIN: Duration = Duration::from_millis(100);

/// The result of looking at what a claim waits for.
enum Look {
    /// It is watched, and looked after.
    Watched { watch: OwnWatch, awaited: Awaited },
    /// The claim holds the lock now.
    Now,
    /// The claim has another position now.
    Moved(Position),
    /// It is gone, or this version of it is new: it may have been admitted after the queue was looked at.
    News(Option<(String, i32)>),
}

impl Contender<'_> {
    /// Waits in the queue until those before the claim admit it.
    pub(crate) async fn wait(&self) -> Result<Grant, Stop> {
        let _contending = self.live.contend();
        let client = &self.live.client;
        let mut own: Option<(String, OwnWatch)> = None;
        let (mut known, mut seen) = (None, None);
        loop {
            let mut connection = client.state_watcher();
            let position = match known.take() {
                Some(position) => position,
                None => self.in_time(self.stand()).await?,
            };
            own = own.filter(|(node, _)| *node == position.own);
            let waits_for = position.queue.waits_for(position.at);
            if waits_for == WaitsFor::Nothing {
                return self.grant(&position, own.map(|(_, watch)| watch)).await;
            }
            if let Err(why) = position.queue.agrees(position.at) {
                self.leave().await?;
                return Err(Stop::Failed(StoreError::mismatch(why)));
            }
            let looks = async {
                try_join!(
                    self.look(&position, &waits_for, seen.as_ref()),
                    self.watch_own(&position.own, own.take())
                )
            };
            let (look, watch) = self.in_time(looks).await?;
            let Some(mut own_watch) = watch else { continue };
            let (mut change, awaited) = match look {
                Look::Watched { watch, awaited } => (watch, awaited),
                Look::Now => return self.grant(&position, Some(own_watch)).await,
                Look::Moved(position) => {
                    own = Some((position.own.clone(), own_watch));
                    known = Some(position);
                    continue;
                }
                Look::News(version) => {
                    own = Some((position.own, own_watch));
                    seen = version;
                    continue;
                }
            };
            let waiting = self.live.vigil.wait(awaited);
            tokio::select! {
                biased;
                () = self.live.over.cancelled() => return Err(Stop::SessionOver),
                _ = &mut own_watch => continue,
                event = &mut change => {
                    // That node is gone, nothing else was in the claim's way, and later nodes are behind it. Its own
                    // node still exists: the server sends events in the order of the changes, and the connection has
                    // not been broken since the claim was in the queue and both watches were set.
                    let last = matches!(waits_for, WaitsFor::Node { last: true, .. });
                    let gone = event.event_type == EventType::NodeDeleted;
                    let unbroken = connection.changed().now_or_never().is_none();
                    if (&mut own_watch).now_or_never().is_some() {
                        continue;
                    }
                    if last && gone && unbroken {
                        return self.grant(&position, Some(own_watch)).await;
                    }
                }
                () = cut_off(client, self.response_timeout) => {
                    return Err(Stop::Failed(StoreError::unavailable("the connection to the servers is broken")));
                }
                () = waiting.missed() => {}
            }
            own = Some((position.own, own_watch));
        }
    }

    /// Looks at what the claim waits for, and watches it.
    ///
    /// `seen`: a version of a node that is not new, because the queue was looked at since.
    async fn look(
        &self,
        position: &Position,
        waits_for: &WaitsFor<'_>,
        seen: Option<&(String, i32)>,
    ) -> Result<Look, Stop> {
        let client = &self.live.client;
        let own = format!("{}/{}", self.lock, position.own);
        let (node, version, watch) = match waits_for {
            WaitsFor::Nothing => return Ok(Look::Now),
            WaitsFor::Room => {
                let (children, watch) = match client.list_and_watch_children(self.lock).await {
                    Ok(found) => found,
                    Err(Error::NoNode) => return Ok(Look::News(None)),
                    Err(error) => return Err(self.stop(error)),
                };
                return Ok(match self.find(position.own.clone(), &children).await? {
                    None => Look::News(None),
                    Some(position) if position.queue.waits_for(position.at) == WaitsFor::Room => {
                        Look::Watched { watch: keep(watch), awaited: Awaited::Anything }
                    }
                    Some(position) => Look::Moved(position),
                });
            }
            WaitsFor::Node { node: first, may_read: true, .. } => {
                let node = format!("{}/{first}", self.lock);
                match client.get_and_watch_data(&node).await {
                    Ok((data, ..)) if Card::is_downgraded(first, &data) => return Ok(Look::Now),
                    Ok((_, stat, watch)) => (node, stat.version, watch),
                    Err(Error::NoNode) => return Ok(Look::News(None)),
                    // Another user's node, which this user may not read.
                    Err(Error::NoAuth) => match self.watch(&node).await? {
                        Some((version, watch)) => (node, version, watch),
                        None => return Ok(Look::News(None)),
                    },
                    Err(error) => return Err(self.stop(error)),
                }
            }
            WaitsFor::Node { node, .. } => {
                let node = format!("{}/{node}", self.lock);
                let Some((version, watch)) = self.watch(&node).await? else { return Ok(Look::News(None)) };
                // A claim that announces its admission, or becomes a reader, changes its node.
                let now = (node, version);
                if version > 0 && self.claim.mode != Mode::Exclusive && seen != Some(&now) {
                    return Ok(Look::News(Some(now)));
                }
                (now.0, version, watch)
            }
        };
        Ok(Look::Watched { watch: keep(watch), awaited: Awaited::Nodes { before: (node, version), own } })
    }

    /// Watches the claim's own node, unless it is watched already; `None` if it does not exist.
    async fn watch_own(
        &self,
        own: &str,
        watched: Option<(String, OwnWatch)>,
    ) -> Result<Option<OwnWatch>, Stop> {
        if let Some((_, watch)) = watched {
            return Ok(Some(watch));
        }
        let set = self.watch(&format!("{}/{own}", self.lock)).await?;
        Ok(set.map(|(_, watch)| keep(watch)))
    }

    async fn watch(&self, node: &str) -> Result<Option<(i32, OneshotWatcher)>, Stop> {
        match self.live.client.check_and_watch_stat(node).await {
            Ok((stat, watch)) => Ok(stat.map(|stat| (stat.version, watch))),
            Err(error) => Err(self.stop(error)),
        }
    }
}

impl Live {
    /// Tells a waiter for permits right behind the claim that the claim has been admitted, by changing its node.
    pub(crate) async fn tell(self: Arc<Self>, claim: ClaimId) {
        loop {
            let known = {
                let state = self.state();
                let node = state.nodes.get(&claim).filter(|node| !node.unwanted.is_cancelled());
                node.map(|node| (node.path.clone(), node.card.bytes()))
            };
            // If it is being removed, its watchers are told of that instead.
            let Some((path, data)) = known else { return };
            match self.unless_over(self.client.set_data(&path, &data, None)).await {
                Some(Err(error)) if verdict(&error) == Verdict::Unknown => tokio::time::sleep(AGAIN).await,
                _ => return,
            }
        }
    }
}

/// Waits until the client has been without a connection for `patience`.
async fn cut_off(client: &Client, patience: Duration) {
    let mut states = client.state_watcher();
    let mut state = client.state();
    loop {
        state = if state == SessionState::Disconnected {
            match tokio::time::timeout(patience, states.changed()).await {
                Ok(state) => state,
                Err(_) => return,
            }
        } else {
            states.changed().await
        };
    }
}
