//! Who holds what, for people.

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
    /// The holder's claim; `None` if a foreign client holds the name.
    pub claim: Option<ClaimId>,
    /// The grant's token; `None` if a foreign client holds the name.
    pub token: Option<Token>,
    /// How it is held.
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

/// Label, process, machine and how long already, as far as they are known: `"backup.sh" (4321@web1) for 3m 12s`.
///
/// What other programs wrote into the store does nothing to a terminal.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HolderInfo { label, host, pid } = &self.info;
        let host = host.escape_debug();
        let place = if *pid == 0 { host.to_string() } else { format!("{pid}@{host}") };
        match label {
            Some(label) if place.is_empty() => write!(f, "{label:?}")?,
            Some(label) => write!(f, "{label:?} ({place})")?,
            None if place.is_empty() => f.write_str("somebody")?,
            None => f.write_str(&place)?,
        }
        let Some(age) = self.age else { return Ok(()) };
        write!(f, " for {}", humantime::format_duration(Duration::from_secs(age.as_secs())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_in_words() {
        let name = || Name::new("a").unwrap();
        let info = |label: Option<&str>, host: &str, pid| {
            let (label, host) = (label.map(str::to_owned), host.to_owned());
            Holder::of(name()).info(HolderInfo { label, host, pid }).to_string()
        };
        assert_eq!(Holder::of(name()).to_string(), "somebody");
        assert_eq!(info(None, "web1", 4321), "4321@web1");
        assert_eq!(info(Some("backup.sh"), "", 0), r#""backup.sh""#);
        assert_eq!(info(Some("a\u{1b}[2J\u{202e}"), "b\n", 0), r#""a\u{1b}[2J\u{202e}" (b\n)"#);
        let since = Holder::of(name()).since(SystemTime::UNIX_EPOCH, Duration::from_millis(192_700));
        assert_eq!(since.to_string(), "somebody for 3m 12s");
    }
}
