//! `tenure latch`.

use crate::stage::Stage;
use serde_json::Value;

const LATCH: [&str; 3] = ["loaded", "--parties", "2"];

#[test]
fn latch_opens_after_the_last_count_down() {
    let stage = Stage::new();
    let count_down = |party: &str| stage.done(&[&["latch", "count-down"], &LATCH[..], &[party]].concat());
    let wait = |limit: &[&str]| stage.done(&[&["latch", "wait"], &LATCH[..], limit].concat());
    let show = || stage.done(&["latch", "show", "loaded"]);
    assert_eq!(show().expect(1).out, "");
    let waiter = stage.start(&[&["latch", "wait", "-v"], &LATCH[..], &["--wait", "10m"]].concat());
    waiter.says("tenure: waiting for latch \"loaded\": 2 of 2 parties still missing");
    assert_eq!(count_down("m1").expect(0).out, "loaded: closed, 1 of 2 parties still missing\n");
    // Which of the two names is invalid.
    assert!(count_down("").expect(64).err.contains("PARTY: invalid name"));
    // A party counts once.
    assert_eq!(count_down("m1").expect(0).out, "loaded: closed, 1 of 2 parties still missing\n");
    assert_eq!(show().expect(0).out, "loaded: closed, 1 of 2 parties still missing\n");
    let done = wait(&["--try"]).expect(75);
    assert!(done.err.contains("locks.db is closed: 1 of 2 parties"), "{}", done.err);
    let done = wait(&["--wait", "300ms", "--exit-code", "3"]).expect(3);
    assert!(done.err.contains("did not open within 300ms"), "{}", done.err);
    assert_eq!(count_down("m2").expect(0).out, "loaded: open, all 2 parties have counted down\n");
    waiter.end().expect(0);
    wait(&["--try"]).expect(0);
    wait(&["--wait", "0s"]).expect(0);
    assert!(show().expect(0).out.starts_with("loaded: open"));
    // It is no lock.
    stage.done(&["run", "loaded", "--try", "--", "true"]).expect(0);
    stage.done(&["latch", "remove", "loaded"]).expect(0);
    stage.done(&["latch", "remove", "loaded"]).expect(0);
    show().expect(1);
    wait(&["--try"]).expect(75);
}

#[test]
fn latch_show_prints_json() {
    let stage = Stage::new();
    let show = |code: i32| {
        let out = stage.done(&["latch", "show", "loaded", "--json"]).expect(code).out;
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let none = serde_json::json!({"name": "loaded", "parties": null, "counted": 0, "open": false});
    assert_eq!(show(1), none);
    stage.done(&["latch", "count-down", "loaded", "m1", "--parties", "1"]).expect(0);
    assert_eq!(show(0), serde_json::json!({"name": "loaded", "parties": 1, "counted": 1, "open": true}));
}

#[test]
fn invalid_latch_calls_are_refused() {
    let stage = Stage::new();
    stage.done(&["latch", "count-down", "loaded", "m1"]).expect(64);
    stage.done(&["latch", "count-down", "loaded", "m1", "--parties", "0"]).expect(64);
    stage.done(&["latch", "count-down", "loaded", "", "--parties", "2"]).expect(64);
    stage.done(&["latch", "count-down", "loaded", "m1", "--parties", "2"]).expect(0);
    let done = stage.done(&["latch", "wait", "loaded", "--parties", "3"]).expect(69);
    assert!(done.err.contains("2 parties") && done.err.contains("expects 3"), "{}", done.err);
}
