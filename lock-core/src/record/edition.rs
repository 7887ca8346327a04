//! The text under a key: a record and its version.

use super::{StoreTime, Stored};
use crate::StoreError;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// What is written under a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edition<T> {
    /// Rises with each write, and begins with the store's clock. So no two texts are the same, even if the key was
    /// removed in between.
    pub(super) edition: u64,
    pub(super) content: T,
}

/// Reads what is stored under `key`; `None` if nothing is.
pub(super) fn parse<V, T: DeserializeOwned>(
    key: &str,
    stored: &Stored<V>,
) -> Result<Option<Edition<T>>, StoreError> {
    let parsed = stored.text.as_deref().map(serde_json::from_str).transpose();
    parsed.map_err(|error| {
        let mend = "remove it once every lease that it could hold has expired";
        StoreError::failed(format!("{key:?} is not what tenure writes: {error}; {mend}"))
    })
}

impl<T: Serialize> Edition<T> {
    pub(super) fn next<U>(&self, content: U, now: StoreTime) -> Edition<U> {
        Edition { edition: self.edition.saturating_add(1).max(now.as_micros()), content }
    }

    pub(super) fn text(&self) -> Result<String, StoreError> {
        serde_json::to_string(self).map_err(StoreError::failed)
    }
}
