//! A claim that the store may know, and its withdrawal when it is no longer wanted.

use super::{
    chore,
    client::Client,
    pauses::Pauses,
    withdrawals::{Asked, Withdrawal},
};
use crate::contract::{Claim, StoreError, lease};
use std::sync::Arc;
use tokio::runtime::Handle;

/// A claim that the store may know. Unless it is [settled](Self::settle), dropping it withdraws it in the background.
pub(super) struct OpenClaim {
    client: Arc<Client>,
    callers: Handle,
    claim: Claim,
    open: bool,
    /// Whether the caller got an error that the store refuses requests.
    refused: bool,
}

impl OpenClaim {
    pub(super) fn new(client: &Arc<Client>, claim: Claim) -> Self {
        Self { client: Arc::clone(client), callers: Handle::current(), claim, open: true, refused: false }
    }

    pub(super) fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Call this when the store neither granted nor queued the claim, or its grant has a holder.
    pub(super) fn settle(&mut self) {
        self.open = false;
    }

    /// The caller gets this error, so a refused withdrawal is not worth another warning.
    pub(super) fn failed(&mut self, error: &StoreError) {
        self.refused = !error.is_unavailable();
    }

    /// Withdraws the claim, and waits until the store has confirmed it or the claim's lease has expired.
    ///
    /// # Cancel safety
    ///
    /// When dropped, the withdrawal goes on in the background.
    pub(super) async fn withdraw(mut self) {
        let (withdrawal, mut pauses) = (Withdrawal::of(self.claim.clone(), self.refused), Pauses::new());
        while withdrawal.ask(&self.client.store).await == Asked::Again {
            pauses.pause().await;
        }
        self.open = false;
    }
}

impl Drop for OpenClaim {
    fn drop(&mut self) {
        if self.open {
            let withdrawal = Withdrawal::of(self.claim.clone(), self.refused);
            let (client, patience) = (Arc::clone(&self.client), lease::renewal_patience(self.claim.lease));
            chore::leave(&self.client, &self.callers, patience, move || {
                let (client, withdrawal) = (Arc::clone(&client), withdrawal.clone());
                async move {
                    if withdrawal.ask(&client.store).await == Asked::Again {
                        client.withdrawals.repeat(withdrawal, &client.tasks);
                    }
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        api::Locks,
        async_trait,
        contract::{Claim, StoreError},
        forward_backend,
        store::{Attempt, Backend, hung::Hung},
    };
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };
    use tracing::level_filters::LevelFilter;
    use tracing_subscriber::prelude::*;

    /// A store that may not be written: it refuses every claim, and would refuse to take one back.
    struct ReadOnly;

    #[async_trait]
    impl Backend for ReadOnly {
        forward_backend!(self => Hung, except try_acquire, acquire, withdraw);

        async fn try_acquire(&self, _: &Claim) -> Result<Attempt, StoreError> {
            Err(StoreError::failed("it may not be written"))
        }

        async fn withdraw(&self, _: &Claim) -> Result<(), StoreError> {
            Err(StoreError::failed("it may not be written"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn returned_error_is_not_logged_too() {
        let told = Arc::new(AtomicBool::new(false));
        let layer = tracing_subscriber::fmt::layer().with_writer({
            let told = Arc::clone(&told);
            move || {
                told.store(true, Ordering::SeqCst);
                std::io::sink()
            }
        });
        let warnings = tracing_subscriber::registry().with(layer).with(LevelFilter::WARN);
        let _here = tracing::subscriber::set_default(warnings);
        let locks = Locks::new(ReadOnly);
        assert!(locks.lock("a").try_acquire().await.is_err());
        assert!(locks.lock("a").acquire().await.is_err());
        locks.close().await;
        assert!(!told.load(Ordering::SeqCst));
    }
}
