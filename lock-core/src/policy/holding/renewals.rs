//! The renewals and extensions of a hold.

use super::{Holding, State};
use crate::{
    contract::{Grant, LossCause, Moment, Standing},
    metrics::Renewed,
    policy::timing::Ticket,
    store::Renewal,
};
use std::{sync::Arc, time::Duration};

impl Holding {
    /// When the agenda must look at this hold again: to renew it, or to find it lost.
    pub(crate) fn next_event(&self) -> Option<Moment> {
        let life = self.life();
        let timed = matches!(self.grant.standing, Standing::Lease { .. }).then(|| life.timing.next_event());
        [timed, self.ends].into_iter().flatten().min()
    }

    /// Whether a renewal is due, or so nearly due that it may share a batch.
    pub(crate) fn wants_renewal(&self, now: Moment) -> bool {
        self.life().timing.wants_renewal(now)
    }

    /// How long a renewal that is sent now may take before another one is.
    pub(crate) fn patience(&self, now: Moment) -> Duration {
        self.life().timing.patience(now)
    }

    /// Starts a renewal at `sent`, and returns the grant to renew.
    pub(crate) fn start_renewal(&self, sent: Moment) -> (Grant, Ticket) {
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
    pub(crate) fn start_extension(&self, lease: Duration, sent: Moment) -> Option<(Grant, Ticket)> {
        let mut life = self.life();
        if !matches!(life.state, State::Held) {
            return None;
        }
        let ticket = life.timing.extension_sent(lease, sent);
        Some((self.grant_in(&life), ticket))
    }

    /// The answer to a renewal or extension, as far as it counts.
    ///
    /// A downgrade may have overtaken a request that stated the mode before it. Then the store has less than was stated,
    /// although it has forgotten nothing (clause F7).
    pub(crate) fn counting(&self, ticket: Ticket, answer: Renewal) -> Renewal {
        match answer {
            Renewal::Lost(LossCause::Forgotten) if ticket <= self.life().stated_more => Renewal::Unanswered,
            answer => answer,
        }
    }

    /// Records why a renewal failed.
    pub(crate) fn renewal_failed(&self, why: &Arc<str>) {
        self.life().failure = Some(Arc::clone(why));
    }

    /// Records the answer to a renewal or extension.
    pub(crate) fn finish_renewal(&self, ticket: Ticket, answer: Renewal) {
        let now = Moment::now();
        let outcome = match self.counting(ticket, answer) {
            Renewal::Lost(cause) => {
                self.lose(cause);
                Renewed::Lost
            }
            // Checks the clock first: an answer after the deadline revives nothing.
            Renewal::Renewed if self.is_held() => {
                let mut life = self.life();
                life.timing.renewed(ticket, now);
                life.failure = None;
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

    /// This renewal is not sent, or its answer is no longer awaited.
    pub(crate) fn abandon_renewal(&self, ticket: Ticket) {
        self.life().timing.ended(ticket);
        self.answered.notify_waiters();
    }

    /// Waits until no renewal or extension is under way.
    pub(crate) async fn settled(&self) {
        loop {
            let answered = self.answered.notified();
            if !self.life().timing.is_anything_under_way() {
                return;
            }
            answered.await;
        }
    }

    /// Waits until a grant that came late has been renewed, because little of its lease may be left; `false` if it was
    /// lost first.
    pub(crate) async fn fresh(&self) -> bool {
        let Some(renewed) = &self.late else { return true };
        tokio::select! {
            biased;
            () = renewed.cancelled() => true,
            _ = self.lost() => false,
        }
    }
}
