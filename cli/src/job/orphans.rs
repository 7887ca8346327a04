//! Orphans: children that this process did not start.
//!
//! The system gives them to process 1 of a container, and a shell that became this process left its own behind. They
//! stay zombies until their parent waits for them.

use nix::unistd::Pid;

/// Waits for orphans that have ended, but not for `children`, which other code waits for.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
pub(crate) fn reap(children: &[Pid]) {
    use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
    // Looks before it waits, so that the code that waits for a child sees its end.
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Some(ended) = waitid(Id::All, look).ok().and_then(|status| status.pid()) {
        // The next SIGCHLD leads here again, after this one has been waited for.
        if children.contains(&ended) || waitpid(ended, Some(WaitPidFlag::WNOHANG)).is_err() {
            return;
        }
    }
}

/// Systems that cannot look first would hide the end of the command.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
pub(crate) fn reap(_: &[Pid]) {}
