//! Until when a hold counts as held, and when its renewal is due.

use crate::contract::{Moment, lease};
use std::time::Duration;

/// Until when the store certainly keeps a lease (clause L3), and when to renew it (clause L4).
///
/// The request that is carried out last decides when a lease ends. Requests that are under way together may be carried
/// out in any order, and one that was never answered at any time. Suppose that X, sent at `sent`, has been answered.
/// Then the request that is carried out last, now or later, is carried out no sooner than X, and so after `sent`. It is
/// one of these:
///
/// - X, or a request that was under way at the same time as X: its lease is no shorter than X's `least`.
/// - One that was never answered: its lease is no shorter than the `doubt`.
/// - One that is sent after X was answered: sending it makes the deadline no later than its own.
///
/// A request that had been answered when X was sent is none of them, because it was carried out before X. So the grant
/// stands until `sent` + the shorter of `least` and `doubt`, and the deadline may move there. It never moves back: an
/// earlier proof still holds.
pub(crate) struct Timing {
    /// The lease that was last asked for.
    lease: Duration,
    renews: bool,
    /// Renewals come as often as those of a lease of this length, if the lease itself is longer.
    pace: Duration,
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

/// Which request is meant; a later one is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

impl Timing {
    /// For a lease that was requested at `sent`, and lasts for `stands` until it is renewed.
    ///
    /// A lease that was handed over, or came so late that its renewal is due, is always renewed.
    pub(crate) fn leased(
        lease: Duration,
        sent: Moment,
        stands: Duration,
        renews: bool,
        pace: Duration,
        now: Moment,
    ) -> Self {
        let due = sent + lease::renewal_period(stands);
        let provisional = now >= due || stands < lease;
        // An answer that took longer than the pace allows is not late yet.
        let at_pace = now + lease::renewal_period(pace);
        let renew_at = (renews || provisional).then_some(due.min(at_pace));
        let deadline = lease::deadline(sent, stands);
        Self {
            renews,
            pace,
            trusted: stands.min(lease),
            renew_at,
            provisional,
            ..Self::kept(lease, deadline)
        }
    }

    /// For a grant that a session keeps: it is not renewed here.
    pub(crate) fn kept(lease: Duration, deadline: Moment) -> Self {
        Self {
            lease,
            renews: false,
            pace: lease,
            deadline,
            trusted: lease,
            renew_at: None,
            under_way: Vec::new(),
            last: Ticket::default(),
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

    fn period(&self) -> Duration {
        lease::renewal_period(self.trusted.min(self.pace))
    }

    /// Whether a renewal is due, or so nearly due that it may share a batch.
    pub(crate) fn wants_renewal(&self, now: Moment) -> bool {
        self.is_due(now + lease::renewal_slack(self.trusted.min(self.pace)))
    }

    /// How long a renewal that is sent now may take before another one is: never longer than its own lease allows.
    ///
    /// A grant that was handed over stands only for a moment. An answer from a distant store would come too late by
    /// that measure, so half of the time left may pass. That is also so while a request for less is in doubt.
    pub(crate) fn patience(&self, now: Moment) -> Duration {
        let usual = lease::renewal_patience(self.trusted);
        if !self.provisional {
            return usual;
        }
        usual.max(self.deadline.since(now) / 2).min(lease::renewal_patience(self.lease))
    }

    /// The last request that was sent.
    pub(crate) fn last(&self) -> Ticket {
        self.last
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
        let soon = sent + self.period();
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
        // A late answer may prove less than a request that was sent after it.
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
            self.plan(sent + self.period());
        }
    }

    /// It is unknown whether the request was or will be carried out.
    pub(crate) fn unanswered(&mut self, ticket: Ticket, now: Moment) {
        let Some(Request { asked, .. }) = self.end(ticket) else { return };
        self.doubt = Some(self.doubt.map_or(asked, |shortest| shortest.min(asked)));
        let again = now + lease::renewal_retry(self.trusted.min(self.pace));
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

    /// Whether a request for a shorter lease is unanswered. The store may carry it out after a renewal that is sent now.
    fn is_crossed(&self) -> bool {
        self.under_way.iter().any(|one| one.asked < self.lease)
    }

    /// Plans the next renewal. Without renewal, only a provisional lease is asked for, once more.
    fn plan(&mut self, at: Moment) {
        let once_more = self.provisional && !self.is_crossed();
        self.renew_at = (self.renews || once_more).then_some(at);
    }
}

#[cfg(test)]
mod tests;
