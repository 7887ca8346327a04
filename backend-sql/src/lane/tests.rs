//! A request after the connection was closed.

#[cfg(feature = "_server")]
mod hurried;
mod idle;
mod outage;
mod resent;
#[cfg(feature = "_server")]
mod together;

use super::*;
use std::time::Duration;

/// A server whose every statement takes three seconds. It notes what it does.
#[derive(Default)]
struct Slow(Mutex<Vec<String>>);

struct Connection;

impl Slow {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }
}

impl Server for Slow {
    type Connection = Connection;
    type Arguments = &'static str;
    type Answer = ();

    fn connect_timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn response_timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn open(&self) -> Result<Connection, StoreError> {
        self.note("opened");
        Ok(Connection)
    }

    async fn close(&self, _: Connection) -> Result<(), sqlx::Error> {
        self.note("closed");
        Ok(())
    }

    async fn run(&self, _: &mut Connection, _: &Statement, what: &'static str) -> Result<(), sqlx::Error> {
        self.note(format!("{what} begins"));
        tokio::time::sleep(Duration::from_secs(3)).await;
        self.note(format!("{what} ends"));
        Ok(())
    }

    fn verdict(&self, _: &sqlx::Error) -> Verdict {
        Verdict::Broken
    }

    fn explain(&self, error: sqlx::Error) -> StoreError {
        StoreError::failed(error)
    }
}

/// As when one of two clients of a backend closes: a withdrawal must not overtake its attempt.
#[tokio::test(start_paused = true)]
async fn what_follows_a_close_still_comes_after_what_was_before_it() {
    let server = Arc::new(Slow::default());
    let (lane, statement) = (Arc::new(Lane::new(&server)), Statement::new(String::new()));
    let (first, same) = (Arc::clone(&lane), statement.clone());
    let attempt = tokio::spawn(async move { first.run(&same, "attempt", Again::No).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    // It does not wait for the end of what is under way.
    lane.close().await;
    lane.run(&statement, "withdrawal", Again::No).await.unwrap();
    attempt.await.unwrap().unwrap();
    let noted = server.0.lock().unwrap();
    let expected = ["opened", "attempt begins", "attempt ends", "closed", "opened"];
    assert_eq!(noted[..5], expected);
    assert_eq!(noted[5..], ["withdrawal begins", "withdrawal ends"]);
}
