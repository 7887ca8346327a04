//! How a waiter's process can be told.

use serde::{Deserialize, Serialize};

/// The number of a waiting process, in a store that cannot tell waiters of a release by itself. Whoever releases the name
/// finds it in the record, and tells that process in the store's own way. A hint like every other (clause W4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bell(pub u64);
