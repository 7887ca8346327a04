//! A lock's record, in a second key.

use super::mode;
use std::{
    fmt,
    num::NonZeroU32,
    time::{Duration, SystemTime},
};
use tenure_core::{ClaimId, Holder, HolderInfo, Mode, Name, Token, Waiter};

/// A holder as the record keeps it: the process, the machine and the label.
pub(crate) struct HolderText<'a>(pub(crate) &'a HolderInfo);

impl fmt::Display for HolderText<'_> {
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

/// Characters that would end the machine's name too early.
fn no_word(c: char) -> bool {
    c == ' ' || c.is_control()
}

/// A lock as the store shows it: the server's clock, the key's value and lease, and the record.
pub(crate) struct SeenLock<'a> {
    pub(crate) now: Duration,
    pub(crate) value: &'a str,
    /// Negative if the key does not expire.
    pub(crate) left: i64,
    pub(crate) record: Option<&'a str>,
}

impl SeenLock<'_> {
    /// The lock's holders.
    pub(crate) fn holders(&self, name: &Name) -> Vec<Holder> {
        match self.value.split_once('\n') {
            Some((how, lines)) => {
                let several: Option<Vec<_>> =
                    lines.split('\n').map(|line| ListedHolder::parse(how, line)).collect();
                several.map_or_else(
                    || vec![self.holder(name.clone())],
                    |all| all.iter().filter_map(|one| self.one_of_several(one, name)).collect(),
                )
            }
            None => vec![self.holder(name.clone())],
        }
    }

    /// Whether tenure's own words about it cannot be read: the list of several holders, or the record. A foreign
    /// client's lock is no such list, and the record names another's claim.
    pub(crate) fn is_damaged(&self) -> bool {
        if let Some((how, lines)) = self.value.split_once('\n') {
            let is_list = mode::read(how, NonZeroU32::MIN).is_some();
            return is_list && lines.split('\n').any(|line| ListedHolder::parse(how, line).is_none());
        }
        let Some(record) = self.record else { return false };
        let mut words = record.lines().next().unwrap_or_default().splitn(3, ' ');
        match (words.next().and_then(digits), words.next()) {
            (Some(_), Some(claim)) => claim == self.value && LastGrant::parse(record).is_none(),
            _ => true,
        }
    }

    fn one_of_several(&self, one: &ListedHolder, name: &Name) -> Option<Holder> {
        let left = one.till.checked_sub(self.now).filter(|left| !left.is_zero())?;
        let holder = Holder::of(name.clone()).mode(one.mode).left(left);
        Some(self.known(holder, &one.record))
    }

    /// The holder, as far as the store knows it. A foreign client left no record, or an older one is there.
    fn holder(&self, name: Name) -> Holder {
        let mut holder = Holder::of(name);
        if let Ok(left) = u64::try_from(self.left) {
            holder = holder.left(Duration::from_millis(left));
        }
        match self.record.and_then(LastGrant::parse) {
            Some(record) if record.claim == self.value => self.known(holder, &record),
            _ => holder,
        }
    }

    fn known(&self, mut holder: Holder, record: &LastGrant) -> Holder {
        let LastGrant { token, claim, info } = record;
        if let Ok(claim) = claim.parse::<ClaimId>() {
            holder = holder.claim(claim, *token);
        }
        // A token is the time of its grant, unless the clock was set back or another program issued it.
        let since = Duration::from_micros(token.get());
        match SystemTime::UNIX_EPOCH.checked_add(since).filter(|_| since < self.now.saturating_add(AHEAD)) {
            Some(time) => holder.info(info.clone()).since(time, self.now.saturating_sub(since)),
            None => holder.info(info.clone()),
        }
    }
}

/// A waiter as the store shows it: the server's clock, its claim, when it came, and its description in the queue.
pub(crate) struct SeenWaiter<'a> {
    pub(crate) now: Duration,
    pub(crate) claim: &'a str,
    pub(crate) came: Option<Duration>,
    /// `till lease permits how`, below it `pid host label`, and below that the channel on which its client listens.
    pub(crate) known: &'a str,
}

impl SeenWaiter<'_> {
    /// The waiter. `None` if it has not shown up in time, or if the scripts could not read it either.
    pub(crate) fn waiter(&self, name: &Name) -> Option<Waiter> {
        let mut lines = self.known.splitn(3, '\n');
        let words: Vec<&str> = lines.next()?.splitn(4, ' ').collect();
        let [till, _lease, take, how] = words[..] else { return None };
        if u128::from(digits(till)?) < self.now.as_millis() {
            return None;
        }
        let take = digits(take).and_then(|take| u32::try_from(take).ok())?;
        let mode = mode::read(how, NonZeroU32::new(take)?)?;
        let mut waiter = Waiter::of(name.clone()).mode(mode).info(info(lines.next()?).unwrap_or_default());
        waiter.claim = self.claim.parse().ok();
        let came = self.came.and_then(|came| Some((came, SystemTime::UNIX_EPOCH.checked_add(came)?)));
        Some(match came {
            Some((came, since)) => waiter.since(since, self.now.saturating_sub(came)),
            None => waiter,
        })
    }
}

/// How far a token may be ahead of the clock at which it was issued: tokens still rise within one microsecond.
const AHEAD: Duration = Duration::from_secs(1);

/// One of several holders of a lock: `claim till token permits pid host label`, below a line that says how.
struct ListedHolder<'a> {
    mode: Mode,
    /// By the server's clock.
    till: Duration,
    record: LastGrant<'a>,
}

impl<'a> ListedHolder<'a> {
    fn parse(how: &str, line: &'a str) -> Option<Self> {
        let mut words = line.splitn(5, ' ');
        let claim = words.next().filter(|claim| !claim.is_empty() && !claim.contains(is_blank))?;
        // As strict as the scripts, which admit no claim beside an unreadable holder.
        let till = Duration::from_millis(words.next().filter(|till| till.len() == 13).and_then(digits)?);
        let token = Token::new(words.next().and_then(digits)?)?;
        let take = words.next().and_then(digits).and_then(|take| u32::try_from(take).ok())?;
        let mode = mode::read(how, NonZeroU32::new(take)?)?;
        let info = info(words.next()?).unwrap_or_default();
        Some(Self { mode, till, record: LastGrant { token, claim, info } })
    }
}

/// A number made only of digits.
fn digits(word: &str) -> Option<u64> {
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok())?
}

/// White space, as Lua defines it.
fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\u{b}'
}

/// `token claim pid host label`, where the label may be missing, and marks on further lines.
struct LastGrant<'a> {
    token: Token,
    claim: &'a str,
    info: HolderInfo,
}

impl<'a> LastGrant<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.lines().next()?.splitn(3, ' ');
        let token = Token::new(words.next()?.parse().ok()?)?;
        let claim = words.next()?;
        Some(Self { token, claim, info: info(words.next()?)? })
    }
}

/// `pid host label`, as [`HolderText`] writes it.
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
        let [holder] = &SeenLock { now, value, left: 1500, record }.holders(&Name::new("a").unwrap())[..]
        else {
            panic!("one holder")
        };
        holder.clone()
    }

    proptest! {
        #[test]
        fn holder_is_shown_as_written(label in prop::option::of("[^\\p{Cc}]{0,40}"), pid in any::<u32>()) {
            let info = HolderInfo { label, host: "some host".into(), pid };
            let claim = ClaimId::new().to_string();
            let record = format!("1700000000000000 {claim} {}\n-other 1700000060", HolderText(&info));
            let seen = holder(&claim, Some(&record));
            prop_assert_eq!(seen.info, HolderInfo { host: "some_host".into(), ..info });
            prop_assert_eq!(seen.token.unwrap().get(), 1_700_000_000_000_000);
            prop_assert_eq!(seen.age, Some(Duration::from_secs(10)));
            prop_assert_eq!(seen.left, Some(Duration::from_millis(1500)));
        }
    }

    #[test]
    fn key_without_expiry_has_no_end() {
        let seen = SeenLock { now: Duration::ZERO, value: "foreign", left: -1, record: None };
        assert_eq!(seen.holders(&Name::new("a").unwrap())[0].left, None);
    }

    proptest! {
        /// For any text by another program, a holder is shown, unless every line is of one whose lease has ended.
        #[test]
        fn foreign_value_is_never_shown_as_free(
            value in prop_oneof![
                any::<String>(),
                "(readers|alone|permits of [0-9]{0,11})(\n[0-9a-f-]{0,9} [0-9]{0,22} [0-9]{0,22} [0-9]{0,12} .{0,9}){0,3}",
                "readers(\n?[^\n]{0,9} (1600000000000|0|1{21}) [0-9]{1,20} [0-9]{1,10} 7 host ){0,3}",
            ],
            record in prop::option::of(prop_oneof![
                any::<String>(),
                "[0-9]{0,22} [0-9a-f-]{0,36} [0-9]{0,12} .{0,9}",
            ]),
            left in any::<i64>(),
            now in prop_oneof![any::<u64>(), Just(1_700_000_010)],
        ) {
            let now = Duration::from_secs(now);
            let holders = SeenLock { now, value: &value, left, record: record.as_deref() }.holders(&Name::new("a").unwrap());
            let over = |line: &str| {
                let words: Vec<&str> = line.splitn(5, ' ').collect();
                words.len() == 5 && !words[0].is_empty() && words[1].len() == 13 && digits(words[1]).is_some()
            };
            let is_list = value.split_once('\n').is_some_and(|(_, lines)| lines.split('\n').all(over));
            prop_assert!(is_list || !holders.is_empty());
            for holder in holders {
                prop_assert!(holder.since.is_none_or(|since| since < SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 366 * 300_000)));
            }
        }
    }

    proptest! {
        /// The list is as the scripts write it. A line that is cut short hides no holder and invents none.
        #[test]
        fn list_of_holders_is_read_as_written(
            of in 1..=u32::MAX,
            labels in prop::collection::vec(prop::option::of("[^\\p{Cc}]{0,12}"), 1..4),
            (pid, left) in (any::<u32>(), 1..10_000_u64),
            cut in any::<prop::sample::Index>(),
        ) {
            let (now, number) = (Duration::from_secs(1_700_000_010), |n| NonZeroU32::new(n).unwrap());
            for mode in [Mode::Shared, Mode::Permit { take: number(of), of: number(of) }] {
                let holder = |label: &Option<String>| {
                    let info = HolderInfo { label: label.clone(), host: "host".into(), pid };
                    Holder::of(Name::new("a").unwrap()).claim(ClaimId::new(), Token::new(7).unwrap()).mode(mode).info(info)
                };
                let holders: Vec<_> = labels.iter().map(holder).collect();
                let till = now.as_millis() + u128::from(left);
                let line = |one: &Holder| format!("{} {till} 7 {} {}", one.claim.unwrap(), mode::take(mode), HolderText(&one.info));
                let lines: Vec<_> = holders.iter().map(line).collect();
                let value = format!("{}\n{}", mode::ModeText(mode), lines.join("\n"));
                let seen = |value: &str| SeenLock { now, value, left: 1, record: None }.holders(&Name::new("a").unwrap());
                let known = |one: Holder| (one.claim, one.token, one.mode, one.info, one.left);
                let written: Vec<_> =
                    holders.into_iter().map(|one| known(one.left(Duration::from_millis(left)))).collect();
                prop_assert_eq!(seen(&value).into_iter().map(known).collect::<Vec<_>>(), written.clone());
                // Within the numbers: without the words after them, the holder is still known.
                let last = lines.last().unwrap();
                let (numbers, _) = last.match_indices(' ').nth(3).unwrap();
                let torn = &value[..value.len() - last.len() + cut.index(numbers + 1)];
                let claims: Vec<_> = seen(torn).into_iter().map(|one| one.claim).collect();
                prop_assert_eq!(claims, [None], "{}", torn);
            }
        }
    }

    #[test]
    fn unreadable_lock_is_damaged_but_a_foreign_lock_is_not() {
        let claim = ClaimId::new().to_string();
        let damaged = |value: &str, record: Option<&str>| {
            let now = Duration::from_secs(1_700_000_010);
            SeenLock { now, value, left: 1500, record }.is_damaged()
        };
        let reader = |till: &str| format!("readers\n{claim} {till} 1700000000000000 1 7 host ");
        assert!(damaged(&reader("soon"), None) && !damaged(&reader("1700000020000"), None));
        assert!(!damaged("two\nlines", None));
        let own = format!("1700000000000000 {claim} 7 host ");
        for record in [None, Some("0 -"), Some("1700000000000000 other 7 host "), Some(&*own)] {
            assert!(!damaged(&claim, record), "{record:?}");
        }
        for record in ["", "nonsense", "-1 other 7 host ", &own.replace(" 7 ", " seven ")] {
            assert!(damaged(&claim, Some(record)), "{record:?}");
        }
    }

    #[test]
    fn future_token_is_no_start_time() {
        let claim = ClaimId::new().to_string();
        for token in ["9007199254740991", "9223372036854775807"] {
            let seen = holder(&claim, Some(&format!("{token} {claim} 7 host ")));
            assert_eq!((seen.since, seen.age), (None, None));
            assert_eq!(seen.token.unwrap().to_string(), token);
        }
    }

    fn waiter(known: &str) -> Option<Waiter> {
        let (now, claim) = (Duration::from_secs(1_700_000_010), ClaimId::new().to_string());
        let came = Some(Duration::from_secs(1_700_000_000));
        let waiter = SeenWaiter { now, claim: &claim, came, known }.waiter(&Name::new("a").unwrap())?;
        assert_eq!(waiter.claim.unwrap().to_string(), claim);
        assert_eq!(waiter.age, Some(Duration::from_secs(10)));
        Some(waiter)
    }

    #[test]
    fn waiter_is_shown_until_its_place_ends() {
        let info = HolderInfo { label: Some("nightly  backup".into()), host: "host".into(), pid: 7 };
        let number = |n| NonZeroU32::new(n).unwrap();
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Permit { take: number(2), of: number(4) }] {
            let known = |till: &str| {
                let (take, how) = (mode::take(mode), mode::ModeText(mode));
                format!("{till} 30000 {take} {how}\n{}\ninbox", HolderText(&info))
            };
            let seen = waiter(&known("1700000010000")).unwrap();
            assert_eq!((seen.mode, seen.info), (mode, info.clone()));
            assert_eq!(waiter(&known("1700000009999")), None);
        }
    }

    proptest! {
        #[test]
        fn foreign_waiters_never_panic(
            known in prop_oneof![
                any::<String>(),
                "[0-9]{0,22} [0-9]{0,3} [0-9]{0,12} (alone|readers|permits of [0-9]{0,11})(\n.{0,9}){0,2}",
            ],
            claim in ".{0,3}",
            (now, came) in (any::<Duration>(), any::<Option<Duration>>()),
        ) {
            let seen = SeenWaiter { now, claim: &claim, came, known: &known }.waiter(&Name::new("a").unwrap());
            prop_assert!(seen.is_none_or(|waiter| waiter.claim.is_none() && known.contains('\n')));
        }
    }

    #[test]
    fn foreign_holder_is_shown_without_claim_and_token() {
        let ours = "1700000000000000 6f1c2b3a-0000-4000-8000-000000000000 7 host ";
        for record in [None, Some(ours), Some("0 -"), Some("nonsense")] {
            let seen = holder("whatever", record);
            assert_eq!((seen.claim, seen.token, seen.since), (None, None, None));
            assert_eq!(seen.left, Some(Duration::from_millis(1500)));
        }
    }
}
