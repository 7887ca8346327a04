//! How a waiting client can be told of a release.

use serde::{Deserialize, Serialize};

/// The number of a waiting client, in a store that cannot tell waiters of a release by itself. The client that releases
/// the name finds it in the record, and wakes the waiting client in the store's own way. It is only a hint (clause W4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bell(pub u64);
