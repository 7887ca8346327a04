//! The fate of the bytes of one direction of a connection.

use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How a proxy treats the bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// Hands them on at once.
    #[default]
    Pass,
    /// Hands them on this much after they arrived, in order. Closing is delayed too.
    Delay(Duration),
    /// Hands them on one at a time, with this pause after each.
    Drip(Duration),
    /// Keeps them back, and the news that the other side closed, until the flow changes.
    Hold,
    /// Throws them away. Closing is handed on.
    Drop,
    /// Hands them on until some hold one of these words, and throws away those, what comes after them, and the news that
    /// this side closed: to the other it has stopped there. It is seen in what arrives together.
    StopAt(&'static [&'static str]),
}

impl Flow {
    /// Whether these bytes are the first that are lost for good. `COMMIT` is not in `READ COMMITTED`.
    pub(super) fn stops_at(self, bytes: &[u8]) -> bool {
        let Self::StopAt(words) = self else { return false };
        let begins = |rest: &[u8], word: &str| {
            rest.strip_prefix(word.as_bytes())
                .is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_alphanumeric))
        };
        (0..bytes.len()).any(|at| words.iter().any(|word| begins(&bytes[at..], word)))
    }
}

/// Waits until what arrived at `arrived` may be dealt with, and returns how. `None`: the connection is gone.
pub(super) async fn due(arrived: Instant, flow: &mut watch::Receiver<Flow>) -> Option<Flow> {
    loop {
        let now = *flow.borrow_and_update();
        match now {
            Flow::Pass | Flow::Drip(_) | Flow::Drop | Flow::StopAt(_) => return Some(now),
            Flow::Hold => flow.changed().await.ok()?,
            Flow::Delay(by) => tokio::select! {
                () = tokio::time::sleep_until(arrived + by) => return Some(now),
                changed = flow.changed() => changed.ok()?,
            },
        }
    }
}
