//! A connection that can be broken where it hurts.

use std::sync::Arc;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Passes connections on to a server.
pub(crate) struct Relay {
    pub(crate) port: u16,
    state: Arc<watch::Sender<State>>,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// Replies are swallowed.
    deaf: bool,
    /// Requests are swallowed.
    mute: bool,
    /// Rises with each cut.
    cuts: u32,
}

impl Relay {
    pub(crate) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(watch::Sender::new(State::default()));
        let states = Arc::downgrade(&state);
        tokio::spawn(async move {
            while let (Ok((client, _)), Some(states)) = (listener.accept().await, states.upgrade()) {
                // Where there is no server, there is no connection.
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
                tokio::spawn(pass_on(client, server, states.subscribe()));
            }
        });
        Self { port, state }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Requests go on, replies are lost, until the next [`cut`](Self::cut).
    pub(crate) fn deafen(&self) {
        self.state.send_modify(|state| state.deaf = true);
    }

    /// Nothing passes any more, and nobody is told.
    pub(crate) fn stall(&self) {
        self.state.send_modify(|state| (state.deaf, state.mute) = (true, true));
    }

    /// Breaks every connection; new ones hear again.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| *state = State { deaf: false, mute: false, cuts: state.cuts + 1 });
    }
}

async fn pass_on(mut client: TcpStream, mut server: TcpStream, mut states: watch::Receiver<State>) {
    let cuts = states.borrow_and_update().cuts;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let (mutes, deafens) = (states.clone(), states.clone());
    tokio::select! {
        _ = copy(from_client, to_server, || mutes.borrow().mute) => {}
        _ = copy(from_server, to_client, || deafens.borrow().deaf) => {}
        _ = states.wait_for(|state| state.cuts > cuts) => {}
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    swallows: impl Fn() -> bool,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 65536];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        if !swallows() {
            to.write_all(&buffer[..read]).await?;
        }
    }
}
