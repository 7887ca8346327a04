//! Claims: the name, mode, lease and identity that an acquisition asks for.

use crate::contract::{Mode, Name};
use serde::{Deserialize, Serialize};
use std::{fmt, ops::RangeInclusive, str::FromStr, sync::Arc, time::Duration};
use uuid::Uuid;

/// The identity of one claim: a fresh UUID v4 each time, never one per process or per lock object.
///
/// A store keeps it with the name and compares it on every change. So a stale holder can never touch its successor, and
/// a request that is sent twice takes effect once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClaimId(Uuid);

impl ClaimId {
    /// Makes a new identity.
    #[must_use]
    pub fn new() -> Self {
        Self(Uuid::new_v4())
    }

    /// Returns the UUID.
    #[must_use]
    pub const fn as_uuid(self) -> Uuid {
        self.0
    }
}

impl Default for ClaimId {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Uuid> for ClaimId {
    fn from(id: Uuid) -> Self {
        Self(id)
    }
}

impl FromStr for ClaimId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The name, mode, lease and identity that an acquisition asks for.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The claim's identity. Requests are idempotent on it.
    pub id: ClaimId,
    /// The name to hold.
    pub name: Name,
    /// How to hold it.
    pub mode: Mode,
    /// How long the grant lasts without renewal. A session store uses its session's timeout instead.
    pub lease: Duration,
    /// Whether the contender goes on waiting if the name is busy. A store without a queue may then leave a mark, so
    /// that the releasing client learns of the waiter.
    pub waits: bool,
    /// How many tokens to reserve for successors in the same process: see
    /// [`Locks::with_succession`](crate::Locks::with_succession). Zero unless the claim is exclusive and for one name
    /// alone; never more than [`Capabilities::succession`](crate::Capabilities::succession).
    pub reserve: u32,
    /// The holder's description for people.
    pub holder: Arc<HolderInfo>,
}

impl Claim {
    /// The range of [`reserve`](Self::reserve) in the stores that can reserve the most tokens.
    pub const RESERVE_RANGE: RangeInclusive<u32> = 0..=64;
}

/// The description of a holder or waiter for people: stored with the grant, and with a place in a store's queue; shown
/// by `tenure ls`, and never used for exclusion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderInfo {
    /// The text set with [`Lock::label`](crate::Lock::label).
    pub label: Option<String>,
    /// The name of the holder's machine.
    pub host: String,
    /// The holder's process on that machine.
    pub pid: u32,
}

impl HolderInfo {
    /// Describes this process on this machine.
    #[must_use]
    pub fn here(label: Option<String>) -> Self {
        Self {
            label,
            host: gethostname::gethostname().to_string_lossy().into_owned(),
            pid: std::process::id(),
        }
    }
}
