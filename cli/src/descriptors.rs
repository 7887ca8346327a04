//! Descriptors, without which a lock could be acquired but its command not started.

use crate::exit::Failure;
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

/// More than one lock and its command take in any store, a few dozen servers apart.
const ENOUGH: usize = 40;

/// Checks, before anything is acquired, that there are enough.
pub(crate) fn check() -> Result<(), Failure> {
    let stderr = io::stderr();
    let opened =
        (0..ENOUGH).map(|_| stderr.as_fd().try_clone_to_owned()).collect::<io::Result<Vec<OwnedFd>>>();
    let what =
        format!("cannot open {ENOUGH} files at once, as tenure may have to; raise the limit (ulimit -n)");
    opened.map(drop).map_err(|error| Failure::system(what, error))
}
