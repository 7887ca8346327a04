//! Row locks and advisory locks on a database server: the code that all servers share.
//!
//! Each file uses only those below it.
//!
//! | file | what is in it |
//! |---|---|
//! | `keeper` | a task for each claim, which keeps its connection |
//! | `claims` | the claims of a client, and what each is told to do |
//! | `requests` | the trait of what such locks ask of a server |
//! | `rows`, `issue` | the meaning of the columns of a row lock; tokens, and when they may be handed out |

mod claims;
pub(crate) mod issue;
mod keeper;
pub(crate) mod requests;
pub(crate) mod rows;

use self::{
    claims::{Claims, Idle, Kept, Order, Reply, Stage},
    keeper::{ASK_AGAIN, Keeper, is_known_to_be_forced},
    requests::{Found, SessionRequests, unseen},
    rows::just_beyond,
};
use crate::values::end_of_prefix;
use std::{sync::Arc, time::Duration};
use tenure_core::{
    Attempt, Backend, Background, Capabilities, Capability, Claim, ClaimId, Conversion, Grant, Holder,
    LossCause, Mode, Moment, Name, Release, Renewal, StandingKind, StoreError, Wakeup, async_trait,
};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

/// How long a listing waits for a holder's note that is on its way, and how often it looks. The note arrives within
/// milliseconds, unless its client has just stopped.
const NOTE_TAKES: Duration = Duration::from_secs(3);
const ASK_FOR_NOTES_EVERY: Duration = Duration::from_millis(5);

/// Locks of such a kind.
pub(crate) struct SessionLocks<T: SessionRequests> {
    requests: Arc<T>,
    claims: Arc<Claims>,
    idle: Arc<Idle<T::Connection>>,
    permits: Arc<Semaphore>,
    /// Where claims have their connections, which outlive the holders' runtimes.
    background: Background,
}

impl<T: SessionRequests> SessionLocks<T> {
    /// Connects, so that problems with the table show early.
    pub(crate) async fn open(requests: T, background: Background) -> Result<Self, StoreError> {
        let requests = Arc::new(requests);
        // Connects in advance: a first lock with a short wait could not also wait for its connection.
        let connect = || {
            let requests = Arc::clone(&requests);
            background.spawn(async move { requests.connect().await })
        };
        let (opened, first) = tokio::join!(requests.open(), connect());
        opened?;
        // If the table had to be made first, this connection may have waited for it in vain.
        let first = if matches!(first, Ok(Ok(_))) { first } else { connect().await };
        let first = first.map_err(|_| StoreError::unavailable("could not open the first connection"))?;
        let idle = Arc::new(Idle::with(first?));
        let permits = Arc::new(Semaphore::new(requests.connections()));
        Ok(Self { requests, claims: Arc::default(), idle, permits, background })
    }

    pub(crate) fn has_all_characters(&self) -> bool {
        self.requests.has_all_characters()
    }

    /// Locks the name's row in the caller's transaction. Returns `false` if it is already locked and not to be waited
    /// for.
    pub(crate) async fn lock_in(
        &self,
        transaction: &mut T::Connection,
        name: &Name,
        waits: bool,
    ) -> Result<bool, StoreError> {
        // Makes the row first, because an error would end the caller's transaction. In a separate task, because it must
        // be finished even if the caller is gone.
        let (requests, missing) = (Arc::clone(&self.requests), name.clone());
        let made = tokio::spawn(async move { requests.make(&missing).await });
        made.await.map_err(|_| {
            StoreError::unavailable("the runtime ended while the lock's row was being created")
        })??;
        match self.requests.lock(transaction, name, waits).await? {
            Found::Locked(()) => Ok(true),
            Found::Nothing if !waits => Ok(false),
            Found::Nothing => Err(unseen()),
            Found::NoTable => Err(StoreError::unavailable(
                "this transaction finds no table of the locks; roll it back, and write table=SCHEMA.TABLE if its search_path \
                 differs",
            )),
            Found::Again => Err(StoreError::unavailable(
                "the server ended the wait for the lock; roll the transaction back and begin again",
            )),
            Found::Blocked(error) => Err(error),
        }
    }

    /// Returns the keeper of a claim, started if there is none.
    fn keeper(&self, claim: &Claim, waits: bool) -> Result<watch::Receiver<Stage>, StoreError> {
        let mut all = self.claims.all();
        if let Some(kept) = all.get(&claim.id) {
            return Ok(kept.stage.clone());
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| {
            StoreError::unavailable(format!(
                "all {} connections of this client hold or wait for locks; raise the option connections, or hold fewer locks",
                self.requests.connections()
            ))
        })?;
        let (told, stage) = watch::channel(Stage::Asking);
        let (orders, received) = mpsc::unbounded_channel();
        all.insert(claim.id, Kept { stage: stage.clone(), orders });
        let keeper = Keeper {
            requests: Arc::clone(&self.requests),
            claim: claim.clone(),
            waits,
            orders: received,
            told,
            claims: Arc::downgrade(&self.claims),
            idle: Arc::clone(&self.idle),
            permit,
        };
        self.background.spawn(keeper.keep());
        Ok(stage)
    }

    /// Asks for a grant. `None` if another holds the name.
    async fn ask(&self, claim: &Claim, waits: bool) -> Result<Option<Grant>, StoreError> {
        let mut stage = self.keeper(claim, waits)?;
        let stage = stage.wait_for(|stage| !matches!(stage, Stage::Asking)).await.map(|stage| stage.clone());
        match stage {
            Ok(Stage::Held(grant)) => Ok(Some(grant)),
            Ok(Stage::Busy) => Ok(None),
            Ok(Stage::Failed(error)) if error.is_unavailable() => Err(StoreError::unavailable(error)),
            Ok(Stage::Failed(error)) => Err(StoreError::failed(error)),
            Ok(Stage::Asking) | Err(_) => Err(StoreError::unavailable("the claim was withdrawn")),
        }
    }

    /// Waits until all grants of these names have been noted, but not for ever: returns whether they have.
    async fn are_noted(&self, from: &str, beyond: Option<&str>) -> Result<bool, StoreError> {
        let give_up = Moment::now() + NOTE_TAKES;
        while self.requests.is_unnoted(from, beyond).await? {
            if give_up.has_passed() {
                return Ok(false);
            }
            tokio::time::sleep(ASK_FOR_NOTES_EVERY).await;
        }
        Ok(true)
    }

    /// Waits until a grant of this name has been noted. Without its note the name would look free.
    async fn until_noted(&self, name: &Name) -> Result<(), StoreError> {
        let noted = self.are_noted(name.as_str(), Some(&just_beyond(name))).await?;
        noted
            .then_some(())
            .ok_or_else(|| StoreError::unavailable("the holder has not written its note yet; try again"))
    }

    /// Gives up a claim, and returns whether it was held until then. `None` if it has no keeper, or its keeper is
    /// already giving it up for an earlier request.
    async fn give_up(&self, claim: ClaimId) -> Result<Option<bool>, StoreError> {
        self.order(claim, Order::GiveUp).await
    }

    /// Tells the keeper of a claim what to do. `None` if it has no keeper, or its keeper does not do it any more.
    async fn order(
        &self,
        claim: ClaimId,
        order: impl FnOnce(Reply) -> Order,
    ) -> Result<Option<bool>, StoreError> {
        let (reply, answered) = oneshot::channel();
        let orders = self.claims.all().get(&claim).map(|kept| kept.orders.clone());
        let Some(orders) = orders else { return Ok(None) };
        // If either fails, its keeper has ended.
        if orders.send(order(reply)).is_err() {
            return Ok(None);
        }
        drop(orders);
        let longest = self.requests.response_timeout() * 2;
        match tokio::time::timeout(longest, answered).await {
            Ok(answer) => answer.map_or(Ok(None), |held| held.map(Some)),
            Err(_) => Err(StoreError::unavailable(format!("no answer within {longest:?}"))),
        }
    }
}

#[async_trait]
impl<T: SessionRequests> Backend for SessionLocks<T> {
    fn store(&self) -> &str {
        self.requests.store()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            standing: StandingKind::Session,
            wakeup: Wakeup::Queue,
            ask_again: ASK_AGAIN.max(self.requests.response_timeout()),
            fair: self.requests.fair(),
            shared: self.requests.shared(),
            listing: true,
            ..Capabilities::POLLED
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let granted = self.ask(claim, false).await?;
        Ok(granted.map_or(Attempt::Busy { expires_in: None }, Attempt::Granted))
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        loop {
            // `None` may come from an attempt of the same claim that did not wait.
            if let Some(grant) = self.ask(claim, true).await? {
                return Ok(grant);
            }
        }
    }

    /// A repeated request takes "not held" for released, unless the release was forced or the session has ended. So it
    /// gets no answer until that is known, however long the server is unreachable.
    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let held = self.give_up(grant.claim).await?;
        if held == Some(true) {
            return Ok(Release::Released { awaited: false });
        }
        let lost = grant.loss();
        let forced = match lost {
            Some(LossCause::Forced) => true,
            _ if held.is_some() => is_known_to_be_forced(&*self.requests, grant).await,
            _ => self.requests.was_forced(grant).await?,
        };
        let lost = lost.unwrap_or(LossCause::SessionEnded);
        Ok(Release::Lost(if forced { LossCause::Forced } else { lost }))
    }

    /// Never called: grants in a session need no renewal.
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        Ok(Renewal::in_session(grants))
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        if !self.requests.shared() {
            return Err(StoreError::unsupported(Capability::Shared));
        }
        Ok(match self.order(grant.claim, |reply| Order::Convert(to, reply)).await? {
            Some(true) => Conversion::Converted,
            Some(false) => Conversion::Refused,
            None => Conversion::Lost(grant.loss().unwrap_or(LossCause::SessionEnded)),
        })
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        self.give_up(claim.id).await.map(drop)
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.until_noted(name).await?;
        self.requests.holders(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let beyond = end_of_prefix(prefix);
        // A client that has stopped costs the list no other holder.
        self.are_noted(prefix, beyond.as_deref()).await?;
        let mut holders = self.requests.list(prefix, beyond.as_deref()).await?;
        holders.retain(|holder| holder.name.as_str().starts_with(prefix));
        // The database may sort by another encoding.
        holders.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(holders)
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.until_noted(name).await?;
        self.requests.force(name).await
    }

    fn background(&self) -> Background {
        self.background.clone()
    }

    /// Held locks stay held, on their own connections.
    async fn close(&self) {
        self.idle.clear();
        self.requests.close().await;
    }
}

#[cfg(test)]
mod tests;
