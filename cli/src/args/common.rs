//! Arguments of several subcommands: how long to wait, and values with checks.

use crate::exit;
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use tenure::{Error, HolderInfo, lease};

/// How long to wait.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct Limit {
    /// Do not wait: exit with 75 instead, or with 69 if the store is unavailable
    #[arg(long = "try", conflicts_with = "wait")]
    pub(crate) once: bool,
    /// Wait at most this long, then exit with 75, or with 69 if the store is unavailable [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = up_to_a_year, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    /// Exit with N instead of 75; with 0 and --quiet, without a message
    #[arg(long, value_name = "N", default_value_t = exit::BUSY, hide_default_value = true, value_parser = exit_code, allow_hyphen_values = true)]
    pub(crate) exit_code: u8,
}

impl Limit {
    /// How long to wait; `None` if for ever.
    pub(crate) fn longest(&self) -> Option<Duration> {
        if self.once { Some(Duration::ZERO) } else { self.wait }
    }
}

/// A whole number within these bounds.
pub(super) fn number<const LEAST: u32, const MOST: u32>(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|number| (LEAST..=MOST).contains(number)).ok_or_else(|| {
        let text = Error::excerpt(text);
        format!("{text} is not a whole number from {LEAST} to {MOST}")
    })
}

fn exit_code(text: &str) -> Result<u8, String> {
    number::<0, 255>(text).map(|code| u8::try_from(code).unwrap_or(u8::MAX))
}

pub(super) fn label(text: &str) -> Result<String, Error> {
    HolderInfo::check_label(text)
}

/// A port on localhost, or an address with a port.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let own = text.parse().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    own.or_else(|_| text.parse()).map_err(|_| {
        let text = Error::excerpt(text);
        format!("{text} is not a port; give 8089, 0.0.0.0:8089 or [::]:8089")
    })
}

pub(super) fn lease(text: &str) -> Result<Duration, String> {
    duration(text, lease::MIN_LEASE, "100ms to 365days")
}

pub(super) fn up_to_a_year(text: &str) -> Result<Duration, String> {
    duration(text, Duration::ZERO, "0s to 365days")
}

fn duration(text: &str, least: Duration, range: &str) -> Result<Duration, String> {
    let refused = |why: String| {
        let text = Error::excerpt(text);
        format!("{text} {why}; give {range}, written like 90s, 5m or 1h30m")
    };
    match humantime::parse_duration(text) {
        Ok(given) if least <= given && given <= lease::MAX_LEASE => Ok(given),
        Ok(_) => Err(refused("is out of range".to_owned())),
        Err(_) => Err(refused("is not a duration".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tenure::Name;

    proptest! {
        #[test]
        fn values_are_read_as_written(millis in 100..=31_536_000_000_u64, text in "\\PC{1,50}", port: u16) {
            let given = Duration::from_millis(millis);
            let written = humantime::format_duration(given).to_string();
            prop_assert_eq!((lease(&written), up_to_a_year(&written)), (Ok(given), Ok(given)));
            prop_assert_eq!(label(&text).unwrap(), text);
            let own = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            prop_assert_eq!((address(&port.to_string()), address(&own.to_string())), (Ok(own), Ok(own)));
        }

        #[test]
        fn other_text_is_refused(
            text in prop_oneof![any::<String>(), "-?[0-9.]{1,25}(ns|ms|s|m|h|days|years|x)?( [0-9]{1,25}h)?", "[\\[\\]0-9.:]{0,24}"],
        ) {
            let is_plain = !text.chars().any(char::is_control) && text.len() <= Name::MAX_BYTES;
            prop_assert_eq!(label(&text).is_ok(), is_plain);
            let longest = lease::MAX_LEASE;
            prop_assert!(up_to_a_year(&text).is_ok_and(|given| given <= longest) || up_to_a_year(&text).is_err());
            prop_assert!(lease(&text).is_ok_and(|given| given >= lease::MIN_LEASE) || lease(&text).is_err());
            // A refusal is one line for a terminal.
            let numbers = [number::<1, 9>(&text).err(), lease(&text).err(), up_to_a_year(&text).err()];
            for said in numbers.into_iter().chain([address(&text).err()]).flatten() {
                prop_assert!(!said.chars().any(char::is_control) && said.len() < 600, "{}", said);
            }
        }
    }
}
