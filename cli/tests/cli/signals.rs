//! Signals to `tenure run`: passed on to a running command, and the end of a wait.

use crate::stage::{Frozen, Running, Stage, bit, mask, status, until};
use nix::sys::signal::Signal;

/// A command that prints its process number, and then each signal that it gets.
const LISTENER: &str = "for s in TERM INT HUP QUIT USR1 USR2 WINCH CONT; do trap \"echo $s\" $s; done
    trap '' TTIN; echo $$; while :; do sleep 1000 & wait $!; done";

#[test]
fn signals_are_passed_on_to_the_command() {
    let stage = Stage::new();
    let run = stage.script("a", LISTENER);
    let group = run.group();
    let passed = [
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
        (Signal::SIGWINCH, "WINCH"),
        (Signal::SIGCONT, "CONT"),
    ];
    for (signal, name) in passed {
        run.signal(signal);
        assert_eq!(run.line(), name);
    }
    stage.done(&["run", "a", "--try", "--", "true"]).expect(75);
    group.signal(Signal::SIGKILL);
    run.end().expect(137);
}

#[test]
fn stopped_command_keeps_its_lock() {
    let stage = Stage::new();
    let gate = stage.gate("gate");
    let run = stage.script("a --lease 6s", "echo $$; read x < gate; exit 7");
    let group = run.group();
    group.signal(Signal::SIGSTOP);
    stage.done(&["run", "a", "--wait", "7s", "--", "true"]).expect(75);
    run.signal(Signal::SIGCONT);
    gate.open();
    run.end().expect(7);
}

#[test]
fn signal_ends_a_wait_and_leaves_nothing() {
    let stage = Stage::new();
    let holder = stage.holder("a");
    let group = holder.group();
    let ending =
        [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];
    for signal in ending {
        let waiter = stage.start(&["run", "a", "--lease", "10m", "--", "echo", "never"]);
        until("the waiter listens to signals", || catches(&waiter, signal));
        waiter.signal(signal);
        let done = waiter.end().expect(128 + signal as i32);
        assert_eq!(done.out, "");
        // A wait that has become long is told of. A person who pressed Ctrl-C knows why it ended.
        let last = done.err.lines().filter(|line| !line.starts_with("tenure: waiting for \"a\""));
        let expected = (signal == Signal::SIGTERM).then_some("tenure: stopped by SIGTERM");
        assert_eq!(last.collect::<Vec<_>>(), Vec::from_iter(expected), "{signal}: {}", done.err);
    }
    let waiter = stage.start(&["wait", "a"]);
    until("it listens to signals", || catches(&waiter, Signal::SIGINT));
    waiter.signal(Signal::SIGINT);
    waiter.end().expect(130);
    group.signal(Signal::SIGTERM);
    holder.end().expect(143);
    stage.done(&["run", "a", "--try", "--", "true"]).expect(0);
}

/// The lease is longer than this test may take.
#[test]
fn release_without_an_answer_does_not_wait_for_the_lease() {
    let stage = Stage::new();
    // Creates the table.
    stage.done(&["ls"]).expect(0);
    for (verb, name, option, signal) in [
        ("run", "a", "--lease=1h", Some(Signal::SIGTERM)),
        ("run", "b", "--lease=1h", None),
        ("elect", "c", "--lease=1h", None),
        ("run", "d", "--quiet", None),
    ] {
        let args = ["--store", Frozen::URL, verb, name, option, "--"];
        let gate = stage.gate(name);
        let script = ["sh", "-c", &format!("echo begun; read x < {name}; exit 7")];
        let process = stage.start(&[&args[..], &script].concat());
        process.line();
        let frozen = stage.freeze();
        gate.open();
        let is_quiet = option == "--quiet";
        if !is_quiet {
            process.says("the lock could not be released yet; trying again");
        }
        if let Some(signal) = signal {
            process.signal(signal);
        }
        let said = process.end().expect(7).err;
        frozen.thaw();
        let told = format!(
            "the command has ended, but lock {name:?} may stay held until its lease expires, in at most 1h, because "
        );
        let is_told = said.contains(&told) && said.contains(" does not answer");
        assert!(if is_quiet { said.is_empty() } else { is_told }, "{name}: {said}");
        assert!(!said.contains("then try again"), "{said}");
    }
}

/// A pipe, such as a shell's `<(…)`, whose writer is late.
#[test]
fn signal_ends_reading_of_the_url() {
    let stage = Stage::new();
    let verbs: [&[&str]; 4] = [
        &["run", "a", "--", "echo", "never"],
        &["elect", "a", "--", "echo", "never"],
        &["wait", "a"],
        &["latch", "wait", "a", "--parties", "1"],
    ];
    for (pipe, verb) in ["run", "elect", "wait", "latch"].into_iter().zip(verbs) {
        let gate = stage.gate(pipe);
        let reader = stage.start(&[&["--store-file", pipe], verb].concat());
        let writer = gate.writer();
        reader.signal(Signal::SIGTERM);
        let done = reader.end();
        assert_eq!((done.code, done.out.as_str()), (None, ""), "{verb:?}: {}", done.err);
        drop(writer);
    }
}

fn catches(process: &Running, signal: Signal) -> bool {
    status(process.pid(), "SigCgt").is_some_and(|caught| mask(&caught) & bit(signal) != 0)
}
