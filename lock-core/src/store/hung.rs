//! A store that answers nothing, for tests.

use crate::{
    async_trait,
    contract::{Capabilities, Claim, Grant, StoreError},
    store::{Attempt, Backend, Release, Renewal},
};
use std::future::pending;

pub(crate) struct Hung;

#[async_trait]
impl Backend for Hung {
    fn store(&self) -> &'static str {
        "hung"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { together: true, ..Capabilities::POLLED }
    }

    async fn try_acquire(&self, _: &Claim) -> Result<Attempt, StoreError> {
        pending().await
    }

    async fn release(&self, _: &Grant) -> Result<Release, StoreError> {
        pending().await
    }

    async fn renew(&self, _: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        pending().await
    }
}
