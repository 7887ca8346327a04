//! The ranges of options that several databases have.

use std::time::Duration;
use tenure_core::{Error, Name};

pub(crate) fn check_prefix(prefix: String) -> Result<String, Error> {
    if prefix.len() <= Name::MAX_BYTES && !prefix.chars().any(char::is_control) {
        return Ok(prefix);
    }
    let given = format!("{:?}", prefix.chars().take(40).collect::<String>());
    Err(Error::invalid_option("prefix", given, "at most 200 bytes of UTF-8 without control characters"))
}

pub(crate) fn check_range(option: &'static str, given: Duration, most: Duration) -> Result<Duration, Error> {
    let least = Duration::from_millis(1);
    if (least..=most).contains(&given) {
        return Ok(given);
    }
    Err(Error::invalid_option(option, format!("{given:?}"), format!("{least:?} to {most:?}")))
}

/// Over how many connections names are spread.
#[cfg(feature = "_server")]
pub(crate) fn check_connections(given: usize) -> Result<usize, Error> {
    if (1..=64).contains(&given) {
        return Ok(given);
    }
    Err(Error::invalid_option("connections", given.to_string(), "1 to 64"))
}
