//! Until when the leader certainly keeps a session.

use std::time::Duration;
use tenure_core::{Moment, Session};

/// The fraction of the timeout after which a server has certainly reported a session to the leader.
const REPORTED: u32 = 4;

/// One session's life, as far as known, and the deadline of its grants.
///
/// The leader ends a session that no server has reported for its timeout. A client talks to one server, often a
/// follower, which reports its sessions to the leader every half tick. So an answered request does not prove that the
/// leader knows of it: the follower may be cut off or die before its next report. An answered *write* proves more: it
/// went through the leader on the connection on which the follower reports, so all earlier reports have arrived. They
/// include every request answered at least a quarter of the timeout earlier, because a tick is at most half of a session's
/// timeout unless `minSessionTimeout` is set lower. When it was sent says nothing: it may have been on its way for long.
///
/// So an answered write confirms the latest request that was answered at least a quarter of the timeout before the write
/// was sent. The deadline of the session's grants counts from when that request was sent.
pub(crate) struct Heartbeats {
    timeout: Duration,
    /// The leader heard from the session at this moment or later.
    known: Moment,
    /// Answered requests, as far as a write may still confirm them.
    touches: Vec<Touch>,
    session: Session,
}

/// An answered request. The server heard from the session between these moments.
struct Touch {
    sent: Moment,
    answered: Moment,
}

impl Heartbeats {
    /// For a session that was opened by a request sent at `sent`: the leader itself opens it.
    pub(crate) fn new(timeout: Duration, sent: Moment) -> Self {
        Self { timeout, known: sent, touches: Vec::new(), session: Session::new(timeout, sent) }
    }

    /// Records that a request sent at `sent` has just been answered.
    pub(crate) fn touched(&mut self, sent: Moment) {
        let near = self.timeout / 12;
        if let Some(vouched) = self.reported_before(sent) {
            self.touches.retain(|touch| touch.sent >= vouched);
        }
        if self.touches.iter().all(|touch| sent >= touch.sent + near) {
            self.touches.push(Touch { sent, answered: Moment::now() });
        }
    }

    /// Records that a write sent at `sent` has been answered. `held`: whether there are grants in the session.
    pub(crate) fn written(&mut self, sent: Moment, held: bool) {
        self.known = self.reported_before(sent).map_or(self.known, |vouched| vouched.max(self.known));
        // Nothing was proven while the session was idle. If there are no grants to revive, it starts anew.
        if held || self.session.is_alive() {
            self.session.proven(self.known);
        } else {
            self.session = Session::new(self.timeout, self.known);
        }
        self.touched(sent);
    }

    /// Whether so little is left of the session that its grants may be lost before another write can confirm it. Never
    /// true while heartbeats are answered within a twelfth of the timeout.
    pub(crate) fn runs_out(&self) -> bool {
        self.session.is_alive() && self.session.liveness().deadline().left() < self.timeout / REPORTED
    }

    /// When the latest touch was sent that has certainly been reported when a request is sent at `sent`.
    fn reported_before(&self, sent: Moment) -> Option<Moment> {
        let reported = |touch: &&Touch| touch.answered + self.timeout / REPORTED <= sent;
        self.touches.iter().filter(reported).map(|touch| touch.sent).max()
    }

    /// The session on which its grants rely.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{advance, sleep};

    const TIMEOUT: Duration = Duration::from_secs(12);

    async fn pass(seconds: u64) -> Moment {
        advance(Duration::from_secs(seconds)).await;
        Moment::now()
    }

    fn left(heartbeats: &Heartbeats) -> Duration {
        heartbeats.session().liveness().deadline().left()
    }

    /// The rest of a timeout that began that long ago.
    fn of_timeout(gone: u64) -> std::ops::Range<Duration> {
        let gone = TIMEOUT / 100 + Duration::from_millis(2) + Duration::from_secs(gone);
        TIMEOUT.saturating_sub(gone + Duration::from_millis(20))
            ..TIMEOUT.saturating_sub(gone) + Duration::from_millis(20)
    }

    #[tokio::test(start_paused = true)]
    async fn write_confirms_the_requests_reported_before_it() {
        let mut heartbeats = Heartbeats::new(TIMEOUT, Moment::now());
        heartbeats.written(pass(4).await, true);
        assert!(
            of_timeout(4).contains(&left(&heartbeats)),
            "only the opening is known: {:?}",
            left(&heartbeats)
        );
        heartbeats.written(pass(1).await, true);
        assert!(of_timeout(5).contains(&left(&heartbeats)), "the write of a second ago may be unreported");
        heartbeats.written(pass(3).await, true);
        assert!(of_timeout(3).contains(&left(&heartbeats)), "the write of 3 s ago is reported");
    }

    #[tokio::test(start_paused = true)]
    async fn write_does_not_confirm_a_request_answered_just_before_it() {
        let mut heartbeats = Heartbeats::new(TIMEOUT, Moment::now());
        let slow = pass(4).await;
        pass(2).await;
        heartbeats.touched(slow);
        heartbeats.written(pass(1).await, true);
        assert!(
            of_timeout(7).contains(&left(&heartbeats)),
            "it may have arrived just now: {:?}",
            left(&heartbeats)
        );
        heartbeats.written(pass(2).await, true);
        assert!(of_timeout(5).contains(&left(&heartbeats)), "it is reported: {:?}", left(&heartbeats));
    }

    /// Slower, and they are sent more often.
    #[tokio::test(start_paused = true)]
    async fn answers_within_a_twelfth_keep_the_session_alive_at_the_usual_rate() {
        let mut heartbeats = Heartbeats::new(TIMEOUT, Moment::now());
        let grant = heartbeats.session().liveness();
        for _ in 0..100 {
            let sent = pass(3).await;
            pass(1).await;
            heartbeats.written(sent, true);
            assert!(!heartbeats.runs_out(), "{:?}", left(&heartbeats));
        }
        assert!(grant.loss().is_none());
    }

    /// The server answers the read of a heartbeat by itself.
    #[tokio::test(start_paused = true)]
    async fn slow_majority_costs_no_grant_while_reads_are_answered() {
        for slow in 1..4 {
            let mut heartbeats = Heartbeats::new(TIMEOUT, Moment::now());
            let grant = heartbeats.session().liveness();
            for _ in 0..100 {
                let sent = Moment::now();
                heartbeats.touched(sent);
                pass(slow).await;
                heartbeats.written(sent, true);
                assert!(grant.loss().is_none(), "transactions take {slow} s");
                pass(4 - slow).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_session_revives_but_its_lost_grants_do_not() {
        let mut heartbeats = Heartbeats::new(TIMEOUT, Moment::now());
        let lost = heartbeats.session().liveness();
        for _ in 0..10 {
            heartbeats.touched(pass(4).await);
        }
        assert!(!heartbeats.session().is_alive());
        heartbeats.written(pass(1).await, false);
        assert!(
            of_timeout(5).contains(&left(&heartbeats)),
            "the touch of 5 s ago is reported, not that of 1 s ago"
        );
        assert!(lost.loss().is_some());
        sleep(TIMEOUT).await;
        heartbeats.written(Moment::now(), true);
        assert!(!heartbeats.session().is_alive(), "grants are not revived");
    }

    #[tokio::test(start_paused = true)]
    async fn session_is_not_alive_after_a_freeze() {
        let mut heartbeats = Heartbeats::new(TIMEOUT, Moment::now());
        heartbeats.written(pass(60).await, false);
        assert!(!heartbeats.session().is_alive(), "the server may be about to end it");
    }

    #[tokio::test(start_paused = true)]
    async fn session_runs_out_if_no_write_can_confirm_it_in_time() {
        let mut heartbeats = Heartbeats::new(TIMEOUT, Moment::now());
        for _ in 0..10 {
            pass(3).await;
            assert!(!heartbeats.runs_out(), "just before a heartbeat");
            heartbeats.written(pass(1).await, false);
            assert!(!heartbeats.runs_out());
        }
        pass(5).await;
        assert!(heartbeats.runs_out(), "{:?} left", left(&heartbeats));
        heartbeats.written(Moment::now(), false);
        assert!(!heartbeats.runs_out(), "the write of 5 s ago is reported");
        pass(12).await;
        assert!(!heartbeats.runs_out(), "it has run out");
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_keep_few_touches() {
        let mut heartbeats = Heartbeats::new(TIMEOUT, Moment::now());
        for _ in 0..10_000 {
            heartbeats.written(pass(0).await, true);
            sleep(Duration::from_millis(10)).await;
        }
        assert!(heartbeats.touches.len() <= 5, "{}", heartbeats.touches.len());
        for _ in 0..100 {
            heartbeats.touched(pass(4).await);
        }
        assert!(heartbeats.touches.len() <= 5, "{}", heartbeats.touches.len());
    }
}
