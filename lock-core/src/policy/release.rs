//! What happens when a guard goes: with the last one the hold ends, and the store is told until it answers.

use super::{chore, hold::Hold, holding::Departure, pauses::Pauses, queue::Seat, succession::Estate};
use crate::{
    Capabilities, Error, Grant, LossCause, Moment, Operation, Release, Renewal, Standing, StoreError, Wakeup,
    lease,
};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tracing::{Instrument, Span};

/// How long a client takes to ask again after a hint: one hop there, one back.
const TOLD_AND_ASKED: Duration = Duration::from_millis(20);

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
                Ok(Some(Releasing::new(self.clone(), seat, until, span)))
            }
            Departure::Lost(cause) => {
                // The store may still keep the grant, which is then released in the background.
                if matches!(cause, LossCause::Expired | LossCause::MaxHold) {
                    let until = Moment::now() + holding.grant.lease;
                    drop(Releasing::new(self.clone(), None, until, Span::none()));
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
        let (hold, ended) = (self.clone(), span.clone());
        // If that waiter goes before it has the grant, and nobody else may have it.
        let release = move || drop(Releasing::new(hold, None, until, ended));
        seat.leave_to_next(Estate::new(grant, terms.clone(), release));
        // Not before, because a log may block (clause F8).
        tracing::debug!(parent: span, lock.name = %holding.grant.name, token = %holding.token(), lock.store = %client.store.name, "lock handed on");
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
        let outcome = unfinished.tell_store().instrument(unfinished.span.clone()).await;
        self.0 = None;
        outcome
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some(unfinished) = self.0.take() {
            let Hold { client, holding } = unfinished.hold.clone();
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
            // A renewal that is carried out after the last lease outlasts it, and would hold the name for nobody. But
            // the last lease must be asked for before this one ends.
            let patience = holding.patience().min(self.until.left() / 2);
            let _ = tokio::time::timeout(patience, holding.settled()).await;
        }
        let grant = holding.grant_now();
        let mut pauses = Pauses::new();
        loop {
            let request = self.give_up(&grant);
            self.asked.fetch_add(1, Ordering::Relaxed);
            let patience = lease::farewell_patience(grant.lease, self.until);
            let error = match tokio::time::timeout(patience, request).await {
                Ok(Ok(Release::Released { awaited })) => {
                    self.answered.store(true, Ordering::Relaxed);
                    tracing::debug!(lock.name = %grant.name, token = %self.hold.holding.token(), lock.store = %store.name, "lock released");
                    if awaited {
                        self.let_others_in();
                    }
                    return Ok(());
                }
                Ok(Ok(Release::Lost(cause))) => {
                    if !self.was_lost(cause).await || self.answered.swap(true, Ordering::Relaxed) {
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
            tracing::warn!(lock.name = %grant.name, lock.store = %store.name, %error, "the release failed; trying again");
            pauses.pause().await;
        }
    }

    /// Whether the grant was lost, if a request found nothing to release: another one may have been carried out,
    /// whichever was sent first.
    async fn was_lost(&self, cause: LossCause) -> bool {
        if !self.is_asked_again() || self.until.has_passed() {
            return true;
        }
        let leased = matches!(self.hold.holding.grant.standing, Standing::Lease { .. });
        match cause {
            // The store remembers it only for those that held the name.
            LossCause::Forced => true,
            // What is released leaves its token behind, except in a session.
            LossCause::Forgotten => leased,
            LossCause::TakenOver => leased && self.was_overtaken().await,
            LossCause::Expired | LossCause::SessionEnded | LossCause::MaxHold => false,
        }
    }

    /// Whether others that keep the grant out got in before its release began. If the store does not tell, they count
    /// as having come after it, as they nearly always do.
    async fn was_overtaken(&self) -> bool {
        let (store, holding) = (&self.hold.client.store, &self.hold.holding);
        let patience = lease::farewell_patience(holding.grant.lease, self.until);
        let answer = tokio::time::timeout(patience, store.holders(&holding.grant.name)).await;
        let Ok(Ok(holders)) = answer else { return false };
        let passed = Moment::now().since(self.began);
        // Whoever came after the release began is no older than that, even by a faster clock.
        let oldest = passed + lease::drift_allowance(passed);
        let before = holders.iter().filter(|holder| holder.age.is_some_and(|age| age > oldest));
        !holding.mode().admits(before.map(|holder| holder.mode))
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

    /// Another client waits and must ask again to get in. So this client pauses for one round of polling before it
    /// contends for the name again: a loop that relocks would otherwise keep the other out for ever.
    fn let_others_in(&self) {
        let Some(mut seat) = self.take_seat() else { return };
        if !seat.try_turn() {
            // Another task of this client already contends, and polls like everybody.
            return;
        }
        let Hold { client, holding } = self.hold.clone();
        let Capabilities { wakeup, ask_again, .. } = client.store.capabilities();
        let one_round = if wakeup == Wakeup::Poll { ask_again } else { ask_again.min(TOLD_AND_ASKED) };
        let (closing, tasks) = (client.closing.clone(), client.tasks.clone());
        tasks.spawn_on(
            async move {
                tokio::select! {
                    () = tokio::time::sleep(one_round) => {}
                    () = closing.cancelled() => {}
                }
                drop(seat);
                drop(client);
            },
            &holding.background(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backend, Capability, Holder, Lock, Locks, Memory, Name, async_trait, forward_backend};
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::time::{Instant, timeout};

    const HOUR: Duration = Duration::from_hours(1);

    /// A store without a queue, in which another client always waits.
    #[derive(Clone)]
    struct Awaited {
        memory: Memory,
        wakeup: Wakeup,
        closed: Arc<AtomicBool>,
    }

    impl Awaited {
        fn new(wakeup: Wakeup) -> Self {
            Self { memory: Memory::new(), wakeup, closed: Arc::default() }
        }
    }

    #[async_trait]
    impl Backend for Awaited {
        forward_backend!(self => self.memory, except capabilities, acquire, release, close);

        fn capabilities(&self) -> Capabilities {
            Capabilities { wakeup: self.wakeup, ask_again: HOUR, permits: true, ..Capabilities::POLLED }
        }

        async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
            self.memory.release(grant).await.map(|_| Release::Released { awaited: true })
        }

        async fn close(&self) {
            self.closed.store(true, Ordering::SeqCst);
        }
    }

    /// How long a client that relocks at once is kept out.
    async fn kept_out(wakeup: Wakeup, lock: impl Fn(&Locks) -> Lock) -> Duration {
        let locks = Locks::new(Awaited::new(wakeup));
        lock(&locks).acquire().await.unwrap().release().await.unwrap();
        let released = Instant::now();
        drop(lock(&locks).acquire().await.unwrap());
        released.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_relocking_client_gives_others_one_round() {
        assert_eq!(kept_out(Wakeup::Poll, |locks| locks.lock("a")).await, HOUR);
        assert_eq!(kept_out(Wakeup::Push, |locks| locks.lock("a")).await, TOLD_AND_ASKED);
        assert_eq!(kept_out(Wakeup::Poll, |locks| locks.semaphore("a", 2).permits(2)).await, HOUR);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_are_let_in_first_do_not_keep_the_store_open() {
        let store = Awaited::new(Wakeup::Poll);
        let locks = Locks::new(store.clone());
        locks.lock("a").acquire().await.unwrap().release().await.unwrap();
        assert!(locks.lock("a").try_acquire().await.unwrap().is_none(), "the other was not let in first");
        timeout(Duration::from_secs(1), locks.close()).await.expect("close waited for the round");
        assert!(store.closed.load(Ordering::SeqCst), "the store was not closed");
    }

    /// A store whose first answer to a release is lost, and where the lock was released by force before it came.
    struct PutOut {
        memory: Memory,
        asked: AtomicBool,
    }

    #[async_trait]
    impl Backend for PutOut {
        forward_backend!(self => self.memory, except release);

        async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
            if self.asked.swap(true, Ordering::SeqCst) {
                return self.memory.release(grant).await;
            }
            self.memory.force_release(&grant.name).await?;
            Err(StoreError::unavailable("the answer was lost"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_forced_release_never_looks_like_ones_own() {
        let locks = Locks::new(PutOut { memory: Memory::new(), asked: AtomicBool::new(false) });
        let released = locks.lock("a").acquire().await.unwrap().release().await;
        assert!(matches!(released, Err(Error::Lost { cause: LossCause::Forced, .. })), "{released:?}");
    }

    /// A store whose first answer to a release is lost. What it knows after that is in `after`: it may have restarted.
    struct Interrupted {
        before: Memory,
        after: Memory,
        lists: bool,
        asked: AtomicBool,
    }

    #[async_trait]
    impl Backend for Interrupted {
        forward_backend!(self => self.before, except release, holders);

        async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
            if self.asked.swap(true, Ordering::SeqCst) {
                return self.after.release(grant).await;
            }
            self.before.release(grant).await?;
            Err(StoreError::unavailable("the answer was lost"))
        }

        async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
            if self.lists {
                self.after.holders(name).await
            } else {
                Err(StoreError::unsupported(Capability::Listing))
            }
        }
    }

    fn interrupted(before: &Memory, after: &Memory, lists: bool) -> Locks {
        let (before, after) = (before.clone(), after.clone());
        Locks::new(Interrupted { before, after, lists, asked: AtomicBool::new(false) })
    }

    /// The connection broke when the server restarted empty, so the release was sent twice.
    #[tokio::test(start_paused = true)]
    async fn what_the_store_forgot_is_not_released() {
        let (memory, empty, second) = (Memory::new(), Memory::new(), Duration::from_secs(1));
        let guard = interrupted(&memory, &empty, true).lock("a").acquire().await.unwrap();
        let released = guard.release().await;
        assert!(matches!(released, Err(Error::Lost { cause: LossCause::Forgotten, .. })), "{released:?}");

        let guard = interrupted(&memory, &empty, true).lock("a").acquire().await.unwrap();
        tokio::time::sleep(second).await;
        let other = Locks::new(empty).lock("a").acquire().await.unwrap();
        assert!(other.token() > guard.token());
        tokio::time::sleep(second).await;
        let released = guard.release().await;
        assert!(matches!(released, Err(Error::Lost { cause: LossCause::TakenOver, .. })), "{released:?}");
        assert!(other.is_held());
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_next_was_granted_at_once_is_released() {
        for lists in [true, false] {
            let memory = Memory::new();
            let guard = interrupted(&memory, &memory, lists).lock("a").acquire().await.unwrap();
            let next = Locks::new(memory.clone()).lock("a");
            let next = tokio::spawn(async move { next.acquire().await });
            // Until it waits.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let name = guard.name().clone();
            guard.release().await.unwrap();
            let [holder] = &memory.holders(&name).await.unwrap()[..] else { panic!("the next holds it") };
            let age = holder.age.unwrap();
            assert!(age > Duration::from_millis(10), "it came only after the second request: {age:?}");
            assert!(next.await.unwrap().unwrap().is_held());
        }
    }

    /// A store whose first answers to renewals are lost, before or after the request was carried out.
    struct Mute {
        memory: Memory,
        lost: Mutex<Vec<bool>>,
    }

    #[async_trait]
    impl Backend for Mute {
        forward_backend!(self => self.memory, except renew);

        async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
            let lost = self.lost.lock().unwrap().pop();
            if lost != Some(false) {
                let answers = self.memory.renew(grants).await?;
                if lost.is_none() {
                    return Ok(answers);
                }
            }
            Err(StoreError::unavailable("the answer was lost"))
        }
    }

    /// How long a lock that must stay held for an hour keeps others out, if it is released after `held`.
    async fn stays_held(store: Mute, held: Duration) -> (Duration, Result<(), Error>) {
        let (locks, began) = (Locks::new(store), Instant::now());
        let guard = locks.lock("a").lease(HOUR / 10).hold_at_least(HOUR).acquire().await.unwrap();
        tokio::time::sleep(held).await;
        let released = guard.release().await;
        assert!(
            began.elapsed() < held + Duration::from_mins(1),
            "the release waited for {:?}",
            began.elapsed()
        );
        drop(locks.lock("a").acquire().await.unwrap());
        (began.elapsed(), released)
    }

    #[tokio::test(start_paused = true)]
    async fn what_must_stay_held_outlasts_its_release() {
        let second = Duration::from_secs(1);
        for lost in [vec![], vec![false], vec![true], vec![true, false, true]] {
            let store = |lost| Mute { memory: Memory::new(), lost: Mutex::new(lost) };
            let (stayed, released) = stays_held(store(lost.clone()), second).await;
            assert!(released.is_ok(), "{lost:?}: {released:?}");
            assert!(stayed >= HOUR && stayed < HOUR + second, "{lost:?}: it stayed held for {stayed:?}");
            let (stayed, released) = stays_held(store(lost.clone()), HOUR * 2).await;
            assert!(released.is_ok(), "{lost:?}: {released:?}");
            assert!(stayed < HOUR * 2 + second, "{lost:?}: it stayed held for {stayed:?}");
        }
    }

    /// A store to which the first renewal takes so long.
    struct Slow {
        memory: Memory,
        way: Mutex<Option<Duration>>,
    }

    #[async_trait]
    impl Backend for Slow {
        forward_backend!(self => self.memory, except renew);

        async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
            let way = self.way.lock().unwrap().take();
            tokio::time::sleep(way.unwrap_or_default()).await;
            self.memory.renew(grants).await
        }
    }

    /// A store that answers no release.
    struct Deaf(Memory);

    #[async_trait]
    impl Backend for Deaf {
        forward_backend!(self => self.0, except release);

        async fn release(&self, _: &Grant) -> Result<Release, StoreError> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_without_an_answer_ends_with_the_lease() {
        let guard = Locks::new(Deaf(Memory::new())).lock("a").lease(HOUR).acquire().await.unwrap();
        let left = guard.deadline().unwrap().left();
        let began = Instant::now();
        let released = guard.release().await;
        assert!(matches!(released, Err(Error::Unavailable { .. })), "{released:?}");
        let took = began.elapsed();
        let in_time = left.as_secs()..=left.as_secs() + 5;
        assert!(in_time.contains(&took.as_secs()), "{took:?}, and {left:?} were left");
    }

    /// A renewal that comes after the last lease would hold the name for nobody.
    #[tokio::test(start_paused = true)]
    async fn what_must_stay_held_is_not_held_for_longer() {
        let (memory, way, second) = (Memory::new(), Duration::from_mins(5), Duration::from_secs(1));
        let locks = Locks::new(Slow { memory: memory.clone(), way: Mutex::new(Some(way)) });
        let began = Instant::now();
        let guard = locks.lock("a").hold_at_least(HOUR).acquire().await.unwrap();
        // A renewal is under way.
        tokio::time::sleep(HOUR / 3 + way / 2).await;
        guard.release().await.unwrap();
        drop(Locks::new(memory).lock("a").acquire().await.unwrap());
        let stayed = began.elapsed();
        assert!(stayed >= HOUR && stayed < HOUR + second, "it stayed held for {stayed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_must_stay_held_can_be_forced() {
        let (memory, second) = (Memory::new(), Duration::from_secs(1));
        let locks = Locks::new(memory.clone());
        let lock = locks.lock("a").hold_at_least(HOUR);
        lock.acquire().await.unwrap().release().await.unwrap();
        assert_eq!(locks.force_release("a").await.unwrap().len(), 1);
        let guard = timeout(second, lock.acquire()).await.expect("it is free").unwrap();
        memory.force_release(guard.name()).await.unwrap();
        let released = guard.release().await;
        assert!(matches!(released, Err(Error::Lost { cause: LossCause::Forced, .. })), "{released:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_shortest_hold_beyond_the_longest_is_refused() {
        let locks = Locks::new(Memory::new());
        let refused = locks.lock("a").hold_at_least(HOUR).max_hold(HOUR / 2).acquire().await;
        assert!(matches!(refused, Err(Error::InvalidOption { option: "hold_at_least", .. })), "{refused:?}");
        assert!(locks.lock("a").hold_at_least(HOUR).max_hold(HOUR).acquire().await.is_ok());
    }
}
