//! A proxy between clients and a server, which can be paused, cut and pointed elsewhere.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU16, AtomicUsize, Ordering},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::watch,
    task::JoinSet,
};

/// What becomes of what is sent one way on a connection that is open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wire {
    Open,
    /// It waits. What is sent the other way passes.
    Held,
}

/// Passes connections on to a server on this machine.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    target: AtomicU16,
    connections: AtomicUsize,
    /// For the connections that are open now: what becomes of the requests.
    present: Mutex<watch::Sender<Wire>>,
    /// For all connections: what becomes of the replies.
    replies: watch::Sender<Wire>,
}

impl Proxy {
    pub(crate) async fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            target: target.into(),
            connections: AtomicUsize::new(0),
            present: Mutex::new(watch::Sender::new(Wire::Open)),
            replies: watch::Sender::new(Wire::Open),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, Arc::clone(&shared)));
        Self { port, shared, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How many connections were attempted so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// What is sent on the present connections waits until the return value is told to let go. Connections made later
    /// are not held up.
    pub(crate) fn hold(&self) -> Held {
        let mut present = self.shared.present.lock().expect("no panic");
        let held = std::mem::replace(&mut *present, watch::Sender::new(Wire::Open));
        held.send_replace(Wire::Held);
        Held(held)
    }

    /// The same, and connections made later wait too.
    pub(crate) fn hold_all(&self) -> Held {
        let present = self.shared.present.lock().expect("no panic");
        present.send_replace(Wire::Held);
        Held(present.clone())
    }

    /// What the server answers waits, on all connections, until the return value is told to let go.
    pub(crate) fn hold_replies(&self) -> Held {
        self.shared.replies.send_replace(Wire::Held);
        Held(self.shared.replies.clone())
    }

    /// Cuts the present connections.
    pub(crate) fn cut(&self) {
        let mut present = self.shared.present.lock().expect("no panic");
        *present = watch::Sender::new(Wire::Open);
    }
}

/// Connections that are held up.
pub(crate) struct Held(watch::Sender<Wire>);

impl Held {
    pub(crate) fn let_go(&self) {
        self.0.send_replace(Wire::Open);
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        let Ok(server) = TcpStream::connect(("127.0.0.1", shared.target.load(Ordering::SeqCst))).await else {
            continue;
        };
        let (wire, back) = (shared.present.lock().expect("no panic").subscribe(), shared.replies.subscribe());
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        connections.spawn(async move {
            // Requests that were sent before the client hung up still go through.
            let replies = tokio::spawn(pass(from_server, to_client, back));
            pass(from_client, to_server, wire).await;
            replies.abort();
        });
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut wire: watch::Receiver<Wire>) {
    let mut bytes = [0; 4096];
    loop {
        let open = async { wire.wait_for(|wire| *wire == Wire::Open).await.is_ok() };
        if !open.await {
            return;
        }
        tokio::select! {
            // What has been sent, and not yet been seen here, is held up too.
            biased;
            changed = wire.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            read = from.read(&mut bytes) => match read {
                Ok(count) if count > 0 => {
                    if to.write_all(&bytes[..count]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}
