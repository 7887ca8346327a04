//! Faults that only root can set up: a command that runs as another user, a machine without `/proc`.
//!
//! Where that cannot be had, a case is listed as ignored, with the reason; `TENURE_TEST_REQUIRE=1` makes that a failure,
//! except of those that `TENURE_TEST_WITHOUT` lists.

#[path = "../cli/stage.rs"]
#[expect(dead_code, reason = "the other test program needs more of it")]
mod stage;

use libtest_mimic::{Arguments, Completion, Trial};
use nix::sys::signal::Signal;
use stage::{Done, Gate, Running, Stage, until};
use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, chown},
    process::{Command, ExitCode, Stdio},
};
use tempfile::TempDir;
use tenure_conformance::skip;

/// The user that `tenure` runs as, while its command becomes root.
const NOBODY: u32 = 65534;

/// A need of a case: its name in `TENURE_TEST_WITHOUT`, and how a program is run with it.
type Need = (&'static str, fn(&Command) -> Command);

const ROOT: Need = ("root", as_nobody);
const NAMESPACES: Need = ("namespaces", without_proc);

const CASES: [(&str, fn(), Need); 4] = [
    ("command_is_reported_when_it_cannot_be_ended", command_is_reported_when_it_cannot_be_ended, ROOT),
    ("child_is_reported_when_it_cannot_be_ended", child_is_reported_when_it_cannot_be_ended, ROOT),
    ("signal_is_reported_when_it_cannot_be_passed_on", signal_is_reported_when_it_cannot_be_passed_on, ROOT),
    ("run_acquires_nothing_without_proc", run_acquires_nothing_without_proc, NAMESPACES),
];

fn main() -> ExitCode {
    let trial = |(name, case, (need, setting)): (&'static str, fn(), Need)| {
        Trial::ignorable_test(name, move || {
            let Some(why) = lacking(setting) else {
                case();
                return Ok(Completion::Completed);
            };
            skip(need, &format!("{name}: {why}"))?;
            Ok(Completion::ignored_with(why))
        })
    };
    libtest_mimic::run(&Arguments::from_args(), CASES.map(trial).into()).exit_code()
}

/// Why a case cannot be set up here.
fn lacking(setting: fn(&Command) -> Command) -> Option<String> {
    match setting(Command::new("setpriv").args(["--reuid=0", "true"])).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// Runs it as a user who may become another one but not signal its processes: a command that becomes root is like
/// `sudo`.
fn as_nobody(command: &Command) -> Command {
    let user = NOBODY.to_string();
    let mut wrapped = Command::new("setpriv");
    wrapped.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    wrapped.args(["--inh-caps=+setuid", "--ambient-caps=+setuid"]);
    wrap(wrapped, command)
}

/// Runs it where `/proc` is empty.
fn without_proc(command: &Command) -> Command {
    let mut wrapped = Command::new("unshare");
    wrapped.args(["--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"]);
    wrap(wrapped, command)
}

fn wrap(mut wrapped: Command, command: &Command) -> Command {
    wrapped.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        wrapped.current_dir(directory);
    }
    wrapped.stdin(Stdio::null());
    wrapped
}

/// Becomes root, prints its number, and ends when the gate is opened.
const AS_ROOT: &str = "setpriv --reuid=0 sh -c 'echo $$; read x < gate'";

/// `tenure run` as user `nobody`, on a stage with the gate.
struct AsNobody {
    run: Running,
    gate: Gate,
    stage: Stage,
    /// A copy of the program, because that user may not enter the directory that it was built in.
    _program: TempDir,
}

impl AsNobody {
    fn start(options: &[&str], script: &str) -> Self {
        let (stage, program) = (Stage::new(), TempDir::new().unwrap());
        fs::set_permissions(program.path(), Permissions::from_mode(0o755)).unwrap();
        let tenure = program.path().join("tenure");
        // By another process: one that another case starts meanwhile would inherit the open file, which then cannot run.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_tenure")).arg(&tenure).status().unwrap();
        assert!(copied.success());
        chown(stage.dir(), Some(NOBODY), Some(NOBODY)).unwrap();
        let gate = stage.gate("gate");
        let args = [&["run", "a"], options, &["--", "sh", "-c", script]].concat();
        let run = Running::start(&mut as_nobody(&stage.program(&tenure, &args)));
        Self { run, gate, stage, _program: program }
    }

    /// Lets the command end.
    fn end(self) -> Done {
        self.gate.open();
        self.run.end()
    }
}

/// It is told when it happens, and again when SIGKILL is refused too.
fn reported_until_it_ends(script: &str) {
    let scene = AsNobody::start(&["--lease", "3s", "--kill-after", "100ms"], script);
    let run = &scene.run;
    let process: u32 = run.number();
    scene.stage.done(&["release", "a", "--force"]).expect(0);
    run.says("lock \"a\" in sqlite:");
    let report = format!("cannot end the command: no permission to signal process {process} (sh)");
    until("it is reported twice", || run.said().matches(&report).count() >= 2);
    scene.end().expect(79);
}

fn command_is_reported_when_it_cannot_be_ended() {
    reported_until_it_ends(&format!("exec {AS_ROOT}"));
}

fn child_is_reported_when_it_cannot_be_ended() {
    reported_until_it_ends(&format!("{AS_ROOT} & wait"));
}

fn signal_is_reported_when_it_cannot_be_passed_on() {
    let scene = AsNobody::start(&[], &format!("exec {AS_ROOT}"));
    let run = &scene.run;
    let process: u32 = run.number();
    run.signal(Signal::SIGTERM);
    run.says(&format!("cannot pass on SIGTERM: no permission to signal process {process} (sh)"));
    scene.end().expect(0);
}

fn run_acquires_nothing_without_proc() {
    for verb in ["run", "elect"] {
        let stage = Stage::new();
        let done = Done::of(&mut without_proc(&stage.tenure(&[verb, "a", "--", "echo", "ran"]))).expect(74);
        assert_eq!(done.out, "");
        assert!(done.err.contains("/proc is missing"), "{}", done.err);
        assert!(!stage.path("locks.db").exists(), "the store was opened");
    }
}
