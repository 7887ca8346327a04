//! The fault run as a program, with client processes over a real file.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tenure-conformance");

/// In memory where that can be: what else writes to the disk would decide how long a commit takes.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let directory = TempDir::new_in(memory).or_else(|_| TempDir::new());
    directory.expect("a directory")
}

fn faults(arguments: &[&str]) -> Output {
    let directory = directory();
    let mut command = Command::new(PROGRAM);
    command.arg("faults").args(arguments).current_dir(directory.path()).env("TMPDIR", directory.path());
    command.output().expect("the program runs")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn processes_are_frozen_and_killed_and_sqlite_keeps_the_contract() {
    let arguments = ["sqlite", "--seed", "7", "--minutes", "0.1", "--round", "5s", "--lease", "500ms"];
    let output = faults(&arguments);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("faults on sqlite, seed 7"), "{text}");
    for line in ["process frozen", "process killed", "violations                                0"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn the_same_seed_gives_the_same_plan() {
    let plan = |seed| text(&faults(&["memory", "--plan", "--seed", seed]));
    assert_eq!(plan("7"), plan("7"));
    assert_ne!(plan("7"), plan("8"));
    assert!(plan("7").lines().count() > 10, "{}", plan("7"));
    // Where clients write the store's files.
    let in_file = text(&faults(&["sqlite", "--plan", "--seed", "1"]));
    assert!(in_file.contains("process that cannot write files (beyond 0 bytes)"), "{in_file}");
}

#[test]
fn what_cannot_be_is_said() {
    for (arguments, said) in [
        (&["memory", "--lease", "1ms"][..], "invalid lease: 1ms"),
        (&["memory", "--names", "0"], "--names 1 or more"),
        (&["nonsense:", "--minutes", "0.01"], "nonsense"),
    ] {
        let output = faults(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(said), "{}", text(&output));
    }
}

/// Grants every request.
const CHEATS: &str =
    "while read -r verb rest; do case $verb in acquire) echo held;; *) echo released;; esac; done";

#[test]
fn any_program_is_driven_and_its_history_judged_again() {
    let directory = directory();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (client, history, rubbish) = (path("client.sh"), path("history.jsonl"), path("rubbish.jsonl"));
    fs::write(&client, CHEATS).expect("a script");
    fs::write(&rubbish, "{}\n").expect("a file");
    let client = format!("sh {client} {{url}}");
    let arguments = ["--minutes", "3", "--round", "3s", "--client", &*client, "--history", &*history];
    let judged = faults(&[&["sqlite", "--seed", "7"], &arguments[..]].concat());
    let judge = |file: &str, input: &str| {
        let mut judge = Command::new(PROGRAM);
        judge.args(["judge", file]).stdin(fs::File::open(input).expect("a file"));
        judge.output().expect("the program runs")
    };
    for (output, code, said) in [
        (&judged, 1, "two holders"),
        (&judged, 1, "not offered: token (clauses T1 and U2)"),
        (&judge(&history, "/dev/null"), 1, "two holders"),
        (&judge("-", &history), 1, "from here on the contract is broken"),
        (&judge("-", "/dev/null"), 0, "0 events, 0 violations"),
        (&judge(&rubbish, "/dev/null"), 2, "line 1 is not an event"),
        (&judge(&path("missing"), "/dev/null"), 2, "missing: "),
    ] {
        let text = text(output);
        assert!(output.status.code() == Some(code) && text.contains(said), "{code}, {said}: {text}");
    }
}

/// What Linux tells of processes.
#[cfg(target_os = "linux")]
mod killed {
    use super::{PROGRAM, directory};
    use rustix::process::{Pid, Signal, kill_process};
    use std::{
        fs,
        process::{Command, Stdio},
        thread::sleep,
        time::{Duration, Instant},
    };

    /// The state and the parent of a process; `None` when it has gone.
    fn state(pid: i32) -> Option<(String, u32)> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Behind its name, which may be anything.
        let mut rest = stat.rsplit(')').next()?.split_whitespace();
        Some((rest.next()?.to_owned(), rest.next()?.parse().ok()?))
    }

    /// Whether it has opened the store, so that it is at work. A client has no arguments: until it has its own program,
    /// it has those of the run, and the run's open files too.
    fn is_at_work(pid: i32) -> bool {
        if fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).count() > 2)
        {
            return false;
        }
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file.ends_with("locks.db"))
    }

    /// The processes that `parent` has started, as far as they are at work.
    fn children(parent: u32) -> Vec<i32> {
        let all = fs::read_dir("/proc").expect("all processes").flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        numbers.filter(|pid| state(*pid).is_some_and(|(_, of)| of == parent) && is_at_work(*pid)).collect()
    }

    /// Looks again and again until there is something.
    fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let until = Instant::now() + Duration::from_mins(1);
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            assert!(Instant::now() < until, "not within a minute: {what}");
            sleep(Duration::from_millis(5));
        }
    }

    /// A stopped process reads nothing, so the end of its input does not end it.
    #[test]
    fn a_frozen_client_does_not_outlive_a_run_that_is_killed() {
        let directory = directory();
        let mut run = Command::new(PROGRAM)
            .args(["faults", "sqlite", "--seed", "7", "--minutes", "5"])
            .current_dir(directory.path())
            // What a killed run leaves behind goes with this directory.
            .env("TMPDIR", directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program runs");
        let of = run.id();
        // The run freezes, thaws and kills them as well: one that stands still just now.
        let stopped = wait_for("a client that stands still", || {
            children(of).into_iter().find(|pid| {
                let stopped = Pid::from_raw(*pid).map(|pid| kill_process(pid, Signal::STOP));
                stopped.is_some_and(|done| done.is_ok()) && state(*pid).is_some_and(|(state, _)| state == "T")
            })
        });
        run.kill().expect("the run is killed");
        run.wait().expect("the run has ended");
        // Dead it may still be listed, until somebody has asked what came of it.
        wait_for("the end of its client", || {
            state(stopped).is_none_or(|(state, _)| state == "Z" || state == "X").then_some(())
        });
    }
}
