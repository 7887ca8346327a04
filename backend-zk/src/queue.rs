//! The recipe: how a claim comes to hold a lock.

use crate::{
    contender::{Card, claim_of, contenders, prefix},
    errors::{Verdict, explain, verdict},
    order::{offset, sequence, tells_nothing},
    removal::{Removed, finish},
    session::Live,
    watch::{Guarded, OwnWatch, keep},
};
use futures_util::{
    FutureExt,
    future::{OptionFuture, join, join3},
};
use std::{sync::Arc, time::Duration};
use tenure_core::{Attempt, Claim, Grant, Moment, StoreError, Token};
use zookeeper_client::{Client, CreateMode, Error, EventType, SessionState};

/// How long a waiter trusts its watch before it looks at the queue itself.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(8);

/// Why a claim was not granted.
pub(crate) enum Stop {
    /// The session is over: the claim has to queue in another one.
    SessionOver,
    Failed(StoreError),
}

/// A claim in the queue of its lock, in one session.
pub(crate) struct Contender<'a> {
    pub(crate) live: &'a Arc<Live>,
    pub(crate) claim: &'a Claim,
    /// The lock's node.
    pub(crate) lock: &'a str,
    /// The node above it.
    pub(crate) prefix: &'a str,
    pub(crate) response_timeout: Duration,
}

/// Where a claim stands.
struct Standing {
    own: String,
    /// The nodes before its own, first come first.
    ahead: Vec<String>,
}

impl Contender<'_> {
    /// Takes the lock if nobody is before the claim; leaves the queue otherwise.
    pub(crate) async fn attempt(&self) -> Result<Attempt, Stop> {
        let _contending = self.live.contend();
        if self.in_time(self.stand()).await?.ahead.is_empty() {
            return Ok(Attempt::Granted(self.grant(None)?));
        }
        if let Some(removal) = self.live.remove(self.claim.id) {
            self.in_time(async { Ok(finish(removal).await) }).await.and_then(|removed| match removed {
                Removed::Refused(error) => Err(Stop::Failed(explain(self.lock, error))),
                Removed::Deleted | Removed::Missing | Removed::SessionOver => Ok(()),
            })?;
        }
        Ok(Attempt::Busy { expires_in: None })
    }

    /// Waits in the queue until nobody is before the claim.
    pub(crate) async fn wait(&self) -> Result<Grant, Stop> {
        let _contending = self.live.contend();
        let client = &self.live.client;
        loop {
            let Standing { own, ahead } = self.in_time(self.stand()).await?;
            let Some(before) = ahead.last() else { return self.grant(None) };
            let mut connection = client.state_watcher();
            let (before, own) = (format!("{}/{before}", self.lock), format!("{}/{own}", self.lock));
            let watches = async {
                let (before, own) =
                    join(client.check_and_watch_stat(&before), client.check_and_watch_stat(&own)).await;
                let error = |error| self.stop(error);
                Ok((before.map_err(error)?, own.map_err(error)?))
            };
            let ((Some(_), before), (Some(_), own)) = self.in_time(watches).await? else { continue };
            let (mut before, mut own) = (keep(before), keep(own));
            tokio::select! {
                biased;
                () = self.live.over.cancelled() => return Err(Stop::SessionOver),
                _ = &mut own => {}
                event = &mut before => {
                    // The holder has gone, nobody else was before this claim, and whoever came since is behind it. Its
                    // own node stands: the server sends events in the order of the changes, and the connection was
                    // never broken since both watches were set.
                    let next = ahead.len() == 1 && event.event_type == EventType::NodeDeleted;
                    let unbroken = connection.changed().now_or_never().is_none();
                    if next && unbroken && (&mut own).now_or_never().is_none() {
                        return self.grant(Some(own));
                    }
                }
                () = cut_off(client, self.response_timeout) => {
                    return Err(Stop::Failed(StoreError::unavailable("the connection to the servers is broken")));
                }
                () = tokio::time::sleep(ASK_AGAIN) => {}
            }
        }
    }

    /// Grants what the claim's node stands for.
    fn grant(&self, watch: Option<OwnWatch>) -> Result<Grant, Stop> {
        let mut state = self.live.state();
        if let Some((node, liveness, new)) = state.grant(self.claim.id) {
            let grant = Grant::in_session(self.claim, node.token, liveness.clone());
            if new {
                let (path, unwanted) = (node.path.clone(), node.unwanted.clone());
                let guarded = Guarded { claim: self.claim.id, path, liveness, unwanted };
                match watch {
                    Some(set) => drop(tokio::spawn(Arc::clone(self.live).guard(guarded, Some(set)))),
                    None => state.watch_later(self.live, guarded),
                }
            }
            return Ok(grant);
        }
        let gone = !state.nodes.contains_key(&self.claim.id);
        drop(state);
        if gone {
            return Err(Stop::Failed(StoreError::unavailable("the claim was withdrawn meanwhile")));
        }
        // The servers may have ended the session without our knowing. What is left of it is given up.
        self.live.end();
        Err(Stop::SessionOver)
    }

    /// Puts the claim in the queue, unless it stands there, and looks who is before it.
    async fn stand(&self) -> Result<Standing, Stop> {
        loop {
            let known = self.live.state().nodes.get(&self.claim.id).map(|node| node.path.clone());
            let (own, children) = match known {
                Some(path) => {
                    let children = self.live.client.list_children(self.lock).await;
                    (path, children.or_else(empty_where_missing).map_err(|error| self.stop(error))?)
                }
                None if self.live.state().creating.contains(&self.claim.id) => {
                    let children = self.live.list_synced(self.lock).await;
                    let children = children.or_else(empty_where_missing).map_err(|error| self.stop(error))?;
                    self.adopt(&children).await?;
                    // Found or not, it is known now.
                    self.live.state().creating.remove(&self.claim.id);
                    continue;
                }
                None => self.join_queue().await?,
            };
            let own = own.rsplit('/').next().unwrap_or_default().to_owned();
            let mut mine = children.iter().filter(|node| claim_of(node) == Some(self.claim.id));
            match (mine.next(), mine.next()) {
                // Somebody deleted it.
                (None, _) => {
                    self.live.state().nodes.remove(&self.claim.id);
                }
                (Some(node), None) if *node == own => {
                    let queue = self.live.queue(self.lock, &children, sequence(&own));
                    let mut ahead = queue.await.map_err(|error| self.stop(error))?;
                    if let Some(at) = ahead.iter().position(|node| *node == own) {
                        ahead.truncate(at);
                        return Ok(Standing { own, ahead });
                    }
                }
                _ => self.adopt(&children).await?,
            }
        }
    }

    /// Makes the claim's node, and lists the queue with it. Both requests leave at once: a session's requests are
    /// carried out in their order, so the list has the new node.
    async fn join_queue(&self) -> Result<(String, Vec<String>), Stop> {
        let (live, client, claim) = (self.live, &self.live.client, self.claim.id);
        let (base, card) = (format!("{}/{}", self.lock, prefix(claim)), Card::bytes(self.claim));
        let ephemeral = CreateMode::EphemeralSequential.with_acls(live.acls());
        let mut parent = None;
        loop {
            let sent = Moment::now();
            live.state().creating.insert(claim);
            let above: OptionFuture<_> = parent
                .map(|mode: CreateMode| client.create(self.lock, b"", &mode.with_acls(live.acls())))
                .into();
            let requests =
                join3(above, client.create(&base, &card, &ephemeral), client.list_children(self.lock));
            let (above, created, children) = requests.await;
            match created {
                Ok((stat, number)) => {
                    let token = Token::try_from(stat.czxid)
                        .map_err(|error| Stop::Failed(StoreError::failed(error)))?;
                    let path = format!("{base}{number}");
                    {
                        let mut state = live.state();
                        state.creating.remove(&claim);
                        state.remember(claim, path.clone(), token);
                    }
                    live.written(sent);
                    return Ok((path, children.map_err(|error| self.stop(error))?));
                }
                Err(Error::NoNode) => {
                    live.state().creating.remove(&claim);
                    parent = Some(match above {
                        // The lock's node was missing, or the server has just taken it away because it was empty.
                        None | Some(Ok(_) | Err(Error::NodeExists)) => CreateMode::Container,
                        Some(Err(Error::NoNode)) => {
                            self.make_prefix().await?;
                            CreateMode::Container
                        }
                        Some(Err(Error::Unimplemented)) => CreateMode::Persistent,
                        Some(Err(error)) => return Err(self.stop(error)),
                    });
                }
                Err(error) => {
                    if verdict(&error) == Verdict::Refused {
                        live.state().creating.remove(&claim);
                    }
                    return Err(self.stop(error));
                }
            }
        }
    }

    async fn make_prefix(&self) -> Result<(), Stop> {
        if self.prefix.is_empty() {
            return Err(self.stop(Error::NoNode));
        }
        let live = self.live;
        let options = CreateMode::Persistent.with_acls(live.acls());
        live.client.mkdir(self.prefix, &options).await.map_err(|error| self.stop(error))
    }

    /// Settles which of several nodes of the claim is its own: the oldest of this session. The others go: they came from
    /// requests whose reply was lost, or are ghosts of a session that is ending and must never be granted.
    async fn adopt(&self, children: &[String]) -> Result<(), Stop> {
        let live = self.live;
        let mut own: Option<(Token, String)> = None;
        let mut others = Vec::new();
        for node in children.iter().filter(|node| claim_of(node) == Some(self.claim.id)) {
            let path = format!("{}/{node}", self.lock);
            let Some(stat) = live.client.check_stat(&path).await.map_err(|error| self.stop(error))? else {
                continue;
            };
            let token =
                Token::try_from(stat.czxid).map_err(|error| Stop::Failed(StoreError::failed(error)))?;
            if stat.ephemeral_owner != live.client.session_id().0 {
                others.push(path);
            } else if own.as_ref().is_none_or(|(oldest, _)| token < *oldest) {
                others.extend(own.replace((token, path)).map(|(_, path)| path));
            } else {
                others.push(path);
            }
        }
        for path in others {
            if let Removed::Refused(error) = live.delete(&path).await {
                return Err(self.stop(error));
            }
        }
        let mut state = live.state();
        match own {
            Some((token, path)) if state.nodes.get(&self.claim.id).is_none_or(|node| node.path != path) => {
                state.remember(self.claim.id, path, token);
            }
            Some(_) => {}
            None => drop(state.nodes.remove(&self.claim.id)),
        }
        Ok(())
    }

    async fn in_time<T>(&self, request: impl Future<Output = Result<T, Stop>> + Send) -> Result<T, Stop> {
        let answer = self.live.unless_over(tokio::time::timeout(self.response_timeout, request)).await;
        match answer {
            None => Err(Stop::SessionOver),
            Some(Ok(answer)) => answer,
            Some(Err(_)) => {
                let why = format!("no answer within {:?}", self.response_timeout);
                Err(Stop::Failed(StoreError::unavailable(why)))
            }
        }
    }

    fn stop(&self, error: Error) -> Stop {
        if verdict(&error) == Verdict::SessionOver {
            self.live.end();
            // A server that refuses the credentials will refuse them again.
            if error != Error::AuthFailed {
                return Stop::SessionOver;
            }
        }
        Stop::Failed(explain(self.lock, error))
    }
}

impl Live {
    /// The nodes that contend for `lock`, in the order in which they came. `around`: a number near all of them.
    pub(crate) async fn queue(
        &self,
        lock: &str,
        children: &[String],
        around: Option<i32>,
    ) -> Result<Vec<String>, Error> {
        let Some(around) = around.or_else(|| contenders(children).map(|(number, _)| number).next()) else {
            return Ok(Vec::new());
        };
        let mut queue: Vec<_> =
            contenders(children).map(|(number, node)| (offset(number, around), 0, node.to_owned())).collect();
        if contenders(children).any(|(number, _)| tells_nothing(number)) {
            // The nodes' own age tells.
            let stats = queue.iter().map(|(_, _, node)| {
                let path = format!("{lock}/{node}");
                async move { self.client.check_stat(&path).await }
            });
            let stats = futures_util::future::try_join_all(stats).await?;
            let aged = queue.into_iter().zip(stats);
            queue = aged.filter_map(|((_, _, node), stat)| Some((0, stat?.czxid, node))).collect();
        }
        queue.sort_unstable();
        Ok(queue.into_iter().map(|(_, _, node)| node).collect())
    }
}

fn empty_where_missing(error: Error) -> Result<Vec<String>, Error> {
    if error == Error::NoNode { Ok(Vec::new()) } else { Err(error) }
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
