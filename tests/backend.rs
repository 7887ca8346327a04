//! A store can be wrapped with nothing but `tenure::backend`, request by request.
#![cfg(feature = "memory")]

use std::{sync::Arc, time::Duration};
use tenure::{
    Locks,
    backend::{
        Attempt, AttemptAll, Backend, Background, Capabilities, Claim, Conversion, Grant, Holder, LatchState,
        LatchStep, Mode, Name, Release, Renewal, StoreError, Waiter, async_trait, forward_backend, open,
    },
};

/// Hands every request on, each by hand.
struct Wrapped(Arc<dyn Backend>);

// A method that is added to the trait, and whose words are forgotten in the facade, is to be noticed here.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Backend for Wrapped {
    fn store(&self) -> &str {
        self.0.store()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        self.0.try_acquire(claim).await
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        self.0.try_acquire_all(claims).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        self.0.release(grant).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        self.0.renew(grants).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        self.0.withdraw(claim).await
    }

    async fn wait_for_release(&self, claim: &Claim, at_most: Duration) -> Result<(), StoreError> {
        self.0.wait_for_release(claim, at_most).await
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        self.0.acquire(claim).await
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        self.0.convert(grant, to).await
    }

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        self.0.latch(name, step).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.0.holders(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        self.0.list(prefix).await
    }

    async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        self.0.waiting(name).await
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.0.force_release(name).await
    }

    fn shard(&self, name: &Name) -> u64 {
        self.0.shard(name)
    }

    fn background(&self) -> Background {
        self.0.background()
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

/// The wrapped store, with all calls forwarded at a stroke.
struct Forwarded(Wrapped);

#[async_trait]
impl Backend for Forwarded {
    forward_backend!(self => self.0);
}

#[tokio::test]
async fn wrapped_store_keeps_its_abilities() {
    let store = open("memory:").await.unwrap();
    let locks = Locks::new(Forwarded(Wrapped(Arc::clone(&store))));
    assert_eq!(locks.capabilities(), store.capabilities());

    let mut guard = locks.rw("a").write().acquire().await.unwrap();
    guard.downgrade().await.unwrap();
    assert_eq!(locks.list("").await.unwrap().len(), 1);
    assert_eq!(locks.waiting("a").await.unwrap(), []);
    let put_out = locks.force_release("a").await.unwrap();
    assert_eq!(put_out.len(), locks.holders("a").await.unwrap().len() + 1);

    let both = locks.all(["b", "c"]).acquire().await.unwrap();
    both.release().await.unwrap();
    locks.latch("d", 1).count_down("one").await.unwrap();
    locks.close().await;
}
