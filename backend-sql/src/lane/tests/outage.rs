//! Attempts to connect that fail.

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
use tokio::time::{Instant, sleep};

const ATTEMPT: Duration = Duration::from_secs(5);

/// A server that says nothing. It counts the attempts to connect.
#[derive(Default)]
struct Silent(AtomicUsize);

impl Server for Silent {
    type Connection = ();
    type Arguments = ();
    type Answer = ();

    fn connect_timeout(&self) -> Duration {
        ATTEMPT
    }

    fn response_timeout(&self) -> Duration {
        ATTEMPT
    }

    async fn open(&self) -> Result<(), StoreError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        sleep(ATTEMPT).await;
        Err(StoreError::unavailable("no connection"))
    }

    async fn close(&self, (): ()) -> Result<(), sqlx::Error> {
        Ok(())
    }

    async fn run(&self, (): &mut (), _: &Statement, (): ()) -> Result<(), sqlx::Error> {
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
async fn a_failed_attempt_answers_all_who_wait_and_nobody_who_comes_later() {
    let (server, statement) = (Arc::new(Silent::default()), Statement::new(String::new()));
    let lane = Lane::new(&server);
    let ask = async || {
        let error = lane.run(&statement, (), Again::Safe).await.unwrap_err();
        assert!(error.is_unavailable() && error.to_string() == "no connection", "{error}");
    };
    let ask_late = async {
        sleep(ATTEMPT / 2).await;
        ask().await;
    };
    let begun = Instant::now();
    tokio::join!(ask(), ask(), ask_late);
    assert_eq!(begun.elapsed(), ATTEMPT);
    assert_eq!(server.0.load(Ordering::Relaxed), 1);
    ask().await;
    assert_eq!(begun.elapsed(), ATTEMPT * 2);
    assert_eq!(server.0.load(Ordering::Relaxed), 2);
}

/// As when a store is opened: nobody waits for the server twice.
#[tokio::test(start_paused = true)]
async fn opening_fails_together_with_what_is_asked_behind_it() {
    let (server, statement) = (Arc::new(Silent::default()), Statement::new(String::new()));
    let lane = Lane::new(&server);
    let begun = Instant::now();
    let (opened, asked) = tokio::join!(lane.open(), lane.run(&statement, (), Again::Safe));
    assert!(opened.unwrap_err().is_unavailable() && asked.unwrap_err().is_unavailable());
    assert_eq!(begun.elapsed(), ATTEMPT);
    assert_eq!(server.0.load(Ordering::Relaxed), 1);
}
