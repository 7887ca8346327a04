//! Until when a hold counts as held, and when its renewal is due.

use crate::{Moment, lease};
use std::time::Duration;

/// Until when the store certainly keeps a lease (clause L3), and when to renew it (clause L4).
///
/// A lease ends as the request says that was carried out last. Requests that are under way together may be carried out
/// in any order, and one that was never answered at any time. So what does it prove that X, sent at `sent`, has been
/// answered? Whichever request is the last to be carried out, now or later, that was or will be no sooner than X, and
/// so after `sent`. It is one of these:
///
/// - X, or a request that was under way at the same time as X: its lease is no shorter than X's `least`.
/// - One that was never answered: its lease is no shorter than the `doubt`.
/// - One that is sent after X was answered: sending it makes the deadline no later than its own.
///
/// What had been answered when X was sent is none of them, because it was carried out before X. So the grant stands
/// until `sent` + the shorter of `least` and `doubt`, and the deadline may move there. It never moves back: what was
/// proven earlier still is.
pub(crate) struct Timing {
    /// The lease that was last asked for.
    lease: Duration,
    renews: bool,
    deadline: Moment,
    /// The lease that the deadline counts on: no longer than any that may still be carried out.
    trusted: Duration,
    /// When the next renewal is due; `None` while one is on its way, or if there is none.
    renew_at: Option<Moment>,
    under_way: Vec<Request>,
    last: Ticket,
    /// The shortest lease among requests that were never answered: they may still be carried out at any time.
    doubt: Option<Duration>,
    /// Whether the store may keep the grant for less than its lease until it is renewed, which happens in any case: it
    /// was handed over, came late, or its request crossed one for less.
    provisional: bool,
}

/// A request for a lease, which has no answer yet.
struct Request {
    ticket: Ticket,
    asked: Duration,
    sent: Moment,
    /// The shortest lease of this and all that were under way at the same time.
    least: Duration,
}

/// Which request is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl Timing {
    /// For a lease that was requested at `sent`, and lasts for `stands` until it is renewed.
    ///
    /// A lease that was handed over, or came so late that its renewal is due, is always renewed.
    pub(crate) fn leased(lease: Duration, sent: Moment, stands: Duration, renews: bool, now: Moment) -> Self {
        let due = sent + lease::renewal_period(stands);
        let provisional = now >= due || stands < lease;
        let renew_at = (renews || provisional).then_some(due);
        let deadline = lease::deadline(sent, stands);
        Self { renews, trusted: stands.min(lease), renew_at, provisional, ..Self::kept(lease, deadline) }
    }

    /// For a grant that a session keeps: it is not renewed here.
    pub(crate) fn kept(lease: Duration, deadline: Moment) -> Self {
        Self {
            lease,
            renews: false,
            deadline,
            trusted: lease,
            renew_at: None,
            under_way: Vec::new(),
            last: Ticket(0),
            doubt: None,
            provisional: false,
        }
    }

    /// The lease that was last asked for.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Whether the store may keep the grant for less than its lease until it is renewed.
    pub(crate) fn is_provisional(&self) -> bool {
        self.provisional
    }

    /// Whether every request since the grant has been answered, and a renewal is to come.
    pub(crate) fn is_settled(&self) -> bool {
        let in_doubt = self.doubt.is_some() || self.provisional || !self.under_way.is_empty();
        self.renew_at.is_some() && !in_doubt
    }

    /// When to renew it, or when it has expired.
    pub(crate) fn next_event(&self) -> Moment {
        self.renew_at.map_or(self.deadline, |due| due.min(self.deadline))
    }

    pub(crate) fn is_due(&self, now: Moment) -> bool {
        self.renew_at.is_some_and(|due| now >= due)
    }

    /// Whether a renewal is due, or so nearly due that it may share a batch.
    pub(crate) fn wants_renewal(&self, now: Moment) -> bool {
        self.is_due(now + lease::renewal_slack(self.trusted))
    }

    /// How long a renewal may take before another one is sent: never longer than its own lease allows.
    pub(crate) fn patience(&self) -> Duration {
        lease::renewal_patience(self.trusted)
    }

    /// A renewal goes out at `sent`. Also returns when it was due.
    pub(crate) fn renewal_sent(&mut self, sent: Moment) -> (Ticket, Option<Moment>) {
        let due = self.renew_at.take();
        (self.send(self.lease, sent), due)
    }

    /// A request for another lease goes out at `sent`.
    pub(crate) fn extension_sent(&mut self, lease: Duration, sent: Moment) -> Ticket {
        self.lease = lease;
        let ticket = self.send(lease, sent);
        // A shorter lease, if it is carried out and never answered, is to be renewed in time.
        let soon = sent + lease::renewal_period(self.trusted);
        self.renew_at = self.renew_at.map(|due| due.min(soon));
        ticket
    }

    fn send(&mut self, asked: Duration, sent: Moment) -> Ticket {
        let mut least = asked;
        for other in &mut self.under_way {
            least = least.min(other.asked);
            other.least = other.least.min(asked);
        }
        self.deadline = self.deadline.min(lease::deadline(sent, asked));
        self.trusted = self.trusted.min(asked);
        self.last = Ticket(self.last.0 + 1);
        self.under_way.push(Request { ticket: self.last, asked, sent, least });
        self.last
    }

    /// The request was carried out, and this is the answer.
    pub(crate) fn renewed(&mut self, ticket: Ticket, now: Moment) {
        let Some(Request { sent, least, .. }) = self.end(ticket) else { return };
        let trusted = self.doubt.map_or(least, |doubt| doubt.min(least));
        let proven = lease::deadline(sent, trusted);
        // What is answered late may prove less than a request that was sent after it.
        let counts = proven >= self.deadline;
        if counts {
            (self.deadline, self.trusted) = (proven, trusted);
        }
        if least >= self.lease {
            self.provisional = false;
        } else if counts {
            self.provisional = true;
        }
        if self.provisional && !self.is_crossed() {
            self.plan(now);
        } else if counts || self.renew_at.is_none() {
            self.plan(sent + lease::renewal_period(self.trusted));
        }
    }

    /// Nobody knows whether the request was or will be carried out.
    pub(crate) fn unanswered(&mut self, ticket: Ticket, now: Moment) {
        let Some(Request { asked, .. }) = self.end(ticket) else { return };
        self.doubt = Some(self.doubt.map_or(asked, |shortest| shortest.min(asked)));
        let again = now + lease::renewal_retry(self.trusted);
        self.plan(self.renew_at.map_or(again, |due| due.min(again)));
    }

    /// The request was not sent after all, or its answer matters no more. Does nothing after the two above.
    pub(crate) fn ended(&mut self, ticket: Ticket) {
        self.end(ticket);
    }

    pub(crate) fn is_anything_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    fn end(&mut self, ticket: Ticket) -> Option<Request> {
        let at = self.under_way.iter().position(|one| one.ticket == ticket)?;
        Some(self.under_way.swap_remove(at))
    }

    /// Whether a request for less is under way: another renewal would cross that one too.
    fn is_crossed(&self) -> bool {
        self.under_way.iter().any(|one| one.asked < self.lease)
    }

    /// Plans the next renewal. Without renewal, only what is provisional is asked for, once more.
    fn plan(&mut self, at: Moment) {
        let once_more = self.provisional && !self.is_crossed();
        self.renew_at = (self.renews || once_more).then_some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{prelude::*, sample::Index};

    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_secs(3);

    #[test]
    fn what_was_never_answered_shortens_what_is_believed() {
        let sent = Moment::now();
        let mut timing = Timing::leased(LONG, sent, LONG, true, sent);
        let short = timing.extension_sent(SHORT, sent);
        timing.unanswered(short, sent);
        let long = timing.extension_sent(LONG, sent);
        timing.renewed(long, sent);
        // The short request may be carried out after the long one.
        assert!(timing.deadline() == lease::deadline(sent, SHORT) && timing.lease() == LONG);
        assert!(timing.is_due(sent + lease::renewal_period(SHORT)) && !timing.is_due(sent));
    }

    /// The store may have carried out the short request last, whichever answer came last.
    #[test]
    fn requests_that_cross_count_as_the_shorter_and_are_followed_by_another() {
        for renews in [true, false] {
            for short_first in [true, false] {
                let sent = Moment::now();
                let mut timing = Timing::leased(LONG, sent, LONG, renews, sent);
                let short = timing.extension_sent(SHORT, sent);
                let long = timing.extension_sent(LONG, sent);
                let (one, other) = if short_first { (short, long) } else { (long, short) };
                timing.renewed(one, sent);
                assert_eq!(timing.is_due(sent), short_first, "another would cross the short one too");
                timing.renewed(other, sent);
                assert!(timing.deadline() == lease::deadline(sent, SHORT) && timing.is_due(sent));
                let (again, _) = timing.renewal_sent(sent);
                timing.renewed(again, sent);
                assert!(timing.deadline() == lease::deadline(sent, LONG) && !timing.is_provisional());
                assert_eq!(timing.is_due(sent + lease::renewal_period(LONG)), renews);
            }
        }
    }

    #[test]
    fn a_renewal_that_crosses_an_extension_counts_too() {
        let sent = Moment::now();
        let mut timing = Timing::leased(SHORT, sent, SHORT, true, sent);
        let (renewal, _) = timing.renewal_sent(sent);
        let long = timing.extension_sent(LONG, sent);
        // Nobody waits for it as if its lease were the longer one.
        assert!(timing.patience() <= lease::renewal_patience(SHORT));
        timing.renewed(long, sent);
        assert!(timing.deadline() == lease::deadline(sent, SHORT));
        timing.renewed(renewal, sent);
        assert!(timing.deadline() == lease::deadline(sent, SHORT) && timing.is_due(sent));
    }

    /// As when its connection breaks, or the program drops it.
    #[test]
    fn an_extension_without_an_answer_delays_no_renewal() {
        let sent = Moment::now();
        let mut timing = Timing::leased(LONG, sent, LONG, true, sent);
        let patience = timing.patience();
        let longer = timing.extension_sent(LONG * 120, sent);
        timing.unanswered(longer, sent);
        assert!(timing.deadline() == lease::deadline(sent, LONG) && timing.patience() == patience);
        assert!(timing.is_due(sent + lease::renewal_retry(LONG)));
    }

    #[test]
    fn a_shorter_lease_is_renewed_in_time_whether_it_is_answered_or_not() {
        let sent = Moment::now();
        let mut timing = Timing::leased(LONG, sent, LONG, true, sent);
        timing.extension_sent(SHORT, sent);
        assert!(timing.is_due(sent + lease::renewal_period(SHORT)));
    }

    #[test]
    fn an_answer_to_an_older_request_adds_nothing() {
        let sent = Moment::now();
        let later = sent + Duration::from_secs(1);
        let mut timing = Timing::leased(LONG, sent, LONG, true, sent);
        let (renewal, _) = timing.renewal_sent(sent);
        assert!(!timing.is_due(sent + LONG) && timing.next_event() == timing.deadline());
        timing.extension_sent(SHORT, later);
        timing.renewed(renewal, later);
        assert!(timing.deadline() == lease::deadline(later, SHORT) && timing.is_due(later));
    }

    #[test]
    fn what_came_late_or_was_handed_over_is_renewed_in_any_case() {
        let sent = Moment::now();
        let late = sent + lease::renewal_period(LONG);
        assert!(!Timing::leased(LONG, sent, LONG, false, sent).is_due(sent + LONG));
        for (stands, now) in [(LONG, late), (SHORT, sent)] {
            let mut timing = Timing::leased(LONG, sent, stands, false, now);
            assert!(timing.is_provisional() && timing.is_due(late));
            assert!(timing.deadline() == lease::deadline(sent, stands));
            let (renewal, due) = timing.renewal_sent(late);
            assert_eq!(due, Some(sent + lease::renewal_period(stands)));
            timing.renewed(renewal, late);
            assert!(!timing.is_provisional() && !timing.is_due(late + LONG), "renewed once more");
            assert!(timing.deadline() == lease::deadline(late, LONG));
        }
    }

    /// What may happen to a lease, each after so many milliseconds.
    #[derive(Clone, Debug)]
    enum Step {
        Renew,
        Extend(Duration),
        /// The store carries a request out, perhaps long after anybody waits for its answer.
        CarryOut(Index),
        Answer(Index),
        GiveUp(Index),
    }

    struct Sent {
        ticket: Ticket,
        asked: Duration,
        /// Until when its answer is awaited: that to an extension as long as the program likes.
        until: Option<Moment>,
        is_carried_out: bool,
        is_awaited: bool,
    }

    impl Sent {
        fn new(ticket: Ticket, asked: Duration, until: Option<Moment>) -> Self {
            Self { ticket, asked, until, is_carried_out: false, is_awaited: true }
        }
    }

    fn lease() -> impl Strategy<Value = Duration> {
        prop_oneof![100_u64..300, 300_u64..3_000].prop_map(Duration::from_millis)
    }

    fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
        let step = prop_oneof![
            Just(Step::Renew),
            lease().prop_map(Step::Extend),
            any::<Index>().prop_map(Step::CarryOut),
            any::<Index>().prop_map(Step::Answer),
            any::<Index>().prop_map(Step::GiveUp),
        ];
        let wait = prop_oneof![3 => Just(0), 1 => 0_u64..50, 1 => 0_u64..1_000];
        prop::collection::vec((wait, step), 1..40)
    }

    fn pick(requests: &mut [Sent], at: Index, which: impl Fn(&Sent) -> bool) -> Option<&mut Sent> {
        let mut those: Vec<_> = requests.iter_mut().filter(|request| which(request)).collect();
        (!those.is_empty()).then(|| those.swap_remove(at.index(those.len())))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// Clause L3, whatever is carried out, when, and in which order: at no time does the deadline count on more
        /// than the store has. And nothing that may be had for longer is left as it is.
        #[test]
        fn the_deadline_is_never_after_the_expiry(
            lease in lease(), stands in lease(), renews in any::<bool>(), steps in steps()
        ) {
            let (mut now, stands) = (Moment::now(), stands.min(lease));
            let mut expiry = now + stands;
            let mut timing = Timing::leased(lease, now, stands, renews, now);
            let mut requests: Vec<Sent> = Vec::new();
            for (wait, step) in steps {
                let end = now + Duration::from_millis(wait);
                loop {
                    let given_up = requests.iter_mut().filter(|request| request.is_awaited);
                    let given_up = given_up.filter(|request| request.until.is_some_and(|until| until <= end));
                    let given_up = given_up.min_by_key(|request| request.until);
                    now = given_up.as_ref().and_then(|request| request.until).unwrap_or(end);
                    if timing.deadline() <= now {
                        return Ok(());
                    }
                    let Some(request) = given_up else { break };
                    request.is_awaited = false;
                    timing.unanswered(request.ticket, now);
                }
                match step {
                    Step::Renew => {
                        let (ticket, _) = timing.renewal_sent(now);
                        requests.push(Sent::new(ticket, timing.lease(), Some(now + timing.patience())));
                    }
                    Step::Extend(lease) => {
                        let ticket = timing.extension_sent(lease, now);
                        requests.push(Sent::new(ticket, lease, None));
                    }
                    Step::CarryOut(at) => {
                        if let Some(request) = pick(&mut requests, at, |one| !one.is_carried_out) {
                            request.is_carried_out = true;
                            expiry = now + request.asked;
                        }
                    }
                    Step::Answer(at) => {
                        let answers = |one: &Sent| one.is_carried_out && one.is_awaited;
                        if let Some(request) = pick(&mut requests, at, answers) {
                            request.is_awaited = false;
                            timing.renewed(request.ticket, now);
                        }
                    }
                    Step::GiveUp(at) => {
                        if let Some(request) = pick(&mut requests, at, |one| one.is_awaited) {
                            request.is_awaited = false;
                            timing.unanswered(request.ticket, now);
                        }
                    }
                }
                prop_assert!(timing.deadline() <= expiry, "counts on more than the store has");
                if !requests.iter().any(|request| request.is_awaited) {
                    prop_assert!(!timing.is_anything_under_way());
                    let must_ask = renews || timing.is_provisional();
                    prop_assert!(timing.renew_at.is_some() || !must_ask, "never asks again");
                }
            }
        }
    }
}
