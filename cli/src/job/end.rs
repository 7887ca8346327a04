//! The end of a command that has lost its lock.

use crate::{exit::Failure, job::Job, stderr};
use nix::sys::signal::Signal;
use std::time::Duration;
use tokio::time::Instant;

/// How often to look at processes that are no children of this one, whose end no signal reports.
const LOOK: Duration = Duration::from_millis(10);
/// How often SIGKILL is sent again.
const KILL_AGAIN: Duration = Duration::from_secs(1);
/// How often a process that cannot be ended is reported again.
const SAY_AGAIN: Duration = Duration::from_mins(1);

/// SIGTERM at once, SIGKILL later, and a message about processes that may not be signalled, until they have ended.
pub(crate) struct End {
    kill_at: Instant,
    /// Whether SIGKILL was sent.
    kills: bool,
    say_at: Instant,
    /// When to [look](Self::look) again.
    pub(crate) look_at: Instant,
}

impl End {
    /// Tells all processes of the job to end.
    pub(crate) fn begin(job: &Job, kill_after: Duration) -> Self {
        job.terminate();
        let now = Instant::now();
        Self { kill_at: now + kill_after, kills: false, say_at: now, look_at: now }
    }

    /// Returns whether no process of the job is left. Once it is time, kills the rest.
    pub(crate) fn look(&mut self, job: &mut Job) -> Result<bool, Failure> {
        let now = Instant::now();
        if now >= self.kill_at {
            job.signal(Signal::SIGKILL);
            if !self.kills {
                self.kills = true;
                self.say_at = now;
            }
        }
        let has_ended = job.check()?.is_some();
        if has_ended && job.is_empty() {
            return Ok(true);
        }
        let says = now >= self.say_at;
        let out_of_reach = if says || self.kills { job.out_of_reach() } else { None };
        if has_ended && self.kills && out_of_reach.is_none() {
            // SIGKILL reached all of it.
            return Ok(true);
        }
        if says {
            self.say_at = now + SAY_AGAIN;
            if let Some(processes) = out_of_reach {
                stderr::say(&format!(
                    "cannot end the command: no permission to signal {processes}; it runs on without the lock until \
                     you end it as its user or as root"
                ));
            }
        }
        self.look_at = match (self.kills, has_ended) {
            (true, _) => now + KILL_AGAIN,
            (false, true) => now + LOOK,
            (false, false) => self.kill_at.min(self.say_at),
        };
        Ok(false)
    }
}
