//! One server as a client sees it: a connection for commands in each runtime, replaced whenever it is spoilt.

use crate::{
    dial::Dial,
    errors::{Failure, Trouble},
    script::Script,
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use redis::{Cmd, RedisError, Value, aio::MultiplexedConnection};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tenure_core::{Moment, PerRuntime, StoreError};

/// How long after a failed attempt to connect the next one begins: a server that comes back is not met by a storm.
const BREATH: Duration = Duration::from_millis(50);

/// A server, with one connection that all requests of a runtime share.
///
/// The `redis` crate's `ConnectionManager` keeps a connection on which a request timed out, and one to a server that
/// has become a replica. Here each of these ends the connection, and the next request makes another. One attempt to
/// connect serves all who wait for it, and goes on when they give up.
pub(crate) struct Server {
    dial: Dial,
    lines: PerRuntime<Mutex<Line>>,
    /// How many connections there were.
    last: AtomicU64,
}

#[derive(Default)]
struct Line {
    /// Which connection this is, among those of all runtimes, so that a late failure of an old one does not end a new one.
    number: u64,
    state: State,
}

#[derive(Default)]
enum State {
    #[default]
    None,
    /// None, because the last attempt failed at this moment.
    Failed(Moment),
    Connecting(Shared<BoxFuture<'static, Result<MultiplexedConnection, RedisError>>>),
    Connected(MultiplexedConnection),
}

/// How a command is sent.
#[derive(Clone, Copy)]
enum Sending {
    Plain,
    /// Behind `ASKING`.
    Asking,
}

/// The answer to a request.
pub(crate) struct Answer {
    pub(crate) value: Value,
    /// The instant before the request was sent.
    pub(crate) sent: Moment,
    /// Whether the request had been sent before on a connection that turned out to be broken. That one may have been
    /// carried out too, or still may be.
    pub(crate) resent: bool,
    /// The connection that brought it.
    pub(crate) line: u64,
}

impl Server {
    pub(crate) fn new(dial: Dial) -> Self {
        Self { dial, lines: PerRuntime::new(), last: AtomicU64::new(0) }
    }

    pub(crate) fn dial(&self) -> &Dial {
        &self.dial
    }

    /// The line of this runtime.
    fn line(&self) -> Arc<Mutex<Line>> {
        self.lines.get(Mutex::default)
    }

    /// The connection, its number, and whether it was there already.
    async fn connection(&self) -> Result<(MultiplexedConnection, u64, bool), RedisError> {
        let here = self.line();
        let (number, connecting) = {
            let mut line = locked(&here);
            let connecting = match &line.state {
                State::Connected(connection) => return Ok((connection.clone(), line.number, true)),
                State::Connecting(connecting) => connecting.clone(),
                State::None => self.connect(Duration::ZERO),
                State::Failed(when) => self.connect(BREATH.saturating_sub(Moment::now().since(*when))),
            };
            if !matches!(line.state, State::Connecting(_)) {
                line.number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
                line.state = State::Connecting(connecting.clone());
            }
            (line.number, connecting)
        };
        let outcome = connecting.await;
        let mut line = locked(&here);
        if line.number == number && matches!(line.state, State::Connecting(_)) {
            line.state = match &outcome {
                Ok(connection) => State::Connected(connection.clone()),
                Err(_) => State::Failed(Moment::now()),
            };
        }
        outcome.map(|connection| (connection, number, false))
    }

    /// An attempt in a task of its own, so that a short wait cannot keep a slow connection from ever being made.
    fn connect(
        &self,
        pause: Duration,
    ) -> Shared<BoxFuture<'static, Result<MultiplexedConnection, RedisError>>> {
        let dial = self.dial.clone();
        let attempt = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            dial.commands().await
        });
        let ended = |_| Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted).into());
        attempt.map(move |outcome| outcome.unwrap_or_else(ended)).boxed().shared()
    }

    fn spoilt(&self, number: u64) {
        let here = self.line();
        let mut line = locked(&here);
        if line.number == number && matches!(line.state, State::Connected(_)) {
            line.state = State::None;
        }
    }

    /// Lets go of the connections. The next request makes another.
    pub(crate) fn disconnect(&self) {
        for line in self.lines.all() {
            locked(&line).state = State::None;
        }
    }

    /// Sends a command, and waits for its answer as long as the timeouts allow.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Answer, Failure> {
        self.send(Sending::Plain, command)
            .await
            .map_err(|refusal| refusal.explained(|source| self.dial.place().explain(source)))
    }

    /// The same on that connection and no other.
    pub(crate) async fn ask_on(&self, line: u64, command: &Cmd) -> Result<Answer, Failure> {
        let connection = {
            let here = self.line();
            let now = locked(&here);
            match &now.state {
                State::Connected(connection) if now.number == line => connection.clone(),
                _ => {
                    let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
                    return Err(Failure { error: self.dial.place().explain(broken), in_doubt: false });
                }
            }
        };
        let answer = self.send_on(connection, line, Sending::Plain, command).await;
        answer.map_err(|refusal| refusal.explained(|source| self.dial.place().explain(source)))
    }

    /// Calls a script, and has it loaded first when the server does not know it. `about` is the key that errors name.
    ///
    /// The call is sent again when a connection from before turns out to be broken, as it is after the server was
    /// restarted. So it must be one that may be carried out twice.
    pub(crate) async fn run(&self, script: &Script, call: &Cmd, about: &str) -> Result<Answer, Failure> {
        self.run_as(Sending::Plain, script, call, about).await
    }

    /// The same, at a node of a Cluster to which the slot is moving.
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
        if let Err(Refusal { error, in_doubt }) = &outcome
            && Trouble::of(error) == Trouble::NoScript
        {
            // Nothing was carried out, unless by a first copy on a connection that broke.
            let before = *in_doubt;
            outcome = match self.send(Sending::Plain, &script.load()).await {
                Ok(_) => match self.send(how, call).await {
                    Ok(answer) => Ok(Answer { resent: answer.resent || before, ..answer }),
                    Err(refusal) => Err(Refusal { in_doubt: refusal.in_doubt || before, ..refusal }),
                },
                Err(Refusal { error, .. }) => Err(Refusal { error, in_doubt: before }),
            };
        }
        outcome.map_err(|refusal| refusal.explained(|source| self.dial.place().explain_for(about, source)))
    }

    async fn send(&self, how: Sending, command: &Cmd) -> Result<Answer, Refusal> {
        match self.send_once(how, command).await {
            Err((Refusal { error, .. }, true)) if Trouble::of(&error).is_broken() => {
                match self.send_once(how, command).await {
                    Ok(answer) => Ok(Answer { resent: true, ..answer }),
                    Err((refusal, _)) => Err(Refusal { in_doubt: true, ..refusal }),
                }
            }
            outcome => outcome.map_err(|(refusal, _)| refusal),
        }
    }

    /// Sends a command once. An error comes with whether the connection was one from before.
    async fn send_once(&self, how: Sending, command: &Cmd) -> Result<Answer, (Refusal, bool)> {
        let (connection, number, from_before) =
            self.connection().await.map_err(|error| (Refusal { error, in_doubt: false }, false))?;
        self.send_on(connection, number, how, command).await.map_err(|refusal| (refusal, from_before))
    }

    async fn send_on(
        &self,
        mut connection: MultiplexedConnection,
        number: u64,
        how: Sending,
        command: &Cmd,
    ) -> Result<Answer, Refusal> {
        let sent = Moment::now();
        let answer = match how {
            Sending::Plain => connection.send_packed_command(command).await,
            Sending::Asking => {
                let mut both = redis::pipe();
                both.cmd("ASKING").add_command(command.clone());
                let answers = connection.send_packed_commands(&both, 1, 1).await;
                answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil))
            }
        };
        let answer = answer.and_then(Value::extract_error);
        answer.map(|value| Answer { value, sent, resent: false, line: number }).map_err(|error| {
            let trouble = Trouble::of(&error);
            if trouble.spoils_connection() {
                self.spoilt(number);
            }
            Refusal { error, in_doubt: trouble.leaves_doubt() }
        })
    }
}

fn locked(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request without an answer, or with one that helps nobody.
struct Refusal {
    error: RedisError,
    in_doubt: bool,
}

impl Refusal {
    fn explained(self, explain: impl FnOnce(RedisError) -> StoreError) -> Failure {
        Failure { error: explain(self.error), in_doubt: self.in_doubt }
    }
}
