//! What tenure remembers about a lock beside its key.

use crate::mode;
use std::{
    fmt,
    time::{Duration, SystemTime},
};
use tenure_core::{ClaimId, Holder, HolderInfo, Mode, Name, Token};

/// What the store is to remember of a holder, as the record keeps it: the process, the machine and the label.
pub(crate) struct Told<'a>(pub(crate) &'a HolderInfo);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HolderInfo { label, host, pid } = self.0;
        write!(f, "{pid} ")?;
        if host.contains(no_word) {
            f.write_str(&host.replace(no_word, "_"))?;
        } else {
            f.write_str(host)?;
        }
        match label {
            Some(label) => write!(f, " {label}"),
            None => Ok(()),
        }
    }
}

/// What would end the machine's name too early.
fn no_word(c: char) -> bool {
    c == ' ' || c.is_control()
}

/// A lock as the store shows it: the server's clock, the key's value and lease, and the record.
pub(crate) struct Seen<'a> {
    pub(crate) now: Duration,
    pub(crate) value: &'a str,
    /// Negative where the key has no end.
    pub(crate) left: i64,
    pub(crate) record: Option<&'a str>,
}

impl Seen<'_> {
    /// Those who hold the lock.
    pub(crate) fn holders(&self, name: &Name) -> Vec<Holder> {
        match self.value.split_once('\n') {
            Some((how, lines)) => {
                let several: Option<Vec<_>> = lines.lines().map(|line| Share::parse(how, line)).collect();
                several.map_or_else(
                    || vec![self.holder(name.clone())],
                    |shares| shares.iter().filter_map(|share| self.one_of_several(share, name)).collect(),
                )
            }
            None => vec![self.holder(name.clone())],
        }
    }

    fn one_of_several(&self, share: &Share, name: &Name) -> Option<Holder> {
        let left = share.till.checked_sub(self.now).filter(|left| !left.is_zero())?;
        let holder = Holder::of(name.clone()).mode(share.mode).left(left);
        Some(self.known(holder, &share.record))
    }

    /// The holder, as far as the store knows it. A client that is not tenure's left no record, or an older one.
    fn holder(&self, name: Name) -> Holder {
        let mut holder = Holder::of(name);
        if let Ok(left) = u64::try_from(self.left) {
            holder = holder.left(Duration::from_millis(left));
        }
        match self.record.and_then(Record::parse) {
            Some(record) if record.claim == self.value => self.known(holder, &record),
            _ => holder,
        }
    }

    fn known(&self, mut holder: Holder, record: &Record) -> Holder {
        let Record { token, claim, info } = record;
        if let Ok(claim) = claim.parse::<ClaimId>() {
            holder = holder.claim(claim, *token);
        }
        // A token is the time of its grant, unless the clock was set back.
        let since = Duration::from_micros(token.get());
        holder.info(info.clone()).since(SystemTime::UNIX_EPOCH + since, self.now.saturating_sub(since))
    }
}

/// One of several who hold a lock: `claim till token permits pid host label`, below a line that says how.
struct Share<'a> {
    mode: Mode,
    /// By the server's clock.
    till: Duration,
    record: Record<'a>,
}

impl<'a> Share<'a> {
    fn parse(how: &str, line: &'a str) -> Option<Self> {
        let mut words = line.splitn(5, ' ');
        let claim = words.next()?;
        let till = Duration::from_millis(words.next()?.parse().ok()?);
        let token = Token::new(words.next()?.parse().ok()?)?;
        let mode = mode::read(how, words.next()?.parse().ok()?)?;
        let info = info(words.next()?)?;
        Some(Self { mode, till, record: Record { token, claim, info } })
    }
}

/// `token claim pid host label`, without the last where there is no label, and with marks on further lines.
struct Record<'a> {
    token: Token,
    claim: &'a str,
    info: HolderInfo,
}

impl<'a> Record<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.lines().next()?.splitn(3, ' ');
        let token = Token::new(words.next()?.parse().ok()?)?;
        let claim = words.next()?;
        Some(Self { token, claim, info: info(words.next()?)? })
    }
}

/// `pid host label`, as [`Told`] writes it.
fn info(text: &str) -> Option<HolderInfo> {
    let mut words = text.splitn(3, ' ');
    let pid = words.next()?.parse().ok()?;
    let host = words.next()?.to_owned();
    Some(HolderInfo { label: words.next().map(str::to_owned), host, pid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holder(value: &str, record: Option<&str>) -> Holder {
        let now = Duration::from_secs(1_700_000_010);
        let [holder] = &Seen { now, value, left: 1500, record }.holders(&Name::new("a").unwrap())[..] else {
            panic!("one holder")
        };
        holder.clone()
    }

    proptest! {
        #[test]
        fn what_was_told_is_shown(label in prop::option::of("[^\\p{Cc}]{0,40}"), pid in any::<u32>()) {
            let info = HolderInfo { label, host: "host".into(), pid };
            let claim = ClaimId::new().to_string();
            let record = format!("1700000000000000 {claim} {}\n-other 1700000060", Told(&info));
            let seen = holder(&claim, Some(&record));
            prop_assert_eq!(seen.info, info);
            prop_assert_eq!(seen.token.unwrap().get(), 1_700_000_000_000_000);
            prop_assert_eq!(seen.age, Some(Duration::from_secs(10)));
            prop_assert_eq!(seen.left, Some(Duration::from_millis(1500)));
        }
    }

    #[test]
    fn a_foreign_holder_is_shown_with_what_is_known() {
        let ours = "1700000000000000 6f1c2b3a-0000-4000-8000-000000000000 7 host ";
        for record in [None, Some(ours), Some("0 -"), Some("nonsense")] {
            let seen = holder("whatever", record);
            assert_eq!((seen.claim, seen.token, seen.since), (None, None, None));
            assert_eq!(seen.left, Some(Duration::from_millis(1500)));
        }
    }
}
