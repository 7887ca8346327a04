//! The connections through a proxy: two pumps each, one for every direction.

use super::Counters;
use super::flow::{Flow, due};
use super::rewrite::{Beginning, Rewrite};
use crate::saboteur::Direction;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How much of a connection's first bytes is remembered: enough for the greeting of any protocol here.
const OPENING: usize = 256;

/// One client's connection through a proxy.
#[derive(Clone, Debug)]
pub struct Connection(Arc<State>);

#[derive(Debug)]
struct State {
    id: u64,
    client: SocketAddr,
    requests: watch::Sender<Flow>,
    replies: watch::Sender<Flow>,
    cut: CancellationToken,
    /// Bytes were thrown away: what the two sides believe to have said no longer agrees.
    torn: AtomicBool,
    /// The first bytes of the replies.
    opening: Mutex<Vec<u8>>,
}

impl Connection {
    /// The client's end.
    #[must_use]
    pub fn client(&self) -> SocketAddr {
        self.0.client
    }

    /// Sets one direction of this connection only.
    pub fn set(&self, direction: Direction, flow: Flow) {
        self.0.flow(direction).send_replace(flow);
    }

    /// Resets this connection on both sides (RST).
    pub fn cut(&self) {
        self.0.cut.cancel();
    }

    /// The first bytes that the server sent, at most 256.
    #[must_use]
    pub fn opening(&self) -> Vec<u8> {
        self.0.opening.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl State {
    fn flow(&self, direction: Direction) -> &watch::Sender<Flow> {
        match direction {
            Direction::Requests => &self.requests,
            Direction::Replies => &self.replies,
        }
    }
}

/// Every open connection of a proxy, and what the next one starts with.
#[derive(Debug)]
pub(super) struct Connections {
    pub(super) counters: watch::Sender<Counters>,
    rewrite: Option<Rewrite>,
    /// How long a server that refuses is asked again.
    patience: Duration,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    requests: Flow,
    replies: Flow,
    open: BTreeMap<u64, Connection>,
}

impl Connections {
    pub(super) fn new(rewrite: Option<Rewrite>, patience: Duration) -> Self {
        Self { counters: watch::Sender::new(Counters::default()), rewrite, patience, table: Mutex::default() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn all(&self) -> Vec<Connection> {
        self.table().open.values().cloned().collect()
    }

    pub(super) fn set_all(&self, direction: Direction, flow: Flow) {
        let mut table = self.table();
        match direction {
            Direction::Requests => table.requests = flow,
            Direction::Replies => table.replies = flow,
        }
        for connection in table.open.values() {
            connection.set(direction, flow);
        }
    }

    /// Lets everything pass. A client connects again at once after a reset, so new connections pass first. Connections
    /// torn until the last one passes are reset too.
    pub(super) async fn mend(&self) {
        {
            let mut table = self.table();
            (table.requests, table.replies) = (Flow::Pass, Flow::Pass);
        }
        self.cut_torn().await;
        self.set_all(Direction::Requests, Flow::Pass);
        self.set_all(Direction::Replies, Flow::Pass);
        self.cut_torn().await;
    }

    async fn cut_torn(&self) {
        let torn = self.all().into_iter().filter(|c| c.0.torn.load(Ordering::Relaxed)).collect();
        self.cut(torn).await;
    }

    /// Resets these connections, and waits until they are gone.
    pub(super) async fn cut(&self, connections: Vec<Connection>) {
        let mut counters = self.counters.subscribe();
        connections.iter().for_each(Connection::cut);
        let gone = |_: &Counters| {
            let table = self.table();
            connections.iter().all(|c| !table.open.contains_key(&c.0.id))
        };
        // Fails only when `self`, which owns the sender, is gone.
        let _ = counters.wait_for(gone).await;
    }

    /// Serves a new connection in a task of its own.
    pub(super) fn open(self: &Arc<Self>, client: TcpStream, peer: SocketAddr, upstream: SocketAddr) {
        let connection = {
            let mut table = self.table();
            let connection = Connection(Arc::new(State {
                id: table.next,
                client: peer,
                requests: watch::Sender::new(table.requests),
                replies: watch::Sender::new(table.replies),
                cut: CancellationToken::new(),
                torn: AtomicBool::new(false),
                opening: Mutex::default(),
            }));
            table.next += 1;
            table.open.insert(connection.0.id, connection.clone());
            connection
        };
        self.counters.send_modify(|c| {
            c.accepted += 1;
            c.open += 1;
        });
        let connections = Arc::clone(self);
        tokio::spawn(async move {
            connections.carry(client, upstream, &connection.0).await;
            connections.table().open.remove(&connection.0.id);
            connections.counters.send_modify(|c| c.open -= 1);
        });
    }

    /// Carries one connection to its end. An end that was not orderly is a reset on both sides.
    async fn carry(&self, mut client: TcpStream, upstream: SocketAddr, state: &State) {
        let Some(Ok(mut server)) =
            state.cut.run_until_cancelled(connect(upstream, state, self.patience)).await
        else {
            return reset(&client);
        };
        let ended = {
            let (from_client, to_client) = client.split();
            let (from_server, to_server) = server.split();
            let requests = self.pump(from_client, to_server, state, Direction::Requests);
            let replies = self.pump(from_server, to_client, state, Direction::Replies);
            state.cut.run_until_cancelled(async { tokio::try_join!(requests, replies) }).await
        };
        if !matches!(ended, Some(Ok(_))) {
            reset(&client);
            reset(&server);
        }
    }

    /// Moves one direction's bytes. The reader notes when they arrived, the writer asks what to do with them now.
    async fn pump(
        &self,
        reader: ReadHalf<'_>,
        writer: WriteHalf<'_>,
        state: &State,
        direction: Direction,
    ) -> io::Result<()> {
        // Bounded, so that a side which is not read from stops being written to.
        let (sender, receiver) = mpsc::channel(64);
        let read = async {
            self.read(reader, sender, state, direction).await;
            Ok(())
        };
        tokio::try_join!(read, self.write(writer, receiver, state, direction)).map(|_| ())
    }

    async fn read(
        &self,
        mut reader: ReadHalf<'_>,
        sender: mpsc::Sender<(Instant, Event)>,
        state: &State,
        direction: Direction,
    ) {
        let rewrite = self.rewrite.clone().filter(|_| direction == Direction::Requests);
        let mut beginning = Beginning::new(rewrite);
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let event = match reader.read(&mut buffer).await {
                Ok(0) => Event::End,
                Ok(read) => {
                    self.counters.send_modify(|c| c.traffic(direction).arrived += read as u64);
                    match beginning.pass(&buffer[..read]) {
                        Some(bytes) => Event::Bytes(bytes),
                        None => continue,
                    }
                }
                Err(_) => Event::Reset,
            };
            if let (Direction::Replies, Event::Bytes(bytes)) = (direction, &event) {
                let mut opening = state.opening.lock().unwrap_or_else(PoisonError::into_inner);
                let missing = OPENING - opening.len();
                opening.extend(bytes.iter().take(missing));
            }
            let last = !matches!(event, Event::Bytes(_));
            if sender.send((Instant::now(), event)).await.is_err() || last {
                return;
            }
        }
    }

    async fn write(
        &self,
        mut writer: WriteHalf<'_>,
        mut receiver: mpsc::Receiver<(Instant, Event)>,
        state: &State,
        direction: Direction,
    ) -> io::Result<()> {
        let mut flow = state.flow(direction).subscribe();
        // Whether a word stopped this side, and whether bytes were lost: what comes later would have no place.
        let (mut stopped, mut lost) = (false, false);
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        while let Some((arrived, mut event)) = receiver.recv().await {
            loop {
                let now = due(arrived, &mut flow).await.ok_or_else(gone)?;
                let Event::Bytes(bytes) = &mut event else { break };
                stopped |= now.stops_at(bytes);
                lost |= stopped || now == Flow::Drop;
                let (Flow::Drip(pause), false, Some((first, rest))) = (now, lost, bytes.split_first()) else {
                    break;
                };
                writer.write_all(&[*first]).await?;
                self.counters.send_modify(|c| c.traffic(direction).passed += 1);
                *bytes = rest.to_vec();
                if bytes.is_empty() {
                    break;
                }
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    changed = flow.changed() => changed.map_err(|_| gone())?,
                }
            }
            match event {
                Event::Bytes(bytes) if lost => {
                    state.torn.store(true, Ordering::Relaxed);
                    self.counters.send_modify(|c| c.traffic(direction).dropped += bytes.len() as u64);
                }
                // A stopped side closes nothing either.
                Event::End | Event::Reset if stopped => {}
                Event::Bytes(bytes) => {
                    writer.write_all(&bytes).await?;
                    self.counters.send_modify(|c| c.traffic(direction).passed += bytes.len() as u64);
                }
                Event::End => writer.shutdown().await?,
                Event::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
            }
        }
        Ok(())
    }
}

/// An event that a reader saw.
enum Event {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// Connects to the server, once requests may pass: a connection that hangs is one the server knows nothing of.
async fn connect(upstream: SocketAddr, state: &State, patience: Duration) -> io::Result<TcpStream> {
    let mut requests = state.requests.subscribe();
    // The sender is in `state`.
    let _ = requests.wait_for(|flow| *flow != Flow::Hold).await;
    let deadline = Instant::now() + patience;
    let connected = loop {
        match TcpStream::connect(upstream).await {
            Err(_) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(10)).await,
            connected => break connected.and_then(|server| server.set_nodelay(true).map(|()| server)),
        }
    };
    if connected.is_err() {
        // A refused connection is a reply too.
        due(Instant::now(), &mut state.replies.subscribe()).await;
    }
    connected
}

/// Makes the coming close a reset. On a socket that is broken already there is nothing left to reset.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
