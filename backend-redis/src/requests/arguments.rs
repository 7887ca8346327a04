//! How a claim and a time are written in a call.

use redis::Cmd;
use std::time::Duration;
use tenure_core::ClaimId;

/// Adds the claim as the store keeps it, without an intermediate `String`.
pub(crate) fn arg_claim(call: &mut Cmd, claim: ClaimId) -> &mut Cmd {
    call.arg(&*claim.as_uuid().hyphenated().encode_lower(&mut [0; 36]))
}

/// A time in whole milliseconds, rounded down, as Redis counts it.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
