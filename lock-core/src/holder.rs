//! Holders of names, for people.

use crate::{ClaimId, HolderInfo, Mode, Name, Token};
use std::{
    fmt,
    time::{Duration, SystemTime},
};

/// One holder of one name, as the store knows it.
///
/// Times are by the store's clock. Show them to people; never decide by them who may enter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The name that is held.
    pub name: Name,
    /// The holder's claim; `None` if a foreign client holds the name, or if its record cannot be read.
    pub claim: Option<ClaimId>,
    /// The grant's token; `None` where `claim` is.
    pub token: Option<Token>,
    /// How it is held; exclusively if nothing is known of it.
    pub mode: Mode,
    /// The holder's label, machine and process.
    pub info: HolderInfo,
    /// Since when it is held, by the store's clock.
    pub since: Option<SystemTime>,
    /// How long it has been held, by the store's clock.
    pub age: Option<Duration>,
    /// How much of the lease is left, by the store's clock; `None` if a session keeps the grant.
    pub left: Option<Duration>,
}

impl Holder {
    /// Makes a holder of `name` with everything else unknown.
    #[must_use]
    pub fn of(name: Name) -> Self {
        let (claim, token, mode) = (None, None, Mode::default());
        Self { name, claim, token, mode, info: HolderInfo::default(), since: None, age: None, left: None }
    }

    /// Sets the claim and its token.
    #[must_use]
    pub fn claim(mut self, claim: ClaimId, token: Token) -> Self {
        (self.claim, self.token) = (Some(claim), Some(token));
        self
    }

    /// Sets the mode.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets label, machine and process.
    #[must_use]
    pub fn info(mut self, info: HolderInfo) -> Self {
        self.info = info;
        self
    }

    /// Sets since when and for how long it is held, both by the store's clock.
    #[must_use]
    pub fn since(mut self, since: SystemTime, age: Duration) -> Self {
        (self.since, self.age) = (Some(since), Some(age));
        self
    }

    /// Sets how much of the lease is left, by the store's clock.
    #[must_use]
    pub fn left(mut self, left: Duration) -> Self {
        self.left = Some(left);
        self
    }
}

/// Label, process, machine and how long already, as far as they are known: `backup.sh (4321@web1) for 3m 12s`.
///
/// Other programs may have written anything into the store, so control characters are escaped.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HolderInfo { label, host, pid } = &self.info;
        let host = plain(host);
        let place = if *pid == 0 { host } else { format!("{pid}@{host}") };
        match label {
            Some(label) if place.is_empty() => f.write_str(&plain(label))?,
            Some(label) => write!(f, "{} ({place})", plain(label))?,
            None if place.is_empty() => f.write_str("an unknown holder")?,
            None => f.write_str(&place)?,
        }
        let Some(age) = self.age else { return Ok(()) };
        write!(f, " for {}", humantime::format_duration(Duration::from_secs(age.as_secs())))
    }
}

/// Without control characters, and without those that turn the direction of writing.
fn plain(text: &str) -> String {
    let turns = |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let escape =
        |c: char| if c.is_control() || turns(c) { c.escape_unicode().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_display_names_label_process_and_age() {
        let name = || Name::new("a").unwrap();
        let info = |label: Option<&str>, host: &str, pid| {
            let (label, host) = (label.map(str::to_owned), host.to_owned());
            Holder::of(name()).info(HolderInfo { label, host, pid }).to_string()
        };
        assert_eq!(Holder::of(name()).to_string(), "an unknown holder");
        assert_eq!(info(None, "web1", 4321), "4321@web1");
        assert_eq!(info(Some("backup.sh"), "", 0), "backup.sh");
        assert_eq!(info(Some("a\u{1b}[2J\u{202e}"), "b\n", 0), r"a\u{1b}[2J\u{202e} (b\u{a})");
        let since = Holder::of(name()).since(SystemTime::UNIX_EPOCH, Duration::from_millis(192_700));
        assert_eq!(since.to_string(), "an unknown holder for 3m 12s");
    }
}
