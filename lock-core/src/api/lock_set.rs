//! Several locks at once, all or none.

use crate::{
    api::{Lock, run::counting},
    contract::{Error, LossCause, Moment, Name, Token},
    policy::{acquire::Acquisition, several::AllOrNone},
    policy::{guard::Guard, hold::Hold},
};
use futures_util::{StreamExt, future::select_all, stream::FuturesUnordered};
use std::{fmt, future::Future, time::Duration};
use tokio::time::{Instant, timeout};

/// How long a try waits until the locks that it had already are released; the background then goes on with it.
const GIVING_BACK: Duration = Duration::from_secs(1);

/// Several locks that are acquired all or none. Made by [`Locks::all`](crate::Locks::all).
///
/// If all are free and the store can do it, they are acquired in one request
/// ([`Capabilities::together`](crate::Capabilities::together)). Otherwise they are acquired one after another, sorted
/// by name. Every client uses the same order, so clients that want the same locks never deadlock.
///
/// # Examples
///
/// Moving money between two accounts:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
/// let guard = locks.all(["account/7", "account/3"]).acquire().await?;
/// assert!(locks.lock("account/3").try_acquire().await?.is_none());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it holds nothing until it is acquired"]
pub struct LockSet {
    locks: Vec<Lock>,
    wait: Option<Duration>,
}

impl LockSet {
    /// Makes a set of these locks. They may differ in mode and options, but must be of one store. A name that is given
    /// twice counts once, with its first options.
    ///
    /// # Examples
    ///
    /// ```
    /// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
    /// use tenure_core::LockSet;
    ///
    /// let all = LockSet::of([locks.rw("config").read(), locks.semaphore("gpu", 4).permits(2), locks.lock("job/7")]);
    /// # let _ = all;
    /// ```
    pub fn of(locks: impl IntoIterator<Item = Lock>) -> Self {
        Self { locks: locks.into_iter().collect(), wait: None }
    }

    /// Sets how long [`acquire`](Self::acquire) waits for all of them together: up to 365 days. Zero means one attempt.
    /// Default: no limit.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets options on each of the locks.
    ///
    /// A [`Lock::wait`] has no effect here; use [`wait`](Self::wait).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
    /// let both = locks.all(["a", "b"]).with(|lock| lock.lease(Duration::from_secs(10)).label("transfer"));
    /// # let _ = both;
    /// ```
    pub fn with(mut self, options: impl FnMut(Lock) -> Lock) -> Self {
        self.locks = self.locks.into_iter().map(options).collect();
        self
    }

    /// Acquires all the locks, waiting for them.
    ///
    /// Those already held are kept and renewed while it waits for the next. If one of them is lost meanwhile, all are
    /// released and acquired again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future at any point leaves no grant and no place in a queue.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::acquire`]; then none of the locks is held. [`Error::InvalidOption`] if there are no names.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn acquire(&self) -> Result<LockSetGuard, Error> {
        self.acquire_telling(|_| {}).await
    }

    /// [`acquire`](Self::acquire), which tells each name before it waits for that one alone.
    ///
    /// Hidden because only people want to know: `tenure run` shows them who holds it.
    #[doc(hidden)]
    pub async fn acquire_telling(&self, mut waits_for: impl FnMut(&Name)) -> Result<LockSetGuard, Error> {
        let locks = self.in_order()?;
        if self.wait == Some(Duration::ZERO) {
            return self.try_acquire().await?.ok_or_else(|| self.too_late(&locks[0]));
        }
        let until = self.wait.map(|wait| Moment::now() + wait);
        // Since when it waits for the next name.
        let mut since = Instant::now();
        match within(until, attempt_all(&locks, true)).await {
            Some(Ok(AllOrNone::Held(guards))) => return Ok(LockSetGuard(guards)),
            // Waits for them one by one, until others release and the store is back.
            None | Some(Ok(AllOrNone::Busy | AllOrNone::Apart) | Err(Error::Unavailable { .. })) => {}
            Some(Err(error)) => return Err(error),
        }
        loop {
            let mut guard = LockSetGuard(Vec::with_capacity(locks.len()));
            let lost = loop {
                let Some(lock) = locks.get(guard.0.len()) else { break guard.loss().is_some() };
                let lock = match until.map(Moment::left) {
                    // A wait of zero would mean one attempt, which is bounded only by the store's timeouts (clause W2).
                    Some(Duration::ZERO) => {
                        lock.checked()?.timed_out_since(since);
                        return Err(self.too_late(lock));
                    }
                    Some(left) => lock.clone().wait(left),
                    None => lock.clone(),
                };
                waits_for(&lock.checked()?.name);
                tokio::select! {
                    biased;
                    _ = guard.lost() => break true,
                    next = lock.acquire() => guard.0.push(next.map_err(|error| self.timed_out(error))?),
                }
                since = Instant::now();
            };
            if !lost {
                return Ok(guard);
            }
        }
    }

    /// Acquires all the locks if they are free, with at most one attempt for each or for all together. Returns `None`
    /// if one is not free. Those that it has already acquired are then released, in the background if that takes more
    /// than a second.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire), but never [`Error::Timeout`].
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn try_acquire(&self) -> Result<Option<LockSetGuard>, Error> {
        let locks = self.in_order()?;
        match attempt_all(&locks, false).await? {
            AllOrNone::Held(guards) => return Ok(Some(LockSetGuard(guards))),
            AllOrNone::Busy => return Ok(None),
            AllOrNone::Apart => {}
        }
        let mut guard = LockSetGuard(Vec::with_capacity(locks.len()));
        for lock in locks {
            let Some(next) = lock.try_acquire().await? else {
                let released = timeout(GIVING_BACK, guard.release()).await;
                return released.unwrap_or(Ok(())).map(|()| None);
            };
            guard.0.push(next);
        }
        Ok(Some(guard))
    }

    /// Acquires all the locks, runs `work` while all are held, and releases them, like [`Lock::run`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and then releases the locks in the background.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire), and [`Error::Lost`] if one of the locks was lost before the work was done
    /// and all of them were released. A release that the store cannot be told of is no error, as in
    /// [`Lock::run`](Lock::run).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled, and when the work does.
    pub async fn run<Work: Future>(
        &self,
        work: impl FnOnce(Vec<Hold>) -> Work,
    ) -> Result<Work::Output, Error> {
        let guard = self.acquire().await?;
        let lost = guard.lost();
        let outcome = {
            let work = work(guard.holds().map(Hold::hold).collect());
            tokio::select! {
                biased;
                _ = lost => None,
                output = work => Some(output),
            }
        };
        match (outcome, guard.lost_error()) {
            (Some(output), _) => counting(guard.release().await).map(|()| output),
            (None, Some(error)) => Err(error),
            (None, None) => unreachable!("a loss is final"),
        }
    }

    /// Checks the locks, and returns each name once, in the order in which every client acquires them.
    fn in_order(&self) -> Result<Vec<Lock>, Error> {
        let mut locks = Vec::with_capacity(self.locks.len());
        for lock in &self.locks {
            let lock = match self.wait {
                Some(wait) => lock.clone().wait(wait),
                None => lock.clone().wait_for_ever(),
            };
            locks.push((lock.checked()?.name, lock));
        }
        if locks.is_empty() {
            return Err(Error::invalid_option("names", "none", "at least one name"));
        }
        locks.sort_by(|(one, _), (other, _)| one.cmp(other));
        locks.dedup_by(|(one, _), (other, _)| one == other);
        // An acquisition that gets one name and not the next gives the first one back: it would stay held without a
        // holder.
        if locks.len() > 1 && locks.iter().any(|(_, lock)| lock.stays_held()) {
            return Err(Error::invalid_option("hold_at_least", "a set of several names", "a single name"));
        }
        Ok(locks.into_iter().map(|(_, lock)| lock).collect())
    }

    /// The error for a wait that ended before this lock was acquired.
    fn too_late(&self, lock: &Lock) -> Error {
        lock.checked()
            .map_or_else(|error| error, |one| one.timeout(self.wait.unwrap_or_default(), Vec::new()))
    }

    /// Makes a timeout tell the wait for all the locks, not for the last of them.
    fn timed_out(&self, error: Error) -> Error {
        match (error, self.wait) {
            (Error::Timeout { name, store, holders, .. }, Some(waited)) => {
                Error::Timeout { name, store, waited, holders }
            }
            (error, _) => error,
        }
    }
}

async fn attempt_all(locks: &[Lock], then_apart: bool) -> Result<AllOrNone, Error> {
    let all = locks.iter().map(Lock::checked).collect::<Result<Vec<_>, _>>()?;
    Acquisition::attempt_all(&all, then_apart).await
}

/// Returns `None` if time runs out first.
async fn within<T>(until: Option<Moment>, work: impl Future<Output = T>) -> Option<T> {
    match until {
        Some(until) => timeout(until.left(), work).await.ok(),
        None => Some(work.await),
    }
}

/// The holder's handle for several locks: lost as soon as one of them is. Made by [`LockSet::acquire`].
///
/// Dropping it releases all of them in the background.
#[must_use = "dropping a guard releases its locks"]
pub struct LockSetGuard(Vec<Guard>);

impl LockSetGuard {
    /// Returns each of the locks, sorted by name.
    pub fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.0.iter().map(|guard| &**guard)
    }

    /// Returns the fencing token of the lock with this name; `None` if it is not one of them.
    #[must_use]
    pub fn token(&self, name: impl AsRef<str>) -> Option<Token> {
        self.holds().find(|hold| hold.name().as_str() == name.as_ref()).map(Hold::token)
    }

    /// Returns whether all of them are held: see [`Hold::is_held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holds().all(Hold::is_held)
    }

    /// Returns why the first lost one was lost; `None` while all are held.
    #[must_use]
    pub fn loss(&self) -> Option<LossCause> {
        self.holds().find_map(Hold::loss)
    }

    /// Waits until one of them is lost, and returns why: see [`Hold::lost`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub fn lost(&self) -> impl Future<Output = LossCause> + Send + Sync + 'static {
        let losses: Vec<_> = self.holds().map(|hold| Box::pin(hold.lost())).collect();
        async move {
            if losses.is_empty() {
                return std::future::pending().await;
            }
            select_all(losses).await.0
        }
    }

    /// Releases all of them concurrently.
    ///
    /// # Cancel safety
    ///
    /// When dropped, the releases go on in the background.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::release`]: [`Error::Lost`] as soon as one of them turns out to be lost, while the others are
    /// released in the background; or else the first failure, when all have been tried.
    pub async fn release(self) -> Result<(), Error> {
        let mut releases: FuturesUnordered<_> = self.0.into_iter().map(Guard::release).collect();
        let mut outcome = Ok(());
        while let Some(released) = releases.next().await {
            if matches!(released, Err(Error::Lost { .. })) {
                return released;
            }
            outcome = outcome.and(released);
        }
        outcome
    }

    /// Returns the error that releasing the first lost one would give; `None` while all are held.
    #[must_use]
    pub fn lost_error(&self) -> Option<Error> {
        self.holds().find(|hold| hold.loss().is_some()).map(Hold::lost_error)
    }
}

impl fmt::Debug for LockSetGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.holds()).finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        api::Locks,
        async_trait,
        contract::{Capabilities, Error, Grant, LossCause, StoreError},
        forward_backend,
        memory::Memory,
        store::{Backend, Release},
    };
    use std::{future::pending, time::Duration};
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn lock_set_refuses_hold_at_least() {
        let locks = Locks::new(Memory::new());
        let stay = |names: &[&str]| locks.all(names).with(|lock| lock.hold_at_least(Duration::from_mins(1)));
        for outcome in [stay(&["a", "b"]).try_acquire().await.err(), stay(&["a", "b"]).acquire().await.err()]
        {
            assert!(
                matches!(outcome, Some(Error::InvalidOption { option: "hold_at_least", .. })),
                "{outcome:?}"
            );
        }
        stay(&["a", "a"]).acquire().await.unwrap().release().await.unwrap();
        assert!(locks.lock("a").try_acquire().await.unwrap().is_none());
    }

    /// A store that does not answer for the first name, and has lost the second.
    struct HalfDown(Memory);

    #[async_trait]
    impl Backend for HalfDown {
        forward_backend!(self => self.0, except release);

        async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
            if grant.name.as_str() == "a" {
                return pending().await;
            }
            Ok(Release::Lost(LossCause::Forced))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lock_set_release_reports_a_loss_before_the_other_answers() {
        let guard = Locks::new(HalfDown(Memory::new())).all(["a", "b"]).acquire().await.unwrap();
        let began = Instant::now();
        let released = guard.release().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(matches!(released, Err(Error::Lost { cause: LossCause::Forced, .. })), "{released:?}");
    }

    /// A store that acquires names one by one, and answers no release.
    struct Deaf(Memory);

    #[async_trait]
    impl Backend for Deaf {
        forward_backend!(self => self.0, except capabilities, release);

        fn capabilities(&self) -> Capabilities {
            Capabilities { together: false, ..self.0.capabilities() }
        }

        async fn release(&self, _: &Grant) -> Result<Release, StoreError> {
            pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lock_set_try_does_not_wait_for_its_releases() {
        let memory = Memory::new();
        let _other = Locks::new(memory.clone()).lock("b").acquire().await.unwrap();
        let (locks, began) = (Locks::new(Deaf(memory)), Instant::now());
        assert!(locks.all(["a", "b"]).try_acquire().await.unwrap().is_none());
        let no_wait = locks.all(["aa", "b"]).wait(Duration::ZERO).acquire().await;
        assert!(matches!(no_wait, Err(Error::Timeout { .. })), "{no_wait:?}");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }
}
