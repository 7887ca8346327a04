//! A peer that accepts connections and never answers, as if the port belonged to another kind of server.

use super::{Dialect, ServerBackend, ServerOptions};
use crate::strategy::Strategy;
use std::{net::TcpListener, time::Duration};
use tenure_core::Error;
use tokio::time::Instant;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// However many connections are opened, the caller waits for only one attempt.
async fn gives_up_in_time<D: Dialect>(scheme: &str) {
    for strategy in [Strategy::LeaseRow, Strategy::RowLock] {
        // The system accepts connections for it.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://me:hunter2@{}/app", silent.local_addr().unwrap());
        let options = ServerOptions::<D>::new(url).strategy(strategy).connect_timeout(CONNECT_TIMEOUT);
        let begun = Instant::now();
        let error = ServerBackend::connect(options).await.unwrap_err();
        // A timer may be late by its own grain.
        assert!(begun.elapsed() < CONNECT_TIMEOUT + Duration::from_millis(10), "{strategy:?}");
        let Error::Unavailable { source, .. } = &error else { panic!("{error}") };
        assert!(source.to_string().ends_with("within 5s"), "{source}");
    }
}

#[cfg(feature = "postgres")]
#[tokio::test(start_paused = true)]
async fn silent_postgres_is_waited_for_once() {
    gives_up_in_time::<sqlx::Postgres>("postgres").await;
}

#[cfg(feature = "mysql")]
#[tokio::test(start_paused = true)]
async fn silent_mysql_is_waited_for_once() {
    gives_up_in_time::<sqlx::MySql>("mysql").await;
}
