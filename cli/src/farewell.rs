//! The end of `run` and `elect`: the locks are released, and the store is closed.

use crate::{
    exit::{self, Failure},
    stderr::{self, Volume},
};
use std::{
    process::{ExitCode, ExitStatus},
    time::Duration,
};
use tenure::{Error, LockSetGuard, Locks, Name, backend::StandingKind};
use tokio::time::timeout;

/// How long the end waits for the store. Locks that are not released by then expire with their leases.
const PATIENCE: Duration = Duration::from_secs(3);

/// A command that ended by itself, and the locks that it held to its end.
pub(crate) type Ended = (ExitStatus, LockSetGuard);

/// Releases the locks after the command has ended by itself, and closes the store. `lease` is that of the locks.
///
/// The command held the locks to its end, so its work counts: only a loss changes the exit code. A signal does not end
/// the wait for the store: a service manager sends it to the command and to `tenure` alike, just before the release.
pub(crate) async fn farewell(
    locks: &Locks,
    names: &[Name],
    lease: Duration,
    outcome: Result<Ended, Failure>,
) -> Result<ExitCode, Failure> {
    let (outcome, held) = match outcome {
        Ok((status, held)) => (Ok(exit::ended(status)), Some(held)),
        Err(failure) => (Err(failure), None),
    };
    let mut released = Ok(());
    let end = async {
        if let Some(held) = held {
            released = held.release().await;
        }
        locks.close().await;
    };
    let is_closed = timeout(PATIENCE, end).await.is_ok();
    let failed = match released {
        Err(lost @ Error::Lost { .. }) => return Err(lost.into()),
        Ok(()) if is_closed => return outcome,
        Ok(()) | Err(Error::Unavailable { .. }) => None,
        Err(error) => Some(error),
    };
    // A lost lock is not held any more.
    if stderr::volume() > Volume::Errors && !matches!(outcome, Err(Failure::Lost)) {
        let until = match locks.capabilities().standing {
            StandingKind::Session => "its session ends".to_owned(),
            StandingKind::Lease => {
                format!("its lease expires, in at most {}", humantime::format_duration(lease))
            }
        };
        let why = match &failed {
            None => format!(", because {} does not answer", locks.store()),
            Some(error) => format!(": {error}"),
        };
        let lock = if names.len() == 1 { "lock" } else { "locks" };
        let lock = format!("{lock} {}", quoted(names));
        let fact = match outcome {
            Ok(_) => format!("the command has ended, but {lock} may stay held"),
            Err(Failure::Lock(_) | Failure::Chosen(..)) => {
                format!("a late request may still acquire {lock}, and hold it")
            }
            Err(_) => format!("{lock} may stay held"),
        };
        stderr::say(&format!("{fact} until {until}{why}"));
        exit::causes(failed.as_ref());
    }
    outcome
}

/// Quotes names for a message: `"a", "b"`.
pub(crate) fn quoted(names: &[Name]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}
