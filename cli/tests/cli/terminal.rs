//! `tenure run` at a terminal: who has it, and what its keys do.

use crate::stage::{Frozen, PATIENCE, Stage, status, until};
use nix::{sys::signal::Signal, unistd::Pid};
use rexpect::session::{PtySession, spawn_command};
use std::process::{Command, Stdio};

/// A command that has read a line from the terminal tells which.
const READER: &str = "sh -c 'echo ready; while read line; do echo \"got <$line>\"; done'";

/// `command` as the first process of a terminal.
fn at_terminal(command: &mut Command) -> PtySession {
    at_terminal_of_kind("xterm", command)
}

fn at_terminal_of_kind(kind: &str, command: &mut Command) -> PtySession {
    let stage = command.env("TERM", kind).stdin(Stdio::inherit());
    let command = std::mem::replace(stage, Command::new("true"));
    let mut terminal = spawn_command(command, Some(u64::try_from(PATIENCE.as_millis()).unwrap())).unwrap();
    // A shell at a terminal takes no notice of SIGTERM.
    terminal.process_mut().set_kill_timeout(Some(1));
    terminal
}

/// A shell with job control, whose `tenure` is ours.
struct Shell(PtySession);

impl Shell {
    fn new(stage: &Stage) -> Self {
        // Tests in the background ignore Ctrl-C, and the shell and its jobs would inherit that.
        let mut bash = Command::new("env");
        bash.args(["--default-signal", "bash", "--norc", "--noprofile", "-i"]).current_dir(stage.dir());
        bash.env("PS1", "PROMPT> ").env("tenure", env!("CARGO_BIN_EXE_tenure"));
        bash.env("TENURE_STORE", "sqlite:locks.db");
        let mut shell = Self(at_terminal(&mut bash));
        shell.sees("PROMPT> ");
        // Typed text must not be taken for an answer.
        shell.says("stty -echo");
        shell.sees("PROMPT> ");
        shell
    }

    fn says(&mut self, line: &str) {
        self.0.send_line(line).unwrap();
    }

    fn presses_control(&mut self, key: char) {
        self.0.send_control(key).unwrap();
    }

    #[track_caller]
    fn sees(&mut self, text: &str) {
        if let Err(error) = self.0.exp_string(text) {
            panic!("{text:?} does not come: {error}");
        }
    }

    /// The shell has the terminal again, and the last command ended so.
    #[track_caller]
    fn sees_code(&mut self, code: i32) {
        self.sees("PROMPT> ");
        self.says("echo \"code <$?>\"");
        self.sees(&format!("code <{code}>"));
        self.sees("PROMPT> ");
    }
}

#[test]
fn command_gets_the_terminal_and_the_shell_gets_it_back() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    // A plus: in the foreground.
    shell.says("$tenure run a -- sh -c 'ps -o stat= -p $$; exit 3'");
    shell.sees("+");
    shell.sees_code(3);
    shell.says(&format!("$tenure run a -- {READER}"));
    shell.sees("ready");
    shell.says("hello");
    shell.sees("got <hello>");
    shell.presses_control('d');
    shell.sees_code(0);
    shell.says("$tenure run a -- grep SigBlk /proc/self/status");
    shell.sees("SigBlk:\t0000000000000000");
}

#[test]
fn control_z_stops_both_and_fg_continues_both() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    shell.says(&format!("$tenure run a --lease 10m -- {READER}"));
    shell.sees("ready");
    for round in ["one", "two"] {
        shell.presses_control('z');
        shell.sees("Stopped");
        shell.sees("PROMPT> ");
        shell.says("$tenure show a");
        shell.sees("NAME");
        shell.sees("PROMPT> ");
        shell.says("fg");
        shell.says(round);
        shell.sees(&format!("got <{round}>"));
    }
    shell.presses_control('c');
    shell.sees_code(130);
}

/// The lease ran out while both were stopped.
#[test]
fn job_stopped_beyond_its_lease_ends_when_continued() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    shell.says(&format!("$tenure run a --lease 6s -- {READER}"));
    shell.sees("ready");
    shell.presses_control('z');
    shell.sees("Stopped");
    stage.done(&["run", "a", "--wait", "5m", "--", "true"]).expect(0);
    shell.says("fg");
    shell.sees("its lease expired");
    shell.sees_code(79);
}

#[test]
fn background_job_stops_when_it_reads() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    shell.says(&format!("$tenure run a --lease 10m -- {READER} &"));
    shell.sees("ready");
    let stopped = || stage.done(&["run", "a", "--try", "--", "true"]).code == Some(75);
    until("it holds the lock", stopped);
    shell.says("while [ -z \"$(jobs -s)\" ]; do sleep 0.01; done; jobs -s");
    shell.sees("Stopped");
    shell.sees("PROMPT> ");
    shell.says("fg");
    shell.says("hello");
    shell.sees("got <hello>");
    shell.presses_control('d');
    shell.sees_code(0);
}

/// In a pipeline any process may use the terminal.
#[test]
fn pipeline_shares_the_terminal() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    let reads = "read line < /dev/tty; echo \"$line\"";
    shell.says(&format!(
        "$tenure run a -- sh -c '{reads}; echo end' | (echo ready > /dev/tty; sed 's/^/-> /')"
    ));
    shell.sees("ready");
    shell.says("upstream");
    shell.sees("-> upstream");
    shell.sees("-> end");
    shell.sees("PROMPT> ");
    let reader = format!("(echo $BASHPID > reader; read line; echo $line; {reads})");
    shell.says(&format!("$tenure run a -- sh -c 'echo ready; sleep 1000' | {reader}"));
    shell.sees("ready");
    shell.says("downstream");
    shell.sees("downstream");
    // The signal is for all of the pipeline that still runs.
    let reader = std::fs::read_to_string(stage.path("reader")).unwrap().trim().parse().unwrap();
    let state = || status(Pid::from_raw(reader), "State");
    until("the reader has ended", || state().is_none_or(|state| state.starts_with('Z')));
    shell.presses_control('c');
    shell.sees("PROMPT> ");
    shell.says("echo \"codes <${PIPESTATUS[*]}>\"");
    shell.sees("codes <130 0>");
}

#[test]
fn control_z_stops_a_pipeline() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    shell.says("$tenure run a --lease 10m -- sh -c 'echo \"command <$$>\"; exec sleep 1000' | cat");
    shell.sees("command <");
    let command = shell.0.exp_string(">").unwrap();
    shell.presses_control('z');
    shell.sees("Stopped");
    shell.sees("PROMPT> ");
    shell.says(&format!(
        "echo \"states <$(ps -o stat= -p {command} -p $(jobs -p) | cut -c1 | tr -d '\\n')>\""
    ));
    shell.sees("states <TT>");
    shell.sees("PROMPT> ");
    shell.says("fg");
    shell.sees("sleep 1000");
    shell.presses_control('c');
    shell.sees("PROMPT> ");
    shell.says("$tenure run a --try -- echo 'free again'");
    shell.sees("free again");
}

/// No shell could continue it: `tenure` is the terminal's first process, as in `ssh -t host tenure run …`.
#[test]
fn control_z_without_a_shell_does_nothing() {
    let stage = Stage::new();
    let mut tenure =
        stage.tenure(&["run", "a", "--", "sh", "-c", "echo ready; read line; echo \"got <$line>\""]);
    let mut terminal = at_terminal(&mut tenure);
    terminal.exp_string("ready").unwrap();
    terminal.send_control('z').unwrap();
    terminal.send_line("hello").unwrap();
    terminal.exp_string("got <hello>").unwrap();
}

/// Ctrl-S stops the terminal's output, and its writers wait for Ctrl-Q.
#[test]
fn stopped_terminal_delays_no_start_and_no_end() {
    let stage = Stage::new();
    let holder = stage.holder("a");
    let group = holder.group();
    let mut shell = Shell::new(&stage);
    shell.says("$tenure run a --lease 6s -- sh -c 'echo $$ > command; exec sleep 1000'");
    shell.sees("waiting for \"a\"");
    shell.presses_control('s');
    group.signal(Signal::SIGTERM);
    let command = || std::fs::read_to_string(stage.path("command")).ok()?.trim().parse().ok();
    until("the command has begun", || command().is_some());
    stage.done(&["release", "a", "--force"]).expect(0);
    let command = Pid::from_raw(command().unwrap());
    until("the command has ended", || status(command, "State").is_none());
    shell.presses_control('q');
    shell.sees_code(79);
}

/// `stty tostop`: who writes to the terminal from the background is stopped, and all of its group.
#[test]
fn tostop_terminal_does_not_delay_a_loss() {
    let stage = Stage::new();
    stage.done(&["run", "a", "--", "true"]).expect(0);
    let mut shell = Shell::new(&stage);
    shell.says("stty tostop");
    shell.sees("PROMPT> ");
    shell.says(&format!(
        "$tenure --store '{}' run a --lease 2s -- sh -c 'echo $$ > command; exec sleep 1000' &",
        Frozen::URL
    ));
    let command = || std::fs::read_to_string(stage.path("command")).ok()?.trim().parse().ok();
    until("the command has begun", || command().is_some());
    let frozen = stage.freeze();
    let command = Pid::from_raw(command().unwrap());
    until("the command has ended", || status(command, "State").is_none());
    frozen.thaw();
    shell.sees("its lease expired");
    shell.says("wait %1");
    shell.sees_code(79);
}

/// However many terms there were.
#[test]
fn control_z_stops_a_candidate_once() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    let command = "trap 'while [ -e stay ]; do sleep 0.01; done; exit' TERM; echo \"term <$TENURE_TOKEN>\"
        while :; do sleep 0.01; done";
    std::fs::write(stage.path("command"), command).unwrap();
    shell.says("$tenure elect a --lease 6s --kill-after 10m -- sh command");
    for _ in 0..3 {
        shell.sees("term <");
        stage.done(&["release", "a", "--force"]).expect(0);
    }
    shell.sees("term <");
    // Another one is elected while this one still ends its command.
    std::fs::write(stage.path("stay"), "").unwrap();
    stage.done(&["release", "a", "--force"]).expect(0);
    let other = stage.holder("a");
    let group = other.group();
    std::fs::remove_file(stage.path("stay")).unwrap();
    shell.sees("waiting for \"a\"");
    shell.presses_control('z');
    shell.sees("Stopped");
    shell.sees("PROMPT> ");
    shell.says("fg");
    shell.sees("waiting for \"a\"");
    group.signal(Signal::SIGTERM);
    shell.sees("term <");
    shell.presses_control('c');
    shell.sees_code(130);
}

#[test]
fn waiter_sees_the_holder() {
    let stage = Stage::new();
    let holder =
        stage.start(&["run", "a", "--label", "nightly backup", "--", "sh", "-c", "echo $$; exec sleep 1000"]);
    let group = holder.group();
    let mut shell = Shell::new(&stage);
    shell.says("$tenure run a -- true");
    shell.sees(&format!("waiting for \"a\": held by nightly backup ({}@", holder.pid()));
    shell.sees("of its lease left");
    // The line is kept up to date.
    let mut age = || shell.0.exp_regex(r"for \d+s").unwrap().1;
    let first = age();
    while age() == first {}
    shell.presses_control('c');
    shell.sees_code(130);
    shell.says("$tenure run a -- echo 'had it'");
    shell.sees("waiting for");
    group.signal(Signal::SIGTERM);
    shell.sees("had it");
    shell.sees_code(0);
}

#[test]
fn watched_list_is_redrawn() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    shell.says("$tenure ls --watch");
    shell.sees("\x1b[H\x1b[2Jno locks are held");
    let holder = stage.holder("a --label backup");
    let group = holder.group();
    shell.sees("exclusive  backup");
    group.signal(Signal::SIGTERM);
    shell.sees("\x1b[H\x1b[2Jno locks are held");
    shell.presses_control('c');
    shell.sees_code(130);
}

/// In a script, `timeout` runs in the background of the terminal, and ignores SIGTTIN so that it can end its command.
#[test]
fn timeout_ends_a_command_that_needs_the_terminal() {
    let stage = Stage::new();
    let script = "timeout 1000 $tenure run a --lease 10m -- sh -c 'echo $$ > command; exec cat'\necho \"timeout <$?>\"";
    std::fs::write(stage.path("script"), script).unwrap();
    let mut shell = Shell::new(&stage);
    shell.says("bash script");
    let command = || std::fs::read_to_string(stage.path("command")).ok()?.trim().parse().ok();
    until("the command has begun", || command().is_some());
    let parent = |pid| Pid::from_raw(status(pid, "PPid").unwrap().parse().unwrap());
    let command = Pid::from_raw(command().unwrap());
    let tenure = parent(command);
    let is_stopped = |pid| status(pid, "State").unwrap().starts_with('T');
    until("both are stopped", || is_stopped(command) && is_stopped(tenure));
    // As when its time is over, but at once.
    nix::sys::signal::kill(parent(tenure), Signal::SIGTERM).unwrap();
    shell.sees("timeout <143>");
    shell.sees_code(0);
    shell.says("$tenure run a --try -- echo 'free again'");
    shell.sees("free again");
}

/// Its shell has left it behind, so it never comes to the foreground.
#[test]
fn command_gets_sighup_without_a_shell_for_its_terminal() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    shell.says("($tenure run a --lease 10m -- sh -c 'echo began > began; exec cat' < /dev/tty &)");
    shell.sees("needs the terminal");
    stage.done(&["run", "a", "--wait", "5m", "--", "true"]).expect(0);
    assert!(stage.path("began").exists());
}

/// The inner one stops itself, by SIGSTOP.
#[test]
fn control_z_stops_nested_runs_and_fg_continues_them() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    let run = "$tenure run --lease 10m --keep-store";
    shell.says(&format!("{run} a -- {run} b -- {READER}"));
    shell.sees("ready");
    shell.presses_control('z');
    shell.sees("Stopped");
    shell.sees("PROMPT> ");
    shell.says("fg");
    shell.says("hello");
    shell.sees("got <hello>");
    shell.presses_control('d');
    shell.sees_code(0);
}

/// As in a shell of Emacs: no line can move there.
#[test]
fn wait_is_reported_at_a_dumb_terminal() {
    let stage = Stage::new();
    let holder = stage.holder("a");
    holder.line();
    let mut tenure = stage.tenure(&["--verbose", "run", "a", "--", "true"]);
    let mut terminal = at_terminal_of_kind("dumb", &mut tenure);
    terminal.exp_string("waiting for \"a\": held by sh (").unwrap();
}

#[test]
fn default_store_is_not_mentioned_at_a_terminal() {
    let stage = Stage::new();
    let mut shell = Shell::new(&stage);
    shell.says("unset TENURE_STORE; export XDG_STATE_HOME=$PWD; $tenure run a -- echo 'the command'");
    let before = shell.0.exp_string("the command").unwrap();
    assert!(!before.contains("no store is given"), "{before}");
    shell.sees_code(0);
    assert!(stage.path("tenure/locks.db").exists());
}
