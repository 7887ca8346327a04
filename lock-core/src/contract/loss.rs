//! Why a grant ended without being released.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a grant was lost. It is serialized as [one word](Self::as_str).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LossCause {
    /// The lease expired before a renewal succeeded, by the holder's clock or the store's.
    Expired,
    /// Another claim holds the name.
    TakenOver,
    /// The grant's session or connection ended.
    SessionEnded,
    /// The store no longer knows the grant, or its upgrade: it restarted empty, failed over or was wiped.
    Forgotten,
    /// It was released by force.
    Forced,
    /// It was held for as long as [`max_hold`](crate::Lock::max_hold) allows.
    MaxHold,
}

impl LossCause {
    /// Returns the cause as one word for programs: `expired`, `taken_over`, `session_ended`, `forgotten`, `forced`,
    /// `max_hold`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::TakenOver => "taken_over",
            Self::SessionEnded => "session_ended",
            Self::Forgotten => "forgotten",
            Self::Forced => "forced",
            Self::MaxHold => "max_hold",
        }
    }

    /// The effect of the loss on the protected data, for a message.
    pub(crate) const fn consequence(self) -> &'static str {
        match self {
            // The client gave it up by itself, and no other had it before.
            Self::MaxHold => "other clients may acquire it soon",
            _ => "protected data may have changed; check it before you repeat the work",
        }
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease expired before it was renewed or released",
            Self::TakenOver => "another holder acquired it",
            Self::SessionEnded => "its session ended",
            Self::Forgotten => "the store no longer has it",
            Self::Forced => "it was released by force",
            Self::MaxHold => "it reached its maximum hold time",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_is_serialized_as_its_word() {
        use LossCause::{Expired, Forced, Forgotten, MaxHold, SessionEnded, TakenOver};
        for cause in [Expired, TakenOver, SessionEnded, Forgotten, Forced, MaxHold] {
            let json = serde_json::to_value(cause).unwrap();
            assert_eq!(json, cause.as_str());
            assert_eq!(serde_json::from_value::<LossCause>(json).unwrap(), cause);
        }
    }
}
