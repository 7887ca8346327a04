//! The state of one grant, shared by the guards of its owner and by renewal.

use super::{
    queue::{Barred, Place, Seat},
    shared::Shared,
};
use crate::{
    Ability, Doing, Error, Grant, LossCause, Mode, Moment, Owner, Renewal, Standing, StoreError, lease,
};
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
    /// Where background work runs, also when the last guard is dropped outside the runtime.
    pub(crate) runtime: Handle,
    owner: Option<Owner>,
    renews: bool,
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
    lease: Duration,
    deadline: Moment,
    /// When the next renewal is due; `None` while one is on its way, or when there is none.
    renew_at: Option<Moment>,
    /// The shortest lease among the requests that were never answered: they may yet be carried out, at any time.
    doubt: Option<Duration>,
    /// How long the store keeps a grant that was handed over, or came late, and was not renewed yet.
    provisional: Option<Duration>,
    place: Option<Place>,
    /// Keeps the memory of who owns this as long as a guard is alive.
    seat: Option<Seat>,
    watch: Option<AbortHandle>,
}

impl Life {
    /// The lease that the store keeps at least, whatever becomes of requests that were never answered.
    fn trusted(&self) -> Duration {
        [self.doubt, self.provisional].into_iter().flatten().fold(self.lease, Duration::min)
    }
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
        let (deadline, renew_at, provisional, late) = match &grant.standing {
            Standing::Lease { sent, stands } => {
                let due = *sent + lease::renewal_period(*stands);
                let late = now >= due;
                let provisional = (late || *stands < grant.lease).then_some(*stands);
                let renew_at = (terms.renews || provisional.is_some()).then_some(due);
                (lease::deadline(*sent, *stands), renew_at, provisional, late)
            }
            Standing::Session(liveness) if liveness.loss().is_some() => return Err(place),
            Standing::Session(liveness) => (liveness.deadline(), None, None, false),
        };
        if now >= deadline {
            return Err(place);
        }
        let seat = terms.owner.is_some().then(|| place.seat());
        let life = Life {
            state: State::Held,
            guards: 1,
            mode: grant.mode,
            lease: grant.lease,
            deadline,
            renew_at,
            doubt: None,
            provisional,
            seat: terms.owner.is_some().then(|| place.seat()),
            place: Some(place.while_held(grant.mode)),
            watch: None,
        };
        let hold = Arc::new(Self {
            id: shared.renewal.next_id(),
            shared: Arc::clone(shared),
            runtime: Handle::current(),
            owner: terms.owner,
            renews: terms.renews,
            ends: terms.max_hold.map(|longest| now + longest),
            life: Mutex::new(life),
            lost: CancellationToken::new(),
            late: late.then(CancellationToken::new),
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
        let watch = self.runtime.spawn(async move {
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
        Grant { mode: life.mode, lease: life.lease, ..self.grant.clone() }
    }

    pub(crate) fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    fn deadline_of(&self, life: &Life) -> Moment {
        match &self.grant.standing {
            Standing::Lease { .. } => life.deadline,
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
            self.lost.cancelled().await;
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
            life.place.take()
        };
        self.shared.renewal.remove(self.id);
        self.lost.cancel();
        let Grant { name, token, .. } = &self.grant;
        tracing::error!(%name, %token, store = %self.shared.store, cause = cause.as_str(), "lock lost: {cause}");
        if cause == LossCause::MaxHold && matches!(self.grant.standing, Standing::Session(_)) {
            self.release_after_grace();
        }
        drop(place);
    }

    /// No lease runs out after `max_hold` where a session keeps the grant, so it is released as late as one would.
    fn release_after_grace(&self) {
        let (shared, grant) = (Arc::clone(&self.shared), self.grant_now());
        self.runtime.spawn(async move {
            tokio::time::sleep(grant.lease).await;
            if let Err(error) = shared.backend.release(&grant).await {
                tracing::warn!(name = %grant.name, %error, "a lock held for longer than max_hold could not be released");
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
        let deadline = matches!(self.grant.standing, Standing::Lease { .. }).then_some(life.deadline);
        [deadline, self.ends, life.renew_at].into_iter().flatten().min()
    }

    /// Whether a renewal is due, or so nearly due that it may share a batch.
    pub(crate) fn wants_renewal(&self, now: Moment) -> bool {
        let life = self.life();
        life.renew_at.is_some_and(|due| now + lease::renewal_slack(life.trusted()) >= due)
    }

    /// How long a renewal may take before another one is sent.
    pub(crate) fn patience(&self) -> Duration {
        lease::renewal_patience(self.life().trusted())
    }

    /// The grant as it is to be renewed.
    pub(crate) fn start_renewal(&self) -> Grant {
        self.life().renew_at = None;
        self.grant_now()
    }

    /// Takes in the answer to a request for the lease `asked` that was sent at `sent`, and tells when to look again.
    ///
    /// A request for another lease than the present one may have been carried out after the present one's, and a request
    /// that was never answered may yet be. So the holder believes in no more than the shorter lease, and asks once more.
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
                let next = if life.lease == asked {
                    life.provisional = None;
                    life.deadline = lease::deadline(sent, life.trusted());
                    sent + lease::renewal_period(life.trusted())
                } else {
                    life.deadline = life.deadline.min(lease::deadline(sent, asked));
                    now
                };
                life.renew_at = (self.renews || life.provisional.is_some()).then_some(next);
                if let Some(renewed) = &self.late
                    && life.provisional.is_none()
                {
                    renewed.cancel();
                }
            }
            Renewal::Renewed => {}
            Renewal::Unanswered => {
                let mut life = self.life();
                life.doubt = Some(life.doubt.map_or(asked, |shortest| shortest.min(asked)));
                life.deadline = life.deadline.min(lease::deadline(sent, asked));
                let again = self.renews || life.provisional.is_some();
                life.renew_at = again.then(|| now + lease::renewal_retry(life.trusted()));
            }
        }
        self.next_event()
    }

    pub(crate) async fn extend(self: &Arc<Self>, lease: Duration) -> Result<(), Error> {
        if !matches!(self.grant.standing, Standing::Lease { .. }) {
            let error = StoreError::unsupported(Ability::Extending);
            return Err(self.error(error));
        }
        if !self.is_held() {
            return Err(self.lost_error());
        }
        let mut extending = Extending { hold: self, lease, sent: Moment::now(), answer: Renewal::Unanswered };
        {
            let mut life = self.life();
            life.lease = lease;
            // Until the answer is here, the shorter of the two leases is the one to believe in.
            life.deadline = life.deadline.min(lease::deadline(extending.sent, lease));
        }
        let grant = self.grant_now();
        let answers = self.shared.backend.renew(&[grant]).await.map_err(|error| self.error(error))?;
        let answer = answers.first().copied().unwrap_or(Renewal::Unanswered);
        extending.answer = answer;
        drop(extending);
        match answer {
            Renewal::Renewed if self.is_held() => Ok(()),
            Renewal::Unanswered => Err(self.error(StoreError::unavailable("too few answers"))),
            Renewal::Renewed | Renewal::Lost(_) => Err(self.lost_error()),
        }
    }

    fn reschedule(self: &Arc<Self>) {
        if let Some(at) = self.next_event() {
            self.shared.renewal.move_to(self, at);
        }
    }

    fn error(&self, error: StoreError) -> Error {
        Error::from_store(&self.shared.store, Doing::Extending(self.grant.name.clone()), error)
    }

    pub(crate) fn lost_error(&self) -> Error {
        let cause = self.loss().unwrap_or(LossCause::Expired);
        self.shared.lost(&self.grant.name, cause)
    }
}

/// An extension on its way. The answer is taken in when it is dropped, also when it is given up.
struct Extending<'a> {
    hold: &'a Arc<Holding>,
    lease: Duration,
    sent: Moment,
    answer: Renewal,
}

impl Drop for Extending<'_> {
    fn drop(&mut self) {
        let _ = self.hold.finish_renewal(self.lease, self.sent, self.answer);
        self.hold.reschedule();
    }
}

#[cfg(test)]
mod tests;
