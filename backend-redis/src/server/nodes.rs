//! The connections to the nodes of a Cluster.

use crate::{
    connection::{address::Address, link::Link},
    options::{CheckedOptions, RedisOptions},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tenure_core::StoreError;

/// A link to each known node.
pub(crate) struct Nodes {
    options: RedisOptions,
    checked: CheckedOptions,
    by_address: Mutex<HashMap<Address, Arc<Link>>>,
}

impl Nodes {
    pub(crate) fn new(options: RedisOptions, checked: CheckedOptions) -> Self {
        Self { options, checked, by_address: Mutex::default() }
    }

    pub(crate) fn at(&self, address: &Address) -> Result<Arc<Link>, StoreError> {
        let mut known = self.by_address();
        if let Some(link) = known.get(address) {
            return Ok(Arc::clone(link));
        }
        let endpoint = self.options.endpoint_at(address).map_err(StoreError::failed)?;
        let link = Arc::new(Link::new(self.checked.dial(endpoint)));
        known.insert(address.clone(), Arc::clone(&link));
        Ok(link)
    }

    /// Drops all nodes but these.
    pub(crate) fn keep(&self, these: &[&Address]) {
        self.by_address().retain(|address, link| {
            let stays = these.contains(&address);
            if !stays {
                link.disconnect();
            }
            stays
        });
    }

    fn by_address(&self) -> MutexGuard<'_, HashMap<Address, Arc<Link>>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
