//! One connection to a database per runtime, each in its own task.
//!
//! Each file uses only those below it.
//!
//! | file | what is in it |
//! |---|---|
//! | `worker` | the task: it opens the connection, and carries out one request after the other |
//! | `queue` | the jobs that wait for the connection, and their error if there is none |
//! | `together` | requests that are carried out together |
//! | `request` | a request and its answer |
//! | `server` | the requests to a database |

mod queue;
mod request;
mod server;
mod together;
mod worker;

pub(crate) use request::{Answered, Member};
pub(crate) use server::{Again, Server, Verdict};

use crate::statement::Statement;
use request::{Job, Request, ended, patience, silent};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};
use tenure_core::{PerRuntime, StoreError};
use tokio::sync::{Notify, mpsc, oneshot};
use worker::{GOODBYE, Worker};

/// One connection to the database for each runtime that asks, opened when needed. Its own task carries out requests one
/// by one, in order, each to its end. Those that wait for the connection, and are about different rows, may be carried
/// out together. If an attempt to connect fails because the server cannot be reached, all that wait for the connection
/// fail with it.
///
/// A request whose future is dropped before it was sent is not sent. After that it runs to its end and commits; only
/// its answer is discarded. So a later request never finds anything half done, and runs after all earlier ones, which
/// the withdrawal of a claim relies on. A pool has neither property. And a request whose future is neither polled nor
/// dropped blocks no other, unlike one that had locked the connection.
pub(crate) struct Lane<S: Server> {
    server: Arc<S>,
    tasks: PerRuntime<Task<S>>,
    stuck: Arc<AtomicUsize>,
    hurry: Arc<Notify>,
}

/// The sender to the task, if it runs.
type Task<S> = Mutex<Option<mpsc::UnboundedSender<Job<S>>>>;

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

    /// If the current request is one of those, and has had time to be answered by a distant server, replaces its
    /// connection.
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
        self.run_and_tell(statement, arguments, again).await.map(|told| told.answer)
    }

    /// Like `run`, and tells whether the request was sent twice.
    pub(crate) async fn run_and_tell(
        &self,
        statement: &Statement,
        arguments: S::Arguments,
        again: Again,
    ) -> Result<Answered<S::Answer>, StoreError> {
        self.ask(statement, arguments, again, None).await
    }

    /// Carries out one statement, or the statement of the [`Member`] for this and others that wait for the connection
    /// too.
    pub(crate) async fn run_as(
        &self,
        member: Member,
        statement: &Statement,
        arguments: S::Arguments,
        again: Again,
    ) -> Result<S::Answer, StoreError> {
        self.ask(statement, arguments, again, Some(member)).await.map(|told| told.answer)
    }

    async fn ask(
        &self,
        statement: &Statement,
        arguments: S::Arguments,
        again: Again,
        member: Option<Member>,
    ) -> Result<Answered<S::Answer>, StoreError> {
        let (answer, answered) = oneshot::channel();
        let (_waiting, doing) = patience(&self.stuck);
        self.send(Job::Ask(Request {
            statement: statement.clone(),
            arguments,
            again,
            member,
            place: 0,
            alone: false,
            resent: false,
            answer,
            doing,
        }));
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

    /// Opens the connection in the background, whether or not the result is awaited. That may take longer than a
    /// request: see [`Server::open`].
    pub(crate) fn open(&self) -> impl Future<Output = Result<(), StoreError>> + use<S> {
        let (done, opened) = oneshot::channel();
        self.send(Job::Open(done));
        async move { opened.await.unwrap_or_else(|_| Err(ended())) }
    }

    /// Closes the connections after the request that is under way. The next request opens a new one, and comes after
    /// that too: another client may go on.
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
        let worker = Worker::new(Arc::clone(&self.server), Arc::clone(&self.hurry));
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

#[cfg(test)]
mod tests;
