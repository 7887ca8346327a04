//! The command's processes.
//!
//! | file | what is in it |
//! |---|---|
//! | `end` | how a command is ended, and how soon |
//! | `helper` | the process that watches over the command, in case that this one dies |
//! | `signals` | the signals that this process gets |
//! | `terminal` | which group has the terminal |
//! | `orphans`, `processes` | children to reap; the processes of a group |

pub(crate) mod end;
pub(crate) mod helper;
mod orphans;
mod processes;
pub(crate) mod signals;
mod terminal;

use self::{helper::Watcher, terminal::Terminal};
use crate::{exit::Failure, stderr, store::Variables};
use nix::{
    errno::Errno,
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use std::{
    ffi::{OsStr, OsString},
    process::{Child, ExitStatus},
};
use tenure::LockSetGuard;

/// A command in its own process group.
pub(crate) struct Job {
    leader: Child,
    group: Pid,
    terminal: Option<Terminal>,
    /// Whether the command gets the terminal whenever this process's group has it.
    uses_terminal: bool,
    /// Whether it got SIGHUP, because it asked for a terminal that it cannot get.
    is_hung_up: bool,
    watcher: Watcher,
}

impl Job {
    /// Starts a process for the command, with the names and tokens in its environment, and these variables set or
    /// unset. The command begins when it is [resumed](Self::resume), and never if this is dropped before.
    pub(crate) fn prepare(
        program: &OsStr,
        args: &[OsString],
        held: &LockSetGuard,
        variables: &Variables,
    ) -> Result<Self, Failure> {
        let failed = |error| Failure::system("cannot start the command", error);
        let terminal = Terminal::find();
        let mut watcher = Watcher::start().map_err(failed)?;
        let mut command = helper::command(program, args).map_err(failed)?;
        let names: Vec<&str> = held.holds().map(|hold| hold.name().as_str()).collect();
        let tokens: Vec<String> = held.holds().map(|hold| hold.token().to_string()).collect();
        command.env("TENURE_NAME", names.join("\n")).env("TENURE_TOKEN", tokens.join("\n"));
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let mut leader = command.spawn().map_err(failed)?;
        let group = Pid::from_raw(leader.id().cast_signed());
        if let Err(error) = helper::ready(&leader).and_then(|()| watcher.watch_over(group)) {
            // It must not run without a watcher.
            let _ = leader.kill();
            let _ = leader.wait();
            return Err(failed(error));
        }
        let uses_terminal = Terminal::is_for_command();
        Ok(Self { leader, group, terminal, uses_terminal, is_hung_up: false, watcher })
    }

    /// Sends a signal to all its processes that may be signalled. The others are [out of reach](Self::out_of_reach).
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = killpg(self.group, signal);
    }

    /// Passes on a signal that this process received.
    pub(crate) fn pass_on(&self, signal: Signal) {
        self.signal(signal);
        // A command that misses any other signal only looks odd.
        if signals::ends(signal)
            && let Some(processes) = self.out_of_reach()
        {
            stderr::say(&format!(
                "cannot pass on {signal}: no permission to signal {processes} of the command"
            ));
        }
    }

    /// Tells all its processes to end, including stopped ones.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    /// Checks on the command: how it ended, or `None` while it runs. Handles a stop, and reaps orphans.
    pub(crate) fn check(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let status = self.leader.try_wait();
        let status = status.map_err(|error| Failure::system("cannot wait for the command", error))?;
        orphans::reap(&[self.group, self.watcher.check()]);
        if status.is_none()
            && let Some(signal) = stop_of(self.group)
        {
            self.stopped(signal);
        }
        Ok(status)
    }

    /// If the terminal stopped the command, the command gets the terminal, or `tenure` stops too. `tenure` also stops with
    /// a command that stopped while it had the terminal: the person there waits for a prompt. A command that SIGSTOP
    /// stopped otherwise is left alone: it keeps the lock, until `--max-hold` if that is set.
    fn stopped(&mut self, signal: Signal) {
        let Some(terminal) = &self.terminal else { return };
        let wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        self.uses_terminal |= wants_terminal;
        let has_terminal = terminal.is_of(self.group);
        // The terminal may have been lent meanwhile for another reason.
        if wants_terminal && (has_terminal || terminal.is_ours()) {
            self.resume();
        } else if wants_terminal {
            // As the terminal would stop a command of this process's own group: `timeout` ignores this signal.
            if !self.stop_with(terminal, Signal::SIGTTIN) {
                self.hang_up();
            }
        } else if has_terminal || signal == Signal::SIGTSTP {
            terminal.take_back(self.group);
            if !self.stop_with(terminal, Signal::SIGSTOP) && signal == Signal::SIGTSTP {
                self.resume();
            }
        }
    }

    /// Stops this process's group by `signal`, and all of the command, which must not run on while its lease is not
    /// renewed. The SIGCONT that continues this group resumes the command too. Returns `false`, and stops nothing, if
    /// that signal would never come.
    fn stop_with(&self, terminal: &Terminal, signal: Signal) -> bool {
        let can_stop = terminal.is_of_job();
        if can_stop {
            self.signal(Signal::SIGSTOP);
            terminal.stop(signal);
        }
        can_stop
    }

    /// No shell will ever give the command the terminal that it waits for. The kernel hangs up on the stopped processes
    /// of a group that no shell can continue any more; this does so too, once.
    fn hang_up(&mut self) {
        if std::mem::replace(&mut self.is_hung_up, true) {
            return;
        }
        stderr::say(
            "the command needs the terminal, but runs in the background without a shell; sending it SIGHUP",
        );
        self.signal(Signal::SIGHUP);
        self.signal(Signal::SIGCONT);
    }

    /// Continues the command, with the terminal if it uses it.
    pub(crate) fn resume(&self) {
        self.lend_terminal();
        self.signal(Signal::SIGCONT);
    }

    fn lend_terminal(&self) {
        if let Some(terminal) = self.terminal.as_ref().filter(|_| self.uses_terminal) {
            terminal.lend(self.group);
        }
    }

    /// Whether none of its processes is left. The command itself has already ended.
    pub(crate) fn is_empty(&self) -> bool {
        killpg(self.group, None) == Err(Errno::ESRCH)
    }

    /// Its processes that this process may not signal, in words: they run as another user (`sudo`).
    pub(crate) fn out_of_reach(&self) -> Option<String> {
        let members = processes::members(self.group);
        if members.is_empty() {
            // The system does not tell which processes there are.
            let refused = killpg(self.group, None) == Err(Errno::EPERM);
            return refused.then(|| format!("process group {}", self.group));
        }
        let members = members.iter().filter(|process| process.is_out_of_reach());
        let listed = members.map(ToString::to_string).collect::<Vec<_>>().join(", ");
        (!listed.is_empty()).then(|| format!("process {listed}"))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // After any error, no process may run on without the lock.
        if !matches!(self.leader.try_wait(), Ok(Some(_))) {
            self.signal(Signal::SIGKILL);
            // Without permission to signal it, this would wait until it ends by itself.
            if self.leader.kill().is_ok() {
                let _ = self.leader.wait();
            }
        }
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.group);
        }
    }
}

/// The signal that has stopped a child since the last call. Systems that cannot report stops separately would hide the
/// child's end from the standard library's wait, so there a stopped command stays stopped.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn stop_of(child: Pid) -> Option<Signal> {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    match waitid(Id::Pid(child), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
        Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
        _ => None,
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn stop_of(_: Pid) -> Option<Signal> {
    None
}
