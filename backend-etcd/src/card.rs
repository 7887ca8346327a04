//! The value of a contender's key: its mode, and the claim for people.

use serde::{Deserialize, Serialize};
use std::{
    num::NonZeroU32,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tenure_core::{Claim, HolderInfo, Mode};

/// A contender's value, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Card {
    /// `exclusive`, `shared`, or permits as `1/4`.
    mode: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    host: String,
    pid: u32,
    /// Milliseconds since 1970 by the holder's clock: etcd tells no time.
    since: u64,
}

impl Card {
    pub(crate) fn of(claim: &Claim) -> Self {
        let HolderInfo { label, host, pid } = &*claim.holder;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        Self { mode: written(claim.mode), label: label.clone(), host: host.clone(), pid: *pid, since }
    }

    /// This card in another mode.
    pub(crate) fn in_mode(&self, mode: Mode) -> Self {
        Self { mode: written(mode), ..self.clone() }
    }

    /// Reads a value; `None` if another program wrote it.
    pub(crate) fn read(value: &[u8]) -> Option<(Mode, Self)> {
        let card: Self = serde_json::from_slice(value).ok()?;
        Some((read(&card.mode)?, card))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn info(&self) -> HolderInfo {
        HolderInfo { label: self.label.clone(), host: self.host.clone(), pid: self.pid }
    }

    /// Since when, and for how long by this machine's clock, which is good enough for people.
    pub(crate) fn since(&self) -> Option<(SystemTime, Duration)> {
        let since = UNIX_EPOCH.checked_add(Duration::from_millis(self.since))?;
        Some((since, SystemTime::now().duration_since(since).unwrap_or_default()))
    }
}

fn written(mode: Mode) -> String {
    match mode {
        Mode::Permit { take, of } => format!("{take}/{of}"),
        mode => mode.as_str().to_owned(),
    }
}

fn read(text: &str) -> Option<Mode> {
    let (take, of) = match text {
        "exclusive" => return Some(Mode::Exclusive),
        "shared" => return Some(Mode::Shared),
        permits => permits.split_once('/')?,
    };
    let number = |digits: &str| digits.parse::<NonZeroU32>().ok().filter(|n| n.to_string() == digits);
    let (take, of) = (number(take)?, number(of)?);
    (take <= of).then_some(Mode::Permit { take, of })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn value_is_the_one_on_the_page() {
        let value = r#"{"mode":"1/4","label":"nightly","host":"web1","pid":4321,"since":1764442000000}"#;
        let (mode, card) = Card::read(value.as_bytes()).unwrap();
        let number = |n| NonZeroU32::new(n).unwrap();
        assert_eq!(mode, Mode::Permit { take: number(1), of: number(4) });
        assert_eq!(String::from_utf8(card.bytes()).unwrap(), value);
        assert_eq!(card.info().label.as_deref(), Some("nightly"));
    }

    proptest! {
        #[test]
        fn only_our_values_are_read(value in "\\{\"mode\":\"(exclusive|shared|[0-9+]{0,3}/[0-9]{0,3})\",\"host\":\"\",\"pid\":1,\"since\":0\\}|.{0,20}") {
            if let Some((mode, card)) = Card::read(value.as_bytes()) {
                prop_assert_eq!(card.in_mode(mode).bytes(), card.bytes());
            }
        }
    }
}
