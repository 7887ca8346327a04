//! The places of waiters, in virtual time.

use crate::{RELEASED, claim, counted::Counted, granted};
use std::{sync::Arc, time::Duration};
use tenure_core::{Backend, Claim, Moment};
use tenure_object::{ObjectBackend, ObjectOptions};
use tokio::time::timeout;

const POLL: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn dead_waiter_keeps_its_place_for_three_polls() {
    let store = Arc::new(Counted::new());
    let backend = ObjectBackend::connect_with(store, ObjectOptions::new("locks").poll(POLL)).await.unwrap();
    let grant = granted(&backend, &claim("a")).await;
    let waiter = || Claim { waits: true, ..claim("a") };
    // It is not withdrawn, as if its process had been killed.
    timeout(POLL, backend.acquire(&waiter())).await.unwrap_err();
    assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
    let released = Moment::now();
    backend.acquire(&waiter()).await.unwrap();
    let (took, margin) = (Moment::now().since(released), backend.capabilities().margin);
    assert!(POLL * 2 <= took && took <= POLL * 3 + margin * 2, "{took:?}");
}
