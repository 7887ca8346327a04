//! Connections that were silent for long.

use std::{fmt::Debug, time::Duration};
use tenure_core::Moment;

/// An idle connection is not trusted after this long: a firewall or load balancer may have dropped it without a word.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);
/// The server has this part of the response timeout to answer a ping: it may be far away.
const SIGN_OF_LIFE: u32 = 5;

/// Whether a connection can be used that was idle since then. Sends the `ping` only after a long silence.
pub(crate) async fn is_alive<E: Debug>(
    idle_since: Moment,
    response_timeout: Duration,
    ping: impl Future<Output = Result<(), E>>,
) -> bool {
    if Moment::now().since(idle_since) < SILENCE {
        return true;
    }
    let outcome = tokio::time::timeout(response_timeout / SIGN_OF_LIFE, ping).await;
    let alive = matches!(outcome, Ok(Ok(())));
    if !alive {
        tracing::debug!(?outcome, "an idle connection is dead");
    }
    alive
}
