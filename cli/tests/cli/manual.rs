//! `tenure completions` and `tenure man`.

use crate::stage::Stage;
use std::{
    fs,
    process::{Command, Stdio},
};

/// The words after an option or `--` are of their own kind.
#[test]
fn completions_include_files_and_commands() {
    let stage = Stage::new();
    let script = |shell: &str| stage.done(&["completions", shell]).expect(0).out;
    let zsh = script("zsh");
    let options: Vec<&str> = zsh.lines().filter(|line| line.contains("--store-file=[")).collect();
    assert!(!options.is_empty() && options.iter().all(|line| line.contains(":FILE:_files'")), "{zsh}");
    // That of `elect`: the script takes all that follows `run` for names.
    assert_eq!(zsh.matches(":_cmdambivalent").count(), 1, "{zsh}");
    let files = script("bash").lines().filter(|line| line.contains("compgen -f")).count();
    assert!(files > 0);
}

/// With the tabulator key.
#[test]
fn bash_completes_commands_and_options() {
    let stage = Stage::new();
    fs::write(stage.path("script"), stage.done(&["completions", "bash"]).expect(0).out).unwrap();
    let completed = |line: &str| {
        let ask = "source ./script; COMP_WORDS=($0); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _tenure tenure \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; echo \"${COMPREPLY[@]}\"";
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", ask, line]).current_dir(stage.dir()).stdin(Stdio::null());
        let output = bash.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert!(output.status.success(), "{}", text(output.stderr));
        text(output.stdout).trim().to_owned()
    };
    assert_eq!(completed("tenure el"), "elect");
    assert_eq!(completed("tenure run --max"), "--max-hold");
    assert_eq!(completed("tenure latch c"), "count-down");
    assert_eq!(completed("tenure schema po"), "postgres");
}

#[test]
fn topic_is_printed_by_help_and_by_its_name() {
    let stage = Stage::new();
    for (topic, term) in [("urls", "  sqlite:PATH\n"), ("exit-codes", "  126, 127\n")] {
        for args in [&["help", topic][..], &[topic]] {
            let said = stage.done(args).expect(0).out;
            assert!(said.contains(term), "{args:?}: {said}");
        }
    }
}

#[test]
fn man_writes_a_page_per_command() {
    let stage = Stage::new();
    fs::create_dir(stage.path("man1")).unwrap();
    stage.done(&["man", "man1"]).expect(0);
    let page = |name: &str| fs::read_to_string(stage.path("man1").join(name)).unwrap();
    assert!(page("tenure.1").contains("sqlite:PATH") && page("tenure.1").contains("Exit codes"));
    assert!(page("tenure-run.1").contains("max\\-hold") && page("tenure-run.1").contains("Exit codes"));
    assert!(page("tenure-latch-count-down.1").contains("parties"));
    assert!(!stage.path("man1/tenure-man.1").exists(), "it is for those who make packages");
    let done = stage.done(&["man", "absent"]).expect(74);
    assert!(done.err.contains("cannot write the manual pages"), "{}", done.err);
}
