//! Answers over HTTP to probes and load balancers: whether this candidate lives, takes part, leads.
//!
//! It is no web server: the answer to any request is 200 or 503, and the connection ends. Few clients are served at a
//! time, each within a time limit and in microseconds, so nothing else waits for them.

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
const AT_ONCE: usize = 16;
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
        let failed = |error| {
            Failure::system(
                format!(
                    "cannot listen on {address}; give --ready-port an address of this machine and a free port"
                ),
                error,
            )
        };
        let (address, port) = open().map_err(failed)?;
        if stderr::volume() == Volume::Everything {
            stderr::mention(&format!("listening on http://{address}/"));
        }
        Ok(Self(port))
    }

    /// Answers until it is dropped.
    pub(crate) async fn answer(&self, candidate: Candidate) -> Infallible {
        let mut clients = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = clients.join_next() => {}
                client = self.0.accept(), if clients.len() < AT_ONCE => match client {
                    Ok((client, _)) => {
                        clients.spawn(timeout(PATIENCE, reply(client, candidate.clone())));
                    }
                    // The client is gone, or the system has no room for it.
                    Err(_) => sleep(PATIENCE).await,
                },
            }
        }
    }
}

/// The state of this candidate that probes ask for.
#[derive(Clone)]
pub(crate) struct Candidate {
    /// Whether the candidate has reached the store and takes part in the election.
    pub(crate) joined: watch::Receiver<bool>,
    pub(crate) term: watch::Receiver<Option<Hold>>,
}

impl Candidate {
    /// The answer to a request for this path.
    fn is(&self, path: &[u8]) -> bool {
        match path {
            b"/live" => true,
            b"/ready" => *self.joined.borrow(),
            // This compares clocks, so it is right immediately after a freeze.
            _ => self.term.borrow().as_ref().is_some_and(Hold::is_held),
        }
    }
}

async fn reply(mut client: TcpStream, candidate: Candidate) -> io::Result<()> {
    // Unread bytes would make the system reset the connection, which the client may see before the answer.
    let mut request = Vec::new();
    let mut is_new = 0;
    while !request[is_new..].windows(4).any(|end| end == b"\r\n\r\n") && request.len() < LONGEST {
        is_new = request.len().saturating_sub(3);
        if client.read_buf(&mut request).await? == 0 {
            break;
        }
    }
    let path = request.split(|byte| matches!(byte, b' ' | b'?')).nth(1).unwrap_or_default();
    let status = if candidate.is(path) { "200 OK" } else { "503 Service Unavailable" };
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await
}
