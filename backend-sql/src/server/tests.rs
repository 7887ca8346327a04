//! A peer that accepts connections and never answers, as if the port belonged to another kind of server.

use super::{Dialect, ServerBackend, ServerOptions};
use crate::options::Strategy;
use std::{
    net::TcpListener,
    time::{Duration, Instant},
};
use tenure_core::Error;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than one attempt takes on a busy machine, and shorter than two take.
const ONE_ATTEMPT: Duration = Duration::from_secs(9);

/// However many connections are opened, the caller waits for only one attempt.
async fn gives_up_in_time<D: Dialect>(scheme: &str, strategy: Strategy) {
    // The system accepts connections for it.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("{scheme}://me:hunter2@{}/app", silent.local_addr().unwrap());
    let options = ServerOptions::<D>::new(url).strategy(strategy).connect_timeout(CONNECT_TIMEOUT);
    let begun = Instant::now();
    let error = ServerBackend::connect(options).await.unwrap_err();
    let took = begun.elapsed();
    assert!(took < ONE_ATTEMPT, "{strategy:?}: {took:?}");
    let Error::Unavailable { source, .. } = &error else { panic!("{error}") };
    assert!(source.to_string().ends_with("within 5s"), "{source}");
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_silent_peer_of_postgres_is_waited_for_once() {
    gives_up_in_time::<sqlx::Postgres>("postgres", Strategy::LeaseRow).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_silent_peer_of_row_locks_in_postgres_is_waited_for_once() {
    gives_up_in_time::<sqlx::Postgres>("postgres", Strategy::RowLock).await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn a_silent_peer_of_mysql_is_waited_for_once() {
    gives_up_in_time::<sqlx::MySql>("mysql", Strategy::LeaseRow).await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn a_silent_peer_of_row_locks_in_mysql_is_waited_for_once() {
    gives_up_in_time::<sqlx::MySql>("mysql", Strategy::RowLock).await;
}
