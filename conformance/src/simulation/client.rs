//! A client of the server: it asks over its connection.

use super::{data::Data, network::Connection};
use crate::async_trait;
use std::{sync::Arc, time::Duration};
use tenure_core::{
    Attempt, AttemptAll, Backend, Capabilities, Claim, Conversion, Grant, Holder, LatchState, LatchStep,
    Memory, Mode, Moment, Name, Release, Renewal, Standing, StoreError, Waiter,
};

/// A client of the server.
pub(super) struct Client {
    pub(super) data: Arc<Data>,
    pub(super) namespace: String,
    pub(super) connection: Connection,
}

impl Client {
    /// Carries a request to the server, and its answer back.
    pub(super) async fn ask<T, Answer>(
        &self,
        request: impl FnOnce(Arc<Data>, Memory) -> Answer + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        Answer: Future<Output = Result<T, StoreError>> + Send,
    {
        let (data, namespace) = (Arc::clone(&self.data), self.namespace.clone());
        let carried = self.connection.carry(async move {
            let memory = data.memory(&namespace);
            request(data, memory).await
        });
        carried.await?
    }

    /// Carries a request whose answer may take any time. Meanwhile the client asks whether the server is still there.
    pub(super) async fn queue<T, Answer>(
        &self,
        request: impl FnOnce(Arc<Data>, Memory) -> Answer + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        Answer: Future<Output = Result<T, StoreError>> + Send,
    {
        const PULSE: Duration = Duration::from_secs(1);
        let (data, namespace) = (Arc::clone(&self.data), self.namespace.clone());
        let queued = self.connection.wait(async move {
            let memory = data.memory(&namespace);
            request(data, memory).await
        });
        let silent = async {
            loop {
                tokio::time::sleep(PULSE).await;
                if let Err(error) = self.ask(|_, _| async { Ok(()) }).await {
                    return error;
                }
            }
        };
        tokio::select! {
            biased;
            answer = queued => answer?,
            error = silent => Err(error),
        }
    }
}

/// The grant as its client counts it: from the moment when it sent the request.
fn sent_at(sent: Moment, grant: Grant) -> Grant {
    let standing = match grant.standing {
        Standing::Lease { stands, .. } => Standing::Lease { sent, stands },
        session @ Standing::Session(_) => session,
    };
    Grant { standing, ..grant }
}

#[async_trait]
impl Backend for Client {
    fn store(&self) -> &'static str {
        "simulation"
    }

    fn capabilities(&self) -> Capabilities {
        Memory::new().capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let (sent, claim) = (Moment::now(), claim.clone());
        Ok(match self.ask(|_, memory| async move { memory.try_acquire(&claim).await }).await? {
            Attempt::Granted(grant) => Attempt::Granted(sent_at(sent, grant)),
            busy @ Attempt::Busy { .. } => busy,
        })
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        let (sent, claims) = (Moment::now(), claims.to_vec());
        Ok(match self.ask(|_, memory| async move { memory.try_acquire_all(&claims).await }).await? {
            AttemptAll::Granted(grants) => {
                AttemptAll::Granted(grants.into_iter().map(|grant| sent_at(sent, grant)).collect())
            }
            none @ (AttemptAll::Busy | AttemptAll::Apart) => none,
        })
    }

    /// The server answers when it is the claim's turn.
    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        if let Attempt::Granted(grant) = self.try_acquire(claim).await? {
            return Ok(grant);
        }
        let claim = claim.clone();
        self.queue(|_, memory| async move { memory.acquire(&claim).await }).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let grant = grant.clone();
        self.ask(|_, memory| async move { memory.release(&grant).await }).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let grants = grants.to_vec();
        self.ask(|_, memory| async move { memory.renew(&grants).await }).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let claim = claim.clone();
        self.ask(|_, memory| async move { memory.withdraw(&claim).await }).await
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        let grant = grant.clone();
        self.ask(move |_, memory| async move { memory.convert(&grant, to).await }).await
    }

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        let (name, step) = (name.clone(), step.clone());
        self.ask(|_, memory| async move { memory.latch(&name, &step).await }).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let name = name.clone();
        self.ask(|_, memory| async move { memory.holders(&name).await }).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let prefix = prefix.to_owned();
        self.ask(|_, memory| async move { memory.list(&prefix).await }).await
    }

    async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        let name = name.clone();
        self.ask(|_, memory| async move { memory.waiting(&name).await }).await
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let name = name.clone();
        self.ask(|_, memory| async move { memory.force_release(&name).await }).await
    }
}
