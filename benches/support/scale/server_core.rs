//! How busy the server's core is.

use crate::pinning::server_core;

/// A core's idle times, by their place in `/proc/stat`: nothing to do, and waiting for the disk.
const IDLE: [usize; 2] = [3, 4];
/// The times after these are parts of earlier ones.
const TIMES: usize = 8;

/// The time that the core has spent so far, in ticks.
pub(crate) struct ServerCore {
    all: u64,
    idle: u64,
}

impl ServerCore {
    pub(crate) fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").expect("Linux");
        let core = format!("cpu{} ", server_core());
        let line = stat.lines().find_map(|line| line.strip_prefix(&core)).expect("the core");
        let ticks: Vec<u64> =
            line.split_whitespace().take(TIMES).map(|ticks| ticks.parse().expect("a number")).collect();
        Self { all: ticks.iter().sum(), idle: IDLE.iter().map(|time| ticks[*time]).sum() }
    }

    /// Which part of the time since then it was busy, in percent.
    pub(crate) fn busy(&self) -> u64 {
        let now = Self::now();
        // The kernel's own count of what it waited for may go back a little.
        let (all, idle) = (now.all.saturating_sub(self.all).max(1), now.idle.saturating_sub(self.idle));
        100_u64.saturating_sub(idle * 100 / all)
    }
}
