//! An answer over HTTP to those who want to know whether this candidate leads: a readiness probe, a load balancer.
//!
//! It is no web server: whatever the request, the answer is 200 or 503, and the connection ends. Clients are few at a time
//! and have little time, and serving them is a matter of microseconds, so nothing else waits for them.

use crate::{
    exit::Failure,
    stderr::{self, Volume},
};
use std::{convert::Infallible, io, net, time::Duration};
use tenure::Hold;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

/// How many clients are served at once. Others wait in the system's queue.
const AT_ONCE: usize = 64;
/// How long one client may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest request that is read to its end.
const LONGEST: usize = 8192;

/// A port that answers.
pub(crate) struct Port(TcpListener);

impl Port {
    /// Opens it. Clients wait until they are [answered](Self::answer).
    pub(crate) fn open(address: net::SocketAddr) -> Result<Self, Failure> {
        let open = || {
            let port = net::TcpListener::bind(address)?;
            port.set_nonblocking(true)?;
            let port = TcpListener::from_std(port)?;
            Ok((port.local_addr()?, port))
        };
        let failed = |error| Failure::system(format!("cannot answer at {address}"), error);
        let (address, port) = open().map_err(failed)?;
        if stderr::volume() == Volume::Everything {
            stderr::mention(&format!("answering at http://{address}/"));
        }
        Ok(Self(port))
    }

    /// Answers until it is dropped.
    pub(crate) async fn answer(&self, term: watch::Receiver<Option<Hold>>) -> Infallible {
        let mut clients = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = clients.join_next() => {}
                client = self.0.accept(), if clients.len() < AT_ONCE => match client {
                    Ok((client, _)) => {
                        clients.spawn(timeout(PATIENCE, reply(client, term.clone())));
                    }
                    // The client is gone, or the system has no room for it.
                    Err(_) => sleep(PATIENCE).await,
                },
            }
        }
    }
}

async fn reply(mut client: TcpStream, term: watch::Receiver<Option<Hold>>) -> io::Result<()> {
    // What is not read would make the system reset the connection, which the client may see before the answer.
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < LONGEST {
        if client.read_buf(&mut request).await? == 0 {
            break;
        }
    }
    // This compares clocks, so it is right immediately after a freeze.
    let leads = term.borrow().as_ref().is_some_and(Hold::is_held);
    let status = if leads { "200 OK" } else { "503 Service Unavailable" };
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await
}
