//! Row locks on a database server: what is the same for all of them.

use crate::{
    issue::Issue,
    keeper::Keeper,
    rows::{beyond_all_names, end_of_prefix, just_beyond},
};
use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tenure_core::{
    Attempt, Backend, Background, Capabilities, Claim, ClaimId, Grant, Holder, LossCause, Moment, Name,
    Release, Renewal, Standing, StoreError, Term, Token, Wakeup, async_trait,
};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

/// How long a waiter trusts its connection before another one asks whether it still waits.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(8);
/// How many connections that nobody uses are kept.
const IDLE: usize = 4;
/// How long people wait at most for a holder whose note is on its way, and how often they ask. It is there within
/// milliseconds, unless its client has stopped just then.
const NOTE_TAKES: Duration = Duration::from_secs(3);
const ASK_FOR_NOTES_EVERY: Duration = Duration::from_millis(5);

/// The table on one kind of server. Whoever holds a name has locked its row, in a transaction on a connection of its own.
/// Everything else is done by statements that commit by themselves, on another connection.
pub(crate) trait RowTable: Send + Sync + 'static {
    /// A connection that the driver made.
    type Connection: Send + 'static;

    /// The store in words.
    fn store(&self) -> &str;

    /// Whether the server grants locks in the order in which they were asked for.
    fn fair(&self) -> bool;

    /// How many locks this client may hold or wait for at once.
    fn connections(&self) -> usize;

    /// How long a request may take.
    fn response_timeout(&self) -> Duration;

    /// For how long the server lets the claim's transaction be idle.
    fn lease(&self, claim: &Claim) -> Duration;

    /// Connects.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, StoreError>> + Send;

    /// Begins a transaction that tells others whose it is, and that the server ends when it is idle for the claim's lease.
    /// Gives the server's time, in microseconds since 1970.
    fn begin(
        &self,
        connection: &mut Self::Connection,
        claim: &Claim,
    ) -> impl Future<Output = Result<i64, StoreError>> + Send;

    /// Locks the name's row, in such a transaction, and asks what its token is made of, in one round trip. Waits for the row
    /// in the server's queue, or not at all.
    fn take(
        &self,
        connection: &mut Self::Connection,
        name: &Name,
        waits: bool,
    ) -> impl Future<Output = Result<Found<Issue>, StoreError>> + Send;

    /// Locks the name's row, in a transaction of the application's.
    fn lock(
        &self,
        connection: &mut Self::Connection,
        name: &Name,
        waits: bool,
    ) -> impl Future<Output = Result<Found<()>, StoreError>> + Send;

    /// Proves that the transaction stands.
    fn beat(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Ends the transaction, which wrote nothing and so waits for no disk.
    fn end(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Makes the name's row, and the table, where they are missing; tells whether the row was.
    fn make(&self, name: &Name) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Notes who was granted which token; `false` when another claim with that token or a greater one was noted before.
    fn note(&self, claim: &Claim, token: Token) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Whether one of the names from `from` to before `beyond` is held by somebody whose note is on its way.
    fn is_unnoted(&self, from: &str, beyond: &str) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Whether the server has a transaction of this claim.
    fn lives(&self, claim: ClaimId) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Ends the statement with which this claim waits.
    fn interrupt(&self, claim: ClaimId) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Whether the claim was put out by force.
    fn was_forced(&self, claim: &Claim) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Who holds the name.
    fn holders(&self, name: &Name) -> impl Future<Output = Result<Vec<Holder>, StoreError>> + Send;

    /// Who holds a name from `from` to before `beyond`.
    fn list(&self, from: &str, beyond: &str) -> impl Future<Output = Result<Vec<Holder>, StoreError>> + Send;

    /// Ends the holder's connection, and tells who it was.
    fn force(&self, name: &Name) -> impl Future<Output = Result<Vec<Holder>, StoreError>> + Send;

    /// Connects, and makes sure of the table.
    fn open(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Lets go of the connection on which nothing is held.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// What came of asking for a row's lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<V> {
    Locked(V),
    /// There is no such row; or it is locked, and was not waited for.
    Nothing,
    /// The table is missing, and the transaction is over.
    NoTable,
    /// It was waited for as long as the server may, or the server ended the transaction: ask again.
    Again,
}

impl<V> Found<V> {
    pub(crate) fn try_map<W, E>(self, read: impl FnOnce(V) -> Result<W, E>) -> Result<Found<W>, E> {
        Ok(match self {
            Self::Locked(locked) => Found::Locked(read(locked)?),
            Self::Nothing => Found::Nothing,
            Self::NoTable => Found::NoTable,
            Self::Again => Found::Again,
        })
    }
}

/// How far a claim has come.
#[derive(Clone)]
pub(crate) enum Stage {
    Asking,
    Held(Grant),
    Busy,
    Failed(Arc<StoreError>),
}

/// To give up what is held or asked for; answered with whether it was held until then.
pub(crate) struct Order(pub(crate) oneshot::Sender<Result<bool, StoreError>>);

/// The claims of this client that are asked for or held.
#[derive(Default)]
pub(crate) struct Claims(Mutex<HashMap<ClaimId, Kept>>);

/// How to reach a claim's keeper.
struct Kept {
    stage: watch::Receiver<Stage>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Claims {
    fn all(&self) -> MutexGuard<'_, HashMap<ClaimId, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn remove(&self, claim: ClaimId) {
        self.all().remove(&claim);
    }
}

/// Connections that nobody uses, none of them in a transaction.
pub(crate) struct Idle<C>(Mutex<Vec<C>>);

impl<C> Idle<C> {
    fn all(&self) -> MutexGuard<'_, Vec<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that was used last.
    pub(crate) fn take(&self) -> Option<C> {
        self.all().pop()
    }

    pub(crate) fn clear(&self) {
        self.all().clear();
    }

    pub(crate) fn put(&self, connection: C) {
        let mut all = self.all();
        if all.len() < IDLE {
            all.push(connection);
        }
    }
}

/// Locks on the rows of such a table.
pub(crate) struct RowLocks<T: RowTable> {
    table: Arc<T>,
    claims: Arc<Claims>,
    idle: Arc<Idle<T::Connection>>,
    permits: Arc<Semaphore>,
    /// Where claims have their connections, which outlast the runtimes of those who hold.
    background: Background,
}

impl<T: RowTable> RowLocks<T> {
    /// Connects, so that what is wrong with the table is known early.
    pub(crate) async fn open(table: T, background: Background) -> Result<Self, StoreError> {
        let table = Arc::new(table);
        // The first lock with a short wait could not wait for its connection too.
        let connecting = Arc::clone(&table);
        let first = background.spawn(async move { connecting.connect().await });
        let (opened, first) = tokio::join!(table.open(), first);
        opened?;
        let first = first.map_err(|_| StoreError::unavailable("the first connection was not made"))?;
        let idle = Arc::new(Idle(Mutex::new(vec![first?])));
        let permits = Arc::new(Semaphore::new(table.connections()));
        Ok(Self { table, claims: Arc::default(), idle, permits, background })
    }

    /// Locks the name's row in the caller's transaction; `false` when it is locked already, and not to be waited for.
    pub(crate) async fn lock_in(
        &self,
        transaction: &mut T::Connection,
        name: &Name,
        waits: bool,
    ) -> Result<bool, StoreError> {
        // First, because an error would end the caller's transaction; and in a task of its own, because what is begun there
        // has to be ended although the caller may be gone.
        let (table, missing) = (Arc::clone(&self.table), name.clone());
        let made = tokio::spawn(async move { table.make(&missing).await });
        made.await
            .map_err(|_| StoreError::unavailable("the runtime ended while the lock's row was made"))??;
        match self.table.lock(transaction, name, waits).await? {
            Found::Locked(()) => Ok(true),
            Found::Nothing if !waits => Ok(false),
            Found::Nothing | Found::NoTable => Err(StoreError::unavailable(
                "the lock's row was made after this transaction began to read; roll it back and begin again",
            )),
            Found::Again => Err(StoreError::unavailable(
                "the server ended the wait for the lock; roll the transaction back and begin again",
            )),
        }
    }

    /// The keeper of a claim, which is begun where there is none.
    fn keeper(&self, claim: &Claim, waits: bool) -> Result<watch::Receiver<Stage>, StoreError> {
        let mut all = self.claims.all();
        if let Some(kept) = all.get(&claim.id) {
            return Ok(kept.stage.clone());
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| {
            StoreError::unavailable(format!(
                "all {} connections of this client hold locks or wait for some; raise the option connections, or hold fewer",
                self.table.connections()
            ))
        })?;
        let (told, stage) = watch::channel(Stage::Asking);
        let (orders, received) = mpsc::unbounded_channel();
        all.insert(claim.id, Kept { stage: stage.clone(), orders });
        let keeper = Keeper {
            table: Arc::clone(&self.table),
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

    /// A grant; `None` when another holds the name.
    async fn ask(&self, claim: &Claim, waits: bool) -> Result<Option<Grant>, StoreError> {
        let mut stage = self.keeper(claim, waits)?;
        let stage = stage.wait_for(|stage| !matches!(stage, Stage::Asking)).await.map(|stage| stage.clone());
        match stage {
            Ok(Stage::Held(grant)) => Ok(Some(grant)),
            Ok(Stage::Busy) => Ok(None),
            Ok(Stage::Failed(error)) if error.is_unavailable() => Err(StoreError::unavailable(error)),
            Ok(Stage::Failed(error)) => Err(StoreError::failed(error)),
            Ok(Stage::Asking) | Err(_) => Err(StoreError::unavailable("the claim was given up")),
        }
    }

    /// Waits until everybody who has been granted such a name has been noted.
    async fn until_noted(&self, from: &str, beyond: &str) -> Result<(), StoreError> {
        let give_up = Moment::now() + NOTE_TAKES;
        while self.table.is_unnoted(from, beyond).await? && !give_up.has_passed() {
            tokio::time::sleep(ASK_FOR_NOTES_EVERY).await;
        }
        Ok(())
    }

    /// Gives a claim up, and tells whether it was held until then.
    async fn give_up(&self, claim: ClaimId) -> Result<bool, StoreError> {
        let (reply, answered) = oneshot::channel();
        let orders = self.claims.all().get(&claim).map(|kept| kept.orders.clone());
        let Some(orders) = orders else { return Ok(false) };
        // When either fails its keeper has ended.
        if orders.send(Order(reply)).is_err() {
            return Ok(false);
        }
        drop(orders);
        let longest = self.table.response_timeout() * 2;
        match tokio::time::timeout(longest, answered).await {
            Ok(answer) => answer.unwrap_or(Ok(false)),
            Err(_) => Err(StoreError::unavailable(format!("no answer within {longest:?}"))),
        }
    }
}

#[async_trait]
impl<T: RowTable> Backend for RowLocks<T> {
    fn store(&self) -> &str {
        self.table.store()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            term: Term::Session,
            wakeup: Wakeup::Queue,
            ask_again: ASK_AGAIN,
            fair: self.table.fair(),
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
            // An attempt of the same claim may have been under way, which did not wait.
            if let Some(grant) = self.ask(claim, true).await? {
                return Ok(grant);
            }
        }
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        if self.give_up(grant.claim).await? {
            return Ok(Release::Released { awaited: false });
        }
        let lost = match &grant.standing {
            Standing::Session(liveness) => liveness.loss(),
            Standing::Lease { .. } => None,
        };
        Ok(Release::NotHeld(lost.unwrap_or(LossCause::SessionEnded)))
    }

    /// Never called: no grant of a session needs it.
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let answer = |grant: &Grant| match &grant.standing {
            Standing::Session(liveness) => liveness.loss().map_or(Renewal::Renewed, Renewal::Lost),
            Standing::Lease { .. } => Renewal::Unanswered,
        };
        Ok(grants.iter().map(answer).collect())
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        self.give_up(claim.id).await.map(drop)
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.until_noted(name.as_str(), &just_beyond(name)).await?;
        self.table.holders(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let beyond = end_of_prefix(prefix).unwrap_or_else(beyond_all_names);
        self.until_noted(prefix, &beyond).await?;
        self.table.list(prefix, &beyond).await
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.until_noted(name.as_str(), &just_beyond(name)).await?;
        self.table.force(name).await
    }

    fn background(&self) -> Background {
        self.background.clone()
    }

    /// What is held stays held, on its own connection.
    async fn close(&self) {
        self.idle.clear();
        self.table.close().await;
    }
}
