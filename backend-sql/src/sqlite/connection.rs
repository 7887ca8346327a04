//! One connection to the file in each runtime, opened when it is needed.

use super::{
    file::File,
    worker::{Bound, Job, Settle, Worker},
};
use crate::{
    record_rows::{Row, Seen},
    statement::Statement,
};
use sqlx::{
    FromRow, Row as _,
    sqlite::{Sqlite, SqliteRow},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tenure_core::{Moment, PerRuntime, StoreError};
use tokio::sync::{mpsc, oneshot};

/// One connection for each runtime that asks, opened when it is needed, in a task of its own that carries out requests one
/// by one, in order, each to its end, which is how SQLite writes anyway.
///
/// A request whose future is dropped before its turn is not carried out. After that it runs to its end, commits by itself,
/// and only its rows go nowhere: there is nothing half done that a later request could find, and whatever is sent after it
/// runs after it, which the withdrawal of a claim rests on. A pool would lose that order. And a request whose future is
/// neither polled nor dropped is in nobody's way, as one that had locked the connection would be.
pub(super) struct Connection {
    file: Arc<File>,
    tasks: PerRuntime<Task>,
}

/// How to reach the task, where it runs.
type Task = Mutex<Option<mpsc::UnboundedSender<Job>>>;

impl Connection {
    pub(super) fn new(file: &Arc<File>) -> Self {
        Self { file: Arc::clone(file), tasks: PerRuntime::new() }
    }

    /// Opens the connection, so that what is wrong with the file is known early.
    pub(super) async fn open(&self) -> Result<(), StoreError> {
        let (answer, answered) = oneshot::channel();
        self.send(Job::Open(answer));
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Carries out one statement to its end, and returns its rows.
    pub(super) async fn run(
        &self,
        statement: &Statement,
        bind: impl FnOnce(Bound) -> Bound + Send,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.send(Job::Run(bind(sqlx::query(statement.sql())), answer));
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Reads the row under `key`.
    pub(super) async fn read(&self, key: &str) -> Result<Seen, StoreError> {
        let (sent, File { statements, options, .. }) = (Moment::now(), &*self.file);
        let (prefix, key) = (options.prefix.clone(), key.to_owned());
        let rows = self.run(&statements.read, |query| query.bind(prefix).bind(key)).await?;
        self.file.seen(sent, rows.first())
    }

    /// Changes the row under `key` as is decided, to the end: see [`record_rows::settle`].
    pub(super) async fn settle<T: Send + 'static>(
        &self,
        key: String,
        seen: Option<Seen>,
        decide: impl FnMut(&Seen) -> Result<(T, Option<Row>), StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.send(Job::Work(Box::new(Settle { key, seen, decide, answer })));
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Closes the connections behind what is under way; the next request opens one again.
    pub(super) async fn close(&self) {
        for task in self.tasks.all() {
            let running = locked(&task).take();
            let Some(running) = running else { continue };
            let (done, closed) = oneshot::channel();
            // When either fails the task has ended, and its connection with it. One in a runtime that is kept busy closes
            // later.
            if running.send(Job::Close(done)).is_ok() {
                let _ = tokio::time::timeout(self.file.options.busy_timeout, closed).await;
            }
        }
    }

    /// To the task, which is started anew when there is none, or its runtime has ended.
    fn send(&self, job: Job) {
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
        tokio::spawn(Worker::new(Arc::clone(&self.file)).work(jobs));
        // The task has just been given its end of the channel.
        let _ = sender.send(job);
        *task = Some(sender);
    }

    /// A row of ours, as a tuple.
    pub(super) fn row<T: for<'r> FromRow<'r, SqliteRow>>(&self, row: &SqliteRow) -> Result<T, StoreError> {
        T::from_row(row).map_err(|error| self.file.explain(error))
    }

    /// A column of a row of ours.
    pub(super) fn column<'r, T>(&self, row: &'r SqliteRow, index: usize) -> Result<T, StoreError>
    where
        T: sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>,
    {
        row.try_get(index).map_err(|error| self.file.explain(error))
    }
}

fn locked(task: &Task) -> MutexGuard<'_, Option<mpsc::UnboundedSender<Job>>> {
    task.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ended() -> StoreError {
    StoreError::unavailable("the connection's task ended with its runtime")
}
