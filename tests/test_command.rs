//! The exit status of `./test` is that of its steps, not of its clean-up.
#![cfg(unix)]

use std::process::Command;

/// Runs `./test` with this argument, and returns its exit status.
#[track_caller]
fn status_of(argument: &str) -> Option<i32> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/test");
    Command::new("bash").args([script, argument]).output().unwrap().status.code()
}

#[test]
fn success_is_reported() {
    assert_eq!(status_of("help"), Some(0));
}

#[test]
fn wrong_argument_is_a_usage_error() {
    assert_eq!(status_of("wrong"), Some(64));
}
