//! The requests to a client's store: each is measured, and has a span unless it renews.

use super::store::Store;
use crate::{
    contract::{Claim, Grant, Holder, Mode, Name, StoreError, Waiter},
    metrics::{Answer, Request},
    store::{Attempt, AttemptAll, Conversion, LatchState, LatchStep, Release, Renewal},
};
use std::future::Future;
use tracing::{Instrument, Span, debug_span, field};

impl Store {
    pub(super) async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        self.ask(Request::TryAcquire, Some(&claim.name), self.backend.try_acquire(claim)).await
    }

    pub(super) async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        self.ask(Request::TryAcquireAll, None, self.backend.try_acquire_all(claims)).await
    }

    /// Waits until the claim is granted.
    pub(super) async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        self.ask(Request::Acquire, Some(&claim.name), self.backend.acquire(claim)).await
    }

    pub(super) async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        self.ask(Request::Release, Some(&grant.name), self.backend.release(grant)).await
    }

    pub(super) async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        self.ask(Request::Renew, None, self.backend.renew(grants)).await
    }

    pub(super) async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        self.ask(Request::Withdraw, Some(&claim.name), self.backend.withdraw(claim)).await
    }

    pub(super) async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        self.ask(Request::Convert, Some(&grant.name), self.backend.convert(grant, to)).await
    }

    pub(crate) async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        self.ask(Request::Latch, Some(name), self.backend.latch(name, step)).await
    }

    pub(crate) async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.ask(Request::Holders, Some(name), self.backend.holders(name)).await
    }

    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        self.ask(Request::List, None, self.backend.list(prefix)).await
    }

    pub(crate) async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        self.ask(Request::Waiting, Some(name), self.backend.waiting(name)).await
    }

    pub(crate) async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        self.ask(Request::ForceRelease, Some(name), self.backend.force_release(name)).await
    }

    /// `name` is that of the lock, if the request is about one alone.
    async fn ask<T>(
        &self,
        request: Request,
        name: Option<&Name>,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let asked = self.requests.ask(request);
        let span = match request {
            // There is one for each lease again and again, and each would be a trace of its own.
            Request::Renew => Span::none(),
            _ => {
                debug_span!("store.request", lock.name = name.map(field::display), lock.store = %self.name, request = request.as_str())
            }
        };
        let answer = answer.instrument(span).await;
        asked.ended(Answer::of(&answer));
        answer
    }
}
