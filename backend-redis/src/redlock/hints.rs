//! Hints from several servers.

use super::voters::Voters;
use crate::connection::subscriptions::Listening;
use futures_util::{StreamExt, stream::FuturesUnordered};
use std::{pin::Pin, time::Duration};
use tenure_core::Name;
use tokio::{sync::futures::Notified, time::timeout};

/// Subscriptions to one lock's channel on every server.
pub(crate) struct Hints {
    listening: Vec<Listening>,
    needed: usize,
}

impl Voters {
    /// Subscribes to hints about a name on all servers.
    pub(crate) fn listen(&self, name: &Name) -> Hints {
        let listen = |store: &crate::server::Server| store.subscriptions.listen(&store.lock_key(name));
        let listening = self.all.iter().map(|voter| listen(&voter.server)).collect();
        Hints { listening, needed: self.quorum.needed() }
    }
}

impl Hints {
    /// Waits until a majority of the servers has confirmed the subscription.
    pub(crate) async fn confirmed(&self) {
        self.majority(Listening::confirmed).await;
    }

    /// Waits until a majority has announced a release after it confirmed the subscription.
    pub(crate) async fn announced(&self) {
        self.majority(Listening::hint).await;
    }

    async fn majority<'a, F: Future<Output = ()>>(&'a self, each: impl Fn(&'a Listening) -> F) {
        let mut first = self.listening.iter().map(each).collect::<FuturesUnordered<_>>().take(self.needed);
        while first.next().await.is_some() {}
    }

    /// Starts to gather hints from now on.
    pub(crate) fn next(&self) -> NextHints<'_> {
        let bells = self.listening.iter().map(|listening| {
            let mut bell = Box::pin(listening.next());
            bell.as_mut().enable();
            bell
        });
        NextHints { bells: bells.collect(), needed: self.needed }
    }
}

/// The hints from a moment on, one per server.
pub(crate) struct NextHints<'a> {
    bells: FuturesUnordered<Pin<Box<Notified<'a>>>>,
    needed: usize,
}

impl NextHints<'_> {
    /// Waits until a majority has announced a release, at most for `at_most`. Returns whether it has.
    ///
    /// Asking earlier would be in vain, because a holder has a majority. Hints from fewer servers come from a claim
    /// that was withdrawn, perhaps this client's own.
    pub(crate) async fn gathered(self, at_most: Duration) -> bool {
        let mut first = self.bells.take(self.needed);
        let all = async { while first.next().await.is_some() {} };
        timeout(at_most, all).await.is_ok()
    }
}
