//! What the kinds of servers differ in.

use crate::admin::{Admin, unknown};
use crate::way::Way;
use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use sqlx::{MySqlConnection, PgConnection};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tenure_conformance::saboteur::{Hurt, Injection};
use testcontainers::{ContainerRequest, GenericImage};
use tokio::net::TcpStream;
use url::Url;

/// How one kind of server is started, asked and administered.
#[async_trait]
pub(crate) trait Recipe: fmt::Debug + Send + Sync {
    /// Whose image it is: `redis`, as in `TENURE_TEST_REDIS_IMAGE`.
    fn family(&self) -> &'static str;

    /// The image to run, unless the environment names another. Empty if there is none.
    fn image(&self) -> &'static str;

    /// The port inside a container, and of a URL that names none.
    fn port(&self) -> u16;

    /// The port of the loopback interface that it must have, because others know it. A container then shares the
    /// host's network.
    fn fixed_port(&self) -> Option<u16> {
        None
    }

    /// Whether it finds its place again when it is started a second time.
    fn may_restart(&self) -> bool {
        true
    }

    /// Whether it can do without its data.
    fn may_wipe(&self) -> bool {
        true
    }

    /// The container's environment and command. They work with the official image and with our stand-in.
    fn container(&self, image: GenericImage) -> ContainerRequest<GenericImage>;

    /// The server's program on this machine, or why it cannot be run.
    fn program(&self) -> Result<PathBuf, String>;

    /// Makes an empty data directory of `home`. `command` starts a program as the server's user.
    fn prepare(&self, setup: &Setup<'_>) -> io::Result<()> {
        let _ = setup;
        Ok(())
    }

    /// The command that serves `home` on this port of the loopback interface, in the foreground.
    fn serve(&self, setup: &Setup<'_>, port: u16) -> io::Result<Command>;

    /// The user to run the program as where we are root and it must not be.
    fn user(&self) -> Option<&'static str> {
        None
    }

    /// The URL of a server that we started.
    fn url(&self, address: SocketAddr) -> String;

    /// The URL of its administrator, past the proxy.
    fn admin_url(&self, address: SocketAddr) -> String {
        self.url(address)
    }

    /// Succeeds once the server answers its clients.
    async fn ready(&self, admin: &Admin<'_>) -> io::Result<()>;

    /// Whether a proxy may stand in front of a server from the environment. Not with TLS, whose client checks the host.
    fn may_proxy(&self, url: &Url) -> bool;

    /// The hurts that this kind's own protocol or tools can do to a server that was found so.
    fn hurts(&self, way: &Way) -> &'static [Hurt];

    /// Whether this hurt is something that is held against others, and not a state of the server.
    fn is_held(&self, hurt: Hurt) -> bool {
        matches!(hurt, Hurt::FillConnections | Hurt::FillDisk | Hurt::LockRows | Hurt::LockTables)
    }

    /// The words with which its clients end a transaction that they began in an earlier message.
    fn ends(&self) -> &'static [&'static str] {
        &[]
    }

    /// Injects one of them.
    async fn inject(&self, admin: &Admin<'_>, injection: Injection) -> io::Result<()> {
        let _ = admin;
        Err(unknown(injection.hurt))
    }

    /// Undoes one that lasts.
    async fn undo(&self, admin: &Admin<'_>, hurt: Hurt) -> io::Result<()> {
        let _ = admin;
        Err(unknown(hurt))
    }

    /// Has a foreign session hold what is tenure's, its rows for instance, or takes the connections that the server has
    /// left: where [`hurts`](Self::hurts) says so.
    async fn hold(&self, admin: &Admin<'_>, hurt: Hurt) -> io::Result<Held> {
        let _ = admin;
        Err(unknown(hurt))
    }

    /// Gives back what was taken.
    async fn free(&self, held: Held) -> io::Result<()> {
        drop(held);
        Ok(())
    }
}

/// What is held against others: connections, locks.
#[derive(Debug)]
pub(crate) enum Held {
    /// A connection from before the limit was lowered, and what the limit was.
    Redis { redis: MultiplexedConnection, limit: String },
    /// All that the server gave.
    Connections { _kept: Vec<TcpStream> },
    /// A foreign session in a transaction, which ends with it.
    Postgres { session: PgConnection },
    /// Foreign sessions: one has one list of locked tables, all or none of which it gets.
    Mysql { sessions: Vec<MySqlConnection> },
}

/// Opens connections until the server has none left: until `greet`, which does what a client does first, says it was
/// turned away.
pub(crate) async fn hold_all<G>(address: SocketAddr, greet: impl Fn(TcpStream) -> G) -> io::Result<Held>
where
    G: Future<Output = io::Result<Option<TcpStream>>>,
{
    let (mut held, mut full_since) = (Vec::new(), None);
    loop {
        match greeted(address, &greet).await? {
            Some(connection) => {
                held.push(connection);
                full_since = None;
            }
            // What another has just closed comes free a moment later.
            None if full_since.get_or_insert_with(Instant::now).elapsed() > Duration::from_millis(200) => {
                break;
            }
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
        if held.len() > 800 {
            return Err(io::Error::other("more than 800 connections are allowed"));
        }
    }
    Ok(Held::Connections { _kept: held })
}

/// A connection, or nothing where the server has none left.
async fn greeted<G>(address: SocketAddr, greet: impl Fn(TcpStream) -> G) -> io::Result<Option<TcpStream>>
where
    G: Future<Output = io::Result<Option<TcpStream>>>,
{
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    match TcpStream::connect(address).await {
        // It hung up before we had looked.
        Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset) => Ok(None),
        stream => greet(stream?).await,
    }
}

/// Where a local server lives.
pub(crate) struct Setup<'a> {
    /// The server's program.
    pub(crate) program: &'a Path,
    /// Its directory, also its working directory: that is how its processes are found again.
    pub(crate) home: &'a Path,
    /// Whether a commit waits for the disk.
    pub(crate) on_disk: bool,
    /// A command that runs a program there, as the server's user.
    pub(crate) command: &'a dyn Fn(&Path) -> Command,
}
