//! A lease that is extended by hand.

use super::{hold::Hold, timing::Ticket};
use crate::{
    contract::{Capability, Error, Moment, Operation, Standing, StoreError, lease},
    store::Renewal,
};
use std::time::Duration;

impl Hold {
    /// Extends the lease: asks the store to make it `lease` from now.
    ///
    /// For locks acquired with [`renew(false)`](crate::Lock::renew). If renewal is on, it goes on with the new lease,
    /// which is never shorter than the rest of [`hold_at_least`](crate::Lock::hold_at_least).
    ///
    /// If it crosses a request for a shorter lease, the store may carry that one out last. So the hold relies on the
    /// shorter lease until it has been renewed once more, which happens at once, even if renewal is off.
    ///
    /// # Cancel safety
    ///
    /// The request may have been carried out, or may be later, at any time. So the hold then relies on the shorter of
    /// the old and the new lease, and never again on a longer one than the new, even if it is extended once more.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lease has expired or another holds the lock; [`Error::Unavailable`] if the store did not
    /// answer, and then it is as if this had been dropped; [`Error::InvalidOption`] for a lease out of range;
    /// [`Error::Unsupported`] if a session keeps the grant.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let lease = lease::check("lease", lease, lease::MIN_LEASE)?;
        let holding = &self.holding;
        let lease = lease.max(holding.stays_for().unwrap_or_default());
        if !matches!(holding.grant.standing, Standing::Lease { .. }) {
            return Err(self.extending(StoreError::unsupported(Capability::Extending)));
        }
        if !self.is_held() {
            return Err(self.lost_error());
        }
        let answer = match self.ask_for(lease).await? {
            // As after an idle connection that turned out to be broken: the next one is new.
            Renewal::Unanswered if self.is_held() => self.ask_for(lease).await?,
            answer => answer,
        };
        match answer {
            Renewal::Renewed if self.is_held() => Ok(()),
            Renewal::Unanswered => {
                Err(self.extending(StoreError::unavailable("the store did not answer for this lock")))
            }
            Renewal::Renewed | Renewal::Lost(_) => Err(self.lost_error()),
        }
    }

    async fn ask_for(&self, lease: Duration) -> Result<Renewal, Error> {
        let Some((grant, ticket)) = self.holding.start_extension(lease, Moment::now()) else {
            return Err(self.lost_error());
        };
        let mut extending = Extending { hold: self, ticket, answer: Renewal::Unanswered };
        // A shorter lease is renewed, or found to have expired, sooner, whenever the answer comes.
        self.client.renewals.move_on(&self.holding);
        let answers = self.holding.store.renew(&[grant]).await;
        let answers = answers.map_err(|error| self.extending(error))?;
        extending.answer = answers.first().copied().unwrap_or(Renewal::Unanswered);
        Ok(self.holding.counting(ticket, extending.answer))
    }

    fn extending(&self, error: StoreError) -> Error {
        self.client.store.failed(Operation::Extending(self.name().clone()), error)
    }
}

/// An extension on its way. Dropping it records the answer, even if the extension was cancelled.
struct Extending<'a> {
    hold: &'a Hold,
    ticket: Ticket,
    answer: Renewal,
}

impl Drop for Extending<'_> {
    fn drop(&mut self) {
        let Hold { client, holding } = self.hold;
        holding.finish_renewal(self.ticket, self.answer);
        client.renewals.move_on(holding);
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        api::Locks,
        async_trait,
        contract::{Grant, StoreError},
        forward_backend,
        memory::Memory,
        store::{Backend, Renewal},
    };
    use std::{
        future::pending,
        sync::{
            Arc, Mutex,
            atomic::{AtomicBool, Ordering},
        },
        thread::{self, ThreadId},
        time::Duration,
    };
    use tokio::{
        runtime::{Builder, Runtime},
        time::{Instant, sleep, timeout},
    };

    const HOUR: Duration = Duration::from_hours(1);
    const SECOND: Duration = Duration::from_secs(1);

    /// A store whose first answer to a renewal does not tell whether a copy of it may still arrive.
    struct Doubtful {
        memory: Memory,
        asked: AtomicBool,
    }

    #[async_trait]
    impl Backend for Doubtful {
        forward_backend!(self => self.memory, except renew);

        async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
            let renewed = self.memory.renew(grants).await?;
            if self.asked.swap(true, Ordering::SeqCst) {
                return Ok(renewed);
            }
            Ok(vec![Renewal::Unanswered; grants.len()])
        }
    }

    #[tokio::test(start_paused = true)]
    async fn doubtful_extension_keeps_the_shorter_deadline() {
        let (short, long) = (Duration::from_secs(5), Duration::from_mins(5));
        let locks = Locks::new(Doubtful { memory: Memory::new(), asked: AtomicBool::new(false) });
        let guard = locks.lock("a").renew(false).lease(long).acquire().await.unwrap();
        guard.extend(short).await.unwrap();
        guard.extend(long).await.unwrap();
        // The first copy of the short one may still arrive.
        let left = guard.deadline().unwrap().left();
        assert!(left <= short && left > short / 2, "{left:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn extend_does_not_shorten_hold_at_least() {
        let (memory, hour, began) = (Memory::new(), HOUR, Instant::now());
        let lock = Locks::new(memory.clone()).lock("a").renew(false).hold_at_least(hour);
        let guard = lock.acquire().await.unwrap();
        sleep(hour / 4).await;
        guard.extend(hour / 8).await.unwrap();
        // As if the holder's process had died now.
        let next = Locks::new(memory).lock("a").acquire().await.unwrap();
        let stayed = began.elapsed();
        assert!(stayed >= hour && stayed < hour + Duration::from_mins(1), "it stayed held for {stayed:?}");
        assert!(next.is_held() && !guard.is_held());
    }

    /// Breaks when it is asked to renew for the first time, or does not answer.
    struct BreaksOnce {
        memory: Memory,
        hangs: bool,
        has_broken: AtomicBool,
    }

    #[async_trait]
    impl Backend for BreaksOnce {
        forward_backend!(self => self.memory, except renew);

        async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
            if self.has_broken.swap(true, Ordering::Relaxed) {
                return self.memory.renew(grants).await;
            }
            if self.hangs {
                pending::<()>().await;
            }
            Err(StoreError::unavailable("the connection was reset"))
        }
    }

    /// However much longer the new lease would be.
    #[tokio::test(start_paused = true)]
    async fn failed_or_dropped_extension_costs_no_renewal() {
        for hangs in [false, true] {
            let store = BreaksOnce { memory: Memory::new(), hangs, has_broken: AtomicBool::new(false) };
            let guard = Locks::new(store).lock("a").lease(SECOND * 30).acquire().await.unwrap();
            sleep(SECOND).await;
            let extended = timeout(SECOND / 2, guard.extend(HOUR)).await;
            assert!(!matches!(extended, Ok(Ok(()))), "{extended:?}");
            sleep(SECOND * 60).await;
            assert!(guard.is_held(), "{:?}; hangs: {hangs}", guard.loss());
        }
    }

    /// Without renewal, the loss does not wait for the answer.
    #[tokio::test(start_paused = true)]
    async fn unanswered_shorter_lease_is_renewed_in_time() {
        for renews in [true, false] {
            let store = BreaksOnce { memory: Memory::new(), hangs: true, has_broken: AtomicBool::new(false) };
            let guard = Locks::new(store).lock("a").lease(HOUR).renew(renews).acquire().await.unwrap();
            let lost = timeout(SECOND * 10, guard.lost());
            let lost = tokio::select! {
                biased;
                lost = lost => lost,
                extended = guard.extend(SECOND * 3) => panic!("{extended:?}"),
            };
            assert_eq!(lost.is_ok(), !renews, "{lost:?}");
            assert_eq!(guard.is_held(), renews, "{:?}", guard.loss());
        }
    }

    /// Remembers which thread asked for which lease.
    struct Remembers {
        memory: Memory,
        asked: Arc<Mutex<Vec<(ThreadId, Duration)>>>,
    }

    #[async_trait]
    impl Backend for Remembers {
        forward_backend!(self => self.memory, except renew);

        async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
            self.asked.lock().unwrap().push((thread::current().id(), grants[0].lease));
            self.memory.renew(grants).await
        }
    }

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn concurrent_extensions_keep_each_threads_lease() {
        let asked = Arc::<Mutex<Vec<_>>>::default();
        let (locks, callers) =
            (Locks::new(Remembers { memory: Memory::new(), asked: Arc::clone(&asked) }), runtime());
        let guard = callers.block_on(locks.lock("a").renew(false).acquire()).unwrap();
        thread::scope(|scope| {
            for lease in [HOUR, HOUR * 2] {
                let (guard, asked) = (&guard, &asked);
                scope.spawn(move || {
                    runtime().block_on(async {
                        for _ in 0..5_000 {
                            guard.extend(lease).await.unwrap();
                        }
                    });
                    let me = thread::current().id();
                    let asked = asked.lock().unwrap();
                    let others = asked.iter().find(|(who, what)| *who == me && *what != lease);
                    assert_eq!(others, None, "this thread wanted {lease:?}");
                });
            }
        });
        callers.block_on(guard.release()).unwrap();
    }
}
