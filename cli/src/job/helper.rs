//! Two small roles that this program plays in separate processes, so that no command outlives a killed `tenure run`.
//!
//! **exec** becomes the command. Before that it asks the kernel for SIGKILL when its parent dies. A process can ask
//! this only for itself, and it survives `execve`
//! ([`PR_SET_PDEATHSIG`](https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html)). It covers this one
//! process, even if the watcher is killed along with the parent. Then it stops itself until the watcher knows its group
//! and the terminal is lent to it: a command that started earlier could have unknown descendants.
//!
//! **watch** reads a pipe whose other end only `tenure run` has, and kills the command's whole process group when that
//! end closes. To say farewell, `tenure run` kills the watcher first. The watcher covers the command's descendants.

use crate::exit::{self, Failure};
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
    fs,
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
};

/// The names of the roles, passed as `argv[0]`.
const EXEC: &str = "tenure-exec";
const WATCH: &str = "tenure-watch";

/// Plays a role if this process was started for one.
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

/// This program, to be started again. On Linux, a path that still works after an update has replaced the file.
fn program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok(PathBuf::from("/proc/self/exe")) } else { env::current_exe() }
}

/// Checks before any acquisition that this program can be started again.
pub(crate) fn check() -> Result<(), Failure> {
    let found = program().and_then(|program| {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", program.display()));
        fs::metadata(&program).map_err(named)
    });
    let text = "cannot start commands here: /proc is missing; mount it (mount -t proc proc /proc)";
    found.map(drop).map_err(|error| Failure::system(text, error))
}

fn again(part: &str) -> io::Result<Command> {
    let mut command = Command::new(program()?);
    command.arg0(part).process_group(0);
    Ok(command)
}

/// Builds a command that runs `program` in its own process group and is killed when this thread dies. It [stops](ready)
/// itself first, and begins on SIGCONT.
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
    // Prints nothing until it has stopped itself: `tenure run` waits for that, and stderr may be blocked.
    if getppid() != Pid::from_raw(parent) || raise(Signal::SIGSTOP).is_err() {
        return ExitCode::FAILURE;
    }
    if let Err(error) = promised {
        say(&format!("cannot ask the kernel to end the command when tenure dies: {error}"));
    }
    let error = Command::new(&program).args(args).exec();
    let hint = match program.as_encoded_bytes() {
        [b'-', ..] => "; write options of tenure before \"--\"",
        words if words.contains(&b' ') => "; for a line of the shell, write: -- sh -c '…'",
        _ => "",
    };
    let is_searched = error.kind() == io::ErrorKind::NotFound && !program.as_encoded_bytes().contains(&b'/');
    // A script without its interpreter is not found either.
    let is_there = |directory: PathBuf| directory.join(&program).exists();
    let is_in_path = env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(is_there));
    let is_nowhere = is_searched && !is_in_path;
    let why = if is_nowhere { "not found in PATH".to_owned() } else { error.to_string() };
    say(&format!("cannot run {:?}: {why}{hint}", program.to_string_lossy()));
    ExitCode::from(exit::not_started(&error))
}

/// May block on stderr, as any command may: a signal that ends the command ends this process.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "tenure: {text}");
}

/// Waits until a process that was started by [`command`] has stopped itself.
pub(crate) fn ready(process: &Child) -> io::Result<()> {
    loop {
        match waitpid(Pid::from_raw(process.id().cast_signed()), Some(WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Stopped(..)) => return Ok(()),
            Ok(_) => return Err(io::Error::other("its process ended before it could start")),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Asks the kernel, where it can, to kill this process when its parent dies. This does not notice a parent that has
/// died before.
fn die_with_parent() -> nix::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    Ok(())
}

/// A process that kills a group when this process dies. Dropping it stands it down.
pub(crate) struct Watcher {
    process: Child,
    pipe: ChildStdin,
}

impl Watcher {
    /// Starts it, with nothing to watch over yet.
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

    /// Its process, which is waited for if it was killed.
    pub(crate) fn check(&mut self) -> Pid {
        // How it ended changes nothing: the command has its parent-death signal.
        let _ = self.process.try_wait();
        Pid::from_raw(self.process.id().cast_signed())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn watch() -> ExitCode {
    #[cfg(target_os = "linux")]
    // So that `killall tenure` leaves this one alone. Nice to have.
    let _ = nix::sys::prctl::set_name(c"tenure-watch");
    let mut group = String::new();
    match io::stdin().read_to_string(&mut group).ok().and_then(|_| group.parse().ok()) {
        // A group that has ended by itself is not a failure.
        Some(group) => {
            killpg(Pid::from_raw(group), Signal::SIGKILL).map_or(ExitCode::SUCCESS, |()| ExitCode::SUCCESS)
        }
        None => ExitCode::FAILURE,
    }
}
