//! Bad input is refused before anything is touched.

use crate::stage::Stage;

/// Refused with 64, and no store has come to be.
#[track_caller]
fn refused(args: &[&str]) -> String {
    let stage = Stage::new();
    let done = stage.done(args).expect(64);
    assert_eq!(done.out, "");
    assert_eq!(std::fs::read_dir(stage.dir()).unwrap().count(), 0, "something was touched");
    done.err
}

#[test]
fn names_durations_and_options() {
    let long = "x".repeat(201);
    let commands: &[&[&str]] = &[
        &["run", "", "--", "true"],
        &["run", &long, "--", "true"],
        &["run", "a", "--lease", "99ms", "--", "true"],
        &["run", "a", "--lease", "366days", "--", "true"],
        &["run", "a", "--lease", "90", "--", "true"],
        &["run", "a", "--wait", "99999999999999999999y", "--", "true"],
        &["run", "a", "--max-hold", "0s", "--", "true"],
        &["run", "a", "b", "--at-least", "1m", "--", "true"],
        &["run", "a", "--at-least", "2m", "--max-hold", "1m", "--", "true"],
        &["run", "a", "--label", "two\nlines", "--", "true"],
        &["run", "a", "--try", "--wait", "5s", "--", "true"],
        &["run", "a", "--exit-code", "256", "--", "true"],
        &["run", "a", "--lease", "5s", "--lease", "5s", "--", "true"],
        &["run", "a", "--leese", "5s", "--", "true"],
        &["run", "a", "true"],
        &["run", "a"],
        &["run", "a", "--"],
        &["walk"],
    ];
    let said: Vec<String> =
        commands.iter().map(|args| format!("$ tenure {args:?}\n{}", refused(args))).collect();
    insta::assert_snapshot!(said.join("\n"));
}

/// Options that go with every subcommand may stand before and behind its name.
#[test]
fn contradictory_options_are_refused() {
    let stores: [&[&str]; 2] = [&["--store", "sqlite:locks.db"], &["--store-file", "store"]];
    let volumes: [&[&str]; 2] = [&["--quiet"], &["--verbose"]];
    for [one, other] in [stores, volumes] {
        for args in [
            [one, other, &["ls"]].concat(),
            [one, &["ls"], other].concat(),
            [other, &["ls"], one].concat(),
            [one, &["latch", "show", "a"], other].concat(),
            [one, &["latch"], other, &["show", "a"]].concat(),
            [&["latch"], one, &["show", "a"], other].concat(),
            [one, &["run"], other, &["a", "--", "true"]].concat(),
        ] {
            let said = refused(&args);
            let first = said.lines().next().unwrap();
            assert!(first.starts_with("tenure: the argument '--"), "{args:?}: {said}");
            assert!(first.contains(" cannot be used with '--"), "{args:?}: {said}");
            assert!(first.contains(one[0]) && first.contains(other[0]), "{args:?}: {said}");
            assert!(said.contains("\nUsage: tenure") && said.contains("try '--help'"), "{args:?}: {said}");
        }
    }
    refused(&["run", "--shared", "--permits", "4", "a", "--", "true"]);
    refused(&["run", "--permits", "0", "a", "--", "true"]);
}

/// Without the schemes that the command's features add.
fn without_features(said: &str) -> String {
    let added = [", zookeeper+tls", ", etcd+tls", ", etcd", ", nats+tls", ", nats", ", s3"];
    added.iter().fold(said.to_owned(), |said, scheme| said.replace(scheme, ""))
}

#[test]
fn urls() {
    let urls = [
        "",
        "sqlite:x.db?tabel=y",
        "sqlite:x.db?table=a%20b",
        "mysql://app:hunter2@db/app?ssl-mode=maybe",
        "redis://:hunter2@h:port/",
        "app:hunter2@db",
    ];
    let said: Vec<String> = urls.iter().map(|url| refused(&["--store", url, "ls"])).collect();
    let said = said.concat();
    assert!(!said.contains("hunter2"), "{said}");
    insta::assert_snapshot!(without_features(&said));
}

/// Its locks exclude no other process.
#[test]
fn memory_store_is_refused_for_a_command() {
    let commands: [&[&str]; 6] = [
        &["ls"],
        &["release", "a", "--force"],
        &["run", "a", "--", "echo", "never"],
        &["elect", "a", "--", "echo", "never"],
        &["wait", "a"],
        &["latch", "wait", "a", "--parties", "2"],
    ];
    for command in commands {
        let said = refused(&[&["--store", "memory:?lease=5s"], command].concat());
        assert!(said.contains("memory:") && said.contains("exclude no other process"), "{said}");
        assert!(said.contains("sqlite:PATH"), "{said}");
    }
}

#[test]
fn help() {
    let stage = Stage::new();
    let said = |args: &[&str]| format!("$ tenure {}\n{}", args.join(" "), stage.done(args).expect(0).out);
    let said = [said(&["--help"]), said(&["run", "-h"])].join("\n");
    insta::assert_snapshot!(said);
    assert_eq!(stage.done(&[]).expect(64).out, "");
}
