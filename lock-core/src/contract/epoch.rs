//! A stretch of a store's life in which it forgets nothing.

use tokio_util::sync::CancellationToken;

/// A stretch of a store's life in which it forgets nothing that it granted.
///
/// For a backend that can learn by itself that its data is gone, or differs from the data that other clients see. It
/// [ends](Self::end) the epoch before it grants anything else: all grants [of that epoch](crate::Grant::in_epoch) are
/// lost at that moment as [forgotten](crate::LossCause::Forgotten), without a request to the store. A backend has one
/// epoch at a time. A grant in a session ends with its session.
///
/// Clones are the same epoch.
#[derive(Clone, Debug, Default)]
pub struct Epoch(CancellationToken);

impl Epoch {
    /// Begins an epoch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends it.
    pub fn end(&self) {
        self.0.cancel();
    }

    /// Returns whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until it has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn ended(&self) {
        self.0.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::Locks,
        async_trait,
        contract::{Claim, Grant, LossCause, StoreError},
        forward_backend,
        memory::Memory,
        store::Backend,
    };
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };
    use tokio::time::Instant;

    /// Grants in the epoch that it is told.
    struct Forgetful {
        memory: Memory,
        epoch: Mutex<Epoch>,
    }

    #[async_trait]
    impl Backend for Forgetful {
        forward_backend!(self => self.memory, except acquire);

        async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
            let grant = self.memory.acquire(claim).await?;
            Ok(grant.in_epoch(&self.epoch.lock().unwrap()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn holds_are_lost_at_once_when_their_epoch_ends() {
        let backend = Arc::new(Forgetful { memory: Memory::new(), epoch: Mutex::default() });
        let (locks, began) = (Locks::new(Arc::clone(&backend)), Instant::now());
        for round in 0..3 {
            let epoch = Epoch::new();
            *backend.epoch.lock().unwrap() = epoch.clone();
            let lock = |name: &str| locks.lock(format!("{name} {round}")).lease(Duration::from_hours(1));
            let renewed = lock("renewed").acquire().await.unwrap();
            let plain = lock("plain").renew(false).acquire().await.unwrap();
            assert!(renewed.is_held() && plain.is_held());
            let told = tokio::spawn(renewed.lost());
            tokio::task::yield_now().await;
            epoch.end();
            // Even before the client's own task has heard of it.
            assert!(!plain.is_held());
            assert_eq!(told.await.unwrap(), LossCause::Forgotten);
            assert_eq!(
                (renewed.loss(), plain.loss()),
                (Some(LossCause::Forgotten), Some(LossCause::Forgotten))
            );
        }
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "it was noticed at a renewal: {:?}",
            began.elapsed()
        );
    }

    /// The client's own task has not heard of the end before the next epoch begins.
    #[tokio::test(start_paused = true)]
    async fn holder_is_told_of_an_ended_epoch_after_the_next_began() {
        let (first, lease) = (Epoch::new(), Duration::from_hours(1));
        let backend = Arc::new(Forgetful { memory: Memory::new(), epoch: Mutex::new(first.clone()) });
        let locks = Locks::new(Arc::clone(&backend));
        let guard = locks.lock("a").lease(lease).acquire().await.unwrap();
        let lost = tokio::spawn(guard.lost());
        tokio::task::yield_now().await;
        first.end();
        *backend.epoch.lock().unwrap() = Epoch::new();
        let _next = locks.lock("b").lease(lease).acquire().await.unwrap();
        let told = tokio::time::timeout(Duration::from_secs(1), lost).await.expect("it is not told");
        assert_eq!(told.unwrap(), LossCause::Forgotten);
    }
}
