//! `tenure run` when nothing goes wrong with the lock.

use crate::stage::{Done, Running, Stage, bit, mask, status, until};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{fs, io::Write, os::unix::fs::PermissionsExt, process::Stdio};

#[test]
fn run_exits_with_the_code_of_its_command() {
    let stage = Stage::new();
    for code in [0, 1, 2, 42, 255] {
        stage.done(&["run", "a", "--", "sh", "-c", &format!("exit {code}")]).expect(code);
    }
    stage.done(&["run", "a", "--", "sh", "-c", "kill -KILL $$"]).expect(137);
    stage.done(&["run", "a", "--", "sh", "-c", "kill -TERM $$"]).expect(143);
    stage.done(&["run", "a", "--", "sh", "-c", "kill -40 $$"]).expect(168);
}

#[test]
fn unrunnable_command_exits_with_126_or_127() {
    let stage = Stage::new();
    fs::write(stage.path("plain"), "echo hello\n").unwrap();
    let done = stage.done(&["run", "a", "--", "no-such-command"]).expect(127);
    assert!(
        done.err.starts_with("tenure: cannot run \"no-such-command\": not found in PATH\n"),
        "{}",
        done.err
    );
    let line = stage.done(&["run", "a", "--", "echo hi"]).expect(127);
    assert!(line.err.contains("for a line of the shell, write: -- sh -c"), "{}", line.err);
    stage.done(&["run", "a", "--", "./absent"]).expect(127);
    stage.done(&["run", "a", "--", "./plain"]).expect(126);
    stage.done(&["run", "a", "--", "."]).expect(126);
    fs::set_permissions(stage.path("plain"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(stage.done(&["run", "a", "--", "./plain"]).expect(0).out, "hello\n");
    stage.done(&["run", "--try", "a", "--", "true"]).expect(0);
}

#[test]
fn command_gets_stdio_and_arguments() {
    let stage = Stage::new();
    let mut tenure =
        stage.tenure(&["run", "a", "--", "sh", "-c", "cat; echo \"$@\" >&2", "sh", "--try", "a b", ""]);
    let mut child =
        tenure.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"from stdin").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"from stdin");
    assert_eq!(output.stderr, b"--try a b \n");
}

#[test]
fn run_holds_only_while_the_command_runs() {
    let stage = Stage::new();
    let holder =
        stage.start(&["run", "a", "--label", "the holder", "--", "sh", "-c", "echo $$; exec sleep 1000"]);
    let group = holder.group();
    let busy = stage.done(&["run", "a", "--try", "--", "true"]).expect(75);
    assert!(busy.err.contains("lock \"a\"") && busy.err.contains("the holder ("), "{}", busy.err);
    assert_eq!(busy.out, "");
    // Long enough for a busy machine to look who holds it.
    let busy = stage.done(&["run", "a", "--wait", "3s", "--", "true"]).expect(75);
    assert!(busy.err.contains("within 3s") && busy.err.contains("the holder ("), "{}", busy.err);
    stage.done(&["run", "b", "--try", "--", "true"]).expect(0);
    let waiter = stage.start(&["run", "a", "--wait", "10m", "--", "echo", "had it"]);
    group.signal(Signal::SIGTERM);
    assert_eq!(waiter.line(), "had it");
    waiter.end().expect(0);
    holder.end().expect(143);
}

#[test]
fn busy_lock_exits_with_the_chosen_code() {
    let stage = Stage::new();
    let holder = stage.holder("a");
    holder.line();
    for code in ["0", "255"] {
        let busy = stage.done(&["run", "a", "--try", "--exit-code", code, "--", "true"]);
        let busy = busy.expect(code.parse().unwrap());
        assert!(busy.err.contains("held by sh (") && busy.out.is_empty(), "{}", busy.err);
    }
    let busy = stage.done(&["run", "a", "--wait", "0s", "--", "true"]).expect(75);
    assert!(busy.err.contains(" is busy\n  held by sh ("), "{}", busy.err);
    // It replaces no other code, not even the same one from the command.
    let run = |args: &[&str]| stage.done(&[&["run", "b", "--try", "--exit-code", "0"], args].concat());
    let done = run(&["--max-hold", "300ms", "--", "sleep", "1000"]).expect(79);
    // The user asked for it, so it is told as no loss.
    assert!(
        done.err.contains(r#"lock "b" in sqlite:"#) && done.err.contains("reached --max-hold"),
        "{}",
        done.err
    );
    assert!(done.err.contains("\n  ending the command: SIGTERM now, SIGKILL after 5s\n"), "{}", done.err);
    // The lock is free at once.
    run(&["--", "sh", "-c", "exit 75"]).expect(75);
    run(&["--store", "sqlite:.", "--", "true"]).expect(69);
}

/// Signals that the caller blocks would hide the command's end from `tenure`, and stay blocked in the command. Those
/// that the caller ignores, as `nohup` does, the command ignores too.
#[test]
fn command_leads_a_group_and_inherits_ignored_signals_alone() {
    let stage = Stage::new();
    let env = ["env", "--default-signal", "--ignore-signal=USR2", "--block-signal=CHLD,TERM,USR1"];
    let tell = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ps -o pgid= -p $$; echo $$";
    let done = Done::of(&mut stage.under(&env, &["run", "a", "--", "sh", "-c", tell])).expect(0);
    let told: Vec<&str> = done.out.split_whitespace().collect();
    // Those above the standard signals are the C library's own.
    let standard = |set: &str| mask(set) & 0x7fff_ffff;
    assert_eq!((standard(told[1]), standard(told[3])), (0, bit(Signal::SIGUSR2)), "{}", done.out);
    assert_eq!(told[4], told[5], "it leads a group");
}

/// As at a shell, processes that the command leaves in the background are its own business.
#[test]
fn run_does_not_wait_for_children_of_the_command() {
    let stage = Stage::new();
    let done = stage.done(&["run", "a", "--", "sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo $!"]).expect(0);
    let sleeper = Pid::from_raw(done.out.trim().parse().unwrap());
    // Until it has its own program, it is another shell.
    until("it goes on", || status(sleeper, "Name").as_deref() == Some("sleep"));
    stage.done(&["run", "--try", "a", "--", "true"]).expect(0);
    kill(sleeper, Signal::SIGKILL).unwrap();
}

#[test]
fn default_store_is_a_file_in_the_state_directory() {
    let stage = Stage::new();
    let run = |state: Option<&str>, args: &[&str]| {
        let mut tenure = stage.tenure(args);
        tenure.env_remove("TENURE_STORE");
        if let Some(state) = state {
            tenure.env("XDG_STATE_HOME", state);
        }
        Done::of(&mut tenure)
    };
    run(None, &["run", "a", "--", "true"]).expect(0);
    assert!(stage.path(".local/state/tenure/locks.db").is_file());
    let odd = stage.path("a ?#%41@é");
    run(odd.to_str(), &["run", "a", "--", "true"]).expect(0);
    assert!(odd.join("tenure/locks.db").is_file());
    run(Some("relative"), &["run", "a", "--", "true"]).expect(0);
    assert!(!stage.path("relative").exists());
    let mut homeless = stage.tenure(&["ls"]);
    let done = Done::of(homeless.env_remove("TENURE_STORE").env_remove("HOME")).expect(64);
    assert!(done.err.contains("--store URL") && done.err.contains("TENURE_STORE"), "{}", done.err);
}

#[test]
fn repeated_runs_leave_no_process() {
    let stage = Stage::new();
    for _ in 0..10 {
        stage.done(&["run", "a", "--", "true"]).expect(0);
    }
    let dir = stage.dir().to_owned();
    // The helpers have another working directory, but the same stage in their environment.
    let leftovers = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let here = |path: std::path::PathBuf| {
            fs::read(path.join("environ")).is_ok_and(|env| {
                env.windows(dir.as_os_str().len()).any(|part| part == dir.as_os_str().as_encoded_bytes())
            })
        };
        processes.filter(|process| here(process.path())).count()
    };
    until("no process is left", || leftovers() == 0);
}

#[test]
fn command_gets_only_the_descriptors_of_the_caller() {
    let stage = Stage::new();
    let list = "for n in /proc/$$/fd/*; do [ ! -e \"$n\" ] || echo \"${n##*/}\"; done";
    // Those that the test itself inherited are closed first.
    let passes = "for n in /proc/$$/fd/*; do n=${n##*/}; [ $n -lt 3 ] || eval \"exec $n>&-\"; done; exec 7</dev/null; \
                  exec \"$@\"";
    let mut passing = stage.under(&["bash", "-c", passes, "bash"], &["run", "a", "--", "sh", "-c", list]);
    assert_eq!(Done::of(&mut passing).expect(0).out, "0\n1\n2\n7\n");
}

/// As process 1 of a container gets the children of others, `tenure` has here a child that its predecessor started.
#[test]
fn orphan_is_reaped_while_the_command_runs() {
    let stage = Stage::new();
    let (first, last) = (stage.gate("first"), stage.gate("last"));
    let shell = ["sh", "-c", "sleep 1000 & echo $!; exec \"$@\"", "sh"];
    let args = ["run", "a", "--", "sh", "-c", "read x < first; echo on; read x < last"];
    let run = Running::start(&mut stage.under(&shell, &args));
    let orphan = Pid::from_raw(run.number());
    first.open();
    assert_eq!(run.line(), "on");
    kill(orphan, Signal::SIGKILL).unwrap();
    until("it is no zombie", || status(orphan, "State").is_none());
    last.open();
    run.end().expect(0);
}

#[test]
fn run_acquires_nothing_without_enough_descriptors() {
    let stage = Stage::new();
    let limited = ["sh", "-c", "ulimit -n 12; exec \"$@\"", "sh"];
    let done = Done::of(&mut stage.under(&limited, &["run", "a", "--", "echo", "ran"])).expect(74);
    assert_eq!(done.out, "");
    assert!(done.err.contains("raise the limit (ulimit -n)"), "{}", done.err);
    assert!(!stage.path("locks.db").exists(), "the store was opened");
}
