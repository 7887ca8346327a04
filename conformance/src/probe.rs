//! A store that records its requests and injects faults on demand.

mod script;

pub use script::Fault;
pub(crate) use script::Hints;

use crate::{
    log::{Call, Calls, Method},
    watched::Watched,
};
use futures_util::poll;
use script::Script;
use std::{
    collections::VecDeque,
    fmt,
    future::{Future, pending},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};
use tenure_core::{
    Attempt, AttemptAll, Backend, Background, Capabilities, Claim, Conversion, Grant, Holder, LatchState,
    LatchStep, Mode, Name, Release, Renewal, StoreError, Waiter, async_trait, forward_backend,
};
use tokio_util::task::TaskTracker;

/// Stands between a client and its store: it counts and records every request, and can inject a fault into each.
///
/// It works above the [`Backend`] trait, so every store can be tested this way, with no other means. What happens below
/// the trait needs real faults. Clones are the same probe.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// use std::sync::Arc;
/// use tenure_conformance::{Fault, Method, Probe};
/// use tenure_core::{Locks, Memory};
///
/// let probe = Probe::over(Arc::new(Memory::new()));
/// let locks = Locks::new(probe.clone());
/// let guard = locks.lock("a").acquire().await?;
/// probe.next(Method::Release, Fault::LoseReply);
/// guard.release().await?;
/// assert_eq!(probe.count(Method::Release, "a"), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Probe(Arc<Inner>);

struct Inner {
    backend: Arc<dyn Backend>,
    calls: Calls,
    script: Mutex<Script>,
    frozen: Watched<bool>,
    /// How many times held-back requests were carried out.
    carried_out: Watched<u64>,
    held_back: TaskTracker,
}

impl Probe {
    /// Makes a probe in front of `backend`.
    #[must_use]
    pub fn over(backend: Arc<dyn Backend>) -> Self {
        Self(Arc::new(Inner {
            backend,
            calls: Calls::default(),
            script: Mutex::default(),
            frozen: Watched::default(),
            carried_out: Watched::default(),
            held_back: TaskTracker::new(),
        }))
    }

    /// Returns the store itself, without the probe.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.0.backend
    }

    /// Returns the requests to the store so far.
    pub(crate) fn calls(&self) -> &Calls {
        &self.0.calls
    }

    /// Counts the requests of this kind about `name`.
    #[must_use]
    pub fn count(&self, method: Method, name: &str) -> usize {
        self.0.calls.about(name).iter().filter(|call| call.method == method).count()
    }

    /// Returns the newest grant of `name` that passed by, for requests behind the holder's back.
    #[must_use]
    pub fn grant(&self, name: &str) -> Option<Grant> {
        self.script().grants.get(name).cloned()
    }

    /// Injects this fault into the next request of this kind. Several faults queue up.
    pub fn next(&self, method: Method, fault: Fault) {
        self.script().next.entry(method).or_default().push_back(fault);
    }

    /// Injects this fault into every request of this kind from now on, after those announced with [`next`](Self::next).
    pub fn always(&self, method: Method, fault: Fault) {
        self.script().always.insert(method, fault);
    }

    /// Sets what happens to hints from now on.
    pub(crate) fn hints(&self, hints: Hints) {
        self.script().hints = hints;
    }

    /// Freezes everything until [`thaw`](Self::thaw): requests are not carried out, and replies do not arrive.
    pub fn freeze(&self) {
        self.0.frozen.change(|frozen| *frozen = true);
    }

    /// Resumes what was frozen.
    pub fn thaw(&self) {
        self.0.frozen.change(|frozen| *frozen = false);
    }

    /// Carries out all requests that are held back ([`Fault::HoldBack`]), and returns when the store has answered them.
    pub async fn carry_out(&self) {
        self.0.carried_out.change(|times| *times += 1);
        self.0.held_back.close();
        self.0.held_back.wait().await;
        self.0.held_back.reopen();
    }

    /// Ends all faults, and carries out the requests that are held back.
    pub fn heal(&self) {
        let mut script = self.script();
        script.next.clear();
        script.always.clear();
        script.hints = Hints::AsSent;
        drop(script);
        self.0.carried_out.change(|times| *times += 1);
        self.thaw();
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, method: Method) -> Option<Fault> {
        let mut script = self.script();
        let announced = script.next.get_mut(&method).and_then(VecDeque::pop_front);
        announced.or_else(|| script.always.get(&method).copied())
    }

    async fn thawed(&self) {
        self.0.frozen.wait_for(|frozen| (!frozen).then_some(())).await;
    }

    /// Carries out a request, with the fault that is set for it.
    async fn through<T: Send + 'static>(
        &self,
        call: Call,
        request: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let fault = self.fault(call.method);
        let _open = self.0.calls.begin(call);
        match fault {
            Some(Fault::Refuse) => return Err(StoreError::unavailable("the probe refused the request")),
            Some(Fault::Fail) => return Err(StoreError::failed("the probe failed the request")),
            Some(Fault::Hang) => pending().await,
            Some(Fault::DelayRequest(pause)) => tokio::time::sleep(pause).await,
            _ => {}
        }
        self.thawed().await;
        let reply = match fault {
            Some(Fault::Straggle(pause)) => {
                let later = async move {
                    tokio::time::sleep(pause).await;
                    request.await
                };
                tokio::spawn(later).await.map_err(StoreError::failed)?
            }
            Some(Fault::HoldBack) => {
                let (probe, before) = (self.clone(), *self.0.carried_out.read());
                let later = async move {
                    probe.0.carried_out.wait_for(|times| (*times > before).then_some(())).await;
                    request.await
                };
                self.0.held_back.spawn(later).await.map_err(StoreError::failed)?
            }
            Some(Fault::Stall(pause)) => stalled(request, pause).await,
            _ => request.await,
        };
        self.thawed().await;
        match fault {
            Some(Fault::LoseReply) => return Err(StoreError::unavailable("the probe lost the reply")),
            Some(Fault::DelayReply(pause)) => tokio::time::sleep(pause).await,
            _ => {}
        }
        reply
    }

    fn granted(&self, grant: &Grant) {
        self.script().grants.insert(grant.name.clone(), grant.clone());
    }
}

// Every request must be counted, so no method is left to the trait's default.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Backend for Probe {
    fn store(&self) -> &str {
        self.0.backend.store()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.backend.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let (probe, asked) = (self.clone(), claim.clone());
        let request = async move {
            let answer = probe.backend().try_acquire(&asked).await;
            if let Ok(Attempt::Granted(grant)) = &answer {
                probe.granted(grant);
            }
            answer
        };
        self.through(Call::of(Method::TryAcquire, claim), request).await
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        let (probe, asked) = (self.clone(), claims.to_vec());
        let request = async move {
            let answer = probe.backend().try_acquire_all(&asked).await;
            if let Ok(AttemptAll::Granted(grants)) = &answer {
                for grant in grants {
                    probe.granted(grant);
                }
            }
            answer
        };
        self.through(Call::of_all(Method::TryAcquireAll, claims), request).await
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let (probe, asked, hints) = (self.clone(), claim.clone(), self.script().hints);
        let request = async move {
            let grant = match hints {
                Hints::AsSent => probe.backend().acquire(&asked).await?,
                Hints::None | Hints::Spurious(_) => Plain(probe.clone()).acquire(&asked).await?,
            };
            probe.granted(&grant);
            Ok(grant)
        };
        self.through(Call::of(Method::Acquire, claim), request).await
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let (store, asked) = (Arc::clone(self.backend()), grant.clone());
        let request = async move { store.release(&asked).await };
        self.through(Call::about(Method::Release, grant), request).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let (store, asked) = (Arc::clone(self.backend()), grants.to_vec());
        let request = async move { store.renew(&asked).await };
        self.through(Call::for_all(Method::Renew, grants), request).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let (store, asked) = (Arc::clone(self.backend()), claim.clone());
        let request = async move { store.withdraw(&asked).await };
        self.through(Call::of(Method::Withdraw, claim), request).await
    }

    async fn wait_for_release(&self, claim: &Claim, at_most: Duration) -> Result<(), StoreError> {
        let (store, asked, hints) = (Arc::clone(self.backend()), claim.clone(), self.script().hints);
        let request = async move {
            match hints {
                Hints::AsSent => return store.wait_for_release(&asked, at_most).await,
                Hints::None => tokio::time::sleep(at_most).await,
                Hints::Spurious(pause) => tokio::time::sleep(pause.min(at_most)).await,
            }
            Ok(())
        };
        self.through(Call::of(Method::WaitForRelease, claim), request).await
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        let (store, asked) = (Arc::clone(self.backend()), grant.clone());
        let request = async move { store.convert(&asked, to).await };
        self.through(Call::about(Method::Convert, grant), request).await
    }

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        let (store, asked, step) = (Arc::clone(self.backend()), name.clone(), step.clone());
        let request = async move { store.latch(&asked, &step).await };
        self.through(Call::named(Method::Latch, name), request).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let (store, asked) = (Arc::clone(self.backend()), name.clone());
        let request = async move { store.holders(&asked).await };
        self.through(Call::named(Method::Holders, name), request).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let (store, asked) = (Arc::clone(self.backend()), prefix.to_owned());
        let request = async move { store.list(&asked).await };
        self.through(Call::bare(Method::List), request).await
    }

    async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        let (store, asked) = (Arc::clone(self.backend()), name.clone());
        let request = async move { store.waiting(&asked).await };
        self.through(Call::named(Method::Waiting, name), request).await
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let (store, asked) = (Arc::clone(self.backend()), name.clone());
        let request = async move { store.force_release(&asked).await };
        self.through(Call::named(Method::ForceRelease, name), request).await
    }

    fn shard(&self, name: &Name) -> u64 {
        self.0.backend.shard(name)
    }

    fn background(&self) -> Background {
        self.0.backend.background()
    }

    async fn close(&self) {
        let _open = self.0.calls.begin(Call::bare(Method::Close));
        self.0.backend.close().await;
    }
}

/// Lets the future continue only this long after each time that it had to wait.
async fn stalled<T>(future: impl Future<Output = T>, pause: Duration) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(outcome) = poll!(future.as_mut()) {
            return outcome;
        }
        tokio::time::sleep(pause).await;
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("store", &self.0.backend.store()).finish_non_exhaustive()
    }
}

/// A probe that acquires by the trait's default: attempts and waits, both through the probe. For stores whose own
/// `acquire` cannot be made to miss a hint.
struct Plain(Probe);

#[async_trait]
impl Backend for Plain {
    forward_backend!(self => self.0, except acquire);
}
