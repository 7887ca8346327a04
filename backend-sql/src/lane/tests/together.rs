//! What is carried out together, what is not, and what becomes of it.

use crate::{
    lane::{Again, Lane, Member, Server, Verdict},
    statement::Statement,
};
use futures_util::FutureExt;
use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tenure_core::StoreError;

const ANSWER: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(10);
/// When the server gives up waiting for a lock.
const GIVEN_UP: Duration = Duration::from_secs(7);

/// A server that takes a second for everything. It notes what it is asked for, by statement and row.
#[derive(Default)]
struct Fake {
    noted: Mutex<Vec<String>>,
    /// What is left out of every batch.
    locked: Option<&'static str>,
    /// The next batch gets no answer, because the connection breaks.
    breaks: AtomicBool,
    /// Or because the server hangs.
    hangs: AtomicBool,
    /// Or it is refused, after a wait.
    refuses_late: AtomicBool,
}

impl Server for Fake {
    type Connection = ();
    type Arguments = &'static str;
    type Answer = String;

    fn connect_timeout(&self) -> Duration {
        LONGEST
    }

    fn response_timeout(&self) -> Duration {
        LONGEST
    }

    async fn open(&self) -> Result<(), StoreError> {
        self.noted.lock().unwrap().push("open".to_owned());
        Ok(())
    }

    async fn close(&self, (): ()) -> Result<(), sqlx::Error> {
        Ok(())
    }

    async fn run(
        &self,
        (): &mut (),
        statement: &Statement,
        row: &'static str,
    ) -> Result<String, sqlx::Error> {
        self.noted.lock().unwrap().push(format!("{} {row}", statement.text()));
        tokio::time::sleep(ANSWER).await;
        Ok(row.to_owned())
    }

    async fn run_together(
        &self,
        (): &mut (),
        many: &Statement,
        objects: String,
    ) -> Result<Vec<(String, String)>, sqlx::Error> {
        let rows: Vec<String> = serde_json::from_str(&objects).unwrap();
        self.noted.lock().unwrap().push(format!("{} {}", many.text(), rows.join(" ")));
        tokio::time::sleep(ANSWER).await;
        if self.breaks.swap(false, Ordering::Relaxed) {
            return Err(sqlx::Error::Io(io::ErrorKind::ConnectionReset.into()));
        }
        if self.hangs.swap(false, Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.refuses_late.swap(false, Ordering::Relaxed) {
            tokio::time::sleep(GIVEN_UP).await;
            return Err(sqlx::Error::Protocol("lock timeout".to_owned()));
        }
        let done = rows.into_iter().filter(|row| self.locked != Some(row.as_str()));
        Ok(done.map(|row| (row.clone(), row)).collect())
    }

    fn verdict(&self, error: &sqlx::Error) -> Verdict {
        if matches!(error, sqlx::Error::Protocol(_)) { Verdict::Refused } else { Verdict::Broken }
    }

    fn explain(&self, error: sqlx::Error) -> StoreError {
        StoreError::unavailable(error)
    }
}

/// A lane to such a server, whose connection is open.
struct Client {
    server: Arc<Fake>,
    lane: Lane<Fake>,
    /// For one, for many, and whether it may be repeated.
    kinds: [(Statement, Statement, Again); 2],
}

const ACQUIRE: usize = 0;
const RELEASE: usize = 1;

impl Client {
    async fn of(server: Fake) -> Self {
        let server = Arc::new(server);
        let kind = |word: &str, again| {
            (Statement::new(word.to_owned()), Statement::new(format!("{word} many")), again)
        };
        let kinds = [kind("acquire", Again::Safe), kind("release", Again::No)];
        let client = Self { lane: Lane::new(&server), server, kinds };
        client.ask(ACQUIRE, "first").await.unwrap();
        assert_eq!(client.noted(), ["open", "acquire first"]);
        client
    }

    async fn ask(&self, kind: usize, row: &'static str) -> Result<(), StoreError> {
        let (one, many, again) = &self.kinds[kind];
        let member = Member::new(many, row, format!("\"{row}\""));
        let answer = self.lane.run_as(member, one, row, *again).await?;
        assert_eq!(answer, row, "another's answer");
        Ok(())
    }

    /// A request that is in no batch.
    async fn read(&self, row: &'static str) {
        let read = Statement::new("read".to_owned());
        assert_eq!(self.lane.run(&read, row, Again::Safe).await.unwrap(), row);
    }

    /// What was noted since the last time.
    fn noted(&self) -> Vec<String> {
        std::mem::take(&mut self.server.noted.lock().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_the_connection_is_carried_out_together() {
    let client = Client::of(Fake::default()).await;
    let begun = tokio::time::Instant::now();
    let told = tokio::join!(
        client.ask(ACQUIRE, "a"),
        client.ask(ACQUIRE, "b"),
        client.ask(ACQUIRE, "c"),
        client.ask(ACQUIRE, "d"),
    );
    assert!(matches!(told, (Ok(()), Ok(()), Ok(()), Ok(()))), "{told:?}");
    // A lone request waits for nobody, and here all were there before the connection's task was.
    assert_eq!(client.noted(), ["acquire many a b c d"]);
    assert_eq!(begun.elapsed(), ANSWER);
    client.ask(RELEASE, "a").await.unwrap();
    assert_eq!(client.noted(), ["release a"]);
}

#[tokio::test(start_paused = true)]
async fn none_overtakes_another_about_its_row() {
    let client = Client::of(Fake::default()).await;
    let told = tokio::join!(
        client.ask(ACQUIRE, "a"),
        client.ask(RELEASE, "b"),
        client.ask(ACQUIRE, "b"),
        client.ask(ACQUIRE, "c"),
        client.ask(ACQUIRE, "a"),
        client.ask(RELEASE, "d"),
        client.read("e"),
        client.ask(ACQUIRE, "f"),
    );
    assert!(matches!(told, (Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), (), Ok(()))), "{told:?}");
    let expected = ["acquire many a c", "release many b d", "acquire many b a", "read e", "acquire f"];
    assert_eq!(client.noted(), expected);
}

#[tokio::test(start_paused = true)]
async fn what_a_batch_leaves_out_is_asked_for_by_itself() {
    let client = Client::of(Fake { locked: Some("b"), ..Fake::default() }).await;
    let told = tokio::join!(
        client.ask(ACQUIRE, "a"),
        client.ask(ACQUIRE, "b"),
        client.ask(ACQUIRE, "c"),
        client.ask(RELEASE, "b"),
    );
    assert!(matches!(told, (Ok(()), Ok(()), Ok(()), Ok(()))), "{told:?}");
    assert_eq!(client.noted(), ["acquire many a b c", "acquire b", "release b"]);
}

/// What was taken from behind others, and then left out, comes after them again.
#[tokio::test(start_paused = true)]
async fn what_a_batch_leaves_out_goes_back_to_its_place() {
    let client = Client::of(Fake { locked: Some("c"), ..Fake::default() }).await;
    let told = tokio::join!(
        client.ask(ACQUIRE, "a"),
        client.ask(RELEASE, "b"),
        client.ask(ACQUIRE, "c"),
        client.ask(ACQUIRE, "d"),
        client.ask(RELEASE, "c"),
    );
    assert!(matches!(told, (Ok(()), Ok(()), Ok(()), Ok(()), Ok(()))), "{told:?}");
    assert_eq!(client.noted(), ["acquire many a c d", "release b", "acquire c", "release c"]);
}

/// As when the table is locked: the server gives up waiting for it, and would do so for each request again.
#[tokio::test(start_paused = true)]
async fn what_holds_up_a_batch_is_not_waited_for_by_each() {
    let client = Client::of(Fake::default()).await;
    client.server.refuses_late.store(true, Ordering::Relaxed);
    let begun = tokio::time::Instant::now();
    let (a, b) = tokio::join!(client.ask(ACQUIRE, "a"), client.ask(ACQUIRE, "b"));
    assert!(a.unwrap_err().is_unavailable() && b.unwrap_err().is_unavailable());
    assert_eq!(begun.elapsed(), ANSWER + GIVEN_UP);
    assert_eq!(client.noted(), ["acquire many a b"]);
    // The connection is fine.
    client.ask(ACQUIRE, "a").await.unwrap();
    assert_eq!(client.noted(), ["acquire a"]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_is_gone_is_not_asked_for() {
    let client = Client::of(Fake::default()).await;
    {
        let gone = std::pin::pin!(client.ask(ACQUIRE, "gone"));
        assert!(gone.now_or_never().is_none());
    }
    let told = tokio::join!(client.ask(ACQUIRE, "a"), client.ask(ACQUIRE, "b"));
    assert!(matches!(told, (Ok(()), Ok(()))), "{told:?}");
    assert_eq!(client.noted(), ["acquire many a b"]);
}

/// The answer of all is lost with the connection. Each acquisition is sent again; what became of a release only its
/// caller can find out.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_lost_for_all() {
    let client = Client::of(Fake::default()).await;
    client.server.breaks.store(true, Ordering::Relaxed);
    let told = tokio::join!(client.ask(ACQUIRE, "a"), client.ask(ACQUIRE, "b"));
    assert!(matches!(told, (Ok(()), Ok(()))), "{told:?}");
    assert_eq!(client.noted(), ["acquire many a b", "open", "acquire a", "acquire b"]);
    client.server.breaks.store(true, Ordering::Relaxed);
    let (a, b) = tokio::join!(client.ask(RELEASE, "a"), client.ask(RELEASE, "b"));
    assert!(a.unwrap_err().is_unavailable() && b.unwrap_err().is_unavailable());
    assert_eq!(client.noted(), ["release many a b"]);
    client.ask(ACQUIRE, "a").await.unwrap();
    assert_eq!(client.noted(), ["open", "acquire a"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_keeps_none_waiting_longer_than_one() {
    let client = Client::of(Fake::default()).await;
    client.server.hangs.store(true, Ordering::Relaxed);
    let begun = tokio::time::Instant::now();
    let (a, b) = tokio::join!(client.ask(ACQUIRE, "a"), client.ask(ACQUIRE, "b"));
    assert!(a.unwrap_err().is_unavailable() && b.unwrap_err().is_unavailable());
    assert_eq!(begun.elapsed(), LONGEST);
    // Not on the connection on which an answer is still to come.
    client.ask(RELEASE, "a").await.unwrap();
    assert_eq!(client.noted(), ["acquire many a b", "open", "release a"]);
}
