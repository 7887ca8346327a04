//! Why a grant's node is gone: a client deleted it, or its session has ended.

use crate::{LONG_SESSION, Scene, claim, in_time, server::ONE, try_grant};
use std::{io, net::SocketAddr, time::Duration};
use tenure_core::{Backend, Liveness, LossCause, Release, Standing};
use tenure_zk::{ZkBackend, ZkOptions};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{mpsc, watch},
};

const EXISTS: i32 = 3;
const MULTI: i32 = 14;
/// The type of a failed operation's result in the answer to a `multi`, and of its end.
const ERROR: i32 = -1;
const NO_NODE: i32 = -101;
const SESSION_EXPIRED: i32 = -112;

/// The server's behaviour from then on.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// As before.
    Serves,
    /// A slow disk answers no `multi`.
    WritesSlowly,
    /// Answers nothing, as a leader on a connection that has outlived its session.
    IsSilent,
    /// As a follower on such a connection: it answers reads, and the leader refuses writes.
    OutlivesTheSession,
}

/// A request's outcome.
enum Fate {
    Passes,
    Unanswered,
    Answered(Vec<u8>),
}

/// A message with its length before it, as both sides send it.
fn packet(message: &[u8]) -> Vec<u8> {
    let length = i32::try_from(message.len()).unwrap();
    [&length.to_be_bytes(), message].concat()
}

async fn receive(stream: &mut ReadHalf<'_>) -> io::Result<Vec<u8>> {
    let length = stream.read_i32().await?;
    let mut message = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

/// Requests begin with their number and their type.
fn kind(request: &[u8]) -> i32 {
    i32::from_be_bytes(request[4..8].try_into().unwrap())
}

impl Then {
    fn fate(self, request: &[u8]) -> Fate {
        let number = &request[..4];
        let answered = |error: i32, body: &[u8]| {
            let reply: [&[u8]; 4] = [number, &0_i64.to_be_bytes(), &error.to_be_bytes(), body];
            Fate::Answered(reply.concat())
        };
        match (self, kind(request)) {
            (Self::IsSilent, _) | (Self::WritesSlowly, MULTI) => Fate::Unanswered,
            (Self::OutlivesTheSession, EXISTS) => answered(NO_NODE, &[]),
            (Self::OutlivesTheSession, MULTI) => {
                let [error, expired] = [ERROR, SESSION_EXPIRED].map(i32::to_be_bytes);
                let body: [&[u8]; 7] = [&error, &[0], &expired, &expired, &error, &[1], &error];
                answered(0, &body.concat())
            }
            _ => Fate::Passes,
        }
    }
}

/// A way to a server, for one connection.
struct Between {
    address: SocketAddr,
    then: watch::Sender<Then>,
    /// Whether the client has asked for a node to be watched.
    watched: watch::Receiver<bool>,
    replies: mpsc::UnboundedSender<Vec<u8>>,
}

impl Between {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (then, now) = watch::channel(Then::Serves);
        let (watching, watched) = watch::channel(false);
        let (replies, due) = mpsc::unbounded_channel();
        tokio::spawn({
            let replies = replies.clone();
            async move {
                let (client, _) = listener.accept().await?;
                drop(listener);
                let server = TcpStream::connect(server).await?;
                carry(client, server, (now, watching), replies, due).await
            }
        });
        Self { address, then, watched, replies }
    }

    /// Tells the client that this node is gone.
    fn tell_gone(&self, node: &str) {
        const NOTIFICATION: i32 = -1;
        const NODE_DELETED: i32 = 2;
        const CONNECTED: i32 = 3;
        let length = i32::try_from(node.len()).unwrap();
        let mut event = NOTIFICATION.to_be_bytes().to_vec();
        event.extend((-1_i64).to_be_bytes());
        for word in [0, NODE_DELETED, CONNECTED, length] {
            event.extend(word.to_be_bytes());
        }
        event.extend(node.as_bytes());
        self.replies.send(event).unwrap();
    }
}

async fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    orders: (watch::Receiver<Then>, watch::Sender<bool>),
    replies: mpsc::UnboundedSender<Vec<u8>>,
    due: mpsc::UnboundedReceiver<Vec<u8>>,
) -> io::Result<()> {
    let (asks, hears) = client.split();
    let (answers, is_asked) = server.split();
    let requests = pass_requests(asks, is_asked, orders, &replies);
    tokio::try_join!(requests, pass_replies(answers, &replies), tell(hears, due)).map(drop)
}

async fn pass_requests(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    (then, watching): (watch::Receiver<Then>, watch::Sender<bool>),
    replies: &mpsc::UnboundedSender<Vec<u8>>,
) -> io::Result<()> {
    loop {
        let request = receive(&mut from).await?;
        let fate = then.borrow().fate(&request);
        match fate {
            Fate::Passes => {
                to.write_all(&packet(&request)).await?;
                if kind(&request) == EXISTS && request.ends_with(&[1]) {
                    watching.send_replace(true);
                }
            }
            Fate::Unanswered => {}
            Fate::Answered(reply) => replies.send(reply).map_err(io::Error::other)?,
        }
    }
}

async fn pass_replies(mut from: ReadHalf<'_>, replies: &mpsc::UnboundedSender<Vec<u8>>) -> io::Result<()> {
    loop {
        replies.send(receive(&mut from).await?).map_err(io::Error::other)?;
    }
}

async fn tell(mut to: WriteHalf<'_>, mut due: mpsc::UnboundedReceiver<Vec<u8>>) -> io::Result<()> {
    while let Some(reply) = due.recv().await {
        to.write_all(&packet(&reply)).await?;
    }
    Ok(())
}

/// A grant of this lock past `between`, whose node is watched.
async fn granted(
    scene: &Scene,
    between: &mut Between,
    lock: &str,
    session: Duration,
) -> (ZkBackend, Liveness) {
    let options = ZkOptions::new([between.address.to_string()]).prefix(&scene.prefix);
    let backend = ZkBackend::connect(options.session_timeout(session)).await.unwrap();
    let grant = try_grant(&backend, &claim(lock)).await.unwrap();
    let Standing::Session(liveness) = &grant.standing else { panic!("{grant:?}") };
    in_time("the watch", between.watched.wait_for(|watched| *watched)).await.unwrap();
    // The answers of a session come in order.
    backend.holders(&grant.name).await.unwrap();
    (backend, liveness.clone())
}

#[tokio::test]
async fn the_cause_of_a_loss_is_found_out() {
    let Some(scene) = Scene::on(&ONE, "gone").await else { return };
    for (then, cause) in [
        (Then::Serves, LossCause::Forced),
        (Then::WritesSlowly, LossCause::Forced),
        (Then::IsSilent, LossCause::SessionEnded),
        (Then::OutlivesTheSession, LossCause::SessionEnded),
    ] {
        let (mut between, lock) = (Between::start(scene.place().address().await).await, format!("{then:?}"));
        let (_backend, liveness) = granted(&scene, &mut between, &lock, LONG_SESSION).await;
        let node = scene.node(&lock, 0).await;
        between.then.send_replace(then);
        if cause == LossCause::Forced {
            scene.eyes.delete(&node, None).await.unwrap();
        } else {
            between.tell_gone(&node);
        }
        // Long before the deadline, which is a loss too.
        assert_eq!(in_time("the loss", liveness.ended()).await, cause, "{then:?}");
    }
}

/// A release ends the watch on the node, so a repeated one must not take the missing node for released.
#[tokio::test]
async fn repeated_release_of_deleted_node_is_lost() {
    let Some(scene) = Scene::on(&ONE, "deleted").await else { return };
    let backend = scene.backend().await;
    let grant = try_grant(&backend, &claim("a")).await.unwrap();
    scene.eyes.delete(&scene.node("a", 0).await, None).await.unwrap();
    for _ in 0..2 {
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Lost(LossCause::Forced));
    }
}

/// No event tells that the node is gone, and the leader answers the next heartbeat that the session has ended.
#[tokio::test]
async fn a_heartbeat_that_is_refused_proves_nothing() {
    const SESSION: Duration = Duration::from_secs(6);
    let Some(scene) = Scene::on(&ONE, "refused").await else { return };
    let mut between = Between::start(scene.place().address().await).await;
    let (_backend, liveness) = granted(&scene, &mut between, "a", SESSION).await;
    between.then.send_replace(Then::OutlivesTheSession);
    assert_eq!(in_time("the loss", liveness.ended()).await, LossCause::SessionEnded);
}
