//! A lock that is lost ends its command, and a `tenure run` that is killed takes its command along.

use crate::stage::{Stage, status, until};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::time::{Duration, Instant};

fn force(stage: &Stage) {
    stage.done(&["release", "a", "--force"]).expect(0);
}

/// Also what ignores SIGTERM, also what the command has started, also when the command itself is gone by then.
#[test]
fn loss_kills_the_group_after_kill_after() {
    let stage = Stage::new();
    let commands = [
        "trap '' TERM; sleep 1000 & echo $$; while :; do sleep 1000; done",
        "(trap '' TERM; echo deaf; while :; do sleep 1000; done) & read x < gate",
    ];
    let _stays_closed = stage.gate("gate");
    for command in commands {
        let run = stage.script("a --lease 3s --kill-after 300ms", command);
        run.line();
        let before = Instant::now();
        force(&stage);
        run.silence();
        assert!(before.elapsed() >= Duration::from_millis(300), "killed before its time");
        run.end().expect(79);
    }
}

#[test]
fn loss_ends_a_stopped_command() {
    let stage = Stage::new();
    let run = stage.holder("a --lease 3s --kill-after 10m");
    run.group().signal(Signal::SIGSTOP);
    force(&stage);
    run.end().expect(79);
}

/// The command, its children, and the lock.
#[test]
fn killed_run_leaves_no_process_and_frees_the_lock() {
    let stage = Stage::new();
    let command = "echo $TENURE_TOKEN; trap '' TERM HUP; sleep 1000 & (sleep 1000; echo never) & wait";
    let run = stage.script("a --lease 2s", command);
    let mine: u64 = run.number();
    let next = stage.script("a", "echo $TENURE_TOKEN");
    run.signal(Signal::SIGKILL);
    let token: u64 = next.number();
    assert!(token > mine, "{token} after {mine}");
    run.silence();
    next.end().expect(0);
}

/// However soon.
#[test]
fn run_killed_at_its_start_leaves_no_process() {
    let stage = Stage::new();
    for round in 0..20 {
        let run = stage.script(&round.to_string(), "echo ready & sleep 1000 & wait");
        run.line();
        run.signal(Signal::SIGKILL);
        run.silence();
    }
}

/// As `pkill -KILL tenure` does, which kills the watcher too.
#[test]
fn command_ends_when_run_and_watcher_are_killed() {
    let stage = Stage::new();
    let run = stage.holder("a");
    run.line();
    let watcher = || {
        let tasks = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.pid())).unwrap();
        let children = tasks.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()));
        children.into_iter().find(|pid| status(*pid, "Name").as_deref() == Some("tenure-watch"))
    };
    until("the watcher is there", || watcher().is_some());
    kill(watcher().unwrap(), Signal::SIGKILL).unwrap();
    run.signal(Signal::SIGKILL);
    run.silence();
}

/// As when a machine is paused: both stand still for longer than the lease, and meanwhile another has the lock.
#[test]
fn thawed_run_ends_its_command_after_the_lease() {
    let stage = Stage::new();
    let command =
        "trap 'echo told; exit 0' TERM; echo $$; echo $TENURE_TOKEN; while :; do sleep 1000 & wait $!; done";
    let run = stage.script("a --lease 2s", command);
    let group = run.group();
    let (_ends, mine) = (group.ends(), run.number::<u64>());
    run.signal(Signal::SIGSTOP);
    group.signal(Signal::SIGSTOP);
    let next: u64 = stage.script("a", "echo $TENURE_TOKEN").number();
    assert!(next > mine, "{next} after {mine}");
    group.signal(Signal::SIGCONT);
    run.signal(Signal::SIGCONT);
    assert_eq!(run.line(), "told");
    let done = run.end().expect(79);
    assert!(done.err.contains("lock \"a\"") && done.err.contains("its lease expired"), "{}", done.err);
}
