//! This process's bell: one connection on which others tell it of releases.

use super::{errors, lease_statements::Statements, server::MySql};
use crate::{
    hints::{Hint, Hints},
    lease_rows::batches,
    server::in_time,
};
use futures_util::TryFutureExt;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tenure_core::{Background, Moment, StoreError, record::Bell};
use tokio::{task::JoinHandle, time::timeout};

/// How long the connection sleeps: for so long a dead server goes unnoticed.
const SLEEP: Duration = Duration::from_secs(10);
/// How long before it reconnects, at first and at last.
const RECONNECT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The user-level lock that the connection of a bell has. A look-up of the lock finds the connection.
pub(super) fn lock_of(Bell(number): Bell) -> String {
    format!("tenure.bell.{number}")
}

/// Tells this process's waiters of releases, over one connection, which is opened for the first waiter.
///
/// The servers have no notifications, but any session may interrupt another of the same user. So the connection sleeps,
/// and a [`Ringer`](super::ringer::Ringer) interrupts its sleep. It does not say for which name.
///
/// A ring is a hint. One that comes between two sleeps is lost, and so is one for another server of a cluster.
pub(super) struct OwnBell {
    shared: Arc<Shared>,
    /// Where the connection lives: waiters may be on any runtime.
    background: Background,
}

struct Shared {
    server: Arc<MySql>,
    statements: Arc<Statements>,
    hints: Arc<Hints>,
    /// The bell's number while it can be rung, otherwise 0.
    number: AtomicU64,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl OwnBell {
    pub(super) fn new(server: &Arc<MySql>, statements: &Arc<Statements>, background: Background) -> Self {
        let (server, statements) = (Arc::clone(server), Arc::clone(statements));
        let (hints, number, task) = (Arc::default(), AtomicU64::new(0), Mutex::default());
        Self { shared: Arc::new(Shared { server, statements, hints, number, task }), background }
    }

    /// The bell, while it can be rung.
    pub(super) fn get(&self) -> Option<Bell> {
        Some(self.shared.number.load(Ordering::Acquire)).filter(|number| *number != 0).map(Bell)
    }

    /// Listens for hints about `name` from now on.
    pub(super) fn hint(&self, name: &str) -> Hint {
        let hint = self.shared.hints.listen(name.to_owned());
        let mut task = self.shared.task();
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(self.background.spawn(keep(Arc::clone(&self.shared))));
        }
        hint
    }

    /// Tells this process's own waiters for `name`.
    pub(super) fn tell(&self, name: &str) {
        self.shared.hints.tell(name);
    }

    /// Closes the connection until the next wait, unless another client of this backend waits.
    pub(super) fn close(&self) {
        let mut task = self.shared.task();
        if self.shared.hints.is_empty()
            && let Some(keeping) = task.take()
        {
            keeping.abort();
        }
    }
}

impl Drop for OwnBell {
    fn drop(&mut self) {
        if let Some(keeping) = self.shared.task().take() {
            keeping.abort();
        }
    }
}

impl Shared {
    fn task(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are no waiters. Then the next waiter starts another task.
    fn rests(&self) -> bool {
        let mut task = self.task();
        let rests = self.hints.is_empty();
        if rests {
            *task = None;
        }
        rests
    }
}

/// That the bell can be rung, as long as this is there.
struct Hung<'s>(&'s Shared);

impl<'s> Hung<'s> {
    /// Waiters leave the bell's number at once.
    fn up(shared: &'s Shared, Bell(number): Bell) -> Self {
        shared.number.store(number, Ordering::Release);
        shared.hints.tell_all();
        Self(shared)
    }
}

impl Drop for Hung<'_> {
    /// Waiters ask at once, and more often.
    fn drop(&mut self) {
        self.0.number.store(0, Ordering::Release);
        self.0.hints.tell_all();
    }
}

/// Keeps the bell connected as long as there are waiters.
async fn keep(shared: Arc<Shared>) {
    let mut pause = RECONNECT.0;
    loop {
        let error = match connect(&shared.server).await {
            Ok((mut connection, bell)) => {
                pause = RECONNECT.0;
                let hung = Hung::up(&shared, bell);
                match listen(&shared, &mut connection).await {
                    Ok(()) => {
                        drop(hung);
                        let _ = timeout(RECONNECT.0, connection.close()).await;
                        if shared.rests() {
                            return;
                        }
                        continue;
                    }
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        tracing::debug!(lock.store = %shared.server.store, %error, "cannot receive wake-ups; waiters poll instead");
        if shared.rests() {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RECONNECT.1);
    }
}

async fn connect(server: &MySql) -> Result<(MySqlConnection, Bell), StoreError> {
    // Of any number, none is rung by mistake.
    let bell = Bell(fastrand::u64(2..1 << 62));
    let lock = format!("SELECT CAST(GET_LOCK('{}', 0) AS SIGNED)", lock_of(bell));
    let connecting = async {
        let mut connection = server.open_bare().await?;
        let locked = connection.fetch_one(AssertSqlSafe(lock)).await?.try_get::<Option<i64>, _>(0)?;
        Ok((connection, locked))
    };
    let longest = server.options.connect_timeout;
    match in_time(longest, connecting.map_err(|error| server.said(error))).await? {
        (connection, Some(1)) => Ok((connection, bell)),
        _ => Err(StoreError::failed("the server gave no user-level lock")),
    }
}

/// Passes on the rings, until there have been no waiters for a while.
async fn listen(shared: &Shared, connection: &mut MySqlConnection) -> Result<(), StoreError> {
    let server = &*shared.server;
    let sleep = format!("DO SLEEP({})", SLEEP.as_secs());
    let longest = SLEEP + server.options.response_timeout;
    let (mut told, mut idle) = (HashMap::new(), false);
    loop {
        let begun = Moment::now();
        match timeout(longest, connection.execute(AssertSqlSafe(sleep.as_str().to_owned()))).await {
            Err(_) => return Err(StoreError::unavailable(format!("no answer within {longest:?}"))),
            Ok(Err(error)) if !errors::is_interrupted(&error) => return Err(server.said(error)),
            // MySQL does not call it an error.
            Ok(slept) if slept.is_err() || Moment::now().since(begun) < SLEEP => {
                tell(shared, connection, &mut told).await?;
            }
            Ok(_) => {
                let unawaited = shared.hints.is_empty();
                if unawaited && idle {
                    return Ok(());
                }
                idle = unawaited;
            }
        }
    }
}

/// Tells the waiters for names that may have become free: a ring does not say which, and asking for all names each time
/// would cost more than polling. `told` has the versions of rows of which waiters were told.
async fn tell(
    shared: &Shared,
    connection: &mut MySqlConnection,
    told: &mut HashMap<String, i64>,
) -> Result<(), StoreError> {
    let Shared { server, statements, hints, .. } = shared;
    let names = hints.keys();
    if names.len() < 2 {
        hints.tell_all();
        return Ok(());
    }
    told.retain(|name, _| names.contains(name));
    let arguments = super::server::arguments![batches::texts(&names), server.options.prefix.as_str()];
    let asking = crate::lane::Server::run(&**server, connection, &statements.changed, arguments);
    let longest = server.options.response_timeout;
    match timeout(longest, asking).await {
        Err(_) => return Err(StoreError::unavailable(format!("no answer within {longest:?}"))),
        // By another ring.
        Ok(Err(error)) if errors::is_interrupted(&error) => hints.tell_all(),
        Ok(Err(error)) => return Err(server.said(error)),
        Ok(Ok(done)) => {
            for (name, version) in server.rows::<(String, i64)>(&done)? {
                if told.insert(name.clone(), version) != Some(version) {
                    hints.tell(&name);
                }
            }
        }
    }
    Ok(())
}
