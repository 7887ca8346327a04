//! Several names, several holders, and one leader.

use crate::stage::Stage;
use nix::sys::signal::Signal;

#[test]
fn run_acquires_all_names_or_none() {
    let stage = Stage::new();
    let tell = "echo \"$TENURE_NAME\"; echo \"$TENURE_TOKEN\"";
    let out = stage.done(&["run", "b", "a", "--", "sh", "-c", tell]).expect(0).out;
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[..2], ["a", "b"], "{out}");
    assert!(lines[2..].iter().all(|token| token.parse::<u64>().is_ok()) && lines.len() == 4, "{out}");
    let holder = stage.holder("b");
    holder.line();
    let busy = stage.done(&["run", "--try", "c", "b", "a", "--", "true"]).expect(75);
    assert!(busy.err.contains("\"c\", \"b\", \"a\"") && busy.err.contains("held by sh"), "{}", busy.err);
    // Nothing of them is left, and who waits for both is let in when both are free.
    stage.done(&["run", "--try", "a", "c", "--", "true"]).expect(0);
    let both = stage.script("a b", "echo in");
    holder.signal(Signal::SIGTERM);
    assert_eq!(both.line(), "in");
    both.end().expect(0);
}

#[test]
fn loss_of_one_name_ends_the_command() {
    let stage = Stage::new();
    let run = stage.holder("a b --lease 6s");
    run.line();
    stage.done(&["release", "b", "--force"]).expect(0);
    let done = run.end().expect(79);
    assert!(done.err.contains("lock \"b\"") && done.err.contains("released by force"), "{}", done.err);
    stage.done(&["run", "--try", "a", "b", "--", "true"]).expect(0);
}

#[test]
fn leader_death_elects_another() {
    let stage = Stage::new();
    let candidate = || {
        stage.start(&["elect", "s", "--lease", "2s", "--", "sh", "-c", "echo $TENURE_TOKEN; exec sleep 1000"])
    };
    let first = candidate();
    let term: u64 = first.number();
    let second = candidate();
    first.signal(Signal::SIGKILL);
    let next: u64 = second.number();
    assert!(next > term, "{next} after {term}");
    first.silence();
    // Told to end, it ends with its command, and the election is free.
    second.signal(Signal::SIGTERM);
    second.end().expect(143);
    stage.done(&["run", "s", "--try", "--", "true"]).expect(0);
}

#[test]
fn leader_campaigns_again_after_a_forced_release() {
    let stage = Stage::new();
    let options = ["elect", "s", "--lease", "6s", "--label", "one", "--", "sh", "-c"];
    let command = "trap 'echo ended; exit 3' TERM; echo $TENURE_TOKEN; while :; do sleep 0.1; done";
    let leader = stage.start(&[&options[..], &[command]].concat());
    let term: u64 = leader.number();
    stage.done(&["release", "s", "--force"]).expect(0);
    assert_eq!(leader.line(), "ended");
    let next: u64 = leader.number();
    assert!(next > term, "{next} after {term}");
    leader.signal(Signal::SIGTERM);
    assert_eq!(leader.line(), "ended");
    let done = leader.end().expect(3);
    assert!(done.err.contains("no longer leading \"s\""), "{}", done.err);
}

/// With `--quiet`, in silence: the lost term is followed by another.
#[test]
fn leader_campaigns_again_after_max_hold() {
    let stage = Stage::new();
    let options = ["elect", "s", "-q", "--max-hold", "4s"];
    let command = ["--", "sh", "-c", "echo $TENURE_TOKEN; exec sleep 1000"];
    let leader = stage.start(&[&options[..], &command].concat());
    let term: u64 = leader.number();
    let next: u64 = leader.number();
    assert!(next > term, "{next} after {term}");
    leader.signal(Signal::SIGTERM);
    assert_eq!(leader.end().expect(143).err, "");
}

/// A command that has done its work ends its machine's candidacy, with its code, and the next one's turn comes.
#[test]
fn leader_resigns_when_its_command_ends() {
    let stage = Stage::new();
    let gate = stage.gate("gate");
    let first = stage.start(&["elect", "s", "--", "sh", "-c", "echo in; read x < gate; exit 4"]);
    assert_eq!(first.line(), "in");
    let second = stage.start(&["elect", "s", "--", "echo", "me"]);
    gate.open();
    first.end().expect(4);
    assert_eq!(second.line(), "me");
    second.end().expect(0);
    stage.done(&["elect", "", "--", "true"]).expect(64);
    stage.done(&["elect", "s"]).expect(64);
}
