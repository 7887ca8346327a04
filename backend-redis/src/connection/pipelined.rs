//! Requests that are made at the same time, gathered to be sent together.

use super::together::{self, Gathered};
use crate::requests::script::Script;
use redis::{Cmd, RedisError, Value, aio::MultiplexedConnection};
use std::{
    future::poll_fn,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};
use tokio::sync::oneshot;

/// How many requests are sent together at most: the first is answered only with the last.
const MOST: usize = 64;
/// How many are worth a write of their own: with fewer, the system call would cost more time than it saves.
const FEWEST: usize = 8;

/// A connection for requests, shared by all of this runtime.
///
/// A lone request is sent at once. While one is under way, others are gathered until all tasks that are ready have run,
/// or until half as many have gathered as are under way, so that the server need not wait for the client. They are then
/// sent in one [pipeline](https://redis.io/docs/latest/develop/using-commands/pipelining/). So no request waits for
/// another's answer, and many tasks cost few system calls: sent one by one, each would be a separate write, because the
/// runtime runs the connection's task right after the task that sent a request.
#[derive(Clone)]
pub(crate) struct Pipelined {
    connection: MultiplexedConnection,
    requests: Arc<Requests>,
    response_timeout: Duration,
}

#[derive(Default)]
struct Requests {
    under_way: AtomicUsize,
    gathered: Mutex<Vec<Gathered>>,
}

impl Pipelined {
    pub(crate) fn new(connection: MultiplexedConnection, response_timeout: Duration) -> Self {
        Self { connection, requests: Arc::default(), response_timeout }
    }

    /// Sends a request, perhaps with others, and waits for its answer. `each` carries out many calls of the request's
    /// script, if they may be sent as one.
    ///
    /// # Cancel safety
    ///
    /// A dropped request may or may not be sent and carried out. A later one may overtake it.
    pub(crate) async fn send(
        &mut self,
        request: &Cmd,
        each: Option<&Arc<Script>>,
    ) -> Result<Value, RedisError> {
        let (_under_way, others) = UnderWay::one_more(&self.requests);
        if others == 0 {
            return self.connection.send_packed_command(request).await;
        }
        let ended = |_| Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
        self.gather(request.clone(), each.cloned(), others).await.unwrap_or_else(ended)
    }

    /// Sends a request by itself: one with a slow answer, for which others must not wait.
    pub(crate) async fn send_apart(&mut self, request: &Cmd) -> Result<Value, RedisError> {
        self.connection.send_packed_command(request).await
    }

    /// Sends several commands at once, and returns the answer to the last.
    pub(crate) async fn send_all(&mut self, commands: &redis::Pipeline) -> Result<Value, RedisError> {
        let last = commands.len().saturating_sub(1);
        let mut answers = self.connection.send_packed_commands(commands, last, 1).await?;
        Ok(answers.pop().unwrap_or(Value::Nil))
    }

    /// Adds a request to those that are about to be sent. `others` is how many are under way.
    fn gather(
        &self,
        request: Cmd,
        each: Option<Arc<Script>>,
        others: usize,
    ) -> oneshot::Receiver<Result<Value, RedisError>> {
        let enough = (others / 2).clamp(FEWEST, MOST);
        let (answer, answered) = oneshot::channel();
        let mut gathered = self.requests.gathered();
        gathered.push(Gathered { request, each, answer });
        match gathered.len() {
            1 => {
                let unsent = Unsent(Some(Arc::clone(&self.requests)));
                drop(gathered);
                tokio::spawn(send_gathered(self.connection.clone(), unsent, self.response_timeout));
            }
            gathered_now if gathered_now >= enough => {
                let all = std::mem::take(&mut *gathered);
                drop(gathered);
                tokio::spawn(together::send(self.connection.clone(), all, self.response_timeout));
            }
            _ => {}
        }
        answered
    }
}

async fn send_gathered(connection: MultiplexedConnection, unsent: Unsent, longest: Duration) {
    run_last().await;
    together::send(connection, unsent.take(), longest).await;
}

/// Lets all tasks run that are ready now. Tokio's `yield_now` would wait on a busy thread until that is idle; this
/// leaves the task where other threads can run it.
async fn run_last() {
    let mut again = false;
    poll_fn(|context| {
        if std::mem::replace(&mut again, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Requests {
    fn gathered(&self) -> MutexGuard<'_, Vec<Gathered>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The requests that a task is going to send. If its runtime ends first, dropping this ends the wait for the answers.
struct Unsent(Option<Arc<Requests>>);

impl Unsent {
    fn take(mut self) -> Vec<Gathered> {
        self.0.take().map(|requests| std::mem::take(&mut *requests.gathered())).unwrap_or_default()
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if let Some(requests) = self.0.take() {
            let gathered = std::mem::take(&mut *requests.gathered());
            drop(gathered);
        }
    }
}

/// A request that has no answer yet.
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    /// Counts this one, and returns how many others there are.
    fn one_more(requests: &'a Requests) -> (Self, usize) {
        let others = requests.under_way.fetch_add(1, Ordering::Relaxed);
        (Self(&requests.under_way), others)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        together::peer::{Peer, TIMEOUT},
        *,
    };
    use crate::connection::errors::Trouble;
    use futures_util::{future::join_all, poll};
    use std::{
        pin::{Pin, pin},
        task::Context,
    };
    use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

    /// The client's end of a line, on which writes are counted.
    struct Counted {
        line: DuplexStream,
        writes: Arc<AtomicUsize>,
    }

    impl AsyncRead for Counted {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.line).poll_read(context, into)
        }
    }

    impl AsyncWrite for Counted {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut self.line).poll_write(context, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.line).poll_flush(context)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.line).poll_shutdown(context)
        }
    }

    /// A connection, the server's end, and how many writes came there.
    async fn connect() -> (Pipelined, Peer, Arc<AtomicUsize>) {
        let writes = Arc::<AtomicUsize>::default();
        let (connection, peer) = Peer::connect(|line| Counted { line, writes: Arc::clone(&writes) }).await;
        (Pipelined::new(connection, TIMEOUT), peer, writes)
    }

    /// The next request asks to echo this.
    async fn is_asked(peer: &mut Peer, text: &impl ToString) {
        assert_eq!(peer.next().await, ["ECHO", &text.to_string()]);
    }

    fn echo(what: &impl ToString) -> Cmd {
        let mut echo = redis::cmd("ECHO");
        echo.arg(what.to_string());
        echo
    }

    #[tokio::test]
    async fn concurrent_requests_share_a_write_and_get_their_own_answers() {
        let (connection, mut peer, writes) = connect().await;
        let (mut first, lone) = (connection.clone(), echo(&"lone"));
        // Not polled again before the others are answered: it delays none of them.
        let mut lone = pin!(first.send(&lone, None));
        assert!(poll!(&mut lone).is_pending());
        is_asked(&mut peer, &"lone").await;
        peer.answer("+lone").await;
        let alone = writes.load(Ordering::Relaxed);
        let asking = tokio::spawn(join_all((0..MOST + 10).map(move |number| {
            let mut connection = connection.clone();
            async move { connection.send(&echo(&number), None).await }
        })));
        for number in 0..MOST + 10 {
            is_asked(&mut peer, &number).await;
            peer.answer(&if number == 3 { "-ERR no".to_owned() } else { format!("+{number}") }).await;
        }
        let answers = asking.await.unwrap();
        for (number, answer) in answers.into_iter().enumerate() {
            let answer = answer.and_then(Value::extract_error);
            match number {
                3 => assert_eq!(answer.unwrap_err().detail(), Some("no")),
                _ => assert_eq!(answer.unwrap(), Value::SimpleString(number.to_string())),
            }
        }
        let writes = writes.load(Ordering::Relaxed) - alone;
        assert!(writes <= (MOST + 10) / FEWEST, "{writes} writes for {} requests", MOST + 10);
        assert_eq!(lone.await.unwrap(), Value::SimpleString("lone".into()));
    }

    #[tokio::test]
    async fn abandoned_request_is_not_sent() {
        let (connection, mut peer, _) = connect().await;
        let [mut one, mut two, mut three] = [(); 3].map(|()| connection.clone());
        let (first, second, third) = (echo(&1), echo(&2), echo(&3));
        let mut first = pin!(one.send(&first, None));
        assert!(poll!(&mut first).is_pending());
        {
            let mut second = pin!(two.send(&second, None));
            assert!(poll!(&mut second).is_pending());
        }
        let mut third = pin!(three.send(&third, None));
        assert!(poll!(&mut third).is_pending());
        is_asked(&mut peer, &1).await;
        is_asked(&mut peer, &3).await;
        peer.answer("+1\r\n+3").await;
        assert_eq!(third.await.unwrap(), Value::SimpleString("3".into()));
        assert_eq!(first.await.unwrap(), Value::SimpleString("1".into()));
    }

    #[tokio::test]
    async fn broken_connection_fails_all_waiting_requests() {
        let (connection, mut peer, _) = connect().await;
        let asking = tokio::spawn(join_all((0..5).map(move |number| {
            let mut connection = connection.clone();
            async move { connection.send(&echo(&number), None).await }
        })));
        for number in 0..5 {
            is_asked(&mut peer, &number).await;
        }
        // The others may have been carried out.
        peer.answer("+0\r\n+1").await;
        drop(peer);
        let answers = asking.await.unwrap();
        assert_eq!(*answers[0].as_ref().unwrap(), Value::SimpleString("0".into()));
        for answer in &answers[1..] {
            let trouble = Trouble::of(answer.as_ref().unwrap_err());
            assert!(trouble.is_broken() && trouble.leaves_doubt(), "{trouble:?}");
        }
    }
    /// A task of its runtime sends the gathered requests; callers on other runtimes get an error when it has ended.
    #[test]
    fn request_fails_if_its_runtime_has_ended() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let one = runtime();
        let (connection, _peer, _) = one.block_on(connect());
        let answered = {
            let _inside = one.enter();
            connection.gather(echo(&1), None, 1)
        };
        drop(one);
        assert!(runtime().block_on(answered).is_err());
    }
}
