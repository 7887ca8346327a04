//! The client's state of one grant: whether it is held, until when, and why it ended.
//!
//! Its guards and its mode are in `guards`, its renewals and extensions in `renewals`.

mod guards;
mod renewals;

pub(super) use guards::{Barred, Departure};

use super::{
    queue::{Seat, Turn},
    store::Store,
    succession::{self, Terms},
    timing::{Ticket, Timing},
};
use crate::{
    contract::{Error, Grant, LossCause, Mode, Moment, Owner, Standing, Token, lease::MIN_LEASE},
    metrics::Held,
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
    /// The runtime that acquired it, where a release in the background begins.
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
    /// The last renewal that was sent before the guards' mode became less than it stated.
    stated_more: Ticket,
    /// Why the last renewal failed, unless one has succeeded since.
    failure: Option<Arc<str>>,
    /// The seat in its name's queue, with the turn as long as no other task of this client may contend.
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
    /// The lease by which it is renewed, if the store keeps it for longer.
    pub(crate) pace: Duration,
    pub(crate) max_hold: Option<Duration>,
    /// How long the store keeps the name at least, even if it is released sooner.
    pub(crate) hold_at_least: Option<Duration>,
    /// On which it may inherit a grant from another of this client, and hand it on.
    pub(crate) terms: Option<Terms>,
    /// The span in which the program asked. That of the hold is its child, and no child of the wait's, which would
    /// then last as long.
    pub(crate) callers: Span,
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
                Timing::leased(grant.lease, *sent, *stands, options.renews, options.pace, now)
            }
            Standing::Session(liveness) if liveness.loss().is_some() => return Err(seat),
            Standing::Session(liveness) => Timing::kept(grant.lease, liveness.deadline()),
        };
        if now >= timing.deadline() || grant.is_forgotten() {
            return Err(seat);
        }
        let late = timing.is_due(now).then(CancellationToken::new);
        let (state, mode, guards, downgrades, seat) = (State::Held, grant.mode, 1, 0, Some(seat));
        let (stated_more, failure, watch, span) = (Ticket::default(), None, None, Span::none());
        let life = Life { state, guards, mode, timing, downgrades, stated_more, failure, seat, watch, span };
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

    /// The program has a guard of it now.
    pub(super) fn delivered(&self) {
        self.delivered.store(true, Ordering::Relaxed);
    }

    /// For how long the store must keep the name although it is released.
    pub(super) fn stays_for(&self) -> Option<Duration> {
        let left = self.stays.filter(|_| self.delivered.load(Ordering::Relaxed))?.left();
        (!left.is_zero()).then(|| left.max(MIN_LEASE))
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
        if self.grant.is_forgotten() {
            return Some(LossCause::Forgotten);
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
                // The agenda reports the loss then, unless its thread is blocked, for instance by a full log pipe.
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
            measured.over();
            tracing::error!(parent: &span, lock.name = %name, %token, lock.store = %store, cause = cause.as_str(), "lock lost: {cause}");
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
                tracing::warn!(lock.name = %grant.name, %error, "could not release a lock that reached its maximum hold time");
            }
        });
    }

    /// The error for a call that this hold's state does not allow.
    pub(super) fn conflict(&self, problem: impl Into<String>) -> Error {
        self.store.conflict(&self.grant.name, problem)
    }

    pub(super) fn lost_error(&self) -> Error {
        let cause = self.loss().unwrap_or(LossCause::Expired);
        let mut error = self.store.lost(&self.grant.name, cause);
        if let Error::Lost { cause: LossCause::Expired, renewal, .. } = &mut error {
            renewal.clone_from(&self.life().failure);
        }
        error
    }
}

#[cfg(test)]
mod tests;
