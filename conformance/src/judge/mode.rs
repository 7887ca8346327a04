//! A mode, as a note holds it.

use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use tenure_core::Mode;

/// What a [`Mode`] looks like in a note.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Mode", rename_all = "snake_case")]
#[non_exhaustive]
pub(super) enum Noted {
    Exclusive,
    Shared,
    Permit { take: NonZeroU32, of: NonZeroU32 },
}
