//! Checks for enough descriptors. Without them, `tenure` could acquire a lock but not start its command.

use crate::exit::Failure;
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

/// More than one lock and its command need, unless the store has a few dozen servers.
const ENOUGH: usize = 40;

/// Checks before any acquisition that there are enough.
pub(crate) fn check() -> Result<(), Failure> {
    let stderr = io::stderr();
    let opened =
        (0..ENOUGH).map(|_| stderr.as_fd().try_clone_to_owned()).collect::<io::Result<Vec<OwnedFd>>>();
    let refused = format!(
        "tenure may need {ENOUGH} open files, and this process may open fewer; raise the limit (ulimit -n)"
    );
    opened.map(drop).map_err(|error| Failure::system(refused, error))
}
