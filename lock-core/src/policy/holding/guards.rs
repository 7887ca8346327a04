//! The guards of a hold, and its mode.

use super::{Holding, Life, State};
use crate::{
    contract::{Error, LossCause, Mode, Moment},
    policy::queue::Seat,
};
use tracing::Span;

/// The work left after a guard goes.
pub(crate) enum Departure {
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
pub(crate) enum Barred {
    /// It has lost the lock, and its guards are still alive.
    Lost(LossCause),
    /// It holds the name in this mode, which does not cover the requested one.
    Holds(Mode),
}

impl Holding {
    /// Adds a guard for the same owner: `None` if the hold has ended and has no guard left.
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

    /// Removes a guard.
    pub(crate) fn leave(&self) -> Departure {
        self.is_held();
        let mut life = self.life();
        life.guards -= 1;
        match life.state {
            State::Lost(cause) if life.guards > 0 => Departure::Others(Some(cause)),
            State::Held | State::Released if life.guards > 0 => Departure::Others(None),
            State::Lost(cause) => Departure::Lost(cause),
            State::Held | State::Released => {
                // Under one lock: an answer that came before counts, and a request that is still unanswered keeps the grant
                // from being handed on.
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
    /// handed on, since a recorder may block (clause F8).
    pub(crate) fn record_release(&self) {
        // A loss is recorded just before its log line.
        if matches!(self.life().state, State::Released) {
            self.measured.over();
        }
    }

    /// The current mode.
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

    /// Counts as a reader from now on, so that others of this client may contend.
    pub(crate) fn count_as_reader(&self) -> Result<(), Error> {
        if !self.is_held() {
            return Err(self.lost_error());
        }
        // Passed on after the mutex is unlocked.
        let turn = {
            let mut life = self.life();
            if matches!(life.mode, Mode::Permit { .. }) {
                return Err(self.conflict("is a semaphore, and permits cannot be downgraded"));
            }
            // Other guards of a reader rely on no more.
            if life.mode == Mode::Exclusive && life.guards > 1 {
                let others = life.guards - 1;
                let problem = format!(
                    "cannot be downgraded while its owner has {others} other guard{}; release {} first",
                    if others == 1 { "" } else { "s" },
                    if others == 1 { "it" } else { "them" },
                );
                return Err(self.conflict(problem));
            }
            life.mode = Mode::Shared;
            life.stated_more = life.timing.last();
            life.seat.as_mut().and_then(Seat::pass_turn)
        };
        drop(turn);
        Ok(())
    }

    /// Whether the grant is as it was made, and nothing about it is on its way.
    fn is_unchanged(&self, life: &Life) -> bool {
        let (grant, Life { mode, timing, downgrades, .. }) = (&self.grant, life);
        *mode == grant.mode && timing.lease() == grant.lease && timing.is_settled() && *downgrades == 0
    }
}
