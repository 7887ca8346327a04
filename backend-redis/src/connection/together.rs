//! Requests that are sent in one write. Calls of one script become one call, which carries out each of them as if it had
//! come alone.

use super::{connecting::in_time, errors::Trouble};
use crate::requests::script::{self, Script};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, Value, aio::MultiplexedConnection};
use std::{sync::Arc, time::Duration};
use tokio::{sync::oneshot, time::Instant};

/// A request that waits to be sent.
pub(super) struct Gathered {
    pub(super) request: Cmd,
    /// The script that carries out many calls of the request's script, if they may be sent as one.
    pub(super) each: Option<Arc<Script>>,
    pub(super) answer: oneshot::Sender<Result<Value, RedisError>>,
}

impl Gathered {
    fn is_awaited(&self) -> bool {
        !self.answer.is_closed()
    }

    /// Whether one call can carry out both.
    fn goes_with(&self, other: &Self) -> bool {
        let (Some(each), Some(others)) = (&self.each, &other.each) else { return false };
        Arc::ptr_eq(each, others)
            && self.request.args_iter().len() == other.request.args_iter().len()
            && script::keys(&self.request) == script::keys(&other.request)
    }

    fn tell(self, said: Result<Value, RedisError>) {
        // A caller that has given up needs no answer.
        let _ = self.answer.send(said);
    }
}

/// Sends requests, and tells each caller the answer to its own.
///
/// All this takes at most one response timeout, `longest`, as each caller was promised (F3). So calls that are sent
/// again have only the rest of it after the refusal.
pub(super) async fn send(mut connection: MultiplexedConnection, gathered: Vec<Gathered>, longest: Duration) {
    let deadline = Instant::now() + longest;
    let refused = deliver(&mut connection, pack(gathered), deadline).await;
    let alone = refused.into_iter().flat_map(Refused::unpack).collect();
    deliver(&mut connection, alone, deadline).await;
}

/// Requests that are sent as one command.
enum Parcel {
    Request(Gathered),
    /// Many calls, by the script that carries out each.
    Calls(Arc<Script>, Vec<Gathered>),
    /// Loads such a script. If the server does not take it, the next calls are refused again.
    Load(Arc<Script>),
}

impl Parcel {
    /// All that go together: at least one.
    fn of(mut group: Vec<Gathered>) -> Self {
        match group[0].each.clone() {
            Some(each) if group.len() > 1 => Self::Calls(each, group),
            _ => Self::Request(group.swap_remove(0)),
        }
    }

    fn command(&mut self) -> Cmd {
        match self {
            Self::Request(one) => one.request.take(),
            Self::Calls(each, calls) => each.call_for_each(calls.iter().map(|one| &one.request)),
            Self::Load(each) => each.load(),
        }
    }

    /// Gives each caller its answer, unless the server refused a call for many, perhaps because of only one of them.
    fn tell(self, said: Value) -> Option<Refused> {
        let (each, calls) = match self {
            Self::Request(one) => {
                one.tell(Ok(said));
                return None;
            }
            Self::Calls(each, calls) => (each, calls),
            Self::Load(_) => return None,
        };
        match said {
            Value::ServerError(error) => {
                let error = RedisError::from(error);
                let trouble = Trouble::of(&error);
                if trouble.may_be_of_one() {
                    return Some(Refused { each, calls, is_unknown: trouble == Trouble::NoScript });
                }
                tell_all(calls, &error);
            }
            Value::Array(answers) if answers.len() == calls.len() => {
                calls.into_iter().zip(answers).for_each(|(one, answer)| one.tell(Ok(answer)));
            }
            // Its parts cannot be assigned to the calls.
            _ => {
                let what = "the server's answer does not match the batch of calls";
                tell_all(calls, &(ErrorKind::UnexpectedReturnType, what).into());
            }
        }
        None
    }

    fn fail(self, error: &RedisError) {
        match self {
            Self::Request(one) => one.tell(Err(error.clone())),
            Self::Calls(_, calls) => tell_all(calls, error),
            Self::Load(_) => {}
        }
    }
}

fn tell_all(calls: Vec<Gathered>, error: &RedisError) {
    for one in calls {
        one.tell(Err(error.clone()));
    }
}

/// Calls of which none was carried out, because the server refused the call for all of them. A single one may be the
/// reason, such as a key that the user may not touch. So each is sent again by itself, and gets its own answer.
struct Refused {
    each: Arc<Script>,
    calls: Vec<Gathered>,
    /// Whether the server does not know the script.
    is_unknown: bool,
}

impl Refused {
    fn unpack(self) -> impl Iterator<Item = Parcel> {
        let load = self.is_unknown.then_some(Parcel::Load(self.each));
        load.into_iter().chain(self.calls.into_iter().filter(Gathered::is_awaited).map(Parcel::Request))
    }
}

/// Puts calls that go together into one parcel, where the first of them stood. Leaves out requests whose callers have
/// given up.
fn pack(gathered: Vec<Gathered>) -> Vec<Parcel> {
    let mut groups: Vec<Vec<Gathered>> = Vec::with_capacity(gathered.len());
    for one in gathered.into_iter().filter(Gathered::is_awaited) {
        match groups.iter_mut().find(|group| group[0].goes_with(&one)) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups.into_iter().map(Parcel::of).collect()
}

/// Sends parcels in one write. Returns the calls to be sent again.
async fn deliver(
    connection: &mut MultiplexedConnection,
    mut parcels: Vec<Parcel>,
    deadline: Instant,
) -> Vec<Refused> {
    if parcels.is_empty() {
        return Vec::new();
    }
    let mut pipeline = Pipeline::with_capacity(parcels.len());
    for parcel in &mut parcels {
        pipeline.add_command(parcel.command());
    }
    let sending = connection.send_packed_commands(&pipeline, 0, parcels.len());
    match in_time(deadline.saturating_duration_since(Instant::now()), sending).await {
        Ok(said) => parcels.into_iter().zip(said).filter_map(|(parcel, said)| parcel.tell(said)).collect(),
        Err(error) => {
            for parcel in parcels {
                parcel.fail(&error);
            }
            Vec::new()
        }
    }
}

#[cfg(test)]
pub(super) mod peer {
    use redis::{AsyncConnectionConfig, RedisConnectionInfo, aio::MultiplexedConnection};
    use std::time::Duration;
    use tokio::io::{
        AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream,
    };

    pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

    /// The server's end of a line.
    pub(crate) struct Peer(BufReader<DuplexStream>);

    impl Peer {
        /// `client` makes the client's end.
        pub(crate) async fn connect<C>(
            client: impl FnOnce(DuplexStream) -> C,
        ) -> (MultiplexedConnection, Self)
        where
            C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        {
            let (line, other) = tokio::io::duplex(1 << 20);
            let info = RedisConnectionInfo::default().set_skip_set_lib_name();
            let config = AsyncConnectionConfig::new().set_response_timeout(Some(TIMEOUT));
            let (connection, driver) =
                MultiplexedConnection::new_with_config(&info, client(line), config).await.unwrap();
            tokio::spawn(driver);
            (connection, Self(BufReader::new(other)))
        }

        /// The words of the next request: none once the client has hung up.
        pub(crate) async fn next(&mut self) -> Vec<String> {
            let mut words = Vec::new();
            for _ in 0..self.number().await {
                let length = self.number().await;
                let mut word = vec![0; length + 2];
                self.0.read_exact(&mut word).await.unwrap();
                word.truncate(length);
                words.push(String::from_utf8(word).unwrap());
            }
            words
        }

        /// How many words, or bytes, come next.
        async fn number(&mut self) -> usize {
            let mut line = String::new();
            self.0.read_line(&mut line).await.unwrap();
            line.get(1..).and_then(|number| number.trim_end().parse().ok()).unwrap_or_default()
        }

        pub(crate) async fn answer(&mut self, answer: &str) {
            self.0.write_all(format!("{answer}\r\n").as_bytes()).await.unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        peer::{Peer, TIMEOUT},
        *,
    };
    use crate::requests::script::Scripts;
    use tenure_core::Mode;

    const KEYS: [&str; 3] = ["a", "b", "c"];

    async fn connect() -> (MultiplexedConnection, Peer) {
        Peer::connect(|line| line).await
    }

    impl Peer {
        /// Takes a call for all keys.
        async fn is_asked_together(&mut self) {
            assert_eq!(self.next().await[2..], ["3", "a", "b", "c", "1"]);
        }

        /// Takes a call for one key.
        async fn is_asked_for(&mut self, key: &str) {
            assert_eq!(self.next().await[2..], ["1", key]);
        }
    }

    type Answered = oneshot::Receiver<Result<Value, RedisError>>;

    /// A call for each key, and where its answer arrives.
    fn calls(script: &Script) -> (Vec<Gathered>, Vec<Answered>) {
        let call = |key: &str| {
            let (answer, answered) = oneshot::channel();
            let mut request = script.call(1, 1);
            request.arg(key);
            (Gathered { request, each: script.each.clone(), answer }, answered)
        };
        KEYS.into_iter().map(call).unzip()
    }

    #[tokio::test]
    async fn batch_refused_for_all_is_not_sent_again() {
        let scripts = Scripts::new(false, false);
        for refusal in ["BUSY", "LOADING", "MASTERDOWN", "READONLY", "OOM", "MISCONF", "NOAUTH"] {
            let (connection, mut peer) = connect().await;
            let (gathered, answered) = calls(scripts.acquire(Mode::Exclusive));
            let sending = tokio::spawn(send(connection, gathered, TIMEOUT));
            peer.is_asked_together().await;
            peer.answer(&format!("-{refusal} not now")).await;
            for answered in answered {
                assert_eq!(answered.await.unwrap().unwrap_err().code(), Some(refusal));
            }
            sending.await.unwrap();
            assert!(peer.next().await.is_empty(), "{refusal}");
        }
    }

    #[tokio::test]
    async fn batch_error_is_reported_per_call() {
        let scripts = Scripts::new(false, false);
        for refusal in ["NOSCRIPT", "NOPERM", "CROSSSLOT", "ERR"] {
            let (connection, mut peer) = connect().await;
            let (gathered, answered) = calls(scripts.acquire(Mode::Exclusive));
            tokio::spawn(send(connection, gathered, TIMEOUT));
            peer.is_asked_together().await;
            peer.answer(&format!("-{refusal} not all of these")).await;
            if refusal == "NOSCRIPT" {
                assert_eq!(peer.next().await[..2], ["SCRIPT", "LOAD"]);
                peer.answer("-NOPERM not that either").await;
            }
            for key in KEYS {
                peer.is_asked_for(key).await;
                peer.answer(&if key == "b" { "-NOPERM not b".to_owned() } else { format!("+{key}") }).await;
            }
            for (key, answered) in KEYS.into_iter().zip(answered) {
                match answered.await.unwrap().and_then(Value::extract_error) {
                    Ok(said) => assert_eq!(said, Value::SimpleString(key.to_owned())),
                    Err(error) => assert_eq!((key, error.detail()), ("b", Some("not b"))),
                }
            }
            assert!(peer.next().await.is_empty(), "{refusal}");
        }
    }

    #[tokio::test]
    async fn abandoned_call_is_not_sent_again() {
        let (scripts, (connection, mut peer)) = (Scripts::new(false, false), connect().await);
        let (gathered, mut answered) = calls(scripts.acquire(Mode::Exclusive));
        tokio::spawn(send(connection, gathered, TIMEOUT));
        peer.is_asked_together().await;
        drop(answered.remove(1));
        peer.answer("-NOPERM one of these").await;
        for key in ["a", "c"] {
            peer.is_asked_for(key).await;
            peer.answer(&format!("+{key}")).await;
        }
        assert!(peer.next().await.is_empty());
    }

    /// However many were refused, and however late.
    #[tokio::test(start_paused = true)]
    async fn resent_calls_keep_the_first_deadline() {
        let (scripts, (connection, mut peer)) = (Scripts::new(false, false), connect().await);
        let (acquire, acquired) = calls(scripts.acquire(Mode::Exclusive));
        let (release, released) = calls(&scripts.release);
        let began = Instant::now();
        tokio::spawn(send(connection, acquire.into_iter().chain(release).collect(), TIMEOUT));
        peer.is_asked_together().await;
        peer.is_asked_together().await;
        tokio::time::sleep(TIMEOUT / 2).await;
        peer.answer("-NOPERM one of these\r\n-NOPERM one of those").await;
        for key in KEYS.repeat(2) {
            peer.is_asked_for(key).await;
        }
        for answered in acquired.into_iter().chain(released) {
            let error = answered.await.unwrap().unwrap_err();
            assert_eq!(Trouble::of(&error), Trouble::Silent);
        }
        let took = began.elapsed();
        assert!(took >= TIMEOUT && took < TIMEOUT + TIMEOUT / 10, "{took:?}");
    }
}
