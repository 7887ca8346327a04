//! One connection to a database per runtime, each in its own task.

use crate::statement::Statement;
use std::{
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_core::{PerRuntime, StoreError};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::Instant,
};

/// How long closing a connection may take.
const GOODBYE: Duration = Duration::from_millis(500);
/// The longest pause before a statement that collided with another is sent again.
const COLLISION_PAUSE: Duration = Duration::from_millis(5);

/// A database server, or a database in a file: how to connect, how to ask, and what its errors mean.
pub(crate) trait Server: Send + Sync + 'static {
    /// A connection that the driver made.
    type Connection: Send + 'static;
    /// The parameters of a statement.
    type Arguments: Clone + Send + Sync + 'static;
    /// The result of a statement.
    type Answer: Send + 'static;

    /// Whether a request ends in time by itself, so that it needs no timeout.
    const ENDS_BY_ITSELF: bool = false;

    /// How long it may take to connect.
    fn connect_timeout(&self) -> Duration;

    /// How long a request may take, from the moment it is sent to the server.
    fn response_timeout(&self) -> Duration;

    /// Connects, and checks or creates the table. Ends within the connect timeout.
    fn open(&self) -> impl Future<Output = Result<Self::Connection, StoreError>> + Send;

    /// Whether the connection now leads elsewhere.
    fn is_elsewhere(&self, _: &Self::Connection) -> bool {
        false
    }

    /// Closes a connection.
    fn close(&self, connection: Self::Connection) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Carries out one statement to its end.
    fn run(
        &self,
        connection: &mut Self::Connection,
        statement: &Statement,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Self::Answer, sqlx::Error>> + Send;

    /// What to do about an error.
    fn verdict(&self, error: &sqlx::Error) -> Verdict;

    /// Explains an error.
    fn explain(&self, error: sqlx::Error) -> StoreError;
}

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The server undid the statement because of a collision with another one: ask again.
    Collided,
    /// The server refused, and the connection is usable.
    Refused,
    /// The server refused, and the connection may be unusable.
    #[cfg(feature = "sqlite")]
    Spoilt,
    /// The connection is unusable.
    Broken,
}

/// Whether a request may be repeated automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Its answer is the same the second time.
    Safe,
    /// Its answer would be about the first time. The caller decides.
    No,
}

/// One connection to the database for each runtime that asks, opened when needed. Its own task carries out requests one
/// by one, in order, each to its end.
///
/// A request whose future is dropped before it was sent is not sent. After that it runs to its end and commits; only
/// its answer is discarded. So a later request never finds anything half done, and runs after all earlier ones, which
/// the withdrawal of a claim relies on. A pool has neither property. And a request whose future is neither polled nor
/// dropped blocks nobody, unlike one that had locked the connection.
pub(crate) struct Lane<S: Server> {
    server: Arc<S>,
    tasks: PerRuntime<Task<S>>,
    stuck: Arc<AtomicUsize>,
    hurry: Arc<Notify>,
}

/// The sender to the task, if it runs.
type Task<S> = Mutex<Option<mpsc::UnboundedSender<Job<S>>>>;

enum Job<S: Server> {
    /// Opens the connection in advance, so that the first request need not wait for it.
    Open,
    Ask(Request<S>),
    Close(oneshot::Sender<()>),
}

struct Request<S: Server> {
    statement: Statement,
    arguments: S::Arguments,
    again: Again,
    answer: oneshot::Sender<Result<S::Answer, StoreError>>,
    /// Held until the request is done with.
    doing: Operation,
}

impl<S: Server> Lane<S> {
    pub(crate) fn new(server: &Arc<S>) -> Self {
        Self {
            server: Arc::clone(server),
            tasks: PerRuntime::new(),
            stuck: Arc::default(),
            hurry: Arc::default(),
        }
    }

    /// How many requests are unfinished although their callers gave up.
    pub(crate) fn stuck(&self) -> usize {
        self.stuck.load(Ordering::Relaxed)
    }

    /// If the current request is one of those, replaces its connection.
    pub(crate) fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Carries out one statement.
    pub(crate) async fn run(
        &self,
        statement: &Statement,
        arguments: S::Arguments,
        again: Again,
    ) -> Result<S::Answer, StoreError> {
        let (answer, answered) = oneshot::channel();
        let (_waiting, doing) = patience(&self.stuck);
        self.send(Job::Ask(Request { statement: statement.clone(), arguments, again, answer, doing }));
        if S::ENDS_BY_ITSELF {
            return answered.await.unwrap_or_else(|_| Err(ended()));
        }
        // A request that hangs ahead of this one is cut off in time.
        let longest = self.server.connect_timeout() + self.server.response_timeout() * 2;
        match tokio::time::timeout(longest, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(ended()),
            Err(_) => Err(silent(longest)),
        }
    }

    /// Opens the connection in the background.
    pub(crate) fn open(&self) {
        self.send(Job::Open);
    }

    /// Closes the connections after what is under way. The next request opens a new one, and comes after that too:
    /// another client may go on.
    pub(crate) async fn close(&self) {
        for task in self.tasks.all() {
            close(&task).await;
        }
    }

    /// Sends a job to the task. Starts a new task if there is none or its runtime has ended.
    fn send(&self, job: Job<S>) {
        let here = self.tasks.get(Mutex::default);
        let mut task = locked(&here);
        let job = match &*task {
            Some(running) => match running.send(job) {
                Ok(()) => return,
                Err(mpsc::error::SendError(job)) => job,
            },
            None => job,
        };
        let (sender, jobs) = mpsc::unbounded_channel();
        let (server, hurry) = (Arc::clone(&self.server), Arc::clone(&self.hurry));
        let worker = Worker { server, hurry, open: None };
        tokio::spawn(worker.work(jobs));
        // The task has just got its end of the channel.
        let _ = sender.send(job);
        *task = Some(sender);
    }
}

fn locked<S: Server>(task: &Task<S>) -> MutexGuard<'_, Option<mpsc::UnboundedSender<Job<S>>>> {
    task.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn close<S: Server>(task: &Task<S>) {
    let running = locked(task).clone();
    if let Some(task) = running {
        let (done, closed) = oneshot::channel();
        // If either fails, the task has ended with its connection. In a busy runtime, it closes later.
        if task.send(Job::Close(done)).is_ok() {
            let _ = tokio::time::timeout(GOODBYE * 2, closed).await;
        }
    }
}

struct Worker<S: Server> {
    server: Arc<S>,
    hurry: Arc<Notify>,
    open: Option<S::Connection>,
}

impl<S: Server> Worker<S> {
    async fn work(mut self, mut jobs: mpsc::UnboundedReceiver<Job<S>>) {
        while let Some(job) = jobs.recv().await {
            match job {
                Job::Open => {
                    if let Err(error) = self.connection().await {
                        tracing::debug!(%error, "could not open a connection in advance");
                    }
                }
                Job::Ask(request) => self.answer(request).await,
                Job::Close(done) => {
                    self.close().await;
                    // Maybe nobody waits for it.
                    let _ = done.send(());
                }
            }
        }
        self.close().await;
    }

    async fn close(&mut self) {
        if let Some(connection) = self.open.take() {
            let goodbye = tokio::time::timeout(GOODBYE, self.server.close(connection));
            if let Ok(Err(error)) = goodbye.await {
                tracing::debug!(%error, "could not close a connection cleanly");
            }
        }
    }

    async fn connection(&mut self) -> Result<&mut S::Connection, StoreError> {
        self.open.take_if(|open| self.server.is_elsewhere(open));
        Ok(match &mut self.open {
            Some(connection) => connection,
            none => none.insert(self.server.open().await?),
        })
    }

    async fn answer(&mut self, request: Request<S>) {
        let Request { statement, arguments, again, mut answer, doing } = request;
        let (server, hurry) = (Arc::clone(&self.server), Arc::clone(&self.hurry));
        let longest = server.response_timeout();
        let mut give_up = None;
        // The caller may be gone, while the request was queued or the connection was opened.
        while !answer.is_closed() {
            let used = self.open.is_some();
            let connection = match self.connection().await {
                Ok(connection) => connection,
                Err(error) => return reply(doing, answer, Err(error)),
            };
            if answer.is_closed() {
                return;
            }
            let give_up = *give_up.get_or_insert_with(|| Instant::now() + longest);
            let running = server.run(connection, &statement, arguments.clone());
            let outcome = if S::ENDS_BY_ITSELF {
                running.await
            } else {
                tokio::select! {
                    biased;
                    outcome = running => outcome,
                    () = tokio::time::sleep_until(give_up) => {
                        self.open = None;
                        return reply(doing, answer, Err(silent(longest)));
                    }
                    () = given_up(&mut answer, &hurry) => {
                        self.open = None;
                        return;
                    }
                }
            };
            let error = match outcome {
                Ok(rows) => return reply(doing, answer, Ok(rows)),
                Err(error) => error,
            };
            match server.verdict(&error) {
                Verdict::Collided if Instant::now() < give_up => {
                    tracing::debug!(%error, "a statement collided with another; sending it again");
                    tokio::time::sleep(COLLISION_PAUSE.mul_f64(fastrand::f64())).await;
                }
                Verdict::Collided | Verdict::Refused => {
                    return reply(doing, answer, Err(server.explain(error)));
                }
                #[cfg(feature = "sqlite")]
                Verdict::Spoilt => {
                    self.open = None;
                    return reply(doing, answer, Err(server.explain(error)));
                }
                Verdict::Broken => {
                    self.open = None;
                    // The server may have ended the connection long ago, while it was idle.
                    if !used || again == Again::No {
                        return reply(doing, answer, Err(server.explain(error)));
                    }
                }
            }
        }
    }
}

/// Completes when the caller is gone and the next one is in a hurry.
async fn given_up<A>(answer: &mut oneshot::Sender<A>, hurry: &Notify) {
    answer.closed().await;
    hurry.notified().await;
}

/// The two ends of a request. Together they tell whether the caller gave up before it was done.
fn patience(stuck: &Arc<AtomicUsize>) -> (Waiting, Operation) {
    let request = Arc::new((AtomicU8::new(ASKED), Arc::clone(stuck)));
    (Waiting(Arc::clone(&request)), Operation(request))
}

const ASKED: u8 = 0;
const GIVEN_UP: u8 = 1;
const DONE: u8 = 2;

/// The caller's end.
struct Waiting(Arc<(AtomicU8, Arc<AtomicUsize>)>);

impl Drop for Waiting {
    fn drop(&mut self) {
        let (state, stuck) = &*self.0;
        stuck.fetch_add(1, Ordering::Relaxed);
        if state.compare_exchange(ASKED, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_err() {
            stuck.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The request's end.
struct Operation(Arc<(AtomicU8, Arc<AtomicUsize>)>);

impl Drop for Operation {
    fn drop(&mut self) {
        let (state, stuck) = &*self.0;
        if state.swap(DONE, Ordering::AcqRel) == GIVEN_UP {
            stuck.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Ends the request first: a caller with an answer may ask again at once, and must not find this lane stuck.
fn reply<A>(
    doing: Operation,
    answer: oneshot::Sender<Result<A, StoreError>>,
    outcome: Result<A, StoreError>,
) {
    drop(doing);
    // The caller may be gone.
    let _ = answer.send(outcome);
}

fn ended() -> StoreError {
    StoreError::unavailable("the connection's task ended with its runtime")
}

fn silent(longest: Duration) -> StoreError {
    StoreError::unavailable(format!("no answer within {longest:?}"))
}

#[cfg(test)]
mod tests;
