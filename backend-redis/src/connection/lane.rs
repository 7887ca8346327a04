//! The connections for commands to one server: one per runtime, replaced when it is no longer usable.

use super::{
    dial::Dial,
    errors::{Failure, Trouble},
    pipelined::Pipelined,
};
use crate::requests::script::Script;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use redis::{Cmd, RedisError, Value};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tenure_core::{Moment, PerRuntime, StoreError};

/// The pause after a failed attempt to connect, so that a server that comes back is not flooded.
const BREATH: Duration = Duration::from_millis(50);

/// The connections to one server: one per runtime, shared by all its requests.
///
/// The `redis` crate's `ConnectionManager` keeps a connection on which a request timed out, and one to a server that
/// has become a replica. Here either one ends the connection, and the next request makes another. One attempt to
/// connect serves everybody who waits for it, and goes on if they give up.
pub(crate) struct Lane {
    dial: Dial,
    connections: PerRuntime<Mutex<LaneConnection>>,
    /// The number of the last connection.
    last: AtomicU64,
}

#[derive(Default)]
struct LaneConnection {
    /// The connection's number.
    number: u64,
    state: ConnectionState,
}

#[derive(Default)]
enum ConnectionState {
    #[default]
    None,
    /// No connection: the last attempt failed at this moment.
    Failed(Moment),
    Connecting(Shared<BoxFuture<'static, Result<Pipelined, RedisError>>>),
    Connected(Pipelined),
}

/// An open connection. It can still be asked when its lane no longer has it, because another client that shares the
/// lane has closed.
#[derive(Clone)]
pub(crate) struct Connection {
    /// Unique across runtimes, so that a late failure of an old connection does not end a new one.
    pub(crate) number: u64,
    requests: Pipelined,
}

/// How a command is sent.
#[derive(Clone, Copy)]
enum Sending {
    /// In one write with others that are made at the same time.
    Plain,
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

impl Lane {
    pub(crate) fn new(dial: Dial) -> Self {
        Self { dial, connections: PerRuntime::new(), last: AtomicU64::new(0) }
    }

    pub(crate) fn dial(&self) -> &Dial {
        &self.dial
    }

    /// This runtime's connection.
    fn here(&self) -> Arc<Mutex<LaneConnection>> {
        self.connections.get(Mutex::default)
    }

    /// Returns the connection, and whether it existed already.
    async fn connection(&self) -> Result<(Connection, bool), RedisError> {
        let here = self.here();
        let (number, connecting) = {
            let mut now = locked(&here);
            let connecting = match &now.state {
                ConnectionState::Connected(requests) => {
                    return Ok((Connection { number: now.number, requests: requests.clone() }, true));
                }
                ConnectionState::Connecting(connecting) => connecting.clone(),
                ConnectionState::None => self.connect(Duration::ZERO),
                ConnectionState::Failed(when) => {
                    self.connect(BREATH.saturating_sub(Moment::now().since(*when)))
                }
            };
            if !matches!(now.state, ConnectionState::Connecting(_)) {
                now.number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
                now.state = ConnectionState::Connecting(connecting.clone());
            }
            (now.number, connecting)
        };
        let outcome = connecting.await;
        let mut now = locked(&here);
        if now.number == number && matches!(now.state, ConnectionState::Connecting(_)) {
            now.state = match &outcome {
                Ok(requests) => ConnectionState::Connected(requests.clone()),
                Err(_) => ConnectionState::Failed(Moment::now()),
            };
        }
        outcome.map(|requests| (Connection { number, requests }, false))
    }

    /// Connects in a separate task, so that callers with short waits cannot keep a slow connection from ever being
    /// made.
    fn connect(&self, pause: Duration) -> Shared<BoxFuture<'static, Result<Pipelined, RedisError>>> {
        let dial = self.dial.clone();
        let attempt = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            dial.commands().await.map(Pipelined::new)
        });
        let ended = |_| Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted).into());
        attempt.map(move |outcome| outcome.unwrap_or_else(ended)).boxed().shared()
    }

    fn spoilt(&self, number: u64) {
        let here = self.here();
        let mut now = locked(&here);
        if now.number == number && matches!(now.state, ConnectionState::Connected(_)) {
            now.state = ConnectionState::None;
        }
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

    /// The same by itself, and only on that connection.
    pub(crate) async fn ask_on(&self, connection: &Connection, command: &Cmd) -> Result<Answer, Failure> {
        let answer = self.send_on(connection.clone(), Sending::Apart, command).await;
        answer.map_err(|refusal| refusal.explained(|source| self.dial.server_name().explain(source)))
    }

    /// Calls a script, loading it first if the server does not know it. `about` is the key to name in errors.
    ///
    /// If an existing connection turns out to be broken, as after a restart of the server, the call is sent again. So
    /// it must be one that may be carried out twice.
    pub(crate) async fn run(&self, script: &Script, call: &Cmd, about: &str) -> Result<Answer, Failure> {
        self.run_as(Sending::Plain, script, call, about).await
    }

    /// The same, at a node of a Cluster to which the slot is being moved.
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
        how: Sending,
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

    async fn send(&self, how: Sending, command: &Cmd) -> Result<Answer, RawFailure> {
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
    async fn send_once(&self, how: Sending, command: &Cmd) -> Result<Answer, (RawFailure, bool)> {
        let (connection, from_before) =
            self.connection().await.map_err(|error| (RawFailure { error, in_doubt: false }, false))?;
        self.send_on(connection, how, command).await.map_err(|refusal| (refusal, from_before))
    }

    async fn send_on(
        &self,
        mut connection: Connection,
        how: Sending,
        command: &Cmd,
    ) -> Result<Answer, RawFailure> {
        let (sent, number) = (Moment::now(), connection.number);
        let answer = match how {
            Sending::Plain => connection.requests.send(command).await,
            Sending::Apart => connection.requests.send_apart(command).await,
            Sending::Asking => {
                let mut both = redis::pipe();
                both.cmd("ASKING").add_command(command.clone());
                connection.requests.send_all(&both).await
            }
        };
        let answer = answer.and_then(Value::extract_error);
        answer.map(|value| Answer { value, sent, resent: false, connection }).map_err(|error| {
            let trouble = Trouble::of(&error);
            if trouble.spoils_connection() {
                self.spoilt(number);
            }
            RawFailure { error, in_doubt: trouble.leaves_doubt() }
        })
    }
}

fn locked(connection: &Mutex<LaneConnection>) -> MutexGuard<'_, LaneConnection> {
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
