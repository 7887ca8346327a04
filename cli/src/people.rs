//! How holders and waiters are shown to people and programs.

use comfy_table::{Table, presets};
use serde::Serialize;
use std::{
    fmt::Write as _,
    time::{Duration, SystemTime},
};
use tenure::{Holder, Mode, Waiter};

/// A holder or waiter: one line of a list.
pub(crate) struct Entry {
    /// A waiter's place in the queue, from 1.
    place: Option<usize>,
    /// The known facts. A waiter has neither a token nor a lease.
    who: Holder,
}

impl Entry {
    /// The holders of a name, and behind them its waiters.
    pub(crate) fn all(holders: &[Holder], waiters: Vec<Waiter>) -> Vec<Self> {
        let holders = holders.iter().map(|holder| Self { place: None, who: holder.clone() });
        let waiters = (1..).zip(waiters);
        let waiters = waiters.map(|(place, waiter)| Self { place: Some(place), who: waiter.into() });
        holders.chain(waiters).collect()
    }

    pub(crate) fn is_holder(&self) -> bool {
        self.place.is_none()
    }
}

/// `pid@host`, as far as known.
fn process(holder: &Holder) -> String {
    let host = plain(&holder.info.host);
    if holder.info.pid == 0 { host } else { format!("{}@{host}", holder.info.pid) }
}

/// A duration in whole seconds: `3m 12s`.
pub(crate) fn span(duration: Duration) -> String {
    humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string()
}

/// Formats a time; `None` before 1970 and after the year 9999. Foreign clients may have written any time.
fn date(time: SystemTime) -> Option<String> {
    time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let mut text = String::new();
    write!(text, "{}", humantime::format_rfc3339_seconds(time)).ok()?;
    Some(text)
}

/// Makes a text safe for a terminal: escapes control characters and characters that change the direction of writing.
/// Foreign clients may have written anything.
pub(crate) fn plain(text: &str) -> String {
    let escape = |c: char| if harmless(c) { c.to_string() } else { c.escape_unicode().to_string() };
    text.chars().map(escape).collect()
}

fn harmless(c: char) -> bool {
    !(c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
}

/// How a name is held: `exclusive`, `shared`, `2 of 4`.
fn mode(mode: Mode) -> String {
    match mode {
        Mode::Permit { take, of } => format!("{take} of {of}"),
        mode => mode.as_str().to_owned(),
    }
}

/// A table for people, with the columns NAME, MODE, LABEL, PROCESS, TOKEN, SINCE and LEFT. With waiters, PLACE follows
/// NAME. Empty if there are no entries.
pub(crate) fn table(entries: &[Entry], waiting: bool) -> String {
    if entries.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut header = vec!["NAME", "MODE", "LABEL", "PROCESS", "TOKEN", "SINCE", "LEFT"];
    if waiting {
        header.insert(1, "PLACE");
    }
    table.set_header(header);
    for Entry { place, who } in entries {
        let unknown = || "-".to_owned();
        let mut row = vec![
            plain(&who.name),
            mode(who.mode),
            who.info.label.as_deref().map_or_else(unknown, plain),
            Some(process(who)).filter(|process| !process.is_empty()).unwrap_or_else(unknown),
            who.token.map_or_else(unknown, |token| token.to_string()),
            who.since.and_then(date).unwrap_or_else(unknown),
            who.left.map_or_else(unknown, span),
        ];
        if waiting {
            row.insert(1, place.map_or_else(|| "holds".to_owned(), |place| place.to_string()));
        }
        table.add_row(row);
    }
    shown(table)
}

/// Rows in aligned columns, without a header.
pub(crate) fn aligned<const N: usize>(rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for row in rows {
        table.add_row(row);
    }
    shown(table)
}

/// The columns side by side, two spaces apart.
pub(crate) fn shown(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt() + "\n"
}

/// One holder or waiter in JSON. Its fields are part of the command's interface: see `docs/cli-reference.md`.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    who: &'a Holder,
    place: Option<usize>,
}

/// A JSON array for programs, one object per line, without control characters.
pub(crate) fn json(entries: &[Entry]) -> String {
    let rows: Vec<String> = entries.iter().map(json_row).collect();
    if rows.is_empty() { "[]\n".to_owned() } else { format!("[\n{}\n]\n", rows.join(",\n")) }
}

fn json_row(Entry { place, who }: &Entry) -> String {
    let row = Row { who, place: *place };
    let json =
        serde_json::to_string(&row).unwrap_or_else(|error| unreachable!("strings and numbers: {error}"));
    // serde_json escapes ASCII control characters except DEL, but none beyond ASCII.
    json.chars()
        .map(|c| if c.is_control() { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, option, prelude::*};
    use std::num::NonZeroU32;
    use tenure::{ClaimId, HolderInfo, Name, Token};

    fn entry(who: Holder) -> [Entry; 1] {
        [Entry { place: None, who }]
    }

    #[test]
    fn unprintable_time_is_a_dash() {
        let year_10000 = SystemTime::UNIX_EPOCH + Duration::from_hours(70_389_528);
        let before_1970 = SystemTime::UNIX_EPOCH - Duration::from_millis(1);
        for since in [year_10000, before_1970] {
            let holder = Holder::of(tenure::Name::new("report").unwrap())
                .since(since, Duration::MAX)
                .left(Duration::MAX);
            let holder = entry(holder);
            let shown = table(&holder, false);
            let row: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
            assert_eq!(row[..6], ["report", "exclusive", "-", "-", "-", "-"], "{shown}");
            let row: serde_json::Value = serde_json::from_str(&json(&holder)).unwrap();
            assert!(row[0]["since"].is_null(), "{row}");
        }
        let last = Holder::of(tenure::Name::new("report").unwrap())
            .since(year_10000 - Duration::from_millis(1), Duration::ZERO);
        let last = entry(last);
        assert!(table(&last, false).contains("9999-12-31T23:59:59Z"));
        assert!(json(&last).contains("9999-12-31T23:59:59.999Z"));
    }

    /// The first second of the year 10000, after the beginning of 1970.
    const YEAR_10000: u64 = 253_402_300_800;

    /// Any time that the system knows, and as often as not one that can be shown.
    fn times() -> impl Strategy<Value = Option<SystemTime>> {
        let seconds = prop_oneof![0..YEAR_10000, any::<u64>()];
        (any::<bool>(), seconds, 0..1_000_000_000_u32).prop_map(|(later, seconds, nanos)| {
            let (epoch, away) = (SystemTime::UNIX_EPOCH, Duration::new(seconds, nanos));
            if later { epoch.checked_add(away) } else { epoch.checked_sub(away) }
        })
    }

    fn texts() -> impl Strategy<Value = String> {
        vec(any::<char>(), 0..20).prop_map(String::from_iter)
    }

    prop_compose! {
        /// Any holder that a store can report: another program may have written it.
        fn holders()(
            name in texts().prop_filter_map("no name", |text| Name::new(text).ok()),
            (label, host, pid) in (option::of(texts()), texts(), any::<u32>()),
            claim in option::of(any::<u128>()),
            token in any::<u64>(),
            permits in option::of((any::<NonZeroU32>(), any::<NonZeroU32>())),
            since in times(),
            (age, left) in (any::<Option<Duration>>(), any::<Option<Duration>>()),
        ) -> Holder {
            let mut holder = Holder::of(name).info(HolderInfo { label, host, pid });
            holder.claim = claim.map(|id| format!("{id:032x}").parse::<ClaimId>().unwrap());
            holder.token = Token::new(token);
            holder.mode = permits.map_or(Mode::Shared, |(take, of)| Mode::Permit { take, of });
            (holder.since, holder.age, holder.left) = (since, age, left);
            holder
        }
    }

    /// Whether a date has a form.
    fn can_be_shown(since: SystemTime) -> bool {
        since.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|after| after.as_secs() < YEAR_10000)
    }

    proptest! {
        #[test]
        fn every_entry_has_a_row(
            entries in vec((option::of(any::<usize>()), holders()), 0..4),
            waiting in any::<bool>(),
        ) {
            let entries: Vec<Entry> = entries.into_iter().map(|(place, who)| Entry { place, who }).collect();
            let shown = table(&entries, waiting);
            let rows: Vec<&str> = shown.lines().skip(1).collect();
            prop_assert_eq!(rows.len(), entries.len(), "{}", shown);
            prop_assert!(shown.chars().all(|c| c == '\n' || harmless(c)), "{:?}", shown);
            let json: Vec<serde_json::Value> = serde_json::from_str(&json(&entries)).unwrap();
            prop_assert_eq!(json.len(), entries.len());
            for ((Entry { place, who: holder }, row), fields) in entries.iter().zip(rows).zip(json) {
                prop_assert_eq!(&fields["place"], &serde_json::Value::from(*place));
                let claim = holder.claim.map(|claim| claim.to_string());
                prop_assert_eq!(fields["claim"].as_str(), claim.as_deref());
                prop_assert!(holder.to_string().chars().all(harmless));
                // From the right, where no text is.
                let cells: Vec<&str> = row.rsplit("  ").filter(|cell| !cell.is_empty()).take(2).collect();
                let dated = holder.since.is_some_and(can_be_shown);
                prop_assert_eq!(cells[0].trim() == "-", holder.left.is_none(), "{}", row);
                prop_assert_eq!(cells[1].trim() == "-", !dated, "{}", row);
                prop_assert_eq!(row.contains(&mode(holder.mode)), true, "{}", row);
                prop_assert_eq!(fields["permits"].is_object(), fields["mode"] == "permit", "{}", fields);
                prop_assert_eq!(fields["since"].is_string(), dated, "{}", fields);
                prop_assert_eq!(&fields["name"], holder.name.as_str());
                prop_assert_eq!(fields["label"].as_str(), holder.info.label.as_deref());
            }
        }
    }
}
