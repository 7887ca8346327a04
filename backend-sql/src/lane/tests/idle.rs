//! A request after a long silence.

use crate::{
    lane::{Again, Lane, Server, Verdict},
    statement::Statement,
};
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_core::StoreError;
use tokio::time::{Instant, sleep};

/// How long an answer may take.
const LONGEST: Duration = Duration::from_secs(5);
/// A firewall forgets a connection that was idle for this long.
const FORGOTTEN: Duration = Duration::from_mins(4);

/// A server behind a firewall that drops packets of connections that it has forgotten. It counts the connections.
#[derive(Default)]
struct Behind(AtomicUsize);

impl Behind {
    async fn pass(&self, last: &mut Instant) {
        if last.elapsed() >= FORGOTTEN {
            pending::<()>().await;
        }
        *last = Instant::now();
    }
}

impl Server for Behind {
    /// When its last packet passed.
    type Connection = Instant;
    type Arguments = ();
    type Answer = ();

    fn connect_timeout(&self) -> Duration {
        LONGEST
    }

    fn response_timeout(&self) -> Duration {
        LONGEST
    }

    async fn open(&self) -> Result<Instant, StoreError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Instant::now())
    }

    async fn ping(&self, last: &mut Instant) -> Result<(), sqlx::Error> {
        self.pass(last).await;
        Ok(())
    }

    async fn close(&self, _: Instant) -> Result<(), sqlx::Error> {
        Ok(())
    }

    async fn run(&self, last: &mut Instant, _: &Statement, (): ()) -> Result<(), sqlx::Error> {
        self.pass(last).await;
        Ok(())
    }

    fn verdict(&self, _: &sqlx::Error) -> Verdict {
        Verdict::Broken
    }

    fn explain(&self, error: sqlx::Error) -> StoreError {
        StoreError::unavailable(error)
    }
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_replaced_if_firewall_dropped_it() {
    let (server, statement) = (Arc::new(Behind::default()), Statement::new(String::new()));
    let lane = Lane::new(&server);
    let connections_after = async |silence: Duration| {
        sleep(silence).await;
        lane.run(&statement, (), Again::No).await.unwrap();
        server.0.load(Ordering::Relaxed)
    };
    assert_eq!(connections_after(Duration::ZERO).await, 1);
    assert_eq!(connections_after(FORGOTTEN / 2).await, 1);
    assert_eq!(connections_after(FORGOTTEN).await, 2);
}
