//! The signals that this process gets, as a stream.

use crate::exit::Failure;
use nix::sys::signal::Signal;
use std::{fs, future::poll_fn, io, task::Poll};
use tokio::signal::unix::{self, SignalKind};

/// Those that end `tenure` while it waits, and that a running command is told of.
const ENDING: [Signal; 6] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];
/// Those that matter besides while a command runs.
const RUNNING: [Signal; 4] = [Signal::SIGCHLD, Signal::SIGCONT, Signal::SIGTSTP, Signal::SIGWINCH];

/// The signals that are listened to, each by one stream for as long as the process lives: what was once listened to
/// never again does what it does by default.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Listens to those that end a program.
    pub(crate) fn that_end() -> Result<Self, Failure> {
        let mut signals = Self(Vec::new());
        signals.listen(&ENDING)?;
        Ok(signals)
    }

    /// Listens also to those that matter while a command runs, from the first one on.
    pub(crate) fn while_running(&mut self) -> Result<(), Failure> {
        self.listen(&RUNNING)
    }

    /// What was ignored from the start stays ignored, here and in the command: that is how `nohup` works.
    fn listen(&mut self, which: &[Signal]) -> Result<(), Failure> {
        let ignored = ignored();
        for &signal in which {
            let number = signal as i32;
            let is_ignored = signal != Signal::SIGCHLD && ignored & (1 << (number - 1)) != 0;
            if is_ignored || self.0.iter().any(|(listened, _)| *listened == signal) {
                continue;
            }
            let stream = unix::signal(SignalKind::from_raw(number));
            let stream =
                stream.map_err(|error| Failure::system(format!("{signal} cannot be listened to"), error))?;
            self.0.push((signal, stream));
        }
        Ok(())
    }

    /// The next one.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let mut came = self
                .0
                .iter_mut()
                .filter_map(|(signal, stream)| stream.poll_recv(context).is_ready().then_some(*signal));
            came.next().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// The set of signals that this process ignores, as the kernel writes it; where it does not tell, none.
fn ignored() -> u64 {
    let mask = |status: io::Result<String>| {
        let status = status.ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    mask(fs::read_to_string("/proc/self/status")).unwrap_or_default()
}
