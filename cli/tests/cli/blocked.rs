//! A stderr that blocks its writers: `tenure` does what it must, and its messages are lost.

use crate::stage::{Frozen, FullPipe, Group, Running, Stage, until};
use nix::sys::signal::Signal;

/// A command under this verb that has lost its lock without a word, because the store is frozen until its lease is over.
fn loses_its_lock(stage: &Stage, full: &FullPipe, verb: &str) -> (Running, Group, Frozen) {
    stage.done(&["run", "a", "--", "true"]).expect(0);
    let script = "echo $$; exec sleep 1000";
    let args = ["--store", Frozen::URL, verb, "a", "--lease", "4s", "--", "sh", "-c", script];
    let running = Running::start_on(full.writer(), &mut stage.tenure(&args));
    let group = running.group();
    let frozen = stage.freeze();
    until("its lease is over", || stage.done(&["show", "a"]).code == Some(1));
    (running, group, frozen)
}

/// When the next holder begins, the first one's command has been told to end.
#[test]
fn loss_ends_the_command_while_stderr_is_blocked() {
    let (stage, full) = (Stage::new(), FullPipe::new());
    let (first, group, frozen) = loses_its_lock(&stage, &full, "run");
    let next = stage.holder("a");
    frozen.thaw();
    next.line();
    until("the first one's command has ended", || group.has_ended());
    first.end().expect(79);
}

#[test]
fn lost_term_starts_another_while_stderr_is_blocked() {
    let (stage, full) = (Stage::new(), FullPipe::new());
    let (elect, group, frozen) = loses_its_lock(&stage, &full, "elect");
    until("the first term's command has ended", || group.has_ended());
    frozen.thaw();
    elect.line();
    elect.signal(Signal::SIGTERM);
    elect.end().expect(143);
}

/// Before there is a lock: the store's failures are shown while it is asked again and again.
#[test]
fn wait_ends_in_time_while_stderr_is_blocked() {
    let stage = Stage::new();
    stage.done(&["run", "a", "--", "true"]).expect(0);
    let full = FullPipe::new();
    let frozen = stage.freeze();
    // Long enough for a busy machine to notice that the store fails before the wait is over: otherwise the lock would just be busy.
    let args = ["-v", "--store", Frozen::URL, "run", "a", "--wait", "3s", "--", "true"];
    Running::start_on(full.writer(), &mut stage.tenure(&args)).end().expect(69);
    frozen.thaw();
}

#[test]
fn errors_end_tenure_while_stderr_is_blocked() {
    let stage = Stage::new();
    let full = FullPipe::new();
    let end = |args: &[&str]| Running::start_on(full.writer(), &mut stage.tenure(args)).end();
    end(&["--store", "ftp://h", "run", "a", "--", "true"]).expect(64);
    end(&["run", "a", "--lease", "soon", "--", "true"]).expect(64);
    end(&["run", "a", "--", "sh", "-c", "exit 3"]).expect(3);
    let holder = stage.holder("a");
    holder.line();
    end(&["run", "a", "--try", "--", "true"]).expect(75);
}

/// After the reader has gone, and on a full disk.
#[test]
fn failing_stderr_changes_no_exit_code() {
    let stage = Stage::new();
    let full_disk = || std::fs::File::options().write(true).open("/dev/full").unwrap().into();
    let closed = || FullPipe::new().writer();
    let stderrs: [&dyn Fn() -> std::process::Stdio; 2] = [&full_disk, &closed];
    for stderr in stderrs {
        let end = |args: &[&str]| Running::start_on(stderr(), &mut stage.tenure(args)).end();
        end(&["--store", "ftp://h", "run", "a", "--", "true"]).expect(64);
        end(&[]).expect(64);
        end(&["run", "a", "--", "sh", "-c", "exit 3"]).expect(3);
        let run = ["run", "a", "--max-hold", "300ms", "--", "sleep", "1000"];
        end(&run).expect(79);
    }
}
