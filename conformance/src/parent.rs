//! This program, started once more, and the process that started it, which it does not outlive.

use crate::check::{Check, Stop};
use std::{
    env,
    io::{self, BufRead, Write},
    path::Path,
    process::Stdio,
};
use tokio::{
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::mpsc,
};

/// Holds the number of the process that starts another.
const PARENT: &str = "TENURE_CONFORMANCE_PARENT";

/// Starts a program, this one or another version of it, to [end with](end_with_it) this process.
///
/// Linux takes the thread that starts a process for its parent: it has to live as long as the process is needed, as the
/// workers of a runtime do.
pub(crate) fn start<'a>(
    program: &Path,
    environment: impl IntoIterator<Item = (&'a str, String)>,
) -> Check<(Child, ChildStdin, ChildStdout)> {
    let mut process = Command::new(program)
        .envs(environment)
        .env(PARENT, std::process::id().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Stop::failed(format_args!("{} does not start: {error}", program.display())))?;
    let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
        return Err(Stop::failed("another process started without pipes"));
    };
    Ok((process, input, output))
}

/// Reads what the parent says, one message a line. The process ends with its input: its parent is gone.
pub(crate) fn heard<T: Send + 'static>(
    read: impl Fn(String) -> Option<T> + Send + 'static,
) -> mpsc::UnboundedReceiver<T> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Some(message) = line.ok().and_then(&read) else { break };
            if sender.send(message).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    receiver
}

/// Says a line to the parent.
pub(crate) fn say(line: &str) {
    let mut out = io::stdout().lock();
    // A broken pipe means that the parent is gone; the reading thread ends the process.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
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
    if env::var(PARENT)? != Pid::as_raw(getppid()).to_string() {
        std::process::exit(0);
    }
    Ok(())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn end_with_it() -> Check {
    Ok(())
}
