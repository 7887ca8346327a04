//! One server, or the server of a Cluster that keeps a name.

use crate::{
    cluster::{Cluster, SlotRoute},
    options::{CheckedOptions, RedisOptions},
    server::{Server, fitness, is_moving},
};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::{collections::BTreeMap, sync::Arc};
use tenure_core::{Background, Grant, Holder, Name, Renewal, StoreError};
use tokio::time::{Instant, timeout_at};

/// Asks the server that keeps a name, and follows redirections to others.
macro_rules! ask {
    ($store:expr, $name:expr, $server:ident => $request:expr) => {{
        let mut route = $store.route($name);
        loop {
            let $server = route.next().await?;
            match $request {
                Err(error) if route.follows(&error) => {}
                outcome => break outcome,
            }
        }
    }};
}

pub(crate) use ask;

/// Where the locks live.
pub(crate) enum Store {
    One(Arc<Server>),
    Cluster(Arc<Cluster>),
}

impl Store {
    pub(crate) fn new(
        options: &RedisOptions,
        checked: CheckedOptions,
        background: &Background,
    ) -> Result<Self, tenure_core::Error> {
        Ok(match options.seeds() {
            Some((seeds, tls)) => {
                let cluster = Cluster::new(seeds.to_vec(), tls, options.clone(), checked, background);
                Self::Cluster(Arc::new(cluster))
            }
            None => Self::One(Arc::new(Server::new(options.endpoint()?, checked, background))),
        })
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::One(server) => server.link.dial().url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        match self {
            Self::One(server) => {
                fitness::check(&server.link, &server.scripts, &server.options.prefix, false).await.map(drop)
            }
            Self::Cluster(cluster) => cluster.check().await,
        }
    }

    /// The route of a request about a name.
    pub(crate) fn route(&self, name: &Name) -> Route<'_> {
        match self {
            Self::One(server) => Route::One(server),
            Self::Cluster(cluster) => Route::Cluster(cluster.route(name)),
        }
    }

    /// Renews grants that one server keeps, as far as known: one request per slot, all sent at once, or, while a slot
    /// moves, one per grant.
    pub(crate) async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let cluster = match self {
            Self::One(server) => return server.renew(grants).await,
            Self::Cluster(cluster) => cluster,
        };
        let mut slots: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (place, grant) in grants.iter().enumerate() {
            slots.entry(cluster.slot(&grant.name)).or_default().push(place);
        }
        let request = |places: Vec<usize>| async move {
            let together: Vec<Grant> = places.iter().map(|place| grants[*place].clone()).collect();
            (places, self.renew_slot(&together).await)
        };
        let mut outcomes: FuturesUnordered<_> = slots.into_values().map(request).collect();
        // Less than the caller's wait of a sixth of the lease: a slot on a node that hangs must not cost the others
        // their answers.
        let until = Instant::now() + grants.iter().map(|grant| grant.lease / 9).min().unwrap_or_default();
        let (mut answers, mut answered, mut failed) = (vec![Renewal::Unanswered; grants.len()], false, None);
        loop {
            let next = if answered {
                timeout_at(until, outcomes.next()).await.unwrap_or_default()
            } else {
                outcomes.next().await
            };
            let Some((places, outcome)) = next else { break };
            match outcome {
                Ok(said) => {
                    answered = true;
                    for (place, answer) in places.into_iter().zip(said) {
                        answers[place] = answer;
                    }
                }
                // The keys of some have gone ahead. Each lease by itself is renewed wherever its own keys are.
                Err(error) if places.len() > 1 && is_moving(&error) => {
                    outcomes.extend(places.into_iter().map(|place| request(vec![place])));
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if !answered => Err(error),
            _ => Ok(answers),
        }
    }

    async fn renew_slot(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        ask!(self, &grants[0].name, server => server.renew(grants).await)
    }

    /// Whether one call can be about all of these names.
    pub(crate) fn are_together<'n>(&self, mut names: impl Iterator<Item = &'n Name>) -> bool {
        match self {
            Self::One(_) => true,
            Self::Cluster(cluster) => {
                let first = names.next().map(|name| cluster.slot(name));
                names.all(|name| Some(cluster.slot(name)) == first)
            }
        }
    }

    /// Which server answers for a name, as far as known.
    pub(crate) fn shard(&self, name: &Name) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(cluster) => cluster.shard(name),
        }
    }

    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        match self {
            Self::One(server) => server.list(prefix).await,
            Self::Cluster(cluster) => cluster.list(prefix).await,
        }
    }

    pub(crate) fn disconnect(&self) {
        match self {
            Self::One(server) => server.disconnect(),
            Self::Cluster(cluster) => cluster.disconnect(),
        }
    }
}

/// Where a request about one name goes.
pub(crate) enum Route<'a> {
    One(&'a Arc<Server>),
    Cluster(SlotRoute<'a>),
}

impl Route<'_> {
    /// Where to ask next.
    pub(crate) async fn next(&mut self) -> Result<Arc<Server>, StoreError> {
        match self {
            Self::One(server) => Ok(Arc::clone(server)),
            Self::Cluster(route) => route.next().await,
        }
    }

    /// Whether that error means to ask another server.
    pub(crate) fn follows(&mut self, error: &StoreError) -> bool {
        match self {
            Self::One(_) => false,
            Self::Cluster(route) => route.follows(error),
        }
    }
}
