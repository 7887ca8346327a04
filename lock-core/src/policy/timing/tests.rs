//! Renewals and extensions that cross, come late or get no answer, and any history of them.

use super::*;
use proptest::{prelude::*, sample::Index};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_secs(3);

/// The store may have carried out the short request last, even if its answer came first.
#[test]
fn crossing_requests_count_as_the_shorter_and_are_repeated() {
    for renews in [true, false] {
        for short_first in [true, false] {
            let sent = Moment::now();
            let mut timing = Timing::leased(LONG, sent, LONG, renews, LONG, sent);
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
fn renewal_crossing_an_extension_counts_too() {
    let sent = Moment::now();
    let mut timing = Timing::leased(SHORT, sent, SHORT, true, LONG, sent);
    let (renewal, _) = timing.renewal_sent(sent);
    let long = timing.extension_sent(LONG, sent);
    // The patience is not that of the longer lease.
    assert!(timing.patience(sent) <= lease::renewal_patience(SHORT));
    timing.renewed(long, sent);
    assert!(timing.deadline() == lease::deadline(sent, SHORT));
    timing.renewed(renewal, sent);
    assert!(timing.deadline() == lease::deadline(sent, SHORT) && timing.is_due(sent));
}

/// An event of a lease.
#[derive(Clone, Debug)]
enum Step {
    Renew,
    Extend(Duration),
    /// The store carries a request out, perhaps long after its answer was awaited.
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

    /// Clause L3, for requests carried out at any time and in any order: the deadline never counts on more than the
    /// store has. And a lease that may be longer is asked for again.
    #[test]
    fn deadline_is_never_after_the_expiry(
        lease in lease(), stands in lease(), renews in any::<bool>(), pace in lease(), steps in steps()
    ) {
        let (mut now, stands) = (Moment::now(), stands.min(lease));
        let mut expiry = now + stands;
        let mut timing = Timing::leased(lease, now, stands, renews, pace, now);
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
                    requests.push(Sent::new(ticket, timing.lease(), Some(now + timing.patience(now))));
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

#[test]
fn answer_to_an_older_request_does_not_extend() {
    let sent = Moment::now();
    let later = sent + Duration::from_secs(1);
    let mut timing = Timing::leased(LONG, sent, LONG, true, LONG, sent);
    let (renewal, _) = timing.renewal_sent(sent);
    assert!(!timing.is_due(sent + LONG) && timing.next_event() == timing.deadline());
    timing.extension_sent(SHORT, later);
    timing.renewed(renewal, later);
    assert!(timing.deadline() == lease::deadline(later, SHORT) && timing.is_due(later));
}

/// Clause L10: such a lease is renewed as often as the shorter one, and a failed renewal is repeated as soon. No answer
/// is late by the shorter one, and without renewal it asks for none.
#[test]
fn pace_of_a_shorter_lease_is_kept_by_renewals_alone() {
    let sent = Moment::now();
    let (now, period) = (sent + SHORT, lease::renewal_period(SHORT));
    let mut timing = Timing::leased(LONG, sent, LONG, true, SHORT, now);
    assert!(!timing.is_provisional() && !timing.is_due(now) && timing.is_due(now + period));
    let (renewal, _) = timing.renewal_sent(now + period);
    timing.unanswered(renewal, now + period);
    assert!(timing.is_due(now + period + lease::renewal_retry(SHORT)));
    let timing = Timing::leased(LONG, sent, LONG, false, SHORT, now);
    assert!(timing.next_event() == timing.deadline());
}
