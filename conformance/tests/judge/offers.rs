//! Clients that offer no tokens or no deadlines.

use super::{Script, found, script::NAME};
use std::time::Duration;
use tenure_conformance::judge::{Broken, Effect, History, Judge, Outcome, Stamp, What};
use tenure_core::Mode;

/// A grant with neither.
fn granted(script: &mut Script, millis: u64, client: &str, claim: &str) {
    let (name, claim, mode, label) = (NAME.to_owned(), claim.to_owned(), Mode::Exclusive, String::new());
    let (call, token, until, lease) = (0, 0, Stamp::NEVER, Duration::from_millis(300));
    script.note(millis, client, What::Granted { call, name, claim, mode, token, until, lease, label });
}

fn releases(script: &mut Script, millis: u64, client: &str, claim: &str) {
    let (claim, token) = (claim.to_owned(), 0);
    script.note(millis, client, What::Releases { claim: claim.clone(), token });
    script.note(millis, client, What::Released { claim, token, outcome: Outcome::Released });
}

#[test]
fn client_without_deadline_holds_until_it_releases() {
    for (until, expected) in [(900, vec![]), (1_100, vec![Broken::TwoHolders])] {
        let mut script = Script::default();
        granted(&mut script, 0, "a", "x");
        releases(&mut script, until, "a", "x");
        granted(&mut script, 1_000, "b", "y");
        assert_eq!(found(&script), expected);
    }
}

#[test]
fn two_holders_that_never_release_are_seen_in_the_last_note() {
    let mut script = Script::default();
    granted(&mut script, 0, "a", "x");
    granted(&mut script, 1_000, "b", "y");
    let history = script.history();
    let violations = Judge::new().judge(&history);
    assert_eq!(violations[0].to.since(violations[0].from), Duration::from_millis(1));
    let timeline = violations[0].timeline(&history).to_string();
    assert!(timeline.contains("without a deadline"), "{timeline}");
}

#[test]
fn clause_is_skipped_without_its_ability() {
    let mut script = Script::default();
    granted(&mut script, 0, "a", "x");
    releases(&mut script, 100, "a", "x");
    granted(&mut script, 200, "b", "y");
    // Early or late, by a deadline that it never told.
    script.note(9_000, "b", What::Lost { claim: "y".into(), token: 0, cause: "expired".into() });
    assert_eq!(found(&script), []);
    let not_offered = ["token (clauses T1 and U2)", "deadline (clauses L1 and L5)"];
    assert_eq!(Judge::not_offered(&script.history()), not_offered);
    assert_eq!(Judge::not_offered(&super::in_turn().history()), [""; 0]);
}

/// No token tells which of the two is older.
#[test]
fn forgotten_grant_without_token_is_excused() {
    let mut script = Script::default();
    script.asks(0, "a", None);
    granted(&mut script, 1, "a", "x");
    script.fault(20, 30, "store", "restart empty", Effect::Forgets { name: None });
    script.asks(40, "b", None);
    granted(&mut script, 41, "b", "y");
    releases(&mut script, 60, "a", "x");
    assert_eq!(found(&script), []);
}

#[test]
fn note_may_omit_token_and_deadline() {
    let line = r#"{"at":1,"client":"a","what":"granted","call":1,"name":"n","claim":"x","mode":"exclusive",
        "lease":{"secs":1,"nanos":0},"label":""}"#
        .replace('\n', "");
    let history = History::read(line.as_bytes()).expect("a note");
    assert_eq!(Judge::not_offered(&history).len(), 2);
}
