//! How holders are shown to people and programs.

use comfy_table::{Table, presets};
use serde::Serialize;
use std::{
    fmt::{Display, Write as _},
    time::{Duration, SystemTime},
};
use tenure::{Holder, Mode};

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
fn date<F: Display>(time: SystemTime, form: impl FnOnce(SystemTime) -> F) -> Option<String> {
    time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let mut text = String::new();
    write!(text, "{}", form(time)).ok()?;
    Some(text)
}

/// Makes a text safe for a terminal: escapes control characters and those that change the direction of writing. Foreign
/// clients may have written anything.
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
        mode => mode_name(mode).to_owned(),
    }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Permit { .. } => "permit",
        _ => "other",
    }
}

/// A table for people, with the columns NAME, MODE, LABEL, HOLDER, TOKEN, SINCE and LEFT. Empty if there are no holders.
pub(crate) fn table(holders: &[Holder]) -> String {
    if holders.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["NAME", "MODE", "LABEL", "HOLDER", "TOKEN", "SINCE", "LEFT"]);
    for holder in holders {
        let unknown = || "-".to_owned();
        table.add_row([
            plain(&holder.name),
            mode(holder.mode),
            holder.info.label.as_deref().map_or_else(unknown, plain),
            Some(process(holder)).filter(|process| !process.is_empty()).unwrap_or_else(unknown),
            holder.token.map_or_else(unknown, |token| token.to_string()),
            holder
                .since
                .and_then(|since| date(since, humantime::format_rfc3339_seconds))
                .unwrap_or_else(unknown),
            holder.left.map_or_else(unknown, span),
        ]);
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

/// One holder in JSON. Its fields are part of the command's interface: see `docs/cli.md`.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    label: Option<&'a str>,
    host: Option<&'a str>,
    pid: Option<u32>,
    mode: &'static str,
    permits: Option<Permits>,
    token: Option<u64>,
    claim: Option<String>,
    since: Option<String>,
    age_ms: Option<u64>,
    left_ms: Option<u64>,
}

/// The permits that a holder has, and how many the name has.
#[derive(Serialize)]
struct Permits {
    taken: u32,
    of: u32,
}

/// A JSON array for programs, one object per line, without control characters.
pub(crate) fn json(holders: &[Holder]) -> String {
    let rows: Vec<String> = holders.iter().map(json_row).collect();
    if rows.is_empty() { "[]\n".to_owned() } else { format!("[\n{}\n]\n", rows.join(",\n")) }
}

fn json_row(holder: &Holder) -> String {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let row = Row {
        name: &holder.name,
        label: holder.info.label.as_deref(),
        host: Some(&*holder.info.host).filter(|host| !host.is_empty()),
        pid: Some(holder.info.pid).filter(|pid| *pid != 0),
        mode: mode_name(holder.mode),
        permits: match holder.mode {
            Mode::Permit { take, of } => Some(Permits { taken: take.get(), of: of.get() }),
            _ => None,
        },
        token: holder.token.map(tenure::Token::get),
        claim: holder.claim.map(|claim| claim.to_string()),
        since: holder.since.and_then(|since| date(since, humantime::format_rfc3339_millis)),
        age_ms: holder.age.map(millis),
        left_ms: holder.left.map(millis),
    };
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

    #[test]
    fn a_time_that_cannot_be_shown_is_a_dash() {
        let year_10000 = SystemTime::UNIX_EPOCH + Duration::from_hours(70_389_528);
        let before_1970 = SystemTime::UNIX_EPOCH - Duration::from_millis(1);
        for since in [year_10000, before_1970] {
            let holder = Holder::of(tenure::Name::new("report").unwrap())
                .since(since, Duration::MAX)
                .left(Duration::MAX);
            let shown = table(std::slice::from_ref(&holder));
            let row: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
            assert_eq!(row[..6], ["report", "exclusive", "-", "-", "-", "-"], "{shown}");
            let row: serde_json::Value = serde_json::from_str(&json(&[holder])).unwrap();
            assert!(row[0]["since"].is_null(), "{row}");
        }
        let last = Holder::of(tenure::Name::new("report").unwrap())
            .since(year_10000 - Duration::from_millis(1), Duration::ZERO);
        assert!(table(std::slice::from_ref(&last)).contains("9999-12-31T23:59:59Z"));
        assert!(json(&[last]).contains("9999-12-31T23:59:59.999Z"));
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
        /// Whatever a store can say of a holder, which anybody may have written.
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
        fn whoever_holds_it_has_a_row(holders in vec(holders(), 0..4)) {
            let shown = table(&holders);
            let rows: Vec<&str> = shown.lines().skip(1).collect();
            prop_assert_eq!(rows.len(), holders.len(), "{}", shown);
            prop_assert!(shown.chars().all(|c| c == '\n' || harmless(c)), "{:?}", shown);
            let json: Vec<serde_json::Value> = serde_json::from_str(&json(&holders)).unwrap();
            prop_assert_eq!(json.len(), holders.len());
            for ((holder, row), fields) in holders.iter().zip(rows).zip(json) {
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
