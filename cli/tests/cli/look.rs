//! `tenure ls`, `show` and `release`.

use crate::stage::{Done, Running, Stage, until};
use nix::sys::signal::Signal;
use std::process::Stdio;

fn hold(stage: &Stage, name: &str, label: &str) -> Running {
    let holder = stage.start(&["run", name, "--label", label, "--", "sh", "-c", "echo $$; exec sleep 1000"]);
    holder.line();
    holder
}

#[test]
fn empty_store_lists_nothing() {
    let stage = Stage::new();
    let done = stage.done(&["ls"]).expect(0);
    assert_eq!((done.out.as_str(), done.err.as_str()), ("", ""));
    assert_eq!(stage.done(&["ls", "--json"]).expect(0).out, "[]\n");
    assert_eq!(stage.done(&["show", "a"]).expect(1).out, "");
    assert_eq!(stage.done(&["show", "a", "--json"]).expect(1).out, "[]\n");
    stage.done(&["release", "a", "--force"]).expect(1);
}

#[test]
fn ls_prints_a_table() {
    let stage = Stage::new();
    let _holders =
        [hold(&stage, "jobs/b", "second"), hold(&stage, "jobs/a", "first"), hold(&stage, "other é", "")];
    let table = stage.done(&["ls"]).expect(0).out;
    let lines: Vec<&str> = table.lines().collect();
    let columns = ["NAME", "MODE", "LABEL", "PROCESS", "TOKEN", "SINCE", "LEFT"];
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), columns);
    let names: Vec<&str> = lines[1..].iter().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(names, ["jobs/a", "jobs/b", "other é"]);
    let at = |line: &str, text: &str| line.find(text).map(|byte| line[..byte].chars().count());
    for (line, label) in [(lines[1], "first"), (lines[2], "second")] {
        assert_eq!(at(line, label), at(lines[0], "LABEL"), "aligned:\n{table}");
        assert_eq!(line, line.trim_end());
    }
    assert_eq!(stage.done(&["ls", "jobs/"]).expect(0).out.lines().count(), 3);
    assert_eq!(stage.done(&["ls", "jobs/c"]).expect(0).out, "");
    assert_eq!(stage.done(&["show", "jobs/a"]).expect(0).out.lines().count(), 2);
    stage.done(&["show", "jobs"]).expect(1);
}

#[test]
fn ls_prints_json() {
    let stage = Stage::new();
    let holder = stage.script("a --label x", "echo $TENURE_TOKEN; exec sleep 1000");
    let token: u64 = holder.number();
    for args in [&["ls", "--json"][..], &["show", "a", "--json"]] {
        let out = stage.done(args).expect(0).out;
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        let row = &json[0];
        assert_eq!(json.as_array().unwrap().len(), 1);
        let mut fields: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        let all = [
            "age_ms", "claim", "host", "label", "left_ms", "mode", "name", "permits", "pid", "place",
            "since", "token",
        ];
        assert_eq!(fields, all);
        assert_eq!((&row["name"], &row["label"]), (&"a".into(), &"x".into()));
        assert_eq!((&row["mode"], &row["token"]), (&"exclusive".into(), &token.into()));
        assert!(row["permits"].is_null() && row["place"].is_null());
        assert_eq!(row["pid"], holder.pid().as_raw());
        assert!(row["left_ms"].as_u64().unwrap() <= 30_000 && row["age_ms"].as_u64().unwrap() < 60_000);
        assert!(row["since"].as_str().unwrap().ends_with('Z') && row["claim"].as_str().unwrap().len() == 36);
    }
}

#[test]
fn ls_shows_the_mode() {
    let stage = Stage::new();
    let _holders = ["a", "b --shared", "c --permits 4"].map(|options| {
        let holder = stage.holder(options);
        holder.line();
        holder
    });
    let table = stage.done(&["ls"]).expect(0).out;
    let modes: Vec<&str> = table
        .lines()
        .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).nth(1).unwrap().trim())
        .collect();
    assert_eq!(modes, ["MODE", "exclusive", "shared", "1 of 4"], "{table}");
    let json: serde_json::Value = serde_json::from_str(&stage.done(&["ls", "--json"]).expect(0).out).unwrap();
    let held: Vec<_> =
        (0..3).map(|at| (json[at]["mode"].as_str().unwrap(), json[at]["permits"].clone())).collect();
    let permits = serde_json::json!({"taken": 1, "of": 4});
    let null = serde_json::Value::Null;
    assert_eq!(held, [("exclusive", null.clone()), ("shared", null), ("permit", permits)]);
}

/// In a store with a queue.
fn fair<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["--store", "sqlite:locks.db?fair=true"][..], args].concat()
}

#[test]
fn ls_lists_waiters_in_order() {
    let stage = Stage::new();
    let listed = || stage.done(&fair(&["ls", "--waiting"])).expect(0).out;
    let run = |options: &[&str]| {
        let script = ["--", "sh", "-c", "echo $$; exec sleep 1000"];
        stage.start(&fair(&[&["run", "a"], options, &script].concat()))
    };
    assert_eq!(listed(), "");
    stage.done(&fair(&["show", "a", "--waiting"])).expect(1);
    let holder = run(&["--label", "first"]);
    holder.line();
    let second = run(&["--label", "second"]);
    until("the second waits", || listed().lines().count() == 3);
    let third = run(&["--label", "third", "--shared"]);
    until("the third waits", || listed().lines().count() == 4);
    let table = listed();
    let rows: Vec<String> =
        table.lines().map(|line| line.split_whitespace().take(4).collect::<Vec<_>>().join(" ")).collect();
    let expected =
        ["NAME PLACE MODE LABEL", "a holds exclusive first", "a 1 exclusive second", "a 2 shared third"];
    assert_eq!(rows, expected, "{table}");
    assert_eq!(stage.done(&fair(&["ls"])).expect(0).out.lines().count(), 2);
    for args in [&["ls", "--waiting", "--json"][..], &["show", "a", "--waiting", "--json"]] {
        let json: serde_json::Value = serde_json::from_str(&stage.done(&fair(args)).expect(0).out).unwrap();
        let places: Vec<_> = (0..3).map(|at| json[at]["place"].as_u64()).collect();
        assert_eq!((places, json.as_array().unwrap().len()), (vec![None, Some(1), Some(2)], 3));
        assert_eq!(json[1]["pid"], second.pid().as_raw());
        assert_eq!(json[2]["pid"], third.pid().as_raw());
        assert!(json[1]["token"].is_null() && json[1]["left_ms"].is_null(), "{json}");
        assert!(json[1]["claim"].is_string(), "{json}");
        assert!(json[1]["since"].as_str().unwrap().ends_with('Z') && json[1]["age_ms"].is_u64(), "{json}");
    }
    second.signal(Signal::SIGTERM);
    second.end().expect(143);
    until("the third alone waits", || listed().lines().nth(2).is_some_and(|row| row.contains("third")));
}

#[test]
fn ls_continues_after_a_damaged_name() {
    let stage = Stage::new();
    let listed = || stage.done(&fair(&["ls", "--waiting"])).expect(0);
    let run = |label: &str| {
        stage.start(&fair(&["run", "b", "--label", label, "--", "sh", "-c", "echo $$; exec sleep 1000"]))
    };
    let damaged: Vec<String> = (0..12).map(|number| format!("a{number:02}")).collect();
    for name in &damaged {
        stage.done(&fair(&["run", name.as_str(), "--", "true"])).expect(0);
    }
    let holder = run("first");
    holder.line();
    let _waiter = run("second");
    until("the second waits", || listed().out.lines().count() == 3);
    for name in &damaged {
        stage.damage(name);
    }
    let done = listed();
    let rows: Vec<String> =
        done.out.lines().map(|line| line.split_whitespace().take(4).collect::<Vec<_>>().join(" ")).collect();
    let unknown = damaged.iter().map(|name| format!("{name} holds exclusive -"));
    let known = ["b holds exclusive first", "b 1 exclusive second"].map(str::to_owned);
    assert_eq!(rows[1..], unknown.chain(known).collect::<Vec<_>>(), "{}", done.out);
    // In so many lines, however many there are.
    let told = |line: &&str| line.starts_with("tenure: cannot list the waiters for ");
    let told: Vec<&str> = done.err.lines().filter(told).collect();
    let why =
        "tenure: cannot list the waiters for \"a00\": the row of \"a00\" is damaged or from another program";
    assert!(told[0].starts_with(why), "{}", done.err);
    assert_eq!(
        (told.len(), told[10]),
        (11, "tenure: cannot list the waiters for 2 more names"),
        "{}",
        done.err
    );
    assert_eq!(stage.done(&fair(&["ls", "--waiting", "--quiet"])).expect(0).err, "");
    // Nothing else is known of one name alone.
    stage.done(&fair(&["show", "a00", "--waiting"])).expect(69);
}

#[test]
fn ls_waiting_needs_a_queue() {
    let stage = Stage::new();
    for args in [&["ls", "--waiting"][..], &["show", "a", "--waiting"]] {
        let refused = stage.done(args).expect(69);
        assert!(refused.err.contains("does not support listing waiters"), "{}", refused.err);
        assert!(refused.err.contains("fair=true") && refused.out.is_empty(), "{}", refused.err);
    }
}

/// It draws on a terminal: see `terminal`.
#[test]
fn ls_watch_needs_a_terminal() {
    let stage = Stage::new();
    let done = stage.done(&["ls", "--watch"]).expect(64);
    assert!(done.err.contains("--json") && done.out.is_empty(), "{}", done.err);
    stage.done(&["ls", "--watch", "--json"]).expect(64);
}

#[test]
fn release_needs_force_and_names_the_holder() {
    let stage = Stage::new();
    let free = stage.done(&["release", "a"]).expect(1);
    assert!(free.err.contains("is free"), "{}", free.err);
    let holder = hold(&stage, "a", "the holder");
    let done = stage.done(&["release", "a"]).expect(64);
    assert!(done.err.contains("--force") && done.err.contains("held by the holder"), "{}", done.err);
    stage.done(&["show", "a"]).expect(0);
    let done = stage.done(&["release", "a", "--force"]).expect(0);
    let who = format!("a: released by force; was held by the holder ({}@", holder.pid());
    assert!(done.out.starts_with(&who) && done.out.contains(", token "), "{}", done.out);
    stage.done(&["show", "a"]).expect(1);
    holder.signal(Signal::SIGKILL);
}

#[test]
fn closed_pipe_is_not_a_failure() {
    let stage = Stage::new();
    let _holder = hold(&stage, "a", "x");
    let mut tenure = stage.tenure(&["ls"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let done = Done::of(tenure.stdout(Stdio::from(writer)).stderr(Stdio::piped()));
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
}
