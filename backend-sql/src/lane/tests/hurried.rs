//! A request whose caller gave up, and one behind it that is in a hurry.

use crate::{
    lane::{Again, Lane, Server, Verdict},
    statement::Statement,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_core::StoreError;
use tokio::time::{sleep, timeout};

/// How long an answer may take.
const LONGEST: Duration = Duration::from_secs(10);
/// How long the first caller waits.
const IMPATIENT: Duration = Duration::from_millis(100);

/// A server that answers after as long as it is told. It counts the connections.
#[derive(Default)]
struct Distant(AtomicUsize);

impl Server for Distant {
    type Connection = ();
    type Arguments = Duration;
    type Answer = ();

    fn connect_timeout(&self) -> Duration {
        LONGEST
    }

    fn response_timeout(&self) -> Duration {
        LONGEST
    }

    async fn open(&self) -> Result<(), StoreError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn close(&self, (): ()) -> Result<(), sqlx::Error> {
        Ok(())
    }

    async fn run(&self, (): &mut (), _: &Statement, way: Duration) -> Result<(), sqlx::Error> {
        sleep(way).await;
        Ok(())
    }

    fn verdict(&self, _: &sqlx::Error) -> Verdict {
        Verdict::Broken
    }

    fn explain(&self, error: sqlx::Error) -> StoreError {
        StoreError::unavailable(error)
    }
}

/// The first request is given up, and would be answered after `way`. Returns how many connections were made until the
/// next one was answered, well before the first one would be silent.
async fn connections(way: Duration) -> usize {
    let (server, statement) = (Arc::new(Distant::default()), Statement::new(String::new()));
    let lane = Lane::new(&server);
    assert!(timeout(IMPATIENT, lane.run(&statement, way, Again::Safe)).await.is_err());
    lane.hurry();
    timeout(LONGEST / 2, lane.run(&statement, IMPATIENT, Again::Safe)).await.unwrap().unwrap();
    server.0.load(Ordering::Relaxed)
}

/// Otherwise a lease too short for the distance would cost others the connection over which they are renewed.
#[tokio::test(start_paused = true)]
async fn a_distant_server_has_time_to_answer() {
    assert_eq!(connections(Duration::from_secs(1)).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_dead_connection_is_replaced() {
    assert_eq!(connections(LONGEST * 2).await, 2);
}
