//! The connections to the nodes of a Cluster.

use crate::{
    connection::{address::Address, lane::Lane},
    options::{CheckedOptions, RedisOptions},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tenure_core::StoreError;

/// A lane to each known node.
pub(crate) struct Nodes {
    options: RedisOptions,
    checked: CheckedOptions,
    by_address: Mutex<HashMap<Address, Arc<Lane>>>,
}

impl Nodes {
    pub(crate) fn new(options: RedisOptions, checked: CheckedOptions) -> Self {
        Self { options, checked, by_address: Mutex::default() }
    }

    pub(crate) fn at(&self, address: &Address) -> Result<Arc<Lane>, StoreError> {
        let mut known = self.by_address();
        if let Some(lane) = known.get(address) {
            return Ok(Arc::clone(lane));
        }
        let endpoint = self.options.endpoint_at(address).map_err(StoreError::failed)?;
        let lane = Arc::new(Lane::new(self.checked.dial(endpoint)));
        known.insert(address.clone(), Arc::clone(&lane));
        Ok(lane)
    }

    /// Drops all nodes but these.
    pub(crate) fn keep(&self, these: &[&Address]) {
        self.by_address().retain(|address, lane| {
            let stays = these.contains(&address);
            if !stays {
                lane.disconnect();
            }
            stays
        });
    }

    fn by_address(&self) -> MutexGuard<'_, HashMap<Address, Arc<Lane>>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
