//! The network between a simulated server and its clients, and whether the server runs.

use crate::{
    async_trait,
    saboteur::{Direction, Hurt, Sabotage, Saboteur},
};
use fastrand::Rng;
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tenure_core::StoreError;
use tokio::{
    sync::{oneshot, watch},
    time::{sleep, timeout},
};

/// How long a client waits for an answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a server takes to start without data: long enough for its clock to pass the tokens that it has forgotten.
const START: Duration = Duration::from_millis(100);
/// The longest time, in microseconds, that a request or an answer is on its way.
const LATENCY: u64 = 1500;

/// A network in one process, and a server at its end that can freeze and die.
pub(super) struct Network {
    weather: watch::Sender<Weather>,
    /// Draws how long each request and each answer is on its way; without it, they take no time.
    rng: Option<Mutex<Rng>>,
    /// Removes the server's data.
    wipe: Box<dyn Fn() + Send + Sync>,
}

/// The faults that requests and answers meet now.
#[derive(Clone, Copy, Debug)]
struct Weather {
    /// Connections of this generation work: a reset begins the next one.
    generation: u64,
    refuses: bool,
    half_open: bool,
    drops_replies: bool,
    requests_late: Duration,
    replies_late: Duration,
    server: Server,
}

/// The state of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Runs,
    Frozen,
    Down,
}

const FINE: Weather = Weather {
    generation: 1,
    refuses: false,
    half_open: false,
    drops_replies: false,
    requests_late: Duration::ZERO,
    replies_late: Duration::ZERO,
    server: Server::Runs,
};

impl Network {
    /// Makes a network whose delays are drawn from this seed, or that takes no time. `wipe` removes the server's data.
    pub(super) fn new(seed: Option<u64>, wipe: impl Fn() + Send + Sync + 'static) -> Self {
        let rng = seed.map(|seed| Mutex::new(Rng::with_seed(seed)));
        Self { weather: watch::Sender::new(FINE), rng, wipe: Box::new(wipe) }
    }

    /// Makes a connection, which is established by its first request.
    pub(super) fn connection(self: &Arc<Self>) -> Connection {
        Connection { network: Arc::clone(self), generation: AtomicU64::new(0) }
    }

    async fn latency(&self, late: impl Fn(&Weather) -> Duration) {
        let drawn = self
            .rng
            .as_ref()
            .map_or(0, |rng| rng.lock().unwrap_or_else(PoisonError::into_inner).u64(..LATENCY));
        let time = late(&self.weather.borrow()) + Duration::from_micros(drawn);
        if !time.is_zero() {
            sleep(time).await;
        }
    }

    /// Waits until `so` is true; `false` if the connection is reset first.
    async fn reach(&self, generation: u64, so: impl Fn(&Weather) -> bool) -> bool {
        let mut weather = self.weather.subscribe();
        let reached = weather.wait_for(|now| now.generation != generation || so(now)).await;
        reached.is_ok_and(|now| now.generation == generation)
    }

    /// Carries a request to the server and its answer back; `None` if either is lost on the way.
    async fn exchange<T>(&self, generation: u64, request: impl Future<Output = T>) -> Option<T> {
        let arrives = |now: &Weather| !now.half_open && now.server != Server::Frozen;
        self.latency(|now| now.requests_late).await;
        if !self.reach(generation, arrives).await {
            return None;
        }
        let answer = request.await;
        self.latency(|now| now.replies_late).await;
        // A frozen server answers when it has thawed. A dropped answer is lost with the connection.
        let answers = |now: &Weather| arrives(now) && !now.drops_replies;
        self.reach(generation, answers).await.then_some(answer)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("weather", &*self.weather.borrow()).finish_non_exhaustive()
    }
}

/// A client's connection to the server, which the client makes again after a reset.
#[derive(Debug)]
pub(super) struct Connection {
    network: Arc<Network>,
    /// The generation in which it was made; 0 before the first request.
    generation: AtomicU64,
}

impl Connection {
    /// Carries a request to the server and its answer back. A request that has been sent is carried out even if this
    /// future is dropped.
    ///
    /// # Errors
    ///
    /// [`StoreError::unavailable`] if the connection is refused or reset, or no answer comes in time.
    pub(super) async fn carry<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (network, generation) = self.established()?;
        let exchange = tokio::spawn(async move { network.exchange(generation, request).await });
        match timeout(RESPONSE_TIMEOUT, exchange).await {
            Ok(answer) => answer.map_err(StoreError::unavailable)?.ok_or_else(reset),
            Err(_) => Err(StoreError::unavailable("no answer over the network")),
        }
    }

    /// Like `carry`, but without a timeout. Once this future is dropped, the server gives up the request.
    pub(super) async fn wait<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (network, generation) = self.established()?;
        let (mut sender, answer) = oneshot::channel();
        tokio::spawn(async move {
            let exchange = network.exchange(generation, request);
            tokio::select! {
                biased;
                answer = exchange => drop(sender.send(answer)),
                () = sender.closed() => {}
            }
        });
        answer.await.map_err(StoreError::unavailable)?.ok_or_else(reset)
    }

    /// Makes the connection again if it was reset.
    fn established(&self) -> Result<(Arc<Network>, u64), StoreError> {
        let now = *self.network.weather.borrow();
        if self.generation.load(Ordering::Relaxed) != now.generation {
            if now.refuses || now.server == Server::Down {
                return Err(StoreError::unavailable("connection refused"));
            }
            self.generation.store(now.generation, Ordering::Relaxed);
        }
        Ok((Arc::clone(&self.network), now.generation))
    }
}

fn reset() -> StoreError {
    StoreError::unavailable("connection reset")
}

#[async_trait]
impl Saboteur for Network {
    fn server(&self) -> String {
        "a simulated server".to_owned()
    }

    fn can(&self, hurt: Hurt) -> bool {
        Hurt::NETWORK.contains(&hurt) || matches!(hurt, Hurt::Freeze | Hurt::Kill | Hurt::Wipe)
    }

    async fn heal(&self) -> Sabotage {
        self.weather.send_modify(|now| {
            let lost = now.drops_replies || now.server == Server::Down;
            *now = Weather { generation: now.generation + u64::from(lost), ..FINE };
        });
        Ok(())
    }

    async fn freeze(&self) -> Sabotage {
        self.weather.send_modify(|now| now.server = Server::Frozen);
        Ok(())
    }

    async fn thaw(&self) -> Sabotage {
        self.weather.send_modify(|now| {
            if now.server == Server::Frozen {
                now.server = Server::Runs;
            }
        });
        Ok(())
    }

    async fn kill(&self) -> Sabotage {
        self.weather.send_modify(|now| {
            now.generation += 1;
            now.server = Server::Down;
        });
        Ok(())
    }

    async fn restart(&self) -> Sabotage {
        self.weather.send_modify(|now| {
            now.generation += 1;
            now.server = Server::Runs;
        });
        Ok(())
    }

    async fn restart_empty(&self) -> Sabotage {
        self.kill().await?;
        (self.wipe)();
        sleep(START).await;
        self.restart().await
    }

    async fn cut(&self) -> Sabotage {
        self.weather.send_modify(|now| now.generation += 1);
        Ok(())
    }

    async fn refuse(&self) -> Sabotage {
        self.weather.send_modify(|now| now.refuses = true);
        Ok(())
    }

    async fn delay(&self, direction: Direction, by: Duration) -> Sabotage {
        self.weather.send_modify(|now| match direction {
            Direction::Requests => now.requests_late = by,
            Direction::Replies => now.replies_late = by,
        });
        Ok(())
    }

    async fn half_open(&self) -> Sabotage {
        self.weather.send_modify(|now| now.half_open = true);
        Ok(())
    }

    async fn drop_replies(&self) -> Sabotage {
        self.weather.send_modify(|now| now.drops_replies = true);
        Ok(())
    }

    async fn mend(&self) -> Sabotage {
        self.weather.send_modify(|now| {
            let generation = now.generation + u64::from(now.drops_replies);
            *now = Weather { generation, server: now.server, ..FINE };
        });
        Ok(())
    }
}
