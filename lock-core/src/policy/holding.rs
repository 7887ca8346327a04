//! The state of one grant, shared by the guards of its owner and by renewal.

use super::{
    belief::Belief,
    queue::{Barred, Place, Seat},
    shared::Shared,
};
use crate::{Error, Grant, LossCause, Mode, Moment, Owner, Renewal, Standing};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{runtime::Handle, task::AbortHandle};
use tokio_util::sync::CancellationToken;

/// What `Hold` and `Guard` share.
pub(crate) struct Holding {
    /// Its key in the renewal agenda.
    pub(crate) id: u64,
    pub(crate) shared: Arc<Shared>,
    /// As it was given; [`mode`](Self::mode) tells how it is held now.
    pub(crate) grant: Grant,
    /// Where renewal runs, and what watches over the hold.
    pub(crate) background: Handle,
    /// The runtime that acquired it, where its release begins when nobody waits for that.
    pub(crate) callers: Handle,
    owner: Option<Owner>,
    /// When `max_hold` is over.
    ends: Option<Moment>,
    life: Mutex<Life>,
    lost: CancellationToken,
    /// Where the grant came so late that its renewal was due: cancelled when the first renewal has been answered.
    late: Option<CancellationToken>,
}

struct Life {
    state: State,
    guards: usize,
    mode: Mode,
    belief: Belief,
    /// How many requests to downgrade have not been answered: each may yet be carried out.
    downgrades: usize,
    place: Option<Place>,
    /// Keeps the memory of who owns this as long as a guard is alive.
    seat: Option<Seat>,
    watch: Option<AbortHandle>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Held,
    Lost(LossCause),
    Released,
}

/// How a lock is to be held, once it is granted.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) owner: Option<Owner>,
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Duration>,
}

/// What the last guard leaves behind.
pub(crate) enum Departure {
    /// Other guards of the same owner still hold it.
    Shared,
    /// The store is to be told. The lease runs at least until this moment, so a store that does not know the claim
    /// before then has released it.
    Release(Option<Place>, Moment),
    /// It was lost. `true` when the store may still keep the claim, which is then taken back quietly.
    Lost(LossCause, bool),
}

impl Holding {
    /// Begins to hold, unless the answer came so late that the grant has run out already.
    ///
    /// A grant that came late, its renewal due, is renewed at once and in any case: see [`fresh`](Self::fresh).
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        grant: Grant,
        terms: Terms,
        place: Place,
    ) -> Result<Arc<Self>, Place> {
        let now = Moment::now();
        let belief = match &grant.standing {
            Standing::Lease { sent, stands } => {
                Belief::leased(grant.lease, *sent, *stands, terms.renews, now)
            }
            Standing::Session(liveness) if liveness.loss().is_some() => return Err(place),
            Standing::Session(liveness) => Belief::kept(grant.lease, liveness.deadline()),
        };
        if now >= belief.deadline() {
            return Err(place);
        }
        let late = belief.is_due(now).then(CancellationToken::new);
        let seat = terms.owner.is_some().then(|| place.seat());
        let life = Life {
            state: State::Held,
            guards: 1,
            mode: grant.mode,
            belief,
            downgrades: 0,
            seat: terms.owner.is_some().then(|| place.seat()),
            place: Some(place.while_held(grant.mode)),
            watch: None,
        };
        let hold = Arc::new(Self {
            id: shared.renewal.next_id(),
            shared: Arc::clone(shared),
            background: shared.background.handle(),
            callers: Handle::current(),
            owner: terms.owner,
            ends: terms.max_hold.map(|longest| now + longest),
            life: Mutex::new(life),
            lost: CancellationToken::new(),
            late,
            grant,
        });
        if let Some(seat) = seat {
            seat.entered(&hold);
        }
        hold.watch_session();
        if let Some(at) = hold.next_event() {
            shared.renewal.add(&hold, at);
        }
        Ok(hold)
    }

    /// Waits until a grant that came late has been renewed, since what is left of its lease may be next to nothing;
    /// `false` when it was lost first.
    pub(crate) async fn fresh(&self) -> bool {
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
        let watch = self.background.spawn(async move {
            let cause = liveness.ended().await;
            if let Some(hold) = hold.upgrade() {
                hold.lose(cause);
            }
        });
        self.life().watch = Some(watch.abort_handle());
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the name is held now.
    pub(crate) fn mode(&self) -> Mode {
        self.life().mode
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        self.life().mode = mode;
    }

    pub(crate) fn downgrade_sent(&self) {
        self.life().downgrades += 1;
    }

    pub(crate) fn downgrade_answered(&self) {
        self.life().downgrades -= 1;
    }

    /// Whether the store may still carry out a request to downgrade.
    pub(crate) fn awaits_downgrade(&self) -> bool {
        self.life().downgrades > 0
    }

    /// Counts as a reader from now on, so that others of this process may contend.
    pub(crate) fn weaken(&self) -> Result<(), Error> {
        if !self.is_held() {
            return Err(self.lost_error());
        }
        // Passed on when nothing is locked any more.
        let turn = {
            let mut life = self.life();
            let refused = |given: &dyn fmt::Display, allowed| {
                Err(Error::invalid_option("the guard to downgrade", given, allowed))
            };
            if let held @ Mode::Permit { .. } = life.mode {
                return refused(&held, "a guard that holds a lock alone");
            }
            if life.guards > 1 {
                return refused(&format_args!("one of {}", life.guards), "the only guard of its owner");
            }
            life.mode = Mode::Shared;
            let turn = life.place.take();
            life.place = turn.as_ref().map(|turn| Place::Seat(turn.seat()));
            turn
        };
        drop(turn);
        Ok(())
    }

    /// The grant as the store has it now.
    pub(crate) fn grant_now(&self) -> Grant {
        let life = self.life();
        Grant { mode: life.mode, lease: life.belief.lease(), ..self.grant.clone() }
    }

    pub(crate) fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    fn deadline_of(&self, life: &Life) -> Moment {
        match &self.grant.standing {
            Standing::Lease { .. } => life.belief.deadline(),
            Standing::Session(liveness) => liveness.deadline(),
        }
    }

    /// Why the hold is over although nothing has said so yet.
    fn overdue(&self, life: &Life) -> Option<LossCause> {
        let now = Moment::now();
        if let Standing::Session(liveness) = &self.grant.standing
            && let Some(cause) = liveness.loss()
        {
            return Some(cause);
        }
        if now >= self.deadline_of(life) {
            return Some(LossCause::Expired);
        }
        self.ends.is_some_and(|ends| now >= ends).then_some(LossCause::MaxHold)
    }

    /// Until when the hold stands if nothing more is heard; `None` once it has ended.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.is_held().then(|| self.deadline_of(&self.life()))
    }

    /// Why the hold was lost, if it was.
    pub(crate) fn loss(&self) -> Option<LossCause> {
        self.is_held();
        match self.life().state {
            State::Lost(cause) => Some(cause),
            State::Held | State::Released => None,
        }
    }

    /// Waits until the hold is lost.
    pub(crate) async fn lost(&self) -> LossCause {
        loop {
            if let Some(cause) = self.loss() {
                return cause;
            }
            match self.deadline().filter(|_| Handle::try_current().is_ok()) {
                // The agenda tells then, unless its thread is kept: by a log, for instance, that nobody reads.
                Some(deadline) => {
                    let ends = self.ends.map_or(deadline, |ends| ends.min(deadline));
                    let _ = tokio::time::timeout(ends.left(), self.lost.cancelled()).await;
                }
                None => self.lost.cancelled().await,
            }
        }
    }

    pub(crate) fn is_held(&self) -> bool {
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
    pub(crate) fn lose(&self, cause: LossCause) {
        let place = {
            let mut life = self.life();
            if !matches!(life.state, State::Held) {
                return;
            }
            life.state = State::Lost(cause);
            if let Some(watch) = life.watch.take() {
                watch.abort();
            }
            life.place.take()
        };
        self.shared.renewal.remove(self.id);
        self.lost.cancel();
        let (name, token, store) =
            (self.grant.name.clone(), self.grant.token, Arc::clone(&self.shared.store));
        // Not here: who is told of the loss does not wait until a log is read (clause F8).
        self.background.spawn(async move {
            tracing::error!(lock.name = %name, %token, lock.store = %store, cause = cause.as_str(), "lock lost: {cause}");
        });
        if cause == LossCause::MaxHold && matches!(self.grant.standing, Standing::Session(_)) {
            self.release_after_grace();
        }
        drop(place);
    }

    /// No lease runs out after `max_hold` where a session keeps the grant, so it is released as late as one would.
    fn release_after_grace(&self) {
        let (shared, grant) = (Arc::clone(&self.shared), self.grant_now());
        self.background.spawn(async move {
            tokio::time::sleep(grant.lease).await;
            if let Err(error) = shared.backend.release(&grant).await {
                tracing::warn!(lock.name = %grant.name, %error, "a lock held for longer than max_hold could not be released");
            }
        });
    }

    /// One more guard, for the same owner: `None` when the hold is over and has no guard left.
    pub(crate) fn enter_again(&self, wanted: Mode) -> Option<Result<(), Barred>> {
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

    /// One guard fewer.
    pub(crate) fn leave(&self) -> Departure {
        self.is_held();
        let mut life = self.life();
        life.guards -= 1;
        let last = life.guards == 0;
        let seat = if last { life.seat.take() } else { None };
        match life.state {
            State::Lost(cause) => {
                drop(life);
                drop(seat);
                let kept = matches!(cause, LossCause::Expired | LossCause::MaxHold);
                Departure::Lost(cause, kept && last)
            }
            State::Held | State::Released if !last => Departure::Shared,
            State::Held | State::Released => {
                life.state = State::Released;
                if let Some(watch) = life.watch.take() {
                    watch.abort();
                }
                let (place, until) = (life.place.take(), self.deadline_of(&life));
                drop(life);
                drop(seat);
                self.shared.renewal.remove(self.id);
                Departure::Release(place, until)
            }
        }
    }

    /// When renewal has to look at this hold again: to renew it, or to find it lost.
    pub(crate) fn next_event(&self) -> Option<Moment> {
        let life = self.life();
        let belief = matches!(self.grant.standing, Standing::Lease { .. }).then(|| life.belief.next_event());
        [belief, self.ends].into_iter().flatten().min()
    }

    /// Whether a renewal is due, or so nearly due that it may share a batch.
    pub(crate) fn wants_renewal(&self, now: Moment) -> bool {
        self.life().belief.wants_renewal(now)
    }

    /// How long a renewal may take before another one is sent.
    pub(crate) fn patience(&self) -> Duration {
        self.life().belief.patience()
    }

    /// The grant as it is to be renewed.
    pub(crate) fn start_renewal(&self) -> Grant {
        self.life().belief.renewal_sent();
        self.grant_now()
    }

    /// A request for another lease was sent at `sent`.
    pub(crate) fn extension_sent(&self, lease: Duration, sent: Moment) {
        self.life().belief.extension_sent(lease, sent);
    }

    /// Takes in the answer to a request for the lease `asked` that was sent at `sent`, and tells when to look again.
    pub(crate) fn finish_renewal(&self, asked: Duration, sent: Moment, answer: Renewal) -> Option<Moment> {
        let now = Moment::now();
        match answer {
            Renewal::Lost(cause) => {
                self.lose(cause);
                return None;
            }
            // Looks at the clock first: an answer that comes after the deadline revives nothing.
            Renewal::Renewed if self.is_held() => {
                let mut life = self.life();
                life.belief.renewed(asked, sent, now);
                if let Some(renewed) = &self.late
                    && !life.belief.is_provisional()
                {
                    renewed.cancel();
                }
            }
            Renewal::Renewed => {}
            Renewal::Unanswered => self.life().belief.unanswered(asked, sent, now),
        }
        self.next_event()
    }

    pub(crate) fn lost_error(&self) -> Error {
        let cause = self.loss().unwrap_or(LossCause::Expired);
        self.shared.lost(&self.grant.name, cause)
    }
}

#[cfg(test)]
mod tests;
