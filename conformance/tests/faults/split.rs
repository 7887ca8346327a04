//! A store that keeps its readers apart: they exclude no other client, and none excludes them.

use std::sync::Arc;
use tenure_conformance::{BoxError, Subject, async_trait};
use tenure_core::{
    Attempt, Backend, Capabilities, Claim, Conversion, Grant, Memory, Mode, Release, Renewal, StoreError,
};

#[derive(Clone)]
pub(crate) struct Split {
    alone: Memory,
    readers: Memory,
}

impl Split {
    pub(crate) fn subject() -> Arc<dyn Subject> {
        Arc::new(Self { alone: Memory::new(), readers: Memory::new() })
    }

    fn of(&self, mode: Mode) -> &Memory {
        if mode == Mode::Shared { &self.readers } else { &self.alone }
    }
}

#[async_trait]
impl Subject for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Backend for Split {
    fn store(&self) -> &'static str {
        "split"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { shared: true, ..Capabilities::POLLED }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        self.of(claim.mode).try_acquire(claim).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        self.of(grant.mode).release(grant).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let mut answers = Vec::with_capacity(grants.len());
        for grant in grants {
            answers.extend(self.of(grant.mode).renew(std::slice::from_ref(grant)).await?);
        }
        Ok(answers)
    }

    async fn convert(&self, _: &Grant, _: Mode) -> Result<Conversion, StoreError> {
        Ok(Conversion::Refused)
    }
}
