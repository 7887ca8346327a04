//! `tenure ping`.

use crate::stage::Stage;
use serde_json::Value;

#[test]
fn tells_how_fast_the_store_is_and_what_it_can_do() {
    let stage = Stage::new();
    let holder = stage.holder("a");
    holder.line();
    let out = stage.done(&["ping"]).expect(0).out;
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("sqlite:") && lines[0].ends_with("locks.db"), "{out}");
    let first = |line: &&str| line.split_whitespace().next().unwrap_or_default().to_owned();
    let measured: Vec<String> = lines[2..6].iter().map(first).collect();
    assert_eq!(measured, ["connect", "look", "acquire", "release"], "{out}");
    assert!(lines[3..6].iter().all(|line| line.contains(" to ") && line.ends_with(" ms")), "{out}");
    let says = |what: &str, how: &str| lines.iter().any(|line| line.starts_with(what) && line.ends_with(how));
    assert!(says("first come, first served  ", "no") && says("--permits  ", "yes"), "{out}");
    assert!(says("they ask at least every  ", "50ms"), "{out}");
    // Only a name of its own was touched, and that is free again.
    assert_eq!(stage.done(&["ls"]).expect(0).out.lines().count(), 2);
}

#[test]
fn json_for_programs() {
    let stage = Stage::new();
    let url = "sqlite:locks.db?fair=true";
    let out = stage.done(&["--store", url, "ping", "--json", "--count", "3"]).expect(0).out;
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["count"], 3);
    assert!(json["connect_ms"].as_f64().unwrap() > 0.0, "{json}");
    for what in ["look_ms", "acquire_ms", "release_ms"] {
        let time = |which: &str| json[what][which].as_f64().unwrap();
        assert!(
            0.0 < time("min") && time("min") <= time("median") && time("median") <= time("max"),
            "{json}"
        );
    }
    let can = &json["capabilities"];
    assert_eq!((&can["term"], &can["fair"], &can["latches"]), (&"lease".into(), &true.into(), &true.into()));
}

#[test]
fn a_store_that_does_not_answer() {
    let stage = Stage::new();
    let done = stage.done(&["--store", "redis://127.0.0.1:1/", "ping"]).expect(69);
    assert_eq!(done.out, "");
    stage.done(&["ping", "--count", "0"]).expect(64);
}
