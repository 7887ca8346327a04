//! How a client that released a name lets others in before it contends again.

use super::{queue::Seat, store::Store};
use crate::contract::{Capabilities, Moment, Name, Wakeup, lease};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long another client takes to ask again after a hint: one hop there, one back.
const TOLD_AND_ASKED: Duration = Duration::from_millis(20);
/// The shortest pause before a look.
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// Gives up the seat, and its turn, when another client has got in, or after one round of asking.
///
/// `trip` is how long the store took to answer the release: another client will not have got in sooner. While other
/// tasks of this client wait for the turn in `seat`, the store is asked for the current holders.
pub(super) async fn give_way(store: &Store, name: &Name, seat: Seat, released: Moment, trip: Duration) {
    let Capabilities { wakeup, ask_again, listing, .. } = store.capabilities();
    let one_round = if wakeup == Wakeup::Poll { ask_again } else { ask_again.min(TOLD_AND_ASKED) };
    let another_gets_in = async move {
        let mut pause = trip.max(FIRST_LOOK);
        loop {
            sleep(pause).await;
            if listing && seat.has_followers() && has_come(store, name, released).await {
                return;
            }
            // If the client that waits is slow or gone, the store is not asked all the time.
            pause = pause * 3 / 2;
        }
    };
    let _ = timeout(one_round, another_gets_in).await;
}

/// Whether a holder has come since then.
async fn has_come(store: &Store, name: &Name, since: Moment) -> bool {
    let Ok(holders) = store.holders(name).await else { return false };
    let oldest = oldest_since(since);
    holders.iter().any(|holder| holder.age.is_none_or(|age| age <= oldest))
}

/// How old a holder that came after that instant is at most, even by a faster clock.
pub(super) fn oldest_since(instant: Moment) -> Duration {
    let passed = Moment::now().since(instant);
    passed + lease::drift_allowance(passed)
}
