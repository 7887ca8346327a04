//! Pauses of a case. On a real server none of them may decide whether the case passes: each may last longer than asked.
//!
//! Tests that meet a server sleep through these alone, so each pause says why it may be longer. Any of these futures can
//! be dropped.

use std::time::Duration;
use tokio::time::sleep;

/// Waits a moment before the next look at something that sends no event.
pub async fn look_again() {
    sleep(Duration::from_millis(5)).await;
}

/// Lets something end: a lease, a session, a request that arrives late. Later it has ended all the more.
pub async fn outlast(time: Duration) {
    sleep(time).await;
}

/// Gives something that must not happen the time to happen. A longer pause only gives it more.
pub async fn linger(time: Duration) {
    sleep(time).await;
}

/// Lets others get further, such as a waiter that goes to sleep. The case holds wherever they get, and shows more in some
/// places than in others.
pub async fn settle(time: Duration) {
    sleep(time).await;
}

/// Lets time pass in which a lease is kept. A stall that outlives the lease ends it, so the lease lasts for seconds.
pub async fn keep(time: Duration) {
    sleep(time).await;
}
