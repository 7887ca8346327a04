//! The network between a simulated server and its clients, and whether the server runs.

use super::data::Data;
use crate::{
    async_trait,
    saboteur::{Hurt, Injection, Sabotage, Saboteur},
    watched::Watched,
};
use fastrand::Rng;
use std::{
    fmt,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tenure_core::StoreError;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, timeout},
};

/// How long a client waits for an answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a server takes to start without data, at least: long enough for its clock to pass the tokens that it has
/// forgotten.
const START: Duration = Duration::from_millis(100);
/// The longest time, in microseconds, that a message is on its way; one in fifty may take `LATE`.
const LATENCY: u64 = 1500;
const LATE: u64 = 3_000_000;
/// During a fault, one message in so many begins a time in which its connection carries nothing: longer than a session
/// lasts.
const SILENCES: u32 = 200;
const SILENCE: Duration = Duration::from_secs(5);

/// A network in one process, and a server at its end that can freeze and die.
pub(super) struct Network {
    weather: Watched<Weather>,
    /// Draws how long each request and each answer is on its way; without it, they take no time.
    rng: Option<Mutex<Rng>>,
    data: Arc<Data>,
    has_sessions: bool,
    late: Late,
}

/// How little clients know of the server's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Late {
    /// How far behind it they may be.
    pub(super) margin: Duration,
    /// How long they may take to notice that it was set.
    pub(super) noticed: Duration,
}

/// The faults that requests and answers meet now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Weather {
    /// Connections of this generation work: a reset begins the next one.
    generation: u64,
    refuses: bool,
    half_open: bool,
    drops: Drops,
    requests_late: Duration,
    replies_late: Duration,
    server: Server,
}

/// The directions whose messages are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Drops {
    requests: bool,
    replies: bool,
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
    drops: Drops { requests: false, replies: false },
    requests_late: Duration::ZERO,
    replies_late: Duration::ZERO,
    server: Server::Runs,
};

impl Weather {
    fn is_fine(&self) -> bool {
        *self == Self { generation: self.generation, ..FINE }
    }

    /// Whether something was lost that a connection cannot do without.
    fn has_lost(&self) -> bool {
        self.drops.requests || self.drops.replies
    }

    fn arrives(&self) -> bool {
        !self.half_open && self.server != Server::Frozen
    }
}

impl Network {
    /// Makes a network whose delays are drawn from this seed, or that takes no time.
    pub(super) fn new(seed: Option<u64>, data: Arc<Data>, has_sessions: bool, late: Late) -> Self {
        let rng = seed.map(|seed| Mutex::new(Rng::with_seed(seed)));
        Self { weather: Watched::new(FINE), rng, data, has_sessions, late }
    }

    /// Makes a connection, which is established by its first request.
    pub(super) fn connection(self: &Arc<Self>) -> Connection {
        let (network, silent_until) = (Arc::clone(self), Arc::new(Mutex::new(Instant::now())));
        Connection { network, generation: AtomicU64::new(0), silent_until }
    }

    /// Lets a message be on its way.
    async fn latency(&self, silent_until: &Mutex<Instant>, late: impl Fn(&Weather) -> Duration) {
        let drawn = self.rng.as_ref().map_or(0, |rng| {
            let mut rng = rng.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.weather.read().is_fine() && rng.u32(..SILENCES) == 0 {
                *silent_until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + SILENCE;
            }
            let most = if rng.u8(..50) == 0 { LATE } else { LATENCY };
            rng.u64(..most)
        });
        let silence =
            silent_until.lock().unwrap_or_else(PoisonError::into_inner).duration_since(Instant::now());
        let time = silence + late(&self.weather.read()) + Duration::from_micros(drawn);
        if !time.is_zero() {
            sleep(time).await;
        }
    }

    /// Waits until `so` is true; `false` if the connection is reset first.
    async fn reach(&self, generation: u64, so: impl Fn(&Weather) -> bool) -> bool {
        let reached = |now: &Weather| match now.generation == generation {
            true if so(now) => Some(true),
            true => None,
            false => Some(false),
        };
        self.weather.wait_for(reached).await
    }

    /// Carries out a request while the server runs; `None` if the connection is reset first.
    async fn served<T>(&self, generation: u64, request: impl Future<Output = T>) -> Option<T> {
        let mut request = pin!(request);
        loop {
            tokio::select! {
                biased;
                frozen = self.reach(generation, |now| now.server == Server::Frozen) => {
                    if !frozen || !self.reach(generation, |now| now.server == Server::Runs).await {
                        return None;
                    }
                }
                answer = &mut request => return Some(answer),
            }
        }
    }

    /// Carries a request to the server and its answer back; `None` if either is lost on the way.
    async fn exchange<T>(
        &self,
        generation: u64,
        silent_until: &Mutex<Instant>,
        request: impl Future<Output = T>,
    ) -> Option<T> {
        self.latency(silent_until, |now| now.requests_late).await;
        // A dropped message is lost with the connection.
        if !self.reach(generation, |now| now.arrives() && !now.drops.requests).await {
            return None;
        }
        let answer = self.served(generation, request).await?;
        self.latency(silent_until, |now| now.replies_late).await;
        let answers = |now: &Weather| now.arrives() && !now.drops.replies;
        self.reach(generation, answers).await.then_some(answer)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("weather", &*self.weather.read()).finish_non_exhaustive()
    }
}

/// A client's connection to the server, which the client makes again after a reset.
#[derive(Debug)]
pub(super) struct Connection {
    network: Arc<Network>,
    /// The generation in which it was made; 0 before the first request.
    generation: AtomicU64,
    /// Until then, it carries nothing in either direction.
    silent_until: Arc<Mutex<Instant>>,
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
        let ((network, generation), silent_until) = (self.established()?, Arc::clone(&self.silent_until));
        let exchange = async move { network.exchange(generation, &silent_until, request).await };
        let exchange = tokio::spawn(exchange);
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
        let ((network, generation), silent_until) = (self.established()?, Arc::clone(&self.silent_until));
        let (mut sender, answer) = oneshot::channel();
        tokio::spawn(async move {
            let exchange = network.exchange(generation, &silent_until, request);
            // As soon as the server can hear of it.
            let given_up = async {
                sender.closed().await;
                network.reach(generation, Weather::arrives).await
            };
            let answer = tokio::select! {
                biased;
                answer = exchange => answer,
                _ = given_up => return,
            };
            drop(sender.send(answer));
        });
        answer.await.map_err(StoreError::unavailable)?.ok_or_else(reset)
    }

    /// Makes the connection again if it was reset.
    fn established(&self) -> Result<(Arc<Network>, u64), StoreError> {
        let now = *self.network.weather.read();
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
        let of_the_server = matches!(hurt, Hurt::Freeze | Hurt::Kill | Hurt::Wipe);
        // A message here has no bytes.
        (Hurt::NETWORK.contains(&hurt) && hurt != Hurt::Drip)
            || of_the_server
            || (hurt == Hurt::ExpireSessions && self.has_sessions)
            // Sessions end by a clock that is never set.
            || (matches!(hurt, Hurt::ClockAhead | Hurt::ClockBack) && !self.has_sessions)
    }

    async fn inject(&self, Injection { hurt, by, .. }: Injection) -> Sabotage {
        match hurt {
            Hurt::Wipe => {
                self.hurt(Hurt::Kill).await?;
                self.data.wipe();
                sleep(START + self.late.margin).await;
                return self.restart().await;
            }
            Hurt::ExpireSessions => self.data.sessions.end_all().await,
            hurt if !self.can(hurt) => return self.cannot(hurt),
            Hurt::ClockAhead | Hurt::ClockBack => {
                self.data.set_clock(hurt == Hurt::ClockAhead, by);
                sleep(self.late.noticed).await;
            }
            hurt => self.weather.change(|now| match hurt {
                Hurt::Freeze => now.server = Server::Frozen,
                Hurt::Kill => {
                    now.generation += 1;
                    now.server = Server::Down;
                }
                Hurt::Cut => now.generation += 1,
                Hurt::Refuse => now.refuses = true,
                Hurt::DelayRequests => now.requests_late = by,
                Hurt::DelayReplies => now.replies_late = by,
                Hurt::HalfOpen => now.half_open = true,
                Hurt::DropRequests => now.drops.requests = true,
                Hurt::DropReplies => now.drops.replies = true,
                _ => {}
            }),
        }
        Ok(())
    }

    async fn undo(&self, hurt: Hurt) -> Sabotage {
        self.weather.change(|now| match (hurt, now.server) {
            (Hurt::Freeze, Server::Frozen) => now.server = Server::Runs,
            (Hurt::Kill, Server::Down) => {
                now.generation += 1;
                now.server = Server::Runs;
            }
            (hurt, _) if Hurt::NETWORK.contains(&hurt) => {
                let generation = now.generation + u64::from(now.has_lost());
                *now = Weather { generation, server: now.server, ..FINE };
            }
            _ => {}
        });
        Ok(())
    }

    async fn heal(&self) -> Sabotage {
        self.weather.change(|now| {
            let lost = now.has_lost() || now.server == Server::Down;
            *now = Weather { generation: now.generation + u64::from(lost), ..FINE };
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use tokio::task::JoinHandle;

    /// A network, a connection over it, and how many requests its server has carried out.
    fn scene() -> (Arc<Network>, Arc<Connection>, Arc<AtomicUsize>) {
        let network = Arc::new(Network::new(None, Arc::new(Data::new(None)), false, Late::default()));
        let connection = Arc::new(network.connection());
        (network, connection, Arc::default())
    }

    fn ask(connection: &Arc<Connection>, done: &Arc<AtomicUsize>) -> JoinHandle<Result<(), StoreError>> {
        let (connection, done) = (Arc::clone(connection), Arc::clone(done));
        tokio::spawn(async move {
            let request = async move { _ = done.fetch_add(1, Ordering::Relaxed) };
            connection.carry(request).await
        })
    }

    /// Lets every task go as far as it gets now.
    async fn settle() {
        sleep(Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn request_is_carried_out_after_its_client_gave_up() {
        let (network, connection, done) = scene();
        network.hurt(Hurt::Freeze).await.unwrap();
        let asked = ask(&connection, &done);
        settle().await;
        asked.abort();
        settle().await;
        assert_eq!(done.load(Ordering::Relaxed), 0);
        network.undo(Hurt::Freeze).await.unwrap();
        settle().await;
        assert_eq!(done.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn request_is_lost_with_its_connection() {
        let (network, connection, done) = scene();
        network.hurt(Hurt::HalfOpen).await.unwrap();
        let asked = ask(&connection, &done);
        settle().await;
        network.hurt(Hurt::Cut).await.unwrap();
        assert!(asked.await.unwrap().unwrap_err().is_unavailable());
        network.mend().await.unwrap();
        settle().await;
        assert_eq!(done.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn request_is_carried_out_although_its_reply_is_dropped() {
        let (network, connection, done) = scene();
        network.hurt(Hurt::DropReplies).await.unwrap();
        let began = Instant::now();
        assert!(ask(&connection, &done).await.unwrap().unwrap_err().is_unavailable());
        assert!(began.elapsed() >= RESPONSE_TIMEOUT);
        assert_eq!(done.load(Ordering::Relaxed), 1);
        network.mend().await.unwrap();
        ask(&connection, &done).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn delayed_direction_decides_when_the_request_is_carried_out() {
        for (hurt, at_once) in [(Hurt::DelayRequests, 0), (Hurt::DelayReplies, 1)] {
            let (network, connection, done) = scene();
            network.inject(hurt.by(RESPONSE_TIMEOUT / 2)).await.unwrap();
            let asked = ask(&connection, &done);
            settle().await;
            assert_eq!(done.load(Ordering::Relaxed), at_once, "{hurt}");
            asked.await.unwrap().unwrap();
            assert_eq!(done.load(Ordering::Relaxed), 1, "{hurt}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connection_is_refused_until_it_can_be_made_again() {
        let (network, connection, done) = scene();
        network.hurt(Hurt::Kill).await.unwrap();
        assert!(ask(&connection, &done).await.unwrap().is_err());
        network.restart().await.unwrap();
        ask(&connection, &done).await.unwrap().unwrap();
        network.hurt(Hurt::Refuse).await.unwrap();
        ask(&connection, &done).await.unwrap().unwrap();
        network.hurt(Hurt::Cut).await.unwrap();
        assert!(ask(&connection, &done).await.unwrap().is_err());
        assert_eq!(done.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn queued_request_ends_with_its_server() {
        let (network, connection, done) = scene();
        let there = Arc::clone(&done);
        let queued = tokio::spawn(async move {
            let request = async move {
                sleep(Duration::from_secs(5)).await;
                there.fetch_add(1, Ordering::Relaxed)
            };
            connection.wait(request).await
        });
        settle().await;
        network.hurt(Hurt::Wipe).await.unwrap();
        assert!(queued.await.unwrap().unwrap_err().is_unavailable());
        sleep(Duration::from_secs(10)).await;
        assert_eq!(done.load(Ordering::Relaxed), 0);
    }
}
