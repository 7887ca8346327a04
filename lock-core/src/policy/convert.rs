//! Downgrades, from writer to reader, and upgrades, from reader to writer.

use super::{guard::Guard, holding::Holding, pauses::Pauses};
use crate::{
    contract::{Error, Mode, Moment, Operation, StoreError},
    store::Conversion,
};

impl Guard {
    /// Turns a writer into a reader, without letting another writer in between. It keeps its place, token and lease.
    ///
    /// Waiting readers then join it. A reader stays a reader. The guard counts as a reader's as soon as this is called,
    /// even if the store refuses. While the store is unreachable, this asks again, and other readers are kept out
    /// meanwhile.
    ///
    /// # Cancel safety
    ///
    /// The request may have been carried out; call it again to be sure.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]; [`Error::Conflict`] if the owner has other guards of the lock, which rely on exclusive mode;
    /// [`Error::Unsupported`] if the store has no shared mode; [`Error::Store`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
    /// let config = locks.rw("config");
    /// let mut guard = config.write().acquire().await?;
    /// guard.downgrade().await?;
    /// let reader = config.read().acquire().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn downgrade(&mut self) -> Result<(), Error> {
        let holding = &self.hold.holding;
        holding.store.can_hold(Mode::Shared)?;
        // Before the store is asked, so that the holder never counts on more than it has, even if the request is lost.
        holding.count_as_reader()?;
        let mut pauses = Pauses::new();
        loop {
            holding.downgrade_sent();
            let answer = holding.ask_for(Mode::Shared).await;
            if answer.is_ok() {
                holding.downgrade_answered();
            }
            match answer {
                Ok(Conversion::Converted) if self.is_held() => return Ok(()),
                Ok(Conversion::Lost(cause)) => holding.lose(cause),
                Ok(Conversion::Converted | Conversion::Refused) => {}
                Err(error) if error.is_unavailable() && self.is_held() => {
                    let (name, store) = (self.name(), &holding.store.name);
                    tracing::warn!(lock.name = %name, lock.store = %store, %error, "the downgrade failed; trying again");
                }
                Err(error) => return Err(holding.converting(error)),
            }
            if !self.is_held() {
                return Err(self.lost_error());
            }
            pauses.pause().await;
        }
    }

    /// Turns the only reader into a writer, with the same token and lease. Returns `false`, and stays a reader, if
    /// there are other readers. So two readers that both want to write never wait for each other.
    ///
    /// Also returns `false` if an answer to a [`downgrade`](Self::downgrade) was lost: that request may still arrive,
    /// and would let readers in beside the writer. Release the guard and acquire the lock again.
    ///
    /// # Cancel safety
    ///
    /// The request may have been carried out: the guard counts as a reader's, and others are kept out until it is
    /// released or [downgraded](Self::downgrade).
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]; [`Error::Unavailable`], after which others may be kept out as above; [`Error::Conflict`] for a
    /// permit; [`Error::Unsupported`] if the store has no shared mode; [`Error::Store`].
    pub async fn try_upgrade(&mut self) -> Result<bool, Error> {
        let holding = &self.hold.holding;
        if matches!(self.mode(), Mode::Permit { .. }) {
            return Err(holding.conflict("is a semaphore, and permits cannot be upgraded"));
        }
        if !self.is_held() {
            return Err(self.lost_error());
        }
        // A downgrade that comes late would let readers in beside the writer (clause F7).
        if holding.awaits_downgrade() {
            return Ok(false);
        }
        match holding.ask_for(Mode::Exclusive).await.map_err(|error| holding.converting(error))? {
            Conversion::Converted if self.is_held() => {
                holding.set_mode(Mode::Exclusive);
                Ok(true)
            }
            Conversion::Refused if self.is_held() => Ok(false),
            Conversion::Lost(cause) => {
                holding.lose(cause);
                Err(self.lost_error())
            }
            // The answer came too late.
            Conversion::Converted | Conversion::Refused => Err(self.lost_error()),
        }
    }
}

impl Holding {
    async fn ask_for(&self, mode: Mode) -> Result<Conversion, StoreError> {
        let grant = self.grant_now();
        let deadline = self.deadline().unwrap_or_else(Moment::now);
        let patience = grant.patience(deadline).min(deadline.left());
        match tokio::time::timeout(patience, self.store.convert(&grant, mode)).await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::unavailable("no answer to the conversion")),
        }
    }

    fn converting(&self, error: StoreError) -> Error {
        self.store.failed(Operation::Converting(self.grant.name.clone()), error)
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        api::Locks,
        async_trait,
        contract::{Capabilities, Error, Grant, LossCause, Mode, Owner, StoreError},
        forward_backend,
        memory::Memory,
        store::{Backend, Conversion, Renewal},
    };
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        time::Duration,
    };
    use tokio::time::{Instant, sleep, timeout};

    /// A store that knows one holder alone.
    struct WithoutReaders(Memory);

    #[async_trait]
    impl Backend for WithoutReaders {
        forward_backend!(self => self.0, except capabilities, convert);

        fn capabilities(&self) -> Capabilities {
            Capabilities::POLLED
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unsupported_downgrade_leaves_the_mode() {
        let locks = Locks::new(WithoutReaders(Memory::new()));
        let mut guard = locks.lock("a").acquire().await.unwrap();
        let refused = guard.downgrade().await;
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
        assert_eq!(guard.mode(), Mode::Exclusive);
        guard.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn conflicting_conversion_leaves_the_mode() {
        let locks = Locks::new(Memory::new());
        let refused = |outcome: Result<(), Error>, because: &str| {
            let error = outcome.unwrap_err();
            assert!(
                matches!(error, Error::Conflict { .. }) && error.to_string().contains(because),
                "{error}"
            );
            assert!(!error.is_retryable());
        };
        let lock = locks.lock("a").owner(&Owner::new());
        let (mut guard, again) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
        refused(guard.downgrade().await, "its owner has 1 other guard");
        assert_eq!(guard.mode(), Mode::Exclusive);
        again.release().await.unwrap();
        guard.downgrade().await.unwrap();
        let mut permit = locks.semaphore("b", 2).permits(1).acquire().await.unwrap();
        refused(permit.downgrade().await, "permits cannot be downgraded");
        refused(permit.try_upgrade().await.map(drop), "permits cannot be upgraded");
        assert!(permit.is_held() && guard.is_held());
    }

    #[tokio::test(start_paused = true)]
    async fn downgrade_of_a_reader_with_two_guards_is_a_no_op() {
        let lock = Locks::new(Memory::new()).rw("a").read().owner(&Owner::new());
        let (mut guard, again) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
        guard.downgrade().await.unwrap();
        assert_eq!((guard.mode(), again.mode()), (Mode::Shared, Mode::Shared));
    }

    /// A store that never answers the first conversion, which it does not carry out.
    struct Forgetful {
        memory: Memory,
        asked: AtomicBool,
    }

    #[async_trait]
    impl Backend for Forgetful {
        forward_backend!(self => self.memory, except convert);

        async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
            if self.asked.swap(true, Ordering::SeqCst) {
                return self.memory.convert(grant, to).await;
            }
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_downgrade_is_settled_beside_another_guard() {
        let memory = Memory::new();
        let locks = Locks::new(Forgetful { memory: memory.clone(), asked: AtomicBool::new(false) });
        let me = Owner::new();
        let mut guard = locks.rw("a").write().owner(&me).acquire().await.unwrap();
        let (soon, reader) = (Duration::from_secs(1), Locks::new(memory).rw("a").read());
        assert!(timeout(soon, guard.downgrade()).await.is_err());
        let again = locks.rw("a").read().owner(&me).acquire().await.unwrap();
        assert!(reader.try_acquire().await.unwrap().is_none(), "the downgrade was carried out");
        guard.downgrade().await.unwrap();
        assert!(reader.try_acquire().await.unwrap().is_some());
        assert!(guard.is_held() && again.is_held());
    }

    /// A store that answers an upgrade and loses it in a crash.
    struct LosesUpgrades(Memory);

    #[async_trait]
    impl Backend for LosesUpgrades {
        forward_backend!(self => self.0, except convert);

        async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
            let converted = self.0.convert(grant, to).await?;
            if to == Mode::Exclusive {
                self.0.convert(grant, Mode::Shared).await?;
            }
            Ok(converted)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn forgotten_upgrade_is_lost_at_the_next_renewal() {
        let (locks, lease) = (Locks::new(LosesUpgrades(Memory::new())), Duration::from_secs(30));
        let mut writer = locks.rw("a").read().lease(lease).acquire().await.unwrap();
        assert!(writer.try_upgrade().await.unwrap());
        let (began, reader) = (Instant::now(), locks.rw("a").read().acquire().await.unwrap());
        assert_eq!(writer.lost().await, LossCause::Forgotten);
        assert!(began.elapsed() <= lease / 3, "{:?}", began.elapsed());
        assert!(reader.is_held() && !writer.is_held());
        // An extension finds it too, if it comes first.
        let mut writer = locks.rw("b").read().lease(lease).acquire().await.unwrap();
        assert!(writer.try_upgrade().await.unwrap());
        let extended = writer.extend(lease).await;
        assert!(matches!(extended, Err(Error::Lost { cause: LossCause::Forgotten, .. })), "{extended:?}");
    }

    /// A store in which renewals are overtaken by everything else.
    struct RenewsLate(Memory);

    const LATE: Duration = Duration::from_millis(100);

    #[async_trait]
    impl Backend for RenewsLate {
        forward_backend!(self => self.0, except renew);

        async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
            sleep(LATE).await;
            let renewed = self.0.renew(grants).await;
            sleep(LATE).await;
            renewed
        }
    }

    /// The renewal or extension stated the mode before the downgrade.
    #[tokio::test(start_paused = true)]
    async fn downgrade_during_a_renewal_keeps_the_lease() {
        let (locks, lease) = (Locks::new(RenewsLate(Memory::new())), Duration::from_secs(30));
        for again in [false, true] {
            let mut guard = locks.rw("a").write().lease(lease).acquire().await.unwrap();
            sleep(lease / 3 + LATE / 2).await;
            guard.downgrade().await.unwrap();
            sleep(LATE).await;
            if again {
                assert!(guard.try_upgrade().await.unwrap());
            }
            let hold = guard.hold();
            let (extended, downgraded) = tokio::join!(hold.extend(lease), guard.downgrade());
            extended.unwrap();
            downgraded.unwrap();
            sleep(lease * 3).await;
            assert!(guard.is_held(), "{:?}", guard.loss());
            guard.release().await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn upgrade_is_refused_after_an_unawaited_downgrade() {
        let locks = Locks::new(Memory::new());
        let mut guard = locks.rw("a").write().acquire().await.unwrap();
        let hold = guard.hold();
        hold.holding.downgrade_sent();
        guard.downgrade().await.unwrap();
        assert!(!guard.try_upgrade().await.unwrap());
    }
}
