//! A writer that becomes a reader, and a reader that becomes a writer.

use super::{holding::Holding, pauses::Pauses};
use crate::{Conversion, Doing, Error, Mode, Moment, StoreError, lease};

impl Holding {
    /// Makes the writer a reader.
    ///
    /// The holder counts as a reader before the store is asked: whatever becomes of the request, it never believes in
    /// more than it has.
    pub(crate) async fn downgrade(&self) -> Result<(), Error> {
        self.shared.can_hold(Mode::Shared)?;
        self.weaken()?;
        let mut pauses = Pauses::new();
        loop {
            self.downgrade_sent();
            let answer = self.ask(Mode::Shared).await;
            if answer.is_ok() {
                self.downgrade_answered();
            }
            match answer {
                Ok(Conversion::Converted) if self.is_held() => return Ok(()),
                Ok(Conversion::NotHeld(cause)) => self.lose(cause),
                Ok(Conversion::Converted | Conversion::Refused) => {}
                Err(error) if error.is_unavailable() && self.is_held() => {
                    let (name, store) = (&self.grant.name, &self.shared.store);
                    tracing::warn!(lock.name = %name, lock.store = %store, %error, "a downgrade is tried again");
                }
                Err(error) => return Err(self.converting(error)),
            }
            if !self.is_held() {
                return Err(self.lost_error());
            }
            pauses.pause().await;
        }
    }

    /// Makes the only reader a writer; `false` when there are others, or when a downgrade may still be on its way.
    pub(crate) async fn try_upgrade(&self) -> Result<bool, Error> {
        if let held @ Mode::Permit { .. } = self.mode() {
            return Err(Error::invalid_option("the mode to upgrade", held, "as a reader"));
        }
        if !self.is_held() {
            return Err(self.lost_error());
        }
        // A downgrade that comes late would let readers in beside the writer (clause F7).
        if self.awaits_downgrade() {
            return Ok(false);
        }
        match self.ask(Mode::Exclusive).await.map_err(|error| self.converting(error))? {
            Conversion::Converted if self.is_held() => {
                self.set_mode(Mode::Exclusive);
                Ok(true)
            }
            Conversion::Refused if self.is_held() => Ok(false),
            Conversion::NotHeld(cause) => {
                self.lose(cause);
                Err(self.lost_error())
            }
            // The answer came too late.
            Conversion::Converted | Conversion::Refused => Err(self.lost_error()),
        }
    }

    async fn ask(&self, to: Mode) -> Result<Conversion, StoreError> {
        let grant = self.grant_now();
        let left = self.deadline().unwrap_or_else(Moment::now).left();
        let patience = lease::renewal_patience(grant.lease).min(left);
        match tokio::time::timeout(patience, self.shared.backend.convert(&grant, to)).await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::unavailable("no answer to the conversion")),
        }
    }

    fn converting(&self, error: StoreError) -> Error {
        Error::from_store(&self.shared.store, Doing::Converting(self.grant.name.clone()), error)
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Backend, Capabilities, Conversion, Error, Grant, Locks, Memory, Mode, StoreError, async_trait,
        forward_backend,
    };
    use std::sync::atomic::{AtomicBool, Ordering};

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
    async fn what_the_store_cannot_do_changes_nothing() {
        let locks = Locks::new(WithoutReaders(Memory::new()));
        let mut guard = locks.lock("a").acquire().await.unwrap();
        let refused = guard.downgrade().await;
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
        assert_eq!(guard.mode(), Mode::Exclusive);
        guard.release().await.unwrap();
    }

    /// A store whose first answer to a conversion is lost.
    struct Silent {
        memory: Memory,
        asked: AtomicBool,
    }

    #[async_trait]
    impl Backend for Silent {
        forward_backend!(self => self.memory, except convert);

        async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
            if self.asked.swap(true, Ordering::SeqCst) {
                return self.memory.convert(grant, to).await;
            }
            Err(StoreError::unavailable("the answer was lost"))
        }
    }

    /// The request without an answer may still arrive, and would let readers in beside the writer.
    #[tokio::test(start_paused = true)]
    async fn no_upgrade_while_a_downgrade_may_still_arrive() {
        for answered in [true, false] {
            let locks = Locks::new(Silent { memory: Memory::new(), asked: AtomicBool::new(answered) });
            let mut guard = locks.rw("a").write().acquire().await.unwrap();
            guard.downgrade().await.unwrap();
            assert_eq!(guard.try_upgrade().await.unwrap(), answered);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_upgrade_after_a_downgrade_that_nobody_awaited() {
        let locks = Locks::new(Memory::new());
        let mut guard = locks.rw("a").write().acquire().await.unwrap();
        let hold = guard.hold();
        hold.0.downgrade_sent();
        guard.downgrade().await.unwrap();
        assert!(!guard.try_upgrade().await.unwrap());
    }
}
