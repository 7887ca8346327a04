//! Holders of names, for people.

use crate::contract::{ClaimId, HolderInfo, Mode, Name, Token};
use serde::Serialize;
use std::{
    fmt::{self, Write},
    time::{Duration, SystemTime},
};

/// One holder of one name, as the store knows it.
///
/// Times are by the store's clock. Show them to people; never decide by them who may enter.
///
/// It is serialized with the fields of `tenure ls --json`, which `docs/cli-reference.md` explains, but without `place`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "Row")]
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

/// Label, process, machine and how long already, as far as they are known, and the mode unless it is exclusive:
/// `backup.sh (4321@web1) for 3m 12s, as a reader`.
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
        if let Some(age) = self.age {
            write!(f, " for {}", humantime::format_duration(Duration::from_secs(age.as_secs())))?;
        }
        match self.mode {
            Mode::Exclusive => Ok(()),
            Mode::Shared => f.write_str(", as a reader"),
            Mode::Permit { take, of } => write!(f, ", with {take} of {of} permits"),
        }
    }
}

/// The fields of a holder or waiter for programs: part of the command's interface.
#[derive(Serialize)]
struct Row {
    name: Name,
    label: Option<String>,
    host: Option<String>,
    pid: Option<u32>,
    mode: &'static str,
    permits: Option<Permits>,
    token: Option<Token>,
    claim: Option<ClaimId>,
    since: Option<String>,
    age_ms: Option<u64>,
    left_ms: Option<u64>,
}

/// The permits that a holder has, or a waiter wants, and how many the name has.
#[derive(Serialize)]
struct Permits {
    taken: u32,
    of: u32,
}

impl From<Holder> for Row {
    fn from(Holder { name, claim, token, mode, info, since, age, left }: Holder) -> Self {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self {
            name,
            label: info.label,
            host: Some(info.host).filter(|host| !host.is_empty()),
            pid: Some(info.pid).filter(|pid| *pid != 0),
            mode: mode.as_str(),
            permits: match mode {
                Mode::Permit { take, of } => Some(Permits { taken: take.get(), of: of.get() }),
                _ => None,
            },
            token,
            claim,
            since: since.and_then(date),
            age_ms: age.map(millis),
            left_ms: left.map(millis),
        }
    }
}

/// RFC 3339; `None` before 1970 and after the year 9999. Other programs may have written any time.
fn date(time: SystemTime) -> Option<String> {
    time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let mut text = String::new();
    write!(text, "{}", humantime::format_rfc3339_millis(time)).ok()?;
    Some(text)
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
        assert_eq!(since.mode(Mode::Shared).to_string(), "an unknown holder for 3m 12s, as a reader");
        let [take, of] = [1, 2].map(|number| std::num::NonZeroU32::new(number).unwrap());
        let permit = Holder::of(name()).mode(Mode::Permit { take, of });
        assert_eq!(permit.to_string(), "an unknown holder, with 1 of 2 permits");
    }

    #[test]
    fn serialized_holder_has_the_fields_of_ls() {
        let (name, claim) = (Name::new("a").unwrap(), ClaimId::new());
        let unknown = serde_json::to_value(Holder::of(name.clone())).unwrap();
        let null = serde_json::Value::Null;
        let expected = serde_json::json!({
            "name": "a", "label": null, "host": null, "pid": null, "mode": "exclusive", "permits": null,
            "token": null, "claim": null, "since": null, "age_ms": null, "left_ms": null,
        });
        assert_eq!(unknown, expected);
        let [take, of] = [2, 4].map(|number| std::num::NonZeroU32::new(number).unwrap());
        let info = HolderInfo { label: Some("backup".to_owned()), host: "web1".to_owned(), pid: 4321 };
        let holder = Holder::of(name.clone())
            .claim(claim, Token::MAX)
            .mode(Mode::Permit { take, of })
            .info(info)
            .since(SystemTime::UNIX_EPOCH + Duration::from_millis(1), Duration::MAX)
            .left(Duration::from_secs(2));
        let expected = serde_json::json!({
            "name": "a", "label": "backup", "host": "web1", "pid": 4321, "mode": "permit",
            "permits": { "taken": 2, "of": 4 }, "token": i64::MAX, "claim": claim.to_string(),
            "since": "1970-01-01T00:00:00.001Z", "age_ms": u64::MAX, "left_ms": 2000,
        });
        assert_eq!(serde_json::to_value(holder).unwrap(), expected);
        let before_1970 = SystemTime::UNIX_EPOCH - Duration::from_millis(1);
        let year_10000 = SystemTime::UNIX_EPOCH + Duration::from_hours(70_389_528);
        for since in [before_1970, year_10000] {
            let holder = Holder::of(name.clone()).since(since, Duration::ZERO);
            assert_eq!(serde_json::to_value(holder).unwrap()["since"], null);
        }
    }
}
