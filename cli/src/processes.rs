//! Processes, as `/proc` shows them where there is one.

use crate::people::plain;
use nix::{errno::Errno, sys::signal::kill, unistd::Pid};
use std::{fmt, fs};

/// A process, as `/proc/PID/stat` shows it.
pub(crate) struct Process {
    pid: Pid,
    name: String,
    is_dead: bool,
    parent: Pid,
    group: Pid,
}

impl Process {
    fn read(pid: Pid) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // A process chooses its own name, and may have parentheses in it.
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let is_dead = matches!(fields.next()?, "Z" | "X");
        let mut number = || Some(Pid::from_raw(fields.next()?.parse().ok()?));
        Some(Self { pid, name: plain(name), is_dead, parent: number()?, group: number()? })
    }

    /// Whether it still runs, and this process may not signal it.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        !self.is_dead && kill(self.pid, None) == Err(Errno::EPERM)
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.pid, self.name)
    }
}

/// The processes of a group, dead ones included; none where the system does not tell.
pub(crate) fn members(group: Pid) -> Vec<Process> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw));
    pids.filter_map(Process::read).filter(|process| process.group == group).collect()
}

/// The parent of a process; `None` where the system does not tell.
pub(crate) fn parent(pid: Pid) -> Option<Pid> {
    Process::read(pid).map(|process| process.parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{getpgrp, getpid, getppid};

    #[test]
    #[cfg(target_os = "linux")]
    fn process_is_read_from_proc() {
        assert_eq!(parent(getpid()), Some(getppid()));
        let members = members(getpgrp());
        let own = members.iter().find(|process| process.pid == getpid()).expect("it is in its own group");
        assert!(!own.is_dead && !own.is_out_of_reach());
    }
}
