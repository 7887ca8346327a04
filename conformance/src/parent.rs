//! The process that started this one, which does not outlive it.

use crate::check::Check;

/// Holds the number of the process that starts another.
const PARENT: &str = "TENURE_CONFORMANCE_PARENT";

/// The environment of a process that is to [end with](end_with_it) this one.
///
/// Linux takes the thread that starts a process for its parent: it has to live as long as the process is needed, as the
/// workers of a runtime do.
pub(crate) fn is_this() -> (&'static str, String) {
    (PARENT, std::process::id().to_string())
}

/// From here on the system kills this process when its parent ends, however that ends. The end of its input tells a
/// process the same, unless it is stopped.
///
/// Only Linux can do so. Elsewhere a stopped process stays when the suite is killed.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn end_with_it() -> Check {
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended just before, and this process have another parent by now.
    if std::env::var(PARENT)? != Pid::as_raw(getppid()).to_string() {
        std::process::exit(0);
    }
    Ok(())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn end_with_it() -> Check {
    Ok(())
}
