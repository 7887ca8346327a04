//! What is sent again when its connection breaks.

use crate::{
    lane::{Again, Lane, Server, Verdict},
    statement::Statement,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_core::StoreError;

/// A server that numbers the statements that it carries out.
#[derive(Default)]
struct Fake {
    done: AtomicUsize,
    /// The next answer is lost with its connection.
    breaks: AtomicBool,
}

impl Server for Fake {
    type Connection = ();
    type Arguments = ();
    type Answer = usize;

    fn connect_timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn response_timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn open(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&self, (): ()) -> Result<(), sqlx::Error> {
        Ok(())
    }

    async fn run(&self, (): &mut (), _: &Statement, (): ()) -> Result<usize, sqlx::Error> {
        let number = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if self.breaks.swap(false, Ordering::Relaxed) {
            return Err(sqlx::Error::Io(io::ErrorKind::ConnectionReset.into()));
        }
        Ok(number)
    }

    fn verdict(&self, _: &sqlx::Error) -> Verdict {
        Verdict::Broken
    }

    fn explain(&self, error: sqlx::Error) -> StoreError {
        StoreError::unavailable(error)
    }
}

#[tokio::test]
async fn whoever_asks_is_told_that_it_was_sent_twice() {
    let server = Arc::new(Fake::default());
    let (lane, statement) = (Lane::new(&server), Statement::new(String::new()));
    let ask = async |again: Again| {
        let told = lane.run_and_tell(&statement, (), again).await?;
        Ok::<_, StoreError>((told.answer, told.resent))
    };
    assert_eq!(ask(Again::Safe).await.unwrap(), (1, false));
    server.breaks.store(true, Ordering::Relaxed);
    assert_eq!(ask(Again::Safe).await.unwrap(), (3, true));
    assert_eq!(ask(Again::Safe).await.unwrap(), (4, false));
    server.breaks.store(true, Ordering::Relaxed);
    assert!(ask(Again::No).await.unwrap_err().is_unavailable());
    assert_eq!(server.done.load(Ordering::Relaxed), 5);
}
