//! What a client knows about one grant: its deadline, mode and guards, and why it ended.

use super::{
    queue::{Seat, Turn},
    store::Store,
    succession::{self, Terms},
    timing::{Ticket, Timing},
};
use crate::{
    Error, Grant, LossCause, Mode, Moment, Owner, Renewal, Standing, Token,
    lease::MIN_LEASE,
    metrics::{Held, Renewed},
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{runtime::Handle, sync::Notify, task::AbortHandle};
use tokio_util::sync::CancellationToken;
use tracing::{Span, debug_span};

/// The state of one grant, which the guards of its owner share.
pub(crate) struct Holding {
    /// Its key in the renewal agenda.
    pub(super) id: u64,
    pub(super) store: Arc<Store>,
    /// As it was granted; [`mode`](Self::mode) is the current mode.
    pub(super) grant: Grant,
    pub(super) owner: Option<Owner>,
    /// The runtime that acquired it, where its release begins if nobody waits for that.
    pub(super) callers: Handle,
    /// Until when the store keeps the name at least, even if it is released sooner.
    stays: Option<Moment>,
    /// Whether the program has had a guard of it: an acquisition that is cancelled before that leaves nothing held.
    delivered: AtomicBool,
    /// When `max_hold` ends.
    ends: Option<Moment>,
    /// On which another of this client may inherit the grant.
    terms: Option<Terms>,
    life: Mutex<Life>,
    /// Told when a renewal or an extension is over.
    answered: Notify,
    lost: CancellationToken,
    /// For a grant that came so late that its renewal was due: cancelled when the first renewal has been answered.
    late: Option<CancellationToken>,
    pub(super) measured: Arc<Held>,
}

struct Life {
    state: State,
    guards: usize,
    mode: Mode,
    timing: Timing,
    /// How many downgrade requests have not been answered: each may still be carried out.
    downgrades: usize,
    /// The seat in its name's queue, with the turn as long as nobody else of this client may contend.
    seat: Option<Seat>,
    watch: Option<AbortHandle>,
    /// From the grant until the release is answered, or the loss is logged.
    span: Span,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Held,
    Lost(LossCause),
    Released,
}

/// How to hold a lock once it is granted.
#[derive(Clone)]
pub(crate) struct HoldOptions {
    pub(crate) owner: Option<Owner>,
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Duration>,
    /// How long the store keeps the name at least, even if it is released sooner.
    pub(crate) hold_at_least: Option<Duration>,
    /// On which it may inherit a grant from another of this client, and hand it on.
    pub(crate) terms: Option<Terms>,
    /// The span in which the program asked. That of the hold is its child, and no child of the wait's, which would
    /// then last as long.
    pub(crate) callers: Span,
}

/// What remains to be done when a guard goes.
pub(super) enum Departure {
    /// Nothing: the owner has other guards.
    Others(Option<LossCause>),
    /// It was the last one: tell the store.
    Release {
        seat: Option<Seat>,
        /// The lease lasts at least until then, so a store that finds nothing before has already released it, or has
        /// forgotten it.
        until: Moment,
        span: Span,
        /// Whether the grant is as it was made, and nothing about it is on its way.
        is_unchanged: bool,
    },
    /// It was the last one of a lost hold.
    Lost(LossCause),
}

/// Why an owner cannot enter again.
pub(super) enum Barred {
    /// It has lost the lock, and its guards are still alive.
    Lost(LossCause),
    /// It holds the name in this mode, which does not cover the requested one.
    Holds(Mode),
}

impl Holding {
    /// Begins to hold, unless the answer came so late that the grant has already expired.
    ///
    /// A grant that came so late that its renewal is due is always renewed at once: see [`fresh`](Self::fresh).
    pub(super) fn begin(
        id: u64,
        store: &Arc<Store>,
        grant: Grant,
        options: HoldOptions,
        seat: Seat,
    ) -> Result<Arc<Self>, Seat> {
        let now = Moment::now();
        let timing = match &grant.standing {
            Standing::Lease { sent, stands } => {
                Timing::leased(grant.lease, *sent, *stands, options.renews, now)
            }
            Standing::Session(liveness) if liveness.loss().is_some() => return Err(seat),
            Standing::Session(liveness) => Timing::kept(grant.lease, liveness.deadline()),
        };
        if now >= timing.deadline() {
            return Err(seat);
        }
        let late = timing.is_due(now).then(CancellationToken::new);
        let (state, mode, guards, downgrades, seat) = (State::Held, grant.mode, 1, 0, Some(seat));
        let life = Life { state, guards, mode, timing, downgrades, seat, watch: None, span: Span::none() };
        let hold = Arc::new(Self {
            id,
            store: Arc::clone(store),
            owner: options.owner,
            callers: Handle::current(),
            stays: options.hold_at_least.map(|shortest| now + shortest),
            delivered: AtomicBool::new(false),
            ends: options.max_hold.map(|longest| now + longest),
            terms: options.terms,
            life: Mutex::new(life),
            answered: Notify::new(),
            lost: CancellationToken::new(),
            late,
            measured: Arc::new(store.meters.held(&grant.name, grant.mode)),
            grant,
        });
        hold.watch_session();
        Ok(hold)
    }

    /// Lets others of this client contend, once the result is dropped.
    pub(super) fn pass_turn(&self) -> Option<Turn> {
        self.life().seat.as_mut().and_then(Seat::pass_turn)
    }

    /// Begins its span, as a child of that in which the program asked.
    pub(super) fn trace(&self, callers: &Span) {
        let (name, store, token) = (&self.grant.name, &self.store.name, self.token());
        let span = debug_span!(parent: callers, "lock.hold", lock.name = %name, lock.store = %store, %token);
        let mut life = self.life();
        if matches!(life.state, State::Held) {
            life.span = span;
        }
    }

    /// Waits until a grant that came late has been renewed, because little of its lease may be left; `false` if it was
    /// lost first.
    pub(super) async fn fresh(&self) -> bool {
        let Some(renewed) = &self.late else { return true };
        tokio::select! {
            biased;
            () = renewed.cancelled() => true,
            _ = self.lost() => false,
        }
    }

    /// Loses the hold when its session or its node ends.
    fn watch_session(self: &Arc<Self>) {
        let Standing::Session(liveness) = &self.grant.standing else { return };
        let (liveness, hold) = (liveness.clone(), Arc::downgrade(self));
        let watch = self.background().spawn(async move {
            let cause = liveness.ended().await;
            if let Some(hold) = hold.upgrade() {
                hold.lose(cause);
            }
        });
        self.life().watch = Some(watch.abort_handle());
    }

    /// Where the hold is watched: on the runtime that acquired it if time is paused there or no thread can be started.
    pub(super) fn background(&self) -> Handle {
        let _entered = self.callers.enter();
        self.store.background.handle()
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its fencing token. Holds that had the grant before it had smaller ones.
    pub(super) fn token(&self) -> Token {
        self.grant.token_now()
    }

    /// The grant for a successor in this process, if it is unchanged, and the terms on which that one may have it;
    /// `None` if this hold has to be released at the store.
    pub(super) fn bequest(&self) -> Option<(Grant, &Terms)> {
        Some((succession::next(&self.grant)?, self.terms.as_ref()?))
    }

    /// Whether the grant is as it was made, and nothing about it is on its way.
    fn is_unchanged(&self, life: &Life) -> bool {
        let (grant, Life { mode, timing, downgrades, .. }) = (&self.grant, life);
        *mode == grant.mode && timing.lease() == grant.lease && timing.is_settled() && *downgrades == 0
    }

    /// The current mode.
    pub(super) fn mode(&self) -> Mode {
        self.life().mode
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        self.life().mode = mode;
    }

    pub(super) fn downgrade_sent(&self) {
        self.life().downgrades += 1;
    }

    pub(super) fn downgrade_answered(&self) {
        self.life().downgrades -= 1;
    }

    /// The program has a guard of it now.
    pub(super) fn delivered(&self) {
        self.delivered.store(true, Ordering::Relaxed);
    }

    /// For how long the store must keep the name although it is released.
    pub(super) fn stays_for(&self) -> Option<Duration> {
        let left = self.stays.filter(|_| self.delivered.load(Ordering::Relaxed))?.left();
        (!left.is_zero()).then(|| left.max(MIN_LEASE))
    }

    /// Whether the store may still carry out a request to downgrade.
    pub(super) fn awaits_downgrade(&self) -> bool {
        self.life().downgrades > 0
    }

    /// Counts as a reader from now on, so that others of this client may contend.
    pub(super) fn count_as_reader(&self) -> Result<(), Error> {
        if !self.is_held() {
            return Err(self.lost_error());
        }
        // Passed on after the mutex is unlocked.
        let turn = {
            let mut life = self.life();
            if matches!(life.mode, Mode::Permit { .. }) {
                return Err(self.conflict("is a semaphore, and permits cannot be downgraded"));
            }
            if life.guards > 1 {
                let others = life.guards - 1;
                let problem = format!(
                    "cannot be downgraded while its owner has {others} other guard{}; release {} first",
                    if others == 1 { "" } else { "s" },
                    if others == 1 { "it" } else { "them" },
                );
                return Err(self.conflict(problem));
            }
            life.mode = Mode::Shared;
            life.seat.as_mut().and_then(Seat::pass_turn)
        };
        drop(turn);
        Ok(())
    }

    /// The grant as the store has it now.
    pub(super) fn grant_now(&self) -> Grant {
        self.grant_in(&self.life())
    }

    fn grant_in(&self, life: &Life) -> Grant {
        Grant { mode: life.mode, lease: life.timing.lease(), ..self.grant.clone() }
    }

    /// Until when the store certainly keeps the grant, even if nothing more is heard.
    fn stands_until(&self, life: &Life) -> Moment {
        match &self.grant.standing {
            Standing::Lease { .. } => life.timing.deadline(),
            Standing::Session(liveness) => liveness.deadline(),
        }
    }

    /// Why the hold has ended, if that has not been noticed yet.
    fn overdue(&self, life: &Life) -> Option<LossCause> {
        let now = Moment::now();
        if let Standing::Session(liveness) = &self.grant.standing
            && let Some(cause) = liveness.loss()
        {
            return Some(cause);
        }
        if now >= self.stands_until(life) {
            return Some(LossCause::Expired);
        }
        self.ends.is_some_and(|ends| now >= ends).then_some(LossCause::MaxHold)
    }

    /// Until when the hold lasts if nothing more is heard; `None` once it has ended.
    pub(super) fn deadline(&self) -> Option<Moment> {
        let sooner = |deadline: Moment| self.ends.map_or(deadline, |ends| ends.min(deadline));
        self.is_held().then(|| sooner(self.stands_until(&self.life())))
    }

    /// Why the hold was lost, if it was.
    pub(super) fn loss(&self) -> Option<LossCause> {
        self.is_held();
        match self.life().state {
            State::Lost(cause) => Some(cause),
            State::Held | State::Released => None,
        }
    }

    /// Waits until the hold is lost.
    pub(super) async fn lost(&self) -> LossCause {
        loop {
            if let Some(cause) = self.loss() {
                return cause;
            }
            match self.deadline().filter(|_| Handle::try_current().is_ok()) {
                // The agenda reports the loss then, unless its thread is blocked, for instance by a log that nobody
                // reads.
                Some(deadline) => {
                    let _ = tokio::time::timeout(deadline.left(), self.lost.cancelled()).await;
                }
                None => self.lost.cancelled().await,
            }
        }
    }

    pub(super) fn is_held(&self) -> bool {
        let life = self.life();
        if !matches!(life.state, State::Held) {
            return false;
        }
        match self.overdue(&life) {
            None => true,
            Some(cause) => {
                drop(life);
                self.lose(cause);
                false
            }
        }
    }

    /// Ends the hold with this cause, unless it has ended already.
    pub(super) fn lose(&self, cause: LossCause) {
        let (seat, span) = {
            let mut life = self.life();
            if !matches!(life.state, State::Held) {
                return;
            }
            life.state = State::Lost(cause);
            self.measured.ends(Some(cause));
            if let Some(watch) = life.watch.take() {
                watch.abort();
            }
            (life.seat.take(), std::mem::replace(&mut life.span, Span::none()))
        };
        self.lost.cancel();
        let (name, token, store) = (self.grant.name.clone(), self.token(), Arc::clone(&self.store.name));
        let measured = Arc::clone(&self.measured);
        // Not here: a loss must not wait for a log or a recorder that blocks (clause F8).
        self.background().spawn(async move {
            tracing::error!(parent: &span, lock.name = %name, %token, lock.store = %store, cause = cause.as_str(), "lock lost: {cause}");
            measured.over();
        });
        if cause == LossCause::MaxHold && matches!(self.grant.standing, Standing::Session(_)) {
            self.release_after_grace();
        }
        drop(seat);
    }

    /// If a session keeps the grant, no lease expires after `max_hold`. So it is released when a lease would have
    /// expired.
    fn release_after_grace(&self) {
        let (store, grant) = (Arc::clone(&self.store), self.grant_now());
        self.background().spawn(async move {
            tokio::time::sleep(grant.lease).await;
            if let Err(error) = store.release(&grant).await {
                tracing::warn!(lock.name = %grant.name, %error, "a lock held for longer than max_hold could not be released");
            }
        });
    }

    /// Adds a guard for the same owner: `None` if the hold has ended and has no guard left.
    pub(super) fn enter_again(&self, wanted: Mode) -> Option<Result<(), Barred>> {
        self.is_held();
        let mut life = self.life();
        match life.state {
            State::Released => None,
            State::Lost(_) if life.guards == 0 => None,
            State::Lost(cause) => Some(Err(Barred::Lost(cause))),
            State::Held if !life.mode.covers(wanted) => Some(Err(Barred::Holds(life.mode))),
            State::Held => {
                life.guards += 1;
                Some(Ok(()))
            }
        }
    }

    /// Removes a guard.
    pub(super) fn leave(&self) -> Departure {
        self.is_held();
        let mut life = self.life();
        life.guards -= 1;
        match life.state {
            State::Lost(cause) if life.guards > 0 => Departure::Others(Some(cause)),
            State::Held | State::Released if life.guards > 0 => Departure::Others(None),
            State::Lost(cause) => Departure::Lost(cause),
            State::Held | State::Released => {
                // Both at once: an answer on its way is heard by this hold, or keeps the grant from being handed on.
                let is_unchanged = self.is_unchanged(&life);
                life.state = State::Released;
                self.measured.ends(None);
                if let Some(watch) = life.watch.take() {
                    watch.abort();
                }
                let span = std::mem::replace(&mut life.span, Span::none());
                // It keeps its turn until the release is answered, but does not hold any more.
                if let Some(seat) = &life.seat {
                    seat.occupied_by(None);
                }
                let (seat, until) = (life.seat.take(), self.stands_until(&life));
                Departure::Release { seat, until, span, is_unchanged }
            }
        }
    }

    /// Records the end of a hold that is released. Comes last of all, after the release has begun or the grant was
    /// handed on, since nobody knows what a recorder does (clause F8).
    pub(super) fn record_release(&self) {
        // A loss is recorded with its log line.
        if matches!(self.life().state, State::Released) {
            self.measured.over();
        }
    }

    /// When the agenda must look at this hold again: to renew it, or to find it lost.
    pub(super) fn next_event(&self) -> Option<Moment> {
        let life = self.life();
        let timed = matches!(self.grant.standing, Standing::Lease { .. }).then(|| life.timing.next_event());
        [timed, self.ends].into_iter().flatten().min()
    }

    /// Whether a renewal is due, or so nearly due that it may share a batch.
    pub(super) fn wants_renewal(&self, now: Moment) -> bool {
        self.life().timing.wants_renewal(now)
    }

    /// How long a renewal may take before another one is sent.
    pub(super) fn patience(&self) -> Duration {
        self.life().timing.patience()
    }

    /// Starts a renewal at `sent`, and returns the grant to renew.
    pub(super) fn start_renewal(&self, sent: Moment) -> (Grant, Ticket) {
        let (grant, ticket, due) = {
            let mut life = self.life();
            let (ticket, due) = life.timing.renewal_sent(sent);
            (self.grant_in(&life), ticket, due)
        };
        self.store.meters.renewal_sent(due);
        (grant, ticket)
    }

    /// Starts an extension to `lease` at `sent`, and returns the grant to renew. It has this lease, even if another
    /// thread asks for another one. Returns `None` once the hold has ended: its grant may be another's by now.
    pub(super) fn start_extension(&self, lease: Duration, sent: Moment) -> Option<(Grant, Ticket)> {
        let mut life = self.life();
        if !matches!(life.state, State::Held) {
            return None;
        }
        let ticket = life.timing.extension_sent(lease, sent);
        Some((self.grant_in(&life), ticket))
    }

    /// Records the answer to a renewal or extension.
    pub(super) fn finish_renewal(&self, ticket: Ticket, answer: Renewal) {
        let now = Moment::now();
        let outcome = match answer {
            Renewal::Lost(cause) => {
                self.lose(cause);
                Renewed::Lost
            }
            // Checks the clock first: an answer after the deadline revives nothing.
            Renewal::Renewed if self.is_held() => {
                let mut life = self.life();
                life.timing.renewed(ticket, now);
                if let Some(renewed) = &self.late
                    && !life.timing.is_provisional()
                {
                    renewed.cancel();
                }
                Renewed::InTime
            }
            Renewal::Renewed => Renewed::Late,
            Renewal::Unanswered => {
                self.life().timing.unanswered(ticket, now);
                Renewed::Unanswered
            }
        };
        self.abandon_renewal(ticket);
        // Once the release has begun, the answer says nothing about the hold.
        if !matches!(self.life().state, State::Released) {
            self.measured.renewed(outcome);
        }
    }

    /// This renewal is not sent, or nobody waits for its answer any more.
    pub(super) fn abandon_renewal(&self, ticket: Ticket) {
        self.life().timing.ended(ticket);
        self.answered.notify_waiters();
    }

    /// Waits until no renewal or extension is under way.
    pub(super) async fn settled(&self) {
        loop {
            let answered = self.answered.notified();
            if !self.life().timing.is_anything_under_way() {
                return;
            }
            answered.await;
        }
    }

    /// The error for what this hold cannot do in its current state.
    pub(super) fn conflict(&self, problem: impl Into<String>) -> Error {
        self.store.conflict(&self.grant.name, problem)
    }

    pub(super) fn lost_error(&self) -> Error {
        let cause = self.loss().unwrap_or(LossCause::Expired);
        self.store.lost(&self.grant.name, cause)
    }
}

#[cfg(test)]
mod tests;
