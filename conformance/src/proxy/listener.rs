//! The proxy's port, which stays the same even while it refuses connections.

use super::connection::Connections;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpListener, TcpSocket};

/// A port of the loopback interface.
///
/// The first socket is bound and never listens: it keeps the port from others, and the system refuses connections to
/// it. A second one on the same port listens while connections are wanted.
#[derive(Debug)]
pub(super) struct Listener {
    address: SocketAddr,
    _placeholder: TcpSocket,
}

impl Listener {
    pub(super) fn bind() -> io::Result<Self> {
        let placeholder = bound(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        Ok(Self { address: placeholder.local_addr()?, _placeholder: placeholder })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn listen(&self) -> io::Result<TcpListener> {
        bound(self.address)?.listen(1024)
    }
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // Between these two alone. With `SO_REUSEADDR`, any process could share a port without a listener.
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Accepts until the task is aborted.
pub(super) async fn serve(
    listener: TcpListener,
    upstream: Arc<Mutex<SocketAddr>>,
    connections: Arc<Connections>,
) {
    loop {
        match listener.accept().await {
            Ok((client, peer)) => {
                // An answer in several packets would wait for the client's acknowledgements, 40 ms each. If this fails,
                // the client has gone.
                let _ = client.set_nodelay(true);
                let upstream = *upstream.lock().unwrap_or_else(PoisonError::into_inner);
                connections.open(client, peer, upstream);
            }
            // The client has gone already, or this process is out of descriptors: then a pause is all that helps.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    }
}
