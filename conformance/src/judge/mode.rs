//! A mode, as an event has it, and in words.

use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use tenure_core::Mode;

/// A [`Mode`] as written in a note.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Mode", rename_all = "snake_case")]
#[non_exhaustive]
pub(super) enum Noted {
    Exclusive,
    Shared,
    Permit { take: NonZeroU32, of: NonZeroU32 },
}

/// How it is held, unless it is held as a lock is.
pub(super) fn as_what(mode: Mode) -> String {
    if mode == Mode::Exclusive { String::new() } else { format!(" {mode}") }
}
