//! The exit status of `./test` is that of its steps, not of its clean-up.
#![cfg(unix)]

use std::process::Command;

#[test]
fn success_and_wrong_arguments_are_reported() {
    for (argument, code) in [("help", 0), ("wrong", 64)] {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/test");
        let status = Command::new("bash").args([script, argument]).output().unwrap().status;
        assert_eq!(status.code(), Some(code), "{argument}");
    }
}
