//! The terminal, and which process group may use it.
//!
//! A command in its own process group can use the terminal only while that group is in the foreground. So `tenure`
//! lends it the terminal and takes it back, as a shell does: [Implementing a Job Control
//! Shell](https://www.gnu.org/software/libc/manual/html_node/Implementing-a-Shell.html).

use crate::job::processes;
use nix::{
    sys::signal::{SigSet, Signal, killpg},
    unistd::{Pid, getpgid, getpgrp, getppid, getsid, tcgetpgrp, tcsetpgrp},
};
use std::{
    fs::File,
    io::{self, IsTerminal},
};

/// The terminal of this process's session.
pub(crate) struct Terminal {
    tty: File,
    ours: Pid,
}

impl Terminal {
    /// The terminal, or `None` when this session has none.
    ///
    /// From then on this process may write to it, and take it back, even from the background.
    pub(crate) fn find() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        SigSet::from(Signal::SIGTTOU).thread_block().ok()?;
        Some(Self { tty, ours: getpgrp() })
    }

    /// Whether a command gets the terminal from its start: if stdin and stdout are the terminal. In a pipeline the next
    /// program, such as `less`, may need it; then the command gets the terminal when it asks.
    pub(crate) fn is_for_command() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Whether this process's group is in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        self.holder() == Some(self.ours)
    }

    /// Whether `group` is in the foreground.
    pub(crate) fn is_of(&self, group: Pid) -> bool {
        self.holder() == Some(group)
    }

    fn holder(&self) -> Option<Pid> {
        tcgetpgrp(&self.tty).ok()
    }

    /// Puts `group` in the foreground if this process's group is there.
    pub(crate) fn lend(&self, group: Pid) {
        if self.is_ours() {
            // This fails if the group has ended or the terminal was hung up; then no process needs it.
            let _ = tcsetpgrp(&self.tty, group);
        }
    }

    /// Puts this process's group in the foreground if `group` is there.
    pub(crate) fn take_back(&self, group: Pid) {
        if self.is_of(group) {
            // As for `lend`.
            let _ = tcsetpgrp(&self.tty, self.ours);
        }
    }

    /// Whether this process's group is a job: see [`is_job`].
    pub(crate) fn is_of_job(&self) -> bool {
        is_job(self.ours)
    }

    /// Stops this process's group by `signal`.
    pub(crate) fn stop(&self, signal: Signal) {
        // A group always lets its own members signal it.
        let _ = killpg(self.ours, signal);
    }
}

/// Stops this process's group as Ctrl-Z would, until its shell continues it; does nothing if it is no [job](is_job).
pub(crate) fn stop() {
    let ours = getpgrp();
    if is_job(ours) {
        let _ = killpg(ours, Signal::SIGSTOP);
    }
}

/// Whether a process of this session but of another group started `ours`, this process's group, and so may continue it.
/// For any other group, which POSIX calls *orphaned*, the terminal stops nothing.
fn is_job(ours: Pid) -> bool {
    let mut parent = getppid();
    // The parent of a container's first process has the number 0, which is in this group.
    while getpgid(Some(parent)) == Ok(ours) {
        match processes::parent(parent) {
            Some(next) => parent = next,
            None => return getsid(None) != Ok(ours),
        }
    }
    getsid(Some(parent)) == getsid(None)
}
