//! The signals that this process receives, as a stream.

use crate::{
    exit::Failure,
    job::{orphans, terminal},
};
use nix::sys::signal::Signal;
use std::{fs, future::poll_fn, io, task::Poll};
use tokio::signal::unix::{self, SignalKind};

/// These end `tenure` while it waits, and are forwarded to a running command.
const ENDING: [Signal; 6] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];
/// These also matter while a command runs.
const RUNNING: [Signal; 4] = [Signal::SIGCHLD, Signal::SIGCONT, Signal::SIGTSTP, Signal::SIGWINCH];

/// The signals that are caught, each by one stream for the life of the process: once caught, a signal never has its
/// default effect again.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Catches the signals that end a program.
    pub(crate) fn that_end() -> Result<Self, Failure> {
        let mut signals = Self(Vec::new());
        signals.listen(&ENDING)?;
        Ok(signals)
    }

    /// Also catches the signals that matter while a command runs, from the first command on.
    pub(crate) fn while_running(&mut self) -> Result<(), Failure> {
        self.listen(&RUNNING)
    }

    /// Signals that were ignored from the start stay ignored, here and in the command, as `nohup` needs.
    fn listen(&mut self, which: &[Signal]) -> Result<(), Failure> {
        let ignored = ignored();
        for &signal in which {
            let number = signal as i32;
            let is_ignored = signal != Signal::SIGCHLD && ignored & (1 << (number - 1)) != 0;
            if is_ignored || self.0.iter().any(|(listened, _)| *listened == signal) {
                continue;
            }
            let stream = unix::signal(SignalKind::from_raw(number));
            let stream = stream.map_err(|error| Failure::system(format!("cannot catch {signal}"), error))?;
            self.0.push((signal, stream));
        }
        Ok(())
    }

    /// Waits for the next signal.
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

    /// Waits for a signal that ends `tenure` while no command runs.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn ending(&mut self) -> Signal {
        loop {
            match self.next().await {
                // After a first command, these signals are still caught.
                Signal::SIGTSTP => terminal::stop(),
                Signal::SIGCHLD => orphans::reap(&[]),
                Signal::SIGCONT | Signal::SIGWINCH => {}
                signal => return signal,
            }
        }
    }
}

/// Whether this signal ends a program.
pub(crate) fn ends(signal: Signal) -> bool {
    ENDING.contains(&signal)
}

/// The set of signals that this process ignores, as a bit mask; empty where the system does not tell.
fn ignored() -> u64 {
    let mask = |status: io::Result<String>| {
        let status = status.ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    mask(fs::read_to_string("/proc/self/status")).unwrap_or_default()
}
