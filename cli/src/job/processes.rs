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
        Self::parse(pid, &String::from_utf8_lossy(&stat))
    }

    fn parse(pid: Pid, stat: &str) -> Option<Self> {
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
    use proptest::prelude::*;

    proptest! {
        /// A process chooses its own name.
        #[test]
        fn process_name_hides_no_other_field(
            (pid, parent, group) in (1..i32::MAX, 0..i32::MAX, 0..i32::MAX),
            name in "[() 0-9RZ\\n]{0,15}|.{0,15}",
            state in "[RSDZTX]",
        ) {
            let stat = format!("{pid} ({name}) {state} {parent} {group} 7 0 -1 4194304 0");
            let read = Process::parse(Pid::from_raw(pid), &stat).unwrap();
            prop_assert_eq!((read.parent.as_raw(), read.group.as_raw()), (parent, group));
            prop_assert_eq!((read.is_dead, read.name), (matches!(&*state, "Z" | "X"), plain(&name)));
        }

        #[test]
        fn other_text_is_no_process(stat in ".{0,60}|[0-9]{0,5} ?[(].{0,9}[)]? [A-Z]?( -?[0-9]{0,12}){0,3}") {
            if let Some(read) = Process::parse(Pid::from_raw(7), &stat) {
                let (_, rest) = stat.rsplit_once(')').unwrap();
                let numbers: Vec<i32> = rest.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
                prop_assert_eq!(&numbers[..2], &[read.parent.as_raw(), read.group.as_raw()], "{}", stat);
            }
        }
    }
}
