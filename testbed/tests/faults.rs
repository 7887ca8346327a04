//! The fault run as a program, with client processes over a real file.

use std::process::{Command, Output};

fn faults(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_tenure-conformance");
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(program);
    command.arg("faults").args(arguments).current_dir(directory.path());
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
}

#[test]
fn what_cannot_be_is_said() {
    for (arguments, said) in [
        (&["memory", "--lease", "1ms"][..], "not a valid value for lease"),
        (&["memory", "--names", "0"], "--names 1 or more"),
        (&["nonsense:", "--minutes", "0.01"], "nonsense"),
    ] {
        let output = faults(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(said), "{}", text(&output));
    }
}
