//! One claim: its connection, from the first request to the end of its hold.

use super::{
    claims::{Claims, Idle, Order, Reply, Stage, given_up, given_up_by_now},
    issue::Issue,
    requests::{Found, SessionRequests},
};
use crate::silence;
use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};
use tenure_core::{Claim, Grant, Liveness, LossCause, Mode, Moment, Session, StoreError, Token, lease};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

/// How long a waiter trusts its connection before another connection checks that it still waits.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(8);
/// The longest pause between two heartbeats, however long the lease: a lock is lost with its connection, and two
/// clients may believe that they hold it for this long plus [`REASON`].
const LONGEST_PERIOD: Duration = Duration::from_millis(700);
/// How often to interrupt a cancelled wait until it ends: the server may not have begun it yet.
const INTERRUPT_EVERY: Duration = Duration::from_millis(20);
/// How long to try to learn why a connection was ended; the lock is lost in any case.
const REASON: Duration = Duration::from_millis(300);
/// How long the name stays locked after its holder was told that the lock is lost, where this client decided so: the holder
/// stops before others get in.
const TOLD_FIRST: Duration = Duration::from_millis(500);

/// Requests a claim, holds its grant, and releases it, in a separate task.
///
/// A connection that is used again never has an unfinished statement: to give up, tell the keeper, which ends the
/// transaction or drops the connection.
pub(crate) struct Keeper<T: SessionRequests> {
    pub(crate) requests: Arc<T>,
    pub(crate) claim: Claim,
    /// Whether it waits in the server's queue.
    pub(crate) waits: bool,
    pub(crate) orders: mpsc::UnboundedReceiver<Order>,
    pub(crate) told: watch::Sender<Stage>,
    /// Weak, because it contains the sender of orders: when the backend is dropped, so is the keeper.
    pub(crate) claims: Weak<Claims>,
    pub(crate) idle: Arc<Idle<T::Connection>>,
    /// For its connection. After a release it is free before the caller is told.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// A lock that is held.
struct Held<C> {
    connection: C,
    session: Session,
    liveness: Liveness,
    grant: Grant,
    /// When the last heartbeat was sent, or the earliest moment at which the row was locked.
    proven: Moment,
    /// Whether its note was written before it was granted.
    noted: bool,
}

/// Ends a session with the task that keeps it, before its connection is dropped, so that no guard relies on it any
/// longer; unless the lock was released, which is no loss.
struct EndsWith(Option<Session>);

impl Drop for EndsWith {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.end(LossCause::SessionEnded);
        }
    }
}

/// Why nothing is held.
enum Stop {
    Busy,
    Failed(StoreError),
    /// It is no longer wanted; with who said so, unless the backend is gone.
    Unwanted(Option<Reply>),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl<T: SessionRequests> Keeper<T> {
    pub(crate) async fn keep(mut self) {
        match self.take().await {
            Ok(held) => self.hold(held).await,
            Err(stop) => {
                self.forget();
                let Self { told, permit, .. } = self;
                drop(permit);
                match stop {
                    Stop::Busy => drop(told.send_replace(Stage::Busy)),
                    Stop::Failed(error) => drop(told.send_replace(Stage::Failed(Arc::new(error)))),
                    Stop::Unwanted(reply) => answer(reply, Ok(false)),
                }
            }
        }
    }

    /// Makes this keeper unreachable by its claim.
    fn forget(&self) {
        if let Some(claims) = self.claims.upgrade() {
            claims.remove(self.claim.id);
        }
    }

    async fn take(&mut self) -> Result<Held<T::Connection>, Stop> {
        loop {
            if let Some(reply) = given_up_by_now(&mut self.orders) {
                return Err(Stop::Unwanted(Some(reply)));
            }
            let (mut connection, used) = self.connection().await?;
            let sent = Moment::now();
            match self.ask(&mut connection, used).await {
                Ok(Some(Found::Locked(issue))) => {
                    if let Some(held) = self.grant(connection, sent, issue).await? {
                        return Ok(held);
                    }
                }
                Ok(Some(Found::Nothing)) => {
                    self.end(connection).await;
                    if !self.requests.make(&self.claim.name).await? && !self.waits {
                        return Err(Stop::Busy);
                    }
                }
                // Connections are prepared for one table, and that table is gone.
                Ok(Some(Found::NoTable)) => {
                    self.end(connection).await;
                    self.idle.clear();
                    self.requests.make(&self.claim.name).await?;
                }
                Ok(Some(Found::Again)) => self.end(connection).await,
                Ok(Some(Found::Blocked(error))) => {
                    self.end(connection).await;
                    return Err(error.into());
                }
                // It may have gone long ago, and the idle ones too: the next one is fresh.
                Ok(None) => {
                    drop(connection);
                    self.idle.clear();
                    self.forsake().await;
                }
                Err((keeps, stop)) => {
                    if keeps {
                        self.end(connection).await;
                    }
                    return Err(stop);
                }
            }
        }
    }

    /// Returns a connection, and whether it was used before.
    async fn connection(&mut self) -> Result<(T::Connection, bool), Stop> {
        let Self { requests, idle, orders, .. } = self;
        let connecting = async {
            if let Some((mut connection, used)) = idle.take() {
                let ping = requests.beat(&mut connection, None);
                if silence::is_alive(used, requests.response_timeout(), ping).await {
                    return Ok((connection, true));
                }
                // The others were idle for longer.
                idle.clear();
            }
            requests.connect().await.map(|connection| (connection, false))
        };
        tokio::select! {
            biased;
            unwanted = given_up(orders) => Err(Stop::Unwanted(unwanted)),
            connection = connecting => Ok(connection?),
        }
    }

    /// Ends a wait whose connection this client has lost. The server may not have noticed that: the claim would stand
    /// in its queue twice, and in MySQL the next connection would not get the claim's mark.
    async fn forsake(&self) {
        if !self.waits {
            return;
        }
        if let Err(error) = in_time(&*self.requests, self.requests.interrupt(self.claim.id)).await {
            tracing::debug!(%error, "could not end a connection");
        }
    }

    /// Begins a transaction and requests the row's lock. `None` if that failed on a connection that `worked` before, or
    /// was seen to wait. An error comes with whether the connection is still usable.
    async fn ask(
        &mut self,
        connection: &mut T::Connection,
        mut worked: bool,
    ) -> Result<Option<Found<Issue>>, (bool, Stop)> {
        let Self { requests, claim, orders, .. } = self;
        let answered = |worked: bool, found: Result<Found<Issue>, StoreError>| match found {
            Err(error) if worked => {
                tracing::debug!(%error, "a connection no longer works");
                Ok(None)
            }
            found => found.map(Some).map_err(|error| (false, Stop::Failed(error))),
        };
        if !self.waits {
            return answered(worked, in_time(&**requests, requests.take(connection, claim, false)).await);
        }
        // At first as any request: an idle connection may have gone without a word. And not less: in PostgreSQL, no
        // claim is shown while it waits for the table, which the server limits to less than that.
        let mut trusted = requests.response_timeout();
        let mut locking = pin!(requests.take(connection, claim, true));
        loop {
            tokio::select! {
                biased;
                found = &mut locking => return answered(worked, found),
                unwanted = given_up(orders) => {
                    let interrupted = async {
                        loop {
                            requests.interrupt(claim.id).await?;
                            if let Ok(found) = tokio::time::timeout(INTERRUPT_EVERY, &mut locking).await {
                                return found;
                            }
                        }
                    };
                    let ended = in_time(&**requests, interrupted).await;
                    return Err((ended.is_ok(), Stop::Unwanted(unwanted)));
                }
                () = tokio::time::sleep(trusted) => {
                    trusted = ASK_AGAIN;
                    let lives = requests.lives(claim.id).await;
                    if !matches!(lives, Ok(true)) {
                        let gone = || StoreError::unavailable("the connection that waited for the lock is gone");
                        return answered(worked, Err(lives.err().unwrap_or_else(gone)));
                    }
                    worked = true;
                }
            }
        }
    }

    /// Grants at once if the server's answer is enough; otherwise once the note is written and a later heartbeat is
    /// answered. `None` if another's note came first: the row may no longer be locked.
    async fn grant(
        &mut self,
        mut connection: T::Connection,
        sent: Moment,
        issue: Issue,
    ) -> Result<Option<Held<T::Connection>>, Stop> {
        let (token, locked) = (issue.token()?, issue.locked_at(sent));
        if issue.goes_ahead() && !(locked + self.period()).has_passed() {
            return Ok(Some(self.held(connection, token, locked, false)));
        }
        match self.requests.note(&self.claim, token).await {
            Ok(true) => {}
            refused => {
                self.end(connection).await;
                return refused.map(|_| None).map_err(Stop::Failed);
            }
        }
        let proven = Moment::now();
        in_time(&*self.requests, self.requests.beat(&mut connection, Some(&self.claim))).await?;
        Ok(Some(self.held(connection, token, proven, true)))
    }

    fn held(
        &self,
        connection: T::Connection,
        token: Token,
        proven: Moment,
        noted: bool,
    ) -> Held<T::Connection> {
        let session = Session::new(self.requests.lease(&self.claim), proven);
        let liveness = session.liveness();
        let grant = Grant::in_session(&self.claim, token, liveness.clone());
        Held { connection, session, liveness, grant, proven, noted }
    }

    /// How old the last heartbeat may become.
    fn period(&self) -> Duration {
        lease::renewal_period(self.requests.lease(&self.claim)).min(LONGEST_PERIOD)
    }

    /// Sends heartbeats until the lock is to be released, or is lost. It is not released before its note is written:
    /// the next holder's token is derived from it.
    async fn hold(mut self, mut held: Held<T::Connection>) {
        let with_this_task = EndsWith(Some(held.session.clone()));
        let (requests, claim) = (Arc::clone(&self.requests), self.claim.clone());
        let (period, token, mut noted) = (self.period(), held.grant.token, held.noted);
        let mut noting = pin!(async move { requests.note(&claim, token).await });
        // Before the note is sent: a request for the holder waits for the note.
        self.told.send_replace(Stage::Held(held.grant.clone()));
        loop {
            tokio::select! {
                biased;
                note = &mut noting, if !noted => match note {
                    Ok(true) => noted = true,
                    Ok(false) => return self.give_way(held, LossCause::TakenOver).await,
                    Err(error) => {
                        tracing::debug!(lock.name = %self.claim.name, %error, "could not note the holder of a lock");
                        return self.give_way(held, LossCause::SessionEnded).await;
                    }
                },
                order = self.orders.recv(), if noted => match order {
                    Some(Order::Convert(mode, reply)) => {
                        if let Err(cause) = self.convert(&mut held, mode, reply).await {
                            return self.lose(&held.session, cause);
                        }
                    }
                    Some(Order::GiveUp(reply)) => return self.release(held, Some(reply), with_this_task).await,
                    None => return self.release(held, None, with_this_task).await,
                },
                cause = held.liveness.ended() => return self.lose(&held.session, cause),
                () = (held.proven + period).reached() => {
                    if let Err(cause) = self.beat(&mut held).await {
                        return self.lose(&held.session, cause);
                    }
                }
            }
        }
    }

    /// Sends a heartbeat, or returns why the lock is lost.
    async fn beat(&self, held: &mut Held<T::Connection>) -> Result<(), LossCause> {
        let sent = Moment::now();
        let beaten = tokio::select! {
            biased;
            beaten = self.requests.beat(&mut held.connection, Some(&self.claim)) => beaten,
            cause = held.liveness.ended() => return Err(cause),
        };
        if let Err(error) = beaten {
            tracing::debug!(lock.name = %self.claim.name, %error, "the connection that holds a lock has failed");
            return Err(self.why_failed(&held.grant).await);
        }
        held.session.proven(sent);
        held.proven = sent;
        Ok(())
    }

    /// Why the connection that holds a lock has failed.
    async fn why_failed(&self, grant: &Grant) -> LossCause {
        let forced = is_known_to_be_forced(&*self.requests, grant).await;
        if forced { LossCause::Forced } else { LossCause::SessionEnded }
    }

    /// Changes the mode, or returns why the lock is lost.
    async fn convert(
        &self,
        held: &mut Held<T::Connection>,
        mode: Mode,
        reply: Reply,
    ) -> Result<(), LossCause> {
        let (claim, sent) = (Claim { mode: held.grant.mode, ..self.claim.clone() }, Moment::now());
        let converting = in_time(&*self.requests, self.requests.convert(&mut held.connection, &claim, mode));
        let converted = tokio::select! {
            biased;
            converted = converting => converted,
            cause = held.liveness.ended() => return Err(cause),
        };
        if converted.is_ok() {
            held.session.proven(sent);
            held.proven = sent;
        }
        if matches!(converted, Ok(true)) {
            held.grant.mode = mode;
            self.told.send_replace(Stage::Held(held.grant.clone()));
        }
        let failed = converted.is_err();
        answer(Some(reply), converted);
        if failed { Err(self.why_failed(&held.grant).await) } else { Ok(()) }
    }

    fn lose(&mut self, session: &Session, cause: LossCause) {
        self.forget();
        session.end(cause);
        self.orders.close();
        // A release may have arrived that was not handled in time.
        answer(given_up_by_now(&mut self.orders), Ok(false));
    }

    /// Loses a lock whose row this client may still have locked.
    async fn give_way(mut self, held: Held<T::Connection>, cause: LossCause) {
        self.lose(&held.session, cause);
        tokio::time::sleep(TOLD_FIRST).await;
    }

    async fn release(
        self,
        mut held: Held<T::Connection>,
        reply: Option<Reply>,
        mut with_this_task: EndsWith,
    ) {
        // Not requested, but the backend is gone: the holder learns of it before others get in.
        if reply.is_none() {
            held.session.end(LossCause::SessionEnded);
        }
        let ended = in_time(&*self.requests, self.requests.end(&mut held.connection)).await;
        self.forget();
        match &ended {
            Ok(()) if reply.is_some() => {
                with_this_task.0 = None;
                self.idle.put(held.connection);
            }
            Ok(()) => {}
            Err(error) => {
                tracing::debug!(lock.name = %self.claim.name, %error, "the connection failed before the lock was released");
            }
        }
        drop(with_this_task);
        drop(self.permit);
        // If it failed, it is unknown whether the lock was held until now. Only the first request gets this answer: a
        // repeated one finds out whether the release was forced, or the session has ended.
        answer(reply, Ok(ended.is_ok()));
    }

    /// Ends the transaction, so that the connection can be used again.
    async fn end(&self, mut connection: T::Connection) {
        match in_time(&*self.requests, self.requests.end(&mut connection)).await {
            Ok(()) => self.idle.put(connection),
            Err(error) => {
                tracing::debug!(%error, "could not end a transaction; dropping its connection");
            }
        }
    }
}

/// Whether a grant was ended by force, as far as that can be learnt soon.
pub(crate) async fn is_known_to_be_forced(requests: &impl SessionRequests, grant: &Grant) -> bool {
    matches!(tokio::time::timeout(REASON, requests.was_forced(grant)).await, Ok(Ok(true)))
}

/// The caller may be gone.
fn answer(reply: Option<Reply>, outcome: Result<bool, StoreError>) {
    if let Some(reply) = reply {
        let _ = reply.send(outcome);
    }
}

async fn in_time<V>(
    requests: &impl SessionRequests,
    request: impl Future<Output = Result<V, StoreError>>,
) -> Result<V, StoreError> {
    let longest = requests.response_timeout();
    let late = |_| StoreError::unavailable(format!("no answer within {longest:?}"));
    tokio::time::timeout(longest, request).await.map_err(late)?
}
