//! One connection that hears of releases.

use super::server::Postgres;
use crate::{
    hints::{Hint, Hints},
    lane::Server,
};
use sqlx::{
    Executor, SqlSafeStr,
    postgres::{PgListener, PgPoolOptions},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tenure_core::{Background, StoreError};
use tokio::task::JoinHandle;

/// How long it may be silent before the server is asked for a sign of life.
const SILENCE: Duration = Duration::from_secs(15);
/// How long before it reconnects.
const RECONNECT: Duration = Duration::from_secs(1);

/// Hears of releases for all of this process's waiters, over one connection, which is opened for the first waiter.
///
/// Notifications are hints. While it cannot connect, waiters poll; once it has connected, they are told to ask again.
pub(super) struct Listener {
    server: Arc<Postgres>,
    hints: Arc<Hints>,
    /// Where the connection lives: waiters may be on any runtime.
    background: Background,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Listener {
    pub(super) fn new(server: &Arc<Postgres>, background: Background) -> Self {
        Self { server: Arc::clone(server), hints: Arc::default(), background, task: Mutex::new(None) }
    }

    /// Listens for announcements with this text from now on.
    pub(super) fn hint(&self, announced: String) -> Hint {
        let hint = self.hints.listen(announced);
        if !self.server.options.own.pooled() {
            let mut task = self.task();
            // It ends only with its runtime.
            if task.as_ref().is_none_or(JoinHandle::is_finished) {
                let listening = listen(Arc::clone(&self.server), Arc::clone(&self.hints));
                *task = Some(self.background.spawn(listening));
            }
        }
        hint
    }

    /// Closes the connection until the next wait, unless another client of this backend waits.
    pub(super) fn close(&self) {
        let mut task = self.task();
        if self.hints.is_empty()
            && let Some(listening) = task.take()
        {
            listening.abort();
        }
    }

    fn task(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(listening) = self.task().take() {
            listening.abort();
        }
    }
}

async fn listen(server: Arc<Postgres>, hints: Arc<Hints>) {
    loop {
        let error = match connect(&server).await {
            Ok(mut listener) => {
                // Earlier announcements were missed.
                hints.tell_all();
                hear(&server, &mut listener, &hints).await
            }
            Err(error) => error,
        };
        tracing::debug!(lock.store = %server.store, %error, "cannot receive wake-ups; waiters poll instead");
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn connect(server: &Postgres) -> Result<PgListener, StoreError> {
    let longest = server.options.connect_timeout;
    let explain = |error| server.explain(error);
    let connecting = async {
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(longest);
        let pool = pool.connect_with(server.connect.clone()).await.map_err(explain)?;
        let mut listener = PgListener::connect_with(&pool).await.map_err(explain)?;
        listener.eager_reconnect(false);
        server.check_session(&mut listener).await?;
        listener.listen(server.options.table.table.as_str()).await.map_err(explain)?;
        Ok(listener)
    };
    let late = |_| StoreError::unavailable(format!("cannot connect and log in within {longest:?}"));
    tokio::time::timeout(longest, connecting).await.map_err(late)?
}

/// Passes on the announcements, until the connection is lost.
async fn hear(server: &Postgres, listener: &mut PgListener, hints: &Hints) -> StoreError {
    let longest = server.options.response_timeout;
    let explain = |error| server.explain(error);
    loop {
        match tokio::time::timeout(SILENCE, listener.try_recv()).await {
            Ok(Ok(Some(announced))) => hints.tell(announced.payload()),
            Ok(Ok(None)) => return StoreError::unavailable("the connection was lost"),
            Ok(Err(error)) => return explain(error),
            // If no packet comes back, nothing shows that a connection is dead.
            Err(_) => {
                match tokio::time::timeout(longest, listener.execute("SELECT 1".into_sql_str())).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return explain(error),
                    Err(_) => return StoreError::unavailable(format!("no answer within {longest:?}")),
                }
            }
        }
    }
}
