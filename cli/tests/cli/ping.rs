//! `tenure ping`.

use crate::stage::{Frozen, Stage, until};
use serde_json::Value;
use tenure::HolderInfo;

#[test]
fn ping_prints_times_and_capabilities() {
    let stage = Stage::new();
    let holder = stage.holder("a");
    holder.line();
    let out = stage.done(&["ping"]).expect(0).out;
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("sqlite:") && lines[0].ends_with("locks.db"), "{out}");
    assert_eq!(lines[2..4], [r#"prefix  """#, r#"table   "tenure_locks""#], "{out}");
    let first = |line: &&str| line.split_whitespace().next().unwrap_or_default().to_owned();
    let measured: Vec<String> = lines[5..9].iter().map(first).collect();
    assert_eq!(measured, ["connect", "look", "acquire", "release"], "{out}");
    assert!(lines[6..9].iter().all(|line| line.contains(" to ") && line.ends_with(" ms")), "{out}");
    let says = |what: &str, how: &str| lines.iter().any(|line| line.starts_with(what) && line.ends_with(how));
    assert!(says("first come, first served  ", "no") && says("--permits  ", "yes"), "{out}");
    assert!(says("waiters ask again at least every  ", "50ms"), "{out}");
    // Only a name of its own was touched, and that is free again.
    assert_eq!(stage.done(&["ls"]).expect(0).out.lines().count(), 2);
}

#[test]
fn ping_prints_json() {
    let stage = Stage::new();
    let url = "sqlite:locks.db?fair=true&prefix=a%20b";
    let out = stage.done(&["--store", url, "ping", "--json", "--count", "3"]).expect(0).out;
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["count"], 3);
    assert_eq!(json["namespace"], serde_json::json!({"prefix": "a b", "table": "tenure_locks"}));
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
    assert_eq!(can["succession"], 0, "beside a queue");
}

/// However many processes ask, and however long the host's name is.
#[test]
fn repeated_pings_reuse_their_names() {
    let stage = Stage::new();
    for _ in 0..3 {
        stage.done(&["ping", "--count", "2"]).expect(0);
    }
    assert_eq!(stage.rows("tenure-ping/"), 1);
}

/// As after a `ping` that was killed, or beside others.
#[test]
fn pings_do_not_wait_for_each_other() {
    let stage = Stage::new();
    let HolderInfo { host, .. } = HolderInfo::here(None);
    let name = |number: u32| format!("tenure-ping/{host}/{number}");
    let first = stage.holder(&name(0));
    first.line();
    stage.done(&["ping"]).expect(0);
    let others: Vec<String> = (1..8).map(name).collect();
    let others = stage.holder(&others.join(" "));
    others.line();
    let done = stage.done(&["ping"]).expect(69);
    assert!(done.err.contains("held by"), "{}", done.err);
}

#[test]
fn ping_fails_without_an_answer() {
    let stage = Stage::new();
    let done = stage.done(&["--store", "redis://127.0.0.1:1/", "ping"]).expect(69);
    assert_eq!(done.out, "");
    stage.done(&["ping", "--count", "0"]).expect(64);
}

/// It ends long before the lease that the URL gives, whether it is acquiring or releasing when the store freezes.
#[test]
fn ping_fails_when_the_store_freezes() {
    let stage = Stage::new();
    // Creates the table.
    stage.done(&["ls"]).expect(0);
    let url = format!("{}&lease=1h", Frozen::URL);
    let ping = stage.start(&["--store", &url, "ping", "--count", "10000"]);
    until("it is under way", || stage.rows("tenure-ping/") > 0);
    let frozen = stage.freeze();
    assert_eq!(ping.end().expect(69).out, "");
    frozen.thaw();
}
