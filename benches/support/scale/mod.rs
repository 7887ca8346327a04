//! How far the locks of one store go: many leases in one process, and many processes that contend for many names.
//!
//! The clients are processes of their own, so that their memory and processor time are theirs alone, and none has what
//! an earlier one left. They do what this process tells them.

mod child;
mod client;
mod contention;
mod holding;
mod server_core;

pub(crate) use child::{CHILD, child};

use std::time::Duration;

/// After which a store is left, however far it came.
const LONGEST: Duration = Duration::from_mins(8);
const LEASE: Duration = Duration::from_mins(1);

/// A server's own figures.
pub(crate) trait Server {
    /// How many requests it has carried out for clients.
    async fn requests(&self) -> u32;

    /// The least that was left of any of these leases while it looked, which it does for this long.
    async fn least_left(&self, leases: Leases, time: Duration) -> Duration;
}

/// So many leases, numbered from 0.
#[derive(Clone, Copy)]
pub(crate) struct Leases {
    pub(crate) count: u32,
}

impl Leases {
    /// The part of a lease's name before the number.
    pub(crate) fn prefix(self) -> String {
        format!("{}/", self.count)
    }

    /// How far the next lease to look at is: to look at all of them would keep the server from its work.
    pub(crate) fn step(self) -> u32 {
        (self.count / 1_000).max(1)
    }

    fn name(self, number: u32) -> String {
        format!("{}{number}", self.prefix())
    }
}

pub(crate) async fn measure(store: &str, url: &str, server: &impl Server) {
    let both = async {
        holding::measure(store, url, server).await;
        contention::measure(store, url, server).await;
    };
    if tokio::time::timeout(LONGEST, both).await.is_err() {
        println!("  not measured to the end: {LONGEST:?} are over");
    }
}
