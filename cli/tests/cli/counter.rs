//! The promise itself: one at a time.

use crate::stage::{Running, Stage};
use std::{fs, process::Command};

/// Twenty shells, each of which runs ten times a command that reads a number, adds one and writes it back. One after
/// another at least so often that an update would be lost if two were ever inside.
#[test]
fn counter_loses_no_update_between_twenty_processes() {
    let stage = Stage::new();
    fs::write(stage.path("number"), "0\n").unwrap();
    let add = "read n < number; echo $((n + 1)) > number";
    let rounds = "for i in $(seq 10); do \"$TENURE\" run counter -- sh -c \"$ADD\" || exit; done";
    let shell = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", rounds]).env("TENURE", env!("CARGO_BIN_EXE_tenure")).env("ADD", add);
        shell.env("TENURE_STORE", "sqlite:locks.db").current_dir(stage.dir());
        Running::start(&mut shell)
    };
    let shells: Vec<Running> = (0..20).map(|_| shell()).collect();
    for shell in shells {
        let done = shell.end().expect(0);
        // `tenure` reports a long wait.
        let is_news = |line: &str| line.starts_with("tenure: waiting for \"counter\": ");
        assert!(done.err.lines().all(is_news), "{}", done.err);
    }
    assert_eq!(fs::read_to_string(stage.path("number")).unwrap(), "200\n");
}
