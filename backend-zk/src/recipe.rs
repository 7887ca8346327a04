//! The recipe: how a claim enters the queue of its lock, and comes to hold it.

use crate::{
    errors::{Verdict, explain, verdict},
    node::{
        Guarded, Removed,
        card::Card,
        contender::{claim_of, prefix, token_of},
        order::parts,
    },
    queue::{Queue, WaitsFor},
    removal::finish,
    session::Live,
    watch::OwnWatch,
};
use futures_util::future::{OptionFuture, join3};
use std::{sync::Arc, time::Duration};
use tenure_core::{Attempt, Claim, Grant, Moment, StoreError, Token};
use zookeeper_client::{CreateMode, Error};

/// Why a claim was not granted.
pub(crate) enum Stop {
    /// The session has ended: the claim must queue in another one.
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
    /// Whether exclusive claims are named like writers of Curator's read-write lock.
    pub(crate) read_write: bool,
}

/// A claim's position in the queue.
pub(crate) struct Position {
    pub(crate) own: String,
    pub(crate) queue: Queue,
    pub(crate) at: usize,
}

impl Contender<'_> {
    /// Acquires the lock if those before the claim admit it; leaves the queue otherwise.
    pub(crate) async fn attempt(&self) -> Result<Attempt, Stop> {
        let _contending = self.live.contend();
        let position = self.in_time(self.stand()).await?;
        let holds = match position.queue.waits_for(position.at) {
            WaitsFor::Nothing => true,
            WaitsFor::Node { node, may_read: true, .. } => self.in_time(self.reads(node)).await?,
            WaitsFor::Node { .. } | WaitsFor::Room => false,
        };
        if holds {
            return Ok(Attempt::Granted(self.grant(&position, None).await?));
        }
        self.leave().await?;
        position.queue.agrees(position.at).map_err(|why| Stop::Failed(StoreError::mismatch(why)))?;
        Ok(Attempt::Busy { expires_in: None })
    }

    /// Leaves the queue.
    pub(crate) async fn leave(&self) -> Result<(), Stop> {
        let Some(removal) = self.live.remove(self.lock, self.claim.id) else { return Ok(()) };
        match self.in_time(async { Ok(finish(self.live, removal).await) }).await? {
            Removed::Refused(error) => Err(Stop::Failed(explain(self.lock, error))),
            Removed::Deleted | Removed::Missing | Removed::SessionOver => Ok(()),
        }
    }

    /// Whether the first in the queue, named as exclusive, has become a reader.
    async fn reads(&self, node: &str) -> Result<bool, Stop> {
        match self.live.client.get_data(&format!("{}/{node}", self.lock)).await {
            Ok((data, _)) => Ok(Card::is_downgraded(node, &data)),
            Err(Error::NoNode | Error::NoAuth) => Ok(false),
            Err(error) => Err(self.stop(error)),
        }
    }

    /// Grants the claim by its node.
    pub(crate) async fn grant(&self, position: &Position, watch: Option<OwnWatch>) -> Result<Grant, Stop> {
        self.live.assured().await;
        let mut state = self.live.state();
        if let Some((node, liveness, new)) = state.grant(self.claim.id) {
            let grant = Grant::in_session(self.claim, node.token, liveness.clone());
            if new {
                let (path, unwanted) = (node.path.clone(), node.unwanted.clone());
                let guarded = Guarded { claim: self.claim.id, path, liveness, unwanted };
                match watch {
                    Some(set) => {
                        drop(self.live.background.spawn(Arc::clone(self.live).guard(guarded, Some(set))));
                    }
                    None => state.watch_later(self.live, guarded),
                }
                if position.queue.is_awaited(position.at) {
                    self.live.background.spawn(Arc::clone(self.live).tell(self.claim.id));
                }
            }
            return Ok(grant);
        }
        let gone = !state.nodes.contains_key(&self.claim.id);
        drop(state);
        if gone {
            return Err(Stop::Failed(StoreError::unavailable("the claim was withdrawn during the request")));
        }
        // The servers may have ended the session without our knowing, so it is given up.
        self.live.end();
        Err(Stop::SessionOver)
    }

    /// Puts the claim in the queue, unless it is there, and looks at the nodes before it.
    pub(crate) async fn stand(&self) -> Result<Position, Stop> {
        loop {
            let removal = self.live.state().nodes.get(&self.claim.id).and_then(|node| node.removal.clone());
            if let Some(removal) = removal {
                // An earlier request left the queue, and was given up before the answer came.
                finish(self.live, removal).await;
                continue;
            }
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
                    // Either way, the outcome is known now.
                    self.live.state().creating.remove(&self.claim.id);
                    continue;
                }
                None => self.join_queue().await?,
            };
            let own = own.rsplit('/').next().unwrap_or_default().to_owned();
            let mut mine = children.iter().filter(|node| claim_of(node) == Some(self.claim.id));
            match (mine.next(), mine.next()) {
                // Another client deleted it.
                (None, _) => {
                    self.live.state().nodes.remove(&self.claim.id);
                }
                (Some(node), None) if *node == own => {
                    if let Some(position) = self.find(own, &children).await? {
                        return Ok(position);
                    }
                }
                _ => self.adopt(&children).await?,
            }
        }
    }

    /// The position of the claim's node among these.
    pub(crate) async fn find(&self, own: String, children: &[String]) -> Result<Option<Position>, Stop> {
        let around = parts(&own).map(|(_, number)| number);
        let queue = self.live.queue(self.lock, children, around).await.map_err(|error| self.stop(error))?;
        Ok(queue.position(&own).map(|at| Position { own, queue, at }))
    }

    /// Makes the claim's node, and lists the queue. Both requests are sent at once: a session's requests are carried
    /// out in order, so the list includes the new node.
    async fn join_queue(&self) -> Result<(String, Vec<String>), Stop> {
        let (live, client, claim) = (self.live, &self.live.client, self.claim.id);
        let base = format!("{}/{}", self.lock, prefix(claim, self.claim.mode, self.read_write));
        let card = Card::of(self.claim);
        let data = card.bytes();
        let ephemeral = CreateMode::EphemeralSequential.with_acls(live.acls());
        let mut parent = None;
        loop {
            let sent = Moment::now();
            live.state().creating.insert(claim);
            let above: OptionFuture<_> = parent
                .map(|mode: CreateMode| client.create(self.lock, b"", &mode.with_acls(live.acls())))
                .into();
            let requests =
                join3(above, client.create(&base, &data, &ephemeral), client.list_children(self.lock));
            let (above, created, children) = requests.await;
            match created {
                Ok((stat, number)) => {
                    let token = Token::try_from(stat.czxid)
                        .map_err(|error| Stop::Failed(StoreError::failed(error)))?;
                    let path = format!("{base}{number}");
                    {
                        let mut state = live.state();
                        state.creating.remove(&claim);
                        state.remember(claim, path.clone(), token, card);
                    }
                    live.written(sent);
                    return Ok((path, children.map_err(|error| self.stop(error))?));
                }
                Err(Error::NoNode) => {
                    live.state().creating.remove(&claim);
                    parent = Some(match above {
                        // The lock's node was missing, or the server has just removed it because it was empty.
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

    /// Decides which of several nodes of the claim is its own: the oldest of this session. Deletes the others: they
    /// came from requests whose reply was lost, or are ghosts of a session that is ending and must never be granted.
    async fn adopt(&self, children: &[String]) -> Result<(), Stop> {
        let live = self.live;
        let mut own: Option<(Token, String)> = None;
        let mut others = Vec::new();
        for node in children.iter().filter(|node| claim_of(node) == Some(self.claim.id)) {
            let path = format!("{}/{node}", self.lock);
            let Some(stat) = live.client.check_stat(&path).await.map_err(|error| self.stop(error))? else {
                continue;
            };
            let made =
                Token::try_from(stat.czxid).map_err(|error| Stop::Failed(StoreError::failed(error)))?;
            let token = token_of(node).unwrap_or(made);
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
                state.remember(self.claim.id, path, token, Card::of(self.claim));
            }
            Some(_) => {}
            None => drop(state.nodes.remove(&self.claim.id)),
        }
        Ok(())
    }

    pub(crate) async fn in_time<T>(
        &self,
        request: impl Future<Output = Result<T, Stop>> + Send,
    ) -> Result<T, Stop> {
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

    pub(crate) fn stop(&self, error: Error) -> Stop {
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

fn empty_where_missing(error: Error) -> Result<Vec<String>, Error> {
    if error == Error::NoNode { Ok(Vec::new()) } else { Err(error) }
}
