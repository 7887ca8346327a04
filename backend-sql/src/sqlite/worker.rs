//! The task that has a connection to the file, and carries out what it is asked.

use super::{
    errors,
    file::{File, Open},
};
use crate::record_rows::{self, RecordTable, Row, Seen};
use sqlx::{
    Connection as _,
    query::Query,
    sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqliteRow},
};
use std::{pin::Pin, sync::Arc, time::Duration};
use tenure_core::{Moment, StoreError, async_trait};
use tokio::sync::{mpsc, oneshot};

/// A statement that is being given its parameters.
pub(super) type Bound = Query<'static, Sqlite, SqliteArguments>;

/// What the task is asked, and where the answer goes.
pub(super) enum Job {
    Open(oneshot::Sender<Result<(), StoreError>>),
    Run(Bound, oneshot::Sender<Result<Vec<SqliteRow>, StoreError>>),
    Work(Box<dyn Work>),
    Close(oneshot::Sender<()>),
}

/// Several statements, with nothing of ours between them.
pub(super) trait Work: Send {
    fn carry_out<'w>(self: Box<Self>, on: &'w mut Worker) -> Pin<Box<dyn Future<Output = ()> + Send + 'w>>;
}

/// See [`record_rows::settle`].
pub(super) struct Settle<T, D> {
    pub(super) key: String,
    pub(super) seen: Option<Seen>,
    pub(super) decide: D,
    pub(super) answer: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, D> Work for Settle<T, D>
where
    T: Send + 'static,
    D: FnMut(&Seen) -> Result<(T, Option<Row>), StoreError> + Send + 'static,
{
    fn carry_out<'w>(self: Box<Self>, on: &'w mut Worker) -> Pin<Box<dyn Future<Output = ()> + Send + 'w>> {
        Box::pin(async move {
            let Self { key, seen, decide, answer } = *self;
            if !answer.is_closed() {
                let settled = record_rows::settle(on, &key, seen, decide).await;
                // Whoever asked may have gone meanwhile.
                let _ = answer.send(settled);
            }
        })
    }
}

/// The task of a connection.
pub(super) struct Worker {
    file: Arc<File>,
    open: Option<Open>,
}

impl Worker {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { file, open: None }
    }

    /// Until nobody can ask any more. An answer that cannot be sent is one that nobody waits for any more.
    pub(super) async fn work(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        while let Some(job) = jobs.recv().await {
            match job {
                Job::Open(answer) => {
                    let opened = self.connection().await.map(drop);
                    let _ = answer.send(opened);
                }
                Job::Run(statement, answer) => {
                    if !answer.is_closed() {
                        let rows = self.run(statement).await;
                        let _ = answer.send(rows);
                    }
                }
                Job::Work(work) => work.carry_out(&mut self).await,
                Job::Close(done) => {
                    self.close().await;
                    let _ = done.send(());
                    return;
                }
            }
        }
        self.close().await;
    }

    async fn connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        self.open.take_if(|open| open.is_elsewhere(&self.file));
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(self.file.open().await?),
        };
        Ok(&mut open.connection)
    }

    /// To its end, because the driver's `fetch_one` and `fetch_optional` stop at the first row: the commit then happens
    /// when the statement is reset, and its failure, of a full disk for instance, would go unheard.
    async fn run(&mut self, statement: Bound) -> Result<Vec<SqliteRow>, StoreError> {
        match statement.fetch_all(self.connection().await?).await {
            Ok(rows) => Ok(rows),
            Err(error) => {
                if !errors::is_busy(&error) {
                    self.open = None;
                }
                Err(self.file.explain(error))
            }
        }
    }

    async fn close(&mut self) {
        if let Some(open) = self.open.take()
            && let Err(error) = open.connection.close().await
        {
            tracing::debug!(path = %self.file.options.path.display(), %error, "a connection did not close well");
        }
    }
}

#[async_trait]
impl RecordTable for Worker {
    async fn read(&mut self, key: &str) -> Result<Seen, StoreError> {
        let (sent, file) = (Moment::now(), Arc::clone(&self.file));
        let read = sqlx::query(file.statements.read.sql());
        let rows = self.run(read.bind(file.options.prefix.clone()).bind(key.to_owned())).await?;
        file.seen(sent, rows.first())
    }

    async fn swap(&mut self, key: &str, from: &Seen, to: &Row) -> Result<bool, StoreError> {
        let Row {
            token, claim, mode, since, expires_at, awaited_until, awaited_by, label, host, pid, ..
        } = to.clone();
        let swap = sqlx::query(self.file.statements.swap.sql())
            .bind(self.file.options.prefix.clone())
            .bind(key.to_owned())
            .bind(from.row.as_ref().map(|row| row.version))
            .bind(token)
            .bind(claim)
            .bind(mode)
            .bind(since)
            .bind(expires_at)
            .bind(awaited_until)
            .bind(awaited_by)
            .bind(label)
            .bind(host)
            .bind(pid)
            .bind(to.record.clone());
        self.run(swap).await.map(|rows| !rows.is_empty())
    }

    /// SQLite itself pauses while another writes.
    fn patience(&self) -> Duration {
        self.file.options.busy_timeout
    }
}
