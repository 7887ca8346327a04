//! Rings the bells of processes that wait.

use super::{bell::lock_of, errors, server::MySql};
use crate::{lane::Verdict, server::in_time};
use futures_util::TryFutureExt;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tenure_core::{Background, StoreError, record::Bell};
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::timeout,
};

/// How many rings may be waiting to be sent: more than the releases that two lanes carry out at a time, each of which may
/// ring, even if it is always the same bell. More are left out: those waiters poll.
const PENDING: usize = 1024;
/// How long the connection is kept without rings.
const IDLE: Duration = Duration::from_secs(30);
/// How long before it connects again.
const RECONNECT: Duration = Duration::from_secs(1);

/// Rings bells in the background, over one connection, which is opened when needed: no request waits for a ring.
pub(super) struct Ringer {
    server: Arc<MySql>,
    background: Background,
    /// The sender to the task, if it runs.
    task: Mutex<Option<mpsc::Sender<Bell>>>,
}

impl Ringer {
    pub(super) fn new(server: &Arc<MySql>, background: Background) -> Self {
        Self { server: Arc::clone(server), background, task: Mutex::default() }
    }

    /// Rings another process's bell.
    pub(super) fn ring(&self, bell: Bell) {
        let mut task = self.task();
        let sent = task.as_ref().map_or(Err(TrySendError::Closed(bell)), |task| task.try_send(bell));
        if let Err(TrySendError::Closed(bell)) = sent {
            let (sender, rings) = mpsc::channel(PENDING);
            self.background.spawn(work(Arc::clone(&self.server), rings));
            // The task has just got its end of the channel.
            let _ = sender.try_send(bell);
            *task = Some(sender);
        }
    }

    /// Closes the connection, after the rings under way.
    pub(super) fn close(&self) {
        *self.task() = None;
    }

    fn task(&self) -> MutexGuard<'_, Option<mpsc::Sender<Bell>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn work(server: Arc<MySql>, mut rings: mpsc::Receiver<Bell>) {
    let mut connection = None;
    loop {
        let Ok(next) = timeout(IDLE, rings.recv()).await else {
            // Bells that were sent meanwhile are still rung.
            rings.close();
            continue;
        };
        let Some(first) = next else { break };
        let mut bells = HashSet::from([first]);
        while let Ok(bell) = rings.try_recv() {
            bells.insert(bell);
        }
        let used = connection.is_some();
        let mut rung = ring(&server, &mut connection, &bells).await;
        if used && rung.is_err() {
            // The server may have ended the connection long ago, while it was idle. A waiter that was rung already
            // looks once more.
            connection = None;
            rung = ring(&server, &mut connection, &bells).await;
        }
        if let Err(error) = rung {
            tracing::debug!(lock.store = %server.store, %error, "could not wake the waiter of another process; it polls instead");
            connection = None;
            tokio::time::sleep(RECONNECT).await;
        }
    }
    if let Some(connection) = connection {
        let _ = timeout(RECONNECT, connection.close()).await;
    }
}

/// Interrupts the connections that have the bells' locks. It is the server that looks each up, so no other connection is
/// interrupted, even if a number is used again.
async fn ring(
    server: &MySql,
    connection: &mut Option<MySqlConnection>,
    bells: &HashSet<Bell>,
) -> Result<(), StoreError> {
    let connection = match connection {
        Some(connection) => connection,
        none => {
            let connecting = server.open_bare().map_err(|error| server.said(error));
            none.insert(in_time(server.options.connect_timeout, connecting).await?)
        }
    };
    let longest = server.options.response_timeout;
    for bell in bells {
        // No connection has this number.
        let kill = format!("KILL QUERY COALESCE(IS_USED_LOCK('{}'), -1)", lock_of(*bell));
        match timeout(longest, connection.execute(AssertSqlSafe(kill))).await {
            Err(_) => return Err(StoreError::unavailable(format!("no answer within {longest:?}"))),
            Ok(Err(error)) if errors::verdict(&error) == Verdict::Broken => return Err(server.said(error)),
            // The bell has gone, or is another user's.
            Ok(_) => {}
        }
    }
    Ok(())
}
