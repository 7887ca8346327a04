//! The requests to a store.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tenure_core::{Claim, ClaimId, Grant, Moment, Name};

/// A request of the [`Backend`](tenure_core::Backend) trait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is named as the trait's method")]
pub enum Method {
    TryAcquire,
    TryAcquireAll,
    Acquire,
    Release,
    Renew,
    Withdraw,
    Convert,
    Latch,
    WaitForRelease,
    Holders,
    List,
    Waiting,
    ForceRelease,
    Close,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Its method.
    pub(crate) method: Method,
    /// The names and claims that it was about: one, several for a renewal, none for a listing.
    pub(crate) about: Vec<(Name, Option<ClaimId>)>,
    /// When it was sent.
    pub(crate) sent: Moment,
}

impl Call {
    pub(crate) fn of(method: Method, claim: &Claim) -> Self {
        Self { method, about: vec![(claim.name.clone(), Some(claim.id))], sent: Moment::now() }
    }

    pub(crate) fn of_all(method: Method, claims: &[Claim]) -> Self {
        let about = claims.iter().map(|claim| (claim.name.clone(), Some(claim.id))).collect();
        Self { method, about, sent: Moment::now() }
    }

    pub(crate) fn about(method: Method, grant: &Grant) -> Self {
        Self::for_all(method, std::slice::from_ref(grant))
    }

    pub(crate) fn for_all(method: Method, grants: &[Grant]) -> Self {
        let about = grants.iter().map(|grant| (grant.name.clone(), Some(grant.claim))).collect();
        Self { method, about, sent: Moment::now() }
    }

    pub(crate) fn named(method: Method, name: &Name) -> Self {
        Self { method, about: vec![(name.clone(), None)], sent: Moment::now() }
    }

    pub(crate) fn bare(method: Method) -> Self {
        Self { method, about: Vec::new(), sent: Moment::now() }
    }
}

/// All requests that passed a [`Probe`](crate::Probe). Clones share the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Mutex<Log>>);

#[derive(Debug, Default)]
struct Log {
    calls: Vec<Call>,
    contending: HashMap<Name, Contending>,
}

/// The claims of one name that ask for a grant.
#[derive(Clone, Debug, Default)]
struct Contending {
    /// Each claim, and how many of its requests are in progress.
    now: HashMap<ClaimId, usize>,
    /// The most claims at any one time.
    most: usize,
}

impl Calls {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all requests so far, in the order in which they were sent.
    pub(crate) fn all(&self) -> Vec<Call> {
        self.log().calls.clone()
    }

    /// Returns the requests about `name`, in the order in which they were sent.
    pub(crate) fn about(&self, name: &str) -> Vec<Call> {
        let is_about = |call: &&Call| call.about.iter().any(|(about, _)| about.as_str() == name);
        self.log().calls.iter().filter(is_about).cloned().collect()
    }

    /// Counts the claims that ask for a grant of `name` now.
    pub(crate) fn contending(&self, name: &str) -> usize {
        self.log().contending.get(name).map_or(0, |contending| contending.now.len())
    }

    /// Counts the most claims that ever asked for a grant of `name` at once.
    pub(crate) fn most_contending(&self, name: &str) -> usize {
        self.log().contending.get(name).map_or(0, |contending| contending.most)
    }

    /// Records a request that ends when the answer is dropped.
    pub(crate) fn begin(&self, call: Call) -> Open {
        let contends = matches!(call.method, Method::Acquire | Method::TryAcquire | Method::TryAcquireAll);
        let asked = call.about.iter().filter(|_| contends);
        let contenders: Vec<_> = asked.filter_map(|(name, claim)| Some((name.clone(), (*claim)?))).collect();
        let mut log = self.log();
        for (name, claim) in &contenders {
            let contending = log.contending.entry(name.clone()).or_default();
            *contending.now.entry(*claim).or_default() += 1;
            contending.most = contending.most.max(contending.now.len());
        }
        log.calls.push(call);
        drop(log);
        Open { calls: self.clone(), contenders }
    }
}

/// A request in progress.
pub(crate) struct Open {
    calls: Calls,
    contenders: Vec<(Name, ClaimId)>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut log = self.calls.log();
        for (name, claim) in &self.contenders {
            let Some(contending) = log.contending.get_mut(name) else { continue };
            if let Some(requests) = contending.now.get_mut(claim) {
                *requests -= 1;
                if *requests == 0 {
                    contending.now.remove(claim);
                }
            }
        }
    }
}
