//! Stores that cannot be used: a clear error with the path, exit 69, and nothing lost.

use crate::stage::{Done, Frozen, Stage};
use nix::unistd::geteuid;
use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::CommandExt},
};

/// Whom the command runs as when root runs the tests.
const NOBODY: u32 = 65534;

/// Another program locks the whole file: a wait goes on for as long as it may, and says why.
#[test]
fn locked_file_is_unavailable() {
    let stage = Stage::new();
    stage.done(&["run", "a", "--", "true"]).expect(0);
    let frozen = stage.freeze();
    let url = Frozen::URL;
    // As long as in `blocked::wait_ends_in_time_while_stderr_is_blocked`, and for the same reason.
    let done = stage.done(&["--store", url, "run", "a", "--wait", "3s", "--", "echo", "had it"]).expect(69);
    assert!(done.err.contains("tenure: the store is unavailable; trying again"), "{}", done.err);
    assert_eq!(done.err.matches("the store is unavailable; trying again").count(), 1, "{}", done.err);
    assert!(
        done.err.contains("locks.db") && done.err.contains("kept") && done.err.contains("locked for 50ms"),
        "{}",
        done.err
    );
    stage.done(&["--store", url, "run", "a", "--try", "--", "echo", "had it"]).expect(69);
    let waiter = stage.start(&["--store", url, "run", "a", "--", "echo", "had it"]);
    frozen.thaw();
    assert_eq!(waiter.line(), "had it");
    waiter.end().expect(0);
}

#[test]
fn unwritable_file_is_refused() {
    let stage = Stage::new();
    stage.done(&["run", "a", "--", "true"]).expect(0);
    let file = stage.path("locks.db");
    fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(stage.dir(), Permissions::from_mode(0o555)).unwrap();
    let writers: [&[&str]; 3] = [
        &["run", "a", "--", "echo", "never"],
        &["run", "a", "--try", "--", "echo", "never"],
        &["release", "a", "--force"],
    ];
    for args in writers {
        let mut tenure = stage.tenure(args);
        if geteuid().is_root() {
            // Permissions mean nothing to root.
            tenure.uid(NOBODY).gid(NOBODY);
        }
        let file = file.display();
        let done = Done::of(tenure.env("TENURE_STORE", format!("sqlite:{file}"))).expect(69);
        assert_eq!(done.out, "");
        assert!(done.err.starts_with("tenure: sqlite:"), "{}", done.err);
        assert!(done.err.contains(&file.to_string()) && done.err.contains("permission"), "{}", done.err);
    }
    fs::set_permissions(stage.dir(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    stage.done(&["run", "a", "--", "true"]).expect(0);
}
