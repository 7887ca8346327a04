//! Requests without an answer, which a server may still carry out.

use crate::timing::LONGEST_STRAGGLER;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tenure_core::{ClaimId, Grant, Moment, Renewal};

/// The requests to one server that were sent and not answered, for each claim.
///
/// The server may carry out such a request after the claim was withdrawn or released: `CLIENT PAUSE` or a network may
/// have delayed it. So ending a claim that is in doubt leaves a mark in the store. Nearly all claims need none.
///
/// One server is asked until it answers, so a request is in doubt from when its caller gives up: [`asking`](Self::asking).
/// Of several, a majority decides before the slow ones answer, and the claim may be withdrawn meanwhile. So there it is
/// in doubt from when it is sent: [`ask`](Self::ask).
#[derive(Clone, Default)]
pub(crate) struct Doubts(Arc<Mutex<Open>>);

/// In an outage every request stays open. They are ordered by age, so forgetting the oldest costs no search.
#[derive(Default)]
struct Open {
    /// And when the claim's last request was sent.
    requests: HashMap<ClaimId, (Moment, Vec<Request>)>,
    by_age: BTreeSet<(Moment, ClaimId)>,
}

#[derive(PartialEq, Eq)]
struct Request {
    sent: Moment,
    /// The lease that it asks for, if it is a renewal.
    renews_for: Option<Duration>,
}

/// A request on its way.
pub(crate) struct Asking<'a> {
    doubts: &'a Doubts,
    claim: ClaimId,
    open: bool,
}

/// A renewal of several leases on its way.
pub(crate) struct Renewing {
    sent: Moment,
    /// For each lease, whether a renewal for a shorter one was open when this was sent.
    crosses: Vec<bool>,
}

impl Doubts {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request for `claim` is about to be sent. Dropping the return value puts the claim in doubt, unless
    /// it was [settled](Asking::settle).
    pub(crate) fn asking(&self, claim: ClaimId) -> Asking<'_> {
        Asking { doubts: self, claim, open: true }
    }

    /// Puts the claim in doubt because a request is about to be sent.
    pub(crate) fn ask(&self, claim: ClaimId) {
        // A claim whose hold was lost is never released: its entry is forgotten after a while.
        let sent = Moment::now();
        self.open().touch(claim, sent).push(Request { sent, renews_for: None });
    }

    /// Notes that one of those requests was answered, or never sent.
    pub(crate) fn answered(&self, claim: ClaimId) {
        self.open().close(claim, |request| request.renews_for.is_none());
    }

    /// Whether the claim may still be granted by a request without an answer.
    pub(crate) fn contains(&self, claim: ClaimId) -> bool {
        let open = self.open();
        let requests = open.requests.get(&claim).map(|(_, requests)| requests);
        requests.is_some_and(|requests| requests.iter().any(|request| request.renews_for.is_none()))
    }

    /// The store now has a mark for it.
    pub(crate) fn remove(&self, claim: ClaimId) {
        self.open().remove(claim);
    }

    /// Notes that a renewal is about to be sent to one of several servers.
    ///
    /// That server may be asked again on another connection, and carry out the two requests in any order. So while a
    /// renewal for a shorter lease is open, its yes to a longer one proves nothing.
    pub(crate) fn renew(&self, grants: &[Grant]) -> Renewing {
        let (mut open, sent) = (self.open(), Moment::now());
        let ask = |grant: &Grant| {
            let requests = open.touch(grant.claim, sent);
            let is_shorter = |lease: Duration| lease < grant.lease;
            let crosses = requests.iter().any(|request| request.renews_for.is_some_and(is_shorter));
            requests.push(Request { sent, renews_for: Some(grant.lease) });
            crosses
        };
        Renewing { sent, crosses: grants.iter().map(ask).collect() }
    }

    /// Notes the answers to a renewal, and returns the renewals that they prove.
    pub(crate) fn renewed(
        &self,
        grants: &[Grant],
        Renewing { sent, crosses }: &Renewing,
        mut answers: Vec<Renewal>,
    ) -> Vec<Renewal> {
        let mut open = self.open();
        for ((grant, answer), crosses) in grants.iter().zip(&mut answers).zip(crosses) {
            if *answer == Renewal::Unanswered {
                continue;
            }
            let this = Request { sent: *sent, renews_for: Some(grant.lease) };
            open.close(grant.claim, |request| *request == this);
            if *crosses && *answer == Renewal::Renewed {
                *answer = Renewal::Unanswered;
            }
        }
        answers
    }
}

impl Open {
    /// The claim's open requests, to add one that is sent now. Forgets those that are too old to arrive.
    fn touch(&mut self, claim: ClaimId, now: Moment) -> &mut Vec<Request> {
        let is_old = |sent: Moment| now.since(sent) >= LONGEST_STRAGGLER;
        while let Some((last, forgotten)) = self.by_age.first().copied()
            && is_old(last)
        {
            self.remove(forgotten);
        }
        let (last, requests) = self.requests.entry(claim).or_insert_with(|| (now, Vec::new()));
        self.by_age.remove(&(*last, claim));
        *last = now;
        self.by_age.insert((now, claim));
        requests.retain(|request| !is_old(request.sent));
        requests
    }

    /// Removes one such request.
    fn close(&mut self, claim: ClaimId, is_it: impl Fn(&Request) -> bool) {
        let Some((_, requests)) = self.requests.get_mut(&claim) else { return };
        if let Some(at) = requests.iter().position(is_it) {
            requests.remove(at);
        }
        if requests.is_empty() {
            self.remove(claim);
        }
    }

    fn remove(&mut self, claim: ClaimId) {
        if let Some((last, _)) = self.requests.remove(&claim) {
            self.by_age.remove(&(last, claim));
        }
    }
}

impl Asking<'_> {
    /// There was an answer, or nothing was sent.
    pub(crate) fn settle(mut self) {
        self.open = false;
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.open {
            self.doubts.ask(self.claim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{LossCause, Mode, Name, Standing, Token};
    use tokio::time::sleep;

    #[test]
    fn claim_is_in_doubt_until_its_mark_stands() {
        let (doubts, dropped, answered) = (Doubts::default(), ClaimId::new(), ClaimId::new());
        drop(doubts.asking(dropped));
        doubts.asking(answered).settle();
        assert!(doubts.contains(dropped) && !doubts.contains(answered));
        doubts.remove(dropped);
        assert!(!doubts.contains(dropped));
    }

    #[test]
    fn claim_is_in_doubt_until_every_request_was_answered() {
        let (doubts, claim, other) = (Doubts::default(), ClaimId::new(), ClaimId::new());
        doubts.ask(claim);
        doubts.ask(claim);
        doubts.renew(&grant(claim, 1));
        doubts.answered(claim);
        assert!(doubts.contains(claim) && !doubts.contains(other));
        for _ in 0..2 {
            doubts.answered(claim);
            assert!(!doubts.contains(claim));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn old_requests_are_forgotten() {
        let (doubts, [old, touched, renewed]) = (Doubts::default(), [(); 3].map(|()| ClaimId::new()));
        for claim in [old, touched, renewed] {
            doubts.ask(claim);
        }
        sleep(LONGEST_STRAGGLER / 2).await;
        doubts.ask(touched);
        doubts.renew(&grant(renewed, 1));
        sleep(LONGEST_STRAGGLER / 2).await;
        doubts.renew(&grant(renewed, 1));
        assert!(!doubts.contains(old) && doubts.contains(touched));
        assert!(!doubts.contains(renewed), "only renewals may still come");
        doubts.remove(touched);
        let open = doubts.open();
        assert_eq!((open.requests.len(), open.by_age.len()), (1, 1));
    }

    fn grant(claim: ClaimId, minutes: u64) -> [Grant; 1] {
        let (name, lease) = (Name::new("a").unwrap(), Duration::from_mins(minutes));
        let standing = Standing::Lease { sent: Moment::now(), stands: lease };
        let (mode, token) = (Mode::Exclusive, Token::MIN);
        [Grant { claim, name, mode, token, reserved: 0, lease, standing, epoch: None }]
    }

    #[tokio::test(start_paused = true)]
    async fn longer_renewal_counts_once_no_shorter_one_can_come() {
        let (doubts, claim) = (Doubts::default(), ClaimId::new());
        let (short, long, other) = (grant(claim, 1), grant(claim, 2), grant(ClaimId::new(), 2));
        let says = |grants: &[Grant], answer| doubts.renewed(grants, &doubts.renew(grants), vec![answer]);
        let first = doubts.renew(&short);
        assert_eq!(says(&short, Renewal::Renewed), [Renewal::Renewed], "no shorter one");
        assert_eq!(says(&other, Renewal::Renewed), [Renewal::Renewed], "another claim");
        assert_eq!(says(&long, Renewal::Renewed), [Renewal::Unanswered]);
        let lost = Renewal::Lost(LossCause::Expired);
        assert_eq!(says(&long, lost), [lost], "a shorter one brings nothing back");
        assert_eq!(doubts.renewed(&short, &first, vec![Renewal::Unanswered]), [Renewal::Unanswered]);
        assert_eq!(says(&long, Renewal::Renewed), [Renewal::Unanswered], "it may still come");
        doubts.renewed(&short, &first, vec![Renewal::Renewed]);
        assert_eq!(says(&long, Renewal::Renewed), [Renewal::Renewed]);
        assert!(doubts.open().requests.is_empty());
        doubts.renew(&short);
        sleep(LONGEST_STRAGGLER * 2).await;
        assert_eq!(says(&long, Renewal::Renewed), [Renewal::Renewed], "too old to come");
    }
}
