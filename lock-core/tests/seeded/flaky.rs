//! A store behind a bad network.

use std::time::Duration;
use tenure_core::{
    Attempt, Backend, Capabilities, Claim, Grant, Holder, Memory, Release, Renewal, Standing, StoreError,
    Wakeup, async_trait,
};
use tokio::time::sleep;

/// Delays requests and replies, loses them, and carries some requests out although nobody waits for them any more.
#[derive(Clone)]
pub(crate) struct Flaky {
    memory: Memory,
    lease: Duration,
}

impl Flaky {
    pub(crate) fn new(memory: Memory, lease: Duration) -> Self {
        Self { memory, lease }
    }

    /// Carries `request` out in a task of its own, as a server does that has received it already.
    async fn over<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let lost = || StoreError::unavailable("the network lost it");
        let lease = u64::try_from(self.lease.as_millis()).unwrap();
        let (there, back) = match fastrand::u8(..20) {
            // Frozen for longer than a lease.
            0 => (fastrand::u64(..lease * 3), fastrand::u64(..lease)),
            1..4 => (fastrand::u64(..lease / 2), fastrand::u64(..lease / 2)),
            _ => (fastrand::u64(..5), fastrand::u64(..5)),
        };
        if fastrand::u8(..20) == 0 {
            sleep(Duration::from_millis(there)).await;
            return Err(lost());
        }
        let server = tokio::spawn(async move {
            sleep(Duration::from_millis(there)).await;
            request.await
        });
        let reply = server.await.map_err(StoreError::unavailable)?;
        sleep(Duration::from_millis(back)).await;
        if fastrand::u8(..15) == 0 {
            return Err(lost());
        }
        reply
    }
}

#[async_trait]
impl Backend for Flaky {
    fn store(&self) -> &'static str {
        "flaky"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { wakeup: Wakeup::Poll, fair: false, waiting: false, ..self.memory.capabilities() }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let sent = tenure_core::Moment::now();
        let (memory, asked) = (self.memory.clone(), claim.clone());
        let answer = self.over(async move { memory.try_acquire(&asked).await }).await?;
        Ok(match answer {
            Attempt::Granted(grant) => {
                Attempt::Granted(Grant { standing: Standing::Lease { sent, stands: claim.lease }, ..grant })
            }
            busy @ Attempt::Busy { .. } => busy,
        })
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let (memory, grant) = (self.memory.clone(), grant.clone());
        self.over(async move { memory.release(&grant).await }).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let (memory, grants) = (self.memory.clone(), grants.to_vec());
        self.over(async move { memory.renew(&grants).await }).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let (memory, claim) = (self.memory.clone(), claim.clone());
        self.over(async move { memory.withdraw(&claim).await }).await
    }

    async fn holders(&self, name: &tenure_core::Name) -> Result<Vec<Holder>, StoreError> {
        self.memory.holders(name).await
    }
}
