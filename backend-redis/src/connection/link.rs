//! The connections for commands to one server: one per runtime, replaced when it is no longer usable.

use super::{
    address::SILENCE,
    connecting::in_time,
    dial::Dial,
    errors::{Failure, Trouble},
    pipelined::Pipelined,
};
use crate::requests::script::Script;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use redis::{Cmd, ErrorKind, RedisError, Value};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tenure_core::{Moment, PerRuntime, StoreError};
use tokio::{runtime::Handle, sync::OnceCell};

/// The pause after a failed attempt to connect, so that a server that comes back is not flooded.
const BREATH: Duration = Duration::from_millis(50);
/// The part of the response timeout in which an idle connection has to answer a `PING`: the server may be far away.
const SIGN_OF_LIFE: u32 = 5;

/// The connections to one server: one per runtime, shared by all its requests.
///
/// The `redis` crate's `ConnectionManager` keeps a connection on which a request timed out, and one to a server that
/// has become a replica. Here both end the connection, and the next request opens another. After an early give-up or a
/// long silence, a `PING` tests the connection, and one that is not answered in time ends it. One attempt to connect
/// serves all its waiters, and goes on if they give up.
pub(crate) struct Link {
    dial: Dial,
    connections: PerRuntime<Mutex<LinkConnection>>,
    /// The number of the last connection.
    last: AtomicU64,
}

#[derive(Default)]
struct LinkConnection {
    /// The connection's number.
    number: u64,
    state: ConnectionState,
    /// The number of the connection that is being tested, or 0.
    in_doubt: u64,
}

#[derive(Default)]
enum ConnectionState {
    #[default]
    None,
    /// No connection: the last attempt failed at this moment.
    Failed(Moment),
    Connecting(Connecting),
    /// And since when it is idle, if it is.
    Connected(Opened, Moment),
}

type Attempt = BoxFuture<'static, Result<Opened, RedisError>>;
type Connecting = Shared<Attempt>;

/// An open connection, as its link keeps it.
#[derive(Clone)]
struct Opened {
    requests: Pipelined,
    /// The number of the master to which it leads.
    master: u64,
    /// The server's `run_id`, once it was asked; `None` if it does not tell.
    run_id: Arc<OnceCell<Option<String>>>,
}

/// An open connection. It can still be asked when its link no longer has it, because another client that shares the
/// link has closed.
#[derive(Clone)]
pub(crate) struct Connection {
    /// Unique across runtimes, so that a late failure of an old connection does not end a new one.
    pub(crate) number: u64,
    opened: Opened,
}

impl Connection {
    /// The `run_id` of the server on it, once it was asked; `None` if it does not tell.
    pub(crate) fn run_id(&self) -> &OnceCell<Option<String>> {
        &self.opened.run_id
    }
}

/// How a command is sent.
#[derive(Clone, Copy)]
enum Sending<'a> {
    /// In one write with others that are made at the same time.
    Plain,
    /// Like `Plain`, and perhaps in one call with others of the same script.
    Call(&'a Script),
    /// By itself.
    Apart,
    /// After `ASKING`.
    Asking,
}

/// The answer to a request.
pub(crate) struct Answer {
    pub(crate) value: Value,
    /// The instant before the request was sent.
    pub(crate) sent: Moment,
    /// Whether the request was sent before, on a connection that turned out to be broken. That first copy may have been
    /// carried out too, or still may be.
    pub(crate) resent: bool,
    /// The connection that brought it.
    pub(crate) connection: Connection,
}

impl Link {
    pub(crate) fn new(dial: Dial) -> Self {
        Self { dial, connections: PerRuntime::new(), last: AtomicU64::new(0) }
    }

    pub(crate) fn dial(&self) -> &Dial {
        &self.dial
    }

    /// This runtime's connection.
    fn here(&self) -> Arc<Mutex<LinkConnection>> {
        self.connections.get(Mutex::default)
    }

    /// Returns the connection, and whether it existed already.
    async fn connection(&self) -> Result<(Connection, bool), RedisError> {
        let here = self.here();
        let (number, connecting) = {
            let mut now = locked(&here);
            let number = now.number;
            let attempt = match &mut now.state {
                ConnectionState::Connected(opened, used) if opened.master == self.dial.master() => {
                    let idle = Moment::now().since(std::mem::replace(used, Moment::now()));
                    if idle < SILENCE {
                        return Ok((Connection { number, opened: opened.clone() }, true));
                    }
                    Ok(self.check(opened.clone()))
                }
                ConnectionState::Connecting(connecting) => Err(connecting.clone()),
                // Another connection of this client has found another master.
                ConnectionState::None | ConnectionState::Connected(..) => Ok(self.connect(Duration::ZERO)),
                ConnectionState::Failed(when) => {
                    Ok(self.connect(BREATH.saturating_sub(Moment::now().since(*when))))
                }
            };
            match attempt {
                Ok(attempt) => {
                    now.number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
                    let connecting = connecting(&here, now.number, attempt);
                    now.state = ConnectionState::Connecting(connecting.clone());
                    (now.number, connecting)
                }
                Err(connecting) => (number, connecting),
            }
        };
        let outcome = connecting.await;
        // Its task may have panicked.
        locked(&here).connected(number, &outcome);
        outcome.map(|opened| (Connection { number, opened }, false))
    }

    fn connect(&self, pause: Duration) -> Attempt {
        let dial = self.dial.clone();
        async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            opened(&dial).await
        }
        .boxed()
    }

    /// Keeps an idle connection if the server answers over it. Otherwise makes another.
    fn check(&self, mut idle: Opened) -> Attempt {
        let dial = self.dial.clone();
        async move {
            let longest = dial.response_timeout / SIGN_OF_LIFE;
            if in_time(longest, idle.requests.send_apart(&redis::cmd("PING"))).await.is_ok() {
                return Ok(idle);
            }
            drop(idle);
            opened(&dial).await
        }
        .boxed()
    }

    /// Finds out whether a connection on which a request was given up is still good. Otherwise one that has silently
    /// died would stay in use if no request waited for the whole response timeout: renewals of short leases do not.
    fn test(&self, number: u64, sent: Moment, runtime: &Handle) {
        let here = self.here();
        let mut requests = {
            let mut now = locked(&here);
            let ConnectionState::Connected(opened, _) = &now.state else { return };
            if now.number != number || now.in_doubt == number {
                return;
            }
            let requests = opened.requests.clone();
            now.in_doubt = number;
            requests
        };
        // The server answers in order, so this must be answered soon after the other. That may have been long ago, if
        // its caller did not look. And a `WAIT` for replicas, behind which it may be, takes its time.
        let longest = self.dial.response_timeout;
        let left = longest.saturating_sub(Moment::now().since(sent)).max(longest / 2);
        runtime.spawn(async move {
            let answer = in_time(left, requests.send_apart(&redis::cmd("PING"))).await;
            let mut now = locked(&here);
            if now.in_doubt == number {
                now.in_doubt = 0;
            }
            if answer.is_err() {
                now.spoil(number);
            }
        });
    }

    /// Drops the connections. The next request makes a new one; requests that are under way go on.
    pub(crate) fn disconnect(&self) {
        for one in self.connections.all() {
            locked(&one).state = ConnectionState::None;
        }
    }

    /// Sends a command, and waits for its answer as long as the timeouts allow.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Answer, Failure> {
        self.send(Sending::Plain, command)
            .await
            .map_err(|refusal| refusal.explained(|source| self.dial.server_name().explain(source)))
    }

    /// Sends a command by itself, and only on that connection.
    pub(crate) async fn ask_on(&self, connection: &Connection, command: &Cmd) -> Result<Answer, Failure> {
        let answer = self.send_on(connection.clone(), Sending::Apart, command).await;
        answer.map_err(|refusal| refusal.explained(|source| self.dial.server_name().explain(source)))
    }

    /// Calls a script, loading it first if the server does not know it. `about` is the key to name in errors.
    ///
    /// If an existing connection turns out to be broken, as after a restart of the server, the call is sent again. So
    /// it must be one that may be carried out twice.
    pub(crate) async fn run(&self, script: &Script, call: &Cmd, about: &str) -> Result<Answer, Failure> {
        self.run_as(Sending::Call(script), script, call, about).await
    }

    /// Runs the call at a node of a Cluster to which the slot is being moved.
    pub(crate) async fn run_asking(
        &self,
        script: &Script,
        call: &Cmd,
        about: &str,
    ) -> Result<Answer, Failure> {
        self.run_as(Sending::Asking, script, call, about).await
    }

    async fn run_as(
        &self,
        how: Sending<'_>,
        script: &Script,
        call: &Cmd,
        about: &str,
    ) -> Result<Answer, Failure> {
        let mut outcome = self.send(how, call).await;
        if let Err(RawFailure { error, in_doubt }) = &outcome
            && Trouble::of(error) == Trouble::NoScript
        {
            // Nothing was carried out, except perhaps a first copy on a connection that broke.
            let before = *in_doubt;
            outcome = match self.send(Sending::Plain, &script.load()).await {
                Ok(_) => match self.send(how, call).await {
                    Ok(answer) => Ok(Answer { resent: answer.resent || before, ..answer }),
                    Err(refusal) => Err(RawFailure { in_doubt: refusal.in_doubt || before, ..refusal }),
                },
                Err(RawFailure { error, .. }) => Err(RawFailure { error, in_doubt: before }),
            };
        }
        outcome
            .map_err(|refusal| refusal.explained(|source| self.dial.server_name().explain_for(about, source)))
    }

    async fn send(&self, how: Sending<'_>, command: &Cmd) -> Result<Answer, RawFailure> {
        match self.send_once(how, command).await {
            Err((RawFailure { error, .. }, true)) if Trouble::of(&error).is_broken() => {
                match self.send_once(how, command).await {
                    Ok(answer) => Ok(Answer { resent: true, ..answer }),
                    Err((refusal, _)) => Err(RawFailure { in_doubt: true, ..refusal }),
                }
            }
            outcome => outcome.map_err(|(refusal, _)| refusal),
        }
    }

    /// Sends a command once. An error comes with whether the connection existed already.
    async fn send_once(&self, how: Sending<'_>, command: &Cmd) -> Result<Answer, (RawFailure, bool)> {
        let (connection, from_before) =
            self.connection().await.map_err(|error| (RawFailure { error, in_doubt: false }, false))?;
        self.send_on(connection, how, command).await.map_err(|refusal| (refusal, from_before))
    }

    async fn send_on(
        &self,
        mut connection: Connection,
        how: Sending<'_>,
        command: &Cmd,
    ) -> Result<Answer, RawFailure> {
        let (sent, number) = (Moment::now(), connection.number);
        let asked = Asked { link: self, number, sent, is_awaited: true };
        let answer = match how {
            Sending::Plain => connection.opened.requests.send(command, None).await,
            Sending::Call(script) => connection.opened.requests.send(command, script.each.as_ref()).await,
            Sending::Apart => connection.opened.requests.send_apart(command).await,
            Sending::Asking => {
                let mut both = redis::pipe();
                both.cmd("ASKING").add_command(command.clone());
                connection.opened.requests.send_all(&both).await
            }
        };
        asked.ended();
        let mut answer = answer.and_then(Value::extract_error);
        if answer.is_ok() && connection.opened.master != self.dial.master() {
            // The new master may not have the change that the old one confirmed.
            answer = Err((ErrorKind::Io, "another server became the master during the request").into());
        }
        if answer.is_ok() {
            self.dial.note_answer();
        }
        answer.map(|value| Answer { value, sent, resent: false, connection }).map_err(|error| {
            let trouble = Trouble::of(&error);
            if trouble.spoils_connection() {
                locked(&self.here()).spoil(number);
            }
            RawFailure { error, in_doubt: trouble.leaves_doubt() }
        })
    }
}

async fn opened(dial: &Dial) -> Result<Opened, RedisError> {
    let (connection, master) = dial.commands().await?;
    let requests = Pipelined::new(connection, dial.response_timeout);
    Ok(Opened { requests, master, run_id: Arc::default() })
}

/// Runs in a separate task, so that callers with short waits cannot keep a slow connection from ever being made. If all
/// of them give up, a later request finds a connection, or none, and never the old outcome.
fn connecting(here: &Arc<Mutex<LinkConnection>>, number: u64, attempt: Attempt) -> Connecting {
    let here = Arc::clone(here);
    let attempt = tokio::spawn(async move {
        let outcome = attempt.await;
        locked(&here).connected(number, &outcome);
        outcome
    });
    let ended = |_| Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted).into());
    attempt.map(move |outcome| outcome.unwrap_or_else(ended)).boxed().shared()
}

impl LinkConnection {
    /// Notes how the attempt to connect has ended, unless that is known or it was replaced since.
    fn connected(&mut self, number: u64, outcome: &Result<Opened, RedisError>) {
        if self.number == number && matches!(self.state, ConnectionState::Connecting(_)) {
            self.state = match outcome {
                Ok(opened) => ConnectionState::Connected(opened.clone(), Moment::now()),
                Err(_) => ConnectionState::Failed(Moment::now()),
            };
        }
    }

    /// Makes the next request open another connection, unless this one has been replaced since.
    fn spoil(&mut self, number: u64) {
        if self.number == number && matches!(self.state, ConnectionState::Connected(..)) {
            self.state = ConnectionState::None;
        }
    }
}

/// A request on its way. If it is given up before it has ended, its connection is tested.
struct Asked<'a> {
    link: &'a Link,
    number: u64,
    sent: Moment,
    is_awaited: bool,
}

impl Asked<'_> {
    fn ended(mut self) {
        self.is_awaited = false;
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        // Outside a runtime no request can be sent; the next request tests it.
        if self.is_awaited
            && let Ok(runtime) = Handle::try_current()
        {
            self.link.test(self.number, self.sent, &runtime);
        }
    }
}

fn locked(connection: &Mutex<LinkConnection>) -> MutexGuard<'_, LinkConnection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request without a usable answer.
struct RawFailure {
    error: RedisError,
    in_doubt: bool,
}

impl RawFailure {
    fn explained(self, explain: impl FnOnce(RedisError) -> StoreError) -> Failure {
        Failure { error: explain(self.error), in_doubt: self.in_doubt }
    }
}

#[cfg(test)]
mod tests;
