//! How a guard goes: with the last one the hold ends, and the release is repeated until the store answers.

use super::{
    chore,
    give_way::{give_way, oldest_since},
    hold::Hold,
    holding::{Departure, Holding},
    pauses::Pauses,
    queue::Seat,
    succession::Estate,
};
use crate::{
    contract::{Error, Grant, LossCause, Mode, Moment, Operation, Standing, StoreError, lease},
    store::{Release, Renewal},
};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tracing::{Instrument, Span};

impl Hold {
    /// Removes a guard. Returns the release to be done after the last one; `None` while the owner has others, or if a
    /// waiter of this client has the grant now.
    ///
    /// # Errors
    ///
    /// Why it was lost.
    pub(super) fn leave(&self) -> Result<Option<Releasing>, LossCause> {
        let Self { client, holding } = self;
        let departure = holding.leave();
        if matches!(departure, Departure::Release { .. } | Departure::Lost(_)) {
            client.renewals.remove(holding.id);
            if holding.owner.is_some() {
                client.owned.remove(holding);
            }
        }
        match departure {
            Departure::Others(None) => Ok(None),
            Departure::Others(Some(cause)) => Err(cause),
            Departure::Release { seat, until, span, is_unchanged } => {
                let seat = match seat {
                    Some(seat) if is_unchanged => match self.hand_on(seat, until, &span) {
                        Ok(()) => return Ok(None),
                        Err(kept) => Some(kept),
                    },
                    seat => seat,
                };
                Ok(Some(Releasing::new(self.hold(), seat, until, span)))
            }
            Departure::Lost(cause) => {
                // The store may still keep the grant, which is then released in the background.
                if matches!(cause, LossCause::Expired | LossCause::MaxHold) {
                    let until = Moment::now() + holding.grant.lease;
                    drop(Releasing::new(self.hold(), None, until, Span::none()));
                }
                Err(cause)
            }
        }
    }

    /// Hands the grant on to the next waiter of this client. Returns the seat if that one may not have it.
    fn hand_on(&self, seat: Seat, until: Moment, span: &Span) -> Result<(), Seat> {
        let Self { client, holding } = self;
        let Some((grant, terms)) = holding.bequest() else { return Err(seat) };
        if client.closing.is_cancelled() || !seat.is_awaited(terms) {
            return Err(seat);
        }
        let (hold, ended) = (self.hold(), span.clone());
        // For a waiter that goes before it has the grant, if no other may have it. Records nothing, because the turn
        // passes on only afterwards.
        let release = move || drop(Releasing::new(hold, None, until, ended).go_on());
        seat.leave_to_next(Estate::new(grant, terms.clone(), release));
        // Not before, because a log may block (clause F8).
        tracing::debug!(parent: span, lock.name = %holding.grant.name, token = %holding.token(), lock.store = %client.store.name, "lock handed to the next waiter of this client");
        holding.record_release();
        Ok(())
    }
}

/// A release on its way. If it is dropped unfinished, it goes on in the background.
pub(super) struct Releasing(Option<Arc<Unfinished>>);

struct Unfinished {
    hold: Hold,
    /// Its turn passes to the next waiter of this client when the store has answered.
    seat: Mutex<Option<Seat>>,
    /// When the last guard went: no request was sent before.
    began: Moment,
    /// Until when the lease lasts at least.
    until: Moment,
    /// How often the store was asked. Each request may have been carried out although its reply was lost.
    asked: AtomicUsize,
    /// Whether the store has said how it ended. When a runtime falls silent, the background asks too, and both are
    /// answered; only the first answer counts.
    answered: AtomicBool,
    /// That of the hold, which ends with the release.
    span: Span,
}

impl Releasing {
    fn new(hold: Hold, seat: Option<Seat>, until: Moment, span: Span) -> Self {
        let (seat, asked, answered) = (Mutex::new(seat), AtomicUsize::new(0), AtomicBool::new(false));
        let began = Moment::now();
        Self(Some(Arc::new(Unfinished { hold, seat, began, until, asked, answered, span })))
    }

    /// Tells the store, and waits for its answer.
    ///
    /// # Cancel safety
    ///
    /// When dropped, the release goes on in the background.
    pub(super) async fn finish(mut self) -> Result<(), Error> {
        let Some(unfinished) = &self.0 else { return Ok(()) };
        let holding = Arc::clone(&unfinished.hold.holding);
        let outcome = unfinished.tell_store().instrument(unfinished.span.clone()).await;
        self.0 = None;
        holding.record_release();
        outcome
    }

    /// Leaves the release, if it is unfinished, to the background. Returns the hold that it ends.
    fn go_on(&mut self) -> Option<Arc<Holding>> {
        let unfinished = self.0.take()?;
        let Hold { client, holding } = unfinished.hold.hold();
        let patience = lease::renewal_patience(holding.grant.lease);
        chore::leave(&client, &holding.callers, patience, move || {
            let unfinished = Arc::clone(&unfinished);
            async move {
                if let Err(error) = unfinished.tell_store().instrument(unfinished.span.clone()).await {
                    let name = unfinished.hold.name();
                    tracing::debug!(lock.name = %name, %error, "a release in the background failed");
                }
                drop(unfinished.take_seat());
            }
        });
        Some(holding)
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some(holding) = self.go_on() {
            holding.record_release();
        }
    }
}

impl Unfinished {
    fn is_asked_again(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > 1
    }

    fn take_seat(&self) -> Option<Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn tell_store(&self) -> Result<(), Error> {
        let (store, holding) = (&self.hold.client.store, &self.hold.holding);
        if holding.stays_for().is_some() {
            // A renewal that is carried out after the last lease outlasts it, and would hold the name without a holder.
            // But the last lease must be asked for before this one ends.
            let patience = holding.patience(Moment::now()).min(self.until.left() / 2);
            let _ = tokio::time::timeout(patience, holding.settled()).await;
        }
        let grant = holding.grant_now();
        let mut pauses = Pauses::new();
        loop {
            let request = self.give_up(&grant);
            self.asked.fetch_add(1, Ordering::Relaxed);
            let (sent, patience) = (Moment::now(), grant.patience(self.until));
            let error = match tokio::time::timeout(patience, request).await {
                Ok(Ok(Release::Released { awaited })) => {
                    self.answered.store(true, Ordering::Relaxed);
                    tracing::debug!(lock.name = %grant.name, token = %self.hold.holding.token(), lock.store = %store.name, "lock released");
                    if awaited {
                        self.let_others_in(Moment::now().since(sent));
                    }
                    return Ok(());
                }
                Ok(Ok(Release::Lost(cause))) => {
                    let Some(cause) = self.lost_because(cause).await else {
                        self.answered.store(true, Ordering::Relaxed);
                        return Ok(());
                    };
                    if self.answered.swap(true, Ordering::Relaxed) {
                        return Ok(());
                    }
                    // A loss that was noticed before has been counted.
                    if self.hold.loss().is_none() {
                        holding.measured.lost_after_all(cause);
                    }
                    return Err(store.lost(&grant.name, cause));
                }
                Ok(Err(error)) => error,
                Err(_) => StoreError::unavailable("no answer to the release"),
            };
            if !error.is_unavailable() || self.until.has_passed() {
                return Err(store.failed(Operation::Releasing(grant.name.clone()), error));
            }
            // After a loss, the release only tells the store sooner than the lease does.
            if self.hold.loss().is_none() {
                tracing::warn!(lock.name = %grant.name, lock.store = %store.name, %error, "the lock could not be released yet; trying again");
            }
            pauses.pause().await;
        }
    }

    /// Why the grant was lost, if it was, after a request found nothing to release and gave this cause: another request
    /// may have been carried out, whichever was sent first.
    async fn lost_because(&self, cause: LossCause) -> Option<LossCause> {
        if !self.is_asked_again() || self.until.has_passed() {
            return Some(cause);
        }
        let was_lost = match (&self.hold.holding.grant.standing, cause) {
            // The store remembers a forced release only for the name's holders, and a lease that is released leaves its
            // token behind.
            (_, LossCause::Forced) | (Standing::Lease { .. }, LossCause::Forgotten) => true,
            // Its end took the grant along, unless the release was carried out just before.
            (Standing::Session(liveness), _) => return liveness.loss(),
            (Standing::Lease { .. }, LossCause::TakenOver) => self.was_overtaken().await,
            (Standing::Lease { .. }, LossCause::Expired | LossCause::SessionEnded | LossCause::MaxHold) => {
                false
            }
        };
        was_lost.then_some(cause)
    }

    /// Whether others that keep the grant out got in before its release began. If the store does not tell, they count
    /// as having come after it, as they nearly always do.
    async fn was_overtaken(&self) -> bool {
        let (store, holding) = (&self.hold.client.store, &self.hold.holding);
        let patience = holding.grant.patience(self.until);
        let answer = tokio::time::timeout(patience, store.holders(&holding.grant.name)).await;
        let Ok(Ok(holders)) = answer else { return false };
        let oldest = oldest_since(self.began);
        let before = holders.iter().filter(|holder| holder.age.is_some_and(|age| age > oldest));
        // A reader that was there beside it may have become a writer since.
        let mode = holding.mode();
        let others = before.map(|holder| holder.mode);
        !mode.admits(others.filter(|other| mode != Mode::Shared || *other != Mode::Exclusive))
    }

    /// Releases the grant, or leaves it to a last lease if the name must stay held for longer.
    ///
    /// A renewal that is still on its way, because it was not answered in time, carries at least that lease. So it
    /// cannot free the name too soon, but it can keep it for one more lease.
    async fn give_up(&self, grant: &Grant) -> Result<Release, StoreError> {
        let (store, holding) = (&self.hold.client.store, &self.hold.holding);
        let Some(lease) = holding.stays_for() else { return store.release(grant).await };
        let answers = store.renew(&[Grant { lease, ..grant.clone() }]).await?;
        match answers.first().copied().unwrap_or(Renewal::Unanswered) {
            Renewal::Renewed => Ok(Release::Released { awaited: false }),
            Renewal::Lost(cause) => Ok(Release::Lost(cause)),
            Renewal::Unanswered => Err(StoreError::unavailable("the store did not answer for this lock")),
        }
    }

    /// Another client waits and must ask again to get in. So this client does not contend for the name again at once: a
    /// loop that relocks would otherwise keep the other out for ever. `trip` is how long this release took.
    fn let_others_in(&self, trip: Duration) {
        let Some(mut seat) = self.take_seat() else { return };
        if !seat.try_turn() {
            // Another task of this client already contends, and polls like other clients.
            return;
        }
        let Hold { client, holding } = self.hold.hold();
        let (background, tasks, began) = (holding.background(), client.tasks.clone(), self.began);
        tasks.spawn_on(
            async move {
                tokio::select! {
                    biased;
                    () = client.closing.cancelled() => {}
                    () = give_way(&client.store, &holding.grant.name, seat, began, trip) => {}
                }
            },
            &background,
        );
    }
}

#[cfg(test)]
mod tests;
