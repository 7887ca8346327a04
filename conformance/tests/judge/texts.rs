//! Histories that any program may have written.

use proptest::prelude::*;
use serde_json::{Value, json};
use tenure_conformance::judge::{History, Judge};

/// Numbers that events have, and those at the ends.
fn number() -> impl Strategy<Value = u64> {
    let ends = prop::sample::select(vec![u64::MAX, u64::MAX - 1, 1 << 63, 1_000_000_000]);
    prop_oneof![4 => 0..9_u64, 2 => ends, 1 => any::<u64>()]
}

/// An event of any kind: it has the members of all of them.
fn event() -> impl Strategy<Value = Value> {
    let kinds = "asks elsewhere granted ended holds converted lost releases released reads writes refused looked \
                 runtime_ended closes closed fault failed_over healed leaked over";
    let kind = prop::sample::select(kinds.split_whitespace().collect::<Vec<_>>());
    let client = prop::sample::select(vec!["a", "a/1", "b", "store", ""]);
    let mode = prop::sample::select(vec![
        json!("exclusive"),
        json!("shared"),
        json!({ "permit": { "take": u32::MAX, "of": u32::MAX } }),
        json!({ "permit": { "take": 3, "of": 2 } }),
    ]);
    let outcome =
        prop::sample::select(vec![json!("released"), json!({ "lost": "expired" }), json!({ "failed": "" })]);
    let effect = prop::sample::select(vec![
        json!("none"),
        json!({ "forgets": { "name": null } }),
        json!("stops"),
        json!("kills"),
    ]);
    let small = (any::<u32>(), 0..3_u32, 0..3_u32, 0..3_u32);
    let numbers = prop::collection::vec(number(), 12);
    (kind, client, mode, outcome, effect, small, numbers).prop_map(
        |(kind, client, mode, outcome, effect, (of, begun, sure, missing), n)| {
            json!({
                "at": n[0], "client": client, "what": kind, "call": n[1], "name": "stock", "by": n[2],
                "claim": n[3].to_string(), "mode": mode, "token": n[4], "until": n[5],
                "lease": { "secs": n[6], "nanos": 7 }, "label": client, "why": "", "cause": "expired",
                "outcome": outcome, "value": n[7], "over": n[8], "greatest": n[9], "since": n[10], "of": of,
                "begun": begun, "sure": sure, "missing": missing, "fault": n[11], "kind": "killed",
                "effect": effect, "holders": "",
            })
        },
    )
}

proptest! {
    #[test]
    fn any_history_is_judged(events in prop::collection::vec(event(), 0..24), torn: prop::sample::Index) {
        let lines = events.iter().fold(String::new(), |lines, event| lines + &event.to_string() + "\n");
        let history = History::read(lines.as_bytes()).unwrap();
        for violation in Judge::new().judge(&history) {
            let _ = (violation.to_string(), violation.timeline(&history).to_string());
        }
        let mut written = Vec::new();
        history.write(&mut written).unwrap();
        prop_assert_eq!(History::read(&*written).unwrap(), history);
        // Torn within a line, it is an error.
        let part = &lines.as_bytes()[..torn.index(lines.len() + 1)];
        let is_whole = part.is_empty() || matches!(part.last(), Some(b'\n' | b'}'));
        prop_assert!(is_whole || History::read(part).is_err());
    }

    #[test]
    fn other_text_is_an_error(text in ".{1,40}|[\\[{\"a:,]{1,200}") {
        prop_assert!(History::read(text.as_bytes()).is_err());
    }
}
