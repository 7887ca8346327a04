//! What happens to the bytes of one direction of a connection.

use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// What a proxy does with the bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// Hands them on at once.
    #[default]
    Pass,
    /// Hands them on this much after they arrived, in order. Closing is delayed too.
    Delay(Duration),
    /// Keeps them back, and the news that the other side closed, until the flow changes.
    Hold,
    /// Throws them away. Closing is handed on.
    Drop,
}

/// Waits until what arrived at `arrived` may be dealt with, and returns how. `None`: the connection is gone.
pub(super) async fn due(arrived: Instant, flow: &mut watch::Receiver<Flow>) -> Option<Flow> {
    loop {
        let now = *flow.borrow_and_update();
        match now {
            Flow::Pass | Flow::Drop => return Some(now),
            Flow::Hold => flow.changed().await.ok()?,
            Flow::Delay(by) => tokio::select! {
                () = tokio::time::sleep_until(arrived + by) => return Some(now),
                changed = flow.changed() => changed.ok()?,
            },
        }
    }
}
