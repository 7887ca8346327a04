//! Requests on their way to a server that fails, is slow or answers nothing, in virtual time.

use super::*;
use futures_util::FutureExt;
use std::{collections::VecDeque, future::pending, io, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// How long an answer takes.
const ANSWER: Duration = Duration::from_secs(1);
/// How long an answer, or an attempt to connect, may take.
const LONGEST: Duration = Duration::from_secs(10);
/// When the server gives up waiting for a lock.
const GIVEN_UP: Duration = Duration::from_secs(7);
/// A firewall forgets a connection that was idle for this long.
const FORGOTTEN: Duration = Duration::from_mins(4);

/// How the server treats the next request.
#[derive(Clone, Copy, Default)]
enum Trouble {
    #[default]
    None,
    /// It is carried out, and its answer is lost with the connection.
    Breaks,
    /// There is never an answer.
    Hangs,
    /// It is refused, after a wait.
    RefusedLate,
    /// The answer takes so long.
    Takes(Duration),
}

/// A server behind a firewall. It notes what it is asked for, by statement and row.
#[derive(Default)]
struct Fake {
    noted: Mutex<Vec<String>>,
    next: Mutex<VecDeque<Trouble>>,
    /// The server leaves these out of every batch.
    locked: Option<&'static str>,
    /// The server accepts no connection.
    silent: bool,
}

impl Fake {
    fn note(&self, what: impl Into<String>) {
        self.noted.lock().unwrap().push(what.into());
    }

    /// A packet of an idle connection is dropped.
    async fn pass(&self, last: &mut Instant) {
        if last.elapsed() >= FORGOTTEN {
            pending::<()>().await;
        }
        *last = Instant::now();
    }

    async fn meet(&self, last: &mut Instant) -> Result<(), sqlx::Error> {
        self.pass(last).await;
        let trouble = self.next.lock().unwrap().pop_front();
        match trouble.unwrap_or_default() {
            Trouble::None => sleep(ANSWER).await,
            Trouble::Takes(way) => sleep(way).await,
            Trouble::Hangs => pending::<()>().await,
            Trouble::Breaks => {
                sleep(ANSWER).await;
                return Err(sqlx::Error::Io(io::ErrorKind::ConnectionReset.into()));
            }
            Trouble::RefusedLate => {
                sleep(ANSWER + GIVEN_UP).await;
                return Err(sqlx::Error::Protocol("lock timeout".to_owned()));
            }
        }
        Ok(())
    }
}

impl Server for Fake {
    /// When its last packet passed.
    type Connection = Instant;
    type Arguments = &'static str;
    type Answer = String;

    fn connect_timeout(&self) -> Duration {
        LONGEST
    }

    fn response_timeout(&self) -> Duration {
        LONGEST
    }

    async fn open(&self) -> Result<Instant, StoreError> {
        self.note("open");
        if self.silent {
            sleep(LONGEST).await;
            return Err(StoreError::unavailable("no connection"));
        }
        Ok(Instant::now())
    }

    async fn ping(&self, last: &mut Instant) -> Result<(), sqlx::Error> {
        self.pass(last).await;
        Ok(())
    }

    async fn close(&self, _: Instant) -> Result<(), sqlx::Error> {
        self.note("close");
        Ok(())
    }

    async fn run(
        &self,
        last: &mut Instant,
        statement: &Statement,
        row: &'static str,
    ) -> Result<String, sqlx::Error> {
        self.note(format!("{} {row}", statement.text()));
        self.meet(last).await?;
        Ok(row.to_owned())
    }

    #[cfg(feature = "_server")]
    async fn run_together(
        &self,
        last: &mut Instant,
        many: &Statement,
        objects: String,
    ) -> Result<Vec<(String, String)>, sqlx::Error> {
        let rows: Vec<String> = serde_json::from_str(&objects).unwrap();
        self.note(format!("{} {}", many.text(), rows.join(" ")));
        self.meet(last).await?;
        let done = rows.into_iter().filter(|row| self.locked != Some(row.as_str()));
        Ok(done.map(|row| (row.clone(), row)).collect())
    }

    fn verdict(&self, error: &sqlx::Error) -> Verdict {
        if matches!(error, sqlx::Error::Protocol(_)) { Verdict::Refused } else { Verdict::Broken }
    }

    fn explain(&self, error: sqlx::Error) -> StoreError {
        match self.verdict(&error) {
            Verdict::Refused => StoreError::failed(error),
            _ => StoreError::unavailable(error),
        }
    }
}

/// A lane to such a server.
struct Client {
    server: Arc<Fake>,
    lane: Lane<Fake>,
    acquire: [Statement; 2],
    release: [Statement; 2],
    read: Statement,
}

impl Client {
    fn of(server: Fake) -> Self {
        let server = Arc::new(server);
        let statement = |text: &str| Statement::new(text.to_owned());
        Self {
            lane: Lane::new(&server),
            server,
            acquire: ["acquire", "acquire many"].map(statement),
            release: ["release", "release many"].map(statement),
            read: statement("read"),
        }
    }

    /// One whose connection is open.
    async fn open(server: Fake) -> Self {
        let client = Self::of(server);
        client.read("first").await.unwrap();
        assert_eq!(client.noted(), ["open", "read first"]);
        client
    }

    /// A request that is in no batch, and may be repeated.
    async fn read(&self, row: &'static str) -> Result<String, StoreError> {
        self.lane.run(&self.read, row, Again::Safe).await
    }

    /// Takes the notes since the last call.
    fn noted(&self) -> Vec<String> {
        std::mem::take(&mut self.server.noted.lock().unwrap())
    }

    fn meets(&self, trouble: Trouble) {
        self.server.next.lock().unwrap().push_back(trouble);
    }
}

#[cfg(feature = "_server")]
impl Client {
    async fn ask(
        &self,
        [one, many]: &[Statement; 2],
        row: &'static str,
        again: Again,
    ) -> Result<(), StoreError> {
        let member = Member::new(many, row, format!("\"{row}\""));
        let answer = self.lane.run_as(member, one, row, again).await?;
        assert_eq!(answer, row, "another's answer");
        Ok(())
    }

    async fn acquire(&self, row: &'static str) -> Result<(), StoreError> {
        self.ask(&self.acquire, row, Again::Safe).await
    }

    /// Which is not repeated.
    async fn release(&self, row: &'static str) -> Result<(), StoreError> {
        self.ask(&self.release, row, Again::No).await
    }
}

/// All of them at once are answered.
macro_rules! answered {
    ($($request:expr),+ $(,)?) => {{
        let told = tokio::join!($($request),+);
        assert!(matches!(told, ($(answered!(@ $request)),+)), "{told:?}");
    }};
    (@ $request:expr) => { Ok(_) };
}

/// As when one of two clients of a backend closes: a withdrawal must not overtake its attempt.
#[tokio::test(start_paused = true)]
async fn request_after_a_close_follows_earlier_ones() {
    let client = Client::open(Fake::default()).await;
    client.meets(Trouble::Takes(ANSWER * 3));
    let begun = Instant::now();
    let closing = async {
        sleep(ANSWER / 10).await;
        // It does not wait for the request that is under way.
        client.lane.close().await;
        client.read("withdrawal").await
    };
    answered!(client.read("attempt"), closing);
    assert_eq!(client.noted(), ["read attempt", "close", "open", "read withdrawal"]);
    assert_eq!(begun.elapsed(), ANSWER * 4);
}

/// The first request is given up before its answer. Otherwise a lease too short for the distance would cost others the
/// connection over which they are renewed; a connection that is dead is not waited for.
#[tokio::test(start_paused = true)]
async fn dead_connection_of_an_abandoned_request_is_replaced() {
    for (trouble, opened) in [(Trouble::Takes(ANSWER), 0), (Trouble::Hangs, 1)] {
        let client = Client::open(Fake::default()).await;
        client.meets(trouble);
        assert!(timeout(ANSWER / 10, client.read("given up")).await.is_err());
        client.lane.hurry();
        timeout(LONGEST / 2, client.read("next")).await.unwrap().unwrap();
        assert_eq!(client.noted().iter().filter(|noted| *noted == "open").count(), opened);
    }
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_replaced_if_firewall_dropped_it() {
    let client = Client::open(Fake::default()).await;
    for (silence, opened) in [(Duration::ZERO, 0), (FORGOTTEN / 2, 0), (FORGOTTEN, 1)] {
        sleep(silence).await;
        client.lane.run(&client.read, "a", Again::No).await.unwrap();
        assert_eq!(client.noted().iter().filter(|noted| *noted == "open").count(), opened, "{silence:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_attempt_to_connect_fails_only_the_requests_that_waited() {
    let client = Client::of(Fake { silent: true, ..Fake::default() });
    let ask = async || {
        let error = client.read("a").await.unwrap_err();
        assert!(error.is_unavailable() && error.to_string() == "no connection", "{error}");
    };
    let ask_late = async {
        sleep(LONGEST / 2).await;
        ask().await;
    };
    let begun = Instant::now();
    tokio::join!(ask(), ask(), ask_late);
    assert_eq!((begun.elapsed(), client.noted().len()), (LONGEST, 1));
    ask().await;
    assert_eq!((begun.elapsed(), client.noted().len()), (LONGEST * 2, 1));
    // As when a store is opened: the client does not wait for the server twice.
    let (opened, asked) = tokio::join!(client.lane.open(), client.read("a"));
    assert!(opened.unwrap_err().is_unavailable() && asked.unwrap_err().is_unavailable());
    assert_eq!((begun.elapsed(), client.noted().len()), (LONGEST * 3, 1));
}

#[tokio::test(start_paused = true)]
async fn request_sent_twice_is_reported_as_such() {
    let client = Client::open(Fake::default()).await;
    let resent =
        async |again| client.lane.run_and_tell(&client.read, "a", again).await.map(|told| told.resent);
    assert!(!resent(Again::Safe).await.unwrap());
    client.meets(Trouble::Breaks);
    assert!(resent(Again::Safe).await.unwrap());
    assert!(!resent(Again::Safe).await.unwrap());
    client.meets(Trouble::Breaks);
    assert!(resent(Again::No).await.unwrap_err().is_unavailable());
    assert_eq!(client.noted(), ["read a", "read a", "open", "read a", "read a", "read a"]);
}

#[cfg(feature = "_server")]
mod together {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_that_wait_for_the_connection_share_a_batch() {
        let client = Client::open(Fake::default()).await;
        let begun = Instant::now();
        answered!(client.acquire("a"), client.acquire("b"), client.acquire("c"), client.acquire("d"));
        // A lone request waits for no others, and here all were there before the connection's task was.
        assert_eq!(client.noted(), ["acquire many a b c d"]);
        assert_eq!(begun.elapsed(), ANSWER);
        client.release("a").await.unwrap();
        assert_eq!(client.noted(), ["release a"]);
        // One whose caller is gone is not asked for.
        {
            let gone = std::pin::pin!(client.acquire("gone"));
            assert!(gone.now_or_never().is_none());
        }
        answered!(client.acquire("a"), client.acquire("b"));
        assert_eq!(client.noted(), ["acquire many a b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn request_does_not_overtake_another_about_its_row() {
        let client = Client::open(Fake::default()).await;
        answered!(
            client.acquire("a"),
            client.release("b"),
            client.acquire("b"),
            client.acquire("c"),
            client.acquire("a"),
            client.release("d"),
            client.read("e"),
            client.acquire("f"),
        );
        let expected = ["acquire many a c", "release many b d", "acquire many b a", "read e", "acquire f"];
        assert_eq!(client.noted(), expected);
    }

    /// A request that was taken from behind others, and then left out, comes after them again.
    #[tokio::test(start_paused = true)]
    async fn request_left_out_of_a_batch_is_sent_alone_in_its_place() {
        let client = Client::open(Fake { locked: Some("c"), ..Fake::default() }).await;
        answered!(client.acquire("a"), client.acquire("c"), client.acquire("d"), client.release("c"));
        assert_eq!(client.noted(), ["acquire many a c d", "acquire c", "release c"]);
        answered!(
            client.acquire("a"),
            client.release("b"),
            client.acquire("c"),
            client.acquire("d"),
            client.release("c"),
        );
        assert_eq!(client.noted(), ["acquire many a c d", "release b", "acquire c", "release c"]);
    }

    /// As when the table is locked: the server gives up waiting for it, and would do so for each request again.
    #[tokio::test(start_paused = true)]
    async fn late_refusal_of_a_batch_is_not_awaited_again() {
        let client = Client::open(Fake::default()).await;
        client.meets(Trouble::RefusedLate);
        let begun = Instant::now();
        let (a, b) = tokio::join!(client.acquire("a"), client.acquire("b"));
        assert!(a.unwrap_err().is_unavailable() && b.unwrap_err().is_unavailable());
        assert_eq!(begun.elapsed(), ANSWER + GIVEN_UP);
        // The connection is fine.
        client.acquire("a").await.unwrap();
        assert_eq!(client.noted(), ["acquire many a b", "acquire a"]);
    }

    /// The answer of all is lost with the connection. Each acquisition is sent again. The outcome of a release is for
    /// its caller to find out.
    #[tokio::test(start_paused = true)]
    async fn lost_answer_is_lost_for_the_whole_batch() {
        let client = Client::open(Fake::default()).await;
        client.meets(Trouble::Breaks);
        answered!(client.acquire("a"), client.acquire("b"));
        assert_eq!(client.noted(), ["acquire many a b", "open", "acquire a", "acquire b"]);
        client.meets(Trouble::Breaks);
        let (a, b) = tokio::join!(client.release("a"), client.release("b"));
        assert!(a.unwrap_err().is_unavailable() && b.unwrap_err().is_unavailable());
        client.acquire("a").await.unwrap();
        assert_eq!(client.noted(), ["release many a b", "open", "acquire a"]);
    }

    /// Its first copy may still be carried out, so the refusal of the second is not the last word.
    #[tokio::test(start_paused = true)]
    async fn request_refused_after_its_batch_was_lost_is_in_doubt() {
        let client = Client::open(Fake::default()).await;
        client.meets(Trouble::Breaks);
        client.meets(Trouble::RefusedLate);
        let (a, b) = tokio::join!(client.acquire("a"), client.acquire("b"));
        assert!(a.unwrap_err().is_unavailable() && b.is_ok());
        client.meets(Trouble::RefusedLate);
        assert!(
            !client.acquire("a").await.unwrap_err().is_unavailable(),
            "one that was sent once is refused"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_server_delays_a_batch_no_longer_than_one_request() {
        let client = Client::open(Fake::default()).await;
        client.meets(Trouble::Hangs);
        let begun = Instant::now();
        let (a, b) = tokio::join!(client.acquire("a"), client.acquire("b"));
        assert!(a.unwrap_err().is_unavailable() && b.unwrap_err().is_unavailable());
        assert_eq!(begun.elapsed(), LONGEST);
        // Not on the connection on which an answer is still to come.
        client.release("a").await.unwrap();
        assert_eq!(client.noted(), ["acquire many a b", "open", "release a"]);
    }
}
