//! Messages of a waiting `tenure`, and options for more or fewer.

use crate::stage::{Done, Frozen, FullPipe, Running, Stage};
use nix::sys::signal::Signal;
use std::{
    fs,
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

/// As of two machines whose clocks differ.
#[test]
fn short_job_keeps_its_lock_for_at_least() {
    let stage = Stage::new();
    let job = ["run", "--try", "a", "--at-least", "12s", "--", "echo", "ran"];
    let began = Instant::now();
    assert_eq!(stage.done(&job).expect(0).out, "ran\n");
    let late = stage.done(&job).expect(75);
    assert!(
        late.out.is_empty()
            && late.err.contains("is busy")
            && late.err.contains("held by echo, for at least 12s ("),
        "{}",
        late.err
    );
    stage.done(&["wait", "a", "--wait", "1m"]).expect(0);
    // A lease is one per cent shorter for its holder than for the store.
    assert!(began.elapsed() >= Duration::from_millis(11_800), "it was free after {:?}", began.elapsed());
    // A job that fails, and one that takes longer.
    stage.done(&["run", "b", "--at-least", "1h", "--", "false"]).expect(1);
    stage.done(&["run", "b", "--try", "--", "true"]).expect(75);
    stage.done(&["release", "b", "--force"]).expect(0);
    stage.done(&["run", "b", "--at-least", "100ms", "--", "sleep", "0.2"]).expect(0);
    stage.done(&["run", "b", "--try", "--", "true"]).expect(0);
}

/// In a log, where no line can move.
#[test]
fn long_wait_is_reported_without_a_terminal() {
    let stage = Stage::new();
    let holder = stage.holder("a --label backup");
    holder.line();
    // The first line comes after 5 s, the second one after 30 s.
    let done = stage.done(&["run", "a", "--wait", "15s", "--", "true"]).expect(75);
    let lines: Vec<&str> = done.err.lines().collect();
    assert!(lines[0].starts_with("tenure: waiting for \"a\": held by backup ("), "{}", done.err);
    assert!(lines[0].contains(" for ") && lines[0].ends_with(" of its lease left"), "{}", done.err);
    assert!(lines[1].contains("within 15s"), "{}", done.err);
    let done = stage.done(&["run", "a", "--quiet", "--wait", "7s", "--", "true"]).expect(75);
    assert!(!done.err.contains("waiting for") && done.err.contains("within 7s"), "{}", done.err);
    let latch = ["latch", "wait", "loaded", "--parties", "2", "--wait", "9s"];
    let done = stage.done(&latch).expect(75);
    let lines: Vec<&str> = done.err.lines().collect();
    assert_eq!(lines[0], "tenure: waiting for latch \"loaded\": 2 of 2 parties still missing");
    assert!(lines[1].contains("did not open within 9s"), "{}", done.err);
    let done = stage.done(&[&latch[..], &["--quiet"]].concat()).expect(75);
    assert!(!done.err.contains("waiting for"), "{}", done.err);
}

#[test]
fn blocked_stderr_does_not_delay_a_waiter() {
    let stage = Stage::new();
    let holder = stage.holder("a");
    let group = holder.group();
    let full = FullPipe::new();
    let waiter = Running::start_on(full.writer(), &mut stage.tenure(&["run", "a", "--", "echo", "had it"]));
    // It wants to tell by then.
    std::thread::sleep(Duration::from_secs(6));
    group.signal(Signal::SIGTERM);
    assert_eq!(waiter.line(), "had it");
    waiter.end().expect(0);
}

#[test]
fn wait_ends_when_the_lock_is_free() {
    let stage = Stage::new();
    // Never locked.
    stage.done(&["wait", "a"]).expect(0);
    let holder = stage.holder("a --label backup");
    let group = holder.group();
    let busy = |limit: &[&str], code, said: &str| {
        let done = stage.done(&[&["wait", "a"], limit].concat()).expect(code);
        assert!(done.err.contains(said) && done.err.contains("held by backup ("), "{}", done.err);
    };
    busy(&["--try"], 75, "lock \"a\" in sqlite:");
    busy(&["--try"], 75, " is busy\n");
    busy(&["--wait", "300ms"], 75, "was not free within 300ms");
    busy(&["--wait", "0s", "--exit-code", "3"], 3, "was not free within 0s");
    stage.done(&["wait", "b", "--try"]).expect(0);
    let waiters: [&[&str]; 2] = [&[], &["--wait", "10m"]];
    let waiters = waiters.map(|limit| stage.start(&[&["wait", "a", "-v"], limit].concat()));
    for waiter in &waiters {
        waiter.says("tenure: waiting for \"a\": held by backup (");
    }
    group.signal(Signal::SIGTERM);
    for waiter in waiters {
        waiter.end().expect(0);
    }
    // It acquired nothing.
    stage.done(&["show", "a"]).expect(1);
}

/// With the codes of `run`.
#[test]
fn refused_store_ends_the_wait() {
    let stage = Stage::new();
    let refused = stage.done(&["--store", "memory:", "wait", "a"]).expect(64);
    assert!(refused.err.contains("exclude no other process"), "{}", refused.err);
    stage.done(&["--store", "sqlite:.", "wait", "a"]).expect(69);
    stage.done(&["--store", "redis://127.0.0.1:1/", "wait", "a", "--try"]).expect(69);
}

/// From the first attempt to connect on: a machine may start before its store does.
#[test]
fn unavailable_store_is_retried_until_the_wait_ends() {
    let stage = Stage::new();
    let url = "sqlite:locks.db?busy_timeout=1ms";
    let began = ["run", "a", "--wait", "10m", "--", "echo", "run"];
    let elected = ["elect", "e", "--", "echo", "elect"];
    let free = ["wait", "w"];
    let latched = ["latch", "wait", "l", "--parties", "1", "--wait", "10m"];
    for args in [&began[..], &elected, &free, &latched] {
        let _ = fs::remove_file(stage.path("locks.db"));
        let closed = stage.freeze_new();
        let waiter = stage.start(&[&["--store", url], args].concat());
        waiter.says("tenure: the store is unavailable; trying again");
        closed.thaw();
        if args[0] == "latch" {
            stage.done(&["latch", "count-down", "l", "p", "--parties", "1"]).expect(0);
        }
        waiter.end().expect(0);
    }
    fs::remove_file(stage.path("locks.db")).unwrap();
    let closed = stage.freeze_new();
    let done = stage.done(&["--store", url, "run", "a", "--wait", "300ms", "--", "true"]).expect(69);
    assert!(done.err.contains("locked for 1ms"), "{}", done.err);
    stage.done(&["--store", url, "run", "a", "--try", "--", "true"]).expect(69);
    closed.thaw();
    // Waiting helps nothing here.
    stage.done(&["--store", "sqlite:.", "run", "a", "--wait", "10m", "--", "true"]).expect(69);
    stage.done(&["--store", "sqlite:.", "elect", "a", "--", "true"]).expect(69);
}

/// It hangs up, as a server that demands TLS does.
#[test]
fn retry_shows_why_the_store_is_unavailable() {
    let (stage, server) = (Stage::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let url = format!("redis://{}/", server.local_addr().unwrap());
    thread::spawn(move || server.incoming().for_each(drop));
    let waiter = stage.start(&["--store", &url, "run", "a", "--", "true"]);
    waiter.says("possible reasons: it requires TLS");
    waiter.signal(Signal::SIGTERM);
    waiter.end().expect(143);
}

/// Its error is not taken for a free lock.
#[test]
fn failed_store_ends_the_wait() {
    let stage = Stage::new();
    let holder = stage.holder("a");
    holder.line();
    let waiter = stage.start(&["--store", "sqlite:locks.db?create_table=false", "wait", "a", "-v"]);
    waiter.says("tenure: waiting for \"a\": held by ");
    stage.drop_table();
    let done = waiter.end().expect(69);
    assert!(done.err.contains("no table tenure_locks"), "{}", done.err);
}

/// These warnings change no exit code.
#[test]
fn quiet_hides_a_release_without_an_answer() {
    let stage = Stage::new();
    let end = |name: &str, options: &[&str]| {
        let gate = stage.gate(name);
        let run = ["--store", Frozen::URL, "run", "a", "--lease", "6s", "--"];
        let script = ["sh", "-c", &format!("echo begun; read x < {name}; exit 7")];
        let run = stage.start(&[options, &run, &script].concat());
        run.line();
        let frozen = stage.freeze();
        gate.open();
        let done = run.end().expect(7);
        frozen.thaw();
        done.err
    };
    stage.done(&["run", "a", "--", "true"]).expect(0);
    let said = end("loud", &[]);
    assert!(said.contains("\"a\" may stay held until its lease expires, in at most 6s: "), "{said}");
    assert_eq!(end("quiet", &["--quiet"]), "");
}

/// A term that is lost is followed by another.
#[test]
fn quiet_hides_a_lost_term() {
    let stage = Stage::new();
    let args = ["elect", "a", "-q", "--lease", "2s", "--", "sh", "-c", "echo leads; exec sleep 1000"];
    let elect = stage.start(&args);
    elect.line();
    stage.done(&["release", "a", "--force"]).expect(0);
    assert_eq!(elect.line(), "leads");
    elect.signal(Signal::SIGTERM);
    assert_eq!(elect.end().expect(143).err, "");
}

#[test]
fn quiet_prints_only_errors() {
    let stage = Stage::new();
    let url = "redis://:hunter2@127.0.0.1:1/";
    let warned = |options: &[&str]| {
        let run = [&["--store", url, "run", "a", "--try"], options, &["--", "true"]].concat();
        let done = stage.done(&run).expect(69);
        assert!(done.err.contains("127.0.0.1:1"), "{}", done.err);
        done.err.contains("see the password")
    };
    assert!(warned(&[]) && !warned(&["--quiet"]) && !warned(&["-q"]));
    let holder = stage.holder("a");
    holder.line();
    let busy = |options: &[&str]| {
        let done = stage.done(&[&["run", "a", "-q", "--try"], options, &["--", "true"]].concat());
        (done.code, done.err.contains("is busy"))
    };
    assert_eq!(busy(&[]), (Some(75), true));
    // Cron sends no mail for it.
    assert_eq!(busy(&["--exit-code", "0"]), (Some(0), false));
}

#[test]
fn verbose_reports_success() {
    let stage = Stage::new();
    let done = stage.done(&["run", "a", "-v", "--", "true"]).expect(0);
    let (store, lines) = done.err.split_once('\n').unwrap();
    // So the log shows which locks these are, even if the user named no store.
    assert!(store.starts_with("tenure: using sqlite:"), "{}", done.err);
    assert!(store.ends_with(r#"locks.db (prefix "", table "tenure_locks")"#), "{}", done.err);
    let lines: Vec<&str> = lines.lines().collect();
    assert!(lines[0].starts_with("tenure: lock acquired lock.name=a token="), "{}", done.err);
    assert!(lines[0].contains(" lock.store=sqlite:"), "{}", done.err);
    assert!(lines[1].starts_with("tenure: lock released lock.name=a token="), "{}", done.err);
    assert_eq!(Done::of(&mut stage.tenure(&["run", "a", "--", "true"])).err, "");
    stage.done(&["run", "a", "-v", "-q", "--", "true"]).expect(64);
}

/// It holds the first of them already.
#[test]
fn waiter_for_several_names_sees_the_holder_of_the_busy_one() {
    let stage = Stage::new();
    let holder = stage.holder("b");
    holder.line();
    let waiter = stage.start(&["run", "-v", "b", "a", "--", "true"]);
    waiter.says("waiting for \"b\": held by sh (");
    assert!(!waiter.said().contains("waiting for \"a\""), "{}", waiter.said());
}
