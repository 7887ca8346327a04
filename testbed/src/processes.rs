//! The processes of a local server: every one whose working directory is its home.
//!
//! Neither a process group nor a parent would do: `PostgreSQL` puts each backend in a group of its own, and orphans
//! change their parent.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Stops every process of `home`, and returns when all stand still.
pub(crate) async fn freeze(home: &Path) -> io::Result<()> {
    // A process may fork until it is stopped: look again until nothing is left that runs.
    loop {
        let running: Vec<Pid> = of(home)?.into_iter().filter(|pid| !is_stopped(*pid)).collect();
        if running.is_empty() {
            return Ok(());
        }
        signal(&running, Signal::STOP)?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Lets every process of `home` go on.
pub(crate) fn thaw(home: &Path) -> io::Result<()> {
    signal(&of(home)?, Signal::CONT)
}

/// Kills every process of `home`, and returns when all are gone.
pub(crate) async fn kill(home: &Path) -> io::Result<()> {
    // Stopped first, or a child that sees its parent go could tidy up.
    freeze(home).await?;
    loop {
        let left = of(home)?;
        if left.is_empty() {
            return Ok(());
        }
        signal(&left, Signal::KILL)?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The processes that live in `home`. One that has ended has no directory any more.
pub(crate) fn of(home: &Path) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        // Not readable: it has just ended, or is another user's.
        if fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(home)) {
            found.push(pid);
        }
    }
    Ok(found)
}

fn is_stopped(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // Gone is as good as stopped.
    stat.map_or(true, |stat| {
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
        matches!(state, Some("T" | "t" | "Z" | "X") | None)
    })
}

fn signal(pids: &[Pid], signal: Signal) -> io::Result<()> {
    for pid in pids {
        match kill_process(*pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
