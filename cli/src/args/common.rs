//! What several subcommands have: how long to wait, and values that are checked.

use crate::exit;
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use tenure::{HolderInfo, InvalidName, Name, lease};

/// How long to wait.
#[derive(Debug, clap::Args)]
pub(crate) struct Limit {
    /// Do not wait: exit with 75 if another holds the lock
    #[arg(long = "try", conflicts_with = "wait")]
    pub(crate) once: bool,
    /// Wait at most this long, then exit with 75 [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = up_to_a_year, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    /// Exit with N instead of 75
    #[arg(long, value_name = "N", default_value_t = exit::BUSY, hide_default_value = true)]
    pub(crate) exit_code: u8,
}

impl Limit {
    /// How long to wait; `None` if for ever.
    pub(crate) fn longest(&self) -> Option<Duration> {
        if self.once { Some(Duration::ZERO) } else { self.wait }
    }
}

pub(super) fn name(text: &str) -> Result<Name, InvalidName> {
    Name::new(text)
}

pub(super) fn label(text: &str) -> Result<String, tenure::Error> {
    HolderInfo::check_label(text)
}

/// A port of this machine's own, or of an address.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let own = text.parse().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    own.or_else(|_| text.parse()).map_err(|_| {
        let text: String = text.chars().take(40).collect();
        format!("{text:?} is no port; give 8089, 0.0.0.0:8089 or [::]:8089")
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
        let text: String = text.chars().take(40).collect();
        format!("{text:?} {why}; give {range}, written like 90s, 5m or 1h30m")
    };
    match humantime::parse_duration(text) {
        Ok(given) if least <= given && given <= lease::MAX_LEASE => Ok(given),
        Ok(_) => Err(refused("is out of range".to_owned())),
        Err(error) => Err(refused(format!("is not a duration: {error}"))),
    }
}
