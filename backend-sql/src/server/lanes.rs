//! The connections of lease rows.

use crate::{
    lane::{Again, Answered, Lane, Server},
    statement::Statement,
};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};
use tenure_core::{Background, StoreError};

/// The lanes over which lease rows are asked.
pub(crate) struct Lanes<S: Server> {
    /// For acquiring, releasing and withdrawing. Requests about one name use the same lane, in order: see [`Lane`].
    names: Vec<Lane<S>>,
    /// In the background, where renewal runs; but extending a lease by hand happens on the caller's runtime.
    pub(crate) renewals: Arc<Renewals<S>>,
    pub(crate) background: Background,
}

impl<S: Server> Lanes<S> {
    /// Makes this many lanes for names, and one for renewals.
    pub(crate) fn new(server: &Arc<S>, names: usize, background: Background) -> Self {
        let names = (0..names).map(|_| Lane::new(server)).collect();
        Self { names, renewals: Arc::new(Renewals::new(server)), background }
    }

    pub(crate) fn of(&self, name: &str) -> &Lane<S> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let lanes = self.names.len() as u64;
        &self.names[usize::try_from(hasher.finish() % lanes).unwrap_or(0)]
    }

    /// For requests about several names.
    pub(crate) fn first(&self) -> &Lane<S> {
        &self.names[0]
    }

    /// Opens all connections, because a first request with a short lease or wait could not also wait for its
    /// connection. Waits for the first connection, which shows whether the server can be reached and has the table.
    pub(crate) async fn open(&self) -> Result<(), StoreError> {
        let first = self.first().open();
        for other in self.names.iter().skip(1) {
            drop(other.open());
        }
        let renewals = Arc::clone(&self.renewals);
        self.background.spawn(async move { drop(renewals.usual().open()) });
        first.await
    }

    pub(crate) async fn close(&self) {
        for lane in self.names.iter().chain(&self.renewals.0) {
            lane.close().await;
        }
    }
}

/// How many connections renewals may use if one gives no answer.
const RENEWALS: usize = 3;

/// The connections for renewals, which need no order. One is used until a caller gives up on it: it may be dead, or a
/// lease too short for a distant server. Then the next request uses another one, because a lease may depend on it, and
/// the first one finishes what it has begun, so that slow requests get done. Once callers have given up on all of them,
/// one is reopened, unless its request may still be answered: see [`Lane::hurry`].
pub(crate) struct Renewals<S: Server>([Lane<S>; RENEWALS]);

impl<S: Server> Renewals<S> {
    fn new(server: &Arc<S>) -> Self {
        Self(std::array::from_fn(|_| Lane::new(server)))
    }

    fn usual(&self) -> &Lane<S> {
        &self.0[0]
    }

    /// Carries out one statement, and tells whether it was sent twice.
    pub(crate) async fn run(
        &self,
        statement: &Statement,
        arguments: S::Arguments,
        again: Again,
    ) -> Result<Answered<S::Answer>, StoreError> {
        let least = self.0.iter().min_by_key(|lane| lane.stuck()).unwrap_or(self.usual());
        if least.stuck() > 0 {
            least.hurry();
        }
        least.run_and_tell(statement, arguments, again).await
    }
}
