//! Two small parts that this program plays in processes of its own, so that a command does not outlive a `tenure run`
//! that was killed.
//!
//! **exec** becomes the command. Before that it asks the kernel for SIGKILL at the death of its parent, which is a
//! wish that a process can only have for itself and that outlives `execve`
//! ([`PR_SET_PDEATHSIG`](https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html)). It covers this one process,
//! whatever else is killed along with its parent. Then it stops itself, until the watcher knows its group and the
//! terminal is lent to it: a command that ran earlier could have descendants of which nobody knows.
//!
//! **watch** waits at a pipe whose other end only `tenure run` has, and kills the command's whole process group when
//! that end is closed by anything but a farewell, which is to kill the watcher first. It covers the command's
//! descendants.

use crate::exit;
use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, killpg, raise},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, getppid},
};
use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
};

/// The names by which the parts are called: the first argument of a process is its name.
const EXEC: &str = "tenure-exec";
const WATCH: &str = "tenure-watch";

/// Plays a part if this process was started for one.
pub(crate) fn main() -> Option<ExitCode> {
    let mut args = env::args_os();
    let name = args.next()?;
    if name == EXEC {
        Some(exec(args))
    } else if name == WATCH {
        Some(watch())
    } else {
        None
    }
}

/// This program again. On Linux by a path that still leads to it when its file was replaced by a newer version.
fn again(part: &str) -> io::Result<Command> {
    let program =
        if cfg!(target_os = "linux") { PathBuf::from("/proc/self/exe") } else { env::current_exe()? };
    let mut command = Command::new(program);
    command.arg0(part).process_group(0);
    Ok(command)
}

/// `program`, to be started in a process group of its own, and ended by the death of this thread. It begins when it
/// gets SIGCONT, after it has [stopped](ready) itself.
pub(crate) fn command(program: &OsStr, args: &[OsString]) -> io::Result<Command> {
    let mut command = again(EXEC)?;
    command.arg(std::process::id().to_string()).arg(program).args(args);
    Ok(command)
}

fn exec(mut args: env::ArgsOs) -> ExitCode {
    let parent = args.next().and_then(|parent| parent.to_str()?.parse().ok());
    let (Some(parent), Some(program)) = (parent, args.next()) else {
        return ExitCode::FAILURE;
    };
    let promised = die_with_parent();
    // Until it has stopped itself this says nothing: `tenure run` waits for it, and stderr may be blocked.
    if getppid() != Pid::from_raw(parent) || raise(Signal::SIGSTOP).is_err() {
        return ExitCode::FAILURE;
    }
    if let Err(error) = promised {
        say(&format!("the kernel does not promise to end the command with tenure: {error}"));
    }
    let error = Command::new(&program).args(args).exec();
    say(&format!("{:?} cannot be run: {error}", program.to_string_lossy()));
    ExitCode::from(exit::not_started(&error))
}

/// Waits for a reader, as a command does. It may, because whoever ends the command ends this.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "tenure: {text}");
}

/// Waits until a process that was started by [`command`] has stopped itself.
pub(crate) fn ready(process: &Child) -> io::Result<()> {
    loop {
        match waitpid(Pid::from_raw(process.id().cast_signed()), Some(WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Stopped(..)) => return Ok(()),
            Ok(_) => return Err(io::Error::other("its process ended before it began")),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Asks the kernel to kill this process at the death of its parent, where it does such a thing. A parent that died
/// before is not seen by that.
fn die_with_parent() -> nix::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    Ok(())
}

/// A process that kills a group when this process dies. Dropping it is the farewell.
pub(crate) struct Watcher {
    process: Child,
    pipe: ChildStdin,
}

impl Watcher {
    /// Starts it, to watch over nothing yet.
    pub(crate) fn start() -> io::Result<Self> {
        let mut process = again(WATCH)?
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let Some(pipe) = process.stdin.take() else { unreachable!("its stdin is a pipe") };
        Ok(Self { process, pipe })
    }

    /// Kills `group` from now on if this process dies.
    pub(crate) fn watch_over(&mut self, group: Pid) -> io::Result<()> {
        self.pipe.write_all(group.as_raw().to_string().as_bytes())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Both fail only when it has gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn watch() -> ExitCode {
    #[cfg(target_os = "linux")]
    // Somebody who ends all processes called `tenure` is to leave this one alone. A wish, not a need.
    let _ = nix::sys::prctl::set_name(c"tenure-watch");
    let mut group = String::new();
    match io::stdin().read_to_string(&mut group).ok().and_then(|_| group.parse().ok()) {
        // A group that has ended by itself is no failure.
        Some(group) => {
            killpg(Pid::from_raw(group), Signal::SIGKILL).map_or(ExitCode::SUCCESS, |()| ExitCode::SUCCESS)
        }
        None => ExitCode::FAILURE,
    }
}
