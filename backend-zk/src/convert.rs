//! Downgrades and upgrades, each in its place.
//!
//! A new node would be at the end of the queue, behind waiting writers. So a writer's node stays, and its data say that
//! it is a reader now. A reader's node cannot say in its data that it is a writer, because readers do not look at each
//! other's data: a writer's node with the same number replaces it, in one transaction.

use crate::{
    errors::{Verdict, explain, verdict},
    node::{
        Node,
        card::Card,
        contender::{claim_of, contends, upgraded},
        order::parts,
    },
    session::Live,
};
use futures_util::future::join;
use std::{sync::Arc, time::Duration};
use tenure_core::{ClaimId, Conversion, LossCause, Mode, Moment, StoreError, Token};
use zookeeper_client::{CreateMode, Error, MultiWriteError};

/// How soon to look again at a request whose outcome is unknown.
const AGAIN: Duration = Duration::from_millis(100);

/// Permits have no other mode.
const PERMITS: Error = Error::BadArguments(&"permits cannot be converted");

/// The node by which a claim holds, and its mode.
struct Held {
    path: String,
    mode: Mode,
    token: Token,
    card: Card,
}

/// Why a conversion has no answer.
enum Stop {
    Lost(LossCause),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match verdict(&error) {
            Verdict::SessionOver => Self::Lost(LossCause::SessionEnded),
            Verdict::Refused | Verdict::Unknown => Self::Failed(error),
        }
    }
}

impl Stop {
    /// Whether asking again may help.
    fn may_pass(&self) -> bool {
        matches!(self, Self::Failed(error) if verdict(error) == Verdict::Unknown)
    }
}

/// The nodes in a lock's queue. The lock's own node is reaped soon after the last of them is gone.
fn or_nobody(listed: Result<Vec<String>, Error>) -> Result<Vec<String>, Error> {
    match listed {
        Err(Error::NoNode) => Ok(Vec::new()),
        listed => listed,
    }
}

impl Live {
    /// Changes the mode in which the claim holds `lock`. It runs to its end even if its caller has gone.
    pub(crate) async fn convert(
        self: &Arc<Self>,
        lock: String,
        claim: ClaimId,
        to: Mode,
    ) -> Result<Conversion, StoreError> {
        let Some(turn) = self.state().nodes.get(&claim).map(|node| Arc::clone(&node.conversion.turn)) else {
            return Ok(Conversion::Lost(LossCause::Forced));
        };
        let live = Arc::clone(self);
        let converting = self.background.spawn(async move {
            let _turn = turn.lock_owned().await;
            let conversion = async {
                match to {
                    Mode::Shared => live.weaken(&lock, claim).await,
                    _ => live.strengthen(&lock, claim).await,
                }
            };
            match live.unless_over(conversion).await {
                None => Ok(Conversion::Lost(LossCause::SessionEnded)),
                Some(Err(Stop::Lost(cause))) => Ok(Conversion::Lost(cause)),
                Some(Err(Stop::Failed(error))) => Err(explain(&lock, error)),
                Some(Ok(answer)) => Ok(answer),
            }
        });
        converting.await.unwrap_or(Ok(Conversion::Lost(LossCause::SessionEnded)))
    }

    /// Turns a writer into a reader. Waiting readers watch its node.
    async fn weaken(&self, lock: &str, claim: ClaimId) -> Result<Conversion, Stop> {
        let held = self.held(lock, claim).await?;
        match held.mode {
            Mode::Shared => {}
            Mode::Permit { .. } => return Err(Stop::Failed(PERMITS)),
            _ => self.write(claim, &held, true).await?,
        }
        Ok(Conversion::Converted)
    }

    /// Turns the only reader into a writer.
    async fn strengthen(&self, lock: &str, claim: ClaimId) -> Result<Conversion, Stop> {
        let held = self.held(lock, claim).await?;
        match held.mode {
            Mode::Exclusive => return Ok(Conversion::Converted),
            Mode::Shared => {}
            _ => return Err(Stop::Failed(PERMITS)),
        }
        // Checks first, so that most refusals change nothing.
        let children = or_nobody(self.list_synced(lock).await)?;
        let queue = self.queue(lock, &children, held.number()).await?;
        match queue.position(held.node()) {
            None => return Err(Stop::Lost(LossCause::Forced)),
            Some(0) if queue.reader_behind_first().is_none() => {}
            Some(_) => return Ok(Conversion::Refused),
        }
        let asked = match contends(held.node()) {
            Some((Mode::Shared, _)) => self.replace(lock, claim, &held).await,
            _ => self.write(claim, &held, false).await,
        };
        match asked {
            // The change may have been made. Find out, or readers may be kept out for nothing.
            Err(stop) if stop.may_pass() => tokio::time::sleep(AGAIN).await,
            asked => asked?,
        }
        loop {
            match self.finish_strengthening(lock, claim).await {
                Err(stop) if stop.may_pass() => tokio::time::sleep(AGAIN).await,
                Ok(None) => return Err(Stop::Failed(Error::ConnectionLoss)),
                Ok(Some(answer)) => return Ok(answer),
                Err(stop) => return Err(stop),
            }
        }
    }

    /// Stays a writer if no other claim holds the name, and becomes a reader again otherwise. `None` if the claim is
    /// not a writer.
    async fn finish_strengthening(&self, lock: &str, claim: ClaimId) -> Result<Option<Conversion>, Stop> {
        let held = self.held(lock, claim).await?;
        if held.mode != Mode::Exclusive {
            return Ok(None);
        }
        if self.is_alone(lock, &held).await? {
            return Ok(Some(Conversion::Converted));
        }
        self.weaken(lock, claim).await?;
        Ok(Some(Conversion::Refused))
    }

    /// Whether there was no other reader when this claim became a writer.
    async fn is_alone(&self, lock: &str, held: &Held) -> Result<bool, Stop> {
        loop {
            // The server has seen the change, and so everything before it.
            let children = or_nobody(self.client.list_children(lock).await)?;
            let queue = self.queue(lock, &children, held.number()).await?;
            match queue.position(held.node()) {
                Some(0) => {}
                Some(_) => return Ok(false),
                None => return Err(Stop::Lost(LossCause::Forced)),
            }
            // The first reader behind is the oldest. Readers behind a waiter of another mode also wait.
            let Some(reader) = queue.reader_behind_first() else { return Ok(true) };
            let reader = format!("{lock}/{reader}");
            let stats = join(self.client.check_stat(&held.path), self.client.check_stat(&reader)).await;
            match (stats.0?, stats.1?) {
                (None, _) => return Err(Stop::Lost(LossCause::Forced)),
                (Some(own), Some(reader)) => return Ok(reader.czxid > own.mzxid),
                (Some(_), None) => {}
            }
        }
    }

    /// Writes into the node of an exclusive claim whether it is downgraded.
    async fn write(&self, claim: ClaimId, held: &Held, downgraded: bool) -> Result<(), Stop> {
        let sent = Moment::now();
        self.note(claim, |node| node.conversion.unsettled = true);
        let card = if downgraded { held.card.downgraded() } else { held.card.clone() };
        let answer = self.client.set_data(&held.path, &card.bytes(), None).await;
        self.answered(claim, sent, answer.map(drop), |node| node.conversion.downgraded = downgraded)
    }

    /// Replaces a reader's node by a writer's.
    async fn replace(&self, lock: &str, claim: ClaimId, held: &Held) -> Result<(), Stop> {
        let Some(writer) = upgraded(claim, held.token, held.node()) else {
            return Err(Stop::Lost(LossCause::Forced));
        };
        let (sent, writer) = (Moment::now(), format!("{lock}/{writer}"));
        // The node's watchers learn of its end before this claim gets an answer.
        self.note(claim, |node| {
            node.conversion.unsettled = true;
            node.conversion.renamed = Some(writer.clone());
        });
        let mut exchange = self.client.new_multi_writer();
        exchange.add_create(&writer, &held.card.bytes(), &CreateMode::Ephemeral.with_acls(self.acls()))?;
        exchange.add_delete(&held.path, None)?;
        let answer = match exchange.commit().await {
            Ok(_) => Ok(()),
            Err(
                MultiWriteError::RequestFailed { source } | MultiWriteError::OperationFailed { source, .. },
            ) => Err(source),
        };
        self.answered(claim, sent, answer, |node| node.path = writer)
    }

    /// Records the outcome of a change.
    fn answered(
        &self,
        claim: ClaimId,
        sent: Moment,
        answer: Result<(), Error>,
        change: impl FnOnce(&mut Node),
    ) -> Result<(), Stop> {
        if answer.is_ok() {
            self.written(sent);
        }
        let known = answer.as_ref().map_or_else(|error| verdict(error) == Verdict::Refused, |()| true);
        self.note(claim, |node| {
            if answer.is_ok() {
                change(node);
            }
            if known {
                node.conversion.unsettled = false;
                node.conversion.renamed = None;
            }
        });
        match answer {
            Err(Error::NoNode) => Err(Stop::Lost(LossCause::Forced)),
            answer => Ok(answer?),
        }
    }

    /// The node by which the claim holds. Looks it up if a change had no answer.
    async fn held(&self, lock: &str, claim: ClaimId) -> Result<Held, Stop> {
        if self.state().nodes.get(&claim).is_some_and(|node| node.conversion.unsettled) {
            let found = self.find_node(lock, claim).await?;
            let gone = found.is_none();
            self.note(claim, |node| {
                node.conversion.unsettled = false;
                node.conversion.renamed = None;
                if let Some((path, downgraded)) = found {
                    node.path = path;
                    node.conversion.downgraded = downgraded;
                }
            });
            if gone {
                return Err(Stop::Lost(LossCause::Forced));
            }
        }
        let state = self.state();
        let node = state.nodes.get(&claim).ok_or(Stop::Lost(LossCause::Forced))?;
        let (path, token, card) = (node.path.clone(), node.token, node.card.clone());
        let mut held = Held { path, mode: Mode::Shared, token, card };
        if !node.conversion.downgraded {
            held.mode = contends(held.node()).map_or(Mode::Exclusive, |(mode, _)| mode);
        }
        Ok(held)
    }

    /// The claim's node as the leader knows it, and whether its data say that it holds as a reader.
    async fn find_node(&self, lock: &str, claim: ClaimId) -> Result<Option<(String, bool)>, Stop> {
        let children = or_nobody(self.list_synced(lock).await)?;
        let Some(node) = children.iter().find(|node| claim_of(node) == Some(claim)) else { return Ok(None) };
        let path = format!("{lock}/{node}");
        let downgraded = match self.client.get_data(&path).await {
            Err(Error::NoNode) => return Ok(None),
            found => Card::is_downgraded(node, &found?.0),
        };
        Ok(Some((path, downgraded)))
    }

    fn note(&self, claim: ClaimId, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.state().nodes.get_mut(&claim) {
            change(node);
        }
    }
}

impl Held {
    fn node(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    fn number(&self) -> Option<i32> {
        parts(self.node()).map(|(_, number)| number)
    }
}
