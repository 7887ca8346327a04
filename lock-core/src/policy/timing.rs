//! Until when a hold counts as held, and when its renewal is due.

use crate::{Moment, lease};
use std::time::Duration;

/// Until when the store certainly keeps a lease (clause L3), and when to renew it (clause L4).
///
/// Requests for different leases may be carried out in any order, and a request that was never answered may still be
/// carried out. So the holder relies only on the shortest of them.
pub(crate) struct Timing {
    lease: Duration,
    renews: bool,
    deadline: Moment,
    /// When the next renewal is due; `None` while one is on its way, or if there is none.
    renew_at: Option<Moment>,
    /// The leases of extensions on their way, which may be carried out in any order.
    extending: Vec<Duration>,
    /// The shortest lease among requests that were never answered: they may still be carried out at any time.
    doubt: Option<Duration>,
    /// How long the store keeps a grant that was handed over, or came late, and has not been renewed yet.
    provisional: Option<Duration>,
}

impl Timing {
    /// For a lease that was requested at `sent`, and lasts for `stands` until it is renewed.
    ///
    /// A lease that was handed over, or came so late that its renewal is due, is always renewed.
    pub(crate) fn leased(lease: Duration, sent: Moment, stands: Duration, renews: bool, now: Moment) -> Self {
        let due = sent + lease::renewal_period(stands);
        let provisional = (now >= due || stands < lease).then_some(stands);
        let renew_at = (renews || provisional.is_some()).then_some(due);
        let (deadline, extending) = (lease::deadline(sent, stands), Vec::new());
        Self { lease, renews, deadline, renew_at, extending, doubt: None, provisional }
    }

    /// For a grant that a session keeps: it is not renewed here.
    pub(crate) fn kept(lease: Duration, deadline: Moment) -> Self {
        let extending = Vec::new();
        Self { lease, renews: false, deadline, renew_at: None, extending, doubt: None, provisional: None }
    }

    /// The lease that was last asked for.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Whether the store keeps the grant for less than its lease until it is renewed.
    pub(crate) fn is_provisional(&self) -> bool {
        self.provisional.is_some()
    }

    /// The lease that the store keeps at least, whatever happens to unanswered requests.
    fn trusted(&self) -> Duration {
        let least = [self.doubt, self.provisional].into_iter().flatten().fold(self.lease, Duration::min);
        self.extending.iter().copied().fold(least, Duration::min)
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
        self.is_due(now + lease::renewal_slack(self.trusted()))
    }

    /// How long a renewal may take before another one is sent.
    pub(crate) fn patience(&self) -> Duration {
        lease::renewal_patience(self.trusted())
    }

    /// Returns when it was due.
    pub(crate) fn renewal_sent(&mut self) -> Option<Moment> {
        self.renew_at.take()
    }

    /// Another lease was requested. Until there is an answer, only the shorter of the two counts.
    pub(crate) fn extension_sent(&mut self, lease: Duration, sent: Moment) {
        self.lease = lease;
        self.extending.push(lease);
        self.deadline = self.deadline.min(lease::deadline(sent, lease));
    }

    /// The wait for an extension to this lease is over. The next call says whether it was answered.
    pub(crate) fn extension_ended(&mut self, lease: Duration) {
        if let Some(at) = self.extending.iter().position(|one| *one == lease) {
            self.extending.swap_remove(at);
        }
    }

    /// The request for the lease `asked`, sent at `sent`, was carried out.
    pub(crate) fn renewed(&mut self, asked: Duration, sent: Moment, now: Moment) {
        if self.lease == asked {
            self.provisional = None;
            self.deadline = lease::deadline(sent, self.trusted());
            self.renew_at(sent + lease::renewal_period(self.trusted()));
        } else {
            self.deadline = self.deadline.min(lease::deadline(sent, asked));
            self.renew_at(now);
        }
    }

    /// Nobody knows whether the request for the lease `asked`, sent at `sent`, was or will be carried out.
    pub(crate) fn unanswered(&mut self, asked: Duration, sent: Moment, now: Moment) {
        self.doubt = Some(self.doubt.map_or(asked, |shortest| shortest.min(asked)));
        self.deadline = self.deadline.min(lease::deadline(sent, asked));
        self.renew_at(now + lease::renewal_retry(self.trusted()));
    }

    fn renew_at(&mut self, at: Moment) {
        self.renew_at = (self.renews || self.is_provisional()).then_some(at);
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
        timing.extension_sent(SHORT, sent);
        timing.extension_ended(SHORT);
        timing.unanswered(SHORT, sent, sent);
        timing.extension_sent(LONG, sent);
        timing.extension_ended(LONG);
        timing.renewed(LONG, sent, sent);
        // The short request may be carried out after the long one.
        assert!(timing.deadline() == lease::deadline(sent, SHORT) && timing.lease() == LONG);
        assert!(timing.is_due(sent + lease::renewal_period(SHORT)));
    }

    #[test]
    fn an_answer_to_an_older_request_adds_nothing() {
        let sent = Moment::now();
        let later = sent + Duration::from_secs(1);
        let mut timing = Timing::leased(LONG, sent, LONG, true, sent);
        timing.renewal_sent();
        assert!(!timing.is_due(sent + LONG) && timing.next_event() == timing.deadline());
        timing.extension_sent(SHORT, later);
        timing.renewed(LONG, sent, later);
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
            timing.renewed(LONG, late, late);
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

    struct Request {
        asked: Duration,
        sent: Moment,
        /// Until when its answer is awaited: that to an extension as long as the program likes.
        until: Option<Moment>,
        is_carried_out: bool,
        is_awaited: bool,
    }

    impl Request {
        fn new(asked: Duration, sent: Moment, until: Option<Moment>) -> Self {
            Self { asked, sent, until, is_carried_out: false, is_awaited: true }
        }

        fn ended(&mut self, timing: &mut Timing) {
            self.is_awaited = false;
            if self.until.is_none() {
                timing.extension_ended(self.asked);
            }
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

    fn pick(requests: &mut [Request], at: Index, which: impl Fn(&Request) -> bool) -> Option<&mut Request> {
        let mut those: Vec<_> = requests.iter_mut().filter(|request| which(request)).collect();
        (!those.is_empty()).then(|| those.swap_remove(at.index(those.len())))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// Clause L3, whatever is carried out, when, and in which order.
        #[test]
        fn the_deadline_is_never_after_the_expiry(lease in lease(), stands in lease(), steps in steps()) {
            let (mut now, stands) = (Moment::now(), stands.min(lease));
            let mut expiry = now + stands;
            let mut timing = Timing::leased(lease, now, stands, true, now);
            let mut requests: Vec<Request> = Vec::new();
            for (wait, step) in steps {
                let end = now + Duration::from_millis(wait);
                loop {
                    let given_up = requests.iter_mut().filter(|request| request.is_awaited);
                    let given_up = given_up.filter(|request| request.until.is_some_and(|until| until <= end));
                    let given_up = given_up.min_by_key(|request| request.until);
                    let next = given_up.as_ref().and_then(|request| request.until).unwrap_or(end);
                    prop_assert!(timing.deadline().min(next) <= expiry, "held after its expiry");
                    now = next;
                    if timing.deadline() <= now {
                        return Ok(());
                    }
                    let Some(request) = given_up else { break };
                    request.is_awaited = false;
                    timing.unanswered(request.asked, request.sent, now);
                }
                match step {
                    Step::Renew => {
                        timing.renewal_sent();
                        requests.push(Request::new(timing.lease(), now, Some(now + timing.patience())));
                    }
                    Step::Extend(lease) => {
                        timing.extension_sent(lease, now);
                        requests.push(Request::new(lease, now, None));
                    }
                    Step::CarryOut(at) => {
                        if let Some(request) = pick(&mut requests, at, |one| !one.is_carried_out) {
                            request.is_carried_out = true;
                            expiry = now + request.asked;
                        }
                    }
                    Step::Answer(at) => {
                        let answers = |one: &Request| one.is_carried_out && one.is_awaited;
                        if let Some(request) = pick(&mut requests, at, answers) {
                            request.ended(&mut timing);
                            timing.renewed(request.asked, request.sent, now);
                        }
                    }
                    Step::GiveUp(at) => {
                        if let Some(request) = pick(&mut requests, at, |one| one.is_awaited) {
                            request.ended(&mut timing);
                            timing.unanswered(request.asked, request.sent, now);
                        }
                    }
                }
                prop_assert!(timing.next_event() <= timing.deadline());
            }
        }
    }
}
